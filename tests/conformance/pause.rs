//! pause, resume: a queue from which nothing is claimed.

use steadfast::job::Status;
use steadfast::store::{Extended, Pause, QueueStats, Resume, StatsRequest};

use crate::phrases::*;
use crate::world::World;

async fn pause(world: &impl World, name: &str) {
    world.store().pause(Pause::new(queue(name))).await.unwrap();
}

async fn resume(world: &impl World, name: &str) {
    world.store().resume(Resume::new(queue(name))).await.unwrap();
}

pub(crate) async fn nothing_is_claimed_from_a_paused_queue_until_it_is_resumed(world: &impl World) {
    let mail = world.enqueue(in_queue("mail")).await;
    let other = world.enqueue(in_queue("mail2")).await;
    pause(world, "mail").await;
    assert_eq!(ids(&world.claim(10).await), [other.id]);
    assert_eq!(world.claim(10).await, []);
    resume(world, "mail").await;
    assert_eq!(ids(&world.claim(10).await), [mail.id]);
}

pub(crate) async fn asking_for_a_paused_queue_by_name_does_not_help(world: &impl World) {
    world.enqueue(in_queue("mail")).await;
    pause(world, "mail").await;
    assert_eq!(world.claim_with(claim_of(10).queues(vec![queue("mail")])).await, []);
    let both = claim_of(10).queues(vec![queue("mail"), queue("default")]);
    let free = world.enqueue(job("welcome")).await;
    assert_eq!(ids(&world.claim_with(both).await), [free.id]);
}

pub(crate) async fn a_queue_without_jobs_can_be_paused_for_those_to_come(world: &impl World) {
    pause(world, "mail").await;
    let mut paused = QueueStats::default();
    paused.paused = true;
    assert_eq!(world.store().stats(StatsRequest::new()).await.unwrap().queues, [(queue("mail"), paused)].into());
    let job = world.enqueue(in_queue("mail")).await;
    assert_eq!(job.status, Status::Queued);
    assert_eq!(world.claim(10).await, []);
    resume(world, "mail").await;
    assert_eq!(ids(&world.claim(10).await), [job.id]);
}

pub(crate) async fn pausing_and_resuming_twice_is_the_same_as_once(world: &impl World) {
    let job = world.enqueue(in_queue("mail")).await;
    resume(world, "mail").await;
    resume(world, "unheard-of").await;
    pause(world, "mail").await;
    pause(world, "mail").await;
    assert!(world.queue_stats("mail").await.paused);
    assert_eq!(world.claim(10).await, []);
    resume(world, "mail").await;
    assert!(!world.queue_stats("mail").await.paused);
    resume(world, "mail").await;
    assert_eq!(ids(&world.claim(10).await), [job.id]);
}

pub(crate) async fn running_jobs_of_a_paused_queue_go_on(world: &impl World) {
    let lease = world.running(in_queue("mail")).await;
    let other = world.running(in_queue("mail")).await;
    pause(world, "mail").await;
    world.advance(SECOND * 20).await;
    assert_eq!(world.extend(&lease).await, Extended::Ok);
    assert_eq!(world.end(&lease, succeeded()).await.status, Status::Succeeded);
    // What comes back to the queue waits there.
    assert_eq!(world.end(&other, failed("x")).await.status, Status::Retrying);
    world.advance(HOUR).await;
    assert_eq!(world.claim(10).await, []);
    resume(world, "mail").await;
    assert_eq!(ids(&world.claim(10).await), [other.job().id]);
}

pub(crate) async fn a_large_paused_backlog_does_not_stand_in_the_way(world: &impl World) {
    let backlog = || in_queue("mail").priority(100);
    world.enqueue_all((0..1000).map(|_| backlog()).collect()).await;
    let free = world.enqueue(with_priority(-100)).await;
    pause(world, "mail").await;
    assert_eq!(ids(&world.claim(1).await), [free.id]);
}
