//! A worker that operators drain: it finishes what it has, starts no more, and goes on when it may. And what others see of
//! it meanwhile.

use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use steadfast::job::{WorkerId, WorkerRecord, WorkerSource, WorkerState};
use steadfast::{Context, Job, Queue, Status, Worker};
use tokio::sync::Semaphore;

use crate::world::{Running, Task, World, brisk, eventually};

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct Other {}

impl Job for Other {
    const KIND: &'static str = "other";
}

/// More than it can claim before it hears of a drain.
const JOBS: u64 = 400;

fn name() -> WorkerId {
    WorkerId::new("host-1").unwrap()
}

/// Jobs of it end when there is a permit for them.
fn worker(queue: &Queue, permits: &Arc<Semaphore>) -> Running {
    let settings = brisk().concurrency(2);
    Running::start(Worker::new(queue.clone()).id(name()).settings(settings).with_state(permits.clone()).handle(
        async |_: Task, context: Context<Arc<Semaphore>>| {
            context.state().acquire().await.unwrap().forget();
            Ok(())
        },
    ))
}

async fn seen(queue: &Queue) -> Option<WorkerRecord> {
    queue.worker(name()).await.unwrap().map(|detail| detail.worker)
}

async fn becomes(queue: &Queue, state: WorkerState) -> WorkerRecord {
    let is_so = async || seen(queue).await.filter(|worker| worker.state() == state);
    eventually(&format!("the worker to be {state}"), is_so).await
}

async fn drains_and_goes_on(world: World) {
    let permits = Arc::new(Semaphore::new(0));
    for n in 0..JOBS {
        world.enqueue(n).await;
    }
    let running = worker(&world.queue, &permits);
    eventually("both slots to be busy", async || (world.count(Status::Running).await == 2).then_some(())).await;
    becomes(&world.queue, WorkerState::Live).await;
    assert!(world.queue.drain_worker(name()).await.unwrap());
    becomes(&world.queue, WorkerState::Draining).await;
    // One by one: it hears of the drain a moment after the store has it, and may claim until then.
    eventually("what it had to be done", async || {
        let runs = world.count(Status::Running).await > 0;
        permits.add_permits(usize::from(runs));
        (!runs).then_some(())
    })
    .await;
    // Each of these wakes whoever claims.
    let other =
        Running::start(Worker::new(world.queue.clone()).settings(brisk()).handle(async |_: Other, _: Context| Ok(())));
    for _ in 0..5 {
        let id = world.queue.enqueue(Other {}).await.unwrap().job.id;
        world.reaches(id, Status::Succeeded).await;
    }
    other.stop().await.unwrap();
    let drained = world.count(Status::Succeeded).await - 5;
    assert!((2..JOBS).contains(&drained), "{drained} of {JOBS} are done");
    assert_eq!(world.count(Status::Running).await, 0);
    permits.add_permits(JOBS as usize);
    assert!(world.queue.undrain_worker(name()).await.unwrap());
    let all = JOBS + 5;
    eventually("the others to be done", async || (world.count(Status::Succeeded).await == all).then_some(())).await;
    becomes(&world.queue, WorkerState::Live).await;
    running.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_is_drained_finishes_what_it_has_and_goes_on_when_it_may_on_sqlite() {
    drains_and_goes_on(World::new().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_is_drained_finishes_what_it_has_and_goes_on_when_it_may_on_postgresql() {
    drains_and_goes_on(World::on_postgres().await.0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_is_seen_with_what_it_runs_until_it_says_goodbye() {
    let world = World::new().await;
    let permits = Arc::new(Semaphore::new(0));
    let id = world.enqueue(1).await;
    let running = worker(&world.queue, &permits);
    world.reaches(id, Status::Running).await;
    let shown = becomes(&world.queue, WorkerState::Live).await;
    assert_eq!((shown.source, shown.info.pid), (WorkerSource::Embedded, Some(std::process::id())));
    assert_eq!(shown.info.concurrency, Some(2));
    assert!(shown.asks.takes("default", "task") && !shown.asks.takes("default", "other"), "{shown:?}");
    let detail = world.queue.worker(name()).await.unwrap().unwrap();
    assert_eq!(detail.jobs.iter().map(|job| job.job_id).collect::<Vec<_>>(), [id]);
    permits.add_permits(1);
    world.reaches(id, Status::Succeeded).await;
    running.stop().await.unwrap();
    let gone = seen(&world.queue).await.unwrap();
    assert_eq!((gone.state(), gone.stopped), (WorkerState::Gone, true));
    // The next process under this name is not the one that was drained.
    assert!(world.queue.drain_worker(name()).await.unwrap());
    let running = worker(&world.queue, &permits);
    becomes(&world.queue, WorkerState::Live).await;
    running.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_whose_slots_are_busy_for_long_is_not_deaf_and_one_that_hangs_is_gone() {
    let (world, clock) = World::with_held_clock().await;
    let permits = Arc::new(Semaphore::new(0));
    let ids = [world.enqueue(1).await, world.enqueue(2).await, world.enqueue(3).await];
    let running = worker(&world.queue, &permits);
    eventually("both slots to be busy", async || (world.count(Status::Running).await == 2).then_some(())).await;
    becomes(&world.queue, WorkerState::Live).await;
    clock.advance(Duration::from_secs(61));
    assert_eq!(seen(&world.queue).await.unwrap().state(), WorkerState::Gone, "nothing was heard of it since");
    // Makes it report at once.
    assert!(world.queue.undrain_worker(name()).await.unwrap());
    becomes(&world.queue, WorkerState::Live).await;
    permits.add_permits(100);
    for id in ids {
        world.reaches(id, Status::Succeeded).await;
    }
    running.stop().await.unwrap();
}
