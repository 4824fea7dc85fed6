//! Looks for lanes: a slice of them at a time, each with its first ready job, by skipping through the index.

use std::time::{Duration, Instant};

use deadpool_postgres::Object;

use super::core::Core;
use super::error::DbError;
use super::group_scan;
use super::lanes::{Lane, LanePosition, SLICE, Slice};

pub(super) const LANES: &str = "\
-- lanes: the first ready job of the next $4 (queue, kind, priority), by skipping through the index
WITH RECURSIVE lane AS (
    (SELECT j.queue, j.kind, j.priority, j.run_at, j.id, 1 AS nth
     FROM SCHEMA.jobs j
     WHERE j.finished_at IS NULL AND j.group_key IS NULL AND j.lease_expires_at IS NULL
       AND (j.queue, j.kind, j.priority) > ($1, $2, $3)
     ORDER BY j.queue, j.kind, j.priority, j.run_at, j.id
     LIMIT 1)
    UNION ALL
    SELECT next.queue, next.kind, next.priority, next.run_at, next.id, l.nth + 1
    FROM lane l CROSS JOIN LATERAL (
        SELECT j.queue, j.kind, j.priority, j.run_at, j.id
        FROM SCHEMA.jobs j
        WHERE j.finished_at IS NULL AND j.group_key IS NULL AND j.lease_expires_at IS NULL
          AND (j.queue, j.kind, j.priority) > (l.queue, l.kind, l.priority)
        ORDER BY j.queue, j.kind, j.priority, j.run_at, j.id
        LIMIT 1
    ) next
    WHERE l.nth < $4::integer
)
SELECT l.queue, l.kind, l.priority, l.run_at, l.id,
       -- How long until it is due. A year stands for all that is later, which a sum or a clock may not hold.
       (extract(epoch FROM greatest(least(l.run_at, now() + interval '1 year'), now()) - now()) * 1000000)::bigint,
       EXISTS (SELECT FROM SCHEMA.paused_queues p WHERE p.queue = l.queue)
FROM lane l";

/// 1 h: a lane that was found paused is not asked, unless another look finds that it is no longer.
pub(super) const PAUSED_WAIT: Duration = Duration::from_secs(3600);

/// Looks at the next slice, and keeps what it found in mind.
pub(super) async fn scan(core: &Core, connection: &Object) -> Result<(), DbError> {
    let (generation, began) = (core.lanes.generation(), Instant::now());
    let after = core.lanes.cursor();
    let found = slice(core, connection, after.as_ref()).await?.into_iter().map(|(mut found, is_paused)| {
        if is_paused {
            found.2 = PAUSED_WAIT;
        }
        found
    });
    let found = found.collect();
    group_scan::scan(core, connection).await?;
    core.lanes.scanned(Slice { generation, took: began.elapsed(), after, found });
    Ok(())
}

/// The lanes behind `after`, each with whether its queue is paused.
async fn slice(core: &Core, connection: &Object, after: Option<&Lane>) -> Result<Vec<(LanePosition, bool)>, DbError> {
    let statement = connection.prepare_cached(&core.sql.lanes).await?;
    // Below every lane: no queue has an empty name.
    let (queue, kind, priority) =
        after.map_or(("", "", i16::MIN), |lane| (lane.queue.as_str(), lane.kind.as_str(), lane.priority));
    let mut found = Vec::new();
    for row in connection.query(&statement, &[&queue, &kind, &priority, &(SLICE as i32)]).await? {
        let lane = Lane { queue: row.try_get(0)?, kind: row.try_get(1)?, priority: row.try_get(2)? };
        let wait = Duration::from_micros(row.try_get::<_, i64>(5)?.unsigned_abs());
        found.push((LanePosition(lane, (row.try_get(3)?, row.try_get(4)?), wait), row.try_get(6)?));
    }
    Ok(found)
}
