//! Records outcomes: one settle in flight, whatever was reported meanwhile is the next batch. An outcome stays here
//! until the store has answered; a store that is away is asked again until it is back.

use std::sync::{Mutex, PoisonError};

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::backoff::error_pause;
use super::context::Attempt;
use super::held::HeldLeases;
use crate::job::{LeaseKey, Outcome};
use crate::queue::Queue;
use crate::store::{Settle, Settled, StoreError, StoreErrorKind, complain};

/// 1,000 outcomes in one settle: as many as a claim brings.
const BATCH_MAX: usize = 1000;
/// 2,048 outcomes may wait; then slots wait with theirs.
const WAITING_MAX: usize = 2048;

/// The way from the slots to the settler.
pub(super) struct Outcomes {
    sender: Mutex<Option<mpsc::Sender<Settle>>>,
    receiver: tokio::sync::Mutex<mpsc::Receiver<Settle>>,
    /// Taken from the channel, not answered yet. Survives the loop, should it die.
    unsettled: Mutex<Vec<Unsettled>>,
    /// No more outcomes will come.
    pub(super) closed: CancellationToken,
}

/// An outcome that is not on record yet.
#[derive(Clone)]
struct Unsettled {
    settle: Settle,
    version: Version,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Version {
    AsReported,
    /// In place of one that the database refused.
    Substitute,
}

impl Default for Outcomes {
    fn default() -> Self {
        let (sender, receiver) = mpsc::channel(WAITING_MAX);
        Self {
            sender: Mutex::new(Some(sender)),
            receiver: tokio::sync::Mutex::new(receiver),
            unsettled: Mutex::default(),
            closed: CancellationToken::new(),
        }
    }
}

impl Outcomes {
    /// Hands an outcome over; waits only if very many wait already.
    pub(super) async fn report(&self, attempt: &Attempt, outcome: Outcome) {
        attempt.hand_over();
        let sender = self.sender.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(sender) = sender {
            // Closed only once every slot has ended; a job that is still here then is reaped.
            let _ = sender.send(Settle { lease: attempt.lease, outcome }).await;
        }
    }

    /// No more outcomes will come: the settler ends when all are settled.
    pub(super) fn close(&self) {
        // First of all: a settler that ends because nothing more can come must be seen to end by order.
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
        let waiting = outcomes.unsettled().len();
        if waiting < BATCH_MAX {
            let mut arrived = Vec::new();
            let room = BATCH_MAX - waiting;
            if waiting > 0 {
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
                complain(&error, "cannot record outcomes; trying again");
                tokio::time::sleep(pause).await;
            }
        }
    }
}

/// What is left to do about one outcome.
fn answered(held: &HeldLeases, outcome: Unsettled, answer: Result<Settled, StoreError>) -> Option<Unsettled> {
    let LeaseKey { job_id, token } = outcome.settle.lease;
    match answer {
        Ok(Settled::Recorded) => {
            held.let_go(token);
            None
        }
        Ok(Settled::Lost) => {
            held.lose(token);
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
            held.let_go(token);
            None
        }
    }
}
