//! Looks for lanes of groups, a slice at a time. Behind `lane_scan`, which looks for lanes without a group and tells whether
//! there are others.

use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::Object;

use super::core::Core;
use super::error::DbError;
use super::group_lane::{FairLane, FoundLane, GroupSlice, LimitedNames, Look, StrictLane};
use super::lane_scan::PAUSED_WAIT;
use super::lanes::SLICE;

pub(super) const GROUP_LANES: &str = "\
-- lanes of groups: the first ready job of the next $5 (queue, kind, priority, group), by skipping through the index
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
-- lanes of groups: the next $3 of strict order, by skipping through the index
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

/// What the look for lanes without a group tells of the others.
#[derive(Default)]
pub(super) struct GroupsFound {
    /// There are unfinished jobs with a group, and with one of strict order.
    pub(super) has_fair: bool,
    pub(super) has_strict: bool,
    /// Empty, if it was not asked for.
    pub(super) limited: LimitedNames,
}

/// Looks at the next slice, if there is anything to see, and keeps what it found in mind.
pub(super) async fn scan(core: &Core, connection: &Object, look: Look, found: GroupsFound) -> Result<(), DbError> {
    let (after_fair, after_strict) = core.groups.cursors();
    let mut slice = GroupSlice { after_fair, after_strict, ..GroupSlice::default() };
    if found.has_fair {
        slice.fair = fair_lanes(core, connection, slice.after_fair.as_ref()).await?;
    }
    if found.has_strict {
        slice.strict = strict_lanes(core, connection, slice.after_strict.as_ref()).await?;
    }
    core.groups.scanned(look, look.reads_names.then_some(found.limited), slice);
    Ok(())
}

async fn fair_lanes(
    core: &Core,
    connection: &Object,
    after: Option<&FairLane>,
) -> Result<Vec<(FairLane, FoundLane)>, DbError> {
    let statement = connection.prepare_cached(&core.sql.group_lanes).await?;
    // Below every lane: no queue has an empty name.
    let (queue, kind, priority, group) =
        after.map_or(("", "", i16::MIN, ""), |lane| (&*lane.queue, &*lane.kind, lane.priority, &*lane.group));
    let mut found = Vec::new();
    for row in connection.query(&statement, &[&queue, &kind, &priority, &group, &(SLICE as i32)]).await? {
        let text = |column| row.try_get::<_, &str>(column).map(Arc::<str>::from);
        let lane = FairLane { queue: text(0)?, kind: text(1)?, priority: row.try_get(2)?, group: text(3)? };
        let wait = match row.try_get(7)? {
            true => PAUSED_WAIT,
            false => Duration::from_micros(row.try_get::<_, i64>(6)?.unsigned_abs()),
        };
        let weight = row.try_get::<_, i32>(8)?.max(1) as u32;
        found.push((lane, FoundLane { position: (row.try_get(4)?, row.try_get(5)?), wait, weight }));
    }
    Ok(found)
}

async fn strict_lanes(
    core: &Core,
    connection: &Object,
    after: Option<&StrictLane>,
) -> Result<Vec<(StrictLane, Duration, u32)>, DbError> {
    let statement = connection.prepare_cached(&core.sql.strict_lanes).await?;
    let (queue, group) = after.map_or(("", ""), |lane| (&*lane.queue, &*lane.group));
    let mut found = Vec::new();
    for row in connection.query(&statement, &[&queue, &group, &(SLICE as i32)]).await? {
        let text = |column| row.try_get::<_, &str>(column).map(Arc::<str>::from);
        let lane = StrictLane { queue: text(0)?, group: text(1)? };
        let wait = if row.try_get(2)? { PAUSED_WAIT } else { Duration::ZERO };
        found.push((lane, wait, row.try_get::<_, i32>(3)?.max(1) as u32));
    }
    Ok(found)
}
