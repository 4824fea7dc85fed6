//! Reaping and pruning without running jobs: for processes whose jobs are run by workers over HTTP. A crashed worker's
//! job must come back even if no process of the fleet has a handler.

use std::future::Future;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::supervise::supervise;
use super::{WorkerError, WorkerHealth, WorkerSettings};
use super::{pruner, reaper};
use crate::queue::Queue;

/// Ends expired leases and removes old jobs until `shutdown` completes. Of the settings it uses `reap_interval` and
/// `retention`.
pub async fn run_housekeeping(
    queue: Queue,
    settings: WorkerSettings,
    health: WorkerHealth,
    shutdown: impl Future<Output = ()>,
) -> Result<(), WorkerError> {
    let stop = CancellationToken::new();
    let mut loops = JoinSet::new();
    let (reaped, interval, ends) = (queue.clone(), settings.reap_interval, stop.clone());
    loops.spawn(supervise("reaper", health.clone(), stop.clone(), move || {
        let (queue, ends) = (reaped.clone(), ends.clone());
        async move {
            ends.run_until_cancelled(reaper::run(queue, interval)).await;
        }
    }));
    let (retention, ends) = (settings.retention, stop.clone());
    loops.spawn(supervise("pruner", health, stop.clone(), move || {
        let (queue, ends) = (queue.clone(), ends.clone());
        async move {
            ends.run_until_cancelled(pruner::run(queue, retention)).await;
        }
    }));
    let ended = tokio::select! {
        () = shutdown => Ok(()),
        Some(died) = loops.join_next() => {
            died.unwrap_or_else(|error| Err(WorkerError::LoopDied { name: "housekeeping", why: error.to_string() }))
        }
    };
    stop.cancel();
    while loops.join_next().await.is_some() {}
    ended
}
