//! What a claim may still take of the limits that bind its lanes: places and starts of a rate, with what it has taken already.
//! It decides by what is known of the usage; the claim writes what was taken in the same transaction.

use std::collections::HashMap;

use super::due_row::DueRow;
use super::gates::{LimitKey, Reached, WaitingJob};
use super::lanes::Lane;
use super::limit_settings::Bound;
use super::marks::Marks;
use super::transaction::Tx;
use super::usage::Used;
use crate::planted::{Bug, planted};

/// Of one claim.
pub(super) struct Room<'t, 'c> {
    tx: &'t Tx<'c>,
    used: HashMap<LimitKey, Taken>,
    /// How many jobs with a limit it may still take; the rest of what it takes is prefetch.
    limited: usize,
    /// It has left jobs with a limit to those who do not prefetch them.
    left_ahead: bool,
}

#[derive(Debug, Clone)]
struct Taken {
    /// As it is with what was taken.
    used: Used,
    leases: i64,
    has_started: bool,
    /// It has no room for a job that came first; those behind it wait as well.
    refused: Option<Reached>,
}

/// What a claim has made of the limits.
#[derive(Debug, Default)]
pub(super) struct RoomTaken {
    /// Leases, and where the rate has come to.
    pub(super) taken: Vec<(LimitKey, i64, Option<i64>)>,
    /// Limits that are reached.
    pub(super) reached: Vec<(LimitKey, Reached)>,
    /// Jobs with a limit were left, because they would have been prefetch.
    pub(super) left_ahead: bool,
}

impl<'t, 'c> Room<'t, 'c> {
    pub(super) fn new(tx: &'t Tx<'c>, limited: usize) -> Self {
        Self { tx, used: HashMap::new(), limited, left_ahead: false }
    }

    /// The limits that bind a lane.
    pub(super) fn bounds(&self, lane: &Lane) -> Vec<Bound> {
        self.tx.limit_settings().bounds(lane)
    }

    /// Whether one of these has refused a job before. Costs no look at the lane.
    pub(super) fn is_closed(&mut self, bounds: &[Bound]) -> bool {
        let is_refused = |bound: &Bound| self.used.get(&bound.key).is_some_and(|taken| taken.refused.is_some());
        if bounds.iter().any(is_refused) {
            return true;
        }
        let is_ahead = self.limited == 0 && !bounds.is_empty();
        self.left_ahead |= is_ahead;
        is_ahead
    }

    /// Whether it is closed for all groups of the lane's queue and kind, of which one has these bounds.
    pub(super) fn is_closed_for_all_groups(&self, lane: &Lane, bounds: &[Bound]) -> bool {
        let mut of_all = bounds.iter().filter(|bound| bound.mark != Marks::GROUP);
        let is_refused = |bound: &Bound| self.used.get(&bound.key).is_some_and(|taken| taken.refused.is_some());
        let is_all_ahead = self.limited == 0 && self.tx.limit_settings().binds_each_group(&lane.queue);
        is_all_ahead || of_all.any(|bound| self.limited == 0 || is_refused(bound))
    }

    /// How many jobs the places allow.
    pub(super) fn places(&self, bounds: &[Bound]) -> usize {
        let places = bounds.iter().filter_map(|bound| {
            let used = self.used.get(&bound.key).map_or_else(|| self.tx.used(&bound.key), |taken| taken.used);
            bound.concurrency.map(|limit| (i64::from(limit) - used.running).max(0) as usize)
        });
        places.min().unwrap_or(usize::MAX).min(if bounds.is_empty() { usize::MAX } else { self.limited })
    }

    /// Takes a place and, by its cost, starts of each limit for a job, or nothing of any. The marks say which leases it
    /// counts for.
    pub(super) fn admit(&mut self, bounds: &[Bound], row: &DueRow) -> Option<Marks> {
        if bounds.is_empty() {
            return Some(Marks::default());
        }
        if self.is_closed(bounds) {
            return None;
        }
        let (now, cost) = (self.tx.now_micros(), row.cost());
        for bound in bounds {
            let tx = self.tx;
            let taken = self.used.entry(bound.key.clone()).or_insert_with(|| Taken::of(tx.used(&bound.key)));
            if bound.concurrency.is_some_and(|limit| taken.used.running >= i64::from(limit)) {
                taken.refused = Some(Reached { until: None, gathers_for: None });
                return None;
            }
            if let Some(rate) = bound.rate
                && !rate.admits(cost, rate.available(taken.used.tat, now))
            {
                // Never now: rounding can take a microsecond more.
                let at = |cost| rate.next_at(taken.used.tat, now, cost).max(now + 1);
                let (until, job) = (at(cost), WaitingJob { lane: row.lane.clone(), position: row.position });
                taken.refused = Some(Reached { until: Some(until), gathers_for: (at(1) < until).then_some(job) });
                return None;
            }
        }
        let mut marks = Marks::default();
        for bound in bounds {
            let Some(taken) = self.used.get_mut(&bound.key) else { continue };
            taken.has_started = true;
            if bound.concurrency.is_some() {
                taken.used.running += 1;
                taken.leases += 1;
                marks = marks.with(bound.mark);
            }
            if let Some(rate) = bound.rate {
                taken.used.tat = Some(rate.take(taken.used.tat, now, cost.into()));
            }
        }
        self.limited -= 1;
        Some(marks)
    }

    /// What it has taken.
    pub(super) fn finish(self) -> RoomTaken {
        let mut finished = RoomTaken { left_ahead: self.left_ahead, ..RoomTaken::default() };
        for (key, taken) in self.used {
            if let Some(refused) = taken.refused {
                finished.reached.push((key.clone(), refused));
            }
            if taken.has_started {
                finished.taken.push((key, taken.leases, taken.used.tat));
            }
        }
        if planted(Bug::RateWithoutLookAgain) {
            finished.reached.retain(|(_, reached)| reached.until.is_none());
        }
        finished
    }
}

impl Taken {
    fn of(used: Used) -> Self {
        Self { used, leases: 0, has_started: false, refused: None }
    }
}
