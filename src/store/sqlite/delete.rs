//! delete: finished → gone.

use super::history::forget_attempts;
use super::row::Id;
use super::status::standing;
use super::transaction::Tx;
use super::writer::{Lane, Verb};
use crate::job::{QueueName, Status};
use crate::planted::{Bug, planted};
use crate::store::{Delete, Deleted, StoreError};

impl Verb for Delete {
    type Answer = Vec<Result<Deleted, StoreError>>;
    const NAME: &'static str = "delete";
    const LANE: Lane = Lane::Urgent;

    fn weight(&self) -> usize {
        self.ids.len()
    }

    fn apply(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<Self::Answer> {
        tx.each(&self.ids, |tx, id| {
            let Some(job) = standing(tx, *id)? else { return Ok(Deleted::NotFound) };
            if !job.status.is_terminal() && !planted(Bug::RunningDeleted) {
                return Ok(Deleted::NotFinished(job.status));
            }
            erase(tx, job.seq, Id::from(*id), &job.queue, job.status)?;
            Ok(Deleted::Gone)
        })
    }
}

/// Removes a finished job and all that belongs to it.
pub(super) fn erase(tx: &mut Tx<'_>, seq: i64, id: Id, queue: &QueueName, status: Status) -> rusqlite::Result<()> {
    forget_attempts(tx, id)?;
    tx.statement("DELETE FROM jobs WHERE seq = ?1")?.execute([seq])?;
    tx.moved(queue.as_str(), Some(status), None);
    Ok(())
}
