//! explain: what decides whether a job starts, read in one snapshot. What follows from it is said by `job::explain`.

use rusqlite::{Connection, OptionalExtension, params};

use super::jobs::job_with_id;
use super::limits::{self, fact, group_settings, queue_settings, rate, used};
use super::options::mark;
use super::queue_counts::SharedCounts;
use super::row::{UuidBlob, micros, timestamp};
use super::stats;
use crate::job::{Ahead, JobFacts, JobId, LimitScope, QueueFacts, QueueName, Rate, Status};
use crate::store::{QueueLimits, StatsRequest};

/// 1,000 jobs that come first are counted, then it is "at least".
const AHEAD_MAX: i64 = 1_000;

pub(super) fn explain(connection: &Connection, id: JobId, now_micros: i64) -> rusqlite::Result<Option<JobFacts>> {
    let snapshot = connection.unchecked_transaction()?;
    let Some(job) = job_with_id(&snapshot, id)? else { return Ok(None) };
    let mut facts = JobFacts::new(job, timestamp(now_micros));
    let (queue, kind) = (facts.job.queue.clone(), facts.job.kind.clone());
    let cost = facts.job.cost.unwrap_or(1);
    let QueueLimits { settings, paused, .. } = limits::queue(&snapshot, &queue, now_micros)?;
    facts.queue_paused = paused;
    let (queue, kind) = (queue.as_str(), kind.as_str());
    let of_queue = settings.unwrap_or_default();
    let mut found = Vec::new();
    let mut add = |scope: LimitScope, name: &str, group: &str, limit: Option<u32>, rate: Option<Rate>| {
        if limit.is_some() || rate.is_some() {
            let used = used(&snapshot, scope, name, group)?;
            let shown = if scope == LimitScope::Group { group } else { name };
            found.push(fact(scope, shown, limit, rate, used, now_micros, cost));
        }
        rusqlite::Result::<()>::Ok(())
    };
    add(LimitScope::Queue, queue, "", of_queue.concurrency, of_queue.rate)?;
    let of_kind = snapshot
        .prepare_cached("SELECT concurrency, rate_limit, rate_per_us, rate_burst FROM kinds WHERE kind = ?1")?
        .query_row([kind], |row| Ok((row.get(0)?, rate(row, 1)?)))
        .optional()?;
    if let Some((concurrency, rate)) = of_kind {
        add(LimitScope::Kind, kind, "", concurrency, rate)?;
    }
    let group = facts.job.group_key.clone();
    if let Some(group) = &group {
        let own = group_settings(&snapshot, queue, group.as_str())?.unwrap_or_default();
        let each = queue_settings(&snapshot, queue)?.and_then(|settings| settings.groups).unwrap_or_default();
        let (concurrency, rate) = (own.concurrency.or(each.concurrency), own.rate.or(each.rate));
        add(LimitScope::Group, queue, group.as_str(), concurrency, rate)?;
        facts.group_paused = own.paused;
    }
    facts.limits = found;
    (facts.behind, facts.ahead) = ahead(&snapshot, &facts)?;
    Ok(Some(facts))
}

const IN_STRICT_GROUP: &str = "
SELECT id FROM jobs INDEXED BY jobs_strict
WHERE group_key IS NOT NULL AND finished_at IS NULL AND coalesce(marks, 0) & 8 <> 0
  AND queue = ?1 AND group_key = ?2 AND seq < ?3 ORDER BY seq LIMIT ?4";

const IN_GROUP: &str = "
SELECT count(*) FROM (
    SELECT 1 FROM jobs INDEXED BY jobs_ready_grouped
    WHERE group_key IS NOT NULL AND lease_expires_at IS NULL AND finished_at IS NULL AND coalesce(marks, 0) & 8 = 0
      AND queue = ?1 AND kind = ?2 AND priority = ?3 AND group_key = ?4 AND (run_at, id) < (?5, ?6) LIMIT ?7)";

const IN_LANE: &str = "
SELECT count(*) FROM (
    SELECT 1 FROM jobs INDEXED BY jobs_ready
    WHERE lease_expires_at IS NULL AND finished_at IS NULL AND group_key IS NULL
      AND queue = ?1 AND kind = ?2 AND priority = ?3 AND (run_at, id) < (?4, ?5) LIMIT ?6)";

/// The job of its strict group that comes first, and how many come before it in its lane.
fn ahead(connection: &Connection, facts: &JobFacts) -> rusqlite::Result<(Option<JobId>, Ahead)> {
    let job = &facts.job;
    let (queue, kind, id) = (job.queue.as_str(), job.kind.as_str(), UuidBlob::from(job.id));
    let counted = |n: i64| Ahead::new(n.clamp(0, AHEAD_MAX) as u64, n > AHEAD_MAX);
    let Some(group) = &job.group_key else {
        let params = params![queue, kind, job.priority, micros(job.run_at), id, AHEAD_MAX + 1];
        let n = connection.prepare_cached(IN_LANE)?.query_row(params, |row| row.get(0))?;
        return Ok((None, counted(n)));
    };
    let (seq, marks): (i64, Option<i64>) = connection
        .prepare_cached("SELECT seq, marks FROM jobs WHERE id = ?1")?
        .query_row([id], |row| Ok((row.get(0)?, row.get(1)?)))?;
    if marks.unwrap_or(0) & mark::STRICT == 0 {
        let params = params![queue, kind, job.priority, group.as_str(), micros(job.run_at), id, AHEAD_MAX + 1];
        let n = connection.prepare_cached(IN_GROUP)?.query_row(params, |row| row.get(0))?;
        return Ok((None, counted(n)));
    }
    let mut statement = connection.prepare_cached(IN_STRICT_GROUP)?;
    let before: Vec<UuidBlob> = statement
        .query_map(params![queue, group.as_str(), seq, AHEAD_MAX + 1], |row| row.get(0))?
        .collect::<rusqlite::Result<_>>()?;
    Ok((before.first().map(|id| JobId::from(id.0)), counted(before.len() as i64)))
}

pub(super) fn explain_queue(
    connection: &Connection,
    counts: &SharedCounts,
    queue: &QueueName,
    now_micros: i64,
) -> rusqlite::Result<QueueFacts> {
    let QueueLimits { settings, paused, usage } = limits::queue(connection, queue, now_micros)?;
    let stats = stats::stats(connection, counts, &StatsRequest::of([queue.clone()]), now_micros)?;
    let mut facts = QueueFacts::new(queue.clone(), timestamp(now_micros));
    facts.paused = paused;
    facts.limit = settings.filter(|s| s.concurrency.is_some() || s.rate.is_some()).map(|_| usage);
    if let Some(stats) = stats.queues.get(queue) {
        let count = |status| stats.counts.get(&status).copied().unwrap_or_default();
        facts.waiting = count(Status::Queued) + count(Status::Retrying);
        facts.running = count(Status::Running);
        facts.oldest_ready = stats.oldest_ready.map(|age| timestamp(now_micros - age.as_micros() as i64));
    }
    Ok(facts)
}
