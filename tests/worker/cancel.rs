//! Cancellation: cooperative, and always told.

use std::sync::Arc;
use std::time::Duration;

use steadfast::job::AttemptOutcome;
use steadfast::store::{Cancel, Cancelled, Reap};
use steadfast::worker::{JobError, StopReason, WorkerSettings};
use steadfast::{Context, JobRequest, Queue, Status, Worker};
use tokio::sync::mpsc;

use crate::world::{Running, Task, World, brisk, in_time};

type Told = mpsc::UnboundedSender<StopReason>;

/// Runs until it is told to stop, and says what it was told.
fn obedient(queue: Queue, settings: WorkerSettings, told: Told) -> Worker<Told> {
    Worker::new(queue).with_state(told).settings(settings).handle(async |_: Task, context: Context<Told>| {
        let reason = context.stopped().await;
        context.state().send(reason).unwrap();
        Err::<(), _>(JobError::new("stopped"))
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_in_the_same_process_reaches_the_handler_without_a_heartbeat() {
    let world = World::new().await;
    let id = world.enqueue(1).await;
    let (told, mut heard) = mpsc::unbounded_channel();
    // With a lease this long the next heartbeat is twenty minutes away.
    let settings = brisk().lease(Duration::from_secs(3600));
    let worker = Running::start(obedient(world.queue.clone(), settings, told));
    world.reaches(id, Status::Running).await;
    assert_eq!(world.queue.cancel(id).await.unwrap(), Cancelled::Requested);
    assert_eq!(in_time("the handler to be told", heard.recv()).await, Some(StopReason::Cancelled));
    world.reaches(id, Status::Cancelled).await;
    let attempts = world.queue.attempts(id).await.unwrap().unwrap();
    assert_eq!(attempts.last().unwrap().outcome, Some(AttemptOutcome::Cancelled));
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_from_elsewhere_reaches_the_handler_by_heartbeat() {
    let world = World::new().await;
    let id = world.enqueue(1).await;
    let (told, mut heard) = mpsc::unbounded_channel();
    let worker = Running::start(obedient(world.queue.clone(), brisk(), told));
    world.reaches(id, Status::Running).await;
    // Past the façade: as another process would, so this one is not told directly.
    world.queue.store().cancel(Cancel::new([id])).await.unwrap();
    assert_eq!(in_time("the handler to be told", heard.recv()).await, Some(StopReason::Cancelled));
    world.reaches(id, Status::Cancelled).await;
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_whose_job_was_taken_from_it_is_told_and_changes_nothing() {
    let (world, clock) = World::with_held_clock().await;
    let request = JobRequest::of(&Task { n: 1 }).unwrap().max_attempts(1);
    world.queue.declare::<Task>().await.unwrap();
    let id = world.queue.enqueue_request(request).await.unwrap().job.id;
    let (told, mut heard) = mpsc::unbounded_channel();
    let worker = Running::start(obedient(world.queue.clone(), brisk(), told));
    world.reaches(id, Status::Running).await;
    // The lease runs out and somebody reaps it before the next heartbeat.
    clock.advance(brisk().lease * 2);
    world.queue.store().reap(Reap::up_to(10)).await.unwrap();
    assert_eq!(in_time("the handler to be told", heard.recv()).await, Some(StopReason::LeaseLost));
    worker.stop().await.unwrap();
    let attempts = world.queue.attempts(id).await.unwrap().unwrap();
    assert_eq!(attempts.len(), 1);
    assert_eq!(attempts[0].outcome, Some(AttemptOutcome::LeaseExpired), "the handler's own report was refused");
    assert_eq!(world.job(id).await.status, Status::FailedPermanent);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_ignores_its_cancel_does_not_block_shutdown_beyond_the_grace_period() {
    let world = World::new().await;
    let id = world.enqueue(1).await;
    let settings = brisk().shutdown_grace(Duration::from_millis(200));
    let worker = Running::start(Worker::new(world.queue.clone()).with_state(Arc::new(())).settings(settings).handle(
        async |_: Task, _: Context<Arc<()>>| {
            std::future::pending::<()>().await;
            Ok(())
        },
    ));
    world.reaches(id, Status::Running).await;
    world.queue.cancel(id).await.unwrap();
    worker.stop().await.unwrap();
    assert_eq!(world.job(id).await.status, Status::Cancelled);
}
