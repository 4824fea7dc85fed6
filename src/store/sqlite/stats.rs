//! stats: jobs per queue and status, a page of queues and over all. From counts that are kept with every commit
//! (`queue_counts`); how long jobs have waited is looked up for the queues of the page only.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, ToSql};

use super::lanes::{Group, Lane, lane_behind};
use super::queue_counts::{QueueCounts, SharedCounts};
use crate::job::QueueName;
use crate::job::limits::PRIORITY_MIN;
use crate::store::{QueueStats, Stats, StatsRequest};

/// 10,000 lanes are looked at for one page, some tens of milliseconds. Each queue gets its share.
const LANES_MAX: usize = 10_000;

macro_rules! next_in_queue {
    ($behind:literal, $order:literal) => {
        concat!(
            "
-- stats: the first waiting job behind a lane, in its queue
SELECT kind, priority, run_at FROM jobs INDEXED BY jobs_ready
WHERE lease_expires_at IS NULL AND finished_at IS NULL AND group_key IS NULL AND queue = ?1 AND ",
            $behind,
            " ORDER BY ",
            $order,
            " LIMIT 1"
        )
    };
}

/// Where the next lane of a queue can be, nearest first; each is one probe of the index.
pub(super) const NEXT_IN_QUEUE: [&str; 2] = [
    next_in_queue!("kind = ?2 AND priority > ?3", "priority, run_at, id"),
    next_in_queue!("kind > ?2", "kind, priority, run_at, id"),
];

/// Counts are those of the last commit, the rest is of one snapshot.
pub(super) fn stats(
    connection: &Connection,
    counts: &SharedCounts,
    request: &StatsRequest,
    now_micros: i64,
) -> rusqlite::Result<Stats> {
    let snapshot = connection.unchecked_transaction()?;
    let mut stats = match &request.only {
        Some(only) => {
            let paused = paused_of(&snapshot, only)?;
            counts.with(&snapshot, |counts| counts_of(counts, only, &paused, request))?
        }
        None => {
            let paused = paused_behind(&snapshot, request)?;
            counts.with(&snapshot, |counts| counts_of_all(counts, paused, request))?
        }
    };
    if request.ages {
        let share = (LANES_MAX / stats.queues.len().max(1)).max(1);
        for (name, queue) in &mut stats.queues {
            let oldest = oldest_run_at(&snapshot, name.as_str(), share)?;
            // Due later: it has waited less than nothing.
            let waited = oldest.and_then(|oldest| u64::try_from(now_micros.saturating_sub(oldest)).ok());
            queue.oldest_ready = waited.map(Duration::from_micros);
        }
    }
    Ok(stats)
}

/// The paused queues behind the cursor, one more than a page of them.
fn paused_behind(snapshot: &Connection, request: &StatsRequest) -> rusqlite::Result<Vec<QueueName>> {
    let mut paused =
        snapshot.prepare_cached("SELECT queue FROM paused_queues WHERE queue > ?1 ORDER BY queue LIMIT ?2")?;
    let one_more = i64::try_from(request.limit).unwrap_or(i64::MAX).saturating_add(1);
    let names = paused.query_map((after(request), one_more), |row| row.get::<_, String>(0))?;
    let names: Vec<String> = names.collect::<Result<_, _>>()?;
    Ok(names.into_iter().filter_map(|name| QueueName::new(name).ok()).collect())
}

/// Which of the named queues are paused.
fn paused_of(snapshot: &Connection, only: &[QueueName]) -> rusqlite::Result<HashSet<QueueName>> {
    let mut statement = snapshot.prepare_cached("SELECT EXISTS (SELECT 1 FROM paused_queues WHERE queue = ?1)")?;
    let mut paused = HashSet::new();
    for name in only {
        if statement.query_row([name.as_str()], |row| row.get(0))? {
            paused.insert(name.clone());
        }
    }
    Ok(paused)
}

/// A page of all queues.
fn counts_of_all(counts: &QueueCounts, paused: Vec<QueueName>, request: &StatsRequest) -> Stats {
    let mut page: BTreeMap<_, _> = counts.behind(after(request)).take(request.limit.saturating_add(1)).collect();
    for name in paused {
        page.entry(name).or_default().paused = true;
    }
    Stats { totals: counts.totals(), ..cut(page, request) }
}

/// The named queues.
fn counts_of(counts: &QueueCounts, only: &[QueueName], paused: &HashSet<QueueName>, request: &StatsRequest) -> Stats {
    let mut found: BTreeMap<QueueName, QueueStats> = BTreeMap::new();
    for name in only {
        let queue = QueueStats { paused: paused.contains(name), counts: counts.of(name), ..QueueStats::default() };
        if queue != QueueStats::default() {
            found.insert(name.clone(), queue);
        }
    }
    let mut totals = BTreeMap::new();
    for (status, n) in found.values().flat_map(|queue| &queue.counts) {
        *totals.entry(*status).or_default() += n;
    }
    found.retain(|name, _| request.after.as_ref().is_none_or(|after| name > after));
    Stats { totals, ..cut(found, request) }
}

fn after(request: &StatsRequest) -> &str {
    request.after.as_ref().map_or("", |queue| queue.as_str())
}

/// The page of what was found behind the cursor.
fn cut(mut queues: BTreeMap<QueueName, QueueStats>, request: &StatsRequest) -> Stats {
    let behind = queues.keys().nth(request.limit).cloned();
    if let Some(behind) = &behind {
        queues.split_off(behind);
    }
    let next = behind.and_then(|_| queues.keys().next_back().cloned());
    Stats { queues, next, ..Stats::default() }
}

/// When the oldest waiting job of a queue is due, by the first jobs of its lanes. Of a strict group the first unfinished job
/// counts, and only if it waits: the others wait for it, not for a worker.
pub(super) fn oldest_run_at(snapshot: &Connection, queue: &str, lanes_max: usize) -> rusqlite::Result<Option<i64>> {
    let (mut kind, mut priority, mut oldest) = (String::new(), PRIORITY_MIN - 1, None);
    for _ in 0..lanes_max {
        let params: [&dyn ToSql; 3] = [&queue, &kind, &priority];
        let mut found = None;
        for next in NEXT_IN_QUEUE {
            let mut statement = snapshot.prepare_cached(next)?;
            let asked = statement.parameter_count();
            found =
                statement.query_row(&params[..asked], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).optional()?;
            if found.is_some() {
                break;
            }
        }
        let Some((next_kind, next_priority, run_at)) = found else { break };
        (kind, priority) = (next_kind, next_priority);
        oldest = Some(oldest.map_or(run_at, |oldest: i64| oldest.min(run_at)));
    }
    for first in [Group::Fair("".into()), Group::Strict("".into())] {
        let of_groups = oldest_of_groups(snapshot, queue, first, lanes_max)?;
        oldest = oldest.into_iter().chain(of_groups).min();
    }
    Ok(oldest)
}

/// The same of the groups of a queue, fair or strict.
fn oldest_of_groups(
    snapshot: &Connection,
    queue: &str,
    first: Group,
    lanes_max: usize,
) -> rusqlite::Result<Option<i64>> {
    let is_strict = matches!(first, Group::Strict(_));
    let mut last = Lane { queue: queue.into(), kind: "".into(), priority: PRIORITY_MIN - 1, group: first };
    let mut oldest: Option<i64> = None;
    for _ in 0..lanes_max {
        let Some(found) = lane_behind(snapshot, Some(&last))? else { break };
        if *found.lane.queue != *queue || matches!(found.lane.group, Group::Strict(_)) != is_strict {
            break;
        }
        let due_at = match (found.head, found.lane.group.key()) {
            (Some(head), _) => Some(head.run_at),
            (None, Some(key)) => first_of_strict(snapshot, queue, key)?,
            (None, None) => None,
        };
        oldest = oldest.into_iter().chain(due_at).min();
        last = found.lane;
    }
    Ok(oldest)
}

pub(super) const FIRST_OF_STRICT: &str = "
-- stats: the job of a strict group that runs, and the first that waits. After a redrive that may be the first of both.
SELECT seq, run_at, lease_expires_at IS NULL FROM jobs INDEXED BY jobs_strict
WHERE finished_at IS NULL AND group_key IS NOT NULL AND coalesce(marks, 0) & 8 <> 0 AND queue = ?1 AND group_key = ?2
ORDER BY lease_expires_at IS NULL, seq LIMIT 2";

/// When the first unfinished job of a strict group is due, if it waits.
fn first_of_strict(snapshot: &Connection, queue: &str, key: &str) -> rusqlite::Result<Option<i64>> {
    let mut statement = snapshot.prepare_cached(FIRST_OF_STRICT)?;
    let both = statement.query_map([queue, key], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    let both: Vec<(i64, i64, bool)> = both.collect::<Result<_, _>>()?;
    Ok(both.into_iter().min().filter(|(.., waits)| *waits).map(|(_, due_at, _)| due_at))
}
