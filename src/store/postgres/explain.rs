//! explain: what decides whether a job starts, read in one statement, and then who would run it. What follows from it is said by `job::explain`.

use tokio_postgres::Row;
use uuid::Uuid;

use super::core::{Core, decode};
use super::error::Effect;
use super::limits::{self, Used, next_at, rate};
use super::row::{self, JOB_COLUMN_COUNT};
use super::stats;
use super::timestamp::PgTimestamp;
use super::worker_list;
use crate::job::{Ahead, JobFacts, JobId, LimitFact, LimitScope, QueueFacts, QueueName, Status, WorkerFacts};
use crate::store::{QueueLimits, StatsRequest, StoreError};

/// 1,000 jobs that come first are counted, then it is "at least".
const AHEAD_MAX: i64 = 1_000;

pub(super) const EXPLAIN: &str = "\
-- explain: what decides whether a job starts
SELECT JOB_COLUMNS,
       now(),
       EXISTS (SELECT FROM SCHEMA.paused_queues p WHERE p.queue = j.queue),
       coalesce(g.paused, false),
       s.concurrency, s.rate_limit, s.rate_per_us, s.rate_burst, coalesce(uq.running, 0), uq.tat,
       k.concurrency, k.rate_limit, k.rate_per_us, k.rate_burst, coalesce(uk.running, 0), uk.tat,
       coalesce(g.concurrency, s.group_concurrency),
       CASE WHEN g.rate_limit IS NOT NULL THEN g.rate_limit ELSE s.group_rate_limit END,
       CASE WHEN g.rate_limit IS NOT NULL THEN g.rate_per_us ELSE s.group_rate_per_us END,
       CASE WHEN g.rate_limit IS NOT NULL THEN g.rate_burst ELSE s.group_rate_burst END,
       coalesce(ug.running, 0), ug.tat,
       -- The one that runs, which may be younger than a redriven job, else the first that was enqueued before.
       coalesce(
           (SELECT h.id FROM SCHEMA.jobs h
            WHERE h.queue = j.queue AND h.running_group = j.group_key AND j.group_seq IS NOT NULL AND h.id <> j.id),
           (SELECT h.id FROM SCHEMA.jobs h
            WHERE h.finished_at IS NULL AND h.group_seq IS NOT NULL AND h.queue = j.queue AND h.group_key = j.group_key
              AND h.group_seq < j.group_seq
            ORDER BY h.group_seq LIMIT 1)),
       CASE WHEN j.group_seq IS NOT NULL
            THEN (SELECT count(*) FROM (SELECT FROM SCHEMA.jobs h
                  WHERE h.finished_at IS NULL AND h.group_seq IS NOT NULL AND h.queue = j.queue
                    AND h.group_key = j.group_key AND h.group_seq < j.group_seq LIMIT $2) c)
            WHEN j.group_key IS NOT NULL
            THEN (SELECT count(*) FROM (SELECT FROM SCHEMA.jobs h
                  WHERE h.finished_at IS NULL AND h.group_key IS NOT NULL AND h.group_seq IS NULL
                    AND h.lease_expires_at IS NULL AND h.queue = j.queue AND h.kind = j.kind
                    AND h.priority = j.priority AND h.group_key = j.group_key AND (h.run_at, h.id) < (j.run_at, j.id)
                  LIMIT $2) c)
            ELSE (SELECT count(*) FROM (SELECT FROM SCHEMA.jobs h
                  WHERE h.finished_at IS NULL AND h.group_key IS NULL AND h.lease_expires_at IS NULL
                    AND h.queue = j.queue AND h.kind = j.kind AND h.priority = j.priority
                    AND (h.run_at, h.id) < (j.run_at, j.id)
                  LIMIT $2) c)
       END
FROM SCHEMA.jobs j
LEFT JOIN SCHEMA.queue_settings s ON s.queue = j.queue
LEFT JOIN SCHEMA.kinds k ON k.kind = j.kind
LEFT JOIN SCHEMA.group_settings g ON g.queue = j.queue AND g.group_key = j.group_key
LEFT JOIN SCHEMA.usage uq ON uq.scope = 'queue' AND uq.name = j.queue AND uq.grp = ''
LEFT JOIN SCHEMA.usage uk ON uk.scope = 'kind' AND uk.name = j.kind AND uk.grp = ''
LEFT JOIN SCHEMA.usage ug ON ug.scope = 'group' AND ug.name = j.queue AND ug.grp = j.group_key
WHERE j.id = $1";

pub(super) async fn explain(core: &Core, id: JobId) -> Result<Option<JobFacts>, StoreError> {
    let rows = core.query("explain", Effect::Repeatable, &core.sql.explain, &[id.as_uuid(), &(AHEAD_MAX + 1)]).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    let mut facts = decode("explain", facts(row))?;
    if facts.job.status.is_ready() {
        let seen = worker_list::seen_lately(core).await?;
        facts.workers = Some(WorkerFacts::among(&seen, facts.job.queue.as_str(), Some(facts.job.kind.as_str())));
    }
    Ok(Some(facts))
}

fn facts(row: &Row) -> Result<JobFacts, tokio_postgres::Error> {
    let first = JOB_COLUMN_COUNT;
    let now: PgTimestamp = row.try_get(first)?;
    let mut facts = JobFacts::new(row::job(row)?, now.timestamp());
    facts.queue_paused = row.try_get(first + 1)?;
    facts.group_paused = row.try_get(first + 2)?;
    let scopes = [
        (LimitScope::Queue, Some(facts.job.queue.as_str())),
        (LimitScope::Kind, Some(facts.job.kind.as_str())),
        (LimitScope::Group, facts.job.group_key.as_ref().map(|group| group.as_str())),
    ];
    let cost = facts.job.cost.unwrap_or(1);
    let mut limits = Vec::new();
    for (n, (scope, name)) in scopes.into_iter().enumerate() {
        let (Some(name), at) = (name, first + 3 + 6 * n) else { continue };
        limits.extend(limit(row, at, scope, name, cost, now)?);
    }
    facts.limits = limits;
    facts.behind = row.try_get::<_, Option<Uuid>>(first + 21)?.map(row::id);
    let ahead: i64 = row.try_get(first + 22)?;
    facts.ahead = Ahead::new(ahead.clamp(0, AHEAD_MAX) as u64, ahead > AHEAD_MAX);
    Ok(facts)
}

/// The limit whose six columns begin here, if there is one.
fn limit(
    row: &Row,
    at: usize,
    scope: LimitScope,
    name: &str,
    cost: u32,
    now: PgTimestamp,
) -> Result<Option<LimitFact>, tokio_postgres::Error> {
    let concurrency = row.try_get::<_, Option<i32>>(at)?.map(row::count);
    let rate = rate(row, at + 1)?;
    if concurrency.is_none() && rate.is_none() {
        return Ok(None);
    }
    let used = Used { running: row.try_get(at + 4)?, tat: row.try_get(at + 5)? };
    let mut fact = limits::used(scope, name, concurrency, rate, used, now);
    fact.next_at = rate.and_then(|rate| next_at(rate, used.tat, now, cost));
    Ok(Some(fact))
}

pub(super) async fn explain_queue(core: &Core, queue: QueueName) -> Result<QueueFacts, StoreError> {
    let QueueLimits { settings, paused, usage } = limits::queue(core, queue.clone()).await?;
    let stats = stats::stats(core, StatsRequest::of([queue.clone()])).await?;
    let now = core.now().await?;
    let mut facts = QueueFacts::new(queue.clone(), now);
    facts.paused = paused;
    facts.limit = settings.filter(|s| s.concurrency.is_some() || s.rate.is_some()).map(|_| usage);
    if let Some(stats) = stats.queues.get(&queue) {
        let count = |status| stats.counts.get(&status).copied().unwrap_or_default();
        facts.waiting = count(Status::Queued) + count(Status::Retrying);
        facts.running = count(Status::Running);
        facts.oldest_ready = stats.oldest_ready.and_then(|age| now.checked_sub(age).ok());
    }
    let seen = worker_list::seen_lately(core).await?;
    facts.workers = Some(WorkerFacts::among(&seen, queue.as_str(), None));
    Ok(facts)
}
