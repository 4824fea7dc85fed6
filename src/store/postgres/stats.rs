//! stats: jobs per queue and status, a page of queues and over all. From maintained counts; how long jobs have waited is
//! looked up for the queues of the page only.

use std::collections::BTreeMap;
use std::time::Duration;

use deadpool_postgres::Object;
use tokio::time::timeout;
use tokio_postgres::Row;

use super::core::Core;
use super::counts::roll_up;
use super::error::{DbError, Effect, Retries};
use super::row;
use super::timestamp::PgTimestamp;
use crate::job::{QueueName, Status};
use crate::store::{Counts, QueueStats, Stats, StatsRequest, StoreError};

/// What a row of [`STATS`] or [`STATS_OF`] tells; its first column.
mod told {
    /// What was rolled up, of one queue and status.
    pub(super) const ROLLED_UP: i32 = 1;
    /// What changed since, of one queue and status.
    pub(super) const CHANGED: i32 = 2;
    /// A queue that is paused.
    pub(super) const PAUSED: i32 = 3;
    /// What was rolled up and what changed since, of all queues in one status.
    pub(super) const TOTAL: i32 = 4;
    /// How many changes are not rolled up yet.
    pub(super) const LOOSE: i32 = 5;
}

// One statement, so that all of it is of one moment: a roll-up between two would be counted twice, or not at all. The parts are
// put together here and not by the server: for a page of 10,000 queues, joining them there took it 118 ms, this takes 14 ms (ADR 14).
pub(super) const STATS: &str = "\
-- stats: a page of what was rolled up, what changed since, and the totals of both
WITH changed AS MATERIALIZED (
    SELECT d.queue, side.status, sum(side.n)::bigint AS n, count(*) AS loose
    FROM SCHEMA.count_deltas d CROSS JOIN LATERAL (VALUES (d.was, -d.n), (d.is_now, d.n)) AS side(status, n)
    WHERE d.xid >= $3::text::xid8 AND side.status IS NOT NULL
    GROUP BY d.queue, side.status
)
(SELECT 1, c.queue, c.status, c.n FROM SCHEMA.counts c WHERE c.queue > $1 ORDER BY c.queue, c.status LIMIT $2)
UNION ALL
SELECT 2, c.queue, c.status, c.n FROM changed c WHERE c.queue > $1
UNION ALL
(SELECT 3, p.queue, NULL, 0 FROM SCHEMA.paused_queues p WHERE p.queue > $1 ORDER BY p.queue LIMIT $2)
UNION ALL
SELECT 4, NULL, t.status, sum(t.n)::bigint
FROM (SELECT status, n FROM SCHEMA.counts UNION ALL SELECT status, n FROM changed) t
GROUP BY t.status
UNION ALL
SELECT 5, NULL, NULL, coalesce(sum(c.loose), 0)::bigint FROM changed c";

pub(super) const STATS_OF: &str = "\
-- stats of some queues: what was rolled up, and what changed since
SELECT 1, c.queue, c.status, c.n FROM SCHEMA.counts c WHERE c.queue = ANY ($1::text[])
UNION ALL
SELECT 2, d.queue, side.status, sum(side.n)::bigint
FROM SCHEMA.count_deltas d CROSS JOIN LATERAL (VALUES (d.was, -d.n), (d.is_now, d.n)) AS side(status, n)
WHERE d.xid >= $2::text::xid8 AND d.queue = ANY ($1::text[]) AND side.status IS NOT NULL
GROUP BY d.queue, side.status
UNION ALL
SELECT 3, p.queue, NULL, 0 FROM SCHEMA.paused_queues p WHERE p.queue = ANY ($1::text[])";

pub(super) const OLDEST_READY: &str = "\
-- oldest_ready: when the oldest ready job of each of these queues is due, by skipping through their lanes
WITH RECURSIVE lane AS (
    SELECT first.queue, first.kind, first.priority, first.run_at
    FROM unnest($1::text[]) AS asked(queue) CROSS JOIN LATERAL (
        SELECT j.queue, j.kind, j.priority, j.run_at
        FROM SCHEMA.jobs j
        WHERE j.finished_at IS NULL AND j.group_key IS NULL AND j.lease_expires_at IS NULL AND j.queue = asked.queue
        ORDER BY j.queue, j.kind, j.priority, j.run_at, j.id
        LIMIT 1
    ) first
    UNION ALL
    SELECT next.queue, next.kind, next.priority, next.run_at
    FROM lane l CROSS JOIN LATERAL (
        SELECT j.queue, j.kind, j.priority, j.run_at
        FROM SCHEMA.jobs j
        WHERE j.finished_at IS NULL AND j.group_key IS NULL AND j.lease_expires_at IS NULL
          AND j.queue = l.queue AND (j.kind, j.priority) > (l.kind, l.priority)
        ORDER BY j.queue, j.kind, j.priority, j.run_at, j.id
        LIMIT 1
    ) next
),
fair AS (
    SELECT first.queue, first.kind, first.priority, first.group_key, first.run_at
    FROM unnest($1::text[]) AS asked(queue) CROSS JOIN LATERAL (
        SELECT j.queue, j.kind, j.priority, j.group_key, j.run_at
        FROM SCHEMA.jobs j
        WHERE j.finished_at IS NULL AND j.group_key IS NOT NULL AND j.group_seq IS NULL AND j.lease_expires_at IS NULL
          AND j.queue = asked.queue
        ORDER BY j.queue, j.kind, j.priority, j.group_key, j.run_at, j.id
        LIMIT 1
    ) first
    UNION ALL
    SELECT next.queue, next.kind, next.priority, next.group_key, next.run_at
    FROM fair f CROSS JOIN LATERAL (
        SELECT j.queue, j.kind, j.priority, j.group_key, j.run_at
        FROM SCHEMA.jobs j
        WHERE j.finished_at IS NULL AND j.group_key IS NOT NULL AND j.group_seq IS NULL AND j.lease_expires_at IS NULL
          AND j.queue = f.queue AND (j.kind, j.priority, j.group_key) > (f.kind, f.priority, f.group_key)
        ORDER BY j.queue, j.kind, j.priority, j.group_key, j.run_at, j.id
        LIMIT 1
    ) next
),
strict AS (
    SELECT first.queue, first.group_key, first.run_at, first.lease_expires_at
    FROM unnest($1::text[]) AS asked(queue) CROSS JOIN LATERAL (
        SELECT j.queue, j.group_key, j.run_at, j.lease_expires_at
        FROM SCHEMA.jobs j
        WHERE j.finished_at IS NULL AND j.group_seq IS NOT NULL AND j.queue = asked.queue
        ORDER BY j.queue, j.group_key, j.group_seq
        LIMIT 1
    ) first
    UNION ALL
    SELECT next.queue, next.group_key, next.run_at, next.lease_expires_at
    FROM strict s CROSS JOIN LATERAL (
        SELECT j.queue, j.group_key, j.run_at, j.lease_expires_at
        FROM SCHEMA.jobs j
        WHERE j.finished_at IS NULL AND j.group_seq IS NOT NULL AND j.queue = s.queue AND j.group_key > s.group_key
        ORDER BY j.queue, j.group_key, j.group_seq
        LIMIT 1
    ) next
)
SELECT oldest.queue, min(oldest.run_at), now()
FROM (
    (SELECT lane.queue, lane.run_at FROM lane LIMIT $2)
    UNION ALL
    (SELECT fair.queue, fair.run_at FROM fair LIMIT $2)
    UNION ALL
    -- Of a strict group the first unfinished job counts, and only if it waits: the others wait for it, not for a worker.
    SELECT head.queue, head.run_at
    FROM (SELECT strict.queue, strict.run_at, strict.lease_expires_at FROM strict LIMIT $2) head
    WHERE head.lease_expires_at IS NULL
) oldest
GROUP BY oldest.queue";

pub(super) const FORGET_EMPTY: &str = "\
-- forget_empty: counts of nothing, which queues and kinds leave behind that are no longer used
WITH empty AS MATERIALIZED (
    -- What is being changed is left alone, so that nobody waits for anybody.
    SELECT c.queue, c.status FROM SCHEMA.counts c WHERE c.n = 0 LIMIT 10000 FOR UPDATE SKIP LOCKED
),
empty_kind AS MATERIALIZED (
    SELECT c.kind, c.queue, c.status FROM SCHEMA.kind_counts c WHERE c.n = 0 LIMIT 10000 FOR UPDATE SKIP LOCKED
),
forgotten AS (
    DELETE FROM SCHEMA.kind_counts c USING empty_kind e
    WHERE c.kind = e.kind AND c.queue = e.queue AND c.status = e.status
)
DELETE FROM SCHEMA.counts c USING empty e WHERE c.queue = e.queue AND c.status = e.status";

/// 10,000 lanes are looked at for one page, some hundred milliseconds. The first lanes of all queues come first.
const LANES_MAX: i64 = 10_000;

/// Rows of counts that a queue has at most.
const STATUSES: i64 = Status::ALL.len() as i64;

/// 5,000 loose changes of a count: beyond it adding them up costs more than rolling them up.
const LOOSE_MAX: i64 = 5_000;

pub(super) async fn stats(core: &Core, request: StatsRequest) -> Result<Stats, StoreError> {
    let mut retries = Retries::new("stats", Effect::Repeatable);
    let (stats, loose) = loop {
        match try_stats(core, &request).await {
            Ok(answer) => break answer,
            Err(error) => retries.again(error).await?,
        }
    };
    if loose > LOOSE_MAX
        && let Err(error) = roll_up(core).await
    {
        tracing::debug!(?error, "counts are rolled up another time");
    }
    Ok(stats)
}

/// Queues by their name as it is stored, which no cursor can be if a manual edit has damaged it.
#[derive(Default)]
struct RawQueues {
    queues: BTreeMap<String, RawQueue>,
    /// Of this queue and those behind it not everything was read.
    horizon: Option<String>,
    totals: BTreeMap<Status, i64>,
    loose: i64,
}

#[derive(Default)]
struct RawQueue {
    paused: bool,
    counts: BTreeMap<Status, i64>,
}

async fn try_stats(core: &Core, request: &StatsRequest) -> Result<(Stats, i64), DbError> {
    let connection = core.pool.get().await?;
    let work = async {
        let (mut page, totals, next, loose) = match &request.only {
            Some(only) => {
                let found = queues_of(core, &connection, only).await?;
                let totals = totals_of(&found.queues);
                let (page, next) = found.page(request);
                (page, totals, next, 0)
            }
            None => {
                let mut found = all_queues(core, &connection, request).await?;
                let (totals, loose) = (positive(std::mem::take(&mut found.totals)), found.loose);
                let (page, next) = found.page(request);
                (page, totals, next, loose)
            }
        };
        if request.ages && !page.is_empty() {
            add_ages(core, &connection, &mut page).await?;
        }
        let queues = page.into_iter().map(|(name, queue)| (row::queue(&name), queue)).collect();
        Ok((Stats { queues, totals, next }, loose))
    };
    let answer = timeout(connection.timeout(), work).await;
    connection.finish(answer)
}

async fn all_queues(core: &Core, connection: &Object, request: &StatsRequest) -> Result<RawQueues, DbError> {
    let after = request.after.as_ref().map_or("", |queue| queue.as_str());
    // Enough for a page of queues that each have jobs in every status, for one queue more, and for the first row behind it.
    let rows_max = match request.limit {
        0 => 0,
        limit => i64::try_from(limit).map_or(i64::MAX, |limit| limit.saturating_add(1).saturating_mul(STATUSES) + 1),
    };
    let mark = core.change_mark.raised(core, connection).await?;
    let statement = connection.prepare_cached(&core.sql.stats).await?;
    RawQueues::read(connection.query(&statement, &[&after, &rows_max, &mark]).await?, rows_max)
}

async fn queues_of(core: &Core, connection: &Object, only: &[QueueName]) -> Result<RawQueues, DbError> {
    let names: Vec<&str> = only.iter().map(QueueName::as_str).collect();
    let mark = core.change_mark.raised(core, connection).await?;
    let statement = connection.prepare_cached(&core.sql.stats_of).await?;
    RawQueues::read(connection.query(&statement, &[&names, &mark]).await?, i64::MAX)
}

impl RawQueues {
    /// `rows_max`: at this many rows, what was rolled up or what is paused goes on behind the last of them.
    fn read(rows: Vec<Row>, rows_max: i64) -> Result<Self, DbError> {
        let mut found = Self::default();
        let (mut rolled_up, mut paused) = (Vec::new(), Vec::new());
        for row in &rows {
            let (told, queue): (i32, Option<&str>) = (row.try_get(0)?, row.try_get(1)?);
            let (status, n) = (row.try_get::<_, Option<&str>>(2)?.map(row::status), row.try_get::<_, i64>(3)?);
            match (told, queue, status) {
                (told::ROLLED_UP | told::CHANGED, Some(queue), Some(status)) => {
                    *found.queues.entry(queue.to_owned()).or_default().counts.entry(status).or_default() += n;
                    rolled_up.extend((told == told::ROLLED_UP).then_some(queue));
                }
                (told::PAUSED, Some(queue), _) => {
                    found.queues.entry(queue.to_owned()).or_default().paused = true;
                    paused.push(queue);
                }
                (told::TOTAL, _, Some(status)) => *found.totals.entry(status).or_default() += n,
                (told::LOOSE, ..) => found.loose = n,
                _ => (),
            }
        }
        let ends = [rolled_up, paused].into_iter().filter(|names| names.len() as i64 >= rows_max);
        found.horizon = ends.filter_map(|names| names.into_iter().max()).min().map(str::to_owned);
        Ok(found)
    }

    /// The queues that there are, up to a page of them, and the cursor of the next page.
    fn page(mut self, request: &StatsRequest) -> (BTreeMap<String, QueueStats>, Option<QueueName>) {
        if request.limit == 0 {
            return Default::default();
        }
        if let Some(horizon) = &self.horizon {
            self.queues.split_off(horizon);
        }
        let last_read = last_name(self.queues.keys());
        let after = request.after.as_ref().map_or("", |queue| queue.as_str());
        let queues = self.queues.into_iter().filter(|(name, _)| &**name > after).map(|(name, queue)| {
            (name, QueueStats { paused: queue.paused, counts: positive(queue.counts), oldest_ready: None })
        });
        let mut page: BTreeMap<_, _> = queues
            .filter(|(_, queue)| queue.paused || !queue.counts.is_empty())
            .take(request.limit.saturating_add(1))
            .collect();
        let next = if page.len() > request.limit {
            page.pop_last();
            last_name(page.keys())
        } else {
            last_read.filter(|_| self.horizon.is_some())
        };
        (page, next)
    }
}

fn last_name<'n>(names: impl DoubleEndedIterator<Item = &'n String>) -> Option<QueueName> {
    names.rev().find_map(|name| QueueName::new(name).ok())
}

fn positive(counts: BTreeMap<Status, i64>) -> Counts {
    counts.into_iter().filter(|(_, n)| *n > 0).map(|(status, n)| (status, n as u64)).collect()
}

fn totals_of(queues: &BTreeMap<String, RawQueue>) -> Counts {
    let mut totals = BTreeMap::new();
    for (status, n) in queues.values().flat_map(|queue| &queue.counts) {
        *totals.entry(*status).or_default() += n;
    }
    positive(totals)
}

async fn add_ages(core: &Core, connection: &Object, page: &mut BTreeMap<String, QueueStats>) -> Result<(), DbError> {
    let names: Vec<&str> = page.keys().map(String::as_str).collect();
    let statement = connection.prepare_cached(&core.sql.oldest_ready).await?;
    for row in connection.query(&statement, &[&names, &LANES_MAX]).await? {
        let (oldest, now): (PgTimestamp, PgTimestamp) = (row.try_get(1)?, row.try_get(2)?);
        if let Some(queue) = page.get_mut(row.try_get::<_, &str>(0)?) {
            // Due later: it has waited less than nothing.
            queue.oldest_ready = Duration::try_from(now.timestamp().duration_since(oldest.timestamp())).ok();
        }
    }
    Ok(())
}
