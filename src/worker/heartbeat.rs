//! Extends every lease of this process in one call, on a thread and a runtime of its own: handlers that block all threads
//! of their runtime do not stop heartbeats.
//!
//! Between two regular heartbeats, only leases of jobs that reported progress are sent: each one writes the whole row.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout};

use super::StopReason;
use super::context::Attempt;
use super::held::HeldLeases;
use crate::job::limits::BATCH_MAX;
use crate::queue::Queue;
use crate::store::{Beat, Extend, Extended, StoreError, StoreErrorKind, warn_throttled};

/// 3: two heartbeats may be missed before a lease expires.
const BEATS_PER_LEASE: u32 = 3;
/// Two thirds of a lease for the answer to one heartbeat: a late one still counts, and a timeout costs its connection; the
/// last third is for a retry.
const TIMEOUT_IN_BEATS: u32 = 2;
/// 1 s: the most often that progress is stored.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

pub(super) async fn run(queue: Queue, held: &HeldLeases, lease: Duration, progress_reported: &Notify) {
    let interval = lease / BEATS_PER_LEASE;
    // At once: if this loop died and was restarted, leases may be about to expire.
    let mut due = Instant::now();
    loop {
        let regular = tokio::select! {
            biased;
            () = sleep_until(due) => true,
            () = progress_reported.notified() => {
                sleep_until(due.min(Instant::now() + PROGRESS_INTERVAL)).await;
                // If it is due by now, the regular heartbeat carries the progress.
                Instant::now() >= due
            }
        };
        if regular {
            // Counted from its start: a slow answer must not delay the next one.
            let began = Instant::now();
            due = match beat(&queue, held, held.all(), lease).await {
                Ok(()) => began + interval,
                Err(error) => {
                    warn_throttled(&error, "cannot extend leases; trying again");
                    // Its progress is to be sent again.
                    progress_reported.notify_one();
                    Instant::now() + interval / 4
                }
            };
        } else if let Err(error) = beat(&queue, held, with_progress(held), lease).await {
            warn_throttled(&error, "cannot record progress; trying again");
            // Its progress is to be sent again.
            progress_reported.notify_one();
        }
    }
}

/// The attempts that reported progress since their last heartbeat.
fn with_progress(held: &HeldLeases) -> Vec<Arc<Attempt>> {
    let mut attempts = held.all();
    attempts.retain(|attempt| attempt.has_progress());
    attempts
}

/// Sends every chunk, also after one that failed; returns the last error.
async fn beat(
    queue: &Queue,
    held: &HeldLeases,
    attempts: Vec<Arc<Attempt>>,
    lease: Duration,
) -> Result<(), StoreError> {
    let mut result = Ok(());
    for some in attempts.chunks(BATCH_MAX) {
        if let Err(error) = beat_chunk(queue, held, some, lease).await {
            result = Err(error);
        }
    }
    result
}

async fn beat_chunk(
    queue: &Queue,
    held: &HeldLeases,
    attempts: &[Arc<Attempt>],
    lease: Duration,
) -> Result<(), StoreError> {
    let beats: Vec<Beat> =
        attempts.iter().map(|attempt| Beat { lease: attempt.lease, progress: attempt.take_progress() }).collect();
    let extending = queue.extend(Extend { beats: beats.clone(), lease: Some(lease) });
    let answers = timeout(lease / BEATS_PER_LEASE * TIMEOUT_IN_BEATS, extending)
        .await
        .unwrap_or_else(|_| Err(StoreError::new(StoreErrorKind::Timeout, "extend")));
    match answers {
        Ok(answers) => {
            attempts.iter().zip(answers).for_each(|(attempt, answer)| apply(held, attempt, answer));
            Ok(())
        }
        Err(error) => {
            for (attempt, beat) in attempts.iter().zip(beats) {
                beat.progress.into_iter().for_each(|progress| attempt.put_back_progress(progress));
            }
            Err(error)
        }
    }
}

fn apply(held: &HeldLeases, attempt: &Arc<Attempt>, answer: Extended) {
    match answer {
        Extended::Ok => {}
        Extended::Cancel => attempt.stop(StopReason::Cancelled),
        // The outcome may be recorded already: the answer to the settle will tell.
        Extended::Lost if attempt.is_handed_over() => {}
        Extended::Lost => {
            // `None`: it was settled while the heartbeat was in flight.
            if held.remove_lost(attempt.lease.token).is_some() {
                attempt.stop(StopReason::LeaseLost);
            }
        }
    }
}
