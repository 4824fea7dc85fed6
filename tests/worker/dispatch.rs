//! How many jobs are claimed, which, and how soon.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use steadfast::job::{Json, Kind, KindDefinition};
use steadfast::worker::HandlerOptions;
use steadfast::{Context, JobRequest, Status, Worker};
use tokio::sync::{Notify, mpsc};

use crate::watchdog::Watched;
use crate::world::{Running, Task, World, brisk, eventually, in_time};

#[tokio::test(flavor = "multi_thread")]
async fn slow_jobs_are_never_claimed_beyond_the_free_slots() {
    let world = World::new().await;
    for n in 0..20 {
        world.enqueue(n).await;
    }
    let finish = Arc::new(Notify::new());
    let settings = brisk().concurrency(3);
    let worker = Running::start(Worker::new(world.queue.clone()).with_state(finish.clone()).settings(settings).handle(
        async |_: Task, context: Context<Arc<Notify>>| {
            let began = Instant::now();
            context.state().notified().await;
            // As slow as the slowest that could be called fast.
            tokio::time::sleep(Duration::from_millis(60).saturating_sub(began.elapsed())).await;
            Ok(())
        },
    ));
    for done in 0..20u64 {
        eventually("the slots to be full", async || {
            (world.count(Status::Running).await == (20 - done).min(3)).then_some(())
        })
        .await;
        assert!(world.count(Status::Running).await <= 3);
        finish.notify_one();
        eventually("one more to be done", async || (world.count(Status::Succeeded).await > done).then_some(())).await;
    }
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn instant_jobs_are_claimed_by_the_hundred() {
    let world = World::new().await;
    let watched = Watched::over(&world.queue);
    world.queue.declare::<Task>().await.unwrap();
    for _ in 0..5 {
        let requests = (0..1000).map(|n| JobRequest::of(&Task { n }).unwrap()).collect();
        world.queue.enqueue_requests(requests).await.unwrap();
    }
    let settings = brisk().concurrency(4);
    let worker =
        Running::start(Worker::new(watched.queue()).settings(settings).handle(async |_: Task, _: Context| Ok(())));
    eventually("all to be done", async || (world.count(Status::Succeeded).await == 5000).then_some(())).await;
    worker.stop().await.unwrap();
    let largest = watched.largest_claim();
    assert!(largest >= 100, "the largest claim brought {largest} jobs");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_worker_starts_a_new_job_without_waiting_for_a_poll() {
    let world = World::new().await;
    let (started, mut starts) = mpsc::unbounded_channel();
    // Longer than the test's wait_timeout: only a wake can start the job.
    let settings = brisk().poll_min(Duration::from_secs(600)).poll_max(Duration::from_secs(600));
    let watched = Watched::over(&world.queue);
    let worker = Running::start(Worker::new(watched.queue()).with_state(started).settings(settings).handle(
        async |job: Task, context: Context<mpsc::UnboundedSender<u64>>| {
            context.state().send(job.n).unwrap();
            Ok(())
        },
    ));
    eventually("the worker to be idle", async || (watched.claims() > 0).then_some(())).await;
    world.enqueue(7).await;
    assert_eq!(in_time("the job to start", starts.recv()).await, Some(7));
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn kinds_without_a_handler_are_left_for_a_worker_that_has_one() {
    let world = World::new().await;
    world.queue.put_kind(KindDefinition::any(Kind::new("other").unwrap())).await.unwrap();
    let other = world.queue.enqueue_request(JobRequest::new("other", Json::null())).await.unwrap().job.id;
    let mine = world.enqueue(1).await;
    let worker =
        Running::start(Worker::new(world.queue.clone()).settings(brisk()).handle(async |_: Task, _: Context| Ok(())));
    world.reaches(mine, Status::Succeeded).await;
    let untouched = world.job(other).await;
    assert_eq!((untouched.status, untouched.attempts), (Status::Queued, 0));
    let later = Running::start(Worker::new(world.queue.clone()).settings(brisk()).handle_raw(
        "other",
        HandlerOptions::new(),
        async |_, _: Context| Ok(()),
    ));
    world.reaches(other, Status::Succeeded).await;
    worker.stop().await.unwrap();
    later.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kind_with_a_limit_never_runs_more_at_once_and_waits_for_no_poll() {
    let world = World::new().await;
    for n in 0..50 {
        world.enqueue(n).await;
    }
    #[derive(Default)]
    struct Count {
        now: AtomicUsize,
        most: AtomicUsize,
    }
    let count = Arc::new(Count::default());
    // Longer than the test's wait_timeout: a place that is free again must be enough.
    let never = Duration::from_secs(600);
    let settings = brisk().concurrency(16).poll_min(never).poll_max(never);
    let worker =
        Running::start(Worker::new(world.queue.clone()).with_state(count.clone()).settings(settings).handle_with(
            HandlerOptions::new().concurrency(2),
            async |_: Task, context: Context<Arc<Count>>| {
                let now = context.state().now.fetch_add(1, Ordering::SeqCst) + 1;
                context.state().most.fetch_max(now, Ordering::SeqCst);
                tokio::task::yield_now().await;
                context.state().now.fetch_sub(1, Ordering::SeqCst);
                Ok(())
            },
        ));
    eventually("all to be done", async || (world.count(Status::Succeeded).await == 50).then_some(())).await;
    worker.stop().await.unwrap();
    assert!((1..=2).contains(&count.most.load(Ordering::SeqCst)));
}

/// One slot that claims ahead because jobs are instant, and is then held by one that is not.
struct Hoarder {
    world: World,
    behind: Vec<steadfast::JobId>,
    go_on: Arc<Notify>,
    worker: Running,
}

impl Hoarder {
    async fn start() -> Self {
        let world = World::new().await;
        for n in 0..200 {
            world.enqueue(n).await;
        }
        let hold = world.enqueue(1000).await;
        let mut behind = Vec::new();
        for n in 2000..2100 {
            behind.push(world.enqueue(n).await);
        }
        let go_on = Arc::new(Notify::new());
        let worker = Worker::new(world.queue.clone())
            .with_state(go_on.clone())
            .settings(brisk().concurrency(1))
            .handle(|job: Task, context: Context<Arc<Notify>>| async move {
                if job.n == 1000 {
                    context.state().notified().await;
                }
                Ok(())
            });
        let worker = Running::start(worker);
        world.reaches(hold, Status::Running).await;
        Self { world, behind, go_on, worker }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_claimed_ahead_of_a_slow_one_are_given_back_to_others() {
    let hoarder = Hoarder::start().await;
    eventually("all but the slow one to be given back", async || {
        (hoarder.world.count(Status::Running).await == 1).then_some(())
    })
    .await;
    assert_eq!(hoarder.world.count(Status::Queued).await, 100);
    assert_eq!(hoarder.world.job(hoarder.behind[0]).await.attempts, 0);
    hoarder.go_on.notify_one();
    eventually("all to be done", async || (hoarder.world.count(Status::Succeeded).await == 301).then_some(())).await;
    hoarder.worker.stop().await.unwrap();
}
