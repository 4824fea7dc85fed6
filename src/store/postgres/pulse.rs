//! pulse, kind_counts: what is due by queue and kind, what is paused by whom, and how old the oldest transaction is.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::timeout;
use tokio_postgres::types::ToSql;

use super::core::{Core, decode};
use super::error::{DbError, Effect, Retries};
use super::row;
use super::timestamp::PgTimestamp;
use crate::job::{Kind, QueueName};
use crate::store::{
    Counts, DUE_LANES_MAX, DUE_MAX, DUE_OF_LANE_MAX, DueJobs, KIND_COUNTS_MAX, PAUSED_MAX, PausedQueue, PulseFacts,
    StoreError, due_by_kind,
};

/// What a row of [`PULSE`] tells; its first column.
mod told {
    /// A lane with jobs that are due, and how many.
    pub(super) const DUE: i32 = 1;
    /// A queue that is paused.
    pub(super) const PAUSED: i32 = 2;
    /// The newest entry of the audit, the oldest transaction, and the time.
    pub(super) const REST: i32 = 3;
}

// Lanes are found as in `lane_scan`, by skipping through the index. The more are due, the fewer jobs of each are counted.
pub(super) const PULSE: &str = "\
-- pulse: what is due, by lanes; what is paused; the newest entry of the audit, and the oldest transaction
WITH RECURSIVE lane AS (
    (SELECT j.queue, j.kind, j.priority, j.run_at, 1 AS nth
     FROM SCHEMA.jobs j
     WHERE j.finished_at IS NULL AND j.group_key IS NULL AND j.lease_expires_at IS NULL
     ORDER BY j.queue, j.kind, j.priority, j.run_at, j.id
     LIMIT 1)
    UNION ALL
    SELECT next.queue, next.kind, next.priority, next.run_at, l.nth + 1
    FROM lane l CROSS JOIN LATERAL (
        SELECT j.queue, j.kind, j.priority, j.run_at
        FROM SCHEMA.jobs j
        WHERE j.finished_at IS NULL AND j.group_key IS NULL AND j.lease_expires_at IS NULL
          AND (j.queue, j.kind, j.priority) > (l.queue, l.kind, l.priority)
        ORDER BY j.queue, j.kind, j.priority, j.run_at, j.id
        LIMIT 1
    ) next
    WHERE l.nth < $1::bigint
),
fair AS (
    (SELECT j.queue, j.kind, j.priority, j.group_key, j.run_at, 1 AS nth
     FROM SCHEMA.jobs j
     WHERE j.finished_at IS NULL AND j.group_key IS NOT NULL AND j.group_seq IS NULL AND j.lease_expires_at IS NULL
     ORDER BY j.queue, j.kind, j.priority, j.group_key, j.run_at, j.id
     LIMIT 1)
    UNION ALL
    SELECT next.queue, next.kind, next.priority, next.group_key, next.run_at, f.nth + 1
    FROM fair f CROSS JOIN LATERAL (
        SELECT j.queue, j.kind, j.priority, j.group_key, j.run_at
        FROM SCHEMA.jobs j
        WHERE j.finished_at IS NULL AND j.group_key IS NOT NULL AND j.group_seq IS NULL AND j.lease_expires_at IS NULL
          AND (j.queue, j.kind, j.priority, j.group_key) > (f.queue, f.kind, f.priority, f.group_key)
        ORDER BY j.queue, j.kind, j.priority, j.group_key, j.run_at, j.id
        LIMIT 1
    ) next
    WHERE f.nth < $1::bigint
),
strict AS (
    (SELECT j.queue, j.group_key, j.kind, j.run_at, j.lease_expires_at, 1 AS nth
     FROM SCHEMA.jobs j
     WHERE j.finished_at IS NULL AND j.group_seq IS NOT NULL
     ORDER BY j.queue, j.group_key, j.group_seq
     LIMIT 1)
    UNION ALL
    SELECT next.queue, next.group_key, next.kind, next.run_at, next.lease_expires_at, s.nth + 1
    FROM strict s CROSS JOIN LATERAL (
        SELECT j.queue, j.group_key, j.kind, j.run_at, j.lease_expires_at
        FROM SCHEMA.jobs j
        WHERE j.finished_at IS NULL AND j.group_seq IS NOT NULL AND (j.queue, j.group_key) > (s.queue, s.group_key)
        ORDER BY j.queue, j.group_key, j.group_seq
        LIMIT 1
    ) next
    WHERE s.nth < $1::bigint
),
due_lane AS MATERIALIZED (SELECT l.* FROM lane l WHERE l.run_at <= now()),
due_fair AS MATERIALIZED (SELECT f.* FROM fair f WHERE f.run_at <= now()),
share AS MATERIALIZED (
    SELECT greatest(least($2::bigint, $3::bigint / greatest(
        (SELECT count(*) FROM due_lane) + (SELECT count(*) FROM due_fair), 1)), 1) AS most
)
SELECT 1, l.queue, l.kind, l.run_at, counted.n, counted.n >= share.most, NULL::text
FROM due_lane l CROSS JOIN share CROSS JOIN LATERAL (
    SELECT count(*) AS n
    FROM (SELECT 1 FROM SCHEMA.jobs j
          WHERE j.finished_at IS NULL AND j.group_key IS NULL AND j.lease_expires_at IS NULL
            AND j.queue = l.queue AND j.kind = l.kind AND j.priority = l.priority AND j.run_at <= now()
          LIMIT share.most) one
) counted
UNION ALL
SELECT 1, f.queue, f.kind, f.run_at, counted.n, counted.n >= share.most, NULL
FROM due_fair f CROSS JOIN share CROSS JOIN LATERAL (
    SELECT count(*) AS n
    FROM (SELECT 1 FROM SCHEMA.jobs j
          WHERE j.finished_at IS NULL AND j.group_key = f.group_key AND j.group_seq IS NULL AND j.lease_expires_at IS NULL
            AND j.queue = f.queue AND j.kind = f.kind AND j.priority = f.priority AND j.run_at <= now()
          LIMIT share.most) one
) counted
UNION ALL
SELECT 1, s.queue, s.kind, s.run_at, 1, false, NULL FROM strict s WHERE s.lease_expires_at IS NULL AND s.run_at <= now()
UNION ALL
SELECT 2, p.queue, NULL, coalesce(a.at, p.paused_at), NULL, NULL, a.token_name
FROM (SELECT p.queue, p.paused_at FROM SCHEMA.paused_queues p ORDER BY p.queue LIMIT $4) p
    LEFT JOIN LATERAL (
        SELECT a.at, a.token_name FROM SCHEMA.audit a
        WHERE a.target = 'queue:' || p.queue AND a.action = 'pause' ORDER BY a.at DESC, a.seq DESC LIMIT 1
    ) a ON true
UNION ALL
SELECT 3, NULL, NULL, now(), (SELECT a.seq FROM SCHEMA.audit a ORDER BY a.seq DESC LIMIT 1), NULL,
       (SELECT (extract(epoch FROM max(now() - t.xact_start)) * 1000)::bigint::text FROM pg_catalog.pg_stat_activity t
        WHERE t.backend_xmin IS NOT NULL AND t.datname = current_database())";

pub(super) const KIND_COUNTS: &str = "\
-- kind_counts: jobs by kind and status, over all queues: what was rolled up, and what changed since
WITH moved AS (
    SELECT c.kind, c.status, c.n FROM SCHEMA.kind_counts c
    UNION ALL
    SELECT d.kind, side.status, side.n
    FROM SCHEMA.count_deltas d CROSS JOIN LATERAL (VALUES (d.was, -d.n), (d.is_now, d.n)) AS side(status, n)
    WHERE d.xid >= $1::text::xid8 AND side.status IS NOT NULL
),
kinds AS (SELECT DISTINCT m.kind FROM moved m ORDER BY m.kind LIMIT $2)
SELECT m.kind, m.status, sum(m.n)::bigint FROM moved m JOIN kinds k USING (kind) GROUP BY m.kind, m.status";

pub(super) async fn pulse(core: &Core) -> Result<PulseFacts, StoreError> {
    let limits = [DUE_LANES_MAX as i64, DUE_OF_LANE_MAX as i64, DUE_MAX as i64, PAUSED_MAX as i64];
    let params: [&(dyn ToSql + Sync); 4] = [&limits[0], &limits[1], &limits[2], &limits[3]];
    let rows = core.query("pulse", Effect::Repeatable, &core.sql.pulse, &params).await?;
    decode("pulse", read(&rows))
}

fn read(rows: &[tokio_postgres::Row]) -> Result<PulseFacts, tokio_postgres::Error> {
    let mut facts = PulseFacts::new(jiff::Timestamp::UNIX_EPOCH);
    let mut due = Vec::new();
    for row in rows {
        let (kind_of_row, queue): (i32, Option<&str>) = (row.try_get(0)?, row.try_get(1)?);
        // A name that a manual edit has damaged is left out.
        let queue = queue.and_then(|name| QueueName::new(name).ok());
        let at = row.try_get::<_, Option<PgTimestamp>>(3)?.map(PgTimestamp::timestamp);
        match (kind_of_row, queue, at) {
            (told::DUE, Some(queue), Some(since)) => {
                let n = row.try_get::<_, i64>(4)?.max(1) as u64;
                if let Some(kind) = row.try_get::<_, Option<&str>>(2)?.and_then(|name| Kind::new(name).ok()) {
                    due.push(DueJobs { at_least: row.try_get(5)?, ..DueJobs::new(queue, kind, n, since) });
                }
            }
            (told::PAUSED, Some(queue), at) => {
                let paused = PausedQueue::new(at, row.try_get::<_, Option<String>>(6)?);
                facts.paused.insert(queue, paused);
            }
            (told::REST, _, Some(now)) => {
                (facts.now, facts.audit_seq) = (now, row.try_get(4)?);
                let ms = row.try_get::<_, Option<&str>>(6)?.and_then(|ms| ms.parse().ok());
                facts.oldest_transaction = ms.map(Duration::from_millis);
            }
            _ => {}
        }
    }
    facts.due = due_by_kind(due);
    Ok(facts)
}

pub(super) async fn kind_counts(core: &Core) -> Result<BTreeMap<Kind, Counts>, StoreError> {
    let mut retries = Retries::new("kind_counts", Effect::Repeatable);
    loop {
        match try_kind_counts(core).await {
            Ok(counts) => return Ok(counts),
            Err(error) => retries.again(error).await?,
        }
    }
}

async fn try_kind_counts(core: &Core) -> Result<BTreeMap<Kind, Counts>, DbError> {
    let connection = core.pool.get().await?;
    let work = async {
        let mark = core.change_mark.raised(core, &connection).await?;
        let statement = connection.prepare_cached(&core.sql.kind_counts).await?;
        let mut counted: BTreeMap<Kind, Counts> = BTreeMap::new();
        for found in connection.query(&statement, &[&mark, &(KIND_COUNTS_MAX as i64)]).await? {
            let (kind, status, n): (&str, &str, i64) = (found.try_get(0)?, found.try_get(1)?, found.try_get(2)?);
            if let Ok(kind) = Kind::new(kind) {
                let counts = counted.entry(kind).or_default();
                counts.extend((n > 0).then_some((row::status(status), n as u64)));
            }
        }
        counted.retain(|_, counts| !counts.is_empty());
        Ok(counted)
    };
    let answer = timeout(connection.timeout(), work).await;
    connection.finish(answer)
}
