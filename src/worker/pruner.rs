//! Deletes finished jobs and the audit after their retention, tokens and sessions that have expired, workers that have been gone for
//! a day, and statistics, which it also adds up to hours; in small steps.

use std::time::Duration;

use super::Retention;
use crate::job::JobId;
use crate::queue::Queue;
use crate::store::{Prune, PruneAudit, PruneSeries, PruneTokens, PruneWorkers, StoreError};

/// 10 min: retention is counted in days.
const INTERVAL: Duration = Duration::from_secs(600);
/// 500 jobs, or entries of the audit, in one step: a short transaction.
const BATCH: usize = 500;
/// 24 h: a worker that is gone can be asked about the day after.
const KEEP_WORKERS: Duration = Duration::from_secs(24 * 3600);
/// 20 ms between steps, so that a long pass does not slow down other work.
const STEP_PAUSE: Duration = Duration::from_millis(20);

pub(super) async fn run(queue: Queue, retention: Retention) {
    loop {
        // Not at start, which is busy enough. With jitter, so that a fleet does not prune in step.
        tokio::time::sleep(INTERVAL.mul_f64(0.5 + fastrand::f64())).await;
        if let Err(error) = prune_jobs(&queue, retention).await {
            tracing::warn!(?error, "cannot remove old jobs; trying again later");
        }
        if let Err(error) = prune_audit(&queue, retention).await {
            tracing::warn!(?error, "cannot remove old entries of the audit; trying again later");
        }
        prune_tokens(&queue).await;
        prune_series(&queue).await;
        if let Err(error) = queue.prune_workers(PruneWorkers::new(KEEP_WORKERS, BATCH)).await {
            tracing::warn!(?error, "cannot remove workers that are gone; trying again later");
        }
    }
}

async fn prune_tokens(queue: &Queue) {
    loop {
        match queue.prune_tokens(PruneTokens::new(BATCH)).await {
            Ok(BATCH) => tokio::time::sleep(STEP_PAUSE).await,
            Ok(_) => return,
            Err(error) => {
                tracing::warn!(?error, "cannot remove expired tokens and sessions; trying again later");
                return;
            }
        }
    }
}

/// Adds minutes up to hours as well.
async fn prune_series(queue: &Queue) {
    loop {
        match queue.prune_series(PruneSeries::up_to(BATCH)).await {
            Ok(true) => tokio::time::sleep(STEP_PAUSE).await,
            Ok(false) => return,
            Err(error) => {
                tracing::warn!(?error, "cannot add up or remove old statistics; trying again later");
                return;
            }
        }
    }
}

async fn prune_jobs(queue: &Queue, retention: Retention) -> Result<(), StoreError> {
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
        let pruned = queue.prune(step).await?;
        deleted += pruned.deleted;
        after = pruned.next;
        if after.is_none() {
            break;
        }
        tokio::time::sleep(STEP_PAUSE).await;
    }
    if deleted > 0 {
        tracing::info!(deleted, "removed finished jobs that were kept long enough");
    }
    Ok(())
}

async fn prune_audit(queue: &Queue, retention: Retention) -> Result<(), StoreError> {
    let mut deleted = 0;
    loop {
        let pruned = queue.prune_audit(PruneAudit::keeping(retention.audit).limit(BATCH)).await?;
        deleted += pruned;
        if pruned < BATCH {
            break;
        }
        tokio::time::sleep(STEP_PAUSE).await;
    }
    if deleted > 0 {
        tracing::info!(deleted, "removed entries of the audit that were kept long enough");
    }
    Ok(())
}
