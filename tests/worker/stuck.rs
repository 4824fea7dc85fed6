//! `docs/guarantees.md` F18: a handler that ignores everything. Its attempt ends, its slot is counted as stuck, the others go on.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use metrics::{Counter, Gauge, GaugeFn, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use steadfast::job::AttemptOutcome;
use steadfast::{Context, Status, Worker};

use crate::world::{Running, Task, World, brisk, eventually};

/// How many slots are stuck, as a scrape would show it.
static STUCK: LazyLock<Arc<Count>> = LazyLock::new(|| {
    metrics::set_global_recorder(OneGauge).unwrap();
    Arc::default()
});

#[derive(Default)]
struct Count(AtomicI64);

impl GaugeFn for Count {
    fn increment(&self, by: f64) {
        self.0.fetch_add(by as i64, Ordering::SeqCst);
    }

    fn decrement(&self, by: f64) {
        self.0.fetch_sub(by as i64, Ordering::SeqCst);
    }

    fn set(&self, to: f64) {
        self.0.store(to as i64, Ordering::SeqCst);
    }
}

/// Knows one gauge and forgets everything else.
struct OneGauge;

impl Recorder for OneGauge {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        Counter::noop()
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        if key.name() == "worker_slots_stuck" { Gauge::from_arc(STUCK.clone()) } else { Gauge::noop() }
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_handler_that_blocks_past_its_deadline_is_timed_out_and_counted_while_the_others_go_on() {
    let stuck = STUCK.clone();
    let world = World::new().await;
    let let_go = Arc::new(AtomicBool::new(false));
    let blocked = world.queue.enqueue(Task { n: 0 }).timeout(Duration::from_millis(300)).max_attempts(1).await;
    let blocked = blocked.unwrap().job.id;
    let settings = brisk().concurrency(2);
    let worker = Running::start(Worker::new(world.queue.clone()).with_state(let_go.clone()).settings(settings).handle(
        |job: Task, context: Context<Arc<AtomicBool>>| async move {
            while job.n == 0 && !context.state().load(Ordering::SeqCst) {
                // Blocks its thread: neither cancellation nor an abort can reach it.
                std::thread::yield_now();
            }
            Ok(())
        },
    ));
    let job = world.reaches(blocked, Status::FailedPermanent).await;
    assert_eq!(world.queue.attempts(blocked).await.unwrap().unwrap()[0].outcome, Some(AttemptOutcome::TimedOut));
    assert!(job.last_error.unwrap().contains("timed out"));
    for n in 1..20 {
        world.enqueue(n).await;
    }
    eventually("the others to be done", async || (world.count(Status::Succeeded).await == 19).then_some(())).await;
    eventually("the slot to be counted", async || (stuck.0.load(Ordering::SeqCst) == 1).then_some(())).await;
    let_go.store(true, Ordering::SeqCst);
    eventually("the slot to be free again", async || (stuck.0.load(Ordering::SeqCst) == 0).then_some(())).await;
    worker.stop().await.unwrap();
}
