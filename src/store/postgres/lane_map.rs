//! Lanes in the orders in which they are asked for: by name, by when they wake, and by who is to be claimed from first.
//! Nothing in here is walked from end to end, however many lanes there are. It knows nothing of claims or marks.

use std::cmp::Reverse;
use std::collections::btree_map::{BTreeMap, Entry};
use std::collections::{BTreeSet, BinaryHeap};
use std::ops::Bound;
use std::time::Instant;

use super::lanes::{Lane, Position};

/// What is known of a lane.
#[derive(Debug, Clone, Copy)]
pub(super) struct KnownLane {
    /// Nothing that is ready is known to lie before it.
    pub(super) position: Position,
    /// When its first job is due; `None`: it is.
    pub(super) due: Option<Instant>,
    /// The generation in which this process last put a job there.
    pub(super) lowered: u64,
}

/// Who comes first: the highest priority, then whoever is due first.
type Turn = (Reverse<i16>, Position);

/// Lanes of one kind, in turn; the string is the queue.
type InTurn = BTreeSet<(Turn, String)>;

/// Every lane is in `all`, and in either `awake` or `asleep`.
#[derive(Default)]
pub(super) struct LaneMap {
    all: BTreeMap<Lane, KnownLane>,
    /// Lanes with a job that is due, by kind.
    awake: BTreeMap<String, InTurn>,
    /// Lanes whose first job lies in the future.
    asleep: BTreeSet<(Instant, Lane)>,
}

impl LaneMap {
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn get(&self, lane: &Lane) -> Option<&KnownLane> {
        self.all.get(lane)
    }

    pub(super) fn set(&mut self, lane: Lane, known: KnownLane) {
        self.remove(&lane);
        match known.due {
            Some(due) => drop(self.asleep.insert((due, lane.clone()))),
            None => {
                let of_kind = self.awake.entry(lane.kind.clone()).or_default();
                of_kind.insert(((Reverse(lane.priority), known.position), lane.queue.clone()));
            }
        }
        self.all.insert(lane, known);
    }

    pub(super) fn remove(&mut self, lane: &Lane) -> Option<KnownLane> {
        let known = self.all.remove(lane)?;
        match known.due {
            Some(due) => drop(self.asleep.remove(&(due, lane.clone()))),
            None => {
                if let Entry::Occupied(mut of_kind) = self.awake.entry(lane.kind.clone()) {
                    of_kind.get_mut().remove(&((Reverse(lane.priority), known.position), lane.queue.clone()));
                    if of_kind.get().is_empty() {
                        of_kind.remove();
                    }
                }
            }
        }
        Some(known)
    }

    /// Takes out every lane behind `after` and up to `last`; `None`: from the first, to the last.
    pub(super) fn take_range(&mut self, after: Option<&Lane>, last: Option<&Lane>) -> Vec<(Lane, KnownLane)> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let lanes: Vec<Lane> = match last {
            Some(last) if after.is_some_and(|after| after >= last) => Vec::new(),
            Some(last) => self.all.range((from, Bound::Included(last))).map(|(lane, _)| lane.clone()).collect(),
            None => self.all.range((from, Bound::Unbounded)).map(|(lane, _)| lane.clone()).collect(),
        };
        let taken = lanes.into_iter().map(|lane| self.remove(&lane).map(|known| (lane, known)));
        taken.flatten().collect()
    }

    /// Wakes the lanes that have become due.
    pub(super) fn wake(&mut self, now: Instant) {
        while let Some((due, lane)) = self.asleep.first()
            && *due <= now
        {
            let lane = lane.clone();
            let known = self.all.get(&lane).copied();
            if let Some(known) = known {
                self.set(lane, KnownLane { due: None, ..known });
            }
        }
    }

    /// Wakes all of them.
    pub(super) fn wake_all(&mut self) {
        while let Some((due, _)) = self.asleep.last() {
            self.wake(*due);
        }
    }

    /// When the first of the lanes that sleep wakes, among some of those that do so next.
    pub(super) fn next_due(&self, wants: impl Fn(&Lane) -> bool) -> Option<Instant> {
        const LOOKED_AT_MAX: usize = 100;
        self.asleep.iter().take(LOOKED_AT_MAX).find(|(_, lane)| wants(lane)).map(|(due, _)| *due)
    }

    /// Forgets those that would be claimed from last, until there are no more than `max`.
    pub(super) fn shrink(&mut self, max: usize) {
        while self.all.len() > max {
            let worst = match self.asleep.last() {
                Some((_, lane)) => Some(lane.clone()),
                None => self.worst_awake(),
            };
            match worst {
                Some(lane) => drop(self.remove(&lane)),
                None => return,
            }
        }
    }

    fn worst_awake(&self) -> Option<Lane> {
        let last = self.awake.iter().filter_map(|(kind, of_kind)| of_kind.last().map(|last| (last, kind)));
        last.max().map(|((turn, queue), kind)| lane(kind, turn, queue))
    }

    /// How many lanes of these kinds are awake; `None`: of every kind.
    pub(super) fn awake_of_kinds(&self, kinds: Option<&[&str]>) -> usize {
        self.sets(kinds).map(|(_, of_kind)| of_kind.len()).sum()
    }

    /// The lanes of these kinds that are awake, in turn, at most `max`.
    pub(super) fn in_turn(&self, kinds: Option<&[&str]>, max: usize) -> Vec<(Lane, Position)> {
        let mut rest: Vec<_> = self.sets(kinds).map(|(kind, of_kind)| (kind, of_kind.iter())).collect();
        let mut heads = BinaryHeap::new();
        for (n, (_, of_kind)) in rest.iter_mut().enumerate() {
            heads.extend(of_kind.next().map(|next| Reverse((next, n))));
        }
        let mut best = Vec::new();
        while best.len() < max
            && let Some(Reverse(((turn, queue), n))) = heads.pop()
        {
            let (kind, of_kind) = &mut rest[n];
            best.push((lane(kind, turn, queue), turn.1));
            heads.extend(of_kind.next().map(|next| Reverse((next, n))));
        }
        best
    }

    /// The lanes of this queue that are awake, by name.
    pub(super) fn of_queue<'a>(&'a self, queue: &str) -> impl Iterator<Item = (&'a Lane, Position)> + use<'a> {
        let first = Lane { queue: queue.to_owned(), kind: String::new(), priority: i16::MIN };
        let queue = queue.to_owned();
        let lanes = self.all.range(first..).take_while(move |(lane, _)| lane.queue == queue);
        lanes.filter(|(_, known)| known.due.is_none()).map(|(lane, known)| (lane, known.position))
    }

    /// In the order of their kinds; `None`: all of them.
    fn sets<'a>(&'a self, kinds: Option<&[&str]>) -> impl Iterator<Item = (&'a str, &'a InTurn)> + use<'a> {
        let of_kinds =
            kinds.map(|kinds| kinds.iter().filter_map(|kind| self.awake.get_key_value(*kind)).collect::<Vec<_>>());
        let all = of_kinds.is_none().then(|| self.awake.iter());
        let sets = of_kinds.into_iter().flatten().chain(all.into_iter().flatten());
        sets.map(|(kind, of_kind)| (kind.as_str(), of_kind))
    }
}

fn lane(kind: &str, turn: &Turn, queue: &str) -> Lane {
    Lane { queue: queue.to_owned(), kind: kind.to_owned(), priority: turn.0.0 }
}
