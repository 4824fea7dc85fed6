//! Claim and settle as fast as one process can, one batch after the other.

#![expect(clippy::unwrap_used, reason = "a benchmark that fails has no figures")]

use std::time::{Duration, Instant};

use jiff::Timestamp;
use steadfast::job::{JobRequest, Json, KindDefaults, Limits, NewJob, Outcome, WorkerId};
use steadfast::store::{Claim, Settle, Store};

/// What a dispatcher of fast jobs asks for.
const BATCH: usize = 200;

pub(crate) async fn enqueue(store: &dyn Store, count: usize) {
    let payload = Json::parse("{\"user\":42}".into()).unwrap();
    for start in (0..count).step_by(500) {
        let jobs = (start..count.min(start + 500)).map(|_| {
            let request = JobRequest::new("welcome", payload.clone());
            NewJob::new(request, &KindDefaults::default(), &Limits::default(), Timestamp::now()).unwrap()
        });
        store.enqueue(jobs.collect()).await.unwrap();
    }
}

/// Jobs per second over the claim and settle of `count` jobs.
pub(crate) async fn drain(store: &dyn Store, count: usize) -> f64 {
    let (began, mut left) = (Instant::now(), count);
    while left > 0 {
        let claim = Claim::new(WorkerId::new("bench").unwrap(), Duration::from_secs(600)).max(BATCH.min(left));
        let leases = store.claim(claim).await.unwrap().leases;
        assert!(!leases.is_empty(), "{left} jobs are nowhere to be found");
        left -= leases.len();
        let settles = leases.iter().map(|lease| Settle::new(lease.key(), Outcome::Succeeded(None)));
        store.settle(settles.collect()).await.unwrap();
    }
    count as f64 / began.elapsed().as_secs_f64()
}
