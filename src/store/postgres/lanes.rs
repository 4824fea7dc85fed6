//! Where to start looking for ready jobs: per lane, a low-water mark below which this process has seen nothing left.
//!
//! Without it every claim would walk over the entries of all jobs claimed before, for as long as vacuum cannot remove
//! them. A mark is only a hint: others may put jobs below it. So a claim that comes up short looks from the beginning
//! before it says so, and a busy one does about once a second. Nothing here talks to the database; `claim` does.
//!
//! A look takes a slice of at most [`SLICE`] lanes. Where there are more, the next look goes on where the last one ended,
//! and round again: with N lanes, what another process put somewhere is found within N / [`SLICE`] looks. Lanes whose
//! first job lies in the future sleep until then, where there are more than one claim asks.

use std::cmp::Reverse;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use uuid::Uuid;

use super::lane_map::{KnownLane, LaneMap};
use super::timestamp::PgTimestamp;
use crate::job::JobRecord;
use crate::planted::{Bug, planted};
use crate::store::{Claim, WakeListener};

/// 1 s: how long a job that another transaction put below a mark may stay unseen while there is other work.
const SCAN_INTERVAL: Duration = Duration::from_secs(1);
/// 1/20 of the time at most goes into looking from the beginning, however slow that has become.
const SCAN_SHARE: u32 = 20;

/// 1,000 lanes: a look takes some milliseconds.
pub(super) const SLICE: usize = 1_000;

/// 1,000 lanes a claim asks at most. If there are no more, it asks them all, and its order is exact.
const ASKED_MAX: usize = 1_000;
/// Of more than that it asks four for each job it wants: those that earlier claims have emptied are among the first.
const ASKED_PER_JOB: usize = 4;
/// 32 lanes for few jobs: looking at them takes a tenth of a millisecond.
const ASKED_MIN: usize = 32;

/// 10,000 lanes, a few MB: what a process remembers at most. The next looks find the others.
const REMEMBERED_MAX: usize = 10_000;

/// Jobs that are claimed in one order: same queue, kind and priority.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Lane {
    pub(super) queue: String,
    pub(super) kind: String,
    pub(super) priority: i16,
}

/// A position in a lane: `run_at`, then id.
pub(super) type Position = (PgTimestamp, Uuid);

/// A job's position in its lane, and how long it is until it is due, by the database's clock.
#[derive(Debug)]
pub(super) struct LanePosition(pub(super) Lane, pub(super) Position, pub(super) Duration);

impl From<&JobRecord> for LanePosition {
    /// Of a job that was written just now.
    fn from(job: &JobRecord) -> Self {
        let lane = Lane { queue: job.queue.to_string(), kind: job.kind.to_string(), priority: job.priority };
        let wait = Duration::try_from(job.run_at.duration_since(job.updated_at)).unwrap_or_default();
        Self(lane, (job.run_at.into(), *job.id.as_uuid()), wait)
    }
}

/// The lanes this process knows of.
pub(super) struct Lanes {
    state: Mutex<LaneMemory>,
    marks: bool,
}

struct LaneMemory {
    known: LaneMap,
    /// Counts the times a mark was lowered, so that a slower answer does not raise it again.
    generation: u64,
    last_scan: Option<(Instant, Duration)>,
    /// The last claim got less than it asked for.
    short: bool,
    /// The last lane of the last slice; `None`: the next one is the first.
    cursor: Option<Lane>,
    /// There are more lanes than one slice holds.
    is_sliced: bool,
    /// This round of slices began because work was announced: it goes on without waiting for polls.
    is_hurried: bool,
    announced: WakeListener,
}

/// What was known when a question was asked.
#[derive(Clone, Copy)]
pub(super) struct Generation(u64);

/// The lanes behind `after`, as a look that began at `generation` and took this long found them.
pub(super) struct Slice {
    pub(super) generation: Generation,
    pub(super) took: Duration,
    pub(super) after: Option<Lane>,
    /// In order; [`SLICE`] of them: there may be more.
    pub(super) found: Vec<LanePosition>,
}

impl Lanes {
    /// `announced` tells when there may be work.
    pub(super) fn new(marks: bool, announced: WakeListener) -> Self {
        let state = LaneMemory {
            known: LaneMap::default(),
            generation: 0,
            last_scan: None,
            short: false,
            cursor: None,
            is_sliced: false,
            is_hurried: true,
            announced,
        };
        Self { state: Mutex::new(state), marks: marks && !planted(Bug::MarksIgnored) }
    }

    /// Jobs became ready at these positions, by this process.
    pub(super) fn lower(&self, positions: impl Iterator<Item = LanePosition>) {
        let mut state = self.lock();
        state.generation += 1;
        let (lowered, now) = (state.generation, Instant::now());
        for LanePosition(lane, position, wait) in positions {
            if state.known.get(&lane).is_none_or(|known| position <= known.position) {
                state.known.set(lane, KnownLane { position, due: due(now, wait), lowered });
            }
        }
        state.known.shrink(REMEMBERED_MAX);
    }

    /// Whether the next claim should look before it asks.
    pub(super) fn scan_is_due(&self) -> bool {
        let state = self.lock();
        let overdue = |(at, took): (Instant, Duration)| at.elapsed() >= SCAN_INTERVAL.max(took * SCAN_SHARE);
        !self.marks || state.last_scan.is_none_or(overdue) || (state.short && state.until_next_slice().is_zero())
    }

    /// Whether a claim that came up short may look again. If all lanes fit into a slice, always.
    pub(super) fn may_scan(&self) -> bool {
        self.lock().until_next_slice().is_zero()
    }

    /// Whether the last claim got less than it asked for.
    pub(super) fn was_short(&self) -> bool {
        self.lock().short
    }

    pub(super) fn generation(&self) -> Generation {
        Generation(self.lock().generation)
    }

    /// Behind which lane the next look begins; `None`: at the first.
    pub(super) fn cursor(&self) -> Option<Lane> {
        let mut state = self.lock();
        match state.cursor {
            None => state.is_hurried = state.announced.has_woken(),
            Some(_) => state.is_hurried |= state.announced.is_woken(),
        }
        state.cursor.clone()
    }

    /// What a look found takes the place of what was known of these lanes, but not of what happened since it began.
    pub(super) fn scanned(&self, slice: Slice) {
        let Slice { generation, took, after, found, .. } = slice;
        let mut state = self.lock();
        let now = Instant::now();
        let last = (found.len() >= SLICE).then(|| found.last().map(|LanePosition(lane, ..)| lane.clone())).flatten();
        state.is_sliced = last.is_some() || after.is_some();
        let before = state.known.take_range(after.as_ref(), last.as_ref());
        for LanePosition(lane, position, wait) in found {
            state.known.set(lane, KnownLane { position, due: due(now, wait), lowered: 0 });
        }
        for (lane, mark) in before.into_iter().filter(|(_, mark)| mark.lowered > generation.0) {
            let kept = match state.known.get(&lane) {
                Some(found) if found.position <= mark.position => KnownLane { lowered: mark.lowered, ..*found },
                _ => mark,
            };
            state.known.set(lane, kept);
        }
        state.known.shrink(REMEMBERED_MAX);
        state.cursor = last;
        state.last_scan = Some((now, took));
    }

    /// Jobs up to these positions were claimed by a claim that began at `generation`; whether it got all it asked for.
    pub(super) fn claimed(&self, generation: Generation, up_to: impl Iterator<Item = LanePosition>, short: bool) {
        let mut state = self.lock();
        state.short = short;
        for LanePosition(lane, position, _) in up_to {
            if let Some(known) = state.known.get(&lane).copied()
                && known.lowered <= generation.0
                && known.position < position
            {
                state.known.set(lane, KnownLane { position, ..known });
            }
        }
    }

    /// A claim that began at `generation` has taken everything that was due in these lanes.
    pub(super) fn emptied<'a>(&self, generation: Generation, lanes: impl Iterator<Item = &'a Lane>) {
        let mut state = self.lock();
        for lane in lanes {
            if state.known.get(lane).is_some_and(|known| known.lowered <= generation.0) {
                state.known.remove(lane);
            }
        }
    }

    /// The lanes to claim from. A lane's best job is its first, so the best `max` jobs are in the `max` best lanes.
    pub(super) fn for_claim(&self, claim: &Claim) -> AskedLanes {
        let mut state = self.lock();
        if state.is_sliced || state.known.len() > ASKED_MAX {
            state.known.wake(Instant::now());
        } else {
            // So few that asking them all costs little. Then it does not matter how the database's clock runs, either.
            state.known.wake_all();
        }
        let kinds = claim.kinds.as_ref().map(|kinds| {
            let mut kinds: Vec<&str> = kinds.iter().map(|kind| kind.as_str()).collect();
            kinds.sort_unstable();
            kinds.dedup();
            kinds
        });
        let some = claim.max.saturating_mul(ASKED_PER_JOB).clamp(ASKED_MIN, ASKED_MAX);
        let bound = |all: usize| if all <= ASKED_MAX { all } else { some };
        let Some(queues) = &claim.queues else {
            let all = state.known.awake_of_kinds(kinds.as_deref());
            let lanes = state.known.in_turn(kinds.as_deref(), bound(all));
            return AskedLanes { left_out: lanes.len() < all, lanes };
        };
        let mut queues: Vec<&str> = queues.iter().map(|queue| queue.as_str()).collect();
        queues.sort_unstable();
        queues.dedup();
        let wants = |(lane, _): &(&Lane, Position)| {
            kinds.as_ref().is_none_or(|kinds| kinds.binary_search(&lane.kind.as_str()).is_ok())
        };
        let mut lanes: Vec<_> =
            queues.into_iter().flat_map(|queue| state.known.of_queue(queue)).filter(wants).collect();
        let (all, bound) = (lanes.len(), bound(lanes.len()));
        if bound < all {
            lanes.sort_unstable_by_key(|(lane, position)| (Reverse(lane.priority), *position));
            lanes.truncate(bound);
        }
        let lanes = lanes.into_iter().map(|(lane, position)| (lane.clone(), position)).collect();
        AskedLanes { lanes, left_out: bound < all }
    }

    /// When to claim again without being woken, if this is known: a lane wakes, or a round of looks is not at its end.
    pub(super) fn look_again(&self, claim: &Claim) -> Option<Duration> {
        let state = self.lock();
        let wants = |lane: &Lane| {
            claim.queues.as_ref().is_none_or(|queues| queues.iter().any(|queue| queue.as_str() == lane.queue))
                && claim.kinds.as_ref().is_none_or(|kinds| kinds.iter().any(|kind| kind.as_str() == lane.kind))
        };
        let wakes = state.known.next_due(wants).map(|due| due.saturating_duration_since(Instant::now()));
        let goes_on = state.is_sliced && (state.announced.is_woken() || (state.is_hurried && state.cursor.is_some()));
        [wakes, goes_on.then(|| state.until_next_slice())].into_iter().flatten().min()
    }

    fn lock(&self) -> MutexGuard<'_, LaneMemory> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl LaneMemory {
    /// How long until a claim that comes up short may look: at once, unless there is more than one look can see.
    fn until_next_slice(&self) -> Duration {
        match self.last_scan {
            Some((at, took)) if self.is_sliced => (took * SCAN_SHARE).saturating_sub(at.elapsed()),
            _ => Duration::ZERO,
        }
    }
}

fn due(now: Instant, wait: Duration) -> Option<Instant> {
    // Beyond what a clock can say is never: then it is asked about too often, not too rarely.
    now.checked_add(wait).filter(|_| !wait.is_zero())
}

/// The lanes that a claim asks, with their marks.
pub(super) struct AskedLanes {
    pub(super) lanes: Vec<(Lane, Position)>,
    /// There are others, with jobs that come after those of these.
    pub(super) left_out: bool,
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::job::{Kind, QueueName, WorkerId};
    use crate::store::Wake;

    fn position(at: i64) -> Position {
        (Timestamp::from_second(at).unwrap().into(), Uuid::nil())
    }

    fn in_lane(queue: &str, at: i64) -> LanePosition {
        LanePosition(lane(queue, 0), position(at), Duration::ZERO)
    }

    fn lane(queue: &str, priority: i16) -> Lane {
        Lane { queue: queue.into(), kind: "k".into(), priority }
    }

    fn lanes() -> (Lanes, Wake) {
        let wake = Wake::default();
        (Lanes::new(true, wake.listen()), wake)
    }

    fn claim() -> Claim {
        Claim::new(WorkerId::new("w").unwrap(), Duration::from_secs(30))
    }

    fn slice(lanes: &Lanes, after: Option<Lane>, found: Vec<LanePosition>) -> Slice {
        Slice { generation: lanes.generation(), took: Duration::ZERO, after, found }
    }

    fn marks(lanes: &Lanes) -> Vec<(String, i64)> {
        let mut asked = lanes.for_claim(&claim()).lanes;
        asked.sort();
        asked.into_iter().map(|(lane, (at, _))| (lane.queue, at.timestamp().as_second())).collect()
    }

    #[test]
    fn a_claim_raises_the_mark_and_a_ready_job_below_lowers_it() {
        let (lanes, _wake) = lanes();
        lanes.lower([in_lane("a", 10)].into_iter());
        lanes.claimed(lanes.generation(), [in_lane("a", 20)].into_iter(), false);
        assert_eq!(marks(&lanes), [("a".to_owned(), 20)]);
        lanes.lower([in_lane("a", 30), in_lane("b", 5)].into_iter());
        assert_eq!(marks(&lanes), [("a".to_owned(), 20), ("b".to_owned(), 5)]);
        lanes.lower([in_lane("a", 15)].into_iter());
        assert_eq!(marks(&lanes), [("a".to_owned(), 15), ("b".to_owned(), 5)]);
    }

    #[test]
    fn a_claim_that_began_before_a_mark_was_lowered_does_not_raise_it_again() {
        let (lanes, _wake) = lanes();
        lanes.lower([in_lane("a", 10)].into_iter());
        let generation = lanes.generation();
        lanes.lower([in_lane("a", 5)].into_iter());
        lanes.claimed(generation, [in_lane("a", 20)].into_iter(), false);
        assert_eq!(marks(&lanes), [("a".to_owned(), 5)]);
    }

    #[test]
    fn a_look_replaces_what_was_known_but_not_what_happened_since_it_began() {
        let (lanes, _wake) = lanes();
        lanes.lower([in_lane("old", 1), in_lane("a", 50)].into_iter());
        let generation = lanes.generation();
        lanes.lower([in_lane("new", 7), in_lane("a", 40)].into_iter());
        lanes.scanned(Slice { generation, ..slice(&lanes, None, vec![in_lane("a", 45)]) });
        assert_eq!(marks(&lanes), [("a".to_owned(), 40), ("new".to_owned(), 7)]);
    }

    #[test]
    fn a_bounded_number_of_lanes_is_remembered_and_those_of_the_highest_priority_are() {
        let (lanes, _wake) = lanes();
        for n in 0..REMEMBERED_MAX {
            lanes.lower([in_lane(&format!("{n:06}"), 10)].into_iter());
        }
        lanes.lower([LanePosition(lane("urgent", 9), position(99), Duration::ZERO)].into_iter());
        assert_eq!(lanes.lock().known.len(), REMEMBERED_MAX);
        assert_eq!(lanes.for_claim(&claim()).lanes[0].0, lane("urgent", 9));
        // A look that sees to the end brings the others, and forgets what is gone.
        lanes.scanned(slice(&lanes, None, vec![in_lane("late", 7)]));
        assert_eq!(marks(&lanes), [("late".to_owned(), 7)]);
    }

    #[test]
    fn a_lane_whose_first_job_lies_in_the_future_is_not_asked_until_it_is_due() {
        let (lanes, _wake) = lanes();
        let later = |queue: &str, wait| LanePosition(lane(queue, 0), position(50), Duration::from_millis(wait));
        lanes.lower([in_lane("now", 10), later("enqueued", 3_600_000)].into_iter());
        // Where there are few, all are asked.
        lanes.lock().is_sliced = true;
        assert_eq!(marks(&lanes), [("now".to_owned(), 10)]);
        assert!(lanes.look_again(&claim()).unwrap() > Duration::from_secs(3000));
        let of_another = claim().queues(vec![QueueName::new("now").unwrap()]);
        assert_eq!(lanes.look_again(&of_another), None, "nobody asked for that queue");
        lanes.scanned(slice(&lanes, Some(lane("a", 0)), vec![later("found", 20), in_lane("now", 10)]));
        assert_eq!(marks(&lanes), [("now".to_owned(), 10)]);
        let give_up = Instant::now() + Duration::from_secs(60);
        while marks(&lanes).len() < 2 {
            assert!(Instant::now() < give_up, "it never wakes");
            std::thread::yield_now();
        }
        lanes.scanned(slice(&lanes, Some(lane("a", 0)), vec![in_lane("now", 10)]));
        // A job of this process that is due now wakes its lane at once.
        lanes.lower([later("found", 3_600_000)].into_iter());
        lanes.lower([in_lane("found", 20)].into_iter());
        assert_eq!(marks(&lanes), [("found".to_owned(), 20), ("now".to_owned(), 10)]);
    }

    #[test]
    fn of_many_lanes_a_claim_asks_the_best_and_says_that_there_are_others() {
        let (lanes, _wake) = lanes();
        let many = (0..ASKED_MAX as i64).map(|n| in_lane(&format!("{n:06}"), 2000 - n));
        lanes.lower(many);
        let asked = lanes.for_claim(&claim());
        assert_eq!((asked.lanes.len(), asked.left_out), (ASKED_MAX, false), "all of them");
        lanes.lower([LanePosition(lane("urgent", 5), position(9999), Duration::ZERO)].into_iter());
        let asked = lanes.for_claim(&claim().max(1));
        assert_eq!((asked.lanes.len(), asked.left_out), (ASKED_MIN, true));
        assert_eq!(asked.lanes[0].0.queue, "urgent");
        assert_eq!(asked.lanes[1].0.queue, "000999", "then the one that is due first");
        assert_eq!(lanes.for_claim(&claim().max(100)).lanes.len(), 400);
        // By queue and by kind.
        let queues = vec![QueueName::new("000007").unwrap(), QueueName::new("urgent").unwrap()];
        let asked = lanes.for_claim(&claim().queues(queues.clone()));
        assert_eq!((asked.lanes.len(), asked.left_out), (2, false));
        let kinds = |kind| vec![Kind::new(kind).unwrap()];
        assert_eq!(lanes.for_claim(&claim().queues(queues).kinds(kinds("other"))).lanes, []);
        assert_eq!(lanes.for_claim(&claim().kinds(kinds("other"))).lanes, []);
        assert_eq!(lanes.for_claim(&claim().kinds(kinds("k"))).lanes.len(), ASKED_MIN);
    }

    #[test]
    fn looks_go_round_in_slices_and_each_replaces_what_was_known_of_its_own_lanes() {
        let (lanes, wake) = lanes();
        let name = |n: usize| format!("{n:06}");
        let found = |range: std::ops::Range<usize>| range.map(|n| in_lane(&name(n), 5)).collect::<Vec<_>>();
        lanes.lower([in_lane("000000x", 1), in_lane("001500", 1)].into_iter());
        assert_eq!(lanes.cursor(), None);
        lanes.scanned(slice(&lanes, None, found(0..SLICE)));
        assert_eq!(lanes.lock().known.len(), SLICE + 1, "what lies beyond the slice is kept, what is gone is not");
        let after = lanes.cursor();
        assert_eq!(after, Some(lane(&name(SLICE - 1), 0)));
        assert_eq!(lanes.look_again(&claim()), None, "nothing was announced: the next poll goes on");
        wake.wake();
        assert!(lanes.look_again(&claim()).is_some());
        lanes.scanned(slice(&lanes, after, found(SLICE..SLICE + 10)));
        assert_eq!(lanes.lock().known.len(), SLICE + 10);
        assert_eq!(lanes.cursor(), None);
        // One that sees all of them in one slice again.
        lanes.scanned(slice(&lanes, None, found(0..3)));
        assert_eq!(lanes.lock().known.len(), 3);
    }

    #[test]
    fn a_lane_that_was_emptied_is_forgotten_unless_a_job_came_since() {
        let (lanes, _wake) = lanes();
        lanes.lower([in_lane("a", 10), in_lane("b", 10)].into_iter());
        let generation = lanes.generation();
        lanes.lower([in_lane("b", 5)].into_iter());
        lanes.emptied(generation, [lane("a", 0), lane("b", 0)].iter());
        assert_eq!(marks(&lanes), [("b".to_owned(), 5)]);
    }

    #[test]
    fn a_look_is_due_at_first_and_after_a_short_claim() {
        let (lanes, _wake) = lanes();
        assert!(lanes.scan_is_due());
        lanes.scanned(slice(&lanes, None, vec![]));
        assert!(!lanes.scan_is_due());
        lanes.claimed(lanes.generation(), std::iter::empty(), true);
        assert!(lanes.scan_is_due());
    }
}
