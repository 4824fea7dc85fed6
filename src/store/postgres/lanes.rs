//! Where to start looking for ready jobs: per lane, a low-water mark below which this process has seen nothing left.
//!
//! Without it every claim would walk over the entries of all jobs claimed before, for as long as vacuum cannot remove
//! them. A mark is only a hint: others may put jobs below it. So a claim that comes up short looks from the beginning
//! before it says so, and a busy one does about once a second. Nothing here talks to the database; `claim` does.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use uuid::Uuid;

use super::timestamp::PgTimestamp;
use crate::job::JobRecord;
use crate::planted::{Bug, planted};
use crate::store::Claim;

/// 1 s: how long a job that another transaction put below a mark may stay unseen while there is other work.
const SCAN_INTERVAL: Duration = Duration::from_secs(1);
/// 1/20 of the time at most goes into looking from the beginning, however slow that has become.
const SCAN_SHARE: u32 = 20;

/// 10,000 lanes, a few MB: what a process that only enqueues remembers at most. The next scan finds the others.
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

/// A job's position in its lane.
pub(super) struct LanePosition(pub(super) Lane, pub(super) Position);

impl From<&JobRecord> for LanePosition {
    fn from(job: &JobRecord) -> Self {
        let lane = Lane { queue: job.queue.to_string(), kind: job.kind.to_string(), priority: job.priority };
        Self(lane, (job.run_at.into(), *job.id.as_uuid()))
    }
}

/// The lanes this process knows of.
pub(super) struct Lanes {
    state: Mutex<State>,
    marks: bool,
}

#[derive(Default)]
struct State {
    known: BTreeMap<Lane, LowWaterMark>,
    /// Counts the times a mark was lowered, so that a slower answer does not raise it again.
    generation: u64,
    last_scan: Option<(Instant, Duration)>,
    /// The last claim got less than it asked for.
    short: bool,
}

struct LowWaterMark {
    position: Position,
    lowered: u64,
}

/// What was known when a question was asked.
#[derive(Clone, Copy)]
pub(super) struct Generation(u64);

impl Lanes {
    pub(super) fn new(marks: bool) -> Self {
        Self { state: Mutex::default(), marks: marks && !planted(Bug::MarksIgnored) }
    }

    /// Jobs became ready at these positions, by this process.
    pub(super) fn lower(&self, positions: impl Iterator<Item = LanePosition>) {
        let mut state = self.lock();
        state.generation += 1;
        let lowered = state.generation;
        for LanePosition(lane, position) in positions {
            let room = state.known.len() < REMEMBERED_MAX;
            match state.known.entry(lane) {
                Entry::Occupied(mut known) if position <= known.get().position => {
                    known.insert(LowWaterMark { position, lowered });
                }
                Entry::Vacant(new) if room => {
                    new.insert(LowWaterMark { position, lowered });
                }
                _ => (),
            }
        }
    }

    /// Whether the next claim should look from the beginning.
    pub(super) fn scan_is_due(&self) -> bool {
        let state = self.lock();
        let overdue = |(at, took): (Instant, Duration)| at.elapsed() >= SCAN_INTERVAL.max(took * SCAN_SHARE);
        !self.marks || state.short || state.last_scan.is_none_or(overdue)
    }

    /// Whether the last claim got less than it asked for.
    pub(super) fn was_short(&self) -> bool {
        self.lock().short
    }

    pub(super) fn generation(&self) -> Generation {
        Generation(self.lock().generation)
    }

    /// The first ready job of every lane, as found by a scan that began at `generation` and took this long.
    pub(super) fn scanned(&self, generation: Generation, took: Duration, found: Vec<LanePosition>) {
        let mut state = self.lock();
        let fresh = |mark: &LowWaterMark| mark.lowered > generation.0;
        let found = found
            .into_iter()
            .map(|LanePosition(lane, position)| (lane, LowWaterMark { position, lowered: 0 }))
            .collect();
        let before = std::mem::replace(&mut state.known, found);
        for (lane, mark) in before.into_iter().filter(|(_, mark)| fresh(mark)) {
            let kept =
                state.known.entry(lane).or_insert(LowWaterMark { position: mark.position, lowered: mark.lowered });
            kept.position = kept.position.min(mark.position);
            kept.lowered = mark.lowered;
        }
        state.last_scan = Some((Instant::now(), took));
    }

    /// Jobs up to these positions were claimed by a claim that began at `generation`; whether it got all it asked for.
    pub(super) fn claimed(&self, generation: Generation, up_to: impl Iterator<Item = LanePosition>, short: bool) {
        let mut state = self.lock();
        state.short = short;
        for LanePosition(lane, position) in up_to {
            if let Some(mark) = state.known.get_mut(&lane)
                && mark.lowered <= generation.0
            {
                mark.position = mark.position.max(position);
            }
        }
    }

    /// The lanes a claim asks for, as columns of its statement.
    pub(super) fn for_claim(&self, claim: &Claim) -> LaneColumns {
        let wants = |lane: &Lane| {
            claim.queues.as_ref().is_none_or(|queues| queues.iter().any(|queue| queue.as_str() == lane.queue))
                && claim.kinds.as_ref().is_none_or(|kinds| kinds.iter().any(|kind| kind.as_str() == lane.kind))
        };
        let mut columns = LaneColumns::default();
        for (lane, mark) in self.lock().known.iter().filter(|(lane, _)| wants(lane)) {
            columns.queues.push(lane.queue.clone());
            columns.kinds.push(lane.kind.clone());
            columns.priorities.push(lane.priority);
            columns.run_ats.push(mark.position.0);
            columns.ids.push(mark.position.1);
        }
        columns
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// Lanes with their marks, one array per column.
#[derive(Default)]
pub(super) struct LaneColumns {
    pub(super) queues: Vec<String>,
    pub(super) kinds: Vec<String>,
    pub(super) priorities: Vec<i16>,
    pub(super) run_ats: Vec<PgTimestamp>,
    pub(super) ids: Vec<Uuid>,
}

impl LaneColumns {
    pub(super) fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::job::WorkerId;
    use crate::store::WorkerFate;

    fn position(at: i64) -> Position {
        (Timestamp::from_second(at).unwrap().into(), Uuid::nil())
    }

    fn in_lane(queue: &str, at: i64) -> LanePosition {
        LanePosition(Lane { queue: queue.into(), kind: "k".into(), priority: 0 }, position(at))
    }

    fn marks(lanes: &Lanes) -> Vec<(String, i64)> {
        let claim = Claim {
            worker: WorkerId::new("w").unwrap(),
            queues: None,
            kinds: None,
            max: 1,
            max_bytes: usize::MAX,
            lease: Duration::from_secs(30),
            fate: WorkerFate::Independent,
        };
        let columns = lanes.for_claim(&claim);
        columns.queues.into_iter().zip(columns.run_ats.iter().map(|at| at.timestamp().as_second())).collect()
    }

    #[test]
    fn a_claim_raises_the_mark_and_a_ready_job_below_lowers_it() {
        let lanes = Lanes::new(true);
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
        let lanes = Lanes::new(true);
        lanes.lower([in_lane("a", 10)].into_iter());
        let generation = lanes.generation();
        lanes.lower([in_lane("a", 5)].into_iter());
        lanes.claimed(generation, [in_lane("a", 20)].into_iter(), false);
        assert_eq!(marks(&lanes), [("a".to_owned(), 5)]);
    }

    #[test]
    fn a_look_replaces_what_was_known_but_not_what_happened_since_it_began() {
        let lanes = Lanes::new(true);
        lanes.lower([in_lane("old", 1), in_lane("a", 50)].into_iter());
        let generation = lanes.generation();
        lanes.lower([in_lane("new", 7), in_lane("a", 40)].into_iter());
        lanes.scanned(generation, Duration::ZERO, vec![in_lane("a", 45)]);
        assert_eq!(marks(&lanes), [("a".to_owned(), 40), ("new".to_owned(), 7)]);
    }

    #[test]
    fn a_process_that_only_enqueues_remembers_a_bounded_number_of_lanes() {
        let lanes = Lanes::new(true);
        for n in 0..REMEMBERED_MAX + 5 {
            lanes.lower([in_lane(&format!("{n:06}"), 10)].into_iter());
        }
        assert_eq!(marks(&lanes).len(), REMEMBERED_MAX);
        // The ones it knows are still kept up to date, and a look brings the others.
        lanes.lower([in_lane("000000", 5)].into_iter());
        assert_eq!(marks(&lanes)[0], ("000000".to_owned(), 5));
        lanes.scanned(lanes.generation(), Duration::ZERO, vec![in_lane("late", 7)]);
        assert_eq!(marks(&lanes), [("late".to_owned(), 7)]);
    }

    #[test]
    fn a_look_is_due_at_first_and_after_a_short_claim() {
        let lanes = Lanes::new(true);
        assert!(lanes.scan_is_due());
        lanes.scanned(lanes.generation(), Duration::ZERO, vec![]);
        assert!(!lanes.scan_is_due());
        lanes.claimed(lanes.generation(), std::iter::empty(), true);
        assert!(lanes.scan_is_due());
    }
}
