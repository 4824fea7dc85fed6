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
use super::row;
use super::trouble::{self, Effect, Tries, Trouble};
use crate::job::{JobRecord, NewJob, Start};
use crate::planted::{Bug, planted};
use crate::store::{Enqueued, StoreError, StoreErrorKind};

/// 2 calls of a batch may wait for a lock by themselves. If there are more, the calls behind them are not made to wait
/// for each in turn.
const LOCK_TIMEOUTS_MAX: usize = 2;

/// Stores what has gathered.
pub(super) struct EnqueueFlush(pub(super) Arc<Core>);

#[async_trait]
impl Flush for EnqueueFlush {
    type Call = Vec<NewJob>;
    type Answer = Vec<Enqueued>;
    const DOING: &'static str = "enqueue";
    // While one waits for the disk, the next is made.
    const IN_FLIGHT: usize = 2;

    fn weight(call: &Vec<NewJob>) -> usize {
        call.len()
    }

    async fn flush(&self, calls: Vec<Vec<NewJob>>) -> Vec<Result<Vec<Enqueued>, StoreError>> {
        let all: Vec<&NewJob> = calls.iter().flatten().collect();
        match self.store(&all).await {
            Ok(mut enqueued) => {
                let answers = calls.iter().map(|call| Ok(enqueued.drain(..call.len()).collect()));
                answers.collect()
            }
            Err(error) if calls.len() > 1 && is_of_one_call(&error) => self.one_by_one(&calls).await,
            Err(error) => calls.iter().map(|_| Err(error.clone())).collect(),
        }
    }
}

/// A row that cannot be stored, or a key in a transaction that somebody keeps open.
fn is_of_one_call(error: &StoreError) -> bool {
    error.kind() == StoreErrorKind::Rejected || trouble::is_lock_timeout(error)
}

impl EnqueueFlush {
    async fn one_by_one(&self, calls: &[Vec<NewJob>]) -> Vec<Result<Vec<Enqueued>, StoreError>> {
        let (mut answers, mut lock_timeouts) = (Vec::with_capacity(calls.len()), Vec::new());
        for call in calls {
            if let Some(error) = lock_timeouts.get(LOCK_TIMEOUTS_MAX - 1) {
                answers.push(Err(StoreError::clone(error)));
                continue;
            }
            let answer = self.store(&call.iter().collect::<Vec<_>>()).await;
            lock_timeouts.extend(answer.as_ref().err().filter(|error| trouble::is_lock_timeout(error)).cloned());
            answers.push(answer);
        }
        answers
    }

    async fn store(&self, jobs: &[&NewJob]) -> Result<Vec<Enqueued>, StoreError> {
        // An id is only ever used once, so a call whose answer was lost can be sent again: what it stored is known by it.
        let mut tries = Tries::new(Self::DOING, Effect::Repeatable);
        let mut sql = &self.0.sql.enqueue;
        let enqueued = loop {
            match self.try_store(jobs, sql).await {
                Ok(enqueued) => break enqueued,
                Err(trouble) => {
                    sql = if trouble.is_unknown() { &self.0.sql.enqueue_again } else { sql };
                    tries.again(trouble).await?;
                }
            }
        };
        let new = enqueued.iter().filter(|one| one.created).map(|one| &one.job);
        self.0.lanes.lower(new.clone().map(Into::into));
        if new.clone().any(|job| job.run_at <= job.created_at) {
            self.0.bell.ring();
        }
        Ok(enqueued)
    }

    async fn try_store(&self, jobs: &[&NewJob], sql: &str) -> Result<Vec<Enqueued>, Trouble> {
        let mut link = self.0.pool.get().await?;
        let patience = link.patience();
        let work = async {
            let statements = Statements {
                enqueue: link.prepare_cached(sql).await?,
                known: link.prepare_cached(&self.0.sql.enqueue_known).await?,
            };
            if jobs.iter().all(|job| job.idempotency_key().is_none()) {
                return store(&***link, &statements, jobs).await;
            }
            let transaction = link.transaction().await?;
            let enqueued = store(&*transaction, &statements, jobs).await?;
            transaction.commit().await?;
            Ok(enqueued)
        };
        let answer = timeout(patience, work).await;
        link.finish(answer)
    }
}

/// What [`store`] needs prepared.
pub(super) struct Statements {
    pub(super) enqueue: Statement,
    pub(super) known: Statement,
}

/// Stores the jobs; the answers are in their order.
pub(super) async fn store(
    client: &impl GenericClient,
    statements: &Statements,
    jobs: &[&NewJob],
) -> Result<Vec<Enqueued>, Trouble> {
    let columns = Columns::of(jobs);
    let mut stored: HashMap<Uuid, (Timestamp, Timestamp)> = HashMap::with_capacity(jobs.len());
    for row in client.query(&statements.enqueue, &columns.params()).await? {
        stored.insert(row.try_get(0)?, (row.try_get(1)?, row.try_get(2)?));
    }
    let known =
        if stored.len() < jobs.len() { known(client, statements, jobs, &stored).await? } else { Known::default() };
    let answers = jobs.iter().map(|job| {
        if let Some((run_at, created_at)) = stored.get(job.id().as_uuid()) {
            return Ok(Enqueued { created: true, job: job.as_stored(*run_at, *created_at) });
        }
        let by_key = job.idempotency_key().and_then(|key| known.by_key.get(key));
        match by_key.or_else(|| known.by_id.get(job.id().as_uuid())) {
            Some(known) => Ok(Enqueued { created: known.id == job.id(), job: known.clone() }),
            None => Err(Trouble::moved("a key was taken, and free again a moment later")),
        }
    });
    answers.collect()
}

/// Jobs that were there before.
#[derive(Default)]
struct Known {
    by_id: HashMap<Uuid, JobRecord>,
    by_key: HashMap<String, JobRecord>,
}

async fn known(
    client: &impl GenericClient,
    statements: &Statements,
    jobs: &[&NewJob],
    stored: &HashMap<Uuid, (Timestamp, Timestamp)>,
) -> Result<Known, Trouble> {
    let missing: Vec<_> = jobs.iter().filter(|job| !stored.contains_key(job.id().as_uuid())).collect();
    let ids: Vec<Uuid> = missing.iter().map(|job| *job.id().as_uuid()).collect();
    let keys: Vec<&str> = missing.iter().filter_map(|job| job.idempotency_key()).collect();
    let mut known = Known::default();
    for row in client.query(&statements.known, &[&ids, &keys]).await? {
        let job = row::job(&row)?;
        if let Some(key) = &job.idempotency_key {
            known.by_key.insert(key.clone(), job.clone());
        }
        known.by_id.insert(*job.id.as_uuid(), job);
    }
    Ok(known)
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
        }
        columns
    }

    fn params(&self) -> [&(dyn ToSql + Sync); 10] {
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
        ]
    }
}
