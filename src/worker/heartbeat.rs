//! Extends every lease of this process in one call, on a thread and a runtime of its own: handlers that block every
//! thread of theirs do not keep it from beating.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use super::StopReason;
use super::context::Attempt;
use super::held::HeldLeases;
use super::settler::report_lost;
use crate::job::limits::BATCH_MAX;
use crate::queue::Queue;
use crate::store::{Beat, Extend, Extended, StoreError, StoreErrorKind, complain};

/// 3: two beats may be missed before a lease runs out.
const BEATS_PER_LEASE: u32 = 3;
/// 1 s: progress is shown that fast, and no faster.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

pub(super) async fn run(queue: Queue, held: &HeldLeases, lease: Duration, progress_reported: &Notify) {
    let interval = lease / BEATS_PER_LEASE;
    loop {
        // At once: should this loop have died and been started again, leases may be close to their end.
        let wait = match beat(&queue, held, lease).await {
            Ok(()) => interval,
            Err(error) => {
                complain(&error, "cannot extend leases; trying again");
                interval / 4
            }
        };
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = progress_reported.notified() => tokio::time::sleep(PROGRESS_INTERVAL.min(interval)).await,
        }
    }
}

async fn beat(queue: &Queue, held: &HeldLeases, lease: Duration) -> Result<(), StoreError> {
    let attempts = held.all();
    for some in attempts.chunks(BATCH_MAX) {
        let beats =
            some.iter().map(|attempt| Beat { lease: attempt.lease, progress: attempt.take_progress() }).collect();
        let extending = queue.store().extend(Extend { beats, lease: Some(lease) });
        let answers = tokio::time::timeout(lease / BEATS_PER_LEASE, extending)
            .await
            .map_err(|_| StoreError::new(StoreErrorKind::Timeout, "extend"))??;
        some.iter().zip(answers).for_each(|(attempt, answer)| heard(held, attempt, answer));
    }
    Ok(())
}

fn heard(held: &HeldLeases, attempt: &Arc<Attempt>, answer: Extended) {
    match answer {
        Extended::Ok => {}
        Extended::Cancel => attempt.stop(StopReason::Cancelled),
        // The outcome may be on record already and its answer on the way: the settler will know.
        Extended::Lost if attempt.is_handed_over() => {}
        Extended::Lost => {
            // Not held any more: it was settled while the heartbeat was on its way.
            if held.let_go(attempt.lease.token).is_some() {
                report_lost(attempt);
                attempt.stop(StopReason::LeaseLost);
            }
        }
    }
}
