//! Jobs and workers for these tests.

use std::time::Duration;

use jiff::Timestamp;
use steadfast::job::{
    JobId, JobRequest, Json, KindDefaults, Lease, Limits, NewJob, Outcome, QueueName, Status, WorkerId,
};
use steadfast::store::{Claim, Settle, Settled, StatsRequest, Store, StoreError};
use tokio::time::{Instant, sleep};

pub(crate) fn request(queue: &str) -> JobRequest {
    JobRequest::new("welcome", Json::parse("{\"user\":42}".into()).unwrap()).queue(queue)
}

pub(crate) fn checked(request: JobRequest) -> NewJob {
    NewJob::new(request, &KindDefaults::default(), &Limits::default(), Timestamp::now()).unwrap()
}

pub(crate) fn jobs(queue: &str, count: usize) -> Vec<NewJob> {
    (0..count).map(|_| checked(request(queue))).collect()
}

pub(crate) async fn enqueue(store: &dyn Store, queue: &str, count: usize) -> Vec<JobId> {
    let mut ids = Vec::new();
    for chunk in jobs(queue, count).chunks(1000) {
        ids.extend(store.enqueue(chunk.to_vec()).await.unwrap().into_iter().map(|one| one.job.id));
    }
    ids
}

pub(crate) fn claim(max: usize) -> Claim {
    Claim::new(WorkerId::new("w").unwrap(), Duration::from_secs(60)).max(max)
}

pub(crate) fn done(lease: &Lease) -> Settle {
    Settle::new(lease.key(), Outcome::Succeeded(None))
}

/// Claims and settles until there is nothing left; answers what it claimed.
pub(crate) async fn work_off(store: &dyn Store, max: usize) -> Vec<JobId> {
    let mut ids = Vec::new();
    loop {
        let leases = store.claim(claim(max)).await.unwrap().leases;
        if leases.is_empty() {
            return ids;
        }
        ids.extend(leases.iter().map(|lease| lease.job().id));
        settle_all(store, &leases).await.unwrap();
    }
}

pub(crate) async fn settle_all(store: &dyn Store, leases: &[Lease]) -> Result<(), StoreError> {
    for answer in store.settle(leases.iter().map(done).collect()).await? {
        assert_eq!(answer?, Settled::Recorded);
    }
    Ok(())
}

pub(crate) async fn count(store: &dyn Store, queue: &str, status: Status) -> u64 {
    let stats = store.stats(StatsRequest::new()).await.unwrap();
    let queue = stats.queues.get(&QueueName::new(queue).unwrap());
    queue.and_then(|queue| queue.counts.get(&status)).copied().unwrap_or(0)
}

/// Waits for something to become true, generously.
pub(crate) async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let give_up = Instant::now() + Duration::from_secs(60);
    while !holds().await {
        assert!(Instant::now() < give_up, "not within a minute: {what}");
        sleep(Duration::from_millis(20)).await;
    }
}
