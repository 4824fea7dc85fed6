//! settle: running → wherever its outcome leads. Who may settle is told in `fence.rs`; how long a retry waits, in
//! `retry.rs`.

use steadfast::job::limits::{ERROR_MAX_BYTES, RESULT_MAX_BYTES};
use steadfast::job::{AttemptOutcome, ErrorGroup, JobId, JobRecord, LeaseKey, LeaseToken, Outcome, Status};
use steadfast::store::{Settle, Settled};

use crate::changed::changed;
use crate::phrases::*;
use crate::world::World;

pub(crate) async fn success_finishes_the_job_with_its_result(world: &impl World) {
    let lease = world.running(job("welcome")).await;
    world.advance(SECOND).await;
    let now = world.now().await;
    let text = r#"{ "sent" : true,  "to":["é"] }"#;
    let ended = world.end(&lease, Outcome::succeeded(Some(json(text)))).await;
    let expected = changed(lease.job().clone(), |job| {
        job.status = Status::Succeeded;
        job.result = Some(json(text));
        job.locked_by = None;
        job.locked_at = None;
        job.lease_expires_at = None;
        job.finished_at = Some(now);
        job.updated_at = now;
    });
    assert_eq!(ended, expected);
}

pub(crate) async fn success_needs_no_result_and_takes_a_large_one(world: &impl World) {
    let lease = world.running(job("welcome")).await;
    assert_eq!(world.end(&lease, succeeded()).await.result, None);
    let large = format!("\"{}\"", "x".repeat(RESULT_MAX_BYTES - 2));
    for text in ["null", large.as_str()] {
        let lease = world.running(job("welcome")).await;
        let ended = world.end(&lease, Outcome::succeeded(Some(json(text)))).await;
        assert_eq!(ended.result.as_ref().map(|result| result.as_str()), Some(text));
    }
}

pub(crate) async fn a_failure_with_attempts_left_is_retried_later(world: &impl World) {
    let lease = world.running(job("welcome")).await;
    world.advance(SECOND).await;
    let now = world.now().await;
    let ended = world.end(&lease, failed_retry_after(MINUTE)).await;
    let expected = changed(lease.job().clone(), |job| {
        job.status = Status::Retrying;
        job.last_error = Some("busy".into());
        job.run_at = now + MINUTE;
        job.locked_by = None;
        job.locked_at = None;
        job.lease_expires_at = None;
        job.updated_at = now;
    });
    assert_eq!(ended, expected);
}

pub(crate) async fn a_failure_of_the_last_attempt_is_the_dead_letter(world: &impl World) {
    let first = world.running(with_attempts(2)).await;
    world.end(&first, failed_retry_after(SECOND)).await;
    world.advance(SECOND).await;
    let last = world.claim_one().await;
    world.advance(SECOND).await;
    let now = world.now().await;
    let ended = world.end(&last, failed("smtp 451")).await;
    let expected = changed(last.job().clone(), |job| {
        job.status = Status::FailedPermanent;
        job.attempts = 2;
        job.last_error = Some("smtp 451".into());
        job.error_group = Some(ErrorGroup::of("welcome", AttemptOutcome::Failed, "smtp 451", None).fingerprint);
        job.locked_by = None;
        job.locked_at = None;
        job.lease_expires_at = None;
        job.finished_at = Some(now);
        job.updated_at = now;
    });
    assert_eq!(ended, expected);
}

pub(crate) async fn a_permanent_failure_is_the_dead_letter_at_once(world: &impl World) {
    let lease = world.running(with_attempts(3)).await;
    let ended = world.end(&lease, Outcome::failed_permanently("no such user")).await;
    assert_eq!((ended.status, ended.attempts), (Status::FailedPermanent, 1));
    assert_eq!((ended.last_error.as_deref(), ended.finished_at), (Some("no such user"), Some(world.now().await)));
}

pub(crate) async fn a_time_out_is_retried_like_a_failure_and_the_last_one_is_the_dead_letter(world: &impl World) {
    let first = world.running(with_attempts(2)).await;
    let ended = world.end(&first, timed_out()).await;
    assert_eq!((ended.status, ended.last_error.as_deref()), (Status::Retrying, Some("too slow")));
    assert!(ended.run_at > world.now().await);
    world.advance(MINUTE).await;
    let last = world.claim_one().await;
    let ended = world.end(&last, timed_out()).await;
    assert_eq!(
        (ended.status, ended.attempts, ended.finished_at),
        (Status::FailedPermanent, 2, Some(world.now().await))
    );
}

pub(crate) async fn a_handler_may_end_its_job_as_cancelled_unasked(world: &impl World) {
    let lease = world.running(job("welcome")).await;
    let ended = world.end(&lease, Outcome::Cancelled).await;
    assert_eq!((ended.status, ended.finished_at), (Status::Cancelled, Some(world.now().await)));
    assert_eq!((ended.attempts, ended.last_error, ended.locked_by), (1, None, None));
}

pub(crate) async fn a_release_of_the_first_attempt_puts_the_job_back_in_the_queue(world: &impl World) {
    let lease = world.running(job("welcome")).await;
    world.advance(SECOND).await;
    let now = world.now().await;
    let ended = world.end(&lease, Outcome::Released).await;
    let expected = changed(lease.job().clone(), |job| {
        job.status = Status::Queued;
        job.attempts = 0;
        job.run_at = now;
        job.locked_by = None;
        job.locked_at = None;
        job.lease_expires_at = None;
        job.updated_at = now;
    });
    assert_eq!(ended, expected);
    assert_eq!(world.claim_one().await.job().attempts, 1);
}

pub(crate) async fn a_release_of_a_later_attempt_goes_back_to_retrying(world: &impl World) {
    let first = world.running(job("welcome")).await;
    world.end(&first, failed_retry_after(SECOND)).await;
    world.advance(SECOND).await;
    let second = world.claim_one().await;
    let ended = world.end(&second, Outcome::Released).await;
    assert_eq!((ended.status, ended.attempts, ended.run_at), (Status::Retrying, 1, world.now().await));
    assert_eq!((ended.last_error.as_deref(), ended.finished_at), (Some("busy"), None));
    assert_eq!(world.claim_one().await.job().attempts, 2);
}

pub(crate) async fn a_snoozed_job_starts_again_after_its_delay_at_no_cost(world: &impl World) {
    let lease = world.running(with_attempts(1)).await;
    let mut lease = lease;
    for _ in 0..4 {
        let ended = world.end(&lease, Outcome::snoozed(HOUR)).await;
        assert_eq!((ended.status, ended.attempts), (Status::Retrying, 0));
        assert_eq!((ended.run_at, ended.last_error, ended.locked_by), (world.now().await + HOUR, None, None));
        assert_eq!(world.claim(10).await, []);
        world.advance(HOUR).await;
        lease = world.claim_one().await;
        assert_eq!(lease.job().attempts, 1);
    }
    assert_eq!(world.end(&lease, failed("at last")).await.status, Status::FailedPermanent);
}

pub(crate) async fn a_released_job_keeps_all_its_attempts(world: &impl World) {
    let mut lease = world.running(with_attempts(1)).await;
    for _ in 0..5 {
        assert_eq!(world.end(&lease, Outcome::Released).await.status, Status::Queued);
        lease = world.claim_one().await;
    }
    assert_eq!(world.end(&lease, succeeded()).await.status, Status::Succeeded);
}

async fn ended_after_cancel(world: &impl World, outcome: Outcome) -> JobRecord {
    let lease = world.running(with_attempts(3)).await;
    world.cancel(lease.job().id).await;
    world.advance(SECOND).await;
    let ended = world.end(&lease, outcome).await;
    assert!(ended.cancel_requested);
    assert_eq!(ended.finished_at, Some(world.now().await));
    assert_eq!((&ended.locked_by, ended.locked_at, ended.lease_expires_at), (&None, None, None));
    world.advance(HOUR).await;
    assert_eq!(world.claim(10).await, []);
    ended
}

pub(crate) async fn a_failure_after_a_cancel_request_is_cancelled(world: &impl World) {
    let ended = ended_after_cancel(world, failed("smtp 451")).await;
    assert_eq!((ended.status, ended.last_error.as_deref()), (Status::Cancelled, Some("smtp 451")));
}

pub(crate) async fn a_permanent_failure_after_a_cancel_request_is_cancelled(world: &impl World) {
    let ended = ended_after_cancel(world, Outcome::failed_permanently("no such user")).await;
    assert_eq!((ended.status, ended.last_error.as_deref()), (Status::Cancelled, Some("no such user")));
}

pub(crate) async fn a_time_out_after_a_cancel_request_is_cancelled(world: &impl World) {
    let ended = ended_after_cancel(world, timed_out()).await;
    assert_eq!((ended.status, ended.last_error.as_deref()), (Status::Cancelled, Some("too slow")));
}

pub(crate) async fn a_release_after_a_cancel_request_is_cancelled(world: &impl World) {
    let ended = ended_after_cancel(world, Outcome::Released).await;
    assert_eq!((ended.status, ended.attempts), (Status::Cancelled, 0));
}

pub(crate) async fn a_snooze_after_a_cancel_request_is_cancelled(world: &impl World) {
    let ended = ended_after_cancel(world, Outcome::snoozed(MINUTE)).await;
    assert_eq!((ended.status, ended.attempts), (Status::Cancelled, 0));
}

pub(crate) async fn a_cancel_after_a_cancel_request_is_cancelled(world: &impl World) {
    let ended = ended_after_cancel(world, Outcome::Cancelled).await;
    assert_eq!((ended.status, ended.attempts), (Status::Cancelled, 1));
}

pub(crate) async fn a_success_after_a_cancel_request_is_a_success(world: &impl World) {
    let ended = ended_after_cancel(world, Outcome::succeeded(Some(json("1")))).await;
    assert_eq!((ended.status, ended.result), (Status::Succeeded, Some(json("1"))));
}

pub(crate) async fn the_last_error_is_the_newest_and_outlives_a_success(world: &impl World) {
    let mut lease = world.running(with_attempts(5)).await;
    for error in ["first", "second"] {
        let ended = world.end(&lease, failed(error)).await;
        assert_eq!(ended.last_error.as_deref(), Some(error));
        world.advance(MINUTE).await;
        lease = world.claim_one().await;
        assert_eq!(lease.job().last_error.as_deref(), Some(error));
    }
    for outcome in [Outcome::Released, Outcome::snoozed(SECOND), succeeded()] {
        let ended = world.end(&lease, outcome).await;
        assert_eq!(ended.last_error.as_deref(), Some("second"));
        world.advance(MINUTE).await;
        lease = world.claim(1).await.pop().unwrap_or(lease);
    }
    assert_eq!(world.status(lease.job().id).await, Status::Succeeded);
}

pub(crate) async fn hostile_error_text_is_stored_cut_and_clean(world: &impl World) {
    let hostile = [String::from("a\0b"), "é\u{202e}'\";--".into(), "x".repeat(10 * 1024 * 1024), String::new()];
    for text in hostile {
        let lease = world.running(job("welcome")).await;
        let outcome = Outcome::failed_permanently(&text);
        let Outcome::Failed(failure) = &outcome else { panic!() };
        let stored = failure.error.as_str().to_owned();
        let ended = world.end(&lease, outcome).await;
        assert!(stored.len() <= ERROR_MAX_BYTES);
        assert_eq!(ended.last_error.as_deref(), Some(stored.as_str()));
        assert_eq!(world.history(ended.id).await[0].error.as_deref(), Some(stored.as_str()));
    }
}

pub(crate) async fn a_batch_is_answered_in_order_and_one_lost_harms_no_other(world: &impl World) {
    world.enqueue_all((0..3).map(|_| job("welcome")).collect()).await;
    let leases = world.claim(3).await;
    let unknown = LeaseKey::new(JobId::new(), LeaseToken::random());
    let answers = world
        .settle_all(vec![
            settle_of(&leases[2], failed("c")),
            Settle::new(unknown, succeeded()),
            settle_of(&leases[0], succeeded()),
            Settle::new(changed(leases[1].key(), |key| key.token = leases[0].token()), succeeded()),
            settle_of(&leases[1], Outcome::failed_permanently("b")),
        ])
        .await;
    let (recorded, lost) = (Settled::Recorded, Settled::Lost);
    assert_eq!(answers, [recorded, lost, recorded, lost, recorded]);
    let mut now = Vec::new();
    for lease in &leases {
        now.push(world.status(lease.job().id).await);
    }
    assert_eq!(now, [Status::Succeeded, Status::FailedPermanent, Status::Retrying]);
    assert_eq!(world.settle_all(vec![]).await, []);
}

pub(crate) async fn a_job_whose_payload_broke_while_it_ran_can_still_be_settled(world: &impl World) {
    for (name, outcome) in every_outcome() {
        let lease = world.running(job("welcome")).await;
        world.break_payload(lease.job().id).await;
        let ended = world.end(&lease, outcome).await;
        assert_ne!(ended.status, Status::Running, "{name}");
        if ended.status.is_ready() {
            world.cancel(ended.id).await;
        }
    }
}
