//! redrive: failed_permanent, cancelled → queued, with its history and last error kept.

use rusqlite::params;

use super::get::job_where;
use super::history::remember_attempt;
use super::status::standing;
use super::transaction::Tx;
use super::writer::{Lane, Verb};
use crate::job::{JobId, Status};
use crate::store::{Redrive, Redriven, StoreError};

impl Verb for Redrive {
    type Answer = Vec<Result<Redriven, StoreError>>;
    const NAME: &'static str = "redrive";
    const LANE: Lane = Lane::Urgent;

    fn weight(&self) -> usize {
        self.ids.len()
    }

    fn apply(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<Self::Answer> {
        tx.each(&self.ids, |tx, id| redrive(tx, *id))
    }
}

fn redrive(tx: &mut Tx<'_>, id: JobId) -> rusqlite::Result<Redriven> {
    let Some(job) = standing(tx, id)? else { return Ok(Redriven::NotFound) };
    if !matches!(job.status, Status::FailedPermanent | Status::Cancelled) {
        return Ok(Redriven::NotDead(job.status));
    }
    if job.has_attempt {
        remember_attempt(tx, job.seq)?;
    }
    tx.statement(include_str!("redrive.sql"))?.execute(params![job.seq, tx.now_micros()])?;
    tx.moved(job.queue.as_str(), Some(job.status), Some(Status::Queued));
    tx.make_ready();
    let record = job_where!(tx.connection(), "seq = ?1", [job.seq])?;
    Ok(record.map_or(Redriven::NotFound, Redriven::Queued))
}
