//! stats: jobs per queue and status, and how long the oldest due one has waited. See also `fields.rs`.

use std::time::Duration;

use steadfast::job::{Outcome, Status};
use steadfast::store::{Pause, QueueStats, Stats};

use crate::phrases::*;
use crate::world::World;

pub(crate) async fn an_empty_store_has_no_queues_and_answers_a_ping(world: &impl World) {
    assert_eq!(world.store().stats().await.unwrap(), Stats::default());
    world.store().ping().await.unwrap();
}

pub(crate) async fn every_queue_is_counted_by_itself_and_by_status(world: &impl World) {
    world.enqueue(in_queue("mail").delay_ms(1_000)).await;
    for outcome in [succeeded(), succeeded(), Outcome::Cancelled, Outcome::failed_permanently("x")] {
        let lease = world.running(in_queue("mail")).await;
        world.end(&lease, outcome).await;
    }
    let lease = world.running(in_queue("images")).await;
    world.end(&lease, failed_retry_after(HOUR)).await;
    world.running(in_queue("images")).await;
    let counted = |counts: &[(Status, u64)]| {
        let mut queue = QueueStats::default();
        queue.counts = counts.iter().copied().collect();
        queue
    };
    let mail =
        counted(&[(Status::Queued, 1), (Status::Succeeded, 2), (Status::FailedPermanent, 1), (Status::Cancelled, 1)]);
    let images = counted(&[(Status::Running, 1), (Status::Retrying, 1)]);
    let expected = [(queue("mail"), mail), (queue("images"), images)].into();
    assert_eq!(world.store().stats().await.unwrap().queues, expected);
}

pub(crate) async fn a_status_without_jobs_is_left_out(world: &impl World) {
    let lease = world.running(job("welcome")).await;
    assert_eq!(world.counts("default").await, [(Status::Running, 1)].into());
    world.end(&lease, succeeded()).await;
    assert_eq!(world.counts("default").await, [(Status::Succeeded, 1)].into());
    world.delete(lease.job().id).await;
    assert_eq!(world.store().stats().await.unwrap(), Stats::default());
}

pub(crate) async fn known_keys_and_unknown_jobs_are_not_counted(world: &impl World) {
    world.enqueue(with_key("once")).await;
    world.enqueue_all(vec![with_key("once"), with_key("once")]).await;
    world.cancel(steadfast::job::JobId::new()).await;
    world.redrive(steadfast::job::JobId::new()).await;
    assert_eq!(world.counts("default").await, [(Status::Queued, 1)].into());
}

async fn oldest_ready(world: &impl World) -> Option<Duration> {
    world.queue_stats("default").await.oldest_ready
}

pub(crate) async fn the_oldest_ready_is_the_longest_due_whatever_its_priority_or_kind(world: &impl World) {
    assert_eq!(oldest_ready(world).await, None);
    world.enqueue(delayed(MINUTE)).await;
    assert_eq!(oldest_ready(world).await, None);
    world.advance(MINUTE).await;
    assert_eq!(oldest_ready(world).await, Some(Duration::ZERO));
    world.advance(SECOND).await;
    world.enqueue(job("other").priority(50)).await;
    world.enqueue(job("another").priority(-50)).await;
    world.enqueue(in_queue("mail")).await;
    world.advance(SECOND).await;
    assert_eq!(oldest_ready(world).await, Some(SECOND * 2));
    assert_eq!(world.queue_stats("mail").await.oldest_ready, Some(SECOND));
}

pub(crate) async fn only_jobs_that_wait_and_are_due_count_as_ready(world: &impl World) {
    let lease = world.running(job("welcome")).await;
    world.advance(SECOND).await;
    assert_eq!(oldest_ready(world).await, None, "running");
    world.end(&lease, failed_retry_after(MINUTE)).await;
    assert_eq!(oldest_ready(world).await, None, "retrying, not due");
    world.advance(MINUTE + SECOND).await;
    assert_eq!(oldest_ready(world).await, Some(SECOND), "retrying, due");
    world.store().pause(Pause::new(queue("default"))).await.unwrap();
    assert_eq!(oldest_ready(world).await, Some(SECOND), "paused");
    world.cancel(lease.job().id).await;
    assert_eq!(oldest_ready(world).await, None, "cancelled");
    world.redrive(lease.job().id).await;
    world.advance(SECOND * 3).await;
    assert_eq!(oldest_ready(world).await, Some(SECOND * 3), "redriven");
}
