//! reap: running → retrying, failed_permanent or cancelled, for leases that have run out.

use rusqlite::{CachedStatement, params};

use super::inbox::{Urgency, Verb};
use super::lanes::Lane;
use super::row::UuidBlob;
use super::settle::{EndedAttempt, end_attempt, end_statement};
use super::transaction::Tx;
use crate::job::{Ending, Expiry, JobId, Kind, RetryPolicy, RunningJob, WorkerId, decide};
use crate::planted::{self, Bug, planted};
use crate::store::{Reap, Reaped};

pub(super) const EXPIRED: &str = include_str!("reap.sql");

struct Expired {
    seq: i64,
    id: UuidBlob,
    lane: Lane,
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
                    lane: Lane { kind: row.get(2)?, queue: row.get(3)?, priority: row.get(4)? },
                    worker: row.get(5)?,
                    attempts: row.get(6)?,
                    max_attempts: row.get(7)?,
                    cancel_requested: row.get(8)?,
                    expiry: if row.get(9)? { Expiry::Deadline } else { Expiry::Lease },
                })
            })?
            .collect::<Result<_, _>>()?;
        let mut end = end_statement(tx)?;
        let reaped = tx.each(&expired, |tx, expired| reap(tx, &mut end, expired))?;
        // One that cannot be written has been logged by nobody yet; the next round tries it again.
        reaped.iter().filter_map(|item| item.as_ref().err()).for_each(|error| tracing::error!(?error, "cannot reap"));
        Ok(reaped.into_iter().flatten().collect())
    }
}

fn reap(tx: &mut Tx<'_>, end: &mut CachedStatement<'_>, expired: &Expired) -> rusqlite::Result<Reaped> {
    let running = RunningJob {
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
    end_attempt(tx, end, EndedAttempt { seq: expired.seq, job_id, lane: expired.lane.clone() }, &transition)?;
    Ok(Reaped {
        job_id,
        kind: Kind::new(&expired.lane.kind).unwrap_or_else(|_| Kind::unknown()),
        attempt: expired.attempts,
        worker: WorkerId::new(&expired.worker).unwrap_or_else(|_| WorkerId::unknown()),
        to: transition.to,
        recorded: transition.recorded,
    })
}
