//! The turns of groups within one claim: whose job is next, and reading it.
//!
//! Of each group one job is taken at a time, so what a claim takes is spread over all groups that have something due. A
//! lane is read a share at a time: what the claim has room for, over the lanes there are.

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::sync::Arc;

use rusqlite::params;

use super::due_groups::{BundleLanes, DueBundles, Served, TurnRank};
use super::due_jobs::{DUE_IN_GROUP, DUE_IN_STRICT, Due, ReadLane, Turn, jobs_before};
use super::due_row::{ByteBudget, DueRow, LaneNames};
use super::known_lanes::Rank;
use super::lanes::{Lane, Position};
use super::room::Room;
use super::row::UuidBlob;
use super::transaction::Tx;
use crate::planted::{Bug, planted};
use crate::store::turns::{STRIDE, Unit, stride};

/// 32 jobs are read of a lane at once, at most: those that are not taken were read in vain.
const SHARE_MAX: usize = 32;

pub(super) struct GroupTurns<'l> {
    tags: LocalTags<'l>,
    ranges: Vec<DueBundles<'l>>,
    bundles: Vec<BundleLanes<'l>>,
    next: BinaryHeap<GroupTurn<'l>>,
}

/// The tags of units, with the turns of this claim.
struct LocalTags<'l> {
    groups: &'l super::due_groups::DueGroups,
    tags: HashMap<(i16, Unit), u64>,
}

/// A lane of a group that waits for its turn.
struct GroupTurn<'l> {
    rank: TurnRank,
    lane: &'l Arc<Lane>,
    /// The bundle that the lane is from, and if it is the first of it, the range of that.
    bundle: usize,
    range: Option<usize>,
    is_open: bool,
    /// Its number among the lanes that the claim has read from.
    nth: usize,
    /// Jobs that were read and not taken yet.
    read: VecDeque<DueRow>,
    behind: Position,
    is_all_read: bool,
}

impl Ord for GroupTurn<'_> {
    /// The heap gives out the greatest first, which is the least rank.
    fn cmp(&self, other: &Self) -> Ordering {
        other.rank.cmp(&self.rank)
    }
}

impl PartialOrd for GroupTurn<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for GroupTurn<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.rank == other.rank
    }
}

impl Eq for GroupTurn<'_> {}

fn unit_of(lane: &Lane) -> Unit {
    lane.group.key().map(|key| (lane.queue.clone(), key.clone()))
}

impl LocalTags<'_> {
    fn of(&self, priority: i16, unit: Unit) -> u64 {
        let known = (priority, unit);
        self.tags.get(&known).copied().unwrap_or_else(|| self.groups.pass(priority, &known.1))
    }
}

impl<'l> GroupTurns<'l> {
    pub(super) fn new(tx: &'l Tx<'_>, ranges: Vec<DueBundles<'l>>) -> Self {
        let tags = LocalTags { groups: tx.lanes().groups(), tags: HashMap::new() };
        let mut turns = Self { tags, ranges, bundles: Vec::new(), next: BinaryHeap::new() };
        (0..turns.ranges.len()).for_each(|range| turns.open_bundle(range));
        turns
    }

    fn open_bundle(&mut self, range: usize) {
        if let Some(bundle) = self.ranges[range].next() {
            self.bundles.push(bundle);
            self.open_lane(self.bundles.len() - 1, Some(range));
        }
    }

    fn open_lane(&mut self, bundle: usize, range: Option<usize>) {
        if let Some((rank, lane)) = self.bundles[bundle].next() {
            let (read, behind) = (VecDeque::new(), Position::START);
            let (is_open, nth, is_all_read) = (false, 0, false);
            self.next.push(GroupTurn { rank, lane, bundle, range, is_open, nth, read, behind, is_all_read });
        }
    }

    /// Whose turn it is: a group's, or that of jobs without one, of which the first has this rank.
    pub(super) fn turn_before(&mut self, ungrouped: Option<Rank>) -> Turn {
        let Some(group) = self.first() else { return Turn::Ungrouped(usize::MAX) };
        let Some((priority, position)) = ungrouped else { return Turn::Group };
        match priority.cmp(&group.0) {
            Ordering::Less => return Turn::Ungrouped(usize::MAX),
            Ordering::Greater => return Turn::Group,
            Ordering::Equal => {}
        }
        let tag = self.tags.of(priority.0, None);
        if (tag, position) < (group.1, group.2) { Turn::Ungrouped(jobs_before(tag, group.1)) } else { Turn::Group }
    }

    /// The first turn, by the tags as they are now: another lane of the same group may have had one.
    fn first(&mut self) -> Option<TurnRank> {
        loop {
            let (rank, lane) = self.next.peek().map(|next| (next.rank, next.lane))?;
            let tag = self.tags.tags.get(&(lane.priority, unit_of(lane))).copied().unwrap_or(rank.1);
            if tag <= rank.1 {
                return Some(rank);
            }
            let mut late = self.next.pop()?;
            late.rank.1 = tag;
            self.next.push(late);
        }
    }

    /// Jobs without a group were taken: their tag rises as well, if groups wait beside them.
    pub(super) fn served_ungrouped<'r>(
        &mut self,
        rows: impl Iterator<Item = &'r DueRow>,
        served: &mut HashMap<i16, Served>,
    ) {
        let Some(priority) = self.next.peek().map(|next| next.rank.0.0) else { return };
        let jobs = rows.filter(|row| row.lane.priority == priority).count();
        if jobs == 0 {
            return;
        }
        let tag = self.tags.of(priority, None);
        self.tags.tags.insert((priority, None), tag.saturating_add(STRIDE.saturating_mul(jobs as u64)));
        let served = served.entry(priority).or_default();
        served.units.entry(None).or_insert((0, 1)).0 += jobs;
        served.tag = served.tag.max(tag.saturating_add(STRIDE.saturating_mul(jobs as u64 - 1)));
    }

    /// The group whose turn it is has one job, if it has one that may start.
    pub(super) fn serve(
        &mut self,
        tx: &Tx<'_>,
        room: &mut Room<'_, '_>,
        limit: usize,
        budget: &mut ByteBudget,
        due: &mut Due,
    ) -> rusqlite::Result<()> {
        let Some(mut turn) = self.next.pop() else { return Ok(()) };
        let bounds = room.bounds(turn.lane);
        let (is_new, is_closed) = (!std::mem::replace(&mut turn.is_open, true), room.is_closed(&bounds));
        if is_new {
            // Else nothing of the bundle can start, however many groups it has.
            if !(is_closed && room.is_closed_for_all_groups(turn.lane, &bounds)) {
                self.open_lane(turn.bundle, None);
            }
            if let Some(range) = turn.range {
                self.open_bundle(range);
            }
        }
        if is_closed {
            return Ok(());
        }
        if is_new {
            turn.nth = due.lanes.len();
            due.lanes.push(ReadLane { lane: turn.lane.clone(), head: None });
        }
        if turn.read.is_empty() && !turn.is_all_read {
            let share = limit.div_ceil(self.bundles[turn.bundle].count.max(1)).min(room.places(&bounds));
            // And the one behind them, which is the first of the lane once they are taken.
            turn.read_some(tx, share.clamp(1, SHARE_MAX) + 1, budget)?;
        }
        let head = &mut due.lanes[turn.nth].head;
        // Of a strict group another one can be first, or none while it runs.
        *head = turn.read.front().map(|row| row.position).filter(|_| !turn.lane.group.is_strict());
        let Some(mut row) = turn.read.pop_front() else { return Ok(()) };
        if !budget.has_room_for(row.bytes) {
            return Ok(());
        }
        let can_start = row.can_start();
        row.is_limited = can_start && !bounds.is_empty();
        if can_start {
            let Some(holds) = room.admit(&bounds, &row) else { return Ok(()) };
            row.started_marks = row.started_marks.with(holds);
            self.has_had_turn(tx, &mut turn, due);
        }
        budget.take(row.bytes);
        due.rows.push(row);
        due.lanes[turn.nth].head = turn.read.front().map(|row| row.position);
        if let Some(next) = turn.read.front() {
            turn.rank.2 = next.position;
        } else if turn.is_all_read {
            return Ok(());
        }
        self.next.push(turn);
        Ok(())
    }

    fn has_had_turn(&mut self, tx: &Tx<'_>, turn: &mut GroupTurn<'_>, due: &mut Due) {
        let (Reverse(priority), unit) = (turn.rank.0, unit_of(turn.lane));
        let weight = unit.as_ref().map_or(1, |(queue, key)| tx.limit_settings().weight(queue, key));
        let served = due.served.entry(priority).or_default();
        served.units.entry(unit.clone()).or_insert((0, weight)).0 += 1;
        served.tag = served.tag.max(turn.rank.1);
        // One that has waited since before now has no credit for that.
        let tag = self.tags.of(priority, unit.clone()).max(turn.rank.1).saturating_add(stride(weight));
        if !planted(Bug::ShareIgnored) {
            turn.rank.1 = tag;
            self.tags.tags.insert((priority, unit), tag);
        }
    }
}

impl GroupTurn<'_> {
    /// Reads the next jobs of the lane: as many, or fewer if their payloads are large.
    fn read_some(&mut self, tx: &Tx<'_>, share: usize, budget: &ByteBudget) -> rusqlite::Result<()> {
        let (lane, names, now) = (self.lane, LaneNames::of(self.lane), tx.now_micros());
        let Some(key) = lane.group.key() else { return Ok(()) };
        if lane.group.is_strict() {
            self.is_all_read = true;
            let mut statement = tx.statement(DUE_IN_STRICT)?;
            let mut rows = statement.query(params![lane.queue, key])?;
            if let Some(row) = rows.next()? {
                let is_running = row.get_ref(3)?.as_str() == Ok("running");
                let read = DueRow::read(tx, row, lane, &names)?;
                // Else it is not what the lane is known by: another time.
                self.read.extend((!is_running && read.position == self.rank.2).then_some(read));
            }
            return Ok(());
        }
        let mut statement = tx.statement(DUE_IN_GROUP)?;
        let (run_at, id) = (self.behind.run_at, UuidBlob(self.behind.id));
        let params = params![lane.queue, lane.kind, lane.priority, run_at, id, now, share as i64, key];
        let (mut rows, mut bytes, mut count) = (statement.query(params)?, 0, 0);
        while let Some(row) = rows.next()? {
            let read = DueRow::read(tx, row, lane, &names)?;
            (self.behind, bytes, count) = (read.position, bytes + read.bytes, count + 1);
            self.read.push_back(read);
            if bytes > budget.left {
                return Ok(());
            }
        }
        self.is_all_read = count < share;
        Ok(())
    }
}
