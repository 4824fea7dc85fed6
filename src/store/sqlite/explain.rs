//! explain: what decides whether a job starts, read in one snapshot. What follows from it is said by `job::explain`.

use rusqlite::{Connection, OptionalExtension, params};

use super::gates::LimitKey;
use super::jobs::job_with_id;
use super::lanes::{Group, Lane};
use super::limit_settings::{read_number, read_rate};
use super::limits::{fact, is_paused, queue_in, stored_group, stored_settings, used};
use super::queue_counts::SharedCounts;
use super::row::{UuidBlob, micros, timestamp};
use super::stats::oldest_run_at;
use super::workers::seen_lately;
use crate::job::{
    Ahead, GroupSettings, JobFacts, JobId, JobRecord, LimitFact, QueueFacts, QueueName, Rate, Status, WorkerFacts,
};
use crate::store::QueueLimits;

/// 1,000 jobs that come first are counted, then it is "at least".
const AHEAD_MAX: i64 = 1_000;

/// 10,000 lanes of a queue are looked at for its oldest job.
const LANES_MAX: usize = 10_000;

const LANE: &str = "SELECT seq, queue, kind, priority, group_key, marks FROM jobs WHERE id = ?1";

pub(super) const AHEAD: &str = "
-- explain: jobs that come first in a lane
SELECT count(*) FROM (SELECT 1 FROM jobs INDEXED BY jobs_ready
    WHERE lease_expires_at IS NULL AND finished_at IS NULL AND group_key IS NULL
      AND queue = ?1 AND kind = ?2 AND priority = ?3 AND (run_at, id) < (?4, ?5) LIMIT ?6)";

pub(super) const AHEAD_IN_GROUP: &str = "
-- explain: jobs that come first in a lane of a group
SELECT count(*) FROM (SELECT 1 FROM jobs INDEXED BY jobs_ready_grouped
    WHERE lease_expires_at IS NULL AND finished_at IS NULL AND group_key IS NOT NULL AND coalesce(marks, 0) & 8 = 0
      AND queue = ?1 AND kind = ?2 AND priority = ?3 AND group_key = ?7 AND (run_at, id) < (?4, ?5) LIMIT ?6)";

pub(super) const AHEAD_STRICT: &str = "
-- explain: unfinished jobs that come first in a strict group, the one that runs among them
SELECT id FROM (SELECT id, seq, lease_expires_at IS NULL AS waits FROM jobs INDEXED BY jobs_strict
    WHERE finished_at IS NULL AND group_key IS NOT NULL AND coalesce(marks, 0) & 8 <> 0
      AND queue = ?1 AND group_key = ?2 ORDER BY lease_expires_at IS NULL, seq LIMIT ?4)
WHERE seq < ?3 OR (seq > ?3 AND NOT waits)";

/// What decides whether a job starts.
pub(super) fn explain(connection: &Connection, id: JobId, now_micros: i64) -> rusqlite::Result<Option<JobFacts>> {
    let snapshot = connection.unchecked_transaction()?;
    let Some(job) = job_with_id(&snapshot, id)? else { return Ok(None) };
    let (seq, lane): (i64, Lane) =
        snapshot.prepare_cached(LANE)?.query_row([UuidBlob::from(id)], |row| Ok((row.get(0)?, Lane::read(row, 1)?)))?;
    let own = match lane.group.key() {
        Some(key) => stored_group(&snapshot, &lane.queue, key)?.unwrap_or_default(),
        None => GroupSettings::default(),
    };
    let limits = limits_of(&snapshot, &lane, own, job.cost.unwrap_or(1), now_micros)?;
    let (ahead, behind) = ahead_of(&snapshot, &lane, &job, seq)?;
    let mut facts = JobFacts::new(job, timestamp(now_micros));
    facts.queue_paused = is_paused(&snapshot, &lane.queue)?;
    facts.group_paused = own.paused;
    facts.limits = limits;
    facts.behind = behind;
    facts.ahead = Ahead::new(ahead.clamp(0, AHEAD_MAX) as u64, ahead > AHEAD_MAX);
    if facts.job.status.is_ready() {
        let seen = seen_lately(&snapshot, now_micros)?;
        facts.workers = Some(WorkerFacts::among(&seen, &lane.queue, Some(&lane.kind)));
    }
    Ok(Some(facts))
}

/// The limits that bind the jobs of a lane.
fn limits_of(
    snapshot: &Connection,
    lane: &Lane,
    own: GroupSettings,
    cost: u32,
    now_micros: i64,
) -> rusqlite::Result<Vec<LimitFact>> {
    let queue = stored_settings(snapshot, &lane.queue)?.unwrap_or_default();
    let sql = "SELECT concurrency, rate_limit, rate_per_us, rate_burst FROM kinds WHERE kind = ?1";
    let kind: (Option<u32>, Option<Rate>) = snapshot
        .prepare_cached(sql)?
        .query_row([&lane.kind], |row| Ok((read_number(row, 0)?, read_rate(row, 1)?)))
        .optional()?
        .unwrap_or_default();
    let each = queue.groups.unwrap_or_default();
    let of_group = (own.concurrency.or(each.concurrency), own.rate.or(each.rate));
    let group = lane.group.key().map(|key| (LimitKey::Group(lane.queue.clone(), key.clone()), of_group));
    let bounds = [
        Some((LimitKey::Queue(lane.queue.clone()), (queue.concurrency, queue.rate))),
        Some((LimitKey::Kind(lane.kind.clone()), kind)),
        group,
    ];
    let mut facts = Vec::new();
    for (key, limits) in bounds.into_iter().flatten().filter(|(_, limits)| *limits != (None, None)) {
        facts.push(fact(&key, limits, used(snapshot, &key)?, cost, now_micros));
    }
    Ok(facts)
}

/// How many jobs come first in the lane, and in a strict group the first of them.
fn ahead_of(snapshot: &Connection, lane: &Lane, job: &JobRecord, seq: i64) -> rusqlite::Result<(i64, Option<JobId>)> {
    let (run_at, id, max) = (micros(job.run_at), UuidBlob::from(job.id), AHEAD_MAX + 1);
    match &lane.group {
        Group::None => {
            let params = params![lane.queue, lane.kind, lane.priority, run_at, id, max];
            Ok((snapshot.prepare_cached(AHEAD)?.query_row(params, |row| row.get(0))?, None))
        }
        Group::Fair(key) => {
            let params = params![lane.queue, lane.kind, lane.priority, run_at, id, max, key];
            Ok((snapshot.prepare_cached(AHEAD_IN_GROUP)?.query_row(params, |row| row.get(0))?, None))
        }
        Group::Strict(key) => {
            let mut statement = snapshot.prepare_cached(AHEAD_STRICT)?;
            let before: Vec<UuidBlob> =
                statement.query_map(params![lane.queue, key, seq, max], |row| row.get(0))?.collect::<Result<_, _>>()?;
            Ok((before.len() as i64, before.first().map(|id| JobId::from(id.0))))
        }
    }
}

/// What decides whether jobs of a queue start. The counts are those of the last commit.
pub(super) fn explain_queue(
    connection: &Connection,
    counts: &SharedCounts,
    queue: &QueueName,
    now_micros: i64,
) -> rusqlite::Result<QueueFacts> {
    let snapshot = connection.unchecked_transaction()?;
    let QueueLimits { settings, paused, usage, .. } = queue_in(&snapshot, queue, now_micros)?;
    let mut facts = QueueFacts::new(queue.clone(), timestamp(now_micros));
    facts.paused = paused;
    facts.limit = settings.filter(|set| set.concurrency.is_some() || set.rate.is_some()).map(|_| usage);
    let counts = counts.with(&snapshot, |counts| counts.of(queue))?;
    let count = |status| counts.get(&status).copied().unwrap_or_default();
    facts.waiting = count(Status::Queued) + count(Status::Retrying);
    facts.running = count(Status::Running);
    let oldest = oldest_run_at(&snapshot, queue.as_str(), LANES_MAX)?;
    facts.oldest_ready = oldest.filter(|oldest| *oldest <= now_micros).map(timestamp);
    facts.workers = Some(WorkerFacts::among(&seen_lately(&snapshot, now_micros)?, queue.as_str(), None));
    Ok(facts)
}
