//! Looks for lanes of groups, a slice at a time, and for which queues and kinds have limits. Beside `lane_scan`, which
//! looks for lanes without a group.

use std::sync::Arc;
use std::time::{Duration, Instant};

use deadpool_postgres::Object;

use super::core::Core;
use super::error::DbError;
use super::group_lanes::{FairLane, FoundLane, GroupSlice, LimitedNames, StrictLane};
use super::lane_scan::PAUSED_WAIT;
use super::lanes::SLICE;

pub(super) const GROUP_LANES: &str = "\
-- lanes: the first ready job of the next $5 (queue, kind, priority, group), by skipping through the index
WITH RECURSIVE lane AS (
    (SELECT j.queue, j.kind, j.priority, j.group_key, j.run_at, j.id, 1 AS nth
     FROM SCHEMA.jobs j
     WHERE j.finished_at IS NULL AND j.group_key IS NOT NULL AND j.group_seq IS NULL AND j.lease_expires_at IS NULL
       AND (j.queue, j.kind, j.priority, j.group_key) > ($1, $2, $3, $4)
     ORDER BY j.queue, j.kind, j.priority, j.group_key, j.run_at, j.id
     LIMIT 1)
    UNION ALL
    SELECT next.queue, next.kind, next.priority, next.group_key, next.run_at, next.id, l.nth + 1
    FROM lane l CROSS JOIN LATERAL (
        SELECT j.queue, j.kind, j.priority, j.group_key, j.run_at, j.id
        FROM SCHEMA.jobs j
        WHERE j.finished_at IS NULL AND j.group_key IS NOT NULL AND j.group_seq IS NULL AND j.lease_expires_at IS NULL
          AND (j.queue, j.kind, j.priority, j.group_key) > (l.queue, l.kind, l.priority, l.group_key)
        ORDER BY j.queue, j.kind, j.priority, j.group_key, j.run_at, j.id
        LIMIT 1
    ) next
    WHERE l.nth < $5::integer
)
SELECT l.queue, l.kind, l.priority, l.group_key, l.run_at, l.id,
       (extract(epoch FROM greatest(least(l.run_at, now() + interval '1 year'), now()) - now()) * 1000000)::bigint,
       coalesce(g.paused, false) OR EXISTS (SELECT FROM SCHEMA.paused_queues p WHERE p.queue = l.queue),
       coalesce(g.weight, 1)
FROM lane l LEFT JOIN SCHEMA.group_settings g ON g.queue = l.queue AND g.group_key = l.group_key";

pub(super) const STRICT_LANES: &str = "\
-- lanes: the next $3 strict groups, by skipping through the index
WITH RECURSIVE lane AS (
    (SELECT j.queue, j.group_key, 1 AS nth
     FROM SCHEMA.jobs j
     WHERE j.finished_at IS NULL AND j.group_seq IS NOT NULL AND (j.queue, j.group_key) > ($1, $2)
     ORDER BY j.queue, j.group_key, j.group_seq
     LIMIT 1)
    UNION ALL
    SELECT next.queue, next.group_key, l.nth + 1
    FROM lane l CROSS JOIN LATERAL (
        SELECT j.queue, j.group_key
        FROM SCHEMA.jobs j
        WHERE j.finished_at IS NULL AND j.group_seq IS NOT NULL AND (j.queue, j.group_key) > (l.queue, l.group_key)
        ORDER BY j.queue, j.group_key, j.group_seq
        LIMIT 1
    ) next
    WHERE l.nth < $3::integer
)
SELECT l.queue, l.group_key, coalesce(g.paused, false), coalesce(g.weight, 1)
FROM lane l LEFT JOIN SCHEMA.group_settings g ON g.queue = l.queue AND g.group_key = l.group_key";

pub(super) const LIMITED: &str = "\
-- lanes: which queues and kinds have a limit, and which queues have groups of strict order
SELECT 'queue', s.queue FROM SCHEMA.queue_settings s WHERE s.concurrency IS NOT NULL OR s.rate_limit IS NOT NULL
UNION ALL
SELECT 'kind', k.kind FROM SCHEMA.kinds k WHERE k.concurrency IS NOT NULL OR k.rate_limit IS NOT NULL
UNION ALL
SELECT 'strict', s.queue FROM SCHEMA.queue_settings s WHERE s.group_order = 'strict'";

/// Looks at the next slice, and keeps what it found in mind.
pub(super) async fn scan(core: &Core, connection: &Object) -> Result<(), DbError> {
    let (generation, began) = (core.groups.begin_look(), Instant::now());
    let statement = connection.prepare_cached(&core.sql.limited).await?;
    let mut limited = LimitedNames::default();
    for row in connection.query(&statement, &[]).await? {
        let name: String = row.try_get(1)?;
        match row.try_get(0)? {
            "queue" => limited.queues.insert(name),
            "kind" => limited.kinds.insert(name),
            _ => limited.strict.insert(name),
        };
    }
    let (after_fair, after_strict) = core.groups.cursors();
    let mut slice = GroupSlice { generation, limited, after_fair, after_strict, ..GroupSlice::default() };
    let statement = connection.prepare_cached(&core.sql.group_lanes).await?;
    // Below every lane: no queue has an empty name.
    let (queue, kind, priority, group) = slice
        .after_fair
        .as_ref()
        .map_or(("", "", i16::MIN, ""), |lane| (&*lane.queue, &*lane.kind, lane.priority, &*lane.group));
    for row in connection.query(&statement, &[&queue, &kind, &priority, &group, &(SLICE as i32)]).await? {
        let text = |column| row.try_get::<_, &str>(column).map(Arc::<str>::from);
        let lane = FairLane { queue: text(0)?, kind: text(1)?, priority: row.try_get(2)?, group: text(3)? };
        let wait = match row.try_get(7)? {
            true => PAUSED_WAIT,
            false => Duration::from_micros(row.try_get::<_, i64>(6)?.unsigned_abs()),
        };
        let weight = row.try_get::<_, i32>(8)?.max(1) as u32;
        slice.fair.push((lane, FoundLane { position: (row.try_get(4)?, row.try_get(5)?), wait, weight }));
    }
    let statement = connection.prepare_cached(&core.sql.strict_lanes).await?;
    let (queue, group) = slice.after_strict.as_ref().map_or(("", ""), |lane| (&*lane.queue, &*lane.group));
    for row in connection.query(&statement, &[&queue, &group, &(SLICE as i32)]).await? {
        let text = |column| row.try_get::<_, &str>(column).map(Arc::<str>::from);
        let lane = StrictLane { queue: text(0)?, group: text(1)? };
        let wait = if row.try_get(2)? { PAUSED_WAIT } else { Duration::ZERO };
        slice.strict.push((lane, wait, row.try_get::<_, i32>(3)?.max(1) as u32));
    }
    slice.took = began.elapsed();
    core.groups.scanned(slice);
    Ok(())
}
