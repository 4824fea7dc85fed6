//! Enqueue together with the caller's own writes: both are committed, or neither.
//!
//! The writer thread owns the only writing connection, so the caller's work comes to it as a closure instead of it going
//! to the caller's transaction.

use std::panic::{AssertUnwindSafe, catch_unwind};

use rusqlite::Connection;

use super::SqliteStore;
use super::enqueue::enqueue_all;
use super::inbox::{Urgency, Verb};
use super::transaction::Tx;
use crate::job::NewJob;
use crate::store::{Enqueued, KeyTaken, NotStored};

impl SqliteStore {
    /// Runs `work` inside a transaction on this file and stores the jobs it returns in the same one.
    ///
    /// If `work` fails, or a key of its jobs belongs to another job, its writes are undone and nothing is stored. It may
    /// be run a second time, with nothing left of the first, when the commit it shared with others failed; and it should
    /// be quick, for everybody waits meanwhile. It must not begin, commit or roll back itself.
    pub async fn enqueue_in<E: Send + 'static>(
        &self,
        work: impl FnMut(&Connection) -> Result<Vec<NewJob>, E> + Send + 'static,
    ) -> Result<Result<Vec<Enqueued>, E>, NotStored> {
        match self.writer.write(EnqueueIn(work)).await? {
            EnqueueInAnswer::Stored(stored) => Ok(Ok(stored)),
            EnqueueInAnswer::WorkFailed(error) => Ok(Err(error)),
            EnqueueInAnswer::KeysTaken(taken) => Err(NotStored::KeysTaken(taken)),
        }
    }
}

struct EnqueueIn<F>(F);

enum EnqueueInAnswer<E> {
    Stored(Vec<Enqueued>),
    WorkFailed(E),
    KeysTaken(Vec<KeyTaken>),
}

impl<F, E> Verb for EnqueueIn<F>
where
    F: FnMut(&Connection) -> Result<Vec<NewJob>, E> + Send + 'static,
    E: Send + 'static,
{
    type Answer = EnqueueInAnswer<E>;
    const NAME: &'static str = "enqueue_in";
    const URGENCY: Urgency = Urgency::Bulk;

    fn apply(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<Self::Answer> {
        let connection = tx.connection();
        connection.execute_batch("SAVEPOINT enqueue_in")?;
        // A panic of the caller's is the caller's: it must not take the writer along.
        let worked = catch_unwind(AssertUnwindSafe(|| (self.0)(connection)));
        let Ok(worked) = worked else {
            connection.execute_batch("ROLLBACK TO enqueue_in; RELEASE enqueue_in")?;
            return Err(rusqlite::Error::UnwindingPanic);
        };
        let done = match worked {
            Ok(jobs) => match enqueue_all(tx, &jobs)? {
                Ok(stored) => {
                    connection.execute_batch("RELEASE enqueue_in")?;
                    return Ok(EnqueueInAnswer::Stored(stored));
                }
                Err(taken) => EnqueueInAnswer::KeysTaken(taken),
            },
            Err(error) => EnqueueInAnswer::WorkFailed(error),
        };
        connection.execute_batch("ROLLBACK TO enqueue_in; RELEASE enqueue_in")?;
        Ok(done)
    }
}
