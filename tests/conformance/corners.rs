//! A random test proves nothing of what it never reaches. So the sequences of the model test are generated once more,
//! without a store, and every corner of the table must have been visited.

use std::collections::BTreeMap;

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngSeed, TestRunner};
use proptest_state_machine::ReferenceStateMachine;
use steadfast::job::{AttemptOutcome, Status};
use steadfast::store::Settled;

use crate::model::{Answer, Model, Redriven};
use crate::model_limits::Scope;
use crate::step::{Claim, STEPS, Step};

/// 300: less than a third of what the model test runs; half of them have to do with limits.
const SEQUENCES: usize = 300;

#[test]
fn the_random_sequences_reach_every_corner() {
    let config = Config { rng_seed: RngSeed::Fixed(7), failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new(config);
    let mut visits = BTreeMap::new();
    for _ in 0..SEQUENCES {
        let (mut model, steps, _) = Model::sequential_strategy(STEPS).new_tree(&mut runner).unwrap().current();
        for step in steps {
            let before = model.clone();
            Model::apply(&mut model, &step);
            for corner in corners(&before, &step, &model) {
                *visits.entry(corner).or_insert(0) += 1;
            }
        }
    }
    let missed: Vec<_> =
        every_corner().into_iter().filter(|corner| visits.get(corner).is_none_or(|n| *n < 5)).collect();
    assert!(missed.is_empty(), "hardly ever reached: {missed:#?}\nof {visits:#?}");
}

fn corners(before: &Model, step: &Step, after: &Model) -> Vec<String> {
    match (&after.answer, step) {
        (Answer::KeysTaken(items), _) => items.iter().map(|_| "enqueue, key taken".to_owned()).collect(),
        (Answer::Enqueued(jobs), _) => jobs.iter().map(|(stored, ..)| format!("enqueue: {stored:?}")).collect(),
        (Answer::Claimed(leases), Step::Claim(Claim { max, .. })) => {
            let cut = (leases.len() == *max).then(|| String::from("claim, as many as asked for"));
            let full = after.limited().into_iter().filter(|(scope, limit)| after.running(*scope) >= *limit);
            let full = full.map(|(scope, _)| match scope {
                Scope::Queue(_) => "claim, a queue is full".into(),
                Scope::Kind(_) => "claim, a kind is full".into(),
                Scope::Group(..) => "claim, a group is full".into(),
            });
            let attempts = leases.iter().map(|(_, job)| format!("claim of attempt {}", job.attempts));
            attempts.chain(cut).chain(full).collect()
        }
        (Answer::Extended(answers), _) => answers.iter().map(|answer| format!("extend: {answer:?}")).collect(),
        (Answer::Settled(answers), Step::Settle(ends)) => {
            let was = |lease: usize| before.leases[lease].attempt.outcome;
            let told = ends.iter().zip(answers).map(|((lease, end), answer)| match (answer, was(*lease)) {
                (Settled::Recorded, None) => {
                    let job = after.leases[*lease].job;
                    let to = after.jobs[job].as_ref().map(|job| job.status);
                    format!("settle: {} to {to:?}", end.word())
                }
                (answer, was) => {
                    format!("settle again: {answer:?}, reaped: {}", was == Some(AttemptOutcome::LeaseExpired))
                }
            });
            told.collect()
        }
        (Answer::Reaped(reaped), _) => {
            let late = (0..before.jobs.len()).filter(|n| before.is_too_late(*n)).map(|_| "reap: too late".into());
            reaped.iter().map(|(_, _, to, word)| format!("reap: {word} to {to}")).chain(late).collect()
        }
        (Answer::Cancelled(answers), _) => answers.iter().map(|answer| format!("cancel: {answer:?}")).collect(),
        (Answer::Redriven(answers), _) => {
            let told = answers.iter().map(|answer| match answer {
                Redriven::Queued(_) => "redrive: Queued".into(),
                other => format!("redrive: {other:?}"),
            });
            told.collect()
        }
        (Answer::Deleted(answers), _) => answers.iter().map(|answer| format!("delete: {answer:?}")).collect(),
        (Answer::Pruned(count), _) => vec![format!("prune, some: {}", *count > 0)],
        _ => vec![],
    }
}

fn every_corner() -> Vec<String> {
    let mut all: Vec<String> = [
        "enqueue: New",
        "enqueue: Known",
        "enqueue: Replaced",
        "claim, a queue is full",
        "claim, a kind is full",
        "claim, a group is full",
        "reap: too late",
        "claim, as many as asked for",
        "claim of attempt 1",
        "claim of attempt 2",
        "claim of attempt 3",
        "extend: Ok",
        "extend: Cancel",
        "extend: Lost",
        "settle again: Recorded, reaped: false",
        "settle again: Lost, reaped: false",
        "settle again: Lost, reaped: true",
        "cancel: Now",
        "cancel: Requested",
        "cancel: NotFound",
        "redrive: Queued",
        "redrive: NotFound",
        "delete: Gone",
        "delete: NotFound",
        "prune, some: true",
        "prune, some: false",
    ]
    .map(String::from)
    .into();
    let (queued, retrying) = (Some(Status::Queued), Some(Status::Retrying));
    let (dead, cancelled) = (Some(Status::FailedPermanent), Some(Status::Cancelled));
    let leads = [
        (AttemptOutcome::Succeeded, vec![Some(Status::Succeeded)]),
        (AttemptOutcome::Failed, vec![retrying, dead, cancelled]),
        (AttemptOutcome::TimedOut, vec![retrying, dead, cancelled]),
        (AttemptOutcome::Cancelled, vec![cancelled]),
        (AttemptOutcome::Released, vec![queued, retrying, cancelled]),
        (AttemptOutcome::Snoozed, vec![retrying, cancelled]),
    ];
    for (word, places) in leads {
        all.extend(places.into_iter().map(|to| format!("settle: {word} to {to:?}")));
    }
    for word in [AttemptOutcome::LeaseExpired, AttemptOutcome::TimedOut] {
        for to in [Status::Retrying, Status::FailedPermanent, Status::Cancelled] {
            all.push(format!("reap: {word} to {to}"));
        }
    }
    for status in Status::ALL {
        if status.is_terminal() {
            all.push(format!("cancel: AlreadyFinished({status:?})"));
        } else {
            all.push(format!("delete: NotFinished({status:?})"));
        }
        if !matches!(status, Status::FailedPermanent | Status::Cancelled) {
            all.push(format!("redrive: NotDead({status:?})"));
        }
    }
    all
}
