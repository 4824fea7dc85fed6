//! Looks for lanes: a slice of them at a time, each with its first ready job, by skipping through the index.

use std::time::{Duration, Instant};

use deadpool_postgres::Object;

use super::core::Core;
use super::error::DbError;
use super::group_scan::{self, GroupsFound};
use super::lanes::{Lane, LanePosition, SLICE, Slice};

pub(super) const LANES: &str = "\
-- lanes: the first ready job of the next $4 (queue, kind, priority), by skipping through the index; whether there are
-- lanes of groups, and if $5, which queues and kinds have a limit, and which queues have groups of strict order
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
       EXISTS (SELECT FROM SCHEMA.paused_queues p WHERE p.queue = l.queue), NULL
FROM lane l
UNION ALL
SELECT '', NULL, NULL, NULL, NULL, NULL, NULL, 'groups'
WHERE (SELECT j.queue FROM SCHEMA.jobs j
       WHERE j.finished_at IS NULL AND j.group_key IS NOT NULL AND j.group_seq IS NULL AND j.lease_expires_at IS NULL
       ORDER BY j.queue, j.kind, j.priority, j.group_key, j.run_at, j.id LIMIT 1) IS NOT NULL
UNION ALL
SELECT '', NULL, NULL, NULL, NULL, NULL, NULL, 'strict groups'
WHERE (SELECT j.queue FROM SCHEMA.jobs j
       WHERE j.finished_at IS NULL AND j.group_seq IS NOT NULL
       ORDER BY j.queue, j.group_key, j.group_seq LIMIT 1) IS NOT NULL
UNION ALL
SELECT s.queue, NULL, NULL, NULL, NULL, NULL, NULL, 'limited queue' FROM SCHEMA.queue_settings s
WHERE $5::boolean AND (s.concurrency IS NOT NULL OR s.rate_limit IS NOT NULL)
UNION ALL
SELECT k.kind, NULL, NULL, NULL, NULL, NULL, NULL, 'limited kind' FROM SCHEMA.kinds k
WHERE $5 AND (k.concurrency IS NOT NULL OR k.rate_limit IS NOT NULL)
UNION ALL
SELECT s.queue, NULL, NULL, NULL, NULL, NULL, NULL, 'strict queue' FROM SCHEMA.queue_settings s
WHERE $5 AND s.group_order = 'strict'";

/// The lanes alone, for lists: without $5.
pub(super) fn listed_lanes() -> String {
    let (lanes, _) =
        LANES.split_once("\nFROM lane l\nUNION ALL").expect("what is known of groups stands behind the lanes");
    for_lists(&format!("{lanes}\nFROM lane l"))
}

/// The same statement under a name of its own, so that its plan and its time are not taken for a claim's.
pub(super) fn for_lists(lanes: &str) -> String {
    lanes.replacen("-- ", "-- list of ", 1)
}

/// 1 h: a lane that was found paused is not asked, unless another look finds that it is no longer.
pub(super) const PAUSED_WAIT: Duration = Duration::from_secs(3600);

/// What one look found.
#[derive(Default)]
struct Found {
    lanes: Vec<LanePosition>,
    groups: GroupsFound,
}

/// Looks at the next slice, and keeps what it found in mind. One statement, as long as no job waits that has a group.
pub(super) async fn scan(core: &Core, connection: &Object) -> Result<(), DbError> {
    let (generation, began) = (core.lanes.generation(), Instant::now());
    let (after, look) = (core.lanes.cursor(), core.groups.begin_look());
    let Found { lanes: found, groups } = slice(core, connection, after.as_ref(), look.reads_names).await?;
    group_scan::scan(core, connection, look, groups).await?;
    core.lanes.scanned(Slice { generation, took: began.elapsed(), after, found });
    Ok(())
}

/// The lanes behind `after`, and what there is to know of groups and limits.
async fn slice(core: &Core, connection: &Object, after: Option<&Lane>, reads_names: bool) -> Result<Found, DbError> {
    let statement = connection.prepare_cached(&core.sql.lanes).await?;
    // Below every lane: no queue has an empty name.
    let (queue, kind, priority) =
        after.map_or(("", "", i16::MIN), |lane| (lane.queue.as_str(), lane.kind.as_str(), lane.priority));
    let mut found = Found::default();
    for row in connection.query(&statement, &[&queue, &kind, &priority, &(SLICE as i32), &reads_names]).await? {
        let name: String = row.try_get(0)?;
        match row.try_get::<_, Option<&str>>(7)? {
            None => {
                let lane = Lane { queue: name, kind: row.try_get(1)?, priority: row.try_get(2)? };
                let wait = match row.try_get(6)? {
                    true => PAUSED_WAIT,
                    false => Duration::from_micros(row.try_get::<_, i64>(5)?.unsigned_abs()),
                };
                found.lanes.push(LanePosition(lane, (row.try_get(3)?, row.try_get(4)?), wait));
            }
            Some("groups") => found.groups.has_fair = true,
            Some("strict groups") => found.groups.has_strict = true,
            Some("limited queue") => drop(found.groups.limited.queues.insert(name)),
            Some("limited kind") => drop(found.groups.limited.kinds.insert(name)),
            Some(_) => drop(found.groups.limited.strict.insert(name)),
        }
    }
    Ok(found)
}
