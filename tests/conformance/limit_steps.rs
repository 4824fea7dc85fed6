//! The steps of the model test that have to do with limits: few groups, small limits, rates of whole milliseconds, so that
//! limits are reached all the time and lowered while they are.

use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use steadfast::job::{GroupDefaults, GroupOrder, GroupSettings, OnConflict, QueueSettings, Rate, UniqueWhile};

use crate::model_limits::Unique;
use crate::step::{KINDS, New, QUEUES, Start, Step};

pub(crate) const GROUPS: u8 = 3;

/// What a job asks of its start beside a time: its group, cost, deadline, and how it is unique.
pub(crate) type Options = (Option<u8>, Option<u32>, Option<u64>, Option<Unique>);

pub(crate) fn settings() -> Vec<(u32, BoxedStrategy<Step>)> {
    let queue = (0..QUEUES, concurrency(), rate(), option::weighted(0.7, each_group()));
    let queue = queue.prop_map(|(queue, concurrency, rate, groups)| {
        let mut settings = QueueSettings::default();
        (settings.concurrency, settings.rate, settings.groups) = (concurrency, rate, groups);
        Step::SetQueue { queue, settings }
    });
    let group = (0..QUEUES, 0..GROUPS, option::weighted(0.7, one_group()));
    let group = group.prop_map(|(queue, group, settings)| Step::SetGroup { queue, group, settings });
    let kind = (0..KINDS, concurrency(), rate());
    let kind = kind.prop_map(|(kind, concurrency, rate)| Step::SetKindLimit { kind, concurrency, rate });
    vec![(2, queue.boxed()), (2, group.boxed()), (1, kind.boxed())]
}

fn concurrency() -> impl Strategy<Value = Option<u32>> {
    prop_oneof![2 => Just(None), 2 => (1..=2_u32).prop_map(Some), 1 => Just(Some(5))]
}

/// A start in a second, in half of one, in a fifth.
fn rate() -> impl Strategy<Value = Option<Rate>> {
    let rates = vec![Rate::new(1, 1_000).burst(1), Rate::new(2, 1_000).burst(2), Rate::new(5, 1_000).burst(3)];
    option::weighted(0.25, select(rates))
}

fn each_group() -> impl Strategy<Value = GroupDefaults> {
    let order = prop_oneof![2 => Just(GroupOrder::Fair), 1 => Just(GroupOrder::Strict)];
    (concurrency(), rate(), order).prop_map(|(concurrency, rate, order)| {
        let mut each = GroupDefaults::default().order(order);
        (each.concurrency, each.rate) = (concurrency, rate);
        each
    })
}

fn one_group() -> impl Strategy<Value = GroupSettings> {
    let weight = option::of(1..=3_u32);
    (concurrency(), rate(), weight, prop::bool::weighted(0.2)).prop_map(|(concurrency, rate, weight, paused)| {
        let mut settings = GroupSettings::default().paused(paused);
        (settings.concurrency, settings.rate, settings.weight) = (concurrency, rate, weight);
        settings
    })
}

pub(crate) fn options() -> impl Strategy<Value = Options> {
    let start_within = option::weighted(0.15, select(vec![1, 500, 1_000, 10_000, 3_600_000]));
    (option::weighted(0.6, 0..GROUPS), option::weighted(0.3, 1..=4_u32), start_within, option::weighted(0.6, unique()))
}

fn unique() -> impl Strategy<Value = Unique> {
    let while_ = select(vec![UniqueWhile::Waiting, UniqueWhile::Unfinished]);
    (0..2_u8, while_, 0..4_u8, select(vec![1, 1_000, 30_000])).prop_map(|(key, while_, how, ms)| Unique {
        key,
        while_,
        on_conflict: if how < 2 { OnConflict::Keep } else { OnConflict::Replace },
        for_ms: (how == 1).then_some(ms),
        max_wait_ms: (how == 3).then_some(ms),
    })
}

/// Jobs with these options. What has an idempotency key has no other; of one call only the first is unique, because of
/// several with one key the last counts; a deadline comes after the start.
pub(crate) fn with_options(jobs: Vec<New>, options: Vec<Options>) -> Step {
    let jobs = jobs.into_iter().zip(options).enumerate().map(|(n, (job, (group, cost, start_within, unique)))| {
        let delay = match job.start {
            Start::At(ms) | Start::After(ms) => ms,
            Start::Now | Start::Before(_) => 0,
        };
        let unique = unique.filter(|_| n == 0 && job.key.is_none());
        New {
            // Keys of different kinds are different; most should meet.
            kind: if unique.is_some() { job.kind % 2 } else { job.kind },
            group,
            cost,
            start_within: start_within.filter(|within| *within > delay),
            unique,
            ..job
        }
    });
    Step::Enqueue(jobs.collect())
}
