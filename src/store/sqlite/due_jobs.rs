//! What is due, read in the order in which it is claimed.
//!
//! Each lane is in that order already. So the lanes are merged: of the one whose turn it is, jobs are read until one comes
//! that stands behind the head of another. Groups of one priority, and the jobs without a group beside them, take turns
//! instead. What a limit does not admit is left where it is. It never changes a row.

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, HashMap};
use std::sync::Arc;

use rusqlite::{CachedStatement, params};

use super::due_groups::Served;
use super::due_row::{ByteBudget, DueRow, LaneNames, payload_bytes};
use super::group_turns::GroupTurns;
use super::known_lanes::{DueLanes, Rank};
use super::lanes::{Lane, Position};
use super::room::{Room, RoomTaken};
use super::row::UuidBlob;
use super::transaction::Tx;
use crate::job::limits::BATCH_MAX;
use crate::store::Claim;
use crate::store::turns::STRIDE;

macro_rules! due {
    ($where:literal) => {
        concat!(
            "
-- claim: what is due in one lane, behind a position
SELECT seq, id, run_at, status, lease_token IS NOT NULL, payload, attempts, max_attempts, timeout_ms, idempotency_key,
       cancel_requested, last_error, created_at, marks
FROM jobs INDEXED BY ",
            $where
        )
    };
}

pub(super) const DUE_IN_LANE: &str = due!(
    "jobs_ready
WHERE lease_expires_at IS NULL AND finished_at IS NULL AND group_key IS NULL
  AND queue = ?1 AND kind = ?2 AND priority = ?3 AND (run_at, id) > (?4, ?5) AND run_at <= ?6
ORDER BY run_at, id LIMIT ?7"
);

pub(super) const DUE_IN_GROUP: &str = due!(
    "jobs_ready_grouped
WHERE lease_expires_at IS NULL AND finished_at IS NULL AND group_key IS NOT NULL AND coalesce(marks, 0) & 8 = 0
  AND queue = ?1 AND kind = ?2 AND priority = ?3 AND group_key = ?8 AND (run_at, id) > (?4, ?5) AND run_at <= ?6
ORDER BY run_at, id LIMIT ?7"
);

/// Only the first unfinished job, and only if none runs: that one would come first.
pub(super) const DUE_IN_STRICT: &str = due!(
    "jobs_strict
WHERE finished_at IS NULL AND group_key IS NOT NULL AND coalesce(marks, 0) & 8 <> 0 AND queue = ?1 AND group_key = ?2
ORDER BY lease_expires_at IS NULL, seq LIMIT 1"
);

/// A lane whose turn comes when its next job is the first of all.
struct NextOfLane<'l> {
    /// Of that job, or less.
    rank: Rank,
    lane: &'l Arc<Lane>,
    /// The last job that was read of the lane.
    behind: Position,
    /// The range that the lane is from, as long as the lane behind it in that range has no turn yet.
    range: Option<usize>,
    is_read: bool,
}

impl Ord for NextOfLane<'_> {
    /// The heap gives out the greatest first, which is the least rank.
    fn cmp(&self, other: &Self) -> Ordering {
        other.rank.cmp(&self.rank)
    }
}

impl PartialOrd for NextOfLane<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for NextOfLane<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.rank == other.rank
    }
}

impl Eq for NextOfLane<'_> {}

/// What was read for a claim.
#[derive(Default)]
pub(super) struct Due {
    /// In the order in which they are claimed.
    pub(super) rows: Vec<DueRow>,
    /// All lanes that were read from.
    pub(super) lanes: Vec<ReadLane>,
    /// Who had turns, by priority.
    pub(super) served: HashMap<i16, Served>,
    pub(super) room: RoomTaken,
}

/// A lane that was read from.
pub(super) struct ReadLane {
    pub(super) lane: Arc<Lane>,
    /// The first job that was read and not taken. `None`: the file knows.
    pub(super) head: Option<Position>,
}

/// What a claim takes at most.
pub(super) struct Wanted<'b> {
    pub(super) max: usize,
    /// Of those, jobs with a limit.
    pub(super) limited: usize,
    pub(super) budget: &'b mut ByteBudget,
}

/// The first due jobs that a claim may take, as many as are wanted.
pub(super) fn due_jobs(tx: &Tx<'_>, claim: &Claim, wanted: Wanted<'_>) -> rusqlite::Result<Due> {
    let mut due = Due { rows: Vec::with_capacity(wanted.max.min(BATCH_MAX)), ..Due::default() };
    let mut room = Room::new(tx, wanted.limited);
    let (lanes, asked) = (tx.lanes(), tx.lanes().asked(claim));
    let mut ranges = lanes.due_for(&asked);
    let mut turns: BinaryHeap<NextOfLane<'_>> =
        ranges.iter_mut().enumerate().filter_map(|(index, range)| NextOfLane::of_next(range, index)).collect();
    let mut groups = GroupTurns::new(tx, lanes.due_groups_for(&asked));
    let mut statement = tx.statement(DUE_IN_LANE)?;
    while due.rows.len() < wanted.max && !wanted.budget.is_exhausted {
        let limit = wanted.max - due.rows.len();
        let limit = match groups.turn_before(turns.peek().map(|next| next.rank)) {
            Turn::Group => {
                groups.serve(tx, &mut room, limit, wanted.budget, &mut due)?;
                continue;
            }
            Turn::Ungrouped(jobs) => limit.min(jobs),
        };
        let Some(mut turn) = turns.pop() else { break };
        if let Some(index) = turn.range.take() {
            turns.extend(NextOfLane::of_next(&mut ranges[index], index));
        }
        let until = turns.peek().map(|next| next.rank);
        let before = due.rows.len();
        if turn.read(tx, &mut statement, until, limit, &mut room, wanted.budget, &mut due)? {
            turns.push(turn);
        }
        let read = due.rows[before..].iter();
        groups.served_ungrouped(read, &mut due.served);
    }
    due.room = room.finish();
    Ok(due)
}

/// Whose turn it is.
pub(super) enum Turn {
    Group,
    /// Jobs without a group, so many before a group has its turn.
    Ungrouped(usize),
}

/// How many jobs without a group come before a group's, by their tags.
pub(super) fn jobs_before(tag: u64, of_group: u64) -> usize {
    usize::try_from(of_group.saturating_sub(tag) / STRIDE).unwrap_or(usize::MAX).max(1)
}

impl<'l> NextOfLane<'l> {
    fn of_next(range: &mut DueLanes<'l>, index: usize) -> Option<Self> {
        range.next().map(|(rank, lane)| Self {
            rank,
            lane,
            behind: Position::START,
            range: Some(index),
            is_read: false,
        })
    }

    /// Reads at most `limit` due jobs of the lane, up to one that another lane's job comes before, or that the budget or a
    /// limit does not admit. `true`: it may have more, and has its turn later.
    #[expect(clippy::too_many_arguments, reason = "what a claim reads with, and where to")]
    fn read(
        &mut self,
        tx: &Tx<'_>,
        statement: &mut CachedStatement<'_>,
        until: Option<Rank>,
        limit: usize,
        room: &mut Room<'_, '_>,
        budget: &mut ByteBudget,
        due: &mut Due,
    ) -> rusqlite::Result<bool> {
        let lane = self.lane;
        let bounds = room.bounds(lane);
        if room.is_closed(&bounds) {
            return Ok(false);
        }
        if !std::mem::replace(&mut self.is_read, true) {
            due.lanes.push(ReadLane { lane: lane.clone(), head: None });
        }
        let due = &mut due.rows;
        let names = LaneNames::of(lane);
        let (run_at, id) = (self.behind.run_at, UuidBlob(self.behind.id));
        let (now, before) = (tx.now_micros(), due.len());
        let mut rows = statement.query(params![lane.queue, lane.kind, lane.priority, run_at, id, now, limit as i64])?;
        while let Some(row) = rows.next()? {
            let position = Position { run_at: row.get(2)?, id: row.get::<_, UuidBlob>(1)?.0 };
            let rank = (Reverse(lane.priority), position);
            if until.is_some_and(|until| until < rank) {
                self.rank = rank;
                return Ok(true);
            }
            if !budget.has_room_for(payload_bytes(row)?) {
                return Ok(false);
            }
            let mut read = DueRow::read(tx, row, lane, &names)?;
            read.is_limited = !bounds.is_empty() && read.can_start();
            if read.is_limited {
                let Some(holds) = room.admit(&bounds, &read) else { return Ok(false) };
                read.started_marks = read.started_marks.with(holds);
            }
            budget.take(read.bytes);
            self.behind = position;
            self.rank = rank;
            due.push(read);
        }
        Ok(due.len() - before == limit)
    }
}
