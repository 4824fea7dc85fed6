//! Lanes of groups that have something due, in the order of their turns.
//!
//! Between groups of one priority claims take turns (`store/turns.rs`). All lanes of one (queue, kind, priority) are a
//! bundle, ordered by the turns of their groups, and bundles are filed by their first lane, as plain lanes are by their
//! head. So a reached limit of a queue takes a few bundles out, however many groups there are. Nothing is decided here:
//! what a claim takes is read from the file.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap, btree_set};
use std::sync::Arc;

use super::gates::Gates;
use super::known_lanes::Rank;
use super::lanes::{Lane, Position};
use super::sections::{Asked, Section, Sections};
use crate::planted::{Bug, planted};
use crate::store::turns::{Turns, Unit};

/// When a lane of a group has its turn: highest priority first, then the least tag, then the oldest job.
pub(super) type TurnRank = (Reverse<i16>, u64, Position);

/// All lanes of groups with the same queue, kind and priority.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct BundleKey {
    queue: Arc<str>,
    kind: Arc<str>,
    priority: i16,
}

#[derive(Debug, Default)]
pub(super) struct Bundle {
    /// By the tag of the group, then the head of the lane. Of groups whose gates are open.
    lanes: BTreeSet<(u64, Position, Arc<Lane>)>,
    /// Where it is filed.
    filed: Option<TurnRank>,
}

/// A group's lanes of one priority that have something due, open or not.
#[derive(Debug)]
struct DueUnit {
    tag: u64,
    lanes: BTreeMap<Arc<Lane>, Position>,
    /// Its lanes are in their bundles.
    is_open: bool,
}

/// Queue, group, priority.
type UnitKey = (Arc<str>, Arc<str>, i16);

#[derive(Debug, Default)]
pub(super) struct DueGroups {
    units: BTreeMap<UnitKey, DueUnit>,
    bundles: BTreeMap<BundleKey, Bundle>,
    /// Bundles whose gates are open, under four sections each.
    filed: BTreeSet<(Section, TurnRank, BundleKey)>,
    /// Of each priority.
    turns: HashMap<i16, Turns>,
}

/// What a claim has served at one priority.
#[derive(Debug, Default)]
pub(super) struct Served {
    /// How many jobs of each unit, and its weight.
    pub(super) units: HashMap<Unit, (usize, u32)>,
    /// The tag of the last one.
    pub(super) tag: u64,
}

impl DueGroups {
    pub(super) fn is_empty(&self) -> bool {
        self.filed.is_empty()
    }

    /// The tag of a unit's next job.
    pub(super) fn pass(&self, priority: i16, unit: &Unit) -> u64 {
        self.turns.get(&priority).map_or(0, |turns| turns.pass(unit))
    }

    /// The lane's head is due.
    pub(super) fn insert(&mut self, lane: &Arc<Lane>, head: Position, gates: &Gates, sections: &Sections) {
        let Some((unit_key, unit)) = unit_of(lane) else { return };
        let tag = self.pass(lane.priority, &unit);
        let is_open = gates.admits_group(&lane.queue, &unit_key.1, last_of(lane.priority));
        let unit = self.units.entry(unit_key).or_insert_with(|| DueUnit { tag, lanes: BTreeMap::new(), is_open });
        unit.lanes.insert(lane.clone(), head);
        if unit.is_open {
            let tag = unit.tag;
            self.bundle(lane, gates, sections, |bundle| bundle.insert((tag, head, lane.clone())));
        }
    }

    /// The lane has nothing due any more, or another head.
    pub(super) fn remove(&mut self, lane: &Arc<Lane>, head: Position, gates: &Gates, sections: &Sections) {
        let Some((unit_key, _)) = unit_of(lane) else { return };
        let Some(unit) = self.units.get_mut(&unit_key) else { return };
        unit.lanes.remove(lane);
        let (tag, is_open) = (unit.tag, unit.is_open);
        if unit.lanes.is_empty() {
            self.units.remove(&unit_key);
        }
        if is_open {
            self.bundle(lane, gates, sections, |bundle| bundle.remove(&(tag, head, lane.clone())));
        }
    }

    /// A group's gate may have changed.
    pub(super) fn look_at_group(&mut self, queue: &Arc<str>, key: &Arc<str>, gates: &Gates, sections: &Sections) {
        let range = (queue.clone(), key.clone(), i16::MIN)..=(queue.clone(), key.clone(), i16::MAX);
        let keys: Vec<UnitKey> = self.units.range(range).map(|(key, _)| key.clone()).collect();
        for unit_key in keys {
            let is_open = gates.admits_group(queue, key, last_of(unit_key.2));
            let Some(unit) = self.units.get_mut(&unit_key).filter(|unit| unit.is_open != is_open) else { continue };
            unit.is_open = is_open;
            let (tag, lanes) = (unit.tag, unit.lanes.clone());
            for (lane, head) in lanes {
                let entry = (tag, head, lane.clone());
                self.bundle(
                    &lane,
                    gates,
                    sections,
                    |bundle| {
                        if is_open { bundle.insert(entry) } else { bundle.remove(&entry) }
                    },
                );
            }
        }
    }

    /// The gate of a queue, a kind or both may have changed.
    pub(super) fn look_at(
        &mut self,
        queue: Option<&Arc<str>>,
        kind: Option<&Arc<str>>,
        gates: &Gates,
        sections: &Sections,
    ) {
        let first = BundleKey { queue: queue.cloned().unwrap_or_default(), kind: "".into(), priority: i16::MIN };
        let of_queue = self.bundles.range(first..).take_while(|(key, _)| queue.is_none_or(|queue| key.queue == *queue));
        let keys: Vec<BundleKey> =
            of_queue.filter(|(key, _)| kind.is_none_or(|kind| key.kind == *kind)).map(|(key, _)| key.clone()).collect();
        keys.iter().for_each(|key| self.file(key, gates, sections));
    }

    /// Jobs of these groups had their turn.
    pub(super) fn served(&mut self, served: HashMap<i16, Served>, gates: &Gates, sections: &Sections) {
        if planted(Bug::TurnNotAdvanced) {
            return;
        }
        for (priority, Served { units, tag }) in served {
            let turns = self.turns.entry(priority).or_default();
            units.iter().for_each(|(unit, (jobs, weight))| turns.served(unit, *jobs, *weight));
            turns.advance(tag);
            for unit in units.into_keys() {
                let pass = self.pass(priority, &unit);
                let Some((queue, key)) = unit else { continue };
                self.retag(&(queue, key, priority), pass, gates, sections);
            }
        }
    }

    fn retag(&mut self, unit_key: &UnitKey, tag: u64, gates: &Gates, sections: &Sections) {
        let Some(unit) = self.units.get_mut(unit_key) else { return };
        let (old_tag, lanes) = (std::mem::replace(&mut unit.tag, tag), unit.lanes.clone());
        if !unit.is_open {
            return;
        }
        for (lane, head) in lanes {
            self.bundle(&lane, gates, sections, |bundle| {
                bundle.remove(&(old_tag, head, lane.clone()));
                bundle.insert((tag, head, lane.clone()))
            });
        }
    }

    /// Changes the bundle of a lane and files it anew if its first lane is another one.
    fn bundle(
        &mut self,
        lane: &Lane,
        gates: &Gates,
        sections: &Sections,
        change: impl FnOnce(&mut BTreeSet<(u64, Position, Arc<Lane>)>) -> bool,
    ) {
        let key = BundleKey { queue: lane.queue.clone(), kind: lane.kind.clone(), priority: lane.priority };
        change(&mut self.bundles.entry(key.clone()).or_default().lanes);
        self.file(&key, gates, sections);
    }

    fn file(&mut self, key: &BundleKey, gates: &Gates, sections: &Sections) {
        let Some(bundle) = self.bundles.get_mut(key) else { return };
        let is_open = gates.admits(&key.queue, &key.kind, last_of(key.priority));
        let first = bundle.lanes.first().filter(|_| is_open).map(|(tag, head, _)| (Reverse(key.priority), *tag, *head));
        let before = std::mem::replace(&mut bundle.filed, first);
        if bundle.lanes.is_empty() {
            self.bundles.remove(key);
        }
        if before == first {
            return;
        }
        for section in sections.of(&key.queue, &key.kind) {
            if let Some(before) = before {
                self.filed.remove(&(section, before, key.clone()));
            }
            if let Some(first) = first {
                self.filed.insert((section, first, key.clone()));
            }
        }
    }

    /// The bundles that a claim may take from, in a range for each that it asks for.
    pub(super) fn due_for<'l>(&'l self, asked: &Asked<'l>) -> Vec<DueBundles<'l>> {
        let first = BundleKey { queue: "".into(), kind: "".into(), priority: i16::MIN };
        let range = |asked| DueBundles {
            asked,
            groups: self,
            entries: self.filed.range((asked.section, (Reverse(i16::MAX), 0, Position::START), first.clone())..),
        };
        asked.ranges().map(range).collect()
    }

    /// What it knows, without the turns: for checks.
    pub(super) fn lanes(&self) -> BTreeSet<(Arc<Lane>, Position)> {
        let filed: BTreeSet<&BundleKey> = self.filed.iter().map(|(.., key)| key).collect();
        let open = filed.into_iter().filter_map(|key| self.bundles.get(key));
        open.flat_map(|bundle| bundle.lanes.iter().map(|(_, head, lane)| (lane.clone(), *head))).collect()
    }
}

/// Behind every job of a priority: between groups of one, positions say nothing about who is first.
fn last_of(priority: i16) -> Rank {
    (Reverse(priority), Position::END)
}

fn unit_of(lane: &Lane) -> Option<(UnitKey, Unit)> {
    let key = lane.group.key()?;
    Some(((lane.queue.clone(), key.clone(), lane.priority), Some((lane.queue.clone(), key.clone()))))
}

/// The bundles of one range, in the order of their first lanes.
pub(super) struct DueBundles<'l> {
    asked: super::sections::AskedRange<'l>,
    groups: &'l DueGroups,
    entries: btree_set::Range<'l, (Section, TurnRank, BundleKey)>,
}

/// Lanes of a bundle, in the order of their turns.
pub(super) struct BundleLanes<'l> {
    priority: i16,
    lanes: btree_set::Iter<'l, (u64, Position, Arc<Lane>)>,
    /// How many there are.
    pub(super) count: usize,
}

impl<'l> Iterator for DueBundles<'l> {
    type Item = BundleLanes<'l>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let (.., key) = self.entries.next().filter(|(section, ..)| *section == self.asked.section)?;
            if self.asked.is_for(&key.queue, &key.kind)
                && let Some(bundle) = self.groups.bundles.get(key)
            {
                let count = bundle.lanes.len();
                return Some(BundleLanes { priority: key.priority, lanes: bundle.lanes.iter(), count });
            }
        }
    }
}

impl<'l> Iterator for BundleLanes<'l> {
    type Item = (TurnRank, &'l Arc<Lane>);

    fn next(&mut self) -> Option<Self::Item> {
        let priority = Reverse(self.priority);
        self.lanes.next().map(|(tag, head, lane)| ((priority, *tag, *head), lane))
    }
}
