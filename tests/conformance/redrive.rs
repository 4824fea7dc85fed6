//! redrive: failed_permanent, cancelled → queued, as if new.

use steadfast::job::{JobId, JobRecord, Outcome, Status};
use steadfast::store::{Redrive, Redriven};

use crate::changed::changed;
use crate::phrases::*;
use crate::world::World;

/// A job with every trace that a life can leave, in the dead letter.
async fn dead(world: &impl World) -> JobRecord {
    let request = with_key("welcome-42").queue("mail").priority(3).timeout_ms(3_600_000).max_attempts(2);
    let first = world.running(request).await;
    world.end(&first, failed_retry_after(SECOND)).await;
    world.advance(SECOND).await;
    let second = world.claim_one().await;
    world.beat(&second, Some(percent(40)), None).await;
    world.end(&second, failed("smtp 451")).await
}

pub(crate) async fn a_dead_letter_is_queued_as_if_new_with_its_last_error_kept(world: &impl World) {
    let dead = dead(world).await;
    assert_eq!((dead.status, dead.attempts, &dead.progress), (Status::FailedPermanent, 2, &Some(percent(40))));
    let history = world.history(dead.id).await;
    world.advance(HOUR).await;
    let now = world.now().await;
    let expected = changed(dead, |job| {
        job.status = Status::Queued;
        job.attempts = 0;
        job.run_at = now;
        job.updated_at = now;
        job.finished_at = None;
        job.progress = None;
        job.error_group = None;
    });
    assert_eq!(expected.last_error.as_deref(), Some("smtp 451"));
    assert_eq!(world.redrive(expected.id).await, Redriven::Queued(expected.clone()));
    assert_eq!(world.all_of(expected.id).await, (expected, history));
}

pub(crate) async fn a_cancelled_job_is_queued_again_and_no_longer_to_be_cancelled(world: &impl World) {
    let lease = world.running(job("welcome")).await;
    world.cancel(lease.job().id).await;
    let cancelled = world.end(&lease, failed("stopped")).await;
    assert_eq!((cancelled.status, cancelled.cancel_requested), (Status::Cancelled, true));
    let Redriven::Queued(queued) = world.redrive(cancelled.id).await else { panic!() };
    assert_eq!((queued.status, queued.cancel_requested, queued.finished_at), (Status::Queued, false, None));
    let lease = world.claim_one().await;
    assert_eq!(world.extend(&lease).await, steadfast::store::Extended::Ok);
    assert_eq!(world.end(&lease, failed("again")).await.status, Status::Retrying);
}

pub(crate) async fn a_job_cancelled_before_it_ran_can_be_redriven(world: &impl World) {
    let queued = world.enqueue(delayed(HOUR)).await;
    world.cancel(queued.id).await;
    world.advance(SECOND).await;
    let now = world.now().await;
    let expected = changed(queued, |job| {
        job.run_at = now;
        job.updated_at = now;
    });
    assert_eq!(world.redrive(expected.id).await, Redriven::Queued(expected.clone()));
    assert_eq!(world.claim_one().await.job().id, expected.id);
}

pub(crate) async fn a_redriven_job_has_all_its_attempts_again(world: &impl World) {
    let dead = dead(world).await;
    world.redrive(dead.id).await;
    for attempt in 1..=2 {
        let lease = world.claim_one().await;
        assert_eq!((lease.job().id, lease.job().attempts), (dead.id, attempt));
        world.end(&lease, failed("again")).await;
        world.advance(MINUTE).await;
    }
    assert_eq!(world.status(dead.id).await, Status::FailedPermanent);
    let numbers: Vec<_> = world.history(dead.id).await.iter().map(|attempt| attempt.attempt).collect();
    assert_eq!(numbers, [1, 2, 1, 2]);
}

pub(crate) async fn a_redriven_job_starts_without_the_result_of_its_former_life(world: &impl World) {
    let dead = dead(world).await;
    world.redrive(dead.id).await;
    let lease = world.claim_one().await;
    let ended = world.end(&lease, Outcome::succeeded(Some(json("1")))).await;
    assert_eq!((ended.result, ended.progress), (Some(json("1")), None));
    assert_eq!((ended.last_error.as_deref(), ended.attempts), (Some("smtp 451"), 1));
}

pub(crate) async fn only_the_dead_can_be_redriven(world: &impl World) {
    let succeeded = world.one_of_each_end().await.remove(0);
    let mut others = world.one_of_each_unfinished().await;
    others.push(succeeded);
    for other in others {
        let before = world.all_of(other.id).await;
        world.advance(SECOND).await;
        assert_eq!(world.redrive(other.id).await, Redriven::NotDead(other.status));
        assert_eq!(world.all_of(other.id).await, before);
    }
}

pub(crate) async fn an_unknown_job_is_not_found(world: &impl World) {
    assert_eq!(world.redrive(JobId::new()).await, Redriven::NotFound);
}

pub(crate) async fn a_job_reaped_into_the_dead_letter_can_be_redriven_and_run(world: &impl World) {
    let lease = world.running(with_attempts(1)).await;
    let dead = world.lose(&lease).await;
    assert_eq!(dead.status, Status::FailedPermanent);
    world.redrive(dead.id).await;
    let lease = world.claim_one().await;
    assert_eq!(lease.job().attempts, 1);
    assert_eq!(world.end(&lease, succeeded()).await.status, Status::Succeeded);
}

pub(crate) async fn a_batch_is_answered_in_order_also_for_the_same_job_twice(world: &impl World) {
    let ended = world.one_of_each_end().await;
    let ids = vec![ended[2].id, JobId::new(), ended[1].id, ended[0].id, ended[2].id];
    let answers = world.store().redrive(Redrive::new(ids)).await.unwrap();
    let answers: Vec<_> = answers.into_iter().map(|answer| answer.unwrap()).collect();
    assert!(matches!(&answers[0], Redriven::Queued(job) if job.id == ended[2].id));
    assert_eq!(answers[1], Redriven::NotFound);
    assert!(matches!(&answers[2], Redriven::Queued(job) if job.id == ended[1].id));
    assert_eq!(answers[3..], [Redriven::NotDead(Status::Succeeded), Redriven::NotDead(Status::Queued)]);
    assert_eq!(world.counts("default").await, [(Status::Queued, 2), (Status::Succeeded, 1)].into());
}
