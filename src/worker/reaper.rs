//! Ends attempts whose leases have run out, anybody's. Every process does it; the conditional update in the store makes
//! sure that each is ended once.

use std::time::Duration;

use crate::job::AttemptOutcome;
use crate::planted::{Bug, planted};
use crate::queue::Queue;
use crate::store::{FailedAttempt, Reap, Reaped, StoreError, complain};

/// 500 in one step: short transactions, and a crash of a large fleet is still cleared in seconds.
const BATCH: usize = 500;

pub(super) async fn run(queue: Queue, interval: Duration) {
    if planted(Bug::ReaperNeverRuns) {
        std::future::pending::<()>().await;
    }
    loop {
        if reap_all(&queue).await.is_err() {
            // Not to be mended from here: the watchdog ends the process.
            return;
        }
        // Jitter, so that a fleet that was started together does not reap together.
        tokio::time::sleep(interval.mul_f64(0.9 + fastrand::f64() / 5.0)).await;
    }
}

/// An error only if the store is beyond use.
async fn reap_all(queue: &Queue) -> Result<(), StoreError> {
    loop {
        match queue.reap(Reap { limit: BATCH }).await {
            Ok(reaped) => {
                let count = reaped.len();
                metrics::counter!("leases_expired_total").increment(count as u64);
                reaped.into_iter().for_each(say);
                if count < BATCH {
                    return Ok(());
                }
            }
            Err(error) if error.is_final() => {
                tracing::error!(?error, "the store is beyond use");
                return Err(error);
            }
            Err(error) => {
                complain(&error, "cannot look for expired leases; trying again");
                return Ok(());
            }
        }
    }
}

fn say(reaped: Reaped) {
    let Reaped { job_id, kind, attempt, worker, to, recorded } = reaped;
    let error = match recorded {
        AttemptOutcome::TimedOut => format!("ran past the job's timeout_ms, at worker {worker}"),
        _ => format!("lease expired: worker {worker} was not heard of in time"),
    };
    FailedAttempt { job_id, kind, attempt, recorded, to, error }.log();
}
