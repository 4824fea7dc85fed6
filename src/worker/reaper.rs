//! Ends attempts whose leases have run out, anybody's. Every process does it; the conditional update in the store makes
//! sure that each is ended once.

use std::time::Duration;

use crate::planted::{Bug, planted};
use crate::queue::Queue;
use crate::store::{Reap, StoreError, complain};

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
        match queue.store().reap(Reap { limit: BATCH }).await {
            Ok(reaped) => {
                metrics::counter!("leases_expired_total").increment(reaped.len() as u64);
                for job in &reaped {
                    tracing::warn!(
                        job_id = %job.job_id, kind = %job.kind, worker = %job.worker, outcome = %job.recorded, to = %job.to,
                        "an attempt was not heard of in time"
                    );
                }
                if reaped.len() < BATCH {
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
