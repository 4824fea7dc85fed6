//! What keeps waiting jobs out of the lanes that claims look at: pauses of queues and groups, limits that are reached, and
//! rates that allow nothing yet. Lanes behind a closed gate cost a claim nothing, however many jobs wait in them.
//!
//! A limit's gate is closed by the claim that found it reached. It is opened when a lease is given back or the rate's time
//! has come, and whenever that is in doubt: an open gate costs a look, a closed one that nobody opens would keep jobs back.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

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
}

impl Gates {
    /// Whether jobs of the queue and kind may be looked at.
    pub(super) fn admits(&self, queue: &Arc<str>, kind: &Arc<str>) -> bool {
        !self.paused_queues.contains(&**queue)
            && (self.reached.is_empty()
                || !(self.reached.contains_key(&LimitKey::Queue(queue.clone()))
                    || self.reached.contains_key(&LimitKey::Kind(kind.clone()))))
    }

    /// Whether jobs of the group may be looked at, as far as it is the group's matter.
    pub(super) fn admits_group(&self, queue: &Arc<str>, key: &Arc<str>) -> bool {
        let is_paused = self.paused_groups.get(queue).is_some_and(|paused| paused.contains(key));
        let is_reached = || self.reached.contains_key(&LimitKey::Group(queue.clone(), key.clone()));
        !is_paused && (self.reached.is_empty() || !is_reached())
    }

    /// Closes the gate of a limit, until a time or until a lease is given back. Tells whether it was open.
    pub(super) fn close(&mut self, key: LimitKey, until: Option<i64>) -> bool {
        if let Some(until) = until {
            self.opens_at.insert((until, key.clone()));
        }
        let before = self.reached.insert(key.clone(), until);
        if let Some(Some(before)) = before
            && until != Some(before)
        {
            self.opens_at.remove(&(before, key));
        }
        before.is_none()
    }

    /// Opens the gate of a limit. Tells whether it was closed.
    pub(super) fn open(&mut self, key: &LimitKey) -> bool {
        let Some(until) = self.reached.remove(key) else { return false };
        if let Some(until) = until {
            self.opens_at.remove(&(until, key.clone()));
        }
        true
    }

    /// Every limit whose gate is closed.
    pub(super) fn closed(&self) -> Vec<LimitKey> {
        self.reached.keys().cloned().collect()
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

    #[test]
    fn a_gate_that_is_closed_again_opens_at_the_newer_time() {
        let mut gates = Gates::default();
        assert!(gates.close(queue("mail"), Some(10)));
        assert!(!gates.close(queue("mail"), Some(20)));
        assert_eq!((gates.due(15), gates.due(20)), (None, Some(queue("mail"))));
        assert!(gates.open(&queue("mail")) && !gates.open(&queue("mail")));
        assert_eq!(gates.due(i64::MAX), None);
    }

    #[test]
    fn a_claim_waits_for_the_first_gate_that_concerns_it() {
        let mut gates = Gates::default();
        gates.close(queue("mail"), Some(10));
        gates.close(queue("images"), Some(20));
        let claim = Claim::new(crate::job::WorkerId::unknown(), std::time::Duration::from_secs(1));
        assert_eq!(gates.opens_for(&claim), Some(10));
        assert_eq!(gates.opens_for(&claim.clone().queues(vec!["images".parse().unwrap()])), Some(20));
        assert_eq!(gates.opens_for(&claim.queues(vec!["other".parse().unwrap()])), None);
    }
}
