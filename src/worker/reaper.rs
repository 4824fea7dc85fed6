//! Ends attempts whose leases have expired, of any worker. Every process runs it; the conditional update in the store
//! ensures that each attempt is ended once.

use std::time::Duration;

use crate::job::AttemptOutcome;
use crate::planted::{Bug, planted};
use crate::queue::Queue;
use crate::store::{FailedAttempt, Reap, Reaped, StoreError, warn_throttled};

/// 500 in one step: short transactions, and a crash of a large fleet is still cleared in seconds.
const BATCH: usize = 500;

pub(super) async fn run(queue: Queue, interval: Duration) {
    if planted(Bug::ReaperNeverRuns) {
        std::future::pending::<()>().await;
    }
    loop {
        if reap_all(&queue).await.is_err() {
            // No retry helps: the watchdog ends the process.
            return;
        }
        // Jitter, so that a fleet that was started together does not reap together.
        tokio::time::sleep(interval.mul_f64(0.9 + fastrand::f64() / 5.0)).await;
    }
}

/// An error only if this process can never write again.
async fn reap_all(queue: &Queue) -> Result<(), StoreError> {
    loop {
        match queue.reap(Reap { limit: BATCH }).await {
            Ok(reaped) => {
                let count = reaped.len();
                metrics::counter!("leases_expired_total").increment(count as u64);
                reaped.into_iter().for_each(log);
                if count < BATCH {
                    return Ok(());
                }
            }
            Err(error) if error.is_final() => {
                tracing::error!(?error, "the store is beyond use");
                return Err(error);
            }
            Err(error) => {
                warn_throttled(&error, "cannot look for expired leases; trying again");
                return Ok(());
            }
        }
    }
}

fn log(reaped: Reaped) {
    let Reaped { job_id, kind, attempt, worker, to, recorded } = reaped;
    let error = match recorded {
        AttemptOutcome::TimedOut => format!("ran past the job's timeout_ms, at worker {worker}"),
        _ => format!("lease expired: worker {worker} was not heard of in time"),
    };
    FailedAttempt { job_id, kind, attempt, recorded, to, error }.log();
}
