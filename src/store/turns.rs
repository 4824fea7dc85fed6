//! Turns between groups: which group's jobs a claim takes next. Shared by both stores, in memory, without I/O.
//!
//! Stride scheduling: every unit (a group of a queue, or all ungrouped jobs together) has a *pass*; the one with the least
//! has the next turn, and a turn raises it by [`STRIDE`] over the unit's weight. A unit that comes back after an idle time
//! begins at the pass of now, so that it neither has credit for that time nor waits for others to catch up. A claim of
//! several jobs is dealt in one go: the `n`th job of a unit has the tag `pass + n · stride`, and the least tags win.
//!
//! Fairness only hurries. Nothing here decides whether a job may start, and all of it may be forgotten.

use std::collections::HashMap;
use std::sync::Arc;

/// What one turn costs a unit of weight 1. Divisible by every weight up to 10, and far above the largest, so that rounding
/// does not matter.
pub(crate) const STRIDE: u64 = 2_520_000;

/// 10,000 units, some MB: what is remembered at most. Who is forgotten begins at the pass of now.
const REMEMBERED_MAX: usize = 10_000;

/// Who takes turns: a group of a queue; `None`: all jobs without a group together.
pub(crate) type Unit = Option<(Arc<str>, Arc<str>)>;

/// The passes of units, and the pass of now.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    passes: HashMap<Unit, u64>,
    /// The tag of the newest job that was served.
    now: u64,
}

/// What one turn costs a unit of this weight.
pub(crate) fn stride(weight: u32) -> u64 {
    STRIDE / u64::from(weight.max(1))
}

impl Turns {
    /// The tag of the unit's next job: the least has the next turn.
    pub(crate) fn pass(&self, unit: &Unit) -> u64 {
        self.passes.get(unit).copied().unwrap_or_default().max(self.now)
    }

    /// The unit's jobs were served, this many.
    pub(crate) fn served(&mut self, unit: &Unit, jobs: usize, weight: u32) {
        if jobs == 0 {
            return;
        }
        let (pass, stride) = (self.pass(unit), stride(weight));
        let next = pass.saturating_add(stride.saturating_mul(jobs as u64));
        // The passes of two units that always have jobs are never further apart than a batch, so none is ahead of now for
        // longer than the others take to follow.
        self.passes.insert(unit.clone(), next);
        if self.passes.len() > REMEMBERED_MAX {
            self.forget();
        }
    }

    /// Every unit that waited has been served up to this tag: whoever comes now begins here.
    pub(crate) fn advance(&mut self, to: u64) {
        self.now = self.now.max(to);
        if self.passes.len() > REMEMBERED_MAX / 2 {
            let now = self.now;
            self.passes.retain(|_, pass| *pass > now);
        }
    }

    /// Those that are least ahead: they lose a turn at most.
    fn forget(&mut self) {
        let now = self.now;
        self.passes.retain(|_, pass| *pass > now);
        if self.passes.len() > REMEMBERED_MAX {
            let mut passes: Vec<u64> = self.passes.values().copied().collect();
            let middle = passes.len() / 2;
            let (_, median, _) = passes.select_nth_unstable(middle);
            let median = *median;
            self.passes.retain(|_, pass| *pass > median);
        }
    }
}

/// Deals `max` turns among units of one priority: how many each gets, in the order of `units`. A unit is its pass, its
/// weight, and how many jobs it has at most.
#[cfg(test)]
pub(crate) fn deal(max: usize, units: &[(u64, u32, usize)]) -> Vec<usize> {
    let mut dealt = vec![0; units.len()];
    let mut next: std::collections::BinaryHeap<_> = units
        .iter()
        .enumerate()
        .filter(|(_, (_, _, has))| *has > 0)
        .map(|(n, (pass, ..))| std::cmp::Reverse((*pass, n)))
        .collect();
    for _ in 0..max {
        let Some(std::cmp::Reverse((pass, n))) = next.pop() else { break };
        let (_, weight, has) = units[n];
        dealt[n] += 1;
        if dealt[n] < has {
            next.push(std::cmp::Reverse((pass.saturating_add(stride(weight)), n)));
        }
    }
    dealt
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit(group: &str) -> Unit {
        Some(("q".into(), group.into()))
    }

    /// Claims of `max` jobs from groups that always have jobs; who was served how often.
    fn served(turns: &mut Turns, claims: usize, max: usize, groups: &[(&str, u32)]) -> Vec<usize> {
        let mut total = vec![0; groups.len()];
        for _ in 0..claims {
            let units: Vec<_> =
                groups.iter().map(|(group, weight)| (turns.pass(&unit(group)), *weight, usize::MAX)).collect();
            let dealt = deal(max, &units);
            for (n, jobs) in dealt.iter().enumerate() {
                turns.served(&unit(groups[n].0), *jobs, groups[n].1);
                total[n] += jobs;
            }
            let least = groups.iter().map(|(group, _)| turns.pass(&unit(group))).min().unwrap_or_default();
            turns.advance(least);
        }
        total
    }

    #[test]
    fn groups_are_served_in_turn_whatever_a_claim_takes() {
        for max in [1, 2, 7, 100] {
            let got = served(&mut Turns::default(), 30, max, &[("a", 1), ("b", 1), ("c", 1)]);
            assert_eq!(got.iter().sum::<usize>(), 30 * max);
            assert!(got.iter().max().unwrap() - got.iter().min().unwrap() <= 1, "{got:?}");
        }
    }

    #[test]
    fn a_weight_is_a_number_of_turns() {
        let got = served(&mut Turns::default(), 50, 8, &[("a", 3), ("b", 1)]);
        assert_eq!(got, [300, 100]);
    }

    #[test]
    fn a_group_that_comes_back_has_no_credit_and_waits_for_nobody() {
        let mut turns = Turns::default();
        served(&mut turns, 100, 10, &[("a", 1), ("b", 1)]);
        let got = served(&mut turns, 10, 10, &[("a", 1), ("b", 1), ("new", 1)]);
        assert!(got.iter().all(|jobs| (32..=35).contains(jobs)), "{got:?}");
    }

    #[test]
    fn turns_that_a_group_cannot_use_are_the_others() {
        assert_eq!(deal(10, &[(0, 1, 1), (0, 1, usize::MAX), (0, 1, 0)]), [1, 9, 0]);
        assert_eq!(deal(10, &[(0, 1, 2), (0, 1, 3)]), [2, 3]);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut turns = Turns::default();
        for n in 0..3 * REMEMBERED_MAX {
            turns.served(&unit(&n.to_string()), 1, 1);
        }
        assert!(turns.passes.len() <= REMEMBERED_MAX);
    }
}
