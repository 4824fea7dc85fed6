//! The checker, checked: a sound history, and one that is broken in each way there is.

use steadfast::Status;
use steadfast::job::{AttemptOutcome, JobId};

use crate::history::{History, Kept, Report, Start, Try};

fn one_try(attempt: u32, outcome: AttemptOutcome) -> Try {
    let started_us = i64::from(attempt) * 100;
    let worker = format!("w{attempt}");
    Try { attempt, worker, started_us, ended_us: Some(started_us + 50), outcome: Some(outcome) }
}

fn start(job: JobId, attempt: u32) -> Start {
    Start { job, attempt, worker: format!("w{attempt}"), run: attempt.into() }
}

/// One job: its first worker was not heard of any more and its settle refused, its second one succeeded.
fn sound() -> History {
    let id = JobId::new();
    History {
        asked: ["a".to_owned()].into(),
        acknowledged: vec![("a".into(), id)],
        batches: vec![vec!["a".into()]],
        starts: vec![start(id, 1), start(id, 2)],
        reports: vec![
            Report { run: 1, outcome: AttemptOutcome::Succeeded, recorded: false },
            Report { run: 2, outcome: AttemptOutcome::Succeeded, recorded: true },
        ],
        kept: vec![Kept {
            id,
            key: Some("a".into()),
            status: Status::Succeeded,
            max_attempts: 3,
            run: Some(2),
            tries: vec![one_try(1, AttemptOutcome::LeaseExpired), one_try(2, AttemptOutcome::Succeeded)],
        }],
    }
}

#[track_caller]
fn assert_seen(expected: &str, spoil: impl FnOnce(&mut History)) {
    let mut history = sound();
    spoil(&mut history);
    let verdict = history.judge();
    assert!(verdict.violations.iter().any(|violation| violation.contains(expected)), "{verdict:#?}");
}

#[test]
fn a_sound_history_is_accepted_and_its_second_start_has_a_cause() {
    let verdict = sound().judge();
    assert!(verdict.violations.is_empty(), "{verdict:#?}");
    assert_eq!((verdict.ok, verdict.lost, verdict.unexpected, verdict.again), (1, 0, 0, 1));
    assert_eq!(verdict.causes["lease_expired"], 1);
}

#[test]
fn an_acknowledged_job_that_is_gone_is_lost() {
    assert_seen("lost", |history| history.kept.clear());
}

#[test]
fn a_job_that_did_not_end_is_lost() {
    assert_seen("lost: it is still retrying", |history| history.kept[0].status = Status::Retrying);
}

#[test]
fn a_job_that_nobody_asked_for_is_unexpected() {
    assert_seen("unexpected", |history| history.asked.clear());
    assert_seen("unexpected", |history| history.kept[0].key = None);
    assert_seen("unexpected", |history| history.starts.push(start(JobId::new(), 1)));
}

#[test]
fn a_key_that_stands_for_two_jobs_is_seen() {
    assert_seen("one key, two jobs", |history| history.acknowledged.push(("a".into(), JobId::new())));
}

#[test]
fn half_a_batch_is_seen() {
    assert_seen("half a batch", |history| history.batches[0].push("b".into()));
}

#[test]
fn a_job_that_finished_twice_is_seen() {
    let outcome = Some(AttemptOutcome::Succeeded);
    assert_seen("finished twice", |history| history.kept[0].tries[0].outcome = outcome);
}

#[test]
fn a_start_without_a_cause_is_seen() {
    assert_seen("without a cause", |history| history.kept[0].tries[0].outcome = None);
    assert_seen("a start without a record", |history| {
        history.kept[0].tries.remove(0);
    });
}

#[test]
fn more_starts_than_allowed_are_seen() {
    assert_seen("too many starts", |history| history.kept[0].max_attempts = 1);
}

#[test]
fn a_start_that_was_given_back_is_not_one_too_many() {
    let mut history = sound();
    history.kept[0].max_attempts = 1;
    history.kept[0].tries[0].outcome = Some(AttemptOutcome::Released);
    let verdict = history.judge();
    assert!(verdict.violations.is_empty(), "{verdict:#?}");
}

#[test]
fn a_stale_settle_is_seen_by_its_result_and_by_its_answer() {
    assert_seen("a stale settle", |history| history.kept[0].run = Some(1));
    assert_seen("a stale settle", |history| history.reports[0].recorded = true);
}

#[test]
fn a_recorded_settle_that_was_answered_lost_is_seen() {
    assert_seen("told that it had lost", |history| history.reports[1].recorded = false);
}

#[test]
fn two_leases_at_once_are_seen() {
    assert_seen("two leases at once", |history| history.kept[0].tries[0].ended_us = Some(205));
}
