//! Records outcomes: one settle in flight, and what is reported meanwhile is the next batch. An outcome stays here until
//! the store has answered; while the store is unavailable, it is retried.

use std::sync::{Mutex, PoisonError};

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::backoff::error_pause;
use super::context::Attempt;
use super::held::HeldLeases;
use crate::job::{LeaseKey, Outcome};
use crate::queue::Queue;
use crate::store::{Settle, Settled, StoreError, StoreErrorKind, warn_throttled};

/// 1,000 outcomes in one settle: as many jobs as a claim returns.
const BATCH_MAX: usize = 1000;
/// 2,048 outcomes are buffered; then slots wait.
const BUFFERED_MAX: usize = 2048;

/// The channel from the slots to the settler.
pub(super) struct Outcomes {
    sender: Mutex<Option<mpsc::Sender<Settle>>>,
    receiver: tokio::sync::Mutex<mpsc::Receiver<Settle>>,
    /// Taken from the channel, not answered yet. Kept here so that it survives a restart of the loop.
    unsettled: Mutex<Vec<Unsettled>>,
    /// Cancelled when no more outcomes will come.
    pub(super) closed: CancellationToken,
}

/// An outcome that is not recorded yet.
#[derive(Clone)]
struct Unsettled {
    settle: Settle,
    version: Version,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Version {
    AsReported,
    /// A failure, instead of an outcome that the database refused.
    Substitute,
}

impl Default for Outcomes {
    fn default() -> Self {
        let (sender, receiver) = mpsc::channel(BUFFERED_MAX);
        Self {
            sender: Mutex::new(Some(sender)),
            receiver: tokio::sync::Mutex::new(receiver),
            unsettled: Mutex::default(),
            closed: CancellationToken::new(),
        }
    }
}

impl Outcomes {
    /// Sends an outcome to the settler; waits if the buffer is full.
    pub(super) async fn report(&self, attempt: &Attempt, outcome: Outcome) {
        attempt.hand_over();
        let sender = self.sender.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(sender) = sender {
            // Closed only once every slot has ended; what is reported later is reaped.
            let _ = sender.send(Settle { lease: attempt.lease, outcome }).await;
        }
    }

    /// No more outcomes will come: the settler ends when all are settled.
    pub(super) fn close(&self) {
        // Before the channel closes: a settler that ends because of that must be seen to end as told.
        self.closed.cancel();
        self.sender.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    fn unsettled(&self) -> std::sync::MutexGuard<'_, Vec<Unsettled>> {
        self.unsettled.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) async fn run(queue: Queue, outcomes: &Outcomes, held: &HeldLeases) {
    let mut receiver = outcomes.receiver.lock().await;
    let mut errors = 0;
    loop {
        let unsettled = outcomes.unsettled().len();
        if unsettled < BATCH_MAX {
            let mut arrived = Vec::new();
            let room = BATCH_MAX - unsettled;
            if unsettled > 0 {
                while arrived.len() < room
                    && let Ok(settle) = receiver.try_recv()
                {
                    arrived.push(settle);
                }
            } else if receiver.recv_many(&mut arrived, room).await == 0 {
                return;
            }
            let as_reported = |settle| Unsettled { settle, version: Version::AsReported };
            outcomes.unsettled().extend(arrived.into_iter().map(as_reported));
        }
        let batch = outcomes.unsettled().clone();
        match queue.settle(batch.iter().map(|one| one.settle.clone()).collect()).await {
            Ok(answers) => {
                errors = 0;
                let again =
                    batch.into_iter().zip(answers).filter_map(|(outcome, answer)| answered(held, outcome, answer));
                *outcomes.unsettled() = again.collect();
            }
            Err(error) => {
                errors += 1;
                let pause = error_pause(errors);
                warn_throttled(&error, "cannot record outcomes; trying again");
                tokio::time::sleep(pause).await;
            }
        }
    }
}

/// Handles the answer for one outcome; what is returned is to be settled again.
fn answered(held: &HeldLeases, outcome: Unsettled, answer: Result<Settled, StoreError>) -> Option<Unsettled> {
    let LeaseKey { job_id, token } = outcome.settle.lease;
    match answer {
        Ok(Settled::Recorded) => {
            held.remove(token);
            None
        }
        Ok(Settled::Lost) => {
            held.remove_lost(token);
            None
        }
        Err(error) if error.is_retryable() => Some(outcome),
        Err(error) if error.kind() == StoreErrorKind::Rejected && outcome.version == Version::AsReported => {
            tracing::error!(?error, %job_id, "an outcome cannot be stored; recording that instead");
            let refused = "the outcome of this attempt was refused by the database; see the worker's log";
            let settle = Settle { outcome: Outcome::failed_permanently(refused), ..outcome.settle };
            Some(Unsettled { settle, version: Version::Substitute })
        }
        Err(error) => {
            tracing::error!(?error, %job_id, "an outcome cannot be recorded; its lease will expire");
            held.remove(token);
            None
        }
    }
}
