//! get, cancel, redrive, delete: what people ask of jobs by their ids.

use std::sync::Arc;

use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::attempts::{archive_attempt, delete_attempts};
use super::audit;
use super::audit_shown::{JobAct, JobActs};
use super::inbox::{Urgency, Verb};
use super::job_options::{delete_options, options_ended, options_redriven};
use super::lanes::{Lane, Position};
use super::marks::Marks;
use super::outbox::report_end;
use super::row::{UuidBlob, job_columns, read_job_leniently};
use super::transaction::Tx;
use crate::job::{JobId, JobRecord, Status};
use crate::planted::{Bug, planted};
use crate::store::{Actor, Cancel, Cancelled, Delete, Deleted, Redrive, Redriven, StoreError};

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
pub(super) struct FoundJob {
    pub(super) seq: i64,
    pub(super) lane: Lane,
    pub(super) status: Status,
    /// It has been started at least once since it was queued.
    has_attempt: bool,
    cancel_requested: bool,
    marks: Marks,
}

impl FoundJob {
    /// What the audit is told.
    fn act(&self, is_now: Option<&'static str>) -> Option<JobAct> {
        Some(JobAct { was: self.status, is_now })
    }
}

/// What is answered about a job, and what was done to it.
type Acted<T> = (T, Option<JobAct>);

/// Does `f` to each job, and records it.
fn act_on<T>(
    tx: &mut Tx<'_>,
    ids: &[JobId],
    (action, by): (&'static str, Option<&Actor>),
    f: fn(&mut Tx<'_>, JobId) -> rusqlite::Result<Acted<T>>,
) -> rusqlite::Result<Vec<Result<T, StoreError>>> {
    let mut acts = JobActs::default();
    let answers = tx.each(ids, |tx, id| {
        let (answer, act) = f(tx, *id)?;
        acts.add(*id, act);
        Ok(answer)
    })?;
    if let Some(entry) = acts.entry(action, by) {
        audit::record(tx, &entry)?;
    }
    Ok(answers)
}

pub(super) fn find(tx: &Tx<'_>, id: JobId) -> rusqlite::Result<Option<FoundJob>> {
    tx.statement(
        "SELECT seq, status, lease_token IS NOT NULL, queue, kind, priority, group_key, marks, cancel_requested
         FROM jobs WHERE id = ?1",
    )?
    .query_row([UuidBlob::from(id)], |row| {
        Ok(FoundJob {
            seq: row.get(0)?,
            lane: Lane::read(row, 3)?,
            // The table's CHECK allows no other text.
            status: row.get_ref(1)?.as_str()?.parse().map_err(|_| rusqlite::Error::InvalidQuery)?,
            has_attempt: row.get(2)?,
            marks: Marks::read(row, 7)?,
            cancel_requested: row.get(8)?,
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
        act_on(tx, &self.ids, (Self::NAME, self.by.as_ref()), cancel)
    }
}

const CANCEL_WAITING: &str = "
-- cancel: queued, retrying → cancelled
UPDATE jobs SET status = 'cancelled', cancel_requested = 1, finished_at = ?2, died_at = ?2, updated_at = ?2 WHERE seq = ?1";

const REQUEST_CANCEL: &str = "
-- cancel: running → running, its worker is told on its next heartbeat
UPDATE jobs SET cancel_requested = 1, updated_at = ?2 WHERE seq = ?1";

/// Also for ticks of schedules, whose history is their own.
pub(super) fn cancel(tx: &mut Tx<'_>, id: JobId) -> rusqlite::Result<Acted<Cancelled>> {
    let Some(job) = find(tx, id)? else { return Ok((Cancelled::NotFound, None)) };
    let now = tx.now_micros();
    match job.status {
        Status::Queued | Status::Retrying => {
            let act = job.act(Some(Status::Cancelled.as_str()));
            let FoundJob { seq, lane, status, marks, .. } = job;
            tx.statement(CANCEL_WAITING)?.execute(params![seq, now])?;
            if marks.has_options() {
                options_ended(tx, seq)?;
            }
            tx.moved(&lane, Some(status), Some(Status::Cancelled));
            tx.has_ended(&lane)?;
            tx.look_again([Arc::new(lane)])?;
            report_end(tx, seq, marks)?;
            Ok((Cancelled::Now, act))
        }
        Status::Running => {
            tx.statement(REQUEST_CANCEL)?.execute(params![job.seq, now])?;
            Ok((Cancelled::Requested, job.act(Some("cancel_requested")).filter(|_| !job.cancel_requested)))
        }
        finished @ (Status::Succeeded | Status::FailedPermanent | Status::Cancelled) => {
            Ok((Cancelled::AlreadyFinished(finished), None))
        }
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
        act_on(tx, &self.ids, (Self::NAME, self.by.as_ref()), redrive)
    }
}

const REDRIVE: &str = "
-- redrive: failed_permanent, cancelled → queued, with the last error kept
UPDATE jobs
SET status = 'queued', attempts = 0, run_at = ?2, updated_at = ?2, cancel_requested = 0, finished_at = NULL,
    died_at = NULL, result = NULL, progress = NULL, worker = NULL, lease_token = NULL, lease_ms = NULL, ended_at = NULL, outcome = NULL
WHERE seq = ?1";

pub(super) fn redrive(tx: &mut Tx<'_>, id: JobId) -> rusqlite::Result<Acted<Redriven>> {
    let Some(job) = find(tx, id)? else { return Ok((Redriven::NotFound, None)) };
    if !matches!(job.status, Status::FailedPermanent | Status::Cancelled) {
        return Ok((Redriven::NotDead(job.status), None));
    }
    let act = job.act(Some(Status::Queued.as_str()));
    if job.has_attempt {
        archive_attempt(tx, job.seq)?;
    }
    tx.statement(REDRIVE)?.execute(params![job.seq, tx.now_micros()])?;
    if job.marks.has_options() {
        options_redriven(tx, job.seq)?;
    }
    tx.moved(&job.lane, Some(job.status), Some(Status::Queued));
    if job.status == Status::FailedPermanent {
        tx.is_dead_no_more(job.seq, &job.lane)?;
    }
    tx.add_waiting(job.lane, Position { run_at: tx.now_micros(), id: *id.as_uuid() })?;
    Ok((job_with_id(tx.connection(), id)?.map_or(Redriven::NotFound, Redriven::Queued), act))
}

impl Verb for Delete {
    type Answer = Vec<Result<Deleted, StoreError>>;
    const NAME: &'static str = "delete";
    const URGENCY: Urgency = Urgency::Urgent;

    fn weight(&self) -> usize {
        self.ids.len()
    }

    fn apply(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<Self::Answer> {
        act_on(tx, &self.ids, (Self::NAME, self.by.as_ref()), delete)
    }
}

pub(super) fn delete(tx: &mut Tx<'_>, id: JobId) -> rusqlite::Result<Acted<Deleted>> {
    let Some(job) = find(tx, id)? else { return Ok((Deleted::NotFound, None)) };
    if !job.status.is_terminal() && !planted(Bug::RunningDeleted) {
        return Ok((Deleted::NotFinished(job.status), None));
    }
    erase(tx, job.seq, UuidBlob::from(id), &job.lane, job.marks, job.status)?;
    Ok((Deleted::Gone, job.act(None)))
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
    if status == Status::FailedPermanent {
        tx.is_dead_no_more(seq, lane)?;
    }
    tx.moved(lane, Some(status), None);
    Ok(())
}
