//! A job that has not started by its deadline is cancelled, and never starts.

use steadfast::job::{HeldCode, Outcome, Status};

use crate::limit_phrases::*;
use crate::phrases::*;
use crate::world::World;

pub(crate) async fn a_job_that_is_claimed_too_late_is_cancelled_and_not_started(world: &impl World) {
    let late = world.enqueue(job("welcome").start_within_ms(1_000)).await;
    assert_eq!(late.start_by, Some(late.created_at + SECOND));
    let other = world.enqueue(job("welcome")).await.id;
    world.advance(SECOND).await;
    assert_eq!(world.why(late.id).await[0], HeldCode::StartDeadlinePassed);
    assert_eq!(ids(&world.claim_up_to(5).await), [other]);
    world.reap().await;
    let ended = world.job(late.id).await;
    assert_eq!((ended.status, ended.attempts, ended.started_at), (Status::Cancelled, 0, None));
    assert!(ended.last_error.unwrap().starts_with("expired: not started by"));
    assert_eq!(ended.finished_at, Some(world.now().await));
    assert_eq!(world.history(late.id).await, []);
    assert_eq!(world.counts(DEFAULT).await, [(Status::Cancelled, 1), (Status::Running, 1)].into());
    world.assert_recounted().await;
}

pub(crate) async fn a_job_that_starts_in_time_may_run_and_retry_past_its_deadline(world: &impl World) {
    let start_by = world.now().await + SECOND;
    let lease = world.running(job("welcome").start_by(start_by)).await;
    world.advance(10 * SECOND).await;
    world.reap().await;
    world.end(&lease, failed_retry_after(std::time::Duration::ZERO)).await;
    world.reap().await;
    let again = world.claim_one().await;
    assert_eq!((again.job().id, again.job().attempts), (lease.job().id, 2));
    let done = world.end(&again, Outcome::Released).await;
    assert_eq!((done.status, done.start_by), (Status::Retrying, Some(start_by)));
    world.reap().await;
    assert_eq!(world.claim_one().await.job().id, lease.job().id);
}

pub(crate) async fn deadlines_pass_in_a_paused_queue_too(world: &impl World) {
    let late = world.enqueue(job("welcome").start_within_ms(1_000)).await.id;
    let grouped = world.enqueue(in_group("a").start_within_ms(1_000)).await.id;
    let in_time = world.enqueue(job("welcome").start_within_ms(60_000)).await.id;
    world.store().pause(steadfast::store::Pause::new(queue(DEFAULT))).await.unwrap();
    world.advance(2 * SECOND).await;
    world.reap().await;
    assert_eq!(world.status(late).await, Status::Cancelled);
    assert_eq!(world.status(grouped).await, Status::Cancelled);
    assert_eq!(world.status(in_time).await, Status::Queued);
}

pub(crate) async fn a_deadline_holds_for_jobs_that_a_limit_keeps_waiting(world: &impl World) {
    world.set_queue(DEFAULT, leases_of_queue(1)).await;
    let lease = world.running(job("welcome")).await;
    let late = world.enqueue(job("welcome").start_within_ms(1_000)).await.id;
    world.advance(2 * SECOND).await;
    assert_eq!(world.claim_up_to(5).await, []);
    world.reap().await;
    assert_eq!(world.status(late).await, Status::Cancelled);
    world.end(&lease, succeeded()).await;
    assert_eq!(world.claim_up_to(5).await, []);
    world.assert_recounted().await;
}

pub(crate) async fn a_redrive_clears_the_deadline(world: &impl World) {
    let late = world.enqueue(job("welcome").start_within_ms(1_000)).await.id;
    world.advance(2 * SECOND).await;
    world.reap().await;
    world.redrive(late).await;
    assert_eq!(world.job(late).await.start_by, None);
    world.advance(HOUR).await;
    world.reap().await;
    assert_eq!(world.claim_one().await.job().id, late);
}

pub(crate) async fn a_deadline_in_the_past_ends_a_job_at_the_next_reap(world: &impl World) {
    let late = world.enqueue(job("welcome").start_by(world.now().await - SECOND)).await.id;
    assert_eq!(world.claim_up_to(5).await, []);
    world.reap().await;
    assert_eq!(world.status(late).await, Status::Cancelled);
}
