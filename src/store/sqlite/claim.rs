//! claim: queued, retrying → running.
//!
//! What is due is read by `due_jobs`, in the order in which it is to be run. A row that cannot be run becomes a dead
//! letter with the reason, and the others are returned.

use std::time::Duration;

use rusqlite::params;

use super::attempts::archive_attempt;
use super::due_jobs::{Due, Wanted, due_jobs};
use super::due_row::{ByteBudget, DueRow};
use super::inbox::{Urgency, Verb};
use super::job_options::{options_ended, options_started};
use super::lanes::Lane;
use super::lease::{ClaimedRow, lease_token};
use super::marks::Marks;
use super::outbox::report_end;
use super::row::{UuidBlob, timestamp};
use super::transaction::Tx;
use crate::job::{AttemptOutcome, ErrorGroup, ErrorText, Lease, LeaseToken, Status};
use crate::planted::{Bug, planted};
use crate::store::{Claim, Claimed, UnrunnableJob, WorkerFate};

pub(super) const START: &str = include_str!("claim.sql");

/// 1,000 jobs that nobody may start any more are ended by one claim, some ten milliseconds; then it asks to be made again.
const ENDED_MAX: usize = 1_000;

/// For rows whose marks change: those that count for a limit.
pub(super) const START_MARKED: &str = "
-- claim: queued, retrying → running, for neighbouring rows that get these marks
UPDATE jobs
SET status = 'running', attempts = attempts + 1, worker = ?3, lease_token = ?4, lease_ms = ?5, lease_expires_at = ?6,
    started_at = ?7, updated_at = ?7, ended_at = NULL, outcome = NULL, progress = NULL, marks = ?8
WHERE seq BETWEEN ?1 AND ?2";

const EXPIRE: &str = "
-- claim, reap: queued → cancelled, for a job that was to start by a time that has passed
UPDATE jobs SET status = 'cancelled', last_error = ?2, finished_at = ?3, died_at = ?3, updated_at = ?3 WHERE seq = ?1";

const DEAD_LETTER: &str = "
-- claim: queued, retrying → failed_permanent, for a row that cannot be run. Its newest attempt is in the history already.
UPDATE jobs
SET status = 'failed_permanent', last_error = ?2, finished_at = ?3, died_at = ?3, updated_at = ?3, progress = NULL,
    worker = NULL, lease_token = NULL, lease_ms = NULL, ended_at = NULL, outcome = NULL
WHERE seq = ?1
RETURNING id, kind, attempts";

impl Verb for Claim {
    /// And what is to be said in the log once it is committed.
    type Answer = (Claimed, Vec<UnrunnableJob>);
    const NAME: &'static str = "claim";
    const URGENCY: Urgency = Urgency::Urgent;

    fn weight(&self) -> usize {
        self.max
    }

    fn apply(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<Self::Answer> {
        let nonce = UuidBlob::from(LeaseToken::random());
        let (mut leases, mut unrunnable) = (Vec::new(), Vec::new());
        let mut budget = ByteBudget::new(self.max_bytes);
        let mut limited = self.max.saturating_sub(self.ahead);
        let (mut ended, mut left_ahead) = (0, false);
        // Again only if jobs were among those that were read that are ended instead of started: others may be behind them.
        while leases.len() < self.max && !budget.is_exhausted && ended < ENDED_MAX {
            let (max, before) = (self.max - leases.len(), leases.len());
            let Due { rows, lanes, served, room } = due_jobs(tx, self, Wanted { max, limited, budget: &mut budget })?;
            let read = rows.len();
            limited -= rows.iter().filter(|row| row.is_limited).count();
            start_all(tx, self, nonce, rows, &mut leases, &mut unrunnable)?;
            left_ahead |= room.left_ahead;
            // The lanes first: a gate that is closed for the sake of a job stays so while that is the first in line.
            tx.look_again(lanes)?;
            tx.took(room, served);
            let started = leases.len() - before;
            if read == started {
                break;
            }
            ended += read - started;
        }
        let opens_at = tx.lanes().opens_for(self);
        let mut claimed = Claimed::of(self, leases);
        claimed.more |= ended >= ENDED_MAX;
        claimed.left_ahead = left_ahead;
        claimed.look_again = opens_at.map(|at| Duration::from_micros((at - tx.now_micros()).max(0) as u64));
        Ok((claimed, unrunnable))
    }

    fn needs_sync(&self) -> bool {
        // Forgetting a claim in a power cut returns the job to the queue; the worker went down with us.
        self.fate == WorkerFate::Independent
    }
}

/// Starts what can be run and dead-letters the rest.
fn start_all(
    tx: &mut Tx<'_>,
    claim: &Claim,
    nonce: UuidBlob,
    due: Vec<DueRow>,
    leases: &mut Vec<Lease>,
    unrunnable: &mut Vec<UnrunnableJob>,
) -> rusqlite::Result<()> {
    let now = tx.now_micros();
    let mut starts = Vec::with_capacity(due.len());
    leases.reserve(due.len());
    for DueRow { seq, lane, status, was_started, job, marks, started_marks, expired, .. } in due {
        if let Some(start_by) = expired {
            expire(tx, (seq, marks), &lane, status, start_by)?;
            continue;
        }
        if marks.has_options() && !was_started {
            options_started(tx, seq)?;
        }
        if was_started && !planted(Bug::CauseForgotten) {
            archive_attempt(tx, seq)?;
        }
        let job = match job {
            Ok(job) if job.attempts < job.max_attempts => job,
            Ok(job) => {
                let reason = format!("waiting although all {} attempts are used up", job.max_attempts);
                unrunnable.push(dead_letter(tx, (seq, marks), &lane, status, &reason)?);
                continue;
            }
            Err(error) if planted(Bug::BadRowFailsClaim) => {
                return Err(rusqlite::Error::ToSqlConversionFailure(error.into()));
            }
            Err(error) => {
                unrunnable.push(dead_letter(tx, (seq, marks), &lane, status, &error.to_string())?);
                continue;
            }
        };
        // Never past the attempt's own deadline.
        let lease = job.timeout_ms.map_or(claim.lease, |ms| claim.lease.min(Duration::from_millis(ms)));
        let expires_at = now + lease.as_micros() as i64;
        let seq_written = if planted(Bug::JobLeasedTwice) { -1 } else { seq };
        starts.push(Start { expires_at, seq: seq_written, marks: (marks != started_marks).then_some(started_marks) });
        tx.moved(&lane, Some(status), Some(Status::Running));
        // The others end otherwise than by their rows alone.
        if started_marks == started_marks.holds() {
            tx.claimed_rows().note(job.id, ClaimedRow { seq, claim_nonce: nonce, lane, holds: started_marks });
        }
        let token = lease_token(nonce, job.id);
        leases.push(Lease::granted(token, lease, job.started(claim.worker.clone(), now, expires_at)));
    }
    write_starts(tx, claim, nonce, starts)
}

/// Rows that are neighbours in the table are started by one statement: beginning and ending one took a third of the
/// work on a row. All rows between the first and the last of a run are this claim's own.
fn write_starts(tx: &Tx<'_>, claim: &Claim, nonce: UuidBlob, mut starts: Vec<Start>) -> rusqlite::Result<()> {
    let mut statement = tx.statement(START)?;
    let lease_ms = claim.lease.as_millis() as i64;
    starts.sort_unstable_by_key(|start| (start.expires_at, start.seq));
    for run in starts.chunk_by(|a, b| a.expires_at == b.expires_at && a.seq + 1 == b.seq && a.marks == b.marks) {
        let (Start { expires_at, seq: first, marks }, last) = (&run[0], run[run.len() - 1].seq);
        let (worker, now) = (claim.worker.as_str(), tx.now_micros());
        match marks {
            None => statement.execute(params![first, last, worker, nonce, lease_ms, expires_at, now])?,
            Some(marks) => tx
                .statement(START_MARKED)?
                .execute(params![first, last, worker, nonce, lease_ms, expires_at, now, marks])?,
        };
    }
    Ok(())
}

/// A row that is started.
struct Start {
    expires_at: i64,
    seq: i64,
    /// What its marks become; `None`: they stay.
    marks: Option<Marks>,
}

/// queued → cancelled, for a job that was to start by a time that has passed. Also for the reaper.
pub(super) fn expire(
    tx: &mut Tx<'_>,
    (seq, marks): (i64, Marks),
    lane: &Lane,
    from: Status,
    start_by: i64,
) -> rusqlite::Result<()> {
    let error = format!("expired: not started by {}", timestamp(start_by));
    tx.statement(EXPIRE)?.execute(params![seq, error, tx.now_micros()])?;
    options_ended(tx, seq)?;
    tx.moved(lane, Some(from), Some(Status::Cancelled));
    report_end(tx, seq, marks)
}

/// queued, retrying → failed_permanent, for a row that cannot be run.
fn dead_letter(
    tx: &mut Tx<'_>,
    (seq, marks): (i64, Marks),
    lane: &Lane,
    from: Status,
    reason: &str,
) -> rusqlite::Result<UnrunnableJob> {
    let error = ErrorText::new(format!("cannot be run: {reason}"));
    let (job, id) = tx.statement(DEAD_LETTER)?.query_row(params![seq, error.as_str(), tx.now_micros()], |row| {
        let id = row.get::<_, UuidBlob>(0).ok();
        let job_id = id.map(|id| id.0.to_string()).unwrap_or_default();
        let (kind, attempts) = (row.get(1).unwrap_or_default(), row.get(2).unwrap_or_default());
        Ok((UnrunnableJob { job_id, kind, attempts, error: error.as_str().to_owned() }, id))
    })?;
    options_ended(tx, seq)?;
    tx.moved(lane, Some(from), Some(Status::FailedPermanent));
    if let Some(id) = id {
        let group = ErrorGroup::of(&lane.kind, AttemptOutcome::Failed, error.as_str(), None);
        tx.died(seq, id, lane, &group)?;
    }
    report_end(tx, seq, marks)?;
    Ok(job)
}
