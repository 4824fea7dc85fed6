//! Leases, keys and ends, each guarantee in a short case on both stores. More cases of the same are in
//! `tests/conformance`; these are the ones that planted bugs are tried on.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use steadfast::job::{AttemptOutcome, JobId, JobRecord, Lease, Outcome, WorkerId};
use steadfast::store::{self, Beat, Claim, Deleted, Extend, Extended, Reap, Settle, Settled};
use steadfast::worker::JobError;
use steadfast::{Context, Queue, Status, Worker};

use crate::changed::changed;
use crate::history::History;
use crate::players::{LEASE, LONG_LEASE, LONG_WORK_MS, Part, Player, REAP_INTERVAL, Script, Task, worker_settings};
use crate::scale::{quick_or_long, wait_timeout};
use crate::stage::{Stage, Store, until};

const QUICK: Task = Task { work_ms: 0, fail_percent: 0 };

/// Waits until the job is where it should be.
pub(crate) async fn reaches(queue: &Queue, id: JobId, status: Status) -> JobRecord {
    let give_up = tokio::time::Instant::now() + wait_timeout();
    loop {
        let job = queue.get(id).await.unwrap().expect("the job is there");
        if job.status == status {
            return job;
        }
        assert!(tokio::time::Instant::now() < give_up, "waited in vain for {id} to be {status}: it is {}", job.status);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn claim(max: usize, lease: Duration) -> Claim {
    let worker = WorkerId::new("w").unwrap();
    Claim::new(worker, lease).max(max)
}

async fn claim_one(queue: &Queue, lease: Duration) -> Lease {
    queue.store().claim(claim(1, lease)).await.unwrap().leases.pop().expect("a job is due")
}

async fn settle(queue: &Queue, lease: &Lease, outcome: Outcome) -> Settled {
    let settle = Settle::new(lease.key(), outcome);
    queue.store().settle(vec![settle]).await.unwrap().pop().unwrap().unwrap()
}

/// A worker of this process, for as long as `meanwhile` takes.
async fn with_worker<S: Send + Sync + 'static>(worker: Worker<S>, meanwhile: impl Future<Output = ()>) {
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let running = tokio::spawn(worker.run_until(async { drop(stopped.await) }));
    meanwhile.await;
    drop(stop);
    running.await.unwrap().unwrap();
}

/// One verdict on what a worker of this process did with one job.
async fn judged(stage: &Stage, queue: &Queue, id: JobId, key: &str) -> History {
    let mut history = History::default();
    history.asked.insert(key.into());
    history.acknowledged.push((key.into(), id));
    stage.journal.read_into(&mut history);
    history.read_store(queue).await;
    history.judge().accept(key, &history);
    history
}

async fn f15(stage: Stage) {
    let queue = stage.queue().await;
    let id = queue.enqueue(QUICK).await.unwrap().job.id;
    let lease = claim_one(&queue, LEASE).await;
    tokio::time::sleep(LEASE + Duration::from_millis(100)).await;
    let late = settle(&queue, &lease, Outcome::succeeded(None)).await;
    assert_eq!(late, Settled::Recorded, "a late settle that was not reaped yet counts");
    let again = settle(&queue, &lease, Outcome::succeeded(None)).await;
    assert_eq!(again, Settled::Recorded, "the same settle again gets the same answer");
    assert_eq!(settle(&queue, &lease, Outcome::failed("no")).await, Settled::Lost);
    assert_eq!(queue.attempts(id).await.unwrap().unwrap().len(), 1, "recorded once");
}

#[tokio::test]
async fn f15_a_late_settle_counts_and_the_same_again_gets_the_same_answer_on_sqlite() {
    f15(Stage::on_sqlite().await).await;
}

#[tokio::test]
async fn f15_a_late_settle_counts_and_the_same_again_gets_the_same_answer_on_postgresql() {
    f15(Stage::on_postgres().await).await;
}

#[tokio::test]
async fn g4_a_heartbeat_with_the_token_of_another_lease_is_lost() {
    for store in Store::BOTH {
        let stage = Stage::on(store).await;
        let queue = stage.queue().await;
        for _ in 0..2 {
            queue.enqueue(QUICK).await.unwrap();
        }
        let (lease, other) = (claim_one(&queue, LONG_LEASE).await, claim_one(&queue, LONG_LEASE).await);
        let borrowed = changed(lease.key(), |key| key.token = other.token());
        let beats = [borrowed, other.key()].map(Beat::new).to_vec();
        let answers = queue.store().extend(Extend::new(beats)).await.unwrap();
        let expected = [Extended::Lost, Extended::Ok];
        assert_eq!(answers, expected, "a heartbeat with another lease's token is lost, {store:?}");
    }
}

async fn f17(stage: Stage) {
    let queue = stage.queue().await;
    // 3 s: a beat a second, and a machine may stand still for two of them.
    let lease_ms = 3_000;
    let worker = crate::players::worker(queue.clone(), &Script { lease_ms, ..stage.script() });
    let task = Task { work_ms: 4 * lease_ms, fail_percent: 0 };
    let id = queue.enqueue(task).idempotency_key("long").await.unwrap().job.id;
    with_worker(worker, async {
        let give_up = tokio::time::Instant::now() + wait_timeout();
        while queue.get(id).await.unwrap().unwrap().status != Status::Succeeded {
            let starts = stage.journal.lines("start").len();
            assert!(starts <= 1, "a live lease was reaped: the job was started {starts} times");
            assert!(tokio::time::Instant::now() < give_up, "waited in vain for the job to end");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    judged(&stage, &queue, id, "long").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f17_a_job_of_four_leases_runs_to_its_end_once_on_sqlite() {
    f17(Stage::on_sqlite().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f17_a_job_of_four_leases_runs_to_its_end_once_on_postgresql() {
    f17(Stage::on_postgres().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f20_two_processes_with_the_same_settings_are_two_workers() {
    let stage = Stage::on_postgres().await;
    let queue = stage.queue().await;
    let script = Script { lease_ms: LONG_LEASE.as_millis() as u64, ..stage.script() };
    let players = [0, 1].map(|_| Player::start(Part::Worker, &script));
    // More than one has room for, and none ends: as many starts as both have slots take both.
    for _ in 0..5 * script.slots {
        queue.enqueue(Task { work_ms: LONG_WORK_MS, fail_percent: 0 }).await.unwrap();
    }
    until("both have started what they can", || (stage.journal.lines("start").len() >= 2 * script.slots).then_some(()));
    let names: BTreeSet<String> = stage.journal.lines("start").into_iter().map(|line| line[3].clone()).collect();
    players.into_iter().for_each(Player::kill);
    assert_eq!(names.len(), 2, "two processes, and these identities: {names:?}");
}

/// Claims until nothing is left, together with others.
async fn claimed_by_many(stores: &[Arc<dyn store::Store>], claimers: usize, jobs: usize) -> Vec<JobId> {
    let leased = Arc::new(AtomicUsize::new(0));
    let mut claiming = tokio::task::JoinSet::new();
    for n in 0..claimers {
        let (store, leased) = (stores[n % stores.len()].clone(), leased.clone());
        claiming.spawn(async move {
            let (mut claimed, mut empty) = (Vec::new(), 0);
            while empty < 3 {
                let leases = store.claim(claim(7, Duration::from_secs(600))).await.unwrap().leases;
                empty = if leases.is_empty() { empty + 1 } else { 0 };
                claimed.extend(leases.iter().map(|lease| lease.job().id));
                let leased = leased.fetch_add(leases.len(), Ordering::SeqCst) + leases.len();
                assert!(leased <= 2 * jobs, "a job was leased twice at the same time, again and again");
            }
            claimed
        });
    }
    claiming.join_all().await.into_iter().flatten().collect()
}

async fn f21(stage: Stage, processes: usize) {
    let count = quick_or_long(2_000, 10_000);
    let mut queues = Vec::new();
    for _ in 0..processes {
        queues.push(stage.queue().await);
    }
    queues[0].declare::<Task>().await.unwrap();
    let requests: Vec<_> = (0..count).map(|_| steadfast::JobRequest::of(&QUICK).unwrap()).collect();
    for some in requests.chunks(1_000) {
        queues[0].enqueue_requests(some.to_vec()).await.unwrap();
    }
    let stores: Vec<_> = queues.iter().map(|queue| queue.store().clone()).collect();
    let claimed = claimed_by_many(&stores, 32, count).await;
    let distinct: BTreeSet<_> = claimed.iter().collect();
    assert_eq!(claimed.len(), distinct.len(), "a job was leased twice at the same time");
    assert_eq!(distinct.len(), count, "every job was leased");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f21_thirty_two_claimers_lease_no_job_twice_on_sqlite() {
    f21(Stage::on_sqlite().await, 1).await;
}

/// Four stores, since one has one claim under way at a time: they share nothing but the database, like four processes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f21_thirty_two_claimers_lease_no_job_twice_on_postgresql() {
    f21(Stage::on_postgres().await, 4).await;
}

async fn f22(stage: Stage) {
    let queue = stage.queue().await;
    let waiting = queue.enqueue(QUICK).await.unwrap().job.id;
    queue.cancel(waiting).await.unwrap();
    assert_eq!(queue.get(waiting).await.unwrap().unwrap().status, Status::Cancelled, "before its claim");

    let mut ends = Vec::new();
    for outcome in [Outcome::failed("stopped"), Outcome::Released, Outcome::Cancelled, Outcome::succeeded(None)] {
        let id = queue.enqueue(QUICK).await.unwrap().job.id;
        let lease = claim_one(&queue, LONG_LEASE).await;
        queue.cancel(id).await.unwrap();
        settle(&queue, &lease, outcome).await;
        ends.push(queue.get(id).await.unwrap().unwrap().status);
    }
    let expected = [Status::Cancelled, Status::Cancelled, Status::Cancelled, Status::Succeeded];
    assert_eq!(ends, expected, "a cancelled job ends, and never waits for another try");

    let orphan = queue.enqueue(QUICK).await.unwrap().job.id;
    claim_one(&queue, LEASE).await;
    queue.cancel(orphan).await.unwrap();
    tokio::time::sleep(LEASE + Duration::from_millis(100)).await;
    queue.store().reap(Reap::up_to(10)).await.unwrap();
    assert_eq!(queue.get(orphan).await.unwrap().unwrap().status, Status::Cancelled, "on a dead worker");
}

#[tokio::test]
async fn f22_a_cancel_at_any_moment_ends_the_job_on_sqlite() {
    f22(Stage::on_sqlite().await).await;
}

#[tokio::test]
async fn f22_a_cancel_at_any_moment_ends_the_job_on_postgresql() {
    f22(Stage::on_postgres().await).await;
}

#[tokio::test]
async fn f23_a_running_job_cannot_be_deleted() {
    for store in Store::BOTH {
        let stage = Stage::on(store).await;
        let queue = stage.queue().await;
        let id = queue.enqueue(QUICK).await.unwrap().job.id;
        claim_one(&queue, LONG_LEASE).await;
        let answer = queue.delete(id).await.unwrap();
        assert_eq!(answer, Deleted::NotFinished(Status::Running), "a running job was deleted");
        assert!(queue.get(id).await.unwrap().is_some());
    }
}

/// G3: a job that always fails is started as often as it may be, and no more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g3_a_job_that_always_fails_is_started_as_often_as_allowed_and_no_more() {
    for store in Store::BOTH {
        let stage = Stage::on(store).await;
        let queue = stage.queue().await;
        let enqueue = queue.enqueue(Task { work_ms: 0, fail_percent: 100 }).max_attempts(4).idempotency_key("hopeless");
        let id = enqueue.await.unwrap().job.id;
        let worker = crate::players::worker(queue.clone(), &stage.script());
        with_worker(worker, async {
            let give_up = tokio::time::Instant::now() + wait_timeout();
            while queue.get(id).await.unwrap().unwrap().status != Status::FailedPermanent {
                let starts = stage.journal.lines("start").len();
                assert!(starts <= 4, "too many starts: {starts}, 4 are allowed");
                assert!(tokio::time::Instant::now() < give_up, "waited in vain for the job to be given up");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })
        .await;
        let history = judged(&stage, &queue, id, "hopeless").await;
        assert_eq!(history.starts.len(), 4);
        assert!(history.kept[0].tries.iter().all(|one| one.outcome == Some(AttemptOutcome::Failed)));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f10_a_lease_is_reaped_within_its_length_and_the_reap_interval_whoever_held_it() {
    for store in Store::BOTH {
        let stage = Stage::on(store).await;
        let queue = stage.queue().await;
        let id = queue.enqueue(QUICK).idempotency_key("orphan").await.unwrap().job.id;
        claim_one(&queue, LEASE).await;
        let script = Script { lease_ms: LONG_LEASE.as_millis() as u64, ..stage.script() };
        let settings = worker_settings(&script).reap_interval(REAP_INTERVAL);
        let worker = Worker::new(queue.clone()).settings(settings);
        let worker = worker.handle(|_: Task, _: Context| async { Ok::<_, JobError>(()) });
        with_worker(worker, async { drop(reaches(&queue, id, Status::Succeeded).await) }).await;
        let tries = queue.attempts(id).await.unwrap().unwrap();
        let outcomes: Vec<_> = tries.iter().map(|one| one.outcome.unwrap()).collect();
        assert_eq!(outcomes, [AttemptOutcome::LeaseExpired, AttemptOutcome::Succeeded], "with the cause recorded");
    }
}

/// `docs/guarantees.md` G6. The reaper has seen the lease alive before, and must come back to it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g6_a_lease_that_outlived_its_first_end_is_reaped_at_its_last() {
    for store in Store::BOTH {
        let stage = Stage::on(store).await;
        let queue = stage.queue().await;
        let id = queue.enqueue(QUICK).await.unwrap().job.id;
        let lease = claim_one(&queue, Duration::from_secs(1)).await;
        let first_end = lease.job().lease_expires_at.unwrap();
        let extend = Extend::new([Beat::new(lease.key())]).lease(LEASE);
        assert_eq!(queue.store().extend(extend.clone()).await.unwrap(), [Extended::Ok]);
        let give_up = tokio::time::Instant::now() + wait_timeout();
        // For as long as its first end is not past, and once more: that the reaper comes by then is what this is about.
        while jiff::Timestamp::now() <= first_end + Duration::from_secs(1) {
            assert_eq!(queue.store().reap(Reap::up_to(10)).await.unwrap(), [], "a live lease was reaped");
            assert_eq!(queue.store().extend(extend.clone()).await.unwrap(), [Extended::Ok]);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        loop {
            let reaped = queue.store().reap(Reap::up_to(10)).await.unwrap();
            if !reaped.is_empty() {
                assert_eq!(reaped[0].job_id, id);
                break;
            }
            assert!(tokio::time::Instant::now() < give_up, "{store:?}: a lease that was once alive is never reaped");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}
