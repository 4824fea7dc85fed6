//! The lanes that have jobs waiting: (queue, kind, priority), found by hopping from one to the next in the index.

use rusqlite::{Connection, OptionalExtension, params};

use crate::job::limits::PRIORITY_MIN;

/// One lane and when its oldest job is due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ReadyLane {
    pub(super) queue: String,
    pub(super) kind: String,
    pub(super) priority: i16,
    pub(super) oldest_run_at: i64,
}

/// One probe of the index for each lane, however many jobs wait in it.
pub(super) const NEXT_LANE: &str = "
-- lanes: the first waiting job behind a lane
SELECT queue, kind, priority, run_at FROM jobs INDEXED BY jobs_ready
WHERE status IN ('queued', 'retrying') AND (queue, kind, priority) > (?1, ?2, ?3)
ORDER BY queue, kind, priority, run_at, id LIMIT 1";

pub(super) fn ready_lanes(connection: &Connection) -> rusqlite::Result<Vec<ReadyLane>> {
    let mut next = connection.prepare_cached(NEXT_LANE)?;
    let mut lanes: Vec<ReadyLane> = Vec::new();
    loop {
        let (queue, kind, priority) =
            lanes.last().map_or(("", "", PRIORITY_MIN - 1), |lane| (&*lane.queue, &*lane.kind, lane.priority));
        let found = next.query_row(params![queue, kind, priority], |row| {
            Ok(ReadyLane { queue: row.get(0)?, kind: row.get(1)?, priority: row.get(2)?, oldest_run_at: row.get(3)? })
        });
        match found.optional()? {
            Some(lane) => lanes.push(lane),
            None => return Ok(lanes),
        }
    }
}
