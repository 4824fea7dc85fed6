//! The steps of the model test, and which ones are worth trying next: small numbers of everything, so that jobs, keys,
//! leases and times meet often.

use std::ops::RangeInclusive;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use proptest::strategy::Union;
use proptest_state_machine::ReferenceStateMachine;
use steadfast::job::{AttemptOutcome, GroupSettings, QueueSettings, Rate, Status};

use crate::limit_steps;
use crate::model::Model;
use crate::model_limits::{Asked, Unique};

/// How long a sequence is: long enough for keys, leases and queues to get into each other's way.
pub(crate) const STEPS: RangeInclusive<usize> = 40..=100;

pub(crate) const QUEUES: usize = 3;
pub(crate) const KINDS: usize = 3;
pub(crate) const WORKERS: usize = 2;

/// Jobs and leases are named by their number in the order they came; times are in milliseconds.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    Enqueue(Vec<New>),
    Claim(Claim),
    Extend {
        beats: Vec<(usize, Option<u8>)>,
        lease: Option<u64>,
    },
    Settle(Vec<(usize, End)>),
    Reap {
        limit: usize,
    },
    Cancel(Vec<usize>),
    Redrive(Vec<usize>),
    Delete(Vec<usize>),
    Prune {
        keep_succeeded: u64,
        keep_cancelled: u64,
        keep_failed: u64,
        limit: usize,
    },
    Pause(usize),
    Resume(usize),
    Declare {
        kind: usize,
        delays: Vec<u64>,
    },
    SetQueue {
        queue: usize,
        settings: QueueSettings,
    },
    /// `None`: what holds for each group holds for this one again.
    SetGroup {
        queue: usize,
        group: u8,
        settings: Option<GroupSettings>,
    },
    SetKindLimit {
        kind: usize,
        concurrency: Option<u32>,
        rate: Option<Rate>,
    },
    Wait(u64),
}

#[derive(Debug, Clone)]
pub(crate) struct Claim {
    pub(crate) worker: usize,
    pub(crate) queues: Option<Vec<usize>>,
    pub(crate) kinds: Option<Vec<usize>>,
    pub(crate) max: usize,
    pub(crate) lease: u64,
}

impl Claim {
    pub(crate) fn asked(&self) -> Asked<'_> {
        let Self { worker, max, lease, .. } = *self;
        Asked { worker, queues: self.queues.as_deref(), kinds: self.kinds.as_deref(), max, lease }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct New {
    pub(crate) kind: usize,
    pub(crate) queue: usize,
    pub(crate) payload: u8,
    pub(crate) priority: i16,
    pub(crate) max_attempts: u32,
    pub(crate) start: Start,
    pub(crate) timeout: Option<u64>,
    pub(crate) key: Option<u8>,
    pub(crate) group: Option<u8>,
    pub(crate) cost: Option<u32>,
    pub(crate) start_within: Option<u64>,
    pub(crate) unique: Option<Unique>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Start {
    Now,
    /// `run_at` this long ago.
    Before(u64),
    /// `run_at` this far ahead.
    At(u64),
    /// `delay_ms`.
    After(u64),
}

#[derive(Debug, Clone)]
pub(crate) enum End {
    Succeeded(Option<u8>),
    Failed { error: u8, permanent: bool, retry_after: Option<u64> },
    TimedOut(u8),
    Cancelled,
    Released,
    Snoozed(u64),
}

impl End {
    /// The word in the record.
    pub(crate) fn word(&self) -> AttemptOutcome {
        match self {
            Self::Succeeded(_) => AttemptOutcome::Succeeded,
            Self::Failed { .. } => AttemptOutcome::Failed,
            Self::TimedOut(_) => AttemptOutcome::TimedOut,
            Self::Cancelled => AttemptOutcome::Cancelled,
            Self::Released => AttemptOutcome::Released,
            Self::Snoozed(_) => AttemptOutcome::Snoozed,
        }
    }
}

/// The waits of each kind at the beginning. Fixed ones: a wait drawn at random could only be held against a window.
pub(crate) fn first_delays() -> Vec<Vec<u64>> {
    vec![vec![1_000], vec![0], vec![500, 30_000]]
}

impl ReferenceStateMachine for Model {
    type State = Model;
    type Transition = Step;

    fn init_state() -> BoxedStrategy<Model> {
        // A sequence with limits that shrank to one without would fail for another reason: its claims have more than one order.
        any::<bool>().no_shrink().prop_map(|has_limits| Model::new(first_delays(), has_limits)).boxed()
    }

    fn transitions(model: &Model) -> BoxedStrategy<Step> {
        let mut steps = vec![
            (if model.has_limits { 7 } else { 3 }, enqueue(model.has_limits)),
            (7, claim()),
            (5, duration().prop_map(Step::Wait).boxed()),
            (4, (1..=4_usize).prop_map(|limit| Step::Reap { limit }).boxed()),
            (1, prune()),
            (1, (0..QUEUES).prop_map(Step::Pause).boxed()),
            (3, (0..QUEUES).prop_map(Step::Resume).boxed()),
            (1, (0..KINDS, vec(wait(), 1..=2)).prop_map(|(kind, delays)| Step::Declare { kind, delays }).boxed()),
        ];
        if model.has_limits {
            steps.extend(limit_steps::settings());
        }
        if !model.jobs.is_empty() {
            steps.push((3, jobs(model, |status| status == Status::Running).prop_map(Step::Cancel).boxed()));
            let is_dead = |status| matches!(status, Status::FailedPermanent | Status::Cancelled);
            steps.push((2, jobs(model, is_dead).prop_map(Step::Redrive).boxed()));
            steps.push((1, jobs(model, Status::is_terminal).prop_map(Step::Delete).boxed()));
        }
        if !model.leases.is_empty() {
            let settles = if live_leases(model).is_empty() { 1 } else { 9 };
            steps.push((settles, vec((lease(model), end()), 1..=3).prop_map(Step::Settle).boxed()));
            let beats = vec((lease(model), option::of(0..=100_u8)), 1..=2);
            let beats = (beats, option::of(lease_length())).prop_map(|(beats, lease)| Step::Extend { beats, lease });
            steps.push((2, beats.boxed()));
        }
        Union::new_weighted(steps).boxed()
    }

    fn apply(mut model: Model, step: &Step) -> Model {
        Model::apply(&mut model, step);
        model
    }

    /// While shrinking: a step may only speak of jobs and leases that are there already.
    fn preconditions(model: &Model, step: &Step) -> bool {
        let lease_exists = |lease: &usize| *lease < model.leases.len();
        match step {
            Step::Cancel(jobs) | Step::Redrive(jobs) | Step::Delete(jobs) => {
                jobs.iter().all(|job| *job < model.jobs.len())
            }
            Step::Extend { beats, .. } => beats.iter().all(|(lease, _)| lease_exists(lease)),
            Step::Settle(ends) => ends.iter().all(|(lease, _)| lease_exists(lease)),
            _ => true,
        }
    }
}

fn enqueue(has_limits: bool) -> BoxedStrategy<Step> {
    let jobs = vec(new(), 1..=3);
    if !has_limits {
        return jobs.prop_map(Step::Enqueue).boxed();
    }
    (jobs, vec(limit_steps::options(), 3)).prop_map(|(jobs, options)| limit_steps::with_options(jobs, options)).boxed()
}

fn new() -> impl Strategy<Value = New> {
    let start = prop_oneof![
        4 => Just(Start::Now),
        1 => duration().prop_map(Start::Before),
        1 => duration().prop_map(Start::At),
        1 => duration().prop_map(Start::After),
    ];
    let timeout = prop_oneof![Just(None), Just(None), Just(Some(2_000)), Just(Some(20_000))];
    let key = prop_oneof![3 => Just(None), 2 => (0..4_u8).prop_map(Some)];
    let priority = select(vec![0, -1, 5]);
    (0..KINDS, 0..QUEUES, any::<u8>(), priority, prop_oneof![Just(3), 1..=2_u32], start, timeout, key).prop_map(
        |(kind, queue, dice, priority, max_attempts, start, timeout, key)| New {
            // What has a key is mostly the same job as what had it before.
            kind: if key.is_some() && dice % 8 > 0 { 0 } else { kind },
            queue,
            payload: if key.is_some() { u8::from(dice % 5 == 0) } else { dice },
            priority,
            max_attempts,
            start,
            timeout,
            key,
            group: None,
            cost: None,
            start_within: None,
            unique: None,
        },
    )
}

fn claim() -> BoxedStrategy<Step> {
    let some_of = |count: usize| {
        let subset = subsequence((0..count).collect::<Vec<_>>(), 0..=count);
        prop_oneof![4 => Just(None), 1 => subset.prop_map(Some)]
    };
    (0..WORKERS, some_of(QUEUES), some_of(KINDS), prop_oneof![9 => 1..=5_usize, 1 => Just(0)], lease_length())
        .prop_map(|(worker, queues, kinds, max, lease)| Step::Claim(Claim { worker, queues, kinds, max, lease }))
        .boxed()
}

fn prune() -> BoxedStrategy<Step> {
    let keep = || select(vec![0, 60_000, 3_600_000]);
    (keep(), keep(), keep(), 1..=5_usize)
        .prop_map(|(keep_succeeded, keep_cancelled, keep_failed, limit)| Step::Prune {
            keep_succeeded,
            keep_cancelled,
            keep_failed,
            limit,
        })
        .boxed()
}

fn end() -> impl Strategy<Value = End> {
    prop_oneof![
        2 => option::of(any::<u8>()).prop_map(End::Succeeded),
        4 => (any::<u8>(), prop::bool::weighted(0.1), option::of(wait()))
            .prop_map(|(error, permanent, retry_after)| End::Failed { error, permanent, retry_after }),
        2 => any::<u8>().prop_map(End::TimedOut),
        1 => Just(End::Cancelled),
        2 => Just(End::Released),
        2 => wait().prop_map(End::Snoozed),
    ]
}

fn live_leases(model: &Model) -> Vec<usize> {
    (0..model.leases.len()).filter(|n| model.leases[*n].attempt.outcome.is_none()).collect()
}

/// Mostly one that is still held; also old ones, on purpose.
fn lease(model: &Model) -> BoxedStrategy<usize> {
    let live = live_leases(model);
    let any = (0..model.leases.len()).boxed();
    if live.is_empty() { any } else { prop_oneof![3 => select(live), 1 => any].boxed() }
}

/// One or two, mostly of those that the step is meant for.
fn jobs(model: &Model, meant: impl Fn(Status) -> bool) -> BoxedStrategy<Vec<usize>> {
    let is_meant = |n: &usize| model.jobs[*n].as_ref().is_some_and(|job| meant(job.status));
    let likely: Vec<_> = (0..model.jobs.len()).filter(is_meant).collect();
    let any = (0..model.jobs.len()).boxed();
    let one = if likely.is_empty() { any } else { prop_oneof![3 => select(likely), 1 => any].boxed() };
    vec(one, 1..=2).boxed()
}

fn lease_length() -> impl Strategy<Value = u64> {
    select(vec![1_000, 2_000, 10_000, 30_000, 3_600_000])
}

/// Before another attempt: mostly over soon, so that attempts get used up.
fn wait() -> impl Strategy<Value = u64> {
    select(vec![0, 1, 500, 1_000, 2_000, 30_000])
}

/// From nothing to hours, with values that add up to each other, so that times often coincide.
fn duration() -> impl Strategy<Value = u64> {
    select(vec![0, 1, 500, 1_000, 2_000, 10_000, 30_000, 3_600_000, 36_000_000])
}
