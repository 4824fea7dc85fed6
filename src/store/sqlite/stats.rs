//! stats: jobs per queue and status, a page of queues and over all. From counts that are kept with every commit; how long
//! jobs have waited is looked up for the queues of the page only.

use std::collections::BTreeMap;
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, ToSql};

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

/// In one snapshot.
pub(super) fn stats(connection: &Connection, request: &StatsRequest, now_micros: i64) -> rusqlite::Result<Stats> {
    let snapshot = connection.unchecked_transaction()?;
    let mut stats = match &request.only {
        Some(only) => counts_of(&snapshot, only, request)?,
        None => counts_of_all(&snapshot, request)?,
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

/// A page of all queues.
fn counts_of_all(snapshot: &Connection, request: &StatsRequest) -> rusqlite::Result<Stats> {
    let after = request.after.as_ref().map_or("", |queue| queue.as_str());
    let mut page: BTreeMap<String, QueueStats> = BTreeMap::new();
    let mut counts =
        snapshot.prepare_cached("SELECT queue, status, n FROM counts WHERE n > 0 AND queue > ?1 ORDER BY queue")?;
    let mut rows = counts.query([after])?;
    while let Some(row) = rows.next()? {
        let name = row.get_ref(0)?.as_str().unwrap_or_default();
        if page.len() > request.limit && !page.contains_key(name) {
            break;
        }
        if let (Ok(_), Ok(status)) = (QueueName::new(name), row.get_ref(1)?.as_str().unwrap_or_default().parse()) {
            page.entry(name.to_owned()).or_default().counts.insert(status, row.get(2)?);
        }
    }
    let mut paused =
        snapshot.prepare_cached("SELECT queue FROM paused_queues WHERE queue > ?1 ORDER BY queue LIMIT ?2")?;
    let one_more = i64::try_from(request.limit).unwrap_or(i64::MAX).saturating_add(1);
    for name in paused.query_map((after, one_more), |row| row.get::<_, String>(0))? {
        page.entry(name?).or_default().paused = true;
    }
    let named = page.into_iter().filter_map(|(name, queue)| Some((QueueName::new(name).ok()?, queue)));
    let mut stats = cut(named.collect(), request);
    let mut totals = snapshot.prepare_cached("SELECT status, sum(n) FROM counts WHERE n > 0 GROUP BY status")?;
    for row in totals.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get(1)?)))? {
        let (status, n) = row?;
        if let Ok(status) = status.parse() {
            stats.totals.insert(status, n);
        }
    }
    Ok(stats)
}

/// The named queues.
fn counts_of(snapshot: &Connection, only: &[QueueName], request: &StatsRequest) -> rusqlite::Result<Stats> {
    let mut found: BTreeMap<QueueName, QueueStats> = BTreeMap::new();
    let mut counts = snapshot.prepare_cached("SELECT status, n FROM counts WHERE queue = ?1 AND n > 0")?;
    let mut paused = snapshot.prepare_cached("SELECT EXISTS (SELECT 1 FROM paused_queues WHERE queue = ?1)")?;
    for name in only {
        let mut queue = QueueStats::default();
        for row in counts.query_map([name.as_str()], |row| Ok((row.get::<_, String>(0)?, row.get(1)?)))? {
            let (status, n) = row?;
            if let Ok(status) = status.parse() {
                queue.counts.insert(status, n);
            }
        }
        queue.paused = paused.query_row([name.as_str()], |row| row.get(0))?;
        if queue != QueueStats::default() {
            found.insert(name.clone(), queue);
        }
    }
    let mut totals = BTreeMap::new();
    for (status, n) in found.values().flat_map(|queue| &queue.counts) {
        *totals.entry(*status).or_default() += n;
    }
    found.retain(|name, _| request.after.as_ref().is_none_or(|after| name > after));
    Ok(Stats { totals, ..cut(found, request) })
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

/// When the oldest waiting job of a queue is due, by the first jobs of its lanes.
fn oldest_run_at(snapshot: &Connection, queue: &str, lanes_max: usize) -> rusqlite::Result<Option<i64>> {
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
    Ok(oldest)
}
