//! Lanes of groups, as this process knows them: (queue, kind, priority, group), and (queue, group) of strict order. Which of
//! them a claim asks is decided by turns (`store/turns.rs`); those that are at a limit, or whose jobs lie in the future,
//! sleep. A hint, like `lanes`: what is not known here is found by the next looks, a slice at a time (`group_scan`).

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashSet};
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use super::claim::Reach;
use super::group_lane::{
    AskedGroup, ChosenGroups, FairLane, GroupSlice, KnownLane, LimitedNames, Look, Sleep, StrictLane, Wants,
};
use super::lanes::{Lane, Position, SLICE};
use super::timestamp::PgTimestamp;
use crate::planted::{Bug, planted};
use crate::store::turns::{Turns, Unit};
use crate::store::{Claim, WakeListener};

/// 10,000 lanes of each kind, a few MB: what a process remembers at most.
const REMEMBERED_MAX: usize = 10_000;
/// 32 lanes for few jobs.
const ASKED_MIN: usize = 32;
/// 1,000 lanes a claim asks at most.
const ASKED_MAX: usize = 1_000;
/// 1 s: a lane that is held by a limit is asked again after it, unless a lease ends here before.
pub(super) const HELD_WAIT: Duration = Duration::from_secs(1);
/// 20 ms: a lane whose first job is due by this host's clock and not by the database's is asked again after it.
const NOT_YET_DUE: Duration = Duration::from_millis(20);
/// 64 lanes: looking at them takes a tenth of a millisecond, whether or not they sleep.
const FEW: usize = 64;
/// 1 s: after it a look reads again which names have limits, unless something was announced before. The claims themselves
/// do not start what has a limit that this process does not know of.
const NAMES_INTERVAL: Duration = Duration::from_secs(1);
/// 1 min: how often rows of usage that nothing counts for are looked for.
const SWEEP_INTERVAL: Duration = Duration::from_secs(60);

/// The lanes this process knows of.
pub(super) struct GroupLanes {
    state: Mutex<State>,
}

struct State {
    fair: BTreeMap<FairLane, KnownLane>,
    strict: BTreeMap<StrictLane, KnownLane>,
    turns: Turns,
    limited: LimitedNames,
    generation: u64,
    cursor_fair: Option<FairLane>,
    cursor_strict: Option<StrictLane>,
    /// Counts the changes of settings by this process.
    settings: u64,
    /// At which of them the names were read, and when.
    names_read: Option<(u64, Instant)>,
    /// (queue, kind, group) whose rows of usage were made.
    made: HashSet<(String, String, Option<String>)>,
    last_sweep: Option<Instant>,
    /// Tells when there may be work: a lease that ended elsewhere has left room.
    room_announced: WakeListener,
    /// The same, for the names: limits may have been set elsewhere.
    names_announced: WakeListener,
}

/// Since when a job waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Waits {
    /// It was just enqueued: its order is the one that its queue has now.
    New,
    /// It has been there before: its order is the one that its queue had when it was enqueued.
    Again,
}

impl GroupLanes {
    /// `announced` tells when there may be work.
    pub(super) fn new(announced: WakeListener) -> Self {
        Self {
            state: Mutex::new(State {
                fair: BTreeMap::new(),
                strict: BTreeMap::new(),
                turns: Turns::default(),
                limited: LimitedNames::default(),
                generation: 0,
                cursor_fair: None,
                cursor_strict: None,
                settings: 0,
                names_read: None,
                made: HashSet::new(),
                last_sweep: None,
                room_announced: announced.clone(),
                names_announced: announced,
            }),
        }
    }

    /// A job waits there now, by this process.
    pub(super) fn lower(&self, lane: &Lane, group: &str, (position, wait): (Position, Duration), waits: Waits) {
        let mut state = self.lock();
        state.generation += 1;
        let (lowered, now) = (state.generation, Instant::now());
        let new = KnownLane { position, asleep: until_due(now, wait), lowered, weight: 1 };
        if state.limited.strict.contains(&lane.queue) {
            let key = StrictLane { queue: lane.queue.as_str().into(), group: group.into() };
            let weight = state.strict.get(&key).map_or(1, |known| known.weight);
            // Its head may be another one, which is due.
            state.strict.insert(key, KnownLane { asleep: None, weight, ..new });
            if waits == Waits::New {
                return;
            }
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
        self.lock().wake(|why| why == Sleep::Room);
    }

    /// Limits are others than the last look found.
    pub(super) fn settings_changed(&self) {
        let mut state = self.lock();
        state.settings += 1;
        state.made.clear();
        state.wake(|_| true);
    }

    /// Whether a claim should look before it asks.
    pub(super) fn is_stale(&self) -> bool {
        self.lock().is_stale()
    }

    pub(super) fn generation(&self) -> u64 {
        self.lock().generation
    }

    /// A look begins: it sees the settings there are.
    pub(super) fn begin_look(&self) -> Look {
        let mut state = self.lock();
        let is_old = state.names_read.is_none_or(|(_, at)| at.elapsed() >= NAMES_INTERVAL);
        let reads_names = state.names_announced.has_woken() || is_old || state.is_stale();
        Look { generation: state.generation, settings: state.settings, reads_names }
    }

    /// Kinds that have a limit, as far as the last look knows.
    pub(super) fn limited_kinds(&self) -> Vec<String> {
        self.lock().limited.kinds.iter().cloned().collect()
    }

    pub(super) fn cursors(&self) -> (Option<FairLane>, Option<StrictLane>) {
        let state = self.lock();
        (state.cursor_fair.clone(), state.cursor_strict.clone())
    }

    /// What a look found takes the place of what was known of these lanes, but not of what happened since it began.
    pub(super) fn scanned(&self, look: Look, names: Option<LimitedNames>, slice: GroupSlice) {
        let mut state = self.lock();
        let now = Instant::now();
        if let Some(names) = names {
            (state.limited, state.names_read) = (names, Some((look.settings, now)));
        }
        let last_fair = (slice.fair.len() >= SLICE).then(|| slice.fair.last().map(|(lane, _)| lane.clone())).flatten();
        let before = take_range(&mut state.fair, slice.after_fair.as_ref(), last_fair.as_ref());
        for (lane, found) in slice.fair {
            let held = before.get(&lane).and_then(|known| known.held(now));
            let (position, asleep) = (found.position, held.or(until_due(now, found.wait)));
            state.fair.insert(lane, KnownLane { position, asleep, lowered: 0, weight: found.weight });
        }
        for (lane, known) in before.into_iter().filter(|(_, known)| known.lowered > look.generation) {
            let weight = state.fair.get(&lane).map_or(known.weight, |found| found.weight);
            state.fair.insert(lane, KnownLane { weight, ..known });
        }
        let last_strict =
            (slice.strict.len() >= SLICE).then(|| slice.strict.last().map(|(lane, ..)| lane.clone())).flatten();
        let before = take_range(&mut state.strict, slice.after_strict.as_ref(), last_strict.as_ref());
        for (lane, wait, weight) in slice.strict {
            let asleep = before.get(&lane).and_then(|known| known.held(now)).or(until_due(now, wait));
            state.strict.insert(lane, KnownLane { position: FIRST, asleep, lowered: 0, weight });
        }
        for (lane, known) in before.into_iter().filter(|(_, known)| known.lowered > look.generation) {
            state.strict.insert(lane, known);
        }
        (state.cursor_fair, state.cursor_strict) = (last_fair, last_strict);
        state.shrink();
    }

    /// Whether one of these lanes without a group has a limit, as far as the last look knows.
    pub(super) fn limit_any(&self, lanes: &[(Lane, Position)]) -> bool {
        let LimitedNames { queues, kinds, .. } = &self.lock().limited;
        let is_limited = |lane: &Lane| queues.contains(&lane.queue) || kinds.contains(&lane.kind);
        !(queues.is_empty() && kinds.is_empty()) && lanes.iter().any(|(lane, _)| is_limited(lane))
    }

    /// The lanes of groups to claim from, in turn. If there are few, those that sleep are asked as well, so that it does not
    /// matter how the database's clock runs: those that wait for room by claims that have come up short, the others always.
    pub(super) fn choose(&self, claim: &Claim, reach: Reach) -> ChosenGroups {
        let mut state = self.lock();
        if state.room_announced.has_woken() {
            state.wake(|why| why == Sleep::Room);
        }
        let (now, wants) = (Instant::now(), Wants::of(claim));
        let is_few = state.fair.len() + state.strict.len() <= FEW;
        let awake = |known: &KnownLane| known.is_asked(now, reach, is_few);
        let asked = |queue: &Arc<str>, group: &Arc<str>, known: &KnownLane, lane| {
            let (queue, group, position, weight) = (queue.clone(), group.clone(), known.position, known.weight);
            let pass = state.turns.pass(&Some((queue.clone(), group.clone())));
            AskedGroup { queue, group, lane, position, weight, pass }
        };
        let fair = state
            .fair
            .iter()
            .filter(|(lane, known)| awake(known) && wants.queue(&lane.queue) && wants.kind(&lane.kind));
        let mut fair: Vec<_> = fair
            .map(|(lane, known)| asked(&lane.queue, &lane.group, known, Some((lane.kind.clone(), lane.priority))))
            .collect();
        let strict = state.strict.iter().filter(|(lane, known)| awake(known) && wants.queue(&lane.queue));
        let mut strict: Vec<_> = strict.map(|(lane, known)| asked(&lane.queue, &lane.group, known, None)).collect();
        let most = if is_few { FEW } else { claim.max.clamp(ASKED_MIN, ASKED_MAX) };
        let left_out = fair.len() > most || strict.len() > most;
        fair.sort_by_cached_key(|asked| (asked.lane.as_ref().map(|(_, priority)| Reverse(*priority)), asked.pass));
        fair.truncate(most);
        // Of these it is not known which kind and priority come next. As many as of the others, so that neither keeps the
        // other from being asked.
        strict.sort_by_key(|asked| asked.pass);
        strict.truncate(most);
        strict.extend(fair);
        ChosenGroups { lanes: strict, left_out }
    }

    /// The tag of the next job without a group.
    pub(super) fn pass_without_group(&self) -> u64 {
        self.lock().turns.pass(&None)
    }

    /// What a claim took from units: their turns are over.
    pub(super) fn served(&self, served: impl Iterator<Item = (Unit, usize, u32)>, asked: &[AskedGroup]) {
        let mut state = self.lock();
        for (unit, jobs, weight) in served.filter(|_| !planted(Bug::TurnNotAdvanced)) {
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
        {
            known.position = known.position.max(up_to);
            // The job that it slept for was due.
            known.asleep = known.asleep.filter(|(_, why)| *why != Sleep::Future);
        }
    }

    /// A claim that began at `generation` found nothing more that is due in this lane.
    pub(super) fn emptied(&self, generation: u64, asked: &AskedGroup) {
        let Some(lane) = asked.fair() else { return };
        let mut state = self.lock();
        let Some(known) = state.fair.get_mut(&lane).filter(|known| known.lowered <= generation) else { return };
        match known.asleep {
            // It tells when to look again. By this host's clock that may be over; the database's decides.
            Some((until, Sleep::Future)) => {
                known.asleep = Some((until.max(Instant::now() + NOT_YET_DUE), Sleep::Future))
            }
            _ => drop(state.fair.remove(&lane)),
        }
    }

    /// There is more to claim from this lane.
    pub(super) fn goes_on(&self, asked: &AskedGroup) {
        let (mut state, fair) = (self.lock(), asked.fair());
        let known = match &fair {
            Some(lane) => state.fair.get_mut(lane),
            None => state.strict.get_mut(&asked.strict()),
        };
        if let Some(known) = known {
            known.asleep = None;
        }
    }

    /// A limit, or the job before it, holds this lane for so long.
    pub(super) fn held(&self, generation: u64, asked: &AskedGroup, (wait, why): (Duration, Sleep)) {
        let (mut state, fair) = (self.lock(), asked.fair());
        let known = match &fair {
            Some(lane) => state.fair.get_mut(lane),
            None => state.strict.get_mut(&asked.strict()),
        };
        if let Some(known) = known.filter(|known| known.lowered <= generation || fair.is_some()) {
            known.asleep = Instant::now().checked_add(wait).map(|until| (until, why));
        }
    }

    /// When the first of the lanes that sleep wakes.
    pub(super) fn look_again(&self, claim: &Claim) -> Option<Duration> {
        let (state, now, wants) = (self.lock(), Instant::now(), Wants::of(claim));
        let fair = state.fair.iter().filter(|(lane, _)| wants.queue(&lane.queue) && wants.kind(&lane.kind));
        let strict = state.strict.iter().filter(|(lane, _)| wants.queue(&lane.queue));
        let asleep = fair.map(|(_, known)| known.asleep).chain(strict.map(|(_, known)| known.asleep));
        asleep.flatten().map(|(until, _)| until.saturating_duration_since(now)).min()
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
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// Before every job.
const FIRST: Position = (PgTimestamp::MIN, uuid::Uuid::nil());

impl State {
    fn is_stale(&self) -> bool {
        self.names_read.is_none_or(|(settings, _)| settings != self.settings)
    }

    fn wake(&mut self, which: impl Fn(Sleep) -> bool) {
        let Self { fair, strict, .. } = self;
        for known in fair.values_mut().chain(strict.values_mut()) {
            known.asleep = known.asleep.filter(|(_, why)| !which(*why));
        }
    }

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

fn until_due(now: Instant, wait: Duration) -> Option<(Instant, Sleep)> {
    let until = now.checked_add(wait).filter(|_| !wait.is_zero())?;
    Some((until, Sleep::Future))
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
