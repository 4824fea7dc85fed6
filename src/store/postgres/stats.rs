//! stats: jobs per queue and status, a page of queues and over all. From maintained counts; how long jobs have waited is
//! looked up for the queues of the page only.

use std::collections::BTreeMap;
use std::time::Duration;

use deadpool_postgres::Object;
use tokio::time::timeout;
use tokio_postgres::types::ToSql;

use super::core::Core;
use super::error::{DbError, Effect, Retries};
use super::queues::roll_up;
use super::row;
use super::timestamp::PgTimestamp;
use crate::job::QueueName;
use crate::store::{QueueStats, Stats, StatsRequest, StoreError};

macro_rules! stats {
    ($what:literal, $of_counts:literal, $of_paused:literal) => {
        concat!(
            "-- ",
            $what,
            ": what was rolled up, plus what changed since
WITH counted AS MATERIALIZED (
    SELECT c.queue, c.status, sum(c.n)::bigint AS n, sum(c.loose)::bigint AS loose
    FROM (SELECT queue, status, n, 0 AS loose FROM SCHEMA.counts
          UNION ALL SELECT queue, status, delta, 1 FROM SCHEMA.count_deltas) c
    ",
            $of_counts,
            "
    GROUP BY c.queue, c.status
),
found AS MATERIALIZED (
    SELECT c.queue FROM counted c WHERE c.n > 0
    UNION SELECT p.queue FROM SCHEMA.paused_queues p ",
            $of_paused,
            "
),
page AS MATERIALIZED (SELECT f.queue FROM found f WHERE f.queue > $1 ORDER BY f.queue LIMIT $2)
SELECT p.queue, c.status, c.n, EXISTS (SELECT FROM SCHEMA.paused_queues q WHERE q.queue = p.queue), 0::bigint
FROM page p LEFT JOIN counted c ON c.queue = p.queue AND c.n > 0
-- Over all queues: a row per status, and one that says how many queues there are.
UNION ALL
SELECT NULL, c.status, coalesce(sum(c.n) FILTER (WHERE c.n > 0), 0)::bigint, false, sum(c.loose)::bigint
FROM counted c GROUP BY c.status
UNION ALL
SELECT NULL, NULL, count(*), false, 0 FROM found"
        )
    };
}

pub(super) const STATS: &str = stats!("stats", "", "");
pub(super) const STATS_OF: &str =
    stats!("stats of some queues", "WHERE c.queue = ANY ($3::text[])", "WHERE p.queue = ANY ($3::text[])");

pub(super) const OLDEST_READY: &str = "\
-- oldest_ready: when the oldest ready job of each of these queues is due, by skipping through their lanes
WITH RECURSIVE lane AS (
    SELECT first.queue, first.kind, first.priority, first.run_at
    FROM unnest($1::text[]) AS asked(queue) CROSS JOIN LATERAL (
        SELECT j.queue, j.kind, j.priority, j.run_at
        FROM SCHEMA.jobs j
        WHERE j.status IN ('queued', 'retrying') AND j.queue = asked.queue
        ORDER BY j.queue, j.kind, j.priority, j.run_at, j.id
        LIMIT 1
    ) first
    UNION ALL
    SELECT next.queue, next.kind, next.priority, next.run_at
    FROM lane l CROSS JOIN LATERAL (
        SELECT j.queue, j.kind, j.priority, j.run_at
        FROM SCHEMA.jobs j
        WHERE j.status IN ('queued', 'retrying')
          AND j.queue = l.queue AND (j.kind, j.priority) > (l.kind, l.priority)
        ORDER BY j.queue, j.kind, j.priority, j.run_at, j.id
        LIMIT 1
    ) next
)
SELECT f.queue, min(f.run_at), now() FROM (SELECT l.queue, l.run_at FROM lane l LIMIT $2) f GROUP BY f.queue";

pub(super) const FORGET_EMPTY: &str = "\
-- forget_empty: counts of nothing, which queues leave behind that are no longer used
WITH empty AS MATERIALIZED (
    -- What is being changed is left alone, so that nobody waits for anybody.
    SELECT c.queue, c.status FROM SCHEMA.counts c WHERE c.n = 0 LIMIT 10000 FOR UPDATE SKIP LOCKED
)
DELETE FROM SCHEMA.counts c USING empty e WHERE c.queue = e.queue AND c.status = e.status";

/// 10,000 lanes are looked at for one page, some hundred milliseconds. The first lanes of all queues come first.
const LANES_MAX: i64 = 10_000;

/// 5,000 loose changes: beyond it adding them up costs more than rolling them up.
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
type RawQueues = BTreeMap<String, QueueStats>;

async fn try_stats(core: &Core, request: &StatsRequest) -> Result<(Stats, i64), DbError> {
    let connection = core.pool.get().await?;
    let work = async {
        let (mut stats, mut page, loose) = counts(core, &connection, request).await?;
        if page.len() > request.limit {
            page.pop_last();
            stats.next = page.keys().rev().find_map(|name| QueueName::new(name).ok());
        }
        if request.ages && !page.is_empty() {
            add_ages(core, &connection, &mut page).await?;
        }
        stats.queues = page.into_iter().map(|(name, queue)| (row::queue(&name), queue)).collect();
        Ok((stats, loose))
    };
    let answer = timeout(connection.timeout(), work).await;
    connection.finish(answer)
}

/// What is over all queues, a page and one queue more if there is one, and how many changes were not rolled up yet.
async fn counts(core: &Core, connection: &Object, request: &StatsRequest) -> Result<(Stats, RawQueues, i64), DbError> {
    let after = request.after.as_ref().map_or("", |queue| queue.as_str());
    let limit = i64::try_from(request.limit).map_or(i64::MAX, |limit| limit.saturating_add(1));
    let mut params: Vec<&(dyn ToSql + Sync)> = vec![&after, &limit];
    let only = request.only.as_ref().map(|only| only.iter().map(QueueName::as_str).collect::<Vec<_>>());
    let sql = match &only {
        Some(only) => {
            params.push(only);
            &core.sql.stats_of
        }
        None => &core.sql.stats,
    };
    let statement = connection.prepare_cached(sql).await?;
    let (mut stats, mut page, mut loose) = (Stats::default(), RawQueues::new(), 0);
    for row in connection.query(&statement, &params).await? {
        let (queue, status): (Option<&str>, Option<&str>) = (row.try_get(0)?, row.try_get(1)?);
        let n = row.try_get::<_, Option<i64>>(2)?.unwrap_or(0).max(0) as u64;
        loose += row.try_get::<_, i64>(4)?;
        match (queue, status.map(row::status)) {
            (Some(queue), status) => {
                let queue = page.entry(queue.to_owned()).or_default();
                queue.paused = row.try_get(3)?;
                queue.counts.extend(status.map(|status| (status, n)));
            }
            (None, Some(status)) if n > 0 => *stats.totals.entry(status).or_default() += n,
            (None, Some(_)) => (),
            (None, None) => stats.queue_count = n as usize,
        }
    }
    Ok((stats, page, loose))
}

async fn add_ages(core: &Core, connection: &Object, page: &mut RawQueues) -> Result<(), DbError> {
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
