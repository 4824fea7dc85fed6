//! The loops that every process runs, whether it runs jobs or not: a crashed worker's job must be retried even if no other
//! process of the fleet has a handler. A new loop is one line in [`HOUSEKEEPING`].

use std::future::Future;
use std::pin::Pin;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::supervise::supervise;
use super::{WorkerError, WorkerHealth, WorkerSettings, operator, outbox, pruner, reaper, ticker};
use crate::queue::Queue;

/// A loop, which never completes.
type Loop = Pin<Box<dyn Future<Output = ()> + Send>>;

type StartLoop = fn(Queue, &WorkerSettings) -> Loop;

/// Each loop with its name in logs and metrics.
const HOUSEKEEPING: [(&str, StartLoop); 5] = [
    ("reaper", |queue, settings| Box::pin(reaper::run(queue, settings.reap_interval))),
    ("pruner", |queue, settings| Box::pin(pruner::run(queue, settings.retention))),
    ("ticker", |queue, _| Box::pin(ticker::run(queue))),
    ("operator", |queue, _| Box::pin(operator::run(queue))),
    ("outbox", |queue, _| Box::pin(outbox::run(queue))),
];

/// Reaps expired leases, prunes finished jobs, ticks schedules, carries operations on and delivers events until `shutdown` completes: for a process without a [`Worker`](super::Worker),
/// such as an API server. Of the settings it uses `reap_interval` and `retention`.
pub async fn run_housekeeping(
    queue: Queue,
    settings: WorkerSettings,
    health: WorkerHealth,
    shutdown: impl Future<Output = ()>,
) -> Result<(), WorkerError> {
    let stop = CancellationToken::new();
    let housekeeping = run(queue, settings.within_limits(), health, stop.clone());
    tokio::pin!(housekeeping);
    tokio::select! {
        () = shutdown => {
            stop.cancel();
            housekeeping.await
        }
        died = &mut housekeeping => died,
    }
}

/// Runs all of [`HOUSEKEEPING`] until `stop`, or until one of them keeps dying.
pub(super) async fn run(
    queue: Queue,
    settings: WorkerSettings,
    health: WorkerHealth,
    stop: CancellationToken,
) -> Result<(), WorkerError> {
    // Ends the others, too, if one is given up.
    let stop = stop.child_token();
    let mut loops = JoinSet::new();
    for (name, start) in HOUSEKEEPING {
        let (queue, settings, ends) = (queue.clone(), settings.clone(), stop.clone());
        loops.spawn(supervise(name, health.clone(), stop.clone(), move || {
            let (running, ends) = (start(queue.clone(), &settings), ends.clone());
            async move {
                ends.run_until_cancelled(running).await;
            }
        }));
    }
    let mut ended = Ok(());
    while let Some(one) = loops.join_next().await {
        let one =
            one.unwrap_or_else(|error| Err(WorkerError::LoopDied { name: "housekeeping", why: error.to_string() }));
        if one.is_err() && ended.is_ok() {
            ended = one;
            stop.cancel();
        }
    }
    ended
}
