//! Records outcomes: one settle in flight, whatever was reported meanwhile is the next batch. An outcome stays here
//! until the store has answered; a store that is away is asked again until it is back.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::context::Attempt;
use super::dispatcher::error_pause;
use super::held::HeldLeases;
use crate::job::Outcome;
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
    unsettled: Mutex<Vec<Settle>>,
    /// No more outcomes will come.
    pub(super) closed: CancellationToken,
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

    fn unsettled(&self) -> std::sync::MutexGuard<'_, Vec<Settle>> {
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
            outcomes.unsettled().append(&mut arrived);
        }
        let batch = outcomes.unsettled().clone();
        match queue.settle(batch.clone()).await {
            Ok(answers) => {
                errors = 0;
                let again =
                    batch.into_iter().zip(answers).filter_map(|(settle, answer)| answered(held, settle, answer));
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
fn answered(held: &HeldLeases, settle: Settle, answer: Result<Settled, StoreError>) -> Option<Settle> {
    match answer {
        Ok(Settled::Recorded) => {
            held.let_go(settle.lease.token);
            None
        }
        Ok(Settled::Lost) => {
            // If the heartbeat found out first, it has said so.
            if let Some(attempt) = held.let_go(settle.lease.token) {
                report_lost(&attempt);
            }
            None
        }
        Err(error) if error.is_retryable() => Some(settle),
        Err(error) if error.kind() == StoreErrorKind::Rejected && !is_substitute(&settle.outcome) => {
            tracing::error!(?error, job_id = %settle.lease.job_id, "an outcome cannot be stored; recording that instead");
            Some(Settle { outcome: Outcome::failed_permanently(UNSTORABLE), ..settle })
        }
        Err(error) => {
            tracing::error!(?error, job_id = %settle.lease.job_id, "an outcome cannot be recorded; its lease will expire");
            held.let_go(settle.lease.token);
            None
        }
    }
}

const UNSTORABLE: &str = "the outcome of this attempt was refused by the database; see the worker's log";

fn is_substitute(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Failed(failure) if failure.error.as_str() == UNSTORABLE)
}

/// One line, once: this process believed it was running a job that had been taken from it.
pub(super) fn report_lost(attempt: &Arc<Attempt>) {
    metrics::counter!("leases_lost_total").increment(1);
    tracing::warn!(
        job_id = %attempt.lease.job_id, kind = %attempt.kind, attempt = attempt.number,
        "lost the lease of a job: whatever this attempt reports is refused"
    );
}
