//! The record of attempts. The newest attempt is in its job's row; it gets a row of its own here when the next attempt
//! begins. So a job that succeeds at once costs nothing extra.

use rusqlite::{Connection, OptionalExtension, Row, params};

use super::row::{UuidBlob, timestamp};
use super::transaction::Tx;
use crate::job::limits::ATTEMPTS_SHOWN_MAX;
use crate::job::{AttemptOutcome, AttemptRecord, JobId, WorkerId};

/// Moves the newest attempt into the history. A given-back attempt (released, snoozed) has been taken off the count. One
/// without an end was put back by a manual edit; that must not keep the job, or the claim, from going on.
const ARCHIVE_ATTEMPT: &str = "
-- attempts: the newest attempt makes room for the next
INSERT INTO attempts (job_id, attempt, lease_token, worker, started_at, ended_at, outcome, error)
SELECT id, attempts + (coalesce(outcome, '') IN ('released', 'snoozed')), lease_token, coalesce(worker, 'unknown'),
       coalesce(started_at, created_at), coalesce(ended_at, updated_at), coalesce(outcome, 'lease_expired'),
       CASE WHEN outcome IN ('failed', 'timed_out', 'lease_expired') THEN last_error END
FROM jobs WHERE seq = ?1 AND lease_token IS NOT NULL";

pub(super) fn archive_attempt(tx: &Tx<'_>, seq: i64) -> rusqlite::Result<()> {
    tx.statement(ARCHIVE_ATTEMPT)?.execute([seq])?;
    Ok(())
}

/// How an earlier attempt ended, by the nonce of its claim.
pub(super) fn outcome_of(tx: &Tx<'_>, job_id: JobId, claim_nonce: UuidBlob) -> rusqlite::Result<Option<String>> {
    tx.statement("SELECT outcome FROM attempts WHERE job_id = ?1 AND lease_token = ?2")?
        .query_row(params![UuidBlob::from(job_id), claim_nonce], |row| row.get(0))
        .optional()
}

pub(super) fn delete_attempts(tx: &Tx<'_>, job_id: UuidBlob) -> rusqlite::Result<()> {
    tx.statement("DELETE FROM attempts WHERE job_id = ?1")?.execute([job_id])?;
    Ok(())
}

const ATTEMPTS: &str = "
-- attempts: the last of the earlier ones, newest first
SELECT attempt, worker, started_at, ended_at, outcome, error FROM attempts WHERE job_id = ?1 ORDER BY seq DESC LIMIT ?2";

const NEWEST_ATTEMPT: &str = "
-- attempts: the newest one
SELECT attempts + (coalesce(outcome, '') IN ('released', 'snoozed')), worker, started_at, ended_at, outcome, last_error,
       lease_token IS NOT NULL
FROM jobs WHERE id = ?1";

/// attempts: all of them, oldest first.
pub(super) fn attempts(connection: &Connection, id: JobId) -> rusqlite::Result<Option<Vec<AttemptRecord>>> {
    let id = UuidBlob::from(id);
    // In one snapshot: between two, the newest attempt could have moved into the history.
    let snapshot = connection.unchecked_transaction()?;
    let newest = snapshot
        .prepare_cached(NEWEST_ATTEMPT)?
        .query_row([id], |row| if row.get(6)? { read_attempt(row).map(Some) } else { Ok(None) })
        .optional()?;
    let Some(newest) = newest else { return Ok(None) };
    let mut statement = snapshot.prepare_cached(ATTEMPTS)?;
    let mut all: Vec<_> =
        statement.query_map(params![id, ATTEMPTS_SHOWN_MAX as i64 - 1], read_attempt)?.collect::<Result<_, _>>()?;
    all.reverse();
    all.extend(newest);
    Ok(Some(all))
}

fn read_attempt(row: &Row<'_>) -> rusqlite::Result<AttemptRecord> {
    let outcome = row.get::<_, Option<String>>(4)?.and_then(|text| text.parse::<AttemptOutcome>().ok());
    let worker: String = row.get(1)?;
    Ok(AttemptRecord {
        attempt: row.get(0)?,
        worker: WorkerId::new(worker).unwrap_or_else(|_| WorkerId::unknown()),
        started_at: timestamp(row.get(2)?),
        ended_at: row.get::<_, Option<i64>>(3)?.map(timestamp),
        outcome,
        error: row.get::<_, Option<String>>(5)?.filter(|_| outcome.is_some_and(AttemptOutcome::has_error)),
    })
}
