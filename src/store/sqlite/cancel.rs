//! cancel: queued, retrying → cancelled at once; running → flagged, its worker is told on its next heartbeat.

use rusqlite::params;

use super::status::{Standing, standing};
use super::transaction::Tx;
use super::writer::{Lane, Verb};
use crate::job::{JobId, Status};
use crate::store::{Cancel, Cancelled, StoreError};

impl Verb for Cancel {
    type Answer = Vec<Result<Cancelled, StoreError>>;
    const NAME: &'static str = "cancel";
    const LANE: Lane = Lane::Urgent;

    fn weight(&self) -> usize {
        self.ids.len()
    }

    fn apply(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<Self::Answer> {
        tx.each(&self.ids, |tx, id| cancel(tx, *id))
    }
}

fn cancel(tx: &mut Tx<'_>, id: JobId) -> rusqlite::Result<Cancelled> {
    let Some(Standing { seq, queue, status, .. }) = standing(tx, id)? else { return Ok(Cancelled::NotFound) };
    let now = tx.now_micros();
    match status {
        Status::Queued | Status::Retrying => {
            tx.statement(
                "UPDATE jobs SET status = 'cancelled', cancel_requested = 1, finished_at = ?2, updated_at = ?2
                 WHERE seq = ?1",
            )?
            .execute(params![seq, now])?;
            tx.moved(queue.as_str(), Some(status), Some(Status::Cancelled));
            Ok(Cancelled::Now)
        }
        Status::Running => {
            tx.statement("UPDATE jobs SET cancel_requested = 1, updated_at = ?2 WHERE seq = ?1")?
                .execute(params![seq, now])?;
            Ok(Cancelled::Requested)
        }
        Status::Succeeded | Status::FailedPermanent | Status::Cancelled => Ok(Cancelled::AlreadyFinished(status)),
    }
}
