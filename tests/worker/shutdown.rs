//! Shutdown loses nothing and costs no attempt.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use steadfast::job::AttemptOutcome;
use steadfast::worker::WorkerSettings;
use steadfast::{Context, Status, Worker};
use tokio::sync::Notify;

use crate::world::{Running, Task, World, brisk, eventually};

/// `docs/guarantees.md` F19.
#[tokio::test(flavor = "multi_thread")]
async fn jobs_that_finish_in_time_are_recorded_and_the_rest_are_back_with_their_attempt() {
    let world = World::new().await;
    let state = Arc::new((Notify::new(), AtomicU64::new(0)));
    let (finish, started) = &*state;
    // 5 s: half of them must be done by then, on a slow machine, too.
    let settings = WorkerSettings::default().concurrency(100).shutdown_grace(Duration::from_secs(5));
    let mut ids = Vec::new();
    for n in 0..100 {
        ids.push(world.enqueue(n).await);
    }
    let worker = Running::start(Worker::new(world.queue.clone()).with_state(state.clone()).settings(settings).handle(
        async |job: Task, context: Context<Arc<(Notify, AtomicU64)>>| {
            let (finish, started) = &**context.state();
            started.fetch_add(1, Ordering::SeqCst);
            if job.n.is_multiple_of(2) {
                finish.notified().await;
                return Ok(());
            }
            std::future::pending().await
        },
    ));
    // Not what the store says: a job that is claimed and has not started yet is given back at once.
    eventually("all to run", async || (started.load(Ordering::SeqCst) == 100).then_some(())).await;
    let stopping = tokio::spawn(worker.stop());
    eventually("the handlers to have been told", async || {
        finish.notify_waiters();
        (world.count(Status::Succeeded).await == 50).then_some(())
    })
    .await;
    stopping.await.unwrap().unwrap();
    for (n, id) in ids.into_iter().enumerate() {
        let job = world.job(id).await;
        let outcome = world.queue.attempts(id).await.unwrap().unwrap()[0].outcome;
        if n % 2 == 0 {
            assert_eq!((job.status, outcome), (Status::Succeeded, Some(AttemptOutcome::Succeeded)));
        } else {
            assert_eq!((job.status, job.attempts), (Status::Queued, 0), "back in the queue, nothing spent");
            assert_eq!(outcome, Some(AttemptOutcome::Released));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_stops_because_of_the_shutdown_costs_no_attempt() {
    let world = World::new().await;
    let id = world.enqueue(1).await;
    let worker =
        Running::start(Worker::new(world.queue.clone()).settings(brisk()).handle(async |_: Task, context: Context| {
            context.stopped().await;
            Err::<(), _>(steadfast::worker::JobError::new("interrupted"))
        }));
    world.reaches(id, Status::Running).await;
    worker.stop().await.unwrap();
    let job = world.job(id).await;
    assert_eq!((job.status, job.attempts, job.last_error), (Status::Queued, 0, None));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_claimed_ahead_goes_back_at_once() {
    let world = World::new().await;
    let settings = WorkerSettings::default().concurrency(1).shutdown_grace(Duration::from_millis(100));
    // Fast ones first, so that the worker claims ahead; then one that holds the only slot.
    for n in 0..200 {
        world.enqueue(n).await;
    }
    let hold = world.queue.enqueue(Task { n: 1000 }).await.unwrap().job.id;
    for n in 2000..2100 {
        world.enqueue(n).await;
    }
    let worker =
        Running::start(Worker::new(world.queue.clone()).settings(settings).handle(async |job: Task, _: Context| {
            if job.n >= 1000 {
                std::future::pending::<()>().await;
            }
            Ok(())
        }));
    world.reaches(hold, Status::Running).await;
    eventually("the fast ones to be done", async || (world.count(Status::Succeeded).await == 200).then_some(())).await;
    worker.stop().await.unwrap();
    assert_eq!(world.count(Status::Running).await, 0);
    assert_eq!(world.count(Status::Queued).await, 101);
    assert_eq!(world.job(hold).await.attempts, 0);
}
