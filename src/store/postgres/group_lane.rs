//! A lane of a group: its name, what is known of it, and what is asked of it. `group_lanes` keeps them.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::claim::Reach;
use super::lanes::Position;
use crate::store::Claim;
use crate::store::turns::Unit;

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

/// Why a lane sleeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sleep {
    /// Its first job is due later.
    Future,
    /// A rate holds it, or something else that may change with time.
    Time,
    /// A limit is reached, or a job of its strict group runs: a lease that ends wakes it.
    Room,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct KnownLane {
    pub(super) position: Position,
    /// `None`: it is awake.
    pub(super) asleep: Option<(Instant, Sleep)>,
    pub(super) lowered: u64,
    pub(super) weight: u32,
}

impl KnownLane {
    /// Sleeps now, for another reason than that its jobs lie in the future.
    pub(super) fn held(&self, now: Instant) -> Option<(Instant, Sleep)> {
        self.asleep.filter(|(until, why)| *until > now && *why != Sleep::Future)
    }

    /// `is_few`: there are so few lanes that those which sleep are asked as well.
    pub(super) fn is_asked(&self, now: Instant, reach: Reach, is_few: bool) -> bool {
        self.asleep
            .is_none_or(|(until, why)| until <= now || is_few && (reach == Reach::Everything || why != Sleep::Room))
    }
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
    pub(super) after_fair: Option<FairLane>,
    pub(super) after_strict: Option<StrictLane>,
    pub(super) fair: Vec<(FairLane, FoundLane)>,
    pub(super) strict: Vec<(StrictLane, Duration, u32)>,
}

/// What was known when a look began.
#[derive(Clone, Copy)]
pub(super) struct Look {
    pub(super) generation: u64,
    pub(super) settings: u64,
    /// Whether it reads which names have limits.
    pub(super) reads_names: bool,
}

/// The lanes of groups that a claim asks.
pub(super) struct ChosenGroups {
    pub(super) lanes: Vec<AskedGroup>,
    /// There are others that may have jobs.
    pub(super) left_out: bool,
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

    pub(super) fn fair(&self) -> Option<FairLane> {
        let (kind, priority) = self.lane.clone()?;
        Some(FairLane { queue: self.queue.clone(), kind, priority, group: self.group.clone() })
    }

    pub(super) fn strict(&self) -> StrictLane {
        StrictLane { queue: self.queue.clone(), group: self.group.clone() }
    }
}

/// What a claim asks for.
pub(super) struct Wants<'a> {
    queues: Option<HashSet<&'a str>>,
    kinds: Option<HashSet<&'a str>>,
}

impl<'a> Wants<'a> {
    pub(super) fn of(claim: &'a Claim) -> Self {
        Self {
            queues: claim.queues.as_ref().map(|queues| queues.iter().map(|queue| queue.as_str()).collect()),
            kinds: claim.kinds.as_ref().map(|kinds| kinds.iter().map(|kind| kind.as_str()).collect()),
        }
    }

    pub(super) fn queue(&self, queue: &str) -> bool {
        self.queues.as_ref().is_none_or(|queues| queues.contains(queue))
    }

    pub(super) fn kind(&self, kind: &str) -> bool {
        self.kinds.as_ref().is_none_or(|kinds| kinds.contains(kind))
    }
}
