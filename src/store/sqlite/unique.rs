//! enqueue of jobs with a unique key: the job that has the key is answered, and takes payload, priority and start of the
//! new one if that says so.
//!
//! A key is only ever cleared, never set again: by the first claim, by the end of the job, or by the next enqueue once its
//! window has passed. So no settle, retry, reap or redrive can meet the unique index.

use std::sync::Arc;

use rusqlite::{OptionalExtension, params};

use super::enqueue::run_at_of;
use super::job_options::{delete_options, key_holder, stored_key};
use super::jobs::shown_job;
use super::lanes::{Lane, Position};
use super::row::{job_columns, micros};
use super::transaction::Tx;
use crate::job::{JobRecord, NewJob, OnConflict, Start, Status};
use crate::store::Enqueued;

const JOB_BY_SEQ: &str = concat!("SELECT ", job_columns!(), " FROM jobs WHERE seq = ?1");

const REPLACE: &str = "
-- enqueue: the waiting job that has the key takes payload, priority and start of this one
UPDATE jobs SET payload = ?2, priority = ?3, run_at = ?4, run_at_is_wall_clock = ?5, updated_at = ?6 WHERE seq = ?1
RETURNING queue, kind, priority, group_key, marks";

/// The answer, if another job has the key of this one.
pub(super) fn enqueue_unique(tx: &mut Tx<'_>, job: &NewJob) -> rusqlite::Result<Option<Enqueued>> {
    let (Some(key), Some(unique)) = (stored_key(job), job.unique()) else { return Ok(None) };
    let Some(seq) = key_holder(tx, &key)? else { return Ok(None) };
    let Some(holder) = job_by_seq(tx, seq)? else {
        // A manual edit has left its options behind.
        delete_options(tx, seq)?;
        return Ok(None);
    };
    if holder.id == job.id() {
        return Ok(Some(Enqueued::new(true, holder)));
    }
    // Once started, it cannot be replaced.
    if unique.on_conflict != OnConflict::Replace || holder.status != Status::Queued {
        return Ok(Some(Enqueued::new(false, holder)));
    }
    let now = tx.now_micros();
    let latest = unique.max_wait_ms.map(|ms| micros(holder.created_at).saturating_add(ms.saturating_mul(1_000)));
    let run_at = run_at_of(job, now).min(latest.unwrap_or(i64::MAX));
    let is_wall_clock = matches!(job.start(), Start::At(_)).then_some(1);
    let lane = tx
        .statement(REPLACE)?
        .query_row(params![seq, job.payload().as_str(), job.priority(), run_at, is_wall_clock, now], |row| {
            Lane::read(row, 0)
        })?;
    tx.look_again([Arc::new(Lane { priority: holder.priority, ..lane.clone() })])?;
    tx.add_waiting(lane, Position { run_at, id: *holder.id.as_uuid() })?;
    Ok(job_by_seq(tx, seq)?.map(Enqueued::replaced))
}

fn job_by_seq(tx: &Tx<'_>, seq: i64) -> rusqlite::Result<Option<JobRecord>> {
    tx.statement(JOB_BY_SEQ)?.query_row([seq], shown_job).optional()
}
