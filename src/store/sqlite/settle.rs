//! settle: running → what `decide` says, fenced by the lease token.

use rusqlite::{CachedStatement, OptionalExtension, params};

use super::history::outcome_of;
use super::row::Id;
use super::transaction::Tx;
use super::writer::{Lane, Verb};
use crate::job::{Ending, Held, Outcome, RetryPolicy, Status, Transition, decide};
use crate::planted::{Bug, planted};
use crate::store::{Settle, Settled, StoreError};

pub(super) struct SettleAll(pub(super) Vec<Settle>);

impl Verb for SettleAll {
    type Answer = Vec<Result<Settled, StoreError>>;
    const NAME: &'static str = "settle";
    const LANE: Lane = Lane::Urgent;

    fn weight(&self) -> usize {
        self.0.len()
    }

    fn apply(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<Self::Answer> {
        let mut statements = Statements { look: tx.statement(NEWEST_ATTEMPT)?, end: end_statement(tx)? };
        tx.each(&self.0, |tx, item| statements.settle(tx, item))
    }
}

/// Looked up once for a batch: the cache of statements hashes the whole text each time.
struct Statements<'c> {
    look: CachedStatement<'c>,
    end: CachedStatement<'c>,
}

const NEWEST_ATTEMPT: &str = "
-- settle: the attempt that may speak for a job
SELECT seq, status, lease_token, outcome, attempts, max_attempts, cancel_requested, queue, kind FROM jobs WHERE id = ?1";

/// The newest attempt of the job that is being settled.
struct Newest {
    seq: i64,
    running: bool,
    token: Option<Id>,
    outcome: Option<String>,
    attempts: u32,
    max_attempts: u32,
    cancel_requested: bool,
    queue: String,
    retry: RetryPolicy,
}

impl Statements<'_> {
    fn settle(&mut self, tx: &mut Tx<'_>, settle: &Settle) -> rusqlite::Result<Settled> {
        let newest = self.look.query_row([Id::from(settle.lease.job_id)], |row| {
            Ok(Newest {
                seq: row.get(0)?,
                running: row.get_ref(1)?.as_str()? == Status::Running.as_str(),
                token: row.get(2)?,
                outcome: row.get(3)?,
                attempts: row.get(4)?,
                max_attempts: row.get(5)?,
                cancel_requested: row.get(6)?,
                queue: row.get(7)?,
                retry: retry_policy(tx, &settle.outcome, row.get_ref(8)?.as_str()?)?,
            })
        });
        let Some(newest) = newest.optional()? else { return Ok(Settled::Lost) };
        let token = Id::from(settle.lease.token);
        if newest.token != Some(token) && !planted(Bug::SettleUnfenced) {
            return Ok(answer_again(&settle.outcome, outcome_of(tx, settle.lease.job_id, token)?));
        }
        if !newest.running {
            return Ok(answer_again(&settle.outcome, newest.outcome));
        }
        let held = Held {
            attempts: newest.attempts,
            max_attempts: newest.max_attempts,
            cancel_requested: newest.cancel_requested,
            retry: &newest.retry,
            dice: fastrand::f64(),
        };
        let transition = decide(Ending::Reported(&settle.outcome), held);
        end_attempt(tx, &mut self.end, newest.seq, &newest.queue, &transition)?;
        Ok(Settled::Recorded)
    }
}

/// For an attempt that has ended: the same report again is on record, another one comes too late.
fn answer_again(reported: &Outcome, recorded: Option<String>) -> Settled {
    let same = recorded.as_deref() == Some(reported.recorded_as().as_str()) && !planted(Bug::RepeatIsLost);
    if same { Settled::Recorded } else { Settled::Lost }
}

/// Looked up only where it matters.
fn retry_policy(tx: &Tx<'_>, outcome: &Outcome, kind: &str) -> rusqlite::Result<RetryPolicy> {
    let text: Option<String> = match outcome {
        Outcome::Failed(_) | Outcome::TimedOut(_) => tx
            .statement("SELECT retry FROM kinds WHERE kind = ?1")?
            .query_row([kind], |row| row.get(0))
            .optional()?
            .flatten(),
        _ => None,
    };
    Ok(text.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default())
}

/// For [`end_attempt`].
pub(super) fn end_statement<'c>(tx: &Tx<'c>) -> rusqlite::Result<CachedStatement<'c>> {
    tx.statement(include_str!("settle.sql"))
}

/// Writes what was decided about a running job. The caller has seen, in this transaction, that it is running.
pub(super) fn end_attempt(
    tx: &mut Tx<'_>,
    statement: &mut CachedStatement<'_>,
    seq: i64,
    queue: &str,
    to: &Transition,
) -> rusqlite::Result<()> {
    let now = tx.now_micros();
    statement.execute(params![
        seq,
        to.to.as_str(),
        to.attempts,
        to.run_in.map(|wait| now.saturating_add(wait.as_micros() as i64)),
        to.recorded.as_str(),
        to.error.as_ref().map(|error| error.as_str()),
        to.result.as_ref().map(|result| result.as_str()),
        now,
        to.to.is_terminal().then_some(now),
    ])?;
    tx.moved(queue, Some(Status::Running), Some(to.to));
    if to.run_in.is_some_and(|wait| wait.is_zero()) {
        tx.make_ready();
    }
    Ok(())
}
