//! attempts: the history of a job, in the order of starts.

use jiff::Timestamp;
use steadfast::job::{AttemptOutcome, AttemptRecord, JobId, Outcome, WorkerId};

use crate::phrases::*;
use crate::world::World;

pub(crate) async fn a_job_that_never_ran_has_none_and_an_unknown_one_no_history(world: &impl World) {
    let queued = world.enqueue(job("welcome")).await;
    assert_eq!(world.store().attempts(queued.id).await.unwrap(), Some(vec![]));
    assert_eq!(world.store().attempts(JobId::new()).await.unwrap(), None);
}

type Told = (u32, WorkerId, Timestamp, Option<Timestamp>, Option<AttemptOutcome>, Option<String>);

/// Everything that a history says.
fn all_of(history: Vec<AttemptRecord>) -> Vec<Told> {
    let all = |one: AttemptRecord| (one.attempt, one.worker, one.started_at, one.ended_at, one.outcome, one.error);
    history.into_iter().map(all).collect()
}

pub(crate) async fn a_running_attempt_is_the_last_and_has_no_end(world: &impl World) {
    let first = world.running(job("welcome")).await;
    let started = world.now().await;
    world.advance(SECOND).await;
    let ended = world.now().await;
    world.end(&first, failed_retry_after(MINUTE)).await;
    world.advance(MINUTE).await;
    let second = world.claim_with(claim_of(1).worker(worker("host-2"))).await.remove(0);
    let expected = [
        (1, worker("host-1"), started, Some(ended), Some(AttemptOutcome::Failed), Some("busy".to_owned())),
        (2, worker("host-2"), world.now().await, None, None, None),
    ];
    assert_eq!(all_of(world.history(second.job().id).await), expected);
}

pub(crate) async fn every_outcome_is_recorded_in_its_word_with_its_error(world: &impl World) {
    use AttemptOutcome::{Cancelled, Failed, Released, Snoozed, Succeeded, TimedOut};
    let expected = [
        (Succeeded, None),
        (Failed, Some("smtp 451")),
        (Failed, Some("no such user")),
        (TimedOut, Some("too slow")),
        (Cancelled, None),
        (Released, None),
        (Snoozed, None),
    ];
    // Also when a cancel was requested: the record says how the attempt went, the job says where it led.
    for cancel in [false, true] {
        for ((name, outcome), (word, error)) in every_outcome().into_iter().zip(expected) {
            let lease = world.running(job("welcome")).await;
            world.advance(SECOND).await;
            if cancel {
                world.cancel(lease.job().id).await;
            }
            world.end(&lease, outcome).await;
            let started = lease.job().started_at.unwrap();
            let ended = Some(world.now().await);
            let expected = (1, worker("host-1"), started, ended, Some(word), error.map(String::from));
            assert_eq!(all_of(world.history(lease.job().id).await), [expected], "{name}");
            world.cancel(lease.job().id).await;
        }
    }
}

/// (number, outcome, error) of each attempt.
async fn told(world: &impl World, id: JobId) -> Vec<(u32, Option<AttemptOutcome>, Option<String>)> {
    world.history(id).await.into_iter().map(|record| (record.attempt, record.outcome, record.error)).collect()
}

pub(crate) async fn numbers_repeat_after_a_release_a_snooze_and_a_redrive_and_all_are_kept(world: &impl World) {
    use AttemptOutcome::{Failed, LeaseExpired, Released, Snoozed};
    let id = world.enqueue(with_attempts(2)).await.id;
    let script = [
        Outcome::Released,
        Outcome::snoozed(SECOND),
        failed("one"),
        Outcome::Released,
        Outcome::snoozed(SECOND),
        failed("two"),
    ];
    for outcome in script {
        let lease = world.claim_one().await;
        world.end(&lease, outcome).await;
        world.advance(MINUTE).await;
    }
    world.redrive(id).await;
    let lease = world.claim_one().await;
    world.lose(&lease).await;
    world.claim_one().await;
    let reaped = world.job(id).await.last_error;
    let text = |text: &str| Some(String::from(text));
    let expected = [
        (1, Some(Released), None),
        (1, Some(Snoozed), None),
        (1, Some(Failed), text("one")),
        (2, Some(Released), None),
        (2, Some(Snoozed), None),
        (2, Some(Failed), text("two")),
        (1, Some(LeaseExpired), reaped),
        (2, None, None),
    ];
    assert_eq!(told(world, id).await, expected);
}

pub(crate) async fn attempts_that_started_at_the_same_moment_stay_in_order(world: &impl World) {
    let id = world.enqueue(job("welcome")).await.id;
    for n in 0..12 {
        let claim = claim_of(1).worker(worker(&format!("host-{n}")));
        let lease = world.claim_with(claim).await.remove(0);
        let outcome = if n % 2 == 0 { Outcome::Released } else { Outcome::snoozed(std::time::Duration::ZERO) };
        world.end(&lease, outcome).await;
    }
    let workers: Vec<_> = world.history(id).await.into_iter().map(|record| record.worker).collect();
    let expected: Vec<_> = (0..12).map(|n| worker(&format!("host-{n}"))).collect();
    assert_eq!(workers, expected);
}

pub(crate) async fn the_errors_of_earlier_attempts_stay_what_they_were(world: &impl World) {
    let id = world.enqueue(with_attempts(9)).await.id;
    for n in 0..4 {
        let lease = world.claim_one().await;
        world.end(&lease, failed(&format!("error {n}"))).await;
        world.advance(HOUR).await;
    }
    let lease = world.claim_one().await;
    world.end(&lease, succeeded()).await;
    let errors: Vec<_> = told(world, id).await.into_iter().map(|(_, _, error)| error).collect();
    let expected: Vec<_> = (0..4).map(|n| Some(format!("error {n}"))).chain([None]).collect();
    assert_eq!(errors, expected);
}

pub(crate) async fn a_row_that_became_a_dead_letter_at_the_claim_keeps_its_history(world: &impl World) {
    let lease = world.running(job("welcome")).await;
    let retrying = world.end(&lease, failed("smtp 451")).await;
    let history = world.history(retrying.id).await;
    world.break_payload(retrying.id).await;
    world.advance(HOUR).await;
    assert_eq!(world.claim(10).await, []);
    assert!(world.status(retrying.id).await.is_terminal());
    assert_eq!(world.history(retrying.id).await, history);
    world.redrive(retrying.id).await;
    assert_eq!(world.history(retrying.id).await, history);
}

pub(crate) async fn the_start_shown_on_the_job_is_of_its_newest_attempt(world: &impl World) {
    let first = world.running(job("welcome")).await;
    world.advance(SECOND).await;
    let ended = world.end(&first, failed_retry_after(SECOND)).await;
    assert_eq!(ended.started_at, first.job().started_at);
    world.advance(SECOND).await;
    let second = world.claim_one().await;
    assert_eq!(second.job().started_at, Some(world.now().await));
    world.advance(SECOND).await;
    assert_eq!(world.end(&second, succeeded()).await.started_at, second.job().started_at);
}

pub(crate) async fn progress_belongs_to_the_newest_attempt(world: &impl World) {
    let first = world.running(job("welcome")).await;
    world.beat(&first, Some(percent(80)), None).await;
    assert_eq!(world.end(&first, Outcome::Released).await.progress, Some(percent(80)));
    let second = world.claim_one().await;
    assert_eq!(second.job().progress, None);
    assert_eq!(world.job(second.job().id).await.progress, None);
}

pub(crate) async fn the_newest_thousand_attempts_are_shown(world: &impl World) {
    let id = world.enqueue(job("welcome")).await.id;
    for _ in 0..1_003 {
        let lease = world.claim_one().await;
        world.settle(&lease, Outcome::Released).await;
        world.advance(SECOND).await;
    }
    let history = world.history(id).await;
    assert_eq!(history.len(), 1_000);
    assert!(history.is_sorted_by_key(|attempt| attempt.started_at));
    assert_eq!(history[999].started_at + SECOND, world.now().await);
}
