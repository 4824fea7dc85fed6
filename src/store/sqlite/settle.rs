//! settle: running → what `decide` says, fenced by the lease token.

use std::collections::HashMap;
use std::sync::Arc;

use rusqlite::{CachedStatement, OptionalExtension, params};

use super::attempts::outcome_of;
use super::inbox::{Urgency, Verb};
use super::job_options::options_ended;
use super::lanes::{Lane, Position};
use super::lease::{ClaimedRow, claim_nonce};
use super::marks::Marks;
use super::outbox::report_end;
use super::row::UuidBlob;
use super::transaction::{OnItemError, Tx};
use crate::job::{Ending, JobId, Json, Kind, Outcome, RetryPolicy, RunningJob, Status, Transition, decide};
use crate::planted::{self, Bug, planted};
use crate::store::{FailedAttempt, RetryPolicies, Settle, Settled, StoreError};

pub(super) struct SettleAll {
    pub(super) settles: Vec<Settle>,
    /// For kinds that are stored without a policy.
    pub(super) retry: Arc<RetryPolicies>,
}

/// The answer to one item, and what is to be said of it in the log once it is committed.
type Answered = (Settled, Option<FailedAttempt>);

/// Logs the failures, which are on record now; answers the rest.
pub(super) fn log_failures(answers: Vec<Result<Answered, StoreError>>) -> Vec<Result<Settled, StoreError>> {
    let log = |(settled, failed): Answered| {
        failed.iter().for_each(FailedAttempt::log);
        settled
    };
    answers.into_iter().map(|answer| answer.map(log)).collect()
}

impl Verb for SettleAll {
    type Answer = Vec<Result<Answered, StoreError>>;
    const NAME: &'static str = "settle";
    const URGENCY: Urgency = Urgency::Urgent;

    fn weight(&self) -> usize {
        self.settles.len()
    }

    fn apply(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<Self::Answer> {
        let recorded = match tx.on_item_error() {
            OnItemError::FailsAll => succeed_claimed_here(tx, &self.settles)?,
            OnItemError::FailsItem => {
                // Not by their rows, but forgotten like those: a row that is known to be claimed was never settled.
                self.settles.iter().for_each(|settle| drop(tx.claimed_rows().take(settle.lease)));
                vec![false; self.settles.len()]
            }
        };
        let (look, end) = (tx.statement(NEWEST_ATTEMPT)?, end_statement(tx)?);
        let mut statements = SettleStatements { look, end, retry: StoredPolicies::or(&self.retry) };
        let items: Vec<_> = recorded.into_iter().zip(&self.settles).collect();
        tx.each(
            &items,
            |tx, (recorded, item)| if *recorded { Ok((Settled::Recorded, None)) } else { statements.settle(tx, item) },
        )
    }
}

pub(super) const SUCCEED: &str = "
-- settle: running → succeeded, for neighbouring rows that one claim has taken
UPDATE jobs
SET status = 'succeeded', outcome = 'succeeded', result = ?4, ended_at = ?5, updated_at = ?5, finished_at = ?5,
    lease_expires_at = NULL
WHERE seq BETWEEN ?1 AND ?2 AND lease_token = ?3 AND status = 'running' AND marks IS NULL";

pub(super) const SUCCEED_HOLDING: &str = "
-- settle: running → succeeded, for neighbouring rows that one claim has taken, and that count for limits
UPDATE jobs
SET status = 'succeeded', outcome = 'succeeded', result = ?4, ended_at = ?5, updated_at = ?5, finished_at = ?5,
    lease_expires_at = NULL, marks = NULL
WHERE seq BETWEEN ?1 AND ?2 AND lease_token = ?3 AND status = 'running' AND marks = ?6";

/// One success of a lease that this process granted.
struct Success<'s> {
    row: ClaimedRow,
    result: Option<&'s Json>,
    /// Its position in the batch.
    index: usize,
}

/// Records successes of leases that this process granted without looking for the jobs first, a third of a settle.
/// Rows that are neighbours in the table are written by one statement, a third of the rest. Tells which items are on
/// record.
///
/// The fence is in the statement. If it leaves out a row of a run, all of the run are settled once more, one by one:
/// those that it did write answer as a repeated report does. What `decide` says of a success depends on nothing that
/// the row knows; a test below holds it to that.
fn succeed_claimed_here(tx: &mut Tx<'_>, settles: &[Settle]) -> rusqlite::Result<Vec<bool>> {
    let mut successes = Vec::with_capacity(settles.len());
    for (index, settle) in settles.iter().enumerate() {
        // Taken whatever the outcome is: of two reports on one lease in this batch, the first must decide.
        if let (Some(row), Outcome::Succeeded(result)) = (tx.claimed_rows().take(settle.lease), &settle.outcome) {
            successes.push(Success { row, result: result.as_ref(), index });
        }
    }
    successes.sort_unstable_by_key(|success| success.row.seq);
    let mut recorded = vec![false; settles.len()];
    let mut statement = tx.statement(SUCCEED)?;
    for run in successes.chunk_by(|a, b| {
        let (no_results, a, b) = (a.result.is_none() && b.result.is_none(), &a.row, &b.row);
        no_results && a.seq + 1 == b.seq && a.claim_nonce == b.claim_nonce && a.holds == b.holds
    }) {
        let (Success { row, result, .. }, last) = (&run[0], &run[run.len() - 1].row);
        let result = result.map(Json::as_str);
        let (nonce, now) = (row.claim_nonce, tx.now_micros());
        let written = if row.holds.is_none() {
            statement.execute(params![row.seq, last.seq, nonce, result, now])?
        } else {
            tx.statement(SUCCEED_HOLDING)?.execute(params![row.seq, last.seq, nonce, result, now, row.holds])?
        };
        if written < run.len() {
            count_written(tx, row, last.seq)?;
            continue;
        }
        for success in run {
            recorded[success.index] = true;
            tx.moved(&success.row.lane, Some(Status::Running), Some(Status::Succeeded));
            tx.give_back(&success.row.lane, success.row.holds, 1);
        }
    }
    Ok(recorded)
}

const WRITTEN: &str = "
-- settle: what the statement for successes has written of a run
SELECT queue, kind, priority, group_key, marks, count(*) FROM jobs
WHERE seq BETWEEN ?1 AND ?2 AND lease_token = ?3 AND status = 'succeeded'
GROUP BY queue, kind, priority, group_key, marks";

/// Counts what was written of a run that some row was left out of. No other statement can have written these: see
/// [`SettleAll`], which forgets each row that it settles.
fn count_written(tx: &mut Tx<'_>, first: &ClaimedRow, last_seq: i64) -> rusqlite::Result<()> {
    let mut statement = tx.statement(WRITTEN)?;
    let mut rows = statement.query(params![first.seq, last_seq, first.claim_nonce])?;
    while let Some(row) = rows.next()? {
        let (lane, count) = (Lane::read(row, 0)?, row.get(5)?);
        tx.moved_many(&lane, Some(Status::Running), Some(Status::Succeeded), count);
        tx.give_back(&lane, first.holds, count);
    }
    Ok(())
}

/// Looked up once for a batch: the cache of statements hashes the whole text each time.
struct SettleStatements<'c> {
    look: CachedStatement<'c>,
    end: CachedStatement<'c>,
    retry: StoredPolicies<'c>,
}

const NEWEST_ATTEMPT: &str = "
-- settle: the attempt that may speak for a job
SELECT seq, status, lease_token, outcome, attempts, max_attempts, cancel_requested, queue, kind, priority,
       group_key, marks
FROM jobs WHERE id = ?1";

/// The newest attempt of the job that is being settled.
struct NewestAttempt {
    seq: i64,
    running: bool,
    claim_nonce: Option<UuidBlob>,
    outcome: Option<String>,
    attempts: u32,
    max_attempts: u32,
    cancel_requested: bool,
    lane: Lane,
    marks: Marks,
}

impl SettleStatements<'_> {
    fn settle(&mut self, tx: &mut Tx<'_>, settle: &Settle) -> rusqlite::Result<Answered> {
        let newest = self.look.query_row([UuidBlob::from(settle.lease.job_id)], |row| {
            Ok(NewestAttempt {
                seq: row.get(0)?,
                running: row.get_ref(1)?.as_str()? == Status::Running.as_str(),
                claim_nonce: row.get(2)?,
                outcome: row.get(3)?,
                attempts: row.get(4)?,
                max_attempts: row.get(5)?,
                cancel_requested: row.get(6)?,
                lane: Lane::read(row, 7)?,
                marks: Marks::read(row, 11)?,
            })
        });
        let Some(newest) = newest.optional()? else { return Ok((Settled::Lost, None)) };
        let shown = claim_nonce(settle.lease);
        if newest.claim_nonce != Some(shown) && !planted(Bug::SettleUnfenced) {
            if planted(Bug::GiveBackUnfenced) {
                tx.give_back(&newest.lane, newest.marks, 1);
            }
            return Ok((answer_repeated(&settle.outcome, outcome_of(tx, settle.lease.job_id, shown)?), None));
        }
        if !newest.running {
            return Ok((answer_repeated(&settle.outcome, newest.outcome), None));
        }
        let retry = self.retry.of(tx, &settle.outcome, &newest.lane.kind)?;
        let ending = Ending::Reported(&settle.outcome);
        let running = RunningJob {
            kind: &newest.lane.kind,
            attempts: newest.attempts,
            max_attempts: newest.max_attempts,
            cancel_requested: newest.cancel_requested,
            retry,
            jitter: fastrand::f64(),
        };
        let transition = decide(ending, planted::told(ending, running));
        let kind = Kind::new(&newest.lane.kind).unwrap_or_else(|_| Kind::unknown());
        let ended =
            EndedAttempt { seq: newest.seq, job_id: settle.lease.job_id, lane: newest.lane, marks: newest.marks };
        end_attempt(tx, &mut self.end, ended, &transition)?;
        let failed = transition.error.map(|error| FailedAttempt {
            job_id: settle.lease.job_id,
            kind,
            attempt: newest.attempts,
            recorded: transition.recorded,
            to: transition.to,
            error: error.logged().to_owned(),
        });
        Ok((Settled::Recorded, failed))
    }
}

/// For an attempt that has ended: the same report again is on record, another one comes too late.
fn answer_repeated(reported: &Outcome, recorded: Option<String>) -> Settled {
    let same = recorded.as_deref() == Some(reported.recorded_as().as_str()) && !planted(Bug::RepeatIsLost);
    if same { Settled::Recorded } else { Settled::Lost }
}

/// How jobs are retried, read once per kind for a batch of outcomes.
struct StoredPolicies<'d> {
    stored: HashMap<Arc<str>, Option<RetryPolicy>>,
    not_stored: &'d RetryPolicies,
}

impl<'d> StoredPolicies<'d> {
    fn or(not_stored: &'d RetryPolicies) -> Self {
        Self { stored: HashMap::new(), not_stored }
    }

    /// The policy that counts for a kind. Looked up only where it matters.
    fn of(&mut self, tx: &Tx<'_>, outcome: &Outcome, kind: &Arc<str>) -> rusqlite::Result<&RetryPolicy> {
        if !matches!(outcome, Outcome::Failed(_) | Outcome::TimedOut(_)) {
            return Ok(self.not_stored.or_stored(None, kind));
        }
        if !self.stored.contains_key(kind) {
            let text: Option<String> = tx
                .statement("SELECT retry FROM kinds WHERE kind = ?1")?
                .query_row([kind], |row| row.get(0))
                .optional()?
                .flatten();
            self.stored.insert(kind.clone(), text.and_then(|text| serde_json::from_str(&text).ok()));
        }
        Ok(self.not_stored.or_stored(self.stored.get(kind).and_then(Option::as_ref), kind))
    }
}

/// For [`end_attempt`].
pub(super) fn end_statement<'c>(tx: &Tx<'c>) -> rusqlite::Result<CachedStatement<'c>> {
    tx.statement(include_str!("settle.sql"))
}

/// A running job whose attempt ends.
pub(super) struct EndedAttempt {
    pub(super) seq: i64,
    pub(super) job_id: JobId,
    /// Where it waits again, if it does.
    pub(super) lane: Lane,
    pub(super) marks: Marks,
}

/// Writes what was decided about a running job. The caller has seen, in this transaction, that it is running.
pub(super) fn end_attempt(
    tx: &mut Tx<'_>,
    statement: &mut CachedStatement<'_>,
    ended: EndedAttempt,
    to: &Transition,
) -> rusqlite::Result<()> {
    let now = tx.now_micros();
    let run_at = to.run_in.map(|wait| now.saturating_add(wait.as_micros() as i64));
    statement.execute(params![
        ended.seq,
        to.to.as_str(),
        to.attempts,
        run_at,
        to.recorded.as_str(),
        to.error.as_ref().map(|error| planted::kept(error.as_str())),
        to.result.as_ref().map(|result| result.as_str()),
        now,
        to.to.is_terminal().then_some(now),
        matches!(to.to, Status::FailedPermanent | Status::Cancelled).then_some(now),
        ended.marks.without_holds(),
    ])?;
    tx.moved(&ended.lane, Some(Status::Running), Some(to.to));
    if !planted(Bug::DeadLettersKeepPlace) || to.to != Status::FailedPermanent {
        tx.give_back(&ended.lane, ended.marks, 1);
    }
    if to.to.is_terminal() {
        if ended.marks.has_options() {
            options_ended(tx, ended.seq)?;
        }
        tx.has_ended(&ended.lane)?;
        report_end(tx, ended.seq, ended.marks)?;
    }
    if let Some(group) = &to.error_group {
        tx.died(ended.seq, ended.job_id.into(), &ended.lane, group)?;
    }
    if let Some(run_at) = run_at
        && !planted(Bug::RetriesForgotten)
    {
        tx.add_waiting(ended.lane, Position { run_at, id: *ended.job_id.as_uuid() })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::AttemptOutcome;

    #[test]
    fn a_success_is_recorded_as_the_statement_for_successes_does_whatever_the_row_knows() {
        let outcome = Outcome::Succeeded(None);
        for (attempts, cancel_requested) in [(1, false), (3, false), (1, true), (3, true)] {
            let retry = &RetryPolicy::default();
            let running = RunningJob { cancel_requested, ..RunningJob::new(attempts, 3, retry) };
            let expected = Transition {
                to: Status::Succeeded,
                recorded: AttemptOutcome::Succeeded,
                attempts,
                run_in: None,
                error: None,
                result: None,
                error_group: None,
            };
            assert_eq!(decide(Ending::Reported(&outcome), running), expected);
        }
    }
}
