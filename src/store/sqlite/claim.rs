//! claim: queued, retrying → running.
//!
//! The lanes that have something due are merged by priority, then `run_at`, then id. A row that cannot be run becomes a
//! dead letter with the reason, and the others are returned.

use std::collections::HashSet;
use std::time::Duration;

use rusqlite::{Row, params};

use super::history::remember_attempt;
use super::lanes::{ReadyLane, ready_lanes};
use super::row::{Id, JOB_COLUMNS, QUEUE_COLUMN, STATUS_COLUMN, job_columns, read_job, time};
use super::transaction::Tx;
use super::writer::{Lane, Verb};
use crate::job::{ErrorText, JobRecord, Lease, LeaseToken, QueueName, Status};
use crate::planted::{Bug, planted};
use crate::store::{Claim, WorkerFate};

impl Verb for Claim {
    type Answer = Vec<Lease>;
    const NAME: &'static str = "claim";
    const LANE: Lane = Lane::Urgent;

    fn weight(&self) -> usize {
        self.max
    }

    fn apply(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<Vec<Lease>> {
        let lanes = lanes_for(self, tx)?;
        let mut leases = Vec::new();
        for level in lanes.chunk_by(|a, b| a.priority == b.priority) {
            // Again only if rows that cannot be run took the places of others.
            while leases.len() < self.max {
                let wanted = self.max - leases.len();
                let due = due_jobs(tx, level, wanted)?;
                let was_all = due.len() < wanted;
                for seq in due {
                    leases.extend(claim_one(tx, self, seq)?);
                }
                if was_all {
                    break;
                }
            }
        }
        Ok(leases)
    }

    fn needs_sync(&self) -> bool {
        // Forgetting a claim in a power cut returns the job to the queue; the worker went down with us.
        self.fate == WorkerFate::Independent
    }
}

/// The lanes this worker may take from, highest priority first.
fn lanes_for(claim: &Claim, tx: &Tx<'_>) -> rusqlite::Result<Vec<ReadyLane>> {
    let paused: HashSet<String> =
        tx.statement("SELECT queue FROM paused_queues")?.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
    let wants_queue = |name: &str| claim.queues.as_ref().is_none_or(|queues| queues.iter().any(|q| q.as_str() == name));
    let wants_kind = |name: &str| claim.kinds.as_ref().is_none_or(|kinds| kinds.iter().any(|k| k.as_str() == name));
    let mut lanes = ready_lanes(tx.connection())?;
    lanes.retain(|lane| {
        lane.oldest_run_at <= tx.now_micros()
            && !paused.contains(&lane.queue)
            && wants_queue(&lane.queue)
            && wants_kind(&lane.kind)
    });
    lanes.sort_by_key(|lane| -lane.priority);
    Ok(lanes)
}

pub(super) const DUE_IN_LANE: &str = "
-- claim: what is due in one lane
SELECT run_at, id, seq FROM jobs INDEXED BY jobs_ready
WHERE status IN ('queued', 'retrying') AND queue = ?1 AND kind = ?2 AND priority = ?3 AND run_at <= ?4
ORDER BY run_at, id LIMIT ?5";

/// The oldest due jobs of lanes of one priority.
fn due_jobs(tx: &Tx<'_>, lanes: &[ReadyLane], max: usize) -> rusqlite::Result<Vec<i64>> {
    let mut due: Vec<(i64, Id, i64)> = Vec::new();
    for lane in lanes {
        let mut statement = tx.statement(DUE_IN_LANE)?;
        let rows = statement
            .query_map(params![lane.queue, lane.kind, lane.priority, tx.now_micros(), max as i64], |row| {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?))
            })?;
        for row in rows {
            due.push(row?);
        }
    }
    if lanes.len() > 1 {
        due.sort_unstable_by_key(|(run_at, id, _)| (*run_at, id.0));
    }
    Ok(due.into_iter().take(max).map(|(_, _, seq)| seq).collect())
}

/// `None` if the row cannot be run.
fn claim_one(tx: &mut Tx<'_>, claim: &Claim, seq: i64) -> rusqlite::Result<Option<Lease>> {
    let mut statement =
        tx.statement(concat!("SELECT ", job_columns!(), ", lease_token IS NOT NULL FROM jobs WHERE seq = ?1"))?;
    let (job, waiting, was_started) =
        statement.query_row([seq], |row| Ok((read_job(row), Waiting::read(row), row.get(JOB_COLUMNS)?)))?;
    drop(statement);
    if was_started && !planted(Bug::CauseForgotten) {
        remember_attempt(tx, seq)?;
    }
    let job = match job {
        Ok(job) if job.attempts < job.max_attempts => job,
        Ok(job) => {
            let reason = format!("waiting although all {} attempts are used up", job.max_attempts);
            return bury(tx, seq, waiting, &reason);
        }
        Err(error) if planted(Bug::BadRowFailsClaim) => {
            return Err(rusqlite::Error::ToSqlConversionFailure(error.into()));
        }
        Err(error) => return bury(tx, seq, waiting, &error.to_string()),
    };
    let (token, now) = (LeaseToken::random(), tx.now_micros());
    // Never past the attempt's own deadline.
    let lease = job.timeout_ms.map_or(claim.lease, |ms| claim.lease.min(Duration::from_millis(ms)));
    let expires_at = now + lease.as_micros() as i64;
    let row = if planted(Bug::JobLeasedTwice) { -1 } else { seq };
    tx.statement(include_str!("claim.sql"))?.execute(params![
        row,
        claim.worker.as_str(),
        Id::from(token),
        claim.lease.as_millis() as i64,
        expires_at,
        now,
    ])?;
    tx.moved(&job.queue, Some(job.status), Some(Status::Running));
    let job = JobRecord {
        status: Status::Running,
        attempts: job.attempts + 1,
        locked_by: Some(claim.worker.clone()),
        locked_at: Some(time(now)),
        lease_expires_at: Some(time(expires_at)),
        started_at: Some(time(now)),
        updated_at: time(now),
        progress: None,
        ..job
    };
    Ok(Some(Lease::granted(token, lease, job)))
}

/// What the counts must know of a row that may make no sense otherwise.
struct Waiting {
    queue: QueueName,
    status: Status,
}

impl Waiting {
    fn read(row: &Row<'_>) -> Self {
        let text = |column| row.get_ref(column).ok().and_then(|value| value.as_str().ok()).unwrap_or_default();
        Self {
            queue: QueueName::new(text(QUEUE_COLUMN)).unwrap_or_else(|_| QueueName::unknown()),
            // One of the two, or the index would not have named it.
            status: text(STATUS_COLUMN).parse().unwrap_or(Status::Queued),
        }
    }
}

/// queued, retrying → failed_permanent, for a row that cannot be run.
fn bury(tx: &mut Tx<'_>, seq: i64, waiting: Waiting, reason: &str) -> rusqlite::Result<Option<Lease>> {
    tracing::error!(seq, reason, "a job cannot be run and becomes a dead letter");
    let error = ErrorText::new(format!("cannot be run: {reason}"));
    tx.statement(include_str!("bury.sql"))?.execute(params![seq, error.as_str(), tx.now_micros()])?;
    tx.moved(&waiting.queue, Some(waiting.status), Some(Status::FailedPermanent));
    Ok(None)
}
