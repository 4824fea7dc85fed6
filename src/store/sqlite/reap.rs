//! reap: running → retrying, failed_permanent or cancelled, for leases that have run out.

use std::sync::Arc;

use rusqlite::{CachedStatement, params};

use super::claim::expire;
use super::inbox::{Urgency, Verb};
use super::job_options::options_ended;
use super::lanes::Lane;
use super::marks::Marks;
use super::row::UuidBlob;
use super::settle::{EndedAttempt, end_attempt, end_statement};
use super::transaction::Tx;
use crate::job::{Ending, Expiry, JobId, Kind, RetryPolicy, RunningJob, Status, WorkerId, decide};
use crate::planted::{self, Bug, planted};
use crate::store::{Reap, Reaped};

pub(super) const EXPIRED: &str = include_str!("reap.sql");

struct Expired {
    seq: i64,
    id: UuidBlob,
    lane: Lane,
    marks: Marks,
    worker: String,
    attempts: u32,
    max_attempts: u32,
    cancel_requested: bool,
    expiry: Expiry,
}

impl Verb for Reap {
    type Answer = Vec<Reaped>;
    const NAME: &'static str = "reap";
    const URGENCY: Urgency = Urgency::Urgent;

    fn weight(&self) -> usize {
        self.limit
    }

    fn apply(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<Vec<Reaped>> {
        let page = "FROM (SELECT * FROM jobs WHERE status = 'running' ORDER BY seq LIMIT 1000)";
        let first_page = planted(Bug::ReapFirstPageOnly)
            .then(|| planted::replaced(EXPIRED, "FROM jobs INDEXED BY jobs_leased", page));
        let now = tx.now_micros() + i64::from(planted(Bug::LiveLeasesReaped)) * 3_600_000_000;
        let expired: Vec<Expired> = tx
            .statement(first_page.as_deref().unwrap_or(EXPIRED))?
            .query_map(params![now, self.limit as i64], |row| {
                Ok(Expired {
                    seq: row.get(0)?,
                    id: row.get(1)?,
                    worker: row.get(2)?,
                    attempts: row.get(3)?,
                    max_attempts: row.get(4)?,
                    cancel_requested: row.get(5)?,
                    expiry: if row.get(6)? { Expiry::Deadline } else { Expiry::Lease },
                    lane: Lane::read(row, 7)?,
                    marks: Marks::read(row, 11)?,
                })
            })?
            .collect::<Result<_, _>>()?;
        expire_unstarted(tx)?;
        tx.forget_idle_rates(UNSTARTED_MAX);
        let mut end = end_statement(tx)?;
        let reaped = tx.each(&expired, |tx, expired| reap(tx, &mut end, expired))?;
        // One that cannot be written has been logged by nobody yet; the next round tries it again.
        reaped.iter().filter_map(|item| item.as_ref().err()).for_each(|error| tracing::error!(?error, "cannot reap"));
        Ok(reaped.into_iter().flatten().collect())
    }
}

/// 500 jobs that nobody has started in time are ended at once, and as many idle rates forgotten.
const UNSTARTED_MAX: usize = 500;

pub(super) const UNSTARTED: &str = "
-- reap: jobs that were to start by a time that has passed, and that no claim has come to
SELECT o.seq, o.start_deadline, j.status, j.queue, j.kind, j.priority, j.group_key, j.marks
FROM job_options o INDEXED BY job_options_start_deadline JOIN jobs j ON j.seq = o.seq
WHERE o.start_deadline <= ?1 ORDER BY o.start_deadline LIMIT ?2";

fn expire_unstarted(tx: &mut Tx<'_>) -> rusqlite::Result<()> {
    let mut statement = tx.statement(UNSTARTED)?;
    let unstarted: Vec<(i64, i64, String, Lane, Marks)> = statement
        .query_map(params![tx.now_micros(), UNSTARTED_MAX as i64], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?, Lane::read(row, 3)?, Marks::read(row, 7)?))
        })?
        .collect::<Result<_, _>>()?;
    let ended = tx.each(&unstarted, |tx, (seq, start_by, status, lane, marks)| match status.parse() {
        Ok(status @ (Status::Queued | Status::Retrying)) => {
            expire(tx, (*seq, *marks), lane, status, *start_by)?;
            tx.look_again([Arc::new(lane.clone())])?;
            tx.has_ended(lane)
        }
        // A manual edit: it has no start to wait for.
        _ => options_ended(tx, *seq),
    })?;
    ended.iter().filter_map(|item| item.as_ref().err()).for_each(|error| tracing::error!(?error, "cannot expire"));
    Ok(())
}

fn reap(tx: &mut Tx<'_>, end: &mut CachedStatement<'_>, expired: &Expired) -> rusqlite::Result<Reaped> {
    let running = RunningJob {
        kind: &expired.lane.kind,
        attempts: expired.attempts,
        max_attempts: expired.max_attempts,
        cancel_requested: expired.cancel_requested,
        // The lease has been the wait; no policy is asked.
        retry: &RetryPolicy::default(),
        jitter: 0.0,
    };
    let ending = Ending::Expired(expired.expiry);
    let transition = decide(ending, planted::told(ending, running));
    let job_id = JobId::from(expired.id.0);
    let ended = EndedAttempt { seq: expired.seq, job_id, lane: expired.lane.clone(), marks: expired.marks };
    end_attempt(tx, end, ended, &transition)?;
    Ok(Reaped {
        job_id,
        kind: Kind::new(&expired.lane.kind).unwrap_or_else(|_| Kind::unknown()),
        attempt: expired.attempts,
        worker: WorkerId::new(&expired.worker).unwrap_or_else(|_| WorkerId::unknown()),
        to: transition.to,
        recorded: transition.recorded,
    })
}
