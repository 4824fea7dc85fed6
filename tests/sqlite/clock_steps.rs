//! Somebody sets the machine's clock, or it sleeps: leases, backoff and what is due are durations and do not mind.

use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use steadfast::job::{AttemptOutcome, Failure, JobRequest, Lease, Outcome, Status, Unique};
use steadfast::store::sqlite::SqliteStore;
use steadfast::store::{Beat, Clock, Extend, Extended, JobStore, ManualClock, Reap, Reaped, Settle, Settled};

use crate::changed::changed;
use crate::jobs_file::{JobsFile, LEASE, checked, claim, enqueue, enqueue_one, job, job_with, jobs, literal};

const SECOND: Duration = Duration::from_secs(1);
const HOUR: SignedDuration = SignedDuration::from_hours(1);

/// Forward and back: every case holds for both.
const STEPS: [SignedDuration; 2] = [HOUR, SignedDuration::from_hours(-1)];

struct World {
    file: JobsFile,
    store: Arc<SqliteStore>,
    clock: Arc<ManualClock>,
}

impl World {
    fn new() -> Self {
        let file = JobsFile::new();
        let (store, clock) = file.open_held();
        Self { file, store, clock }
    }

    /// The time of day jumps; no time passes.
    fn step(&self, by: SignedDuration) {
        self.clock.set_wall(self.clock.wall() + by);
    }

    async fn running(&self, request: JobRequest) -> Lease {
        enqueue_one(&self.store, request).await;
        claim(&self.store, 1).await.remove(0)
    }

    async fn reap(&self) -> Vec<Reaped> {
        self.store.reap(Reap::up_to(1000)).await.unwrap()
    }

    async fn extend(&self, lease: &Lease) -> Extended {
        let beats = vec![Beat::new(lease.key())];
        self.store.extend(Extend::new(beats)).await.unwrap()[0]
    }

    async fn settle(&self, lease: &Lease, outcome: Outcome) -> Settled {
        let settle = Settle::new(lease.key(), outcome);
        self.store.settle(vec![settle]).await.unwrap().remove(0).unwrap()
    }

    /// The one job waits for a minute, whatever the clock is set to meanwhile.
    async fn assert_due_after_a_minute_with(&self, step: SignedDuration) {
        self.clock.advance(SECOND * 20);
        self.step(step);
        assert_eq!(claim(&self.store, 1).await, [], "{step:?}");
        self.clock.advance(SECOND * 39);
        assert_eq!(claim(&self.store, 1).await, [], "{step:?}");
        self.clock.advance(SECOND);
        assert_eq!(claim(&self.store, 1).await.len(), 1, "{step:?}");
    }

    /// How long the lease has still to go.
    async fn left(&self, lease: &Lease) -> Duration {
        let expires_at = job_with(&self.store, lease.job().id).await.lease_expires_at.unwrap();
        expires_at.duration_since(self.clock.wall()).try_into().unwrap()
    }
}

#[tokio::test]
async fn no_live_lease_is_reaped_when_the_clock_steps_and_each_still_ends_after_its_own_length() {
    for step in STEPS {
        let world = World::new();
        enqueue(&world.store, jobs(50)).await;
        assert_eq!(claim(&world.store, 50).await.len(), 50);
        world.clock.advance(LEASE / 2);
        world.step(step);
        assert_eq!(world.reap().await, [], "{step:?}");
        world.clock.advance(LEASE / 2 - SECOND);
        assert_eq!(world.reap().await, [], "{step:?}");
        world.clock.advance(SECOND);
        assert_eq!(world.reap().await.len(), 50, "{step:?}");
    }
}

#[tokio::test]
async fn steps_add_up_to_nothing_when_they_cancel_out() {
    let world = World::new();
    let lease = world.running(job()).await;
    for _ in 0..3 {
        for step in STEPS {
            world.step(step);
            assert_eq!(world.reap().await, []);
            assert_eq!(world.left(&lease).await, LEASE);
        }
    }
}

#[tokio::test]
async fn what_was_due_stays_due_when_the_clock_steps() {
    for step in STEPS {
        let world = World::new();
        enqueue(&world.store, jobs(10)).await;
        world.clock.advance(Duration::from_secs(600));
        enqueue(&world.store, jobs(10)).await;
        world.step(step);
        assert_eq!(claim(&world.store, 100).await.len(), 20, "{step:?}");
    }
}

#[tokio::test]
async fn a_retry_keeps_its_backoff_when_the_clock_steps() {
    let failed = || Failure::new("busy").retry_after(SECOND * 60);
    for step in STEPS {
        for outcome in [Outcome::Failed(failed()), Outcome::snoozed(SECOND * 60)] {
            let world = World::new();
            let lease = world.running(job()).await;
            assert_eq!(world.settle(&lease, outcome).await, Settled::Recorded);
            world.assert_due_after_a_minute_with(step).await;
        }
    }
}

#[tokio::test]
async fn a_delay_keeps_its_length_when_the_clock_steps() {
    for step in STEPS {
        let world = World::new();
        enqueue_one(&world.store, job().delay_ms(60_000)).await;
        world.assert_due_after_a_minute_with(step).await;
    }
}

/// Times of day and delays side by side, the clock set again and again; then the process is started anew.
#[tokio::test]
async fn a_delay_keeps_its_length_over_several_steps_and_a_restart() {
    let World { file, store, clock } = World::new();
    enqueue_one(&store, job().delay_ms(600_000)).await;
    let at = Some(clock.wall() + HOUR * 3);
    let later = enqueue_one(&store, changed(job(), |job| job.run_at = at)).await;
    for step in [-HOUR, HOUR, -HOUR] {
        clock.advance(SECOND * 60);
        clock.set_wall(clock.wall() + step);
        assert_eq!(claim(&store, 10).await, [], "{step:?}");
    }
    drop(store);
    let clock = Arc::new(ManualClock::at(clock.wall()));
    let store = file.open_at(&clock);
    clock.advance(SECOND * (600 - 180) - SECOND);
    assert_eq!(claim(&store, 10).await, []);
    clock.advance(SECOND);
    assert_eq!(claim(&store, 10).await.len(), 1);
    assert_eq!(Some(job_with(&store, later).await.run_at), at, "a time of day stays one");
}

#[tokio::test]
async fn a_start_at_a_time_of_day_follows_the_clock() {
    let world = World::new();
    let run_at = Some(world.clock.wall() + HOUR / 2);
    enqueue_one(&world.store, changed(job(), |job| job.run_at = run_at)).await;
    world.step(-HOUR);
    assert_eq!(claim(&world.store, 1).await, []);
    world.step(HOUR);
    assert_eq!(claim(&world.store, 1).await, []);
    world.step(HOUR);
    assert_eq!(claim(&world.store, 1).await.len(), 1);
}

#[tokio::test]
async fn heartbeats_and_settles_go_on_when_the_clock_steps() {
    for step in STEPS {
        let world = World::new();
        let lease = world.running(job()).await;
        world.clock.advance(LEASE - SECOND);
        world.step(step);
        assert_eq!(world.extend(&lease).await, Extended::Ok, "{step:?}");
        assert_eq!(world.left(&lease).await, LEASE, "{step:?}");
        world.clock.advance(LEASE - SECOND);
        assert_eq!(world.reap().await, [], "{step:?}");
        assert_eq!(world.settle(&lease, Outcome::succeeded(None)).await, Settled::Recorded, "{step:?}");
        assert_eq!(job_with(&world.store, lease.job().id).await.status, Status::Succeeded);
    }
}

#[tokio::test]
async fn an_attempt_times_out_after_its_own_length_when_the_clock_steps() {
    for step in STEPS {
        let world = World::new();
        let lease = world.running(job().timeout_ms(60_000)).await;
        world.clock.advance(SECOND * 20);
        world.step(step);
        assert_eq!(world.extend(&lease).await, Extended::Ok);
        assert_eq!(world.left(&lease).await, LEASE, "{step:?}");
        world.clock.advance(SECOND * 20);
        assert_eq!(world.extend(&lease).await, Extended::Ok);
        assert_eq!(world.left(&lease).await, SECOND * 20, "{step:?}: never past its timeout");
        world.clock.advance(SECOND * 20);
        assert_eq!(
            world.reap().await.iter().map(|reaped| reaped.recorded).collect::<Vec<_>>(),
            [AttemptOutcome::TimedOut]
        );
    }
}

#[tokio::test]
async fn a_step_counts_once_although_the_first_transaction_that_saw_it_was_given_up() {
    let world = World::new();
    enqueue(&world.store, jobs(2)).await;
    let leases = claim(&world.store, 2).await;
    world.file.refuse("UPDATE", &format!("new.status = 'succeeded' AND old.id = {}", literal(leases[0].job().id)));
    world.step(HOUR);
    let settles = leases.iter().map(|lease| Settle::new(lease.key(), Outcome::succeeded(None)));
    let answers = world.store.settle(settles.collect()).await.unwrap();
    assert_eq!(answers.iter().map(Result::is_ok).collect::<Vec<_>>(), [false, true]);
    assert_eq!(world.left(&leases[0]).await, LEASE);
}

#[tokio::test]
async fn a_clock_that_went_back_while_the_file_was_closed_keeps_no_dead_lease_alive_beyond_its_length() {
    let World { file, store, clock } = World::new();
    let id = enqueue_one(&store, job()).await;
    claim(&store, 1).await;
    drop(store);
    clock.set_wall(clock.wall() - HOUR);
    // A new process: its own monotonic clock, nobody to tell that the time of day has jumped.
    let clock = Arc::new(ManualClock::at(clock.wall()));
    let store = file.open_at(&clock);
    assert_eq!(store.reap(Reap::up_to(10)).await.unwrap(), []);
    clock.advance(LEASE);
    let reaped = store.reap(Reap::up_to(10)).await.unwrap();
    assert_eq!(reaped.iter().map(|reaped| reaped.job_id).collect::<Vec<_>>(), [id]);
}

#[tokio::test]
async fn a_clock_that_went_back_while_the_file_was_closed_keeps_no_waiting_job_back() {
    let World { file, store, clock } = World::new();
    enqueue(&store, jobs(3)).await;
    let lease = claim(&store, 1).await.remove(0);
    let retry_after = Some(SECOND * 60);
    let failure = Failure::new("busy").retry_after(retry_after);
    let settle = Settle::new(lease.key(), Outcome::Failed(failure));
    store.settle(vec![settle]).await.unwrap().remove(0).unwrap();
    let time_of_day = Some(clock.wall() + HOUR);
    let later = enqueue_one(&store, changed(job(), |job| job.run_at = time_of_day)).await;
    let delayed = enqueue_one(&store, job().delay_ms(90_000)).await;
    drop(store);
    let clock = Arc::new(ManualClock::at(clock.wall() - HOUR));
    let store = file.open_at(&clock);
    assert_eq!(claim(&store, 10).await.len(), 2, "what was due is due");
    clock.advance(SECOND * 60);
    let retried = claim(&store, 10).await;
    assert_eq!(retried.iter().map(|lease| lease.job().id).collect::<Vec<_>>(), [lease.job().id], "after its backoff");
    clock.advance(SECOND * 30);
    let started = claim(&store, 10).await;
    assert_eq!(started.iter().map(|lease| lease.job().id).collect::<Vec<_>>(), [delayed], "after its delay");
    assert_eq!(Some(job_with(&store, later).await.run_at), time_of_day, "a time of day stays one");
}

#[tokio::test]
async fn a_clock_that_went_back_while_the_file_was_closed_keeps_no_unique_key_beyond_its_window() {
    let World { file, store, clock } = World::new();
    let throttled = || checked(job().unique(Unique::new("k").for_ms(60_000)));
    let first = store.enqueue(vec![throttled()]).await.unwrap().remove(0);
    drop(store);
    let clock = Arc::new(ManualClock::at(clock.wall() - HOUR));
    let store = file.open_at(&clock);
    clock.advance(SECOND * 59);
    assert_eq!(store.enqueue(vec![throttled()]).await.unwrap().remove(0).job.id, first.job.id);
    clock.advance(SECOND);
    assert!(store.enqueue(vec![throttled()]).await.unwrap().remove(0).created);
}
