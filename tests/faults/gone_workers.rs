//! What operators see of a worker that is killed.

use std::time::{Duration, Instant};

use steadfast::Queue;
use steadfast::job::{WorkerRecord, WorkerState};
use steadfast::store::ListWorkers;

use crate::players::{Part, Player};
use crate::programs::DEADLINE;
use crate::stage::Stage;

/// The only worker that was ever seen.
async fn only(queue: &Queue) -> Option<WorkerRecord> {
    queue.workers(ListWorkers::new()).await.unwrap().workers.into_iter().next()
}

async fn becomes(queue: &Queue, state: WorkerState) -> WorkerRecord {
    let give_up = Instant::now() + DEADLINE;
    loop {
        let seen = only(queue).await;
        match seen {
            Some(worker) if worker.state() == state => return worker,
            _ => assert!(Instant::now() < give_up, "waited in vain for the worker to be {state}: {seen:?}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f10_a_worker_that_is_killed_is_gone_half_a_minute_later() {
    let stage = Stage::on_postgres().await;
    let queue = stage.queue().await;
    let worker = Player::start(Part::Worker, &stage.script());
    let seen = becomes(&queue, WorkerState::Live).await;
    worker.kill();
    let gone = becomes(&queue, WorkerState::Gone).await;
    assert_eq!((gone.worker.clone(), gone.stopped), (seen.worker, false), "it had no time to say so");
    let silent = gone.as_of.duration_since(gone.seen_at).as_secs();
    // 30 s, and how long a slow machine takes to look.
    assert!((30..60).contains(&silent), "it is gone {silent} s after it was last seen");
}
