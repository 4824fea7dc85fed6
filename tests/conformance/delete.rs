//! delete: finished → gone.

use steadfast::job::{JobId, Status};
use steadfast::store::{Delete, Deleted, Extended};

use crate::phrases::*;
use crate::world::World;

pub(crate) async fn a_finished_job_is_gone_with_all_that_belongs_to_it(world: &impl World) {
    let keep = world.enqueue(delayed(HOUR)).await;
    for ended in world.one_of_each_end().await {
        assert_eq!(world.delete(ended.id).await, Deleted::Gone, "{}", ended.status);
        assert_eq!(world.find(ended.id).await, None);
        assert_eq!(world.store().attempts(ended.id).await.unwrap(), None);
        assert_eq!(world.delete(ended.id).await, Deleted::NotFound);
    }
    assert_eq!(world.everything().await, [keep]);
    assert_eq!(world.counts("default").await, [(Status::Queued, 1)].into());
}

pub(crate) async fn an_unfinished_job_is_refused_and_left_as_it_is(world: &impl World) {
    for open in world.one_of_each_unfinished().await {
        let before = world.all_of(open.id).await;
        world.advance(MS).await;
        assert_eq!(world.delete(open.id).await, Deleted::NotFinished(open.status));
        assert_eq!(world.all_of(open.id).await, before);
    }
}

pub(crate) async fn a_running_job_whose_cancel_was_requested_is_refused_until_it_ended(world: &impl World) {
    let lease = world.running(job("welcome")).await;
    world.cancel(lease.job().id).await;
    assert_eq!(world.delete(lease.job().id).await, Deleted::NotFinished(Status::Running));
    world.end(&lease, steadfast::job::Outcome::Cancelled).await;
    assert_eq!(world.delete(lease.job().id).await, Deleted::Gone);
    assert_eq!(world.extend(&lease).await, Extended::Lost);
}

pub(crate) async fn deleting_frees_the_key(world: &impl World) {
    let lease = world.running(with_key("welcome-42")).await;
    let first = world.end(&lease, failed("x")).await;
    world.cancel(first.id).await;
    assert!(!world.enqueue_all(vec![with_key("welcome-42")]).await[0].created);
    world.delete(first.id).await;
    let second = world.enqueue(with_key("welcome-42")).await;
    assert_ne!(second.id, first.id);
    assert_eq!(world.history(second.id).await, []);
}

pub(crate) async fn a_batch_is_answered_in_order_also_for_the_same_job_twice(world: &impl World) {
    let ended = world.one_of_each_end().await;
    let open = world.one_of_each_unfinished().await;
    for job in ended {
        let ids = vec![open[1].id, job.id, JobId::new(), job.id, open[0].id];
        let answers = world.store().delete(Delete::new(ids)).await.unwrap();
        let answers: Vec<_> = answers.into_iter().map(|answer| answer.unwrap()).collect();
        let expected = [
            Deleted::NotFinished(Status::Running),
            Deleted::Gone,
            Deleted::NotFound,
            Deleted::NotFound,
            Deleted::NotFinished(Status::Queued),
        ];
        assert_eq!(answers, expected);
    }
    assert_eq!(world.everything().await.len(), 3);
}
