//! The lanes that have jobs waiting, as the writer knows them: due ones apart from those of the future, so that a claim
//! looks at nothing that it cannot take.
//!
//! Every verb that makes a job wait says so (`add`), and a lane that jobs were taken from is looked at again (`set_head`
//! with what the file has). Nothing is decided here: what a claim takes is read from the file, and all of this may be
//! thrown away and read anew (`lane_sweep`) with the same results. Between two transactions it is exactly what the file
//! has; every transaction of a debug build checks that.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashSet, btree_set};
use std::hash::{BuildHasher, RandomState};
use std::ops::Bound;
use std::sync::Arc;

use rusqlite::Connection;

use super::lane_sweep::Sweep;
use super::lanes::{Lane, Position, WaitingLane, head_of, ready_lanes};
use super::queues::paused_queues;
use crate::job::Kind;
use crate::planted::{Bug, planted};
use crate::store::Claim;

/// In this order jobs are claimed: by priority, highest first, then by position.
pub(super) type Rank = (Reverse<i16>, Position);

/// The lanes of a queue, of a kind, of both, or all: what claims ask for. It is a hash, and what is found by it is
/// looked at once more.
type Section = u64;

#[derive(Debug, Default)]
pub(super) struct KnownLanes {
    /// Every lane that has jobs waiting, with the first of them.
    heads: BTreeMap<Arc<Lane>, Position>,
    /// Lanes whose head is due and whose queue is not paused. Each is in four sections: whatever a claim asks for is
    /// merged from ranges that hold nothing else.
    due: BTreeSet<(Section, Rank, Arc<Lane>)>,
    /// Lanes whose head is not due yet, soonest first.
    future: BTreeSet<(Position, Arc<Lane>)>,
    paused: HashSet<String>,
    now_micros: i64,
    hasher: RandomState,
    /// Lanes that changed in this transaction: looked at again if it is rolled back.
    changed: Vec<Arc<Lane>>,
    /// So are the pauses.
    has_pause_changed: bool,
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
    }

    /// A job waits there now.
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
        self.changed.push(lane);
        true
    }

    /// Looks into the file for the first job of these lanes.
    pub(super) fn look_again(
        &mut self,
        connection: &Connection,
        lanes: impl IntoIterator<Item = Arc<Lane>>,
    ) -> rusqlite::Result<()> {
        for lane in lanes {
            let head = head_of(connection, &lane)?;
            self.set_head(lane, head);
        }
        Ok(())
    }

    /// It is as the file has it: nothing of this is to be looked at again.
    pub(super) fn end_transaction(&mut self) {
        self.changed.clear();
        self.has_pause_changed = false;
    }

    /// What this transaction changed is as the file has it, now that it was rolled back or a part of it was.
    pub(super) fn rolled_back(&mut self, connection: &Connection) -> rusqlite::Result<()> {
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
        let changed: Vec<String> = self.paused.symmetric_difference(&paused).cloned().collect();
        changed.iter().for_each(|queue| self.set_paused(queue, paused.contains(queue)));
        Ok(())
    }

    pub(super) fn set_paused(&mut self, queue: &str, paused: bool) {
        let first = Lane { queue: queue.into(), kind: "".into(), priority: i16::MIN };
        let of_queue: Vec<_> = self
            .heads
            .range::<Lane, _>(first..)
            .take_while(|(lane, _)| *lane.queue == *queue)
            .map(|(lane, head)| (lane.clone(), *head))
            .collect();
        of_queue.iter().for_each(|(lane, head)| self.take_out(lane, *head));
        if paused {
            self.paused.insert(queue.to_owned());
        } else {
            self.paused.remove(queue);
        }
        self.has_pause_changed = true;
        of_queue.iter().for_each(|(lane, head)| self.file(lane, *head));
    }

    /// Every known lane behind the first and up to the second of these.
    pub(super) fn between(&self, behind: Option<&Lane>, up_to: Option<&Lane>) -> Vec<Arc<Lane>> {
        let range = (behind.map_or(Bound::Unbounded, Bound::Excluded), up_to.map_or(Bound::Unbounded, Bound::Included));
        self.heads.range::<Lane, _>(range).map(|(lane, _)| lane.clone()).collect()
    }

    fn file(&mut self, lane: &Arc<Lane>, head: Position) {
        if head.run_at > self.now_micros {
            self.future.insert((head, lane.clone()));
        } else if !self.paused.contains(&*lane.queue) {
            for section in self.sections_of(lane) {
                self.due.insert((section, (Reverse(lane.priority), head), lane.clone()));
            }
        }
    }

    fn take_out(&mut self, lane: &Arc<Lane>, head: Position) {
        if self.future.remove(&(head, lane.clone())) {
            return;
        }
        for section in self.sections_of(lane) {
            self.due.remove(&(section, (Reverse(lane.priority), head), lane.clone()));
        }
    }

    fn sections_of(&self, lane: &Lane) -> [Section; 4] {
        let (queue, kind) = (Some(&*lane.queue), Some(&*lane.kind));
        [(queue, kind), (queue, None), (None, kind), (None, None)].map(|(queue, kind)| self.section(queue, kind))
    }

    fn section(&self, queue: Option<&str>, kind: Option<&str>) -> Section {
        self.hasher.hash_one((queue, kind))
    }

    /// The due lanes that a claim may take from, in ranges, each in the order of the lanes' heads.
    pub(super) fn due_for<'l>(&'l self, claim: &'l Claim) -> Vec<DueLanes<'l>> {
        let queues = wanted(claim.queues.as_deref(), |queue| queue.as_str());
        let mut kinds = wanted(claim.kinds.as_deref(), |kind| kind.as_str());
        let is_too_many = queues.len().saturating_mul(kinds.len()) > SECTIONS_MAX && claim.queues.is_some();
        if is_too_many {
            kinds = [None].into();
        }
        // Their names are different, so no lane comes twice.
        let named = queues.iter().flat_map(|queue| kinds.iter().map(|kind| (*queue, *kind)));
        let least = Arc::new(Lane { queue: "".into(), kind: "".into(), priority: i16::MIN });
        let range = |(queue, kind)| {
            let section = self.section(queue, kind);
            let first = (section, (Reverse(i16::MAX), Position::START), least.clone());
            let also_kinds = claim.kinds.as_deref().filter(|_| is_too_many);
            DueLanes { section, queue, kind, also_kinds, entries: self.due.range(first..) }
        };
        named.map(range).collect()
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
        let known = self.heads.iter().map(|(lane, head)| WaitingLane { lane: (**lane).clone(), head: *head });
        if !known.eq(ready_lanes(connection)?) || self.paused != paused_queues(connection)? {
            return Ok(false);
        }
        let mut filed = Self { now_micros: self.now_micros, paused: self.paused.clone(), ..Self::default() };
        filed.hasher = self.hasher.clone();
        self.heads.iter().for_each(|(lane, head)| filed.file(lane, *head));
        Ok(filed.due == self.due && filed.future == self.future)
    }
}

/// 64 lanes: debug builds check up to so many at every transaction.
const CHECKED_MAX: usize = 64;

/// 1,024: how many pairs of queue and kind one claim looks for. One that names more goes through all lanes of its queues.
const SECTIONS_MAX: usize = 1024;

fn wanted<'c, N>(names: Option<&'c [N]>, text: impl Fn(&'c N) -> &'c str) -> BTreeSet<Option<&'c str>> {
    names.map_or_else(|| [None].into(), |names| names.iter().map(|name| Some(text(name))).collect())
}

/// The due lanes of one section, in the order of their heads.
pub(super) struct DueLanes<'l> {
    section: Section,
    queue: Option<&'l str>,
    kind: Option<&'l str>,
    also_kinds: Option<&'l [Kind]>,
    entries: btree_set::Range<'l, (Section, Rank, Arc<Lane>)>,
}

impl<'l> Iterator for DueLanes<'l> {
    type Item = (Rank, &'l Arc<Lane>);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let (_, rank, lane) = self.entries.next().filter(|(section, ..)| *section == self.section)?;
            // Two sections may have the same hash.
            let is_here = self.queue.is_none_or(|queue| *queue == *lane.queue)
                && self.kind.is_none_or(|kind| *kind == *lane.kind);
            if is_here && self.also_kinds.is_none_or(|kinds| kinds.iter().any(|kind| *kind.as_str() == *lane.kind)) {
                return Some((*rank, lane));
            }
        }
    }
}
