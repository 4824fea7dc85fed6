//! Deletes finished jobs after their retention, in small steps.

use std::time::Duration;

use super::Retention;
use crate::job::JobId;
use crate::queue::Queue;
use crate::store::Prune;

/// 10 min: retention is counted in days.
const INTERVAL: Duration = Duration::from_secs(600);
/// 500 jobs in one step: a short transaction.
const BATCH: usize = 500;
/// 20 ms between steps, so that a long pass does not slow down other work.
const STEP_PAUSE: Duration = Duration::from_millis(20);

pub(super) async fn run(queue: Queue, retention: Retention) {
    loop {
        // Not at start, which is busy enough. With jitter, so that a fleet does not prune in step.
        tokio::time::sleep(INTERVAL.mul_f64(0.5 + fastrand::f64())).await;
        let mut deleted = 0;
        let mut after: Option<JobId> = None;
        loop {
            let step = Prune {
                keep_succeeded: retention.succeeded,
                keep_cancelled: retention.cancelled,
                keep_failed: retention.failed,
                after,
                limit: BATCH,
            };
            match queue.prune(step).await {
                Ok(pruned) => {
                    deleted += pruned.deleted;
                    after = pruned.next;
                }
                Err(error) => {
                    tracing::warn!(?error, "cannot remove old jobs; trying again later");
                    break;
                }
            }
            if after.is_none() {
                break;
            }
            tokio::time::sleep(STEP_PAUSE).await;
        }
        if deleted > 0 {
            tracing::info!(deleted, "removed finished jobs that were kept long enough");
        }
    }
}
