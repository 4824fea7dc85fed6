//! get, cancel, redrive, delete: what people ask of jobs by their ids.

use std::sync::Arc;

use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::attempts::{archive_attempt, delete_attempts};
use super::inbox::{Urgency, Verb};
use super::job_options::{delete_options, options_ended, options_redriven};
use super::lanes::{Lane, Position};
use super::marks::Marks;
use super::row::{UuidBlob, job_columns, read_job_leniently};
use super::transaction::Tx;
use crate::job::{JobId, JobRecord, Status};
use crate::planted::{Bug, planted};
use crate::store::{Cancel, Cancelled, Delete, Deleted, Redrive, Redriven, StoreError};

const JOB_BY_ID: &str = concat!("SELECT ", job_columns!(), " FROM jobs WHERE id = ?1");

pub(super) fn get(connection: &Connection, ids: &[JobId]) -> rusqlite::Result<Vec<Option<JobRecord>>> {
    ids.iter().map(|id| job_with_id(connection, *id)).collect()
}

pub(super) fn job_with_id(connection: &Connection, id: JobId) -> rusqlite::Result<Option<JobRecord>> {
    connection.prepare_cached(JOB_BY_ID)?.query_row([UuidBlob::from(id)], shown_job).optional()
}

/// A job to be shown; the payload may be damaged, the rest must make sense.
pub(super) fn shown_job(row: &Row<'_>) -> rusqlite::Result<JobRecord> {
    read_job_leniently(row).map_err(|error| rusqlite::Error::FromSqlConversionFailure(0, Type::Null, error.into()))
}

/// What an operator's verb must know of a job before it changes it.
struct FoundJob {
    seq: i64,
    lane: Lane,
    status: Status,
    /// It has been started at least once since it was queued.
    has_attempt: bool,
    marks: Marks,
}

fn find(tx: &Tx<'_>, id: JobId) -> rusqlite::Result<Option<FoundJob>> {
    tx.statement(
        "SELECT seq, status, lease_token IS NOT NULL, queue, kind, priority, group_key, marks FROM jobs WHERE id = ?1",
    )?
    .query_row([UuidBlob::from(id)], |row| {
        Ok(FoundJob {
            seq: row.get(0)?,
            lane: Lane::read(row, 3)?,
            // The table's CHECK allows no other text.
            status: row.get_ref(1)?.as_str()?.parse().map_err(|_| rusqlite::Error::InvalidQuery)?,
            has_attempt: row.get(2)?,
            marks: Marks::read(row, 7)?,
        })
    })
    .optional()
}

impl Verb for Cancel {
    type Answer = Vec<Result<Cancelled, StoreError>>;
    const NAME: &'static str = "cancel";
    const URGENCY: Urgency = Urgency::Urgent;

    fn weight(&self) -> usize {
        self.ids.len()
    }

    fn apply(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<Self::Answer> {
        tx.each(&self.ids, |tx, id| cancel(tx, *id))
    }
}

const CANCEL_WAITING: &str = "
-- cancel: queued, retrying → cancelled
UPDATE jobs SET status = 'cancelled', cancel_requested = 1, finished_at = ?2, died_at = ?2, updated_at = ?2 WHERE seq = ?1";

const REQUEST_CANCEL: &str = "
-- cancel: running → running, its worker is told on its next heartbeat
UPDATE jobs SET cancel_requested = 1, updated_at = ?2 WHERE seq = ?1";

fn cancel(tx: &mut Tx<'_>, id: JobId) -> rusqlite::Result<Cancelled> {
    let Some(FoundJob { seq, lane, status, marks, .. }) = find(tx, id)? else { return Ok(Cancelled::NotFound) };
    let now = tx.now_micros();
    match status {
        Status::Queued | Status::Retrying => {
            tx.statement(CANCEL_WAITING)?.execute(params![seq, now])?;
            if marks.has_options() {
                options_ended(tx, seq)?;
            }
            tx.moved(&lane, Some(status), Some(Status::Cancelled));
            tx.has_ended(&lane)?;
            tx.look_again([Arc::new(lane)])?;
            Ok(Cancelled::Now)
        }
        Status::Running => {
            tx.statement(REQUEST_CANCEL)?.execute(params![seq, now])?;
            Ok(Cancelled::Requested)
        }
        Status::Succeeded | Status::FailedPermanent | Status::Cancelled => Ok(Cancelled::AlreadyFinished(status)),
    }
}

impl Verb for Redrive {
    type Answer = Vec<Result<Redriven, StoreError>>;
    const NAME: &'static str = "redrive";
    const URGENCY: Urgency = Urgency::Urgent;

    fn weight(&self) -> usize {
        self.ids.len()
    }

    fn apply(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<Self::Answer> {
        tx.each(&self.ids, |tx, id| redrive(tx, *id))
    }
}

const REDRIVE: &str = "
-- redrive: failed_permanent, cancelled → queued, with the last error kept
UPDATE jobs
SET status = 'queued', attempts = 0, run_at = ?2, updated_at = ?2, cancel_requested = 0, finished_at = NULL,
    died_at = NULL, result = NULL, progress = NULL, worker = NULL, lease_token = NULL, lease_ms = NULL, ended_at = NULL, outcome = NULL
WHERE seq = ?1";

fn redrive(tx: &mut Tx<'_>, id: JobId) -> rusqlite::Result<Redriven> {
    let Some(job) = find(tx, id)? else { return Ok(Redriven::NotFound) };
    if !matches!(job.status, Status::FailedPermanent | Status::Cancelled) {
        return Ok(Redriven::NotDead(job.status));
    }
    if job.has_attempt {
        archive_attempt(tx, job.seq)?;
    }
    tx.statement(REDRIVE)?.execute(params![job.seq, tx.now_micros()])?;
    if job.marks.has_options() {
        options_redriven(tx, job.seq)?;
    }
    tx.moved(&job.lane, Some(job.status), Some(Status::Queued));
    tx.add_waiting(job.lane, Position { run_at: tx.now_micros(), id: *id.as_uuid() })?;
    Ok(job_with_id(tx.connection(), id)?.map_or(Redriven::NotFound, Redriven::Queued))
}

impl Verb for Delete {
    type Answer = Vec<Result<Deleted, StoreError>>;
    const NAME: &'static str = "delete";
    const URGENCY: Urgency = Urgency::Urgent;

    fn weight(&self) -> usize {
        self.ids.len()
    }

    fn apply(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<Self::Answer> {
        tx.each(&self.ids, |tx, id| delete(tx, *id))
    }
}

fn delete(tx: &mut Tx<'_>, id: JobId) -> rusqlite::Result<Deleted> {
    let Some(job) = find(tx, id)? else { return Ok(Deleted::NotFound) };
    if !job.status.is_terminal() && !planted(Bug::RunningDeleted) {
        return Ok(Deleted::NotFinished(job.status));
    }
    erase(tx, job.seq, UuidBlob::from(id), &job.lane, job.marks, job.status)?;
    Ok(Deleted::Gone)
}

/// finished → –, with all that belongs to the job. Also for `prune`.
pub(super) fn erase(
    tx: &mut Tx<'_>,
    seq: i64,
    id: UuidBlob,
    lane: &Lane,
    marks: Marks,
    status: Status,
) -> rusqlite::Result<()> {
    delete_attempts(tx, id)?;
    if marks.has_options() {
        delete_options(tx, seq)?;
    }
    tx.statement("DELETE FROM jobs WHERE seq = ?1")?.execute([seq])?;
    tx.moved(lane, Some(status), None);
    Ok(())
}
