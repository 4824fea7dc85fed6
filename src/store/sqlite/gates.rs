//! What keeps waiting jobs out of the lanes that claims look at: pauses of queues and groups, limits that are reached, and
//! rates that allow nothing yet. Lanes behind a closed gate cost a claim nothing, however many jobs wait in them.
//!
//! A limit's gate is closed by the claim that found it reached. It is opened when a lease is given back or the rate's time
//! has come, and whenever that is in doubt: an open gate costs a look, a closed one that nobody opens would keep jobs back.
//!
//! A rate that has something left, but not enough for the job whose turn it is, gathers for that job: it is closed for the
//! cheaper ones behind it, or they would starve it, and open for those in front of it. It opens when the job is gone.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use super::known_lanes::Rank;
use super::lanes::{Lane, Position};
use crate::store::Claim;

/// What a limit is of.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum LimitKey {
    Queue(Arc<str>),
    Kind(Arc<str>),
    /// The queue, and the group's key.
    Group(Arc<str>, Arc<str>),
}

impl LimitKey {
    /// Its primary key in the table `usage`: scope, name, group.
    pub(super) fn columns(&self) -> (&'static str, &str, &str) {
        match self {
            Self::Queue(queue) => ("queue", queue, ""),
            Self::Kind(kind) => ("kind", kind, ""),
            Self::Group(queue, key) => ("group", queue, key),
        }
    }

    /// What may bind the jobs of a lane.
    fn of_lane(lane: &Lane) -> impl Iterator<Item = Self> {
        let group = lane.group.key().map(|key| Self::Group(lane.queue.clone(), key.clone()));
        [Self::Queue(lane.queue.clone()), Self::Kind(lane.kind.clone())].into_iter().chain(group)
    }

    /// `None` for a scope that no program of ours wrote.
    pub(super) fn of_columns(scope: &str, name: Arc<str>, group: Arc<str>) -> Option<Self> {
        match scope {
            "queue" => Some(Self::Queue(name)),
            "kind" => Some(Self::Kind(name)),
            "group" => Some(Self::Group(name, group)),
            _ => None,
        }
    }

    /// Whether it can be about a job that this claim may take.
    fn concerns(&self, claim: &Claim) -> bool {
        match self {
            Self::Queue(name) | Self::Group(name, _) => {
                claim.queues.as_ref().is_none_or(|queues| queues.iter().any(|queue| *queue.as_str() == **name))
            }
            Self::Kind(name) => {
                claim.kinds.as_ref().is_none_or(|kinds| kinds.iter().any(|kind| *kind.as_str() == **name))
            }
        }
    }
}

/// 64: among so many gates that open next, a claim looks for one that concerns it. If none does, it looks again when the
/// last of these opens.
const LOOKED_AT_MAX: usize = 64;

#[derive(Debug, Clone, Default)]
pub(super) struct Gates {
    pub(super) paused_queues: HashSet<String>,
    /// By queue, with the keys of the paused groups.
    pub(super) paused_groups: HashMap<Arc<str>, HashSet<Arc<str>>>,
    /// Limits that are reached; rates with the time at which they allow the next start.
    reached: HashMap<LimitKey, Option<i64>>,
    /// Those rates, soonest first.
    opens_at: BTreeSet<(i64, LimitKey)>,
    /// Of rates that have something left: the jobs for which they gather.
    gathering: HashMap<LimitKey, WaitingJob>,
}

/// Why a gate is closed.
#[derive(Debug, Clone)]
pub(super) struct Reached {
    /// When its rate allows the start; `None`: once a lease is given back.
    pub(super) until: Option<i64>,
    /// The job that it gathers for, if a cheaper one could start before.
    pub(super) gathers_for: Option<WaitingJob>,
}

/// A job, by its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WaitingJob {
    pub(super) lane: Arc<Lane>,
    pub(super) position: Position,
}

impl WaitingJob {
    fn rank(&self) -> Rank {
        (Reverse(self.lane.priority), self.position)
    }
}

impl Gates {
    /// Whether a job of the queue and kind, of this rank, may be looked at.
    pub(super) fn admits(&self, queue: &Arc<str>, kind: &Arc<str>, rank: Rank) -> bool {
        !self.paused_queues.contains(&**queue)
            && (self.reached.is_empty()
                || !(self.holds_back(&LimitKey::Queue(queue.clone()), rank)
                    || self.holds_back(&LimitKey::Kind(kind.clone()), rank)))
    }

    /// Whether a job of the group, of this rank, may be looked at, as far as it is the group's matter.
    pub(super) fn admits_group(&self, queue: &Arc<str>, key: &Arc<str>, rank: Rank) -> bool {
        let is_paused = self.paused_groups.get(queue).is_some_and(|paused| paused.contains(key));
        let is_held_back = || self.holds_back(&LimitKey::Group(queue.clone(), key.clone()), rank);
        !is_paused && (self.reached.is_empty() || !is_held_back())
    }

    fn holds_back(&self, key: &LimitKey, rank: Rank) -> bool {
        self.reached.contains_key(key) && self.gathering.get(key).is_none_or(|job| rank >= job.rank())
    }

    /// Closes the gate of a limit, until a time or until a lease is given back. Tells whether it was open, for some at least.
    pub(super) fn close(&mut self, key: LimitKey, Reached { until, gathers_for }: Reached) -> bool {
        let gathered_for = match gathers_for.clone() {
            Some(job) => self.gathering.insert(key.clone(), job),
            None => self.gathering.remove(&key),
        };
        if let Some(until) = until {
            self.opens_at.insert((until, key.clone()));
        }
        let before = self.reached.insert(key.clone(), until);
        if let Some(Some(before)) = before
            && until != Some(before)
        {
            self.opens_at.remove(&(before, key));
        }
        before.is_none() || gathered_for != gathers_for
    }

    /// Opens the gate of a limit. Tells whether it was closed.
    pub(super) fn open(&mut self, key: &LimitKey) -> bool {
        let Some(until) = self.reached.remove(key) else { return false };
        if let Some(until) = until {
            self.opens_at.remove(&(until, key.clone()));
        }
        self.gathering.remove(key);
        true
    }

    /// Every limit whose gate is closed.
    pub(super) fn closed(&self) -> Vec<LimitKey> {
        self.reached.keys().cloned().collect()
    }

    /// The groups of a queue whose gates are closed.
    pub(super) fn closed_groups(&self, queue: &str) -> Vec<LimitKey> {
        let is_of_queue = |key: &&LimitKey| matches!(key, LimitKey::Group(of, _) if **of == *queue);
        self.reached.keys().filter(is_of_queue).cloned().collect()
    }

    /// Rates that gather for a job of this lane which is not the first of it any more: this one is.
    pub(super) fn gathering_in_vain(&self, lane: &Lane, head: Option<Position>) -> Vec<LimitKey> {
        if self.gathering.is_empty() {
            return Vec::new();
        }
        let is_gone = |job: &WaitingJob| *job.lane == *lane && head != Some(job.position);
        LimitKey::of_lane(lane).filter(|key| self.gathering.get(key).is_some_and(is_gone)).collect()
    }

    /// Rates that gather for a job of a queue, or of one of its groups.
    pub(super) fn gathering_in(&self, queue: &str, group: Option<&str>) -> Vec<LimitKey> {
        let is_in = |lane: &Lane| {
            let is_of_group = |group: &str| lane.group.key().is_some_and(|key| **key == *group);
            *lane.queue == *queue && group.is_none_or(is_of_group)
        };
        self.gathering.iter().filter(|(_, job)| is_in(&job.lane)).map(|(key, _)| key.clone()).collect()
    }

    /// A rate that allows a start by now.
    pub(super) fn due(&self, now_micros: i64) -> Option<LimitKey> {
        self.opens_at.first().filter(|(at, _)| *at <= now_micros).map(|(_, key)| key.clone())
    }

    /// When the next gate opens by itself that may keep a job from this claim.
    pub(super) fn opens_for(&self, claim: &Claim) -> Option<i64> {
        let mut last = None;
        for (at, key) in self.opens_at.iter().take(LOOKED_AT_MAX) {
            if key.concerns(claim) {
                return Some(*at);
            }
            last = Some(*at);
        }
        last.filter(|_| self.opens_at.len() > LOOKED_AT_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(name: &str) -> LimitKey {
        LimitKey::Queue(name.into())
    }

    fn until(micros: i64) -> Reached {
        Reached { until: Some(micros), gathers_for: None }
    }

    #[test]
    fn a_gate_that_is_closed_again_opens_at_the_newer_time() {
        let mut gates = Gates::default();
        assert!(gates.close(queue("mail"), until(10)));
        assert!(!gates.close(queue("mail"), until(20)));
        assert_eq!((gates.due(15), gates.due(20)), (None, Some(queue("mail"))));
        assert!(gates.open(&queue("mail")) && !gates.open(&queue("mail")));
        assert_eq!(gates.due(i64::MAX), None);
    }

    #[test]
    fn a_claim_waits_for_the_first_gate_that_concerns_it() {
        let mut gates = Gates::default();
        gates.close(queue("mail"), until(10));
        gates.close(queue("images"), until(20));
        let claim = Claim::new(crate::job::WorkerId::unknown(), std::time::Duration::from_secs(1));
        assert_eq!(gates.opens_for(&claim), Some(10));
        assert_eq!(gates.opens_for(&claim.clone().queues(vec!["images".parse().unwrap()])), Some(20));
        assert_eq!(gates.opens_for(&claim.queues(vec!["other".parse().unwrap()])), None);
    }

    #[test]
    fn a_rate_that_gathers_for_a_job_lets_those_in_front_of_it_pass_and_opens_when_it_is_gone() {
        let (mail, any): (Arc<str>, Arc<str>) = ("mail".into(), "any".into());
        let at = |run_at| Position { run_at, ..Position::START };
        let lane = |priority| Arc::new(Lane::plain(mail.clone(), "dear".into(), priority));
        let gathers_for = Some(WaitingJob { lane: lane(0), position: at(5) });
        let mut gates = Gates::default();
        assert!(gates.close(queue("mail"), Reached { until: Some(10), gathers_for: gathers_for.clone() }));
        assert!(!gates.close(queue("mail"), Reached { until: Some(20), gathers_for }), "it is closed already");
        let admits = |gates: &Gates, priority, run_at| gates.admits(&mail, &any, (Reverse(priority), at(run_at)));
        assert!(admits(&gates, 1, 9) && admits(&gates, 0, 4) && !admits(&gates, 0, 6) && !admits(&gates, -1, 0));
        assert_eq!(gates.gathering_in_vain(&lane(0), Some(at(5))), []);
        assert_eq!(gates.gathering_in_vain(&lane(1), Some(at(1))), []);
        assert_eq!(gates.gathering_in_vain(&lane(0), None), [queue("mail")]);
        assert_eq!(gates.gathering_in("mail", None), [queue("mail")]);
        assert_eq!(gates.gathering_in("mail", Some("a")), []);
        assert!(gates.close(queue("mail"), until(10)), "now it is closed for all");
        assert!(!admits(&gates, 1, 9));
    }
}
