//! The lanes that have jobs waiting, as the writer knows them: due ones apart from those of the future, so that a claim
//! looks at nothing that it cannot take.
//!
//! Every verb that makes a job wait says so (`add`), and a lane that jobs were taken from is looked at again (`set_head`
//! with what the file has). Nothing is decided here: what a claim takes is read from the file, and all of this may be
//! thrown away and read anew (`lane_sweep`) with the same results. Between two transactions it is exactly what the file
//! has; every transaction of a debug build checks that.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, btree_set};
use std::ops::Bound;
use std::sync::Arc;

use rusqlite::Connection;

use super::due_groups::{DueBundles, DueGroups, Served};
use super::gates::{Gates, LimitKey, Reached};
use super::lane_sweep::Sweep;
use super::lanes::{Group, Lane, Position, WaitingLane, head_of, ready_lanes};
use super::queues::paused_queues;
use super::sections::{Asked, AskedRange, Section, Sections};
use crate::planted::{Bug, planted};
use crate::store::Claim;

/// In this order jobs are claimed: by priority, highest first, then by position.
pub(super) type Rank = (Reverse<i16>, Position);

#[derive(Debug, Default)]
pub(super) struct KnownLanes {
    /// Every lane that has jobs waiting, with the first of them. Of a strict group there is one at most.
    heads: BTreeMap<Arc<Lane>, Position>,
    /// Lanes without a group whose head is due and whose gates are open, each in four sections.
    due: BTreeSet<(Section, Rank, Arc<Lane>)>,
    /// Lanes of groups whose head is due.
    groups: DueGroups,
    /// Lanes whose head is not due yet, soonest first.
    future: BTreeSet<(Position, Arc<Lane>)>,
    gates: Gates,
    now_micros: i64,
    sections: Sections,
    /// Lanes that changed in this transaction: looked at again if it is rolled back.
    changed: Vec<Arc<Lane>>,
    /// So are the pauses.
    has_pause_changed: bool,
    /// In this transaction a rate has stopped gathering for a job: others that waited behind that may start.
    has_stopped_gathering: bool,
    pub(super) sweep: Sweep,
}

impl KnownLanes {
    /// Forgets everything; the next transaction reads it anew.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }

    /// What has become due by now. Time that went backwards is for `forget`.
    pub(super) fn advance(&mut self, now_micros: i64) {
        self.now_micros = now_micros;
        while self.future.first().is_some_and(|(head, _)| head.run_at <= now_micros) {
            if let Some((head, lane)) = self.future.pop_first() {
                self.file(&lane, head);
            }
        }
        while let Some(key) = self.gates.due(now_micros) {
            self.open_gate(&key);
        }
    }

    /// A job waits there now. Not of a strict group: whether it is the first is for `look_again`.
    pub(super) fn add(&mut self, lane: Lane, position: Position) {
        if self.heads.get(&lane).is_none_or(|head| position < *head) {
            self.set_head(Arc::new(lane), Some(position));
        }
    }

    /// The first job of a lane, or that there is none any more. Tells whether that is news.
    pub(super) fn set_head(&mut self, lane: Arc<Lane>, head: Option<Position>) -> bool {
        let known = match head {
            Some(head) => self.heads.insert(lane.clone(), head),
            None => self.heads.remove(&lane),
        };
        if known == head {
            return false;
        }
        if let Some(known) = known {
            self.take_out(&lane, known);
        }
        if let Some(head) = head {
            self.file(&lane, head);
        }
        self.stop_gathering(self.gates.gathering_in_vain(&lane, head));
        self.changed.push(lane);
        true
    }

    /// The jobs that these rates gather for cannot start, or no more.
    fn stop_gathering(&mut self, rates: Vec<LimitKey>) {
        for key in rates {
            self.has_stopped_gathering |= self.open_gate(&key);
        }
    }

    /// Whether jobs may start that waited behind one for which a rate gathered.
    pub(super) fn has_stopped_gathering(&self) -> bool {
        self.has_stopped_gathering
    }

    /// Looks into the file for the first job of these lanes.
    pub(super) fn look_again(
        &mut self,
        connection: &Connection,
        lanes: impl IntoIterator<Item = Arc<Lane>>,
    ) -> rusqlite::Result<()> {
        for lane in lanes {
            let found = head_of(connection, &lane)?;
            let head = found.as_ref().and_then(|found| found.head);
            if !matches!(lane.group, Group::Strict(_)) {
                self.set_head(lane, head);
                continue;
            }
            let known = self.strict_lane(&lane);
            if let Some(known) = known.filter(|known| found.as_ref().is_none_or(|found| found.lane != **known)) {
                self.set_head(known, None);
            }
            if let Some(found) = found {
                self.set_head(Arc::new(found.lane), head);
            }
        }
        Ok(())
    }

    /// What is known of the strict group of this lane.
    fn strict_lane(&self, lane: &Lane) -> Option<Arc<Lane>> {
        let first = Lane { kind: "".into(), priority: i16::MIN, ..lane.clone() };
        let (known, _) = self.heads.range::<Lane, _>(first..).next()?;
        (known.queue == lane.queue && known.group == lane.group).then(|| known.clone())
    }

    /// It is as the file has it: nothing of this is to be looked at again.
    pub(super) fn end_transaction(&mut self) {
        self.changed.clear();
        self.has_pause_changed = false;
        self.has_stopped_gathering = false;
    }

    /// What this transaction changed is as the file has it, now that it was rolled back or a part of it was.
    pub(super) fn rolled_back(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        // Places that were taken are free again, and nobody would say so.
        self.open_all_gates();
        let changed = std::mem::take(&mut self.changed);
        self.look_again(connection, changed.iter().cloned())?;
        // Not without need: what failed may be the disk.
        if self.has_pause_changed {
            self.read_paused(connection)?;
        }
        // Still of the open transaction, if it was rolled back in part.
        self.changed = changed;
        Ok(())
    }

    pub(super) fn read_paused(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        let paused: HashSet<String> = paused_queues(connection)?;
        let changed: Vec<String> = self.gates.paused_queues.symmetric_difference(&paused).cloned().collect();
        changed.iter().for_each(|queue| self.set_paused(queue, paused.contains(queue)));
        Ok(())
    }

    pub(super) fn set_paused(&mut self, queue: &str, paused: bool) {
        if paused {
            self.gates.paused_queues.insert(queue.to_owned());
            self.stop_gathering(self.gates.gathering_in(queue, None));
        } else {
            self.gates.paused_queues.remove(queue);
        }
        self.has_pause_changed = true;
        self.look_at_queue(&queue.into());
    }

    /// One group is paused, or is not.
    pub(super) fn set_paused_group(&mut self, queue: &Arc<str>, key: &Arc<str>, paused: bool) {
        if paused {
            self.gates.paused_groups.entry(queue.clone()).or_default().insert(key.clone());
            self.stop_gathering(self.gates.gathering_in(queue, Some(key)));
        } else if let Some(keys) = self.gates.paused_groups.get_mut(queue) {
            keys.remove(key);
            if keys.is_empty() {
                self.gates.paused_groups.remove(queue);
            }
        }
        self.groups.look_at_group(queue, key, &self.gates, &self.sections);
    }

    /// The groups that are paused, by queue.
    pub(super) fn set_paused_groups(&mut self, paused: HashMap<Arc<str>, HashSet<Arc<str>>>) {
        let before = std::mem::replace(&mut self.gates.paused_groups, paused);
        let now = self.gates.paused_groups.clone();
        for (queue, keys) in before.iter().chain(&now) {
            keys.iter().for_each(|key| self.groups.look_at_group(queue, key, &self.gates, &self.sections));
        }
    }

    /// A limit is reached: what it holds back is not looked at, until a time, or until [`Self::open_gate`].
    pub(super) fn close_gate(&mut self, key: LimitKey, reached: Reached) {
        if self.gates.close(key.clone(), reached) {
            self.look_at(&key);
        }
    }

    /// There is room. Tells whether something may have waited for it.
    pub(super) fn open_gate(&mut self, key: &LimitKey) -> bool {
        let was_closed = self.gates.open(key);
        if was_closed {
            self.look_at(key);
        }
        was_closed
    }

    /// The limit of every group of a queue has changed.
    pub(super) fn open_group_gates(&mut self, queue: &str) {
        for key in self.gates.closed_groups(queue) {
            self.open_gate(&key);
        }
    }

    /// How much is used of limits is in doubt: claims look again.
    pub(super) fn open_all_gates(&mut self) {
        for key in self.gates.closed() {
            self.open_gate(&key);
        }
    }

    /// When the next rate allows a start that may keep a job from this claim.
    pub(super) fn opens_for(&self, claim: &Claim) -> Option<i64> {
        self.gates.opens_for(claim)
    }

    fn look_at(&mut self, key: &LimitKey) {
        match key {
            LimitKey::Queue(queue) => self.look_at_queue(queue),
            LimitKey::Kind(kind) => {
                let of_kind = self.heads.iter().filter(|(lane, _)| lane.group == Group::None && lane.kind == *kind);
                let of_kind = of_kind.map(|(lane, head)| (lane.clone(), *head)).collect();
                self.file_anew(of_kind);
                self.groups.look_at(None, Some(kind), &self.gates, &self.sections);
            }
            LimitKey::Group(queue, key) => self.groups.look_at_group(queue, key, &self.gates, &self.sections),
        }
    }

    fn look_at_queue(&mut self, queue: &Arc<str>) {
        let first = Lane::plain(queue.clone(), "".into(), i16::MIN);
        let of_queue = self.heads.range::<Lane, _>(first..);
        let of_queue = of_queue.take_while(|(lane, _)| lane.queue == *queue && lane.group == Group::None);
        let of_queue = of_queue.map(|(lane, head)| (lane.clone(), *head)).collect();
        self.file_anew(of_queue);
        self.groups.look_at(Some(queue), None, &self.gates, &self.sections);
    }

    fn file_anew(&mut self, lanes: Vec<(Arc<Lane>, Position)>) {
        for (lane, head) in lanes {
            self.take_out(&lane, head);
            self.file(&lane, head);
        }
    }

    /// Every known lane behind the first and up to the second of these.
    pub(super) fn between(&self, behind: Option<&Lane>, up_to: Option<&Lane>) -> Vec<Arc<Lane>> {
        let range = (behind.map_or(Bound::Unbounded, Bound::Excluded), up_to.map_or(Bound::Unbounded, Bound::Included));
        self.heads.range::<Lane, _>(range).map(|(lane, _)| lane.clone()).collect()
    }

    fn file(&mut self, lane: &Arc<Lane>, head: Position) {
        if head.run_at > self.now_micros {
            self.future.insert((head, lane.clone()));
        } else if lane.group != Group::None {
            self.groups.insert(lane, head, &self.gates, &self.sections);
        } else if self.gates.admits(&lane.queue, &lane.kind, (Reverse(lane.priority), head)) {
            for section in self.sections.of(&lane.queue, &lane.kind) {
                self.due.insert((section, (Reverse(lane.priority), head), lane.clone()));
            }
        }
    }

    fn take_out(&mut self, lane: &Arc<Lane>, head: Position) {
        if self.future.remove(&(head, lane.clone())) {
            return;
        }
        if lane.group != Group::None {
            self.groups.remove(lane, head, &self.gates, &self.sections);
            return;
        }
        for section in self.sections.of(&lane.queue, &lane.kind) {
            self.due.remove(&(section, (Reverse(lane.priority), head), lane.clone()));
        }
    }

    /// What a claim looks for.
    pub(super) fn asked<'c>(&self, claim: &'c Claim) -> Asked<'c> {
        self.sections.asked(claim)
    }

    /// The due lanes without a group that a claim may take from, in ranges, each in the order of the lanes' heads.
    pub(super) fn due_for<'l>(&'l self, asked: &Asked<'l>) -> Vec<DueLanes<'l>> {
        let least = Arc::new(Lane::plain("".into(), "".into(), i16::MIN));
        let range = |asked: AskedRange<'l>| {
            let first = (asked.section, (Reverse(i16::MAX), Position::START), least.clone());
            DueLanes { asked, entries: self.due.range(first..) }
        };
        asked.ranges().map(range).collect()
    }

    /// The same of groups, in bundles.
    pub(super) fn due_groups_for<'l>(&'l self, asked: &Asked<'l>) -> Vec<DueBundles<'l>> {
        if self.groups.is_empty() { Vec::new() } else { self.groups.due_for(asked) }
    }

    pub(super) fn groups(&self) -> &DueGroups {
        &self.groups
    }

    /// Jobs of groups, and without one beside them, had their turn.
    pub(super) fn served(&mut self, served: HashMap<i16, Served>) {
        self.groups.served(served, &self.gates, &self.sections);
    }

    /// In debug builds, before a commit: it is exactly what the file has.
    pub(super) fn debug_check(&self, connection: &Connection) -> rusqlite::Result<()> {
        let is_checked = cfg!(debug_assertions) && self.is_caught_up() && self.heads.len() <= CHECKED_MAX;
        if is_checked && !planted(Bug::RetriesForgotten) {
            assert!(self.is_exact(connection)?, "known: {:?}, in the file: {:?}", self.heads, ready_lanes(connection)?);
        }
        Ok(())
    }

    /// Whether it is exactly what the file has.
    fn is_exact(&self, connection: &Connection) -> rusqlite::Result<bool> {
        let known = self.heads.iter().map(|(lane, head)| WaitingLane { lane: (**lane).clone(), head: Some(*head) });
        if !known.eq(ready_lanes(connection)?) || self.gates.paused_queues != paused_queues(connection)? {
            return Ok(false);
        }
        let gates = self.gates.clone();
        let mut filed = Self { now_micros: self.now_micros, gates, sections: self.sections.clone(), ..Self::default() };
        self.heads.iter().for_each(|(lane, head)| filed.file(lane, *head));
        Ok(filed.due == self.due && filed.future == self.future && filed.groups.lanes() == self.groups.lanes())
    }
}

/// 64 lanes: debug builds check up to so many at every transaction.
const CHECKED_MAX: usize = 64;

/// The due lanes of one range, in the order of their heads.
pub(super) struct DueLanes<'l> {
    asked: AskedRange<'l>,
    entries: btree_set::Range<'l, (Section, Rank, Arc<Lane>)>,
}

impl<'l> Iterator for DueLanes<'l> {
    type Item = (Rank, &'l Arc<Lane>);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let (_, rank, lane) = self.entries.next().filter(|(section, ..)| *section == self.asked.section)?;
            if self.asked.is_for(&lane.queue, &lane.kind) {
                return Some((*rank, lane));
            }
        }
    }
}
