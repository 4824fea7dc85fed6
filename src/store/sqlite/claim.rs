//! claim: queued, retrying → running.
//!
//! The lanes that have something due are merged by priority, then `run_at`, then id. A row that cannot be run becomes a
//! dead letter with the reason, and the others are returned.

use std::collections::HashSet;
use std::time::Duration;

use rusqlite::{Row, params};
use uuid::Uuid;

use super::history::remember_attempt;
use super::lanes::{ReadyLane, ready_lanes};
use super::row::{
    ID_COLUMN, Id, JOB_COLUMNS, QUEUE_COLUMN, RUN_AT_COLUMN, STATUS_COLUMN, Unreadable, job_columns, read_job, time,
};
use super::transaction::Tx;
use super::writer::{Lane, Verb};
use crate::job::limits::BATCH_MAX;
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
                start_all(tx, self, due, &mut leases)?;
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

macro_rules! due_in_lane {
    ($columns:expr, $more:literal) => {
        concat!(
            "
-- claim: what is due in one lane
SELECT ",
            $columns,
            $more,
            " FROM jobs INDEXED BY jobs_ready
WHERE status IN ('queued', 'retrying') AND queue = ?1 AND kind = ?2 AND priority = ?3 AND run_at <= ?4
ORDER BY run_at, id LIMIT ?5"
        )
    };
}

pub(super) const PLACES_IN_LANE: &str = due_in_lane!("run_at, id", "");
pub(super) const DUE_IN_LANE: &str = due_in_lane!(job_columns!(), ", lease_token IS NOT NULL, seq");

/// A waiting row, as it was read.
struct Due {
    seq: i64,
    job: Result<JobRecord, Unreadable>,
    waiting: Waiting,
    was_started: bool,
}

/// The oldest due jobs of lanes of one priority. Each lane is asked only for as many as are among the oldest of all.
fn due_jobs(tx: &Tx<'_>, lanes: &[ReadyLane], max: usize) -> rusqlite::Result<Vec<Due>> {
    let shares = match lanes {
        [_] => vec![max],
        several => shares(tx, several, max)?,
    };
    let mut due = Vec::with_capacity(max.min(BATCH_MAX));
    let mut statement = tx.statement(DUE_IN_LANE)?;
    for (lane, share) in lanes.iter().zip(shares).filter(|(_, share)| *share > 0) {
        let params = params![lane.queue, lane.kind, lane.priority, tx.now_micros(), share as i64];
        let rows = statement.query_map(params, |row| {
            Ok(Due {
                seq: row.get(JOB_COLUMNS + 1)?,
                job: read_job(row),
                waiting: Waiting::read(row)?,
                was_started: row.get(JOB_COLUMNS)?,
            })
        })?;
        for row in rows {
            due.push(row?);
        }
    }
    if lanes.len() > 1 {
        due.sort_by_key(|due| due.waiting.place);
    }
    Ok(due)
}

/// How many of the oldest `max` jobs each of these lanes has.
fn shares(tx: &Tx<'_>, lanes: &[ReadyLane], max: usize) -> rusqlite::Result<Vec<usize>> {
    let mut places = Vec::new();
    let mut statement = tx.statement(PLACES_IN_LANE)?;
    for (n, lane) in lanes.iter().enumerate() {
        let params = params![lane.queue, lane.kind, lane.priority, tx.now_micros(), max as i64];
        for row in statement.query_map(params, |row| Ok((row.get(0)?, row.get::<_, Id>(1)?)))? {
            let (run_at, id): (i64, Id) = row?;
            places.push((run_at, id.0, n));
        }
    }
    places.sort_unstable();
    let mut shares = vec![0; lanes.len()];
    places.into_iter().take(max).for_each(|(_, _, n)| shares[n] += 1);
    Ok(shares)
}

/// Starts what can be run and buries the rest.
fn start_all(tx: &mut Tx<'_>, claim: &Claim, due: Vec<Due>, leases: &mut Vec<Lease>) -> rusqlite::Result<()> {
    // Looked up once for all: the cache of statements hashes the whole text each time.
    let mut start = tx.statement(include_str!("claim.sql"))?;
    let (now, lease_ms) = (tx.now_micros(), claim.lease.as_millis() as i64);
    for Due { seq, job, waiting, was_started } in due {
        if was_started && !planted(Bug::CauseForgotten) {
            remember_attempt(tx, seq)?;
        }
        let job = match job {
            Ok(job) if job.attempts < job.max_attempts => job,
            Ok(job) => {
                let reason = format!("waiting although all {} attempts are used up", job.max_attempts);
                bury(tx, seq, waiting, &reason)?;
                continue;
            }
            Err(error) if planted(Bug::BadRowFailsClaim) => {
                return Err(rusqlite::Error::ToSqlConversionFailure(error.into()));
            }
            Err(error) => {
                bury(tx, seq, waiting, &error.to_string())?;
                continue;
            }
        };
        let token = LeaseToken::random();
        // Never past the attempt's own deadline.
        let lease = job.timeout_ms.map_or(claim.lease, |ms| claim.lease.min(Duration::from_millis(ms)));
        let expires_at = now + lease.as_micros() as i64;
        let row = if planted(Bug::JobLeasedTwice) { -1 } else { seq };
        start.execute(params![row, claim.worker.as_str(), Id::from(token), lease_ms, expires_at, now])?;
        tx.moved(job.queue.as_str(), Some(job.status), Some(Status::Running));
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
        leases.push(Lease::granted(token, lease, job));
    }
    Ok(())
}

/// What the counts must know of a row that may make no sense otherwise.
struct Waiting {
    /// `run_at` and id: where it stands in its lane.
    place: (i64, Uuid),
    queue: QueueName,
    status: Status,
}

impl Waiting {
    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        let text = |column| row.get_ref(column).ok().and_then(|value| value.as_str().ok()).unwrap_or_default();
        Ok(Self {
            place: (row.get(RUN_AT_COLUMN)?, row.get::<_, Id>(ID_COLUMN)?.0),
            queue: QueueName::new(text(QUEUE_COLUMN)).unwrap_or_else(|_| QueueName::unknown()),
            // One of the two, or the index would not have named it.
            status: text(STATUS_COLUMN).parse().unwrap_or(Status::Queued),
        })
    }
}

/// queued, retrying → failed_permanent, for a row that cannot be run.
fn bury(tx: &mut Tx<'_>, seq: i64, waiting: Waiting, reason: &str) -> rusqlite::Result<()> {
    tracing::error!(seq, reason, "a job cannot be run and becomes a dead letter");
    let error = ErrorText::new(format!("cannot be run: {reason}"));
    tx.statement(include_str!("bury.sql"))?.execute(params![seq, error.as_str(), tx.now_micros()])?;
    tx.moved(waiting.queue.as_str(), Some(waiting.status), Some(Status::FailedPermanent));
    Ok(())
}
