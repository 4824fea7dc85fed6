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

use super::timestamp::Moment;
use crate::job::JobRecord;
use crate::planted::{Bug, planted};
use crate::store::Claim;

/// 1 s: how long a job that another transaction put below a mark may stay unseen while there is other work.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// 1/20 of the time at most goes into looking from the beginning, however slow that has become.
const LOOK_SHARE: u32 = 20;

/// 10,000 lanes, a few MB: what a process that only enqueues remembers at most. The next look finds the others.
const REMEMBERED_MAX: usize = 10_000;

/// Jobs that are claimed in one order: same queue, kind and priority.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Lane {
    pub(super) queue: String,
    pub(super) kind: String,
    pub(super) priority: i16,
}

/// A place in a lane: `run_at`, then id.
pub(super) type Place = (Moment, Uuid);

/// A job's place in its lane.
pub(super) struct Placed(pub(super) Lane, pub(super) Place);

impl From<&JobRecord> for Placed {
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
    known: BTreeMap<Lane, Mark>,
    /// Counts the times a mark was lowered, so that a slower answer does not raise it again.
    turn: u64,
    last_look: Option<(Instant, Duration)>,
    /// The last claim got less than it asked for.
    short: bool,
}

struct Mark {
    place: Place,
    lowered: u64,
}

/// What was known when a question was asked.
#[derive(Clone, Copy)]
pub(super) struct Turn(u64);

impl Lanes {
    pub(super) fn new(marks: bool) -> Self {
        Self { state: Mutex::default(), marks: marks && !planted(Bug::MarksIgnored) }
    }

    /// Jobs became ready at these places, by this process.
    pub(super) fn lower(&self, places: impl Iterator<Item = Placed>) {
        let mut state = self.lock();
        state.turn += 1;
        let lowered = state.turn;
        for Placed(lane, place) in places {
            let room = state.known.len() < REMEMBERED_MAX;
            match state.known.entry(lane) {
                Entry::Occupied(mut known) if place <= known.get().place => {
                    known.insert(Mark { place, lowered });
                }
                Entry::Vacant(new) if room => {
                    new.insert(Mark { place, lowered });
                }
                _ => (),
            }
        }
    }

    /// Whether the next claim should look from the beginning.
    pub(super) fn look_is_due(&self) -> bool {
        let state = self.lock();
        let overdue = |(at, took): (Instant, Duration)| at.elapsed() >= LOOK_INTERVAL.max(took * LOOK_SHARE);
        !self.marks || state.short || state.last_look.is_none_or(overdue)
    }

    /// Whether the last claim got less than it asked for.
    pub(super) fn was_short(&self) -> bool {
        self.lock().short
    }

    pub(super) fn turn(&self) -> Turn {
        Turn(self.lock().turn)
    }

    /// The first ready job of every lane, as found by a look that began at `turn` and took this long.
    pub(super) fn looked(&self, turn: Turn, took: Duration, found: Vec<Placed>) {
        let mut state = self.lock();
        let fresh = |mark: &Mark| mark.lowered > turn.0;
        let found = found.into_iter().map(|Placed(lane, place)| (lane, Mark { place, lowered: 0 })).collect();
        let before = std::mem::replace(&mut state.known, found);
        for (lane, mark) in before.into_iter().filter(|(_, mark)| fresh(mark)) {
            let kept = state.known.entry(lane).or_insert(Mark { place: mark.place, lowered: mark.lowered });
            kept.place = kept.place.min(mark.place);
            kept.lowered = mark.lowered;
        }
        state.last_look = Some((Instant::now(), took));
    }

    /// Jobs up to these places were claimed by a claim that began at `turn`; whether it got all it asked for.
    pub(super) fn claimed(&self, turn: Turn, up_to: impl Iterator<Item = Placed>, short: bool) {
        let mut state = self.lock();
        state.short = short;
        for Placed(lane, place) in up_to {
            if let Some(mark) = state.known.get_mut(&lane)
                && mark.lowered <= turn.0
            {
                mark.place = mark.place.max(place);
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
            columns.run_ats.push(mark.place.0);
            columns.ids.push(mark.place.1);
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
    pub(super) run_ats: Vec<Moment>,
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

    fn place(at: i64) -> Place {
        (Timestamp::from_second(at).unwrap().into(), Uuid::nil())
    }

    fn placed(queue: &str, at: i64) -> Placed {
        Placed(Lane { queue: queue.into(), kind: "k".into(), priority: 0 }, place(at))
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
        lanes.lower([placed("a", 10)].into_iter());
        lanes.claimed(lanes.turn(), [placed("a", 20)].into_iter(), false);
        assert_eq!(marks(&lanes), [("a".to_owned(), 20)]);
        lanes.lower([placed("a", 30), placed("b", 5)].into_iter());
        assert_eq!(marks(&lanes), [("a".to_owned(), 20), ("b".to_owned(), 5)]);
        lanes.lower([placed("a", 15)].into_iter());
        assert_eq!(marks(&lanes), [("a".to_owned(), 15), ("b".to_owned(), 5)]);
    }

    #[test]
    fn a_claim_that_began_before_a_mark_was_lowered_does_not_raise_it_again() {
        let lanes = Lanes::new(true);
        lanes.lower([placed("a", 10)].into_iter());
        let turn = lanes.turn();
        lanes.lower([placed("a", 5)].into_iter());
        lanes.claimed(turn, [placed("a", 20)].into_iter(), false);
        assert_eq!(marks(&lanes), [("a".to_owned(), 5)]);
    }

    #[test]
    fn a_look_replaces_what_was_known_but_not_what_happened_since_it_began() {
        let lanes = Lanes::new(true);
        lanes.lower([placed("old", 1), placed("a", 50)].into_iter());
        let turn = lanes.turn();
        lanes.lower([placed("new", 7), placed("a", 40)].into_iter());
        lanes.looked(turn, Duration::ZERO, vec![placed("a", 45)]);
        assert_eq!(marks(&lanes), [("a".to_owned(), 40), ("new".to_owned(), 7)]);
    }

    #[test]
    fn a_process_that_only_enqueues_remembers_a_bounded_number_of_lanes() {
        let lanes = Lanes::new(true);
        for n in 0..REMEMBERED_MAX + 5 {
            lanes.lower([placed(&format!("{n:06}"), 10)].into_iter());
        }
        assert_eq!(marks(&lanes).len(), REMEMBERED_MAX);
        // The ones it knows are still kept up to date, and a look brings the others.
        lanes.lower([placed("000000", 5)].into_iter());
        assert_eq!(marks(&lanes)[0], ("000000".to_owned(), 5));
        lanes.looked(lanes.turn(), Duration::ZERO, vec![placed("late", 7)]);
        assert_eq!(marks(&lanes), [("late".to_owned(), 7)]);
    }

    #[test]
    fn a_look_is_due_at_first_and_after_a_short_claim() {
        let lanes = Lanes::new(true);
        assert!(lanes.look_is_due());
        lanes.looked(lanes.turn(), Duration::ZERO, vec![]);
        assert!(!lanes.look_is_due());
        lanes.claimed(lanes.turn(), std::iter::empty(), true);
        assert!(lanes.look_is_due());
    }
}
