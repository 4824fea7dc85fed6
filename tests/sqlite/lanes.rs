//! The lanes that the writer knows: whatever happens to them, claims find what a look into the file would find, in its
//! order. That they are exactly those of the file is checked by every transaction of a debug build.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::time::Duration;

use fastrand::Rng;
use steadfast::job::{JobId, JobRecord, Kind, NewJob, QueueName, Status};
use steadfast::store::sqlite::SqliteStore;
use steadfast::store::{Cancel, CatalogStore, Claim, JobStore, Pause, Resume};

use crate::changed::changed;
use crate::jobs_file::{JobsFile, checked, claim, claim_of, enqueue, enqueue_one, in_queue, job, walk};

/// More lanes than one transaction reads after somebody else has written.
const MANY: usize = 600;

fn queue(name: impl std::fmt::Display) -> QueueName {
    QueueName::new(name.to_string()).unwrap()
}

fn kind(name: impl std::fmt::Display) -> Kind {
    Kind::new(name.to_string()).unwrap()
}

/// Jobs over some hundred lanes, some of them not due yet.
fn scattered(rng: &mut Rng, count: usize) -> Vec<NewJob> {
    let mut job = || {
        let request = changed(in_queue(&format!("queue-{}", rng.u8(0..10))), |job| {
            job.kind = format!("kind-{}", rng.u8(0..5));
            job.priority = Some(rng.i64(-3..4));
        });
        checked(if rng.u8(0..4) == 0 { request.delay_ms(rng.i64(1..60_000)) } else { request })
    };
    (0..count).map(|_| job()).collect()
}

/// What a claim should bring, by looking at every job there is.
async fn expected(store: &SqliteStore, claim: &Claim, now: jiff::Timestamp, paused: &str) -> Vec<JobId> {
    let wanted = |job: &JobRecord| {
        claim.queues.as_ref().is_none_or(|queues| queues.contains(&job.queue))
            && claim.kinds.as_ref().is_none_or(|kinds| kinds.contains(&job.kind))
            && job.queue.as_str() != paused
            && matches!(job.status, Status::Queued | Status::Retrying)
            && job.run_at <= now
    };
    let mut jobs: Vec<_> = walk(store).await.unwrap().into_iter().filter(wanted).collect();
    jobs.sort_by_key(|job| (Reverse(job.priority), job.run_at, job.id));
    jobs.iter().take(claim.max).map(|job| job.id).collect()
}

#[tokio::test]
async fn claims_bring_the_oldest_of_the_highest_priority_over_hundreds_of_lanes_whatever_they_ask_for() {
    for seed in [3, 1979] {
        let mut rng = Rng::with_seed(seed);
        let file = JobsFile::new();
        let (store, clock) = file.open_held();
        let mut paused = String::new();
        for step in 0..60 {
            use steadfast::store::Clock as _;
            let count = rng.usize(1..40);
            enqueue(&store, scattered(&mut rng, count)).await;
            clock.advance(Duration::from_millis(rng.u64(0..5_000)));
            if step % 10 == 5 {
                paused = format!("queue-{}", rng.u8(0..10));
                store.pause(Pause::new(queue(&paused))).await.unwrap();
            } else if step % 10 == 9 {
                store.resume(Resume::new(queue(&paused))).await.unwrap();
                paused.clear();
            }
            // With repetitions: a job must not come twice.
            let queues = rng.bool().then(|| (0..5).map(|_| queue(format!("queue-{}", rng.u8(0..10)))).collect());
            let kinds = rng.bool().then(|| (0..3).map(|_| kind(format!("kind-{}", rng.u8(0..5)))).collect());
            let claim = claim_of(rng.usize(1..30)).queues(queues).kinds(kinds);
            let expected = expected(&store, &claim, clock.wall(), &paused).await;
            let claimed = store.claim(claim.clone()).await.unwrap().leases;
            let claimed: Vec<_> = claimed.iter().map(|lease| lease.job().id).collect();
            assert_eq!(claimed, expected, "seed {seed}, step {step}: {claim:?}, paused {paused:?}");
            let cancelled = walk(&store).await.unwrap().iter().take(3).map(|job| job.id).collect::<Vec<_>>();
            store.cancel(Cancel::new(cancelled)).await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_claim_that_names_more_queues_and_kinds_than_are_looked_for_in_pairs_takes_no_others() {
    let file = JobsFile::new();
    let store = file.open();
    let named = |n: usize, kind: &str| changed(in_queue(&format!("queue-{n}")), |job| job.kind = kind.into());
    let wanted = [enqueue_one(&store, named(0, "kind-1")).await, enqueue_one(&store, named(99, "kind-2")).await];
    enqueue_one(&store, named(1, "other")).await;
    enqueue_one(&store, changed(in_queue("other"), |job| job.kind = "kind-1".into())).await;
    let (queues, kinds) = ((0..100).map(|n| queue(format!("queue-{n}"))), (0..100).map(|n| kind(format!("kind-{n}"))));
    let claim = claim_of(10).queues(queues.collect::<Vec<_>>()).kinds(kinds.collect::<Vec<_>>());
    let claimed = store.claim(claim).await.unwrap().leases;
    assert_eq!(claimed.iter().map(|lease| lease.job().id).collect::<Vec<_>>(), wanted);
}

#[tokio::test]
async fn what_somebody_else_writes_into_the_file_is_claimed_after_a_bounded_number_of_looks() {
    let file = JobsFile::new();
    let store = file.open();
    let lanes = (0..MANY).map(|n| checked(in_queue(&format!("queue-{n}")).delay_ms(3_600_000)));
    enqueue(&store, lanes.collect()).await;
    let external = file.external_connection();
    let mut found = BTreeSet::new();
    for round in 0..20 {
        // Now before, now behind where the last round of looks has come to.
        let due = format!("UPDATE jobs SET run_at = 0 WHERE queue = 'queue-{}'", (round * 379) % MANY);
        assert_eq!(external.execute(&due, []).unwrap(), 1);
        let mut looks = 0;
        while claim(&store, 10).await.iter().filter(|lease| found.insert(lease.job().id)).count() == 0 {
            looks += 1;
            assert!(looks < 10, "round {round}: {looks} looks have not found it");
        }
    }
}

#[tokio::test]
async fn jobs_and_pauses_that_somebody_else_takes_back_are_not_waited_for() {
    let file = JobsFile::new();
    let store = file.open();
    enqueue_one(&store, in_queue("gone")).await;
    let paused = enqueue_one(&store, in_queue("paused")).await;
    store.pause(Pause::new(queue("paused"))).await.unwrap();
    let external = file.external_connection();
    external.execute_batch("DELETE FROM jobs WHERE queue = 'gone'; DELETE FROM paused_queues").unwrap();
    let claimed = claim(&store, 10).await;
    assert_eq!(claimed.iter().map(|lease| lease.job().id).collect::<Vec<_>>(), [paused]);
    external.execute_batch("INSERT INTO paused_queues VALUES ('default')").unwrap();
    enqueue_one(&store, job()).await;
    assert_eq!(claim(&store, 10).await, []);
}
