//! cancel: queued, retrying → cancelled at once; running → flagged.

use steadfast::job::{JobId, Status};
use steadfast::store::{Cancel, Cancelled, Extended};

use crate::changed::changed;
use crate::phrases::*;
use crate::world::World;

pub(crate) async fn a_queued_job_is_cancelled_at_once(world: &impl World) {
    for request in [job("welcome"), delayed(HOUR)] {
        let queued = world.enqueue(request).await;
        world.advance(SECOND).await;
        let now = world.now().await;
        assert_eq!(world.cancel(queued.id).await, Cancelled::Now);
        let expected = changed(queued, |job| {
            job.status = Status::Cancelled;
            job.cancel_requested = true;
            job.finished_at = Some(now);
            job.updated_at = now;
        });
        assert_eq!(world.job(expected.id).await, expected);
        assert_eq!(world.history(expected.id).await, []);
    }
    world.advance(HOUR).await;
    assert_eq!(world.claim(10).await, []);
}

pub(crate) async fn a_retrying_job_is_cancelled_at_once_and_keeps_its_history(world: &impl World) {
    let lease = world.running(job("welcome")).await;
    let retrying = world.end(&lease, failed_retry_after(MINUTE)).await;
    let history = world.history(retrying.id).await;
    world.advance(SECOND).await;
    let now = world.now().await;
    assert_eq!(world.cancel(retrying.id).await, Cancelled::Now);
    let expected = changed(retrying, |job| {
        job.status = Status::Cancelled;
        job.cancel_requested = true;
        job.finished_at = Some(now);
        job.updated_at = now;
    });
    assert_eq!(world.all_of(expected.id).await, (expected, history));
    world.advance(HOUR).await;
    assert_eq!(world.claim(10).await, []);
}

pub(crate) async fn a_running_job_is_flagged_and_goes_on(world: &impl World) {
    let lease = world.running(job("welcome")).await;
    world.advance(SECOND).await;
    let now = world.now().await;
    assert_eq!(world.cancel(lease.job().id).await, Cancelled::Requested);
    let expected = changed(lease.job().clone(), |job| {
        job.cancel_requested = true;
        job.updated_at = now;
    });
    assert_eq!(world.job(expected.id).await, expected);
    assert_eq!(world.extend(&lease).await, Extended::Cancel);
}

pub(crate) async fn a_running_job_may_be_cancelled_again(world: &impl World) {
    let lease = world.running(job("welcome")).await;
    for _ in 0..3 {
        assert_eq!(world.cancel(lease.job().id).await, Cancelled::Requested);
        assert!(world.job(lease.job().id).await.cancel_requested);
    }
    assert_eq!(world.history(lease.job().id).await.len(), 1);
    assert_eq!(world.status(lease.job().id).await, Status::Running);
}

pub(crate) async fn a_finished_job_is_left_as_it_is(world: &impl World) {
    for ended in world.one_of_each_end().await {
        let before = world.all_of(ended.id).await;
        world.advance(SECOND).await;
        assert_eq!(world.cancel(ended.id).await, Cancelled::AlreadyFinished(ended.status));
        assert_eq!(world.all_of(ended.id).await, before);
    }
}

pub(crate) async fn an_unknown_job_is_not_found(world: &impl World) {
    assert_eq!(world.cancel(JobId::new()).await, Cancelled::NotFound);
}

pub(crate) async fn a_batch_is_answered_in_order_also_for_the_same_job_twice(world: &impl World) {
    let ended = world.one_of_each_end().await;
    let open = world.one_of_each_unfinished().await;
    let (queued, running, retrying) = (open[0].id, open[1].id, open[2].id);
    let batch = vec![running, JobId::new(), queued, ended[0].id, queued, retrying, running];
    let answers: Vec<_> =
        world.store().cancel(Cancel::new(batch)).await.unwrap().into_iter().map(|answer| answer.unwrap()).collect();
    let expected = [
        Cancelled::Requested,
        Cancelled::NotFound,
        Cancelled::Now,
        Cancelled::AlreadyFinished(Status::Succeeded),
        Cancelled::AlreadyFinished(Status::Cancelled),
        Cancelled::Now,
        Cancelled::Requested,
    ];
    assert_eq!(answers, expected);
    let expected = [(Status::Running, 1), (Status::Succeeded, 1), (Status::FailedPermanent, 1), (Status::Cancelled, 3)];
    assert_eq!(world.counts("default").await, expected.into());
}

pub(crate) async fn a_job_whose_cancel_was_requested_always_ends(world: &impl World) {
    for max_attempts in [1, 3] {
        for (name, outcome) in every_outcome() {
            let lease = world.running(with_attempts(max_attempts)).await;
            world.cancel(lease.job().id).await;
            let ended = world.end(&lease, outcome).await;
            assert!(ended.status.is_terminal(), "{name} of {max_attempts}: {}", ended.status);
        }
        let lease = world.running(with_attempts(max_attempts)).await;
        world.cancel(lease.job().id).await;
        assert_eq!(world.lose(&lease).await.status, Status::Cancelled);
        world.advance(HOUR).await;
        assert_eq!(world.claim(100).await, []);
    }
}
