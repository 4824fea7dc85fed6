//! enqueue: – → queued. Calls that arrive together share a commit; each is stored as a whole or not at all.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use deadpool_postgres::Object;
use jiff::Timestamp;
use tokio::time::timeout;
use tokio_postgres::types::ToSql;
use tokio_postgres::{GenericClient, Statement};
use uuid::Uuid;

use super::batch::Flush;
use super::core::Core;
use super::enqueue_unique::{self, UniqueStatements, any_unique, stored_key, stored_while};
use super::error::{self, DbError, Effect, Retries};
use super::known::digest_of;
use super::row;
use super::sql::Sql;
use super::stored::{PerJob, Stored, whole};
use super::wake::{Carried, Notification};
use crate::job::{NewJob, Start, StartBy};
use crate::planted::{Bug, planted};
use crate::store::{EnqueueAnswer, KeyTaken, StoreError, StoreErrorKind};

/// 2 calls of a batch may wait for a lock by themselves. If there are more, the calls behind them are not made to wait
/// for each in turn.
const LOCK_TIMEOUTS_MAX: usize = 2;

/// Stores what has gathered.
pub(super) struct EnqueueFlush {
    core: Arc<Core>,
    in_flight: AtomicUsize,
}

#[async_trait]
impl Flush for EnqueueFlush {
    type Call = Vec<NewJob>;
    type Answer = EnqueueAnswer;
    const VERB: &'static str = "enqueue";
    // While one waits for the disk, the next is made.
    const IN_FLIGHT: usize = 2;

    fn weight(call: &Vec<NewJob>) -> usize {
        call.len()
    }

    async fn flush(&self, calls: Vec<Vec<NewJob>>) -> Vec<Result<EnqueueAnswer, StoreError>> {
        let _in_flight = InFlight::begin(&self.in_flight);
        let mut answers: Vec<Option<Result<EnqueueAnswer, StoreError>>> = calls.iter().map(|_| None).collect();
        // Calls whose key another call of the batch wants too. Which of them gets it is only known once that one is stored.
        let mut later = vec![false; calls.len()];
        let mut answered = 0;
        loop {
            let unanswered: Vec<usize> = (0..calls.len()).filter(|call| answers[*call].is_none()).collect();
            let tearable = |call: &usize| is_tearable(&calls[*call]);
            let (mut open, atomicity) = match unanswered.iter().all(tearable) {
                true => (unanswered, Atomicity::All),
                false => (unanswered.into_iter().filter(|call| !tearable(call)).collect(), Atomicity::Each),
            };
            if open.is_empty() {
                break;
            }
            if open.iter().all(|call| later[*call]) {
                let now_answered = answers.iter().flatten().count();
                match now_answered > answered {
                    true => later.fill(false),
                    // Each waits for another one: the first goes alone.
                    false => later[open[0]] = false,
                }
                answered = now_answered;
            }
            open.retain(|call| !later[*call]);
            let all: Vec<&NewJob> = open.iter().flat_map(|call| &calls[*call]).collect();
            match self.store(&all, atomicity).await {
                Ok(stored) => {
                    let nothing_is_stored = atomicity == Atomicity::All && stored.iter().any(Result::is_err);
                    let mut stored = stored.into_iter();
                    for call in open {
                        let answer = whole(stored.by_ref().take(calls[call].len()).collect());
                        // Of those that were rolled back with another one, each is still to be stored.
                        let is_of_another_call = |taken: &KeyTaken| {
                            let by = |job: &&NewJob| job.id() == taken.by;
                            all.iter().any(by) && !calls[call].iter().any(|job| by(&job))
                        };
                        match &answer {
                            Ok(_) if nothing_is_stored => (),
                            Err(taken) if nothing_is_stored && taken.iter().any(is_of_another_call) => {
                                later[call] = true;
                            }
                            _ => answers[call] = Some(Ok(answer)),
                        }
                    }
                }
                Err(error) if open.len() > 1 && is_of_one_call(&error) => {
                    let alone = self.one_by_one(open.iter().map(|call| &calls[*call])).await;
                    for (call, answer) in open.into_iter().zip(alone) {
                        answers[call] = Some(answer);
                    }
                }
                Err(error) => open.into_iter().for_each(|call| answers[call] = Some(Err(error.clone()))),
            }
        }
        answers.into_iter().flatten().collect()
    }
}

/// What is stored together or not at all.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Atomicity {
    /// The statement stores what it can, which cannot tear a call apart.
    Each,
    /// In a transaction: a call of several jobs is rolled back if one of its keys belongs to another job.
    All,
}

fn is_tearable(call: &[NewJob]) -> bool {
    (call.len() > 1 && call.iter().any(|job| job.idempotency_key().is_some()))
        || call.iter().any(|job| job.unique().is_some())
}

/// A row that cannot be stored, or a key in a transaction that somebody keeps open. Not if an earlier try may have
/// stored the batch: then the lock is its own, and what is stored must not be said to be refused.
fn is_of_one_call(error: &StoreError) -> bool {
    let may_be_stored = error.kind() == StoreErrorKind::OutcomeUnknown && !planted(Bug::OutcomeForgotten);
    !may_be_stored && (error.kind() == StoreErrorKind::Rejected || error::is_lock_timeout(error))
}

impl EnqueueFlush {
    pub(super) fn new(core: Arc<Core>) -> Self {
        Self { core, in_flight: AtomicUsize::new(0) }
    }

    async fn one_by_one(&self, calls: impl Iterator<Item = &Vec<NewJob>>) -> Vec<Result<EnqueueAnswer, StoreError>> {
        let (mut answers, mut lock_timeouts) = (Vec::new(), Vec::new());
        for call in calls {
            if let Some(error) = lock_timeouts.get(LOCK_TIMEOUTS_MAX - 1) {
                answers.push(Err(StoreError::clone(error)));
                continue;
            }
            let atomicity = if is_tearable(call) { Atomicity::All } else { Atomicity::Each };
            let answer = self.store(&call.iter().collect::<Vec<_>>(), atomicity).await;
            lock_timeouts.extend(answer.as_ref().err().filter(|error| error::is_lock_timeout(error)).cloned());
            answers.push(answer.map(whole));
        }
        answers
    }

    async fn store(&self, jobs: &[&NewJob], atomicity: Atomicity) -> Result<Vec<PerJob>, StoreError> {
        // An id is only ever used once, so a call whose answer was lost can be sent again: what it stored is known by it.
        let mut retries = Retries::new(Self::VERB, Effect::Repeatable);
        let mut carried = self.carried(jobs);
        let answers = loop {
            match self.try_store(jobs, atomicity, carried.as_ref().map(Carried::notification)).await {
                Ok(answers) => break answers,
                // It may be the notification that there is no room for.
                Err(error) if carried.is_some() && error.is_rejected() => carried = None,
                Err(error) => retries.again(error).await?,
            }
        };
        if atomicity == Atomicity::All && answers.iter().any(Result::is_err) {
            return Ok(answers);
        }
        let new = answers.iter().flatten().filter(|one| one.created || one.replaced).map(|one| &one.job);
        self.core.lower(new.clone());
        match carried {
            Some(carried) if new.clone().next().is_some() => carried.sent(),
            _ if new.clone().any(|job| job.run_at <= job.updated_at) => self.core.notifier.notify(),
            _ => (),
        }
        Ok(answers)
    }

    /// The notification, if these jobs are one that is due and nothing else is under way. Who has something beside it may
    /// not be the one that others wait for.
    fn carried(&self, jobs: &[&NewJob]) -> Option<Carried<'_>> {
        let [job] = jobs else { return None };
        let is_alone = self.in_flight.load(Ordering::Relaxed) == 1;
        if is_alone && matches!(job.start(), Start::Now) { self.core.notifier.carry() } else { None }
    }

    async fn try_store(
        &self,
        jobs: &[&NewJob],
        atomicity: Atomicity,
        notification: Option<&Notification>,
    ) -> Result<Vec<PerJob>, DbError> {
        let mut connection = self.core.pool.get().await?;
        let limit = connection.timeout();
        let sql = &self.core.sql;
        let work = async {
            let statement = connection.prepare_cached(insert_sql(sql, jobs)).await?;
            if atomicity == Atomicity::Each {
                let stored = insert(&***connection, &statement, jobs, notification).await?;
                // What goes wrong from here on takes nothing back.
                return look_up_missing(sql, &connection, stored).await.map_err(DbError::after_a_commit);
            }
            let known = connection.prepare_cached(&sql.known).await?;
            let get = connection.prepare_cached(&sql.get).await?;
            if any_unique(jobs) {
                let statements = UniqueStatements {
                    insert: connection.prepare_cached(&sql.enqueue_with_options).await?,
                    free: connection.prepare_cached(&sql.unique_free).await?,
                    replace: connection.prepare_cached(&sql.unique_replace).await?,
                    holders: connection.prepare_cached(&sql.unique_holders).await?,
                    known,
                    get,
                };
                let transaction = connection.transaction().await?;
                let answers = enqueue_unique::store(&*transaction, &statements, jobs).await?;
                match answers.iter().all(Result::is_ok) {
                    true => transaction.commit().await?,
                    false => transaction.rollback().await?,
                }
                return Ok(answers);
            }
            let transaction = connection.transaction().await?;
            let mut stored = insert(&*transaction, &statement, jobs, notification).await?;
            if !stored.missing().is_empty() {
                stored.look_up(&*transaction, &known, &get).await?;
            }
            let answers = stored.answers()?;
            match answers.iter().all(Result::is_ok) {
                true => transaction.commit().await?,
                false => transaction.rollback().await?,
            }
            Ok(answers)
        };
        let answer = timeout(limit, work).await;
        connection.finish(answer)
    }
}

/// The answers, once it is known what has kept jobs from being stored.
async fn look_up_missing(sql: &Sql, connection: &Object, mut stored: Stored<'_>) -> Result<Vec<PerJob>, DbError> {
    if !stored.missing().is_empty() {
        let known = connection.prepare_cached(&sql.known).await?;
        let get = connection.prepare_cached(&sql.get).await?;
        stored.look_up(&***connection, &known, &get).await?;
    }
    stored.answers()
}

/// Counts a flush for as long as it lasts.
struct InFlight<'a>(&'a AtomicUsize);

impl<'a> InFlight<'a> {
    fn begin(flushes: &'a AtomicUsize) -> Self {
        flushes.fetch_add(1, Ordering::Relaxed);
        Self(flushes)
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The statement that stores these jobs; to be given to [`insert`].
pub(super) fn insert_sql<'a>(sql: &'a Sql, jobs: &[&NewJob]) -> &'a str {
    match jobs {
        _ if !jobs.iter().all(|job| job.is_plain()) => &sql.enqueue_with_options,
        [_] => &sql.enqueue_one,
        _ => &sql.enqueue,
    }
}

/// Stores the jobs that are not there yet.
pub(super) async fn insert<'a>(
    client: &impl GenericClient,
    statement: &Statement,
    jobs: &'a [&'a NewJob],
    notification: Option<&Notification>,
) -> Result<Stored<'a>, DbError> {
    let columns = Columns::of(jobs);
    let rows = match jobs.len() {
        _ if statement.params().len() == OPTIONS_PARAMS => {
            client.query(statement, &columns.params_with_options()).await?
        }
        1 => {
            client
                .query(
                    statement,
                    &columns
                        .params_of_one(&notification.map(|one| &*one.sender), &notification.map(|one| &*one.channel)),
                )
                .await?
        }
        _ => client.query(statement, &columns.params()).await?,
    };
    let mut stored = Stored::of(jobs);
    for row in rows {
        stored.new.insert(row.try_get(0)?, (row.try_get(1)?, row.try_get(2)?));
    }
    Ok(stored)
}

/// The columns of the statement, one array each.
#[derive(Default)]
pub(super) struct Columns<'a> {
    pub(super) ids: Vec<Uuid>,
    pub(super) kinds: Vec<&'a str>,
    pub(super) queues: Vec<&'a str>,
    pub(super) payloads: Vec<&'a str>,
    pub(super) priorities: Vec<i16>,
    pub(super) max_attempts: Vec<i32>,
    pub(super) at_us: Vec<Option<i64>>,
    pub(super) delay_us: Vec<Option<i64>>,
    pub(super) timeout_ms: Vec<Option<i64>>,
    pub(super) keys: Vec<Option<&'a str>>,
    pub(super) digests: Vec<Option<Uuid>>,
    pub(super) options: OptionColumns<'a>,
}

impl<'a> Columns<'a> {
    pub(super) fn of(jobs: &[&'a NewJob]) -> Self {
        let mut jobs = jobs.to_vec();
        // In one order everywhere, so that two processes with the same keys wait for each other and not in a circle.
        jobs.sort_by_key(|job| (job.idempotency_key(), job.unique().map(|unique| &*unique.key), job.id()));
        let mut columns = Self { options: OptionColumns::of(&jobs), ..Self::default() };
        for job in jobs {
            let (at_us, delay_us) = match job.start() {
                Start::Now => (None, None),
                Start::At(at) => (Some(at.as_microsecond()), None),
                Start::After(delay) if planted(Bug::HostClock) => {
                    (Some(Timestamp::now().as_microsecond() + row::micros(delay)), None)
                }
                Start::After(delay) => (None, Some(row::micros(delay))),
            };
            columns.ids.push(*job.id().as_uuid());
            columns.kinds.push(job.kind().as_str());
            columns.queues.push(job.queue().as_str());
            columns.payloads.push(job.payload().as_str());
            columns.priorities.push(job.priority());
            columns.max_attempts.push(job.max_attempts() as i32);
            columns.at_us.push(at_us);
            columns.delay_us.push(delay_us);
            columns.timeout_ms.push(job.timeout_ms().map(|ms| ms as i64));
            columns.keys.push(job.idempotency_key());
            columns.digests.push(digest_of(job));
        }
        columns
    }

    fn params_with_options(&self) -> [&(dyn ToSql + Sync); OPTIONS_PARAMS] {
        let (mut params, options): ([&(dyn ToSql + Sync); OPTIONS_PARAMS], _) =
            ([&self.ids; OPTIONS_PARAMS], &self.options);
        params[..11].copy_from_slice(&self.params());
        params[11..].copy_from_slice(&[
            &options.groups,
            &options.costs,
            &options.start_by_us,
            &options.start_within_us,
            &options.unique_keys,
            &options.unique_whiles,
            &options.unique_for_us,
            &options.unique_shown,
            &options.watches,
            &options.notifies,
            &options.traces,
        ]);
        params
    }

    fn params(&self) -> [&(dyn ToSql + Sync); 11] {
        [
            &self.ids,
            &self.kinds,
            &self.queues,
            &self.payloads,
            &self.priorities,
            &self.max_attempts,
            &self.at_us,
            &self.delay_us,
            &self.timeout_ms,
            &self.keys,
            &self.digests,
        ]
    }

    fn params_of_one<'b>(
        &'b self,
        payload: &'b Option<&str>,
        channel: &'b Option<&str>,
    ) -> [&'b (dyn ToSql + Sync); 13] {
        [
            &self.ids[0],
            &self.kinds[0],
            &self.queues[0],
            &self.payloads[0],
            &self.priorities[0],
            &self.max_attempts[0],
            &self.at_us[0],
            &self.delay_us[0],
            &self.timeout_ms[0],
            &self.keys[0],
            &self.digests[0],
            payload,
            channel,
        ]
    }
}

/// How many parameters the statement has for jobs that are not plain: by it, [`insert`] knows it.
const OPTIONS_PARAMS: usize = 22;

/// The columns of what plain jobs do not have.
#[derive(Default)]
pub(super) struct OptionColumns<'a> {
    pub(super) groups: Vec<Option<&'a str>>,
    pub(super) costs: Vec<Option<i32>>,
    pub(super) start_by_us: Vec<Option<i64>>,
    pub(super) start_within_us: Vec<Option<i64>>,
    pub(super) unique_keys: Vec<Option<String>>,
    pub(super) unique_whiles: Vec<Option<i16>>,
    pub(super) unique_for_us: Vec<Option<i64>>,
    pub(super) unique_shown: Vec<Option<String>>,
    pub(super) watches: Vec<Option<i16>>,
    pub(super) notifies: Vec<Option<&'a str>>,
    pub(super) traces: Vec<Option<String>>,
}

impl<'a> OptionColumns<'a> {
    /// Empty if all of them are plain.
    fn of(jobs: &[&'a NewJob]) -> Self {
        let mut columns = Self::default();
        if jobs.iter().all(|job| job.is_plain()) {
            return columns;
        }
        for job in jobs {
            let (by_us, within_us) = match job.start_by() {
                Some(StartBy::At(at)) => (Some(at.as_microsecond()), None),
                Some(StartBy::Within(wait)) => (None, Some(row::micros(wait))),
                None => (None, None),
            };
            columns.groups.push(job.group_key().map(|group| group.as_str()));
            columns.costs.push(job.cost().map(|cost| cost as i32));
            columns.start_by_us.push(by_us);
            columns.start_within_us.push(within_us);
            columns.unique_keys.push(stored_key(job));
            columns.unique_whiles.push(stored_while(job));
            let for_ms = job.unique().and_then(|unique| unique.for_ms);
            columns.unique_for_us.push(for_ms.map(|ms| ms.saturating_mul(1_000)));
            columns.unique_shown.push(job.unique().and_then(|unique| serde_json::to_string(unique).ok()));
            columns.watches.push(job.watch().stored());
            columns.notifies.push(job.notify().map(|hook| hook.as_str()));
            columns.traces.push(job.trace().map(|trace| trace.stored_text()));
        }
        columns
    }
}
