//! Lanes of groups, as this process knows them: (queue, kind, priority, group), and (queue, group) of strict order. Which of
//! them a claim asks is decided by turns (`store/turns.rs`); those that are at a limit, or whose jobs lie in the future,
//! sleep. A hint, like `lanes`: what is not known here is found by the next looks, a slice at a time (`group_scan`).

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashSet};
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use super::lanes::{Lane, Position, SLICE};
use super::timestamp::PgTimestamp;
use crate::store::Claim;
use crate::store::turns::{Turns, Unit};

/// 10,000 lanes of each kind, a few MB: what a process remembers at most.
const REMEMBERED_MAX: usize = 10_000;
/// 32 lanes for few jobs.
const ASKED_MIN: usize = 32;
/// 1,000 lanes a claim asks at most.
const ASKED_MAX: usize = 1_000;
/// 1 s: a lane that is held by a limit is asked again after it, unless a lease ends here before.
pub(super) const HELD_WAIT: Duration = Duration::from_secs(1);
/// 1 min: how often rows of usage that nothing counts for are looked for.
const SWEEP_INTERVAL: Duration = Duration::from_secs(60);

/// Jobs of one group that are claimed in one order.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct FairLane {
    // In the order of the index.
    pub(super) queue: Arc<str>,
    pub(super) kind: Arc<str>,
    pub(super) priority: i16,
    pub(super) group: Arc<str>,
}

/// A group of strict order.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct StrictLane {
    pub(super) queue: Arc<str>,
    pub(super) group: Arc<str>,
}

/// Names that have limits, as the last look found them.
#[derive(Debug, Default)]
pub(super) struct LimitedNames {
    pub(super) queues: HashSet<String>,
    pub(super) kinds: HashSet<String>,
    /// Queues whose groups are of strict order.
    pub(super) strict: HashSet<String>,
}

#[derive(Debug, Clone, Copy)]
struct KnownLane {
    position: Position,
    /// `None`: it is awake.
    asleep_until: Option<Instant>,
    /// It sleeps because of a limit, or because its head runs: a lease that ends wakes it.
    is_held: bool,
    lowered: u64,
    weight: u32,
}

/// A lane that a look found: its first job, when that is due, and the group's weight.
pub(super) struct FoundLane {
    pub(super) position: Position,
    pub(super) wait: Duration,
    pub(super) weight: u32,
}

/// What a look found behind its cursors.
#[derive(Default)]
pub(super) struct GroupSlice {
    pub(super) generation: u64,
    pub(super) took: Duration,
    pub(super) limited: LimitedNames,
    pub(super) after_fair: Option<FairLane>,
    pub(super) after_strict: Option<StrictLane>,
    pub(super) fair: Vec<(FairLane, FoundLane)>,
    pub(super) strict: Vec<(StrictLane, Duration, u32)>,
}

/// A lane that a claim asks.
#[derive(Debug, Clone)]
pub(super) struct AskedGroup {
    pub(super) queue: Arc<str>,
    pub(super) group: Arc<str>,
    /// Kind and priority; `None`: the group is of strict order.
    pub(super) lane: Option<(Arc<str>, i16)>,
    pub(super) position: Position,
    pub(super) weight: u32,
    pub(super) pass: u64,
}

impl AskedGroup {
    pub(super) fn unit(&self) -> Unit {
        Some((self.queue.clone(), self.group.clone()))
    }

    fn fair(&self) -> Option<FairLane> {
        let (kind, priority) = self.lane.clone()?;
        Some(FairLane { queue: self.queue.clone(), kind, priority, group: self.group.clone() })
    }

    fn strict(&self) -> StrictLane {
        StrictLane { queue: self.queue.clone(), group: self.group.clone() }
    }
}

/// The lanes this process knows of.
#[derive(Default)]
pub(super) struct GroupLanes(Mutex<State>);

#[derive(Default)]
struct State {
    fair: BTreeMap<FairLane, KnownLane>,
    strict: BTreeMap<StrictLane, KnownLane>,
    turns: Turns,
    limited: LimitedNames,
    generation: u64,
    cursor_fair: Option<FairLane>,
    cursor_strict: Option<StrictLane>,
    /// Settings have changed here since the last look.
    is_stale: bool,
    /// (queue, kind, group) whose rows of usage were made.
    made: HashSet<(String, String, Option<String>)>,
    last_sweep: Option<Instant>,
}

impl GroupLanes {
    /// A job waits there now, by this process.
    pub(super) fn lower(&self, lane: &Lane, group: &str, position: Position, wait: Duration) {
        let mut state = self.lock();
        state.generation += 1;
        let (lowered, now) = (state.generation, Instant::now());
        let asleep_until = (!wait.is_zero()).then(|| now.checked_add(wait)).flatten();
        let new = KnownLane { position, asleep_until, is_held: false, lowered, weight: 1 };
        if state.limited.strict.contains(&lane.queue) {
            let key = StrictLane { queue: lane.queue.as_str().into(), group: group.into() };
            let weight = state.strict.get(&key).map_or(1, |known| known.weight);
            // Its head may be another one, which is due.
            state.strict.insert(key, KnownLane { asleep_until: None, weight, ..new });
            return;
        }
        let (queue, kind) = (lane.queue.as_str().into(), lane.kind.as_str().into());
        let key = FairLane { queue, kind, priority: lane.priority, group: group.into() };
        let known = state.fair.get(&key).copied();
        if known.is_none_or(|known| position <= known.position) {
            let weight = known.map_or(1, |known| known.weight);
            state.fair.insert(key, KnownLane { weight, ..new });
        }
        state.shrink();
    }

    /// Leases that a limit counts have ended here.
    pub(super) fn wake_held(&self) {
        let mut state = self.lock();
        let State { fair, strict, .. } = &mut *state;
        for known in fair.values_mut().chain(strict.values_mut()).filter(|known| known.is_held) {
            (known.asleep_until, known.is_held) = (None, false);
        }
    }

    /// Limits are others than the last look found.
    pub(super) fn settings_changed(&self) {
        let mut state = self.lock();
        state.is_stale = true;
        state.made.clear();
        drop(state);
        self.wake_held();
    }

    /// Whether a claim should look before it asks.
    pub(super) fn is_stale(&self) -> bool {
        self.lock().is_stale
    }

    pub(super) fn generation(&self) -> u64 {
        self.lock().generation
    }

    /// A look begins: it sees the settings there are.
    pub(super) fn begin_look(&self) -> u64 {
        let mut state = self.lock();
        state.is_stale = false;
        state.generation
    }

    pub(super) fn cursors(&self) -> (Option<FairLane>, Option<StrictLane>) {
        let state = self.lock();
        (state.cursor_fair.clone(), state.cursor_strict.clone())
    }

    /// What a look found takes the place of what was known of these lanes, but not of what happened since it began.
    pub(super) fn scanned(&self, slice: GroupSlice) {
        let mut state = self.lock();
        let now = Instant::now();
        state.limited = slice.limited;
        let asleep = |wait: Duration| (!wait.is_zero()).then(|| now.checked_add(wait)).flatten();
        let last_fair = (slice.fair.len() >= SLICE).then(|| slice.fair.last().map(|(lane, _)| lane.clone())).flatten();
        let before = take_range(&mut state.fair, slice.after_fair.as_ref(), last_fair.as_ref());
        for (lane, found) in slice.fair {
            let mut known = KnownLane {
                position: found.position,
                asleep_until: asleep(found.wait),
                is_held: false,
                lowered: 0,
                weight: found.weight,
            };
            if let Some(held) = before.get(&lane).filter(|known| known.is_held && known.asleep_until > Some(now)) {
                (known.asleep_until, known.is_held) = (held.asleep_until, true);
            }
            state.fair.insert(lane, known);
        }
        for (lane, known) in before.into_iter().filter(|(_, known)| known.lowered > slice.generation) {
            let weight = state.fair.get(&lane).map_or(known.weight, |found| found.weight);
            state.fair.insert(lane, KnownLane { weight, ..known });
        }
        let last_strict =
            (slice.strict.len() >= SLICE).then(|| slice.strict.last().map(|(lane, ..)| lane.clone())).flatten();
        let before = take_range(&mut state.strict, slice.after_strict.as_ref(), last_strict.as_ref());
        for (lane, wait, weight) in slice.strict {
            let held = before.get(&lane).filter(|known| known.is_held && known.asleep_until > Some(now));
            let asleep_until = held.map_or(asleep(wait), |known| known.asleep_until);
            let known = KnownLane { position: FIRST, asleep_until, is_held: held.is_some(), lowered: 0, weight };
            state.strict.insert(lane, known);
        }
        for (lane, known) in before.into_iter().filter(|(_, known)| known.lowered > slice.generation) {
            state.strict.insert(lane, known);
        }
        (state.cursor_fair, state.cursor_strict) = (last_fair, last_strict);
        state.shrink();
    }

    /// Whether a lane without a group has a limit, as far as the last look knows.
    pub(super) fn is_limited(&self, lane: &Lane) -> bool {
        let state = self.lock();
        state.limited.queues.contains(&lane.queue) || state.limited.kinds.contains(&lane.kind)
    }

    /// The lanes of groups to claim from: of each priority from the top, those whose turn is next.
    pub(super) fn choose(&self, claim: &Claim) -> Vec<AskedGroup> {
        let state = self.lock();
        let now = Instant::now();
        let awake = |known: &KnownLane| known.asleep_until.is_none_or(|until| until <= now);
        let wants = Wants::of(claim);
        let mut asked = Vec::new();
        for (lane, known) in state.fair.iter().filter(|(_, known)| awake(known)) {
            if wants.queue(&lane.queue) && wants.kind(&lane.kind) {
                let unit = Some((lane.queue.clone(), lane.group.clone()));
                asked.push(AskedGroup {
                    queue: lane.queue.clone(),
                    group: lane.group.clone(),
                    lane: Some((lane.kind.clone(), lane.priority)),
                    position: known.position,
                    weight: known.weight,
                    pass: state.turns.pass(&unit),
                });
            }
        }
        // Of strict groups it is not known which kind and priority come next: they are asked in turn, before the others.
        for (lane, known) in state.strict.iter().filter(|(_, known)| awake(known)) {
            if wants.queue(&lane.queue) {
                let unit = Some((lane.queue.clone(), lane.group.clone()));
                let (queue, group, pass) = (lane.queue.clone(), lane.group.clone(), state.turns.pass(&unit));
                asked.push(AskedGroup { queue, group, lane: None, position: FIRST, weight: known.weight, pass });
            }
        }
        let most = claim.max.clamp(ASKED_MIN, ASKED_MAX);
        asked.sort_by_cached_key(|asked| {
            (Reverse(asked.lane.as_ref().map_or(i16::MAX, |(_, priority)| *priority)), asked.pass)
        });
        asked.truncate(most);
        asked
    }

    /// The tag of the next job without a group.
    pub(super) fn pass_without_group(&self) -> u64 {
        self.lock().turns.pass(&None)
    }

    /// What a claim took from units: their turns are over.
    pub(super) fn served(&self, served: impl Iterator<Item = (Unit, usize, u32)>, asked: &[AskedGroup]) {
        let mut state = self.lock();
        for (unit, jobs, weight) in served {
            state.turns.served(&unit, jobs, weight);
        }
        let least = asked.iter().map(|asked| state.turns.pass(&asked.unit())).min();
        if let Some(least) = least {
            state.turns.advance(least);
        }
    }

    /// Jobs up to this position of a lane were claimed by a claim that began at `generation`.
    pub(super) fn claimed(&self, generation: u64, asked: &AskedGroup, up_to: Position) {
        let Some(lane) = asked.fair() else { return };
        if let Some(known) = self.lock().fair.get_mut(&lane)
            && known.lowered <= generation
            && known.position < up_to
        {
            known.position = up_to;
        }
    }

    /// A claim that began at `generation` found nothing more that is due in this lane.
    pub(super) fn emptied(&self, generation: u64, asked: &AskedGroup) {
        let (mut state, fair) = (self.lock(), asked.fair());
        let known = match &fair {
            Some(lane) => state.fair.get(lane),
            None => state.strict.get(&asked.strict()),
        };
        if known.is_some_and(|known| known.lowered <= generation) {
            match &fair {
                Some(lane) => state.fair.remove(lane),
                None => state.strict.remove(&asked.strict()),
            };
        }
    }

    /// A limit, or the job before it, holds this lane for so long.
    pub(super) fn held(&self, generation: u64, asked: &AskedGroup, wait: Duration) {
        let (mut state, fair) = (self.lock(), asked.fair());
        let known = match &fair {
            Some(lane) => state.fair.get_mut(lane),
            None => state.strict.get_mut(&asked.strict()),
        };
        if let Some(known) = known.filter(|known| known.lowered <= generation || fair.is_some()) {
            (known.asleep_until, known.is_held) = (Instant::now().checked_add(wait), true);
        }
    }

    /// When the first of the lanes that sleep wakes.
    pub(super) fn look_again(&self, claim: &Claim) -> Option<Duration> {
        let (state, now, wants) = (self.lock(), Instant::now(), Wants::of(claim));
        let fair = state.fair.iter().filter(|(lane, _)| wants.queue(&lane.queue) && wants.kind(&lane.kind));
        let strict = state.strict.iter().filter(|(lane, _)| wants.queue(&lane.queue));
        let until = fair.map(|(_, known)| known.asleep_until).chain(strict.map(|(_, known)| known.asleep_until));
        until.flatten().min().map(|until| until.saturating_duration_since(now))
    }

    /// Whether there are lanes whose rows of usage were not made yet; from now on they count as made.
    pub(super) fn makes_usage<'a>(&self, lanes: impl Iterator<Item = (&'a str, &'a str, Option<&'a str>)>) -> bool {
        let mut state = self.lock();
        if state.made.len() > 2 * REMEMBERED_MAX {
            state.made.clear();
        }
        let mut is_new = false;
        for (queue, kind, group) in lanes {
            is_new |= state.made.insert((queue.into(), kind.into(), group.map(Into::into)));
        }
        is_new
    }

    /// A row of usage that was made is gone.
    pub(super) fn forget_made(&self) {
        self.lock().made.clear();
    }

    pub(super) fn sweep_is_due(&self) -> bool {
        let mut state = self.lock();
        let is_due = state.last_sweep.is_none_or(|at| at.elapsed() >= SWEEP_INTERVAL);
        if is_due {
            state.last_sweep = Some(Instant::now());
        }
        is_due
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// Before every job.
const FIRST: Position = (PgTimestamp::MIN, uuid::Uuid::nil());

impl State {
    /// What is forgotten is found again by the cursor.
    fn shrink(&mut self) {
        while self.fair.len() > REMEMBERED_MAX {
            self.fair.pop_last();
        }
        while self.strict.len() > REMEMBERED_MAX {
            self.strict.pop_last();
        }
    }
}

fn take_range<K: Ord + Clone>(
    lanes: &mut BTreeMap<K, KnownLane>,
    after: Option<&K>,
    last: Option<&K>,
) -> BTreeMap<K, KnownLane> {
    if after.zip(last).is_some_and(|(after, last)| after >= last) {
        return BTreeMap::new();
    }
    let range = (after.map_or(Bound::Unbounded, Bound::Excluded), last.map_or(Bound::Unbounded, Bound::Included));
    let keys: Vec<K> = lanes.range(range).map(|(lane, _)| lane.clone()).collect();
    keys.into_iter().filter_map(|lane| lanes.remove_entry(&lane)).collect()
}

/// What a claim asks for.
struct Wants<'a> {
    queues: Option<HashSet<&'a str>>,
    kinds: Option<HashSet<&'a str>>,
}

impl<'a> Wants<'a> {
    fn of(claim: &'a Claim) -> Self {
        Self {
            queues: claim.queues.as_ref().map(|queues| queues.iter().map(|queue| queue.as_str()).collect()),
            kinds: claim.kinds.as_ref().map(|kinds| kinds.iter().map(|kind| kind.as_str()).collect()),
        }
    }

    fn queue(&self, queue: &str) -> bool {
        self.queues.as_ref().is_none_or(|queues| queues.contains(queue))
    }

    fn kind(&self, kind: &str) -> bool {
        self.kinds.as_ref().is_none_or(|kinds| kinds.contains(kind))
    }
}
