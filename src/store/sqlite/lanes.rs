//! Lanes as the file has them. A lane is (queue, kind, priority): a range of the ready index, in the order in which its
//! jobs are claimed.
//!
//! Lanes that have jobs waiting are found by hopping from one to the next, so all of them cost time in proportion to their
//! number: the writer does that when it opens the file and then knows them (`known_lanes`). It never changes a row.

use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension, Row, ToSql, params};
use uuid::Uuid;

use super::row::UuidBlob;
use crate::job::limits::PRIORITY_MIN;

/// Where jobs wait that are claimed in the order of their positions. Names are those of the rows: they need not be valid.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Lane {
    // In the order of the index.
    pub(super) queue: Arc<str>,
    pub(super) kind: Arc<str>,
    pub(super) priority: i16,
}

/// Where a job stands in its lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Position {
    pub(super) run_at: i64,
    pub(super) id: Uuid,
}

impl Position {
    /// Before every job.
    pub(super) const START: Self = Self { run_at: i64::MIN, id: Uuid::nil() };
}

/// A lane that has jobs waiting, and the position of the first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WaitingLane {
    pub(super) lane: Lane,
    pub(super) head: Position,
}

macro_rules! first_waiting {
    ($in:literal, $order:literal) => {
        concat!(
            "
-- lanes: the first waiting job of a lane, or behind it
SELECT queue, kind, priority, run_at, id FROM jobs INDEXED BY jobs_ready
WHERE lease_expires_at IS NULL AND finished_at IS NULL AND group_key IS NULL AND ",
            $in,
            " ORDER BY ",
            $order,
            " LIMIT 1"
        )
    };
}

/// Where the next lane can be, nearest first. Each is one probe of the index, however many jobs wait. Not one comparison
/// of `(queue, kind, priority)`: SQLite begins such a range at the lane itself and walks over all of its jobs (13 ms
/// instead of 5 µs with 100,000 waiting).
pub(super) const NEXT_LANE: [&str; 3] = [
    first_waiting!("queue = ?1 AND kind = ?2 AND priority > ?3", "priority, run_at, id"),
    first_waiting!("queue = ?1 AND kind > ?2", "kind, priority, run_at, id"),
    first_waiting!("queue > ?1", "queue, kind, priority, run_at, id"),
];

pub(super) const HEAD: &str = first_waiting!("queue = ?1 AND kind = ?2 AND priority = ?3", "run_at, id");

/// The position of the first waiting job of a lane.
pub(super) fn head_of(connection: &Connection, lane: &Lane) -> rusqlite::Result<Option<Position>> {
    let mut statement = connection.prepare_cached(HEAD)?;
    statement.query_row(params![lane.queue, lane.kind, lane.priority], read_position).optional()
}

/// The first lane that has jobs waiting, behind this one.
pub(super) fn lane_behind(connection: &Connection, last: Option<&Lane>) -> rusqlite::Result<Option<WaitingLane>> {
    let (queue, kind, priority) =
        last.map_or(("", "", PRIORITY_MIN - 1), |lane| (&*lane.queue, &*lane.kind, lane.priority));
    let params: [&dyn ToSql; 3] = [&queue, &kind, &priority];
    for next in NEXT_LANE {
        let mut statement = connection.prepare_cached(next)?;
        let asked = statement.parameter_count();
        let found = statement.query_row(&params[..asked], |row| {
            let lane = Lane { queue: row.get(0)?, kind: row.get(1)?, priority: row.get(2)? };
            Ok(WaitingLane { lane, head: read_position(row)? })
        });
        if let Some(found) = found.optional()? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

fn read_position(row: &Row<'_>) -> rusqlite::Result<Position> {
    Ok(Position { run_at: row.get(3)?, id: row.get::<_, UuidBlob>(4)?.0 })
}

/// Every lane that has jobs waiting.
pub(super) fn ready_lanes(connection: &Connection) -> rusqlite::Result<Vec<WaitingLane>> {
    let mut lanes: Vec<WaitingLane> = Vec::new();
    while let Some(lane) = lane_behind(connection, lanes.last().map(|last| &last.lane))? {
        lanes.push(lane);
    }
    Ok(lanes)
}
