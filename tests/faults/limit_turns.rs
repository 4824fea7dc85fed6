//! Groups that take turns, and rates under saturation, by the store's own times. What happens to places is in `limits`.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use steadfast::job::{GroupDefaults, Lease, Outcome, QueueSettings, Rate};
use steadfast::store::{self, Settle};
use steadfast::worker::JobError;
use steadfast::{Context, Queue, Status, Worker};

use crate::limit_site::*;
use crate::players::{Task, worker_settings};
use crate::scale::wait_timeout;
use crate::stage::{Stage, Store};

async fn with_groups(store: Store) -> (Stage, Queue) {
    let stage = Stage::on(store).await;
    let queue = stage.queue().await;
    limit(&queue, QueueSettings::default().groups(GroupDefaults::default())).await;
    (stage, queue)
}

fn groups(leases: &[Lease]) -> BTreeSet<String> {
    leases.iter().filter_map(|lease| group_of(lease.job())).collect()
}

async fn flood_in_one_claim(store: Store) {
    let (_stage, queue) = with_groups(store).await;
    enqueue(&queue, 500, &QUICK, Some("flood")).await;
    claim_up_to(queue.store(), 10).await;
    for key in ["a", "b", "c"] {
        enqueue(&queue, 5, &QUICK, Some(key)).await;
    }
    let served = groups(&claim_up_to(queue.store(), 8).await);
    assert_eq!(served.len(), 4, "the flood took the turns of others: {served:?}");
}

#[tokio::test]
async fn f43_a_flood_of_one_group_does_not_take_all_of_a_claim_on_sqlite() {
    flood_in_one_claim(Store::Sqlite).await;
}

#[tokio::test]
async fn f43_a_flood_of_one_group_does_not_take_all_of_a_claim_on_postgresql() {
    flood_in_one_claim(Store::Postgres).await;
}

async fn claims_of_one(store: Store) {
    let (_stage, queue) = with_groups(store).await;
    for key in ["a", "b", "c", "d"] {
        enqueue(&queue, 20, &QUICK, Some(key)).await;
    }
    let mut leases = Vec::new();
    for _ in 0..8 {
        leases.extend(claim_up_to(queue.store(), 1).await);
    }
    let served = groups(&leases);
    assert_eq!(served.len(), 4, "the turn was not passed on: {served:?} in eight claims");
}

#[tokio::test]
async fn f43_claims_of_one_job_go_round_the_groups_on_sqlite() {
    claims_of_one(Store::Sqlite).await;
}

#[tokio::test]
async fn f43_claims_of_one_job_go_round_the_groups_on_postgresql() {
    claims_of_one(Store::Postgres).await;
}

const TENANTS: usize = 10;
const OF_EACH: usize = 12;

/// Claims until nothing but the flood is left to others. Answers how many of the flood it had by then, and of others.
async fn serve(store: Arc<dyn store::Store>, left: Arc<Mutex<usize>>) -> (usize, usize) {
    let (mut flood, mut others) = (0, 0);
    while *left.lock().unwrap() > 0 {
        let leases = claim(&store, TENANTS + 1).await;
        for lease in &leases {
            if group_of(lease.job()).as_deref() == Some("flood") {
                flood += 1;
            } else {
                others += 1;
                *left.lock().unwrap() -= 1;
            }
        }
        let settles = leases.iter().map(|lease| Settle::new(lease.key(), Outcome::succeeded(None)));
        store.settle(settles.collect()).await.unwrap();
    }
    (flood, others)
}

/// Counted in starts, not in time: by when all jobs of the others have started, the flood has had a few turns for each of
/// theirs at most, whoever claims.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f43_jobs_of_others_do_not_wait_for_a_flood_that_was_there_first() {
    for (store, processes) in [(Store::Sqlite, 1), (Store::Postgres, 3)] {
        let (stage, queue) = with_groups(store).await;
        enqueue(&queue, 1_000, &QUICK, Some("flood")).await;
        enqueue(&queue, 1_000, &QUICK, Some("flood")).await;
        for tenant in 0..TENANTS {
            enqueue(&queue, OF_EACH, &QUICK, Some(&format!("tenant-{tenant}"))).await;
        }
        let left = Arc::new(Mutex::new(TENANTS * OF_EACH));
        let mut serving = tokio::task::JoinSet::new();
        for n in 0..processes {
            let queue = if n == 0 { queue.clone() } else { stage.queue().await };
            let left = left.clone();
            serving.spawn(async move { serve(queue.store().clone(), left).await });
        }
        let served = serving.join_all().await;
        let flood: usize = served.iter().map(|(flood, _)| flood).sum();
        let others: usize = served.iter().map(|(_, others)| others).sum();
        assert_eq!(others, TENANTS * OF_EACH);
        println!("{flood} of the flood and {others} of ten others, {OF_EACH} each, {store:?}");
        // Each process learns of a tenant for itself, and deals its own turns.
        assert!(flood <= 4 * OF_EACH * processes, "the flood took the turns of others: {flood} starts, {store:?}");
    }
}

/// 20 a second. The burst is half a second of it, so that a busy machine that is late makes up for it.
const STEP_MS: i64 = 50;
const BURST: i64 = 10;
const WINDOW_MS: i64 = 4_000;

fn at_rate(queue: &Queue, stage: &Stage) -> Worker {
    // Whoever only comes by every two seconds uses a fraction of it.
    let settings = worker_settings(&stage.script()).poll_min(Duration::from_secs(2)).poll_max(Duration::from_secs(2));
    let worker = Worker::new(queue.clone()).settings(settings);
    worker.handle(|_: Task, _: Context| async { Ok::<_, JobError>(()) })
}

/// When each job was started, in milliseconds since the first, once a window is over. By the store's clock.
async fn starts(queue: &Queue) -> Vec<i64> {
    let give_up = Instant::now() + wait_timeout();
    loop {
        let done = jobs_of(queue, Status::Succeeded).await;
        let mut starts: Vec<_> = done.iter().map(|job| job.started_at.unwrap().as_microsecond()).collect();
        starts.sort_unstable();
        if let (Some(first), Some(last)) = (starts.first().copied(), starts.last())
            && last - first > WINDOW_MS * 1_000
        {
            return starts.iter().map(|at| at - first).collect();
        }
        assert!(Instant::now() < give_up, "waited in vain for starts over {WINDOW_MS} ms: {starts:?}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

async fn saturated(store: Store, processes: usize) {
    let stage = Stage::alone_on(store).await;
    let mut queues = Vec::new();
    for _ in 0..processes {
        queues.push(stage.queue().await);
    }
    let rate = Rate::new(1_000 / STEP_MS as u32, 1_000).burst(BURST as u32);
    limit(&queues[0], QueueSettings::default().rate(rate)).await;
    enqueue(&queues[0], 500, &QUICK, None).await;
    let (stop, _) = tokio::sync::broadcast::channel::<()>(1);
    let mut working = tokio::task::JoinSet::new();
    for queue in &queues {
        let mut stopped = stop.subscribe();
        working.spawn(at_rate(queue, &stage).run_until(async move { drop(stopped.recv().await) }));
    }
    let starts = starts(&queues[0]).await;
    drop(stop);
    working.join_all().await.into_iter().for_each(Result::unwrap);
    for (n, from) in starts.iter().enumerate() {
        for (m, at) in starts.iter().enumerate().skip(n) {
            let (count, within) = ((m - n) as i64 + 1, at - from);
            assert!(count <= BURST + within / (STEP_MS * 1_000), "over the rate: {count} starts in {within} µs");
        }
    }
    let used = starts.iter().filter(|at| **at <= WINDOW_MS * 1_000).count() as i64;
    let given = WINDOW_MS / STEP_MS;
    println!("{used} starts where the rate gives {given} and {BURST} at once, {store:?}");
    assert!(used * 100 >= given * 95, "little of the rate is used: {used} starts where it gives {given}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f43_a_rate_under_saturation_is_used_to_95_percent_and_never_exceeded_on_sqlite() {
    saturated(Store::Sqlite, 1).await;
}

/// Of three processes together.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f43_a_rate_under_saturation_is_used_to_95_percent_and_never_exceeded_on_postgresql() {
    saturated(Store::Postgres, 3).await;
}
