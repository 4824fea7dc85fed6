//! enqueue: – → queued. Calls that arrive together share a commit; each is stored as a whole or not at all.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use jiff::Timestamp;
use tokio::time::timeout;
use tokio_postgres::types::ToSql;
use tokio_postgres::{GenericClient, Statement};
use uuid::Uuid;

use super::batch::Flush;
use super::core::Core;
use super::error::{self, DbError, Effect, Retries};
use super::known::{Holders, Probe, digest_of};
use super::row;
use crate::job::{JobRecord, NewJob, Start};
use crate::planted::{Bug, planted};
use crate::store::{EnqueueAnswer, Enqueued, KeyTaken, StoreError, StoreErrorKind};

/// 2 calls of a batch may wait for a lock by themselves. If there are more, the calls behind them are not made to wait
/// for each in turn.
const LOCK_TIMEOUTS_MAX: usize = 2;

/// Stores what has gathered.
pub(super) struct EnqueueFlush(pub(super) Arc<Core>);

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
        let mut answers: Vec<Option<Result<EnqueueAnswer, StoreError>>> = calls.iter().map(|_| None).collect();
        // Calls whose key another call of the batch wants too. Which of them gets it is only known once that one is stored.
        let mut later = vec![false; calls.len()];
        while answers.iter().any(Option::is_none) {
            let mut open: Vec<usize> =
                (0..calls.len()).filter(|call| answers[*call].is_none() && !later[*call]).collect();
            if open.is_empty() {
                later.fill(false);
                open = (0..calls.len()).filter(|call| answers[*call].is_none()).collect();
            }
            let all: Vec<&NewJob> = open.iter().flat_map(|call| &calls[*call]).collect();
            match self.store(&all).await {
                Ok(Ok(stored)) => {
                    let mut stored = stored.into_iter();
                    for call in open {
                        answers[call] = Some(Ok(Ok(stored.by_ref().take(calls[call].len()).collect())));
                    }
                }
                Ok(Err(taken)) => {
                    let mut first = 0;
                    for call in open {
                        let range = first..first + calls[call].len();
                        first = range.end;
                        let of_call = taken.iter().filter(|taken| range.contains(&taken.index));
                        let of_call: Vec<_> =
                            of_call.map(|taken| KeyTaken { index: taken.index - range.start, ..*taken }).collect();
                        let is_of_another_call = |taken: &KeyTaken| {
                            all.iter().enumerate().any(|(n, job)| job.id() == taken.by && !range.contains(&n))
                        };
                        if of_call.iter().any(is_of_another_call) {
                            later[call] = true;
                        } else if !of_call.is_empty() {
                            answers[call] = Some(Ok(Err(of_call)));
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

/// A row that cannot be stored, or a key in a transaction that somebody keeps open. Not if an earlier try may have
/// stored the batch: then the lock is its own, and what is stored must not be said to be refused.
fn is_of_one_call(error: &StoreError) -> bool {
    let may_be_stored = error.kind() == StoreErrorKind::OutcomeUnknown && !planted(Bug::OutcomeForgotten);
    !may_be_stored && (error.kind() == StoreErrorKind::Rejected || error::is_lock_timeout(error))
}

impl EnqueueFlush {
    async fn one_by_one(&self, calls: impl Iterator<Item = &Vec<NewJob>>) -> Vec<Result<EnqueueAnswer, StoreError>> {
        let (mut answers, mut lock_timeouts) = (Vec::new(), Vec::new());
        for call in calls {
            if let Some(error) = lock_timeouts.get(LOCK_TIMEOUTS_MAX - 1) {
                answers.push(Err(StoreError::clone(error)));
                continue;
            }
            let answer = self.store(&call.iter().collect::<Vec<_>>()).await;
            lock_timeouts.extend(answer.as_ref().err().filter(|error| error::is_lock_timeout(error)).cloned());
            answers.push(answer);
        }
        answers
    }

    async fn store(&self, jobs: &[&NewJob]) -> Result<EnqueueAnswer, StoreError> {
        // An id is only ever used once, so a call whose answer was lost can be sent again: what it stored is known by it.
        let mut retries = Retries::new(Self::VERB, Effect::Repeatable);
        let answer = loop {
            match self.try_store(jobs).await {
                Ok(answer) => break answer,
                Err(error) => retries.again(error).await?,
            }
        };
        let new = answer.iter().flatten().filter(|one| one.created).map(|one| &one.job);
        self.0.lanes.lower(new.clone().map(Into::into));
        if new.clone().any(|job| job.run_at <= job.created_at) {
            self.0.notifier.notify();
        }
        Ok(answer)
    }

    async fn try_store(&self, jobs: &[&NewJob]) -> Result<EnqueueAnswer, DbError> {
        let mut connection = self.0.pool.get().await?;
        let limit = connection.timeout();
        let work = async {
            let statements = EnqueueStatements {
                enqueue: connection.prepare_cached(&self.0.sql.enqueue).await?,
                known: connection.prepare_cached(&self.0.sql.known).await?,
                get: connection.prepare_cached(&self.0.sql.get).await?,
            };
            if jobs.iter().all(|job| job.idempotency_key().is_none()) {
                return store(&***connection, &statements, jobs).await;
            }
            let transaction = connection.transaction().await?;
            let answer = store(&*transaction, &statements, jobs).await?;
            match &answer {
                Ok(_) => transaction.commit().await?,
                Err(_) => transaction.rollback().await?,
            }
            Ok(answer)
        };
        let answer = timeout(limit, work).await;
        connection.finish(answer)
    }
}

/// What [`store`] needs prepared.
pub(super) struct EnqueueStatements {
    pub(super) enqueue: Statement,
    pub(super) known: Statement,
    pub(super) get: Statement,
}

/// Stores the jobs; the answers are in their order. If keys are taken, the caller has to roll back.
pub(super) async fn store(
    client: &impl GenericClient,
    statements: &EnqueueStatements,
    jobs: &[&NewJob],
) -> Result<EnqueueAnswer, DbError> {
    let columns = Columns::of(jobs);
    let mut stored = Stored::with_capacity(jobs.len());
    for row in client.query(&statements.enqueue, &columns.params()).await? {
        stored.insert(row.try_get(0)?, (row.try_get(1)?, row.try_get(2)?));
    }
    let missing: Vec<&NewJob> = jobs.iter().copied().filter(|job| !stored.contains_key(job.id().as_uuid())).collect();
    let mut holders = Holders::default();
    let mut records = HashMap::new();
    if !missing.is_empty() {
        let probe = Probe::of(&missing);
        for row in client.query(&statements.known, &[&probe.ids, &probe.keys, &probe.digests]).await? {
            holders.insert(row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
        }
        if let Some(ids) = holders.ids_if_none_is_taken() {
            for row in client.query(&statements.get, &[&ids]).await? {
                records.insert(row.try_get(0)?, row::job(&row)?);
            }
        }
    }
    answer(jobs, &stored, &holders, &records)
}

/// `run_at` and `created_at` of the jobs that are new.
pub(super) type Stored = HashMap<Uuid, (Timestamp, Timestamp)>;

/// From what the three statements said.
pub(super) fn answer(
    jobs: &[&NewJob],
    stored: &Stored,
    holders: &Holders,
    records: &HashMap<Uuid, JobRecord>,
) -> Result<EnqueueAnswer, DbError> {
    let taken = holders.taken(jobs);
    if !taken.is_empty() {
        return Ok(Err(taken));
    }
    let answers = jobs.iter().map(|job| {
        let id = job.id();
        if let Some((run_at, created_at)) = stored.get(id.as_uuid()) {
            return Ok(Enqueued { created: true, job: job.as_stored(*run_at, *created_at) });
        }
        match holders.of(job).and_then(|holder| records.get(&holder)) {
            Some(known) => Ok(Enqueued { created: known.id == id, job: known.clone() }),
            None => Err(DbError::moved("a key was taken, and free again a moment later")),
        }
    });
    answers.collect::<Result<_, _>>().map(Ok)
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
}

impl<'a> Columns<'a> {
    pub(super) fn of(jobs: &[&'a NewJob]) -> Self {
        let mut jobs = jobs.to_vec();
        // In one order everywhere, so that two processes with the same keys wait for each other and not in a circle.
        jobs.sort_by_key(|job| (job.idempotency_key(), job.id()));
        let mut columns = Self::default();
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
}
