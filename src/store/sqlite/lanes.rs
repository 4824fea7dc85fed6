//! Lanes as the file has them. A lane is (queue, kind, priority), or (queue, kind, priority, group) for jobs with a group: a
//! range of a ready index, in the order in which its jobs are claimed. A group of strict order is one lane, of which only
//! the first unfinished job is claimed.
//!
//! Lanes that have jobs waiting are found by hopping from one to the next, so all of them cost time in proportion to their
//! number: the writer does that when it opens the file and then knows them (`known_lanes`). It never changes a row.

use std::cmp::Ordering;
use std::sync::Arc;

use rusqlite::{CachedStatement, Connection, OptionalExtension, Row, ToSql};
use uuid::Uuid;

use super::marks::Marks;
use super::row::UuidBlob;
use crate::job::limits::PRIORITY_MIN;

/// Where jobs wait that are claimed in the order of their positions. Names are those of the rows: they need not be valid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Lane {
    pub(super) queue: Arc<str>,
    pub(super) kind: Arc<str>,
    pub(super) priority: i16,
    pub(super) group: Group,
}

/// The group of its queue that a lane is of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Group {
    None,
    /// Its jobs are claimed by priority and time, in turn with other groups.
    Fair(Arc<str>),
    /// One job at a time, by sequence. The lane's kind and priority are those of the first unfinished job.
    Strict(Arc<str>),
}

impl Group {
    pub(super) fn key(&self) -> Option<&Arc<str>> {
        match self {
            Self::None => None,
            Self::Fair(key) | Self::Strict(key) => Some(key),
        }
    }

    pub(super) fn is_strict(&self) -> bool {
        matches!(self, Self::Strict(_))
    }

    /// In which index its jobs wait; those of the first come first.
    fn index(&self) -> u8 {
        match self {
            Self::None => 0,
            Self::Fair(_) => 1,
            Self::Strict(_) => 2,
        }
    }
}

impl Lane {
    /// A lane of jobs without a group. Also for who asks only for kind and queue.
    pub(super) fn plain(queue: Arc<str>, kind: Arc<str>, priority: i16) -> Self {
        Self { queue, kind, priority, group: Group::None }
    }

    /// The lane of a row: queue, kind, priority, group_key and marks, from this column on.
    pub(super) fn read(row: &Row<'_>, first: usize) -> rusqlite::Result<Self> {
        let group = match (row.get::<_, Option<Arc<str>>>(first + 3)?, Marks::read(row, first + 4)?) {
            (None, _) => Group::None,
            (Some(key), marks) if marks.is_strict() => Group::Strict(key),
            (Some(key), _) => Group::Fair(key),
        };
        Ok(Self { queue: row.get(first)?, kind: row.get(first + 1)?, priority: row.get(first + 2)?, group })
    }

    /// What comes first in the index is compared first.
    fn in_order(&self) -> (u8, &str, &str, i16, &str) {
        let group = self.group.key().map_or("", |key| key);
        match &self.group {
            Group::Strict(_) => (self.group.index(), &self.queue, group, self.priority, &self.kind),
            _ => (self.group.index(), &self.queue, &self.kind, self.priority, group),
        }
    }
}

impl Ord for Lane {
    /// As the indexes have them, one index behind the other.
    fn cmp(&self, other: &Self) -> Ordering {
        self.in_order().cmp(&other.in_order())
    }
}

impl PartialOrd for Lane {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
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
    /// Behind every job.
    pub(super) const END: Self = Self { run_at: i64::MAX, id: Uuid::max() };
}

/// A lane, and the position of its first job; `None`: of a strict group, one of whose jobs runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WaitingLane {
    pub(super) lane: Lane,
    pub(super) head: Option<Position>,
}

// Only columns of the index where that will do: a row of the table is another page to read, and may be damaged.
macro_rules! first_waiting {
    ($group:literal, $waits:literal, $index:literal, $in:literal, $order:literal) => {
        concat!(
            "
-- lanes: the first waiting job of a lane, or behind it
SELECT queue, kind, priority, ",
            $group,
            ", run_at, id, ",
            $waits,
            " FROM jobs INDEXED BY ",
            $index,
            " AND ",
            $in,
            " ORDER BY ",
            $order,
            " LIMIT 1"
        )
    };
}

macro_rules! first_ungrouped {
    ($in:literal, $order:literal) => {
        first_waiting!(
            "NULL, NULL",
            "1",
            "jobs_ready WHERE lease_expires_at IS NULL AND finished_at IS NULL AND group_key IS NULL",
            $in,
            $order
        )
    };
}

macro_rules! first_grouped {
    ($in:literal, $order:literal) => {
        first_waiting!(
            "group_key, NULL",
            "1",
            "jobs_ready_grouped WHERE lease_expires_at IS NULL AND finished_at IS NULL AND group_key IS NOT NULL \
             AND coalesce(marks, 0) & 8 = 0",
            $in,
            $order
        )
    };
}

macro_rules! first_strict {
    ($in:literal, $order:literal) => {
        first_waiting!(
            "group_key, marks",
            "lease_expires_at IS NULL",
            "jobs_strict WHERE finished_at IS NULL AND group_key IS NOT NULL AND coalesce(marks, 0) & 8 <> 0",
            $in,
            $order
        )
    };
}

/// Where the next lane can be, nearest first. Each is one probe of the index, however many jobs wait. Not one comparison
/// of `(queue, kind, priority)`: SQLite begins such a range at the lane itself and walks over all of its jobs (13 ms
/// instead of 5 µs with 100,000 waiting).
pub(super) const NEXT_LANE: [&str; 3] = [
    first_ungrouped!("queue = ?1 AND kind = ?2 AND priority > ?3", "priority, run_at, id"),
    first_ungrouped!("queue = ?1 AND kind > ?2", "kind, priority, run_at, id"),
    first_ungrouped!("queue > ?1", "queue, kind, priority, run_at, id"),
];

/// As [`NEXT_LANE`], of groups.
pub(super) const NEXT_GROUPED: [&str; 4] = [
    first_grouped!("queue = ?1 AND kind = ?2 AND priority = ?3 AND group_key > ?4", "group_key, run_at, id"),
    first_grouped!("queue = ?1 AND kind = ?2 AND priority > ?3", "priority, group_key, run_at, id"),
    first_grouped!("queue = ?1 AND kind > ?2", "kind, priority, group_key, run_at, id"),
    first_grouped!("queue > ?1", "queue, kind, priority, group_key, run_at, id"),
];

/// As [`NEXT_LANE`], of groups of strict order: the job that runs, or else the first that waits. After a redrive they need
/// not be the same.
pub(super) const NEXT_STRICT: [&str; 2] = [
    first_strict!("queue = ?1 AND group_key > ?2", "group_key, lease_expires_at IS NULL, seq"),
    first_strict!("queue > ?1", "queue, group_key, lease_expires_at IS NULL, seq"),
];

pub(super) const HEAD: &str = first_ungrouped!("queue = ?1 AND kind = ?2 AND priority = ?3", "run_at, id");

pub(super) const HEAD_GROUPED: &str =
    first_grouped!("queue = ?1 AND kind = ?2 AND priority = ?3 AND group_key = ?4", "run_at, id");

pub(super) const HEAD_STRICT: &str = first_strict!("queue = ?1 AND group_key = ?2", "lease_expires_at IS NULL, seq");

/// A lane as it is now, with the position of the first waiting job. That of a strict group may have got another kind or
/// priority; `None` if the group has no unfinished job, or one of them runs.
pub(super) fn head_of(connection: &Connection, lane: &Lane) -> rusqlite::Result<Option<WaitingLane>> {
    let found = match &lane.group {
        Group::None => first(connection.prepare_cached(HEAD)?, &[&lane.queue, &lane.kind, &lane.priority])?,
        Group::Fair(key) => {
            first(connection.prepare_cached(HEAD_GROUPED)?, &[&lane.queue, &lane.kind, &lane.priority, key])?
        }
        Group::Strict(key) => first(connection.prepare_cached(HEAD_STRICT)?, &[&lane.queue, key])?,
    };
    Ok(found.filter(|found| found.head.is_some()))
}

/// The next lane behind this one.
pub(super) fn lane_behind(connection: &Connection, last: Option<&Lane>) -> rusqlite::Result<Option<WaitingLane>> {
    let start = Lane::plain("".into(), "".into(), PRIORITY_MIN - 1);
    let last = last.unwrap_or(&start);
    let begin: [&dyn ToSql; 4] = [&"", &"", &(PRIORITY_MIN - 1), &""];
    let ungrouped: [&dyn ToSql; 4] = [&last.queue, &last.kind, &last.priority, &""];
    let (grouped, strict): ([&dyn ToSql; 4], [&dyn ToSql; 4]) = match &last.group {
        Group::None => (begin, begin),
        Group::Fair(key) => ([&last.queue, &last.kind, &last.priority, key], begin),
        Group::Strict(key) => (begin, [&last.queue, key, &"", &""]),
    };
    let indexes: [(u8, &[&str], &[&dyn ToSql]); 3] =
        [(0, &NEXT_LANE, &ungrouped), (1, &NEXT_GROUPED, &grouped), (2, &NEXT_STRICT, &strict)];
    for (_, probes, params) in indexes.into_iter().filter(|(index, ..)| *index >= last.group.index()) {
        for next in probes {
            let found = first(connection.prepare_cached(next)?, params)?;
            if found.is_some() {
                return Ok(found);
            }
        }
    }
    Ok(None)
}

/// The one row of a statement that takes the first of these parameters.
fn first(mut statement: CachedStatement<'_>, params: &[&dyn ToSql]) -> rusqlite::Result<Option<WaitingLane>> {
    let asked = statement.parameter_count();
    let waiting = |row: &Row<'_>| {
        let position = Position { run_at: row.get(5)?, id: row.get::<_, UuidBlob>(6)?.0 };
        Ok(WaitingLane { lane: Lane::read(row, 0)?, head: row.get::<_, bool>(7)?.then_some(position) })
    };
    statement.query_row(&params[..asked], waiting).optional()
}

/// Every lane that has jobs waiting.
pub(super) fn ready_lanes(connection: &Connection) -> rusqlite::Result<Vec<WaitingLane>> {
    let mut lanes: Vec<WaitingLane> = Vec::new();
    let mut last = None;
    while let Some(found) = lane_behind(connection, last.as_ref())? {
        last = Some(found.lane.clone());
        lanes.extend(found.head.is_some().then_some(found));
    }
    Ok(lanes)
}
