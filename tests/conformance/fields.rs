//! What a job's fields say of each other, whatever it has been through.

use jiff::Timestamp;
use steadfast::job::{JobId, JobRecord, Lease, Outcome, Status};

use crate::phrases::*;
use crate::world::World;

/// What a job looked like after each thing that happened to it, and when that was.
struct Diary<'w, W> {
    world: &'w W,
    id: JobId,
    seen: Vec<(&'static str, JobRecord, Timestamp)>,
}

impl<W: World> Diary<'_, W> {
    async fn note(&mut self, what: &'static str) {
        self.seen.push((what, self.world.job(self.id).await, self.world.now().await));
        self.world.advance(SECOND).await;
    }

    async fn claim(&mut self) -> Lease {
        let lease = self.world.claim_one().await;
        self.note("claimed").await;
        lease
    }
}

/// A life that passes every transition there is.
async fn a_full_life(world: &impl World) -> Vec<(&'static str, JobRecord, Timestamp)> {
    let id = world.enqueue(with_attempts(2).timeout_ms(60_000)).await.id;
    let mut diary = Diary { world, id, seen: vec![] };
    diary.note("enqueued").await;
    let lease = diary.claim().await;
    world.extend(&lease).await;
    diary.note("extended").await;
    world.end(&lease, Outcome::Released).await;
    diary.note("released").await;
    let lease = diary.claim().await;
    world.end(&lease, Outcome::snoozed(SECOND)).await;
    diary.note("snoozed").await;
    let lease = diary.claim().await;
    world.end(&lease, failed_retry_after(SECOND)).await;
    diary.note("failed").await;
    let lease = diary.claim().await;
    world.lose(&lease).await;
    diary.note("reaped to death").await;
    world.redrive(id).await;
    diary.note("redriven").await;
    world.cancel(id).await;
    diary.note("cancelled waiting").await;
    world.redrive(id).await;
    diary.note("redriven").await;
    let lease = diary.claim().await;
    world.lose(&lease).await;
    diary.note("reaped").await;
    let lease = diary.claim().await;
    world.end(&lease, failed("x")).await;
    diary.note("failed to death").await;
    world.redrive(id).await;
    diary.note("redriven").await;
    let lease = diary.claim().await;
    world.cancel(id).await;
    diary.note("cancel requested").await;
    world.end(&lease, Outcome::Cancelled).await;
    diary.note("cancelled").await;
    world.redrive(id).await;
    diary.note("redriven").await;
    let lease = diary.claim().await;
    world.end(&lease, Outcome::succeeded(Some(json("1")))).await;
    diary.note("succeeded").await;
    diary.seen
}

pub(crate) async fn a_lock_is_shown_exactly_while_the_job_runs(world: &impl World) {
    for (what, job, _) in a_full_life(world).await {
        let locked = [job.locked_by.is_some(), job.locked_at.is_some(), job.lease_expires_at.is_some()];
        assert_eq!(locked, [job.status == Status::Running; 3], "{what}: {job:?}");
    }
}

pub(crate) async fn an_end_is_shown_exactly_when_the_job_has_ended(world: &impl World) {
    for (what, job, _) in a_full_life(world).await {
        assert_eq!(job.finished_at.is_some(), job.status.is_terminal(), "{what}: {job:?}");
        assert!(job.result.is_none() || job.status == Status::Succeeded, "{what}: {job:?}");
    }
}

pub(crate) async fn every_change_is_dated(world: &impl World) {
    for (what, job, at) in a_full_life(world).await {
        assert_eq!(job.updated_at, at, "{what}: {job:?}");
    }
}

pub(crate) async fn attempts_stay_within_their_maximum_and_a_waiting_job_has_one_left(world: &impl World) {
    for (what, job, _) in a_full_life(world).await {
        assert!(job.attempts <= job.max_attempts, "{what}: {job:?}");
        assert!(!job.status.is_ready() || job.attempts < job.max_attempts, "{what}: {job:?}");
    }
}

pub(crate) async fn what_was_asked_for_never_changes(world: &impl World) {
    let life = a_full_life(world).await;
    let first = life[0].1.clone();
    for (what, job, _) in life {
        let asked = |job: &JobRecord| {
            (job.id, job.kind.clone(), job.queue.clone(), job.payload.clone(), job.priority, job.max_attempts)
        };
        assert_eq!(asked(&job), asked(&first), "{what}");
        assert_eq!((job.timeout_ms, job.created_at), (first.timeout_ms, first.created_at), "{what}");
    }
}

pub(crate) async fn counts_agree_with_the_jobs_after_every_transition(world: &impl World) {
    let id = world.enqueue(with_attempts(2)).await.id;
    let steps: [&[Outcome]; 4] = [
        &[Outcome::Released, Outcome::snoozed(SECOND), failed("x"), failed("x")],
        &[timed_out(), succeeded()],
        &[Outcome::failed_permanently("x")],
        &[Outcome::Cancelled],
    ];
    world.put_kind("welcome", fixed(&[1])).await;
    for outcomes in steps {
        for outcome in outcomes {
            let lease = world.claim_one().await;
            assert_counts(world).await;
            world.end(&lease, outcome.clone()).await;
            assert_counts(world).await;
            world.advance(MINUTE).await;
        }
        world.delete(id).await;
        assert_counts(world).await;
        world.enqueue(with_attempts(2)).await;
        assert_counts(world).await;
    }
    let lease = world.claim_one().await;
    world.lose(&lease).await;
    assert_counts(world).await;
    world.cancel(lease.job().id).await;
    assert_counts(world).await;
    world.redrive(lease.job().id).await;
    assert_counts(world).await;
    let lease = world.claim_one().await;
    world.cancel(lease.job().id).await;
    assert_counts(world).await;
    world.lose(&lease).await;
    assert_counts(world).await;
}

/// What stats says is what a walk over all jobs finds.
async fn assert_counts(world: &impl World) {
    let mut counted = steadfast::store::Counts::new();
    for job in world.everything().await {
        *counted.entry(job.status).or_default() += 1;
    }
    assert_eq!(world.counts("default").await, counted);
}
