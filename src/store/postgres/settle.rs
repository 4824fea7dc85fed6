//! settle: running → what [`decide`] says, fenced by the lease token. Calls that arrive together share a commit.
//!
//! While a token is live, only `cancel_requested` can change under it. So what decide must know is read first, both
//! answers are worked out, and one statement picks by the flag it finds: no transaction is held open in between.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use deadpool_postgres::Object;
use tokio::time::timeout;
use tokio_postgres::types::ToSql;
use tokio_postgres::{GenericClient, Row, Statement};
use uuid::Uuid;

use super::batch::Flush;
use super::core::{Core, decode};
use super::error::{self, DbError, Effect, Retries};
use super::group_lanes::Waits;
use super::lanes::{Lane, LanePosition};
use super::row;
use crate::job::{
    AttemptOutcome, Ending, Kind, LeaseKey, Outcome, RetryPolicy, RunningJob, Status, Transition, decide,
};
use crate::store::{FailedAttempt, PerItem, Settle, Settled, StoreError, StoreErrorKind};

pub(super) const SETTLE_FACTS: &str = "\
-- settle: what decide needs to know of the attempts that are still held
SELECT j.lease_token, j.attempts, j.max_attempts, k.retry, j.kind, j.queue
FROM unnest($1::uuid[], $2::uuid[]) AS t(id, token)
JOIN SCHEMA.jobs j ON j.id = t.id AND j.lease_token = t.token AND j.lease_expires_at IS NOT NULL
LEFT JOIN SCHEMA.kinds k ON k.kind = j.kind";

pub(super) const SETTLE_ANSWER: &str = "\
-- settle: how the attempts ended that these tokens belong to
SELECT t.token, coalesce(j.outcome, a.outcome)
FROM unnest($1::uuid[], $2::uuid[]) AS t(id, token)
LEFT JOIN SCHEMA.jobs j ON j.id = t.id AND j.lease_token = t.token
LEFT JOIN SCHEMA.attempts a ON a.job_id = t.id AND a.lease_token = t.token
WHERE coalesce(j.outcome, a.outcome) IS NOT NULL";

pub(super) const SETTLE_LOCKED: &str = "\
-- settle: which of these jobs another transaction holds locked, or what they count for
WITH free AS MATERIALIZED (
    SELECT j.id
    FROM unnest($1::uuid[]) AS t(id) JOIN SCHEMA.jobs j ON j.id = t.id
    FOR NO KEY UPDATE OF j SKIP LOCKED
)
-- What a lease counts for is locked with it.
, held AS MATERIALIZED (
    SELECT j.id, u.scope, u.name, u.grp
    FROM unnest($1::uuid[]) AS t(id) JOIN SCHEMA.jobs j ON j.id = t.id AND j.holds IS NOT NULL
        JOIN SCHEMA.usage u ON (u.scope = 'queue' AND u.name = j.queue AND u.grp = '' AND j.holds & 1 <> 0)
            OR (u.scope = 'kind' AND u.name = j.kind AND u.grp = '' AND j.holds & 2 <> 0)
            OR (u.scope = 'group' AND u.name = j.queue AND u.grp = j.group_key AND j.holds & 4 <> 0)
), free_usage AS MATERIALIZED (
    SELECT u.scope, u.name, u.grp
    FROM SCHEMA.usage u JOIN (SELECT DISTINCT h.scope, h.name, h.grp FROM held h) h USING (scope, name, grp)
    FOR NO KEY UPDATE OF u SKIP LOCKED
)
SELECT j.id
FROM unnest($1::uuid[]) AS t(id) JOIN SCHEMA.jobs j ON j.id = t.id
WHERE NOT EXISTS (SELECT FROM free f WHERE f.id = t.id)
   OR EXISTS (SELECT FROM held h WHERE h.id = t.id
              AND NOT EXISTS (SELECT FROM free_usage f WHERE f.scope = h.scope AND f.name = h.name AND f.grp = h.grp))";

/// Settles what has gathered.
pub(super) struct SettleFlush(pub(super) Arc<Core>);

#[async_trait]
impl Flush for SettleFlush {
    type Call = Vec<Settle>;
    type Answer = Vec<Result<Settled, StoreError>>;
    const VERB: &'static str = "settle";
    // While one waits for the disk, the next is made.
    const IN_FLIGHT: usize = 2;

    fn weight(call: &Vec<Settle>) -> usize {
        call.len()
    }

    async fn flush(&self, calls: Vec<Vec<Settle>>) -> Vec<PerItem<Settled>> {
        let lengths: Vec<usize> = calls.iter().map(Vec::len).collect();
        let all: Vec<Settle> = calls.into_iter().flatten().collect();
        match each(&self.0, &all).await {
            Ok(mut settled) => lengths.into_iter().map(|length| Ok(settled.drain(..length).collect())).collect(),
            Err(error) => lengths.iter().map(|_| Err(error.clone())).collect(),
        }
    }
}

/// All at once; one by one if the database refuses one of them; without those that another transaction holds locked.
async fn each(core: &Core, settles: &[Settle]) -> PerItem<Settled> {
    match settle(core, settles).await {
        Ok(settled) => Ok(settled.into_iter().map(Ok).collect()),
        Err(error) if error.kind() == StoreErrorKind::Rejected => {
            let mut answers = Vec::with_capacity(settles.len());
            for one in settles {
                answers.push(settle(core, std::slice::from_ref(one)).await.map(|settled| settled[0]));
            }
            Ok(answers)
        }
        Err(error) if error::is_lock_timeout(&error) => around_locked(core, settles, error).await,
        Err(error) => Err(error),
    }
}

/// The locked ones are answered with the error, to be tried again; the others are settled.
async fn around_locked(core: &Core, settles: &[Settle], error: StoreError) -> PerItem<Settled> {
    let ids: Vec<Uuid> = settles.iter().map(|settle| *settle.lease.job_id.as_uuid()).collect();
    let mut locked = HashSet::new();
    for row in core.query("settle", Effect::Repeatable, &core.sql.settle_locked, &[&ids]).await? {
        locked.insert(row::id(decode("settle", row.try_get(0))?));
    }
    let is_locked = |settle: &&Settle| locked.contains(&settle.lease.job_id);
    let free: Vec<Settle> = settles.iter().filter(|settle| !is_locked(settle)).cloned().collect();
    if free.is_empty() || free.len() == settles.len() {
        return Err(error);
    }
    // Fewer than before, so this comes to an end.
    let mut settled = Box::pin(each(core, &free)).await?.into_iter();
    let answer = |settle| match is_locked(&settle) {
        true => Err(error.clone()),
        false => settled.next().expect("each answers every one"),
    };
    Ok(settles.iter().map(answer).collect())
}

/// One answer per settle, in order.
pub(super) async fn settle(core: &Core, settles: &[Settle]) -> Result<Vec<Settled>, StoreError> {
    // The same settle again gets the same answer.
    let mut retries = Retries::new("settle", Effect::Repeatable);
    loop {
        match try_settle(core, settles).await {
            Ok(settled) => return Ok(settled),
            Err(error) => retries.again(error).await?,
        }
    }
}

async fn try_settle(core: &Core, settles: &[Settle]) -> Result<Vec<Settled>, DbError> {
    let connection = core.pool.get().await?;
    let work = async {
        let facts = facts(core, &connection, settles).await?;
        let written = write(core, &connection, settles, &facts).await?;
        let mut unmatched = Vec::new();
        let mut answers = vec![Settled::Recorded; settles.len()];
        let mut counted = HashSet::new();
        for (n, settle) in settles.iter().enumerate() {
            // The first of two for one attempt is the one that was written.
            if !(written.contains(&settle.lease) && counted.insert(settle.lease)) {
                unmatched.push(n);
            }
        }
        if !unmatched.is_empty() {
            let recorded = recorded(core, &connection, unmatched.iter().map(|n| &settles[*n])).await?;
            for n in unmatched {
                let said = settles[n].outcome.recorded_as().as_str();
                let same = recorded.get(settles[n].lease.token.as_uuid()).is_some_and(|outcome| outcome == said);
                answers[n] = if same { Settled::Recorded } else { Settled::Lost };
            }
        }
        Ok(answers)
    };
    let answer = timeout(connection.timeout(), work).await;
    connection.finish(answer)
}

/// What decide needs to know of a held attempt.
struct Fact {
    attempts: u32,
    max_attempts: u32,
    /// As it is stored with the kind.
    retry: Option<RetryPolicy>,
    kind: Kind,
    queue: String,
}

/// Success and cancellation end a job whatever is known of it.
fn needs_facts(outcome: &Outcome) -> bool {
    !matches!(outcome, Outcome::Succeeded(_) | Outcome::Cancelled)
}

async fn facts(core: &Core, connection: &Object, settles: &[Settle]) -> Result<HashMap<Uuid, Fact>, DbError> {
    let asked = settles.iter().filter(|settle| needs_facts(&settle.outcome));
    let (ids, tokens): (Vec<Uuid>, Vec<Uuid>) =
        asked.map(|settle| (settle.lease.job_id.as_uuid(), settle.lease.token.as_uuid())).unzip();
    if ids.is_empty() {
        return Ok(HashMap::new());
    }
    let statement = connection.prepare_cached(&core.sql.settle_facts).await?;
    let mut facts = HashMap::with_capacity(ids.len());
    for row in connection.query(&statement, &[&ids, &tokens]).await? {
        let retry: Option<&str> = row.try_get(3)?;
        let fact = Fact {
            attempts: row::count(row.try_get(1)?),
            max_attempts: row::count(row.try_get(2)?),
            retry: retry.and_then(|text| serde_json::from_str(text).ok()),
            kind: row::kind(row.try_get(4)?),
            queue: row.try_get(5)?,
        };
        facts.insert(row.try_get(0)?, fact);
    }
    Ok(facts)
}

/// Writes what can be written and answers which leases those were.
async fn write(
    core: &Core,
    connection: &Object,
    settles: &[Settle],
    facts: &HashMap<Uuid, Fact>,
) -> Result<HashSet<LeaseKey>, DbError> {
    if settles.iter().any(|settle| settle.outcome.recorded_as().has_error()) {
        core.error_groups.refresh(core, &***connection).await?;
    }
    let (mut endings, mut failures) = (Endings::default(), Vec::new());
    for settle in settles {
        let fact = facts.get(settle.lease.token.as_uuid());
        if fact.is_none() && needs_facts(&settle.outcome) {
            continue;
        }
        let (attempts, max_attempts) = fact.map_or((1, 1), |fact| (fact.attempts, fact.max_attempts));
        let stored = fact.and_then(|fact| fact.retry.as_ref());
        let kind = fact.map_or("", |fact| fact.kind.as_str());
        let retry = core.retry.or_stored(stored, kind);
        let ending = Ending::Reported(&settle.outcome);
        let running = RunningJob { kind, jitter: fastrand::f64(), ..RunningJob::new(attempts, max_attempts, retry) };
        let (mut to, to_if_cancelling) =
            (decide(ending, running), decide(ending, RunningJob { cancel_requested: true, ..running }));
        core.error_groups.admit(&mut to, kind, fact.map_or("", |fact| fact.queue.as_str()));
        let failed = fact.zip(to.error.as_ref()).map(|(fact, error)| FailedAttempt {
            job_id: settle.lease.job_id,
            kind: fact.kind.clone(),
            attempt: attempts,
            recorded: to.recorded,
            to: to.to,
            error: error.logged().to_owned(),
        });
        if endings.add(settle.lease, to, to_if_cancelling, attempts) {
            failures.extend(failed.map(|failed| (settle.lease, failed)));
        }
    }
    if endings.is_empty() {
        return Ok(HashSet::new());
    }
    let written = if endings.are_successes() {
        let statement = connection.prepare_cached(&core.sql.settle_succeeded).await?;
        endings.write_successes(&***connection, &statement).await?
    } else {
        let statement = connection.prepare_cached(&core.sql.settle).await?;
        endings.write(&***connection, &statement).await?
    };
    written.announce(core)?;
    for (lease, failed) in failures {
        written.log(lease, failed);
    }
    Ok(written.leases)
}

/// How the attempts ended that these settles speak of, by token.
async fn recorded<'a>(
    core: &Core,
    connection: &Object,
    settles: impl Iterator<Item = &'a Settle>,
) -> Result<HashMap<Uuid, String>, DbError> {
    let (ids, tokens): (Vec<Uuid>, Vec<Uuid>) =
        settles.map(|settle| (settle.lease.job_id.as_uuid(), settle.lease.token.as_uuid())).unzip();
    let statement = connection.prepare_cached(&core.sql.settle_answer).await?;
    let rows = connection.query(&statement, &[&ids, &tokens]).await?;
    rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).collect()
}

/// Attempts that end, as columns of the statement that writes them. For settle and for reap.
#[derive(Default)]
pub(super) struct Endings {
    seen: HashSet<LeaseKey>,
    rows: Vec<EndingRow>,
}

struct EndingRow {
    lease: LeaseKey,
    to: Transition,
    to_if_cancelling: Status,
    given_back: i32,
}

impl Endings {
    /// What becomes of the job, without and with a cancel request; `attempts` is what the count stands at now. `false`:
    /// the lease had been spoken for.
    pub(super) fn add(&mut self, lease: LeaseKey, to: Transition, to_if_cancelling: Transition, attempts: u32) -> bool {
        let is_first = self.seen.insert(lease);
        if is_first {
            let given_back = attempts.saturating_sub(to.attempts) as i32;
            self.rows.push(EndingRow { lease, to_if_cancelling: to_if_cancelling.to, given_back, to });
        }
        is_first
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Whether all of them are successes and nothing else follows from any, whether or not it was to be cancelled.
    fn are_successes(&self) -> bool {
        self.rows.iter().all(|row| {
            let Transition { to, recorded, error, run_in, .. } = &row.to;
            *to == Status::Succeeded
                && row.to_if_cancelling == Status::Succeeded
                && *recorded == AttemptOutcome::Succeeded
                && (row.given_back, error, run_in) == (0, &None, &None)
        })
    }

    /// With the statement for successes, which takes a third of the columns.
    async fn write_successes(
        mut self,
        client: &impl GenericClient,
        statement: &Statement,
    ) -> Result<WrittenEndings, tokio_postgres::Error> {
        let (ids, tokens) = self.sorted_leases();
        let row = client.query_one(statement, &[&ids, &tokens, &self.results()]).await?;
        let mut written = WrittenEndings::default();
        written.read_leases(&row)?;
        written.freed = row.try_get(2)?;
        Ok(written)
    }

    /// In one order everywhere, so that two processes cannot wait for each other.
    fn sorted_leases(&mut self) -> (Vec<Uuid>, Vec<Uuid>) {
        self.rows.sort_by_key(|row| row.lease.job_id);
        self.rows.iter().map(|row| (row.lease.job_id.as_uuid(), row.lease.token.as_uuid())).unzip()
    }

    fn results(&self) -> Vec<Option<&str>> {
        self.rows.iter().map(|row| row.to.result.as_ref().map(|json| json.as_str())).collect()
    }

    pub(super) async fn write(
        mut self,
        client: &impl GenericClient,
        statement: &Statement,
    ) -> Result<WrittenEndings, tokio_postgres::Error> {
        let (ids, tokens) = self.sorted_leases();
        let recorded: Vec<&str> = self.rows.iter().map(|row| row.to.recorded.as_str()).collect();
        let to: Vec<&str> = self.rows.iter().map(|row| row.to.to.as_str()).collect();
        let to_if_cancelling: Vec<&str> = self.rows.iter().map(|row| row.to_if_cancelling.as_str()).collect();
        let given_back: Vec<i32> = self.rows.iter().map(|row| row.given_back).collect();
        let run_in_us: Vec<i64> =
            self.rows.iter().map(|row| row.to.run_in.map(row::micros).unwrap_or_default()).collect();
        let errors: Vec<Option<&str>> = self.rows.iter().map(|row| row.to.error.as_ref().map(|e| e.as_str())).collect();
        let results = self.results();
        let groups = || self.rows.iter().map(|row| row.to.error_group.as_ref());
        let error_groups: Vec<Option<i64>> = groups().map(|group| Some(group?.fingerprint.as_i64())).collect();
        let titles: Vec<Option<&str>> = groups().map(|group| Some(group?.title.as_str())).collect();
        let params: [&(dyn ToSql + Sync); 11] = [
            &ids,
            &tokens,
            &recorded,
            &to,
            &to_if_cancelling,
            &given_back,
            &run_in_us,
            &errors,
            &results,
            &error_groups,
            &titles,
        ];
        WrittenEndings::read(client.query(statement, &params).await?)
    }
}

/// What the statement that writes endings answers.
#[derive(Default)]
pub(super) struct WrittenEndings {
    leases: HashSet<LeaseKey>,
    /// Tokens of those that ended because they were asked to.
    cancelled: Vec<Uuid>,
    waits_again: Vec<Row>,
    /// Leases of limits that were reached, or of strict groups, have ended.
    freed: bool,
}

impl WrittenEndings {
    fn read(rows: Vec<Row>) -> Result<Self, tokio_postgres::Error> {
        let mut written = Self::default();
        for row in rows {
            if row.try_get::<_, Option<Uuid>>(2)?.is_some() {
                written.waits_again.push(row);
                continue;
            }
            written.read_leases(&row)?;
            written.cancelled = row.try_get::<_, Option<Vec<Uuid>>>(8)?.unwrap_or_default();
            written.freed = row.try_get::<_, Option<bool>>(10)?.unwrap_or_default();
        }
        Ok(written)
    }

    /// From the row that is about all of them; no arrays where nothing was written.
    fn read_leases(&mut self, row: &Row) -> Result<(), tokio_postgres::Error> {
        let (ids, tokens): (Option<Vec<Uuid>>, Option<Vec<Uuid>>) = (row.try_get(0)?, row.try_get(1)?);
        let leases = ids.into_iter().flatten().zip(tokens.into_iter().flatten());
        self.leases.extend(leases.map(|(id, token)| LeaseKey { job_id: id.into(), token: token.into() }));
        Ok(())
    }

    /// Says that an attempt failed, if this is what put it on record.
    fn log(&self, lease: LeaseKey, failed: FailedAttempt) {
        if self.leases.contains(&lease) {
            let cancelled = self.cancelled.contains(lease.token.as_uuid());
            FailedAttempt { to: if cancelled { Status::Cancelled } else { failed.to }, ..failed }.log();
        }
    }

    /// Once it is committed. Jobs that wait again lower the low-water mark of their lane; those that are due wake whoever
    /// waits for work.
    pub(super) fn announce(&self, core: &Core) -> Result<(), DbError> {
        let (mut ready, mut due) = (Vec::new(), false);
        for row in &self.waits_again {
            let lane = Lane { queue: row.try_get(3)?, kind: row.try_get(4)?, priority: row.try_get(5)? };
            let group: Option<&str> = row.try_get(9)?;
            let wait = Duration::from_micros(row.try_get::<_, i64>(7)?.unsigned_abs());
            due |= wait.is_zero();
            let position = (row.try_get(6)?, row.try_get(2)?);
            match group {
                Some(group) => core.groups.lower(&lane, group, (position, wait), Waits::Again),
                None => ready.push(LanePosition(lane, position, wait)),
            }
        }
        core.lanes.lower(ready.into_iter());
        core.checks.ended(self.leases.iter().map(|lease| *lease.token.as_uuid()));
        if self.freed {
            core.groups.wake_held();
        }
        // One that waits for its backoff is found by polling.
        if due || self.freed {
            core.notifier.notify();
        }
        Ok(())
    }
}
