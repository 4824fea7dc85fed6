//! settle, the fence: who may speak for a job. The answer comes from the attempt that the token belongs to.

use steadfast::job::{JobId, Lease, LeaseToken, Outcome, Status};
use steadfast::store::{Redriven, Settle, Settled};

use crate::changed::changed;
use crate::phrases::*;
use crate::world::World;

/// Every outcome from this lease is refused and leaves no trace.
async fn assert_lost(world: &impl World, lease: &Lease, why: &str) {
    let before = world.all_of(lease.job().id).await;
    world.advance(SECOND).await;
    for (name, outcome) in every_outcome() {
        assert_eq!(world.settle(lease, outcome).await, Settled::Lost, "{name}, {why}");
    }
    assert_eq!(world.all_of(lease.job().id).await, before, "{why}");
}

/// This settle, sent before, is answered as before and leaves no further trace.
async fn assert_recorded_already(world: &impl World, lease: &Lease, outcome: &Outcome, why: &str) {
    let before = world.all_of(lease.job().id).await;
    world.advance(SECOND).await;
    assert_eq!(world.settle(lease, outcome.clone()).await, Settled::Recorded, "{outcome:?}, {why}");
    assert_eq!(world.all_of(lease.job().id).await, before, "{outcome:?}, {why}");
}

/// A different outcome than the one that ended this attempt is refused and leaves no trace.
async fn assert_others_lost(world: &impl World, lease: &Lease, recorded: &Outcome, why: &str) {
    let before = world.all_of(lease.job().id).await;
    for (name, other) in every_outcome() {
        if other.recorded_as() != recorded.recorded_as() {
            assert_eq!(world.settle(lease, other).await, Settled::Lost, "{name} after {recorded:?}, {why}");
        }
    }
    assert_eq!(world.all_of(lease.job().id).await, before, "{why}");
}

pub(crate) async fn a_settle_after_the_reaper_is_lost(world: &impl World) {
    let lease = world.running(job("welcome")).await;
    world.lose(&lease).await;
    assert_lost(world, &lease, "reaped").await;
}

pub(crate) async fn a_settle_after_the_last_attempt_was_reaped_is_lost(world: &impl World) {
    let lease = world.running(with_attempts(1)).await;
    assert_eq!(world.lose(&lease).await.status, Status::FailedPermanent);
    assert_lost(world, &lease, "reaped into the dead letter").await;
}

pub(crate) async fn a_settle_after_the_next_claim_is_lost_and_the_next_one_counts(world: &impl World) {
    let zombie = world.running(job("welcome")).await;
    world.lose(&zombie).await;
    let heir = world.claim_one().await;
    assert_lost(world, &zombie, "claimed by another").await;
    assert_eq!(world.end(&heir, succeeded()).await.status, Status::Succeeded);
    // The failure of a worker that was presumed dead, after its successor's success.
    assert_lost(world, &zombie, "finished by another").await;
}

pub(crate) async fn a_settle_after_a_release_is_lost_although_the_number_matches(world: &impl World) {
    let first = world.running(job("welcome")).await;
    world.end(&first, Outcome::Released).await;
    assert_others_lost(world, &first, &Outcome::Released, "released").await;
    let second = world.claim_one().await;
    assert_eq!((first.job().id, first.job().attempts), (second.job().id, second.job().attempts));
    assert_others_lost(world, &first, &Outcome::Released, "released, then claimed").await;
    assert_eq!(world.end(&second, succeeded()).await.status, Status::Succeeded);
    assert_others_lost(world, &first, &Outcome::Released, "released, then finished").await;
}

pub(crate) async fn a_settle_after_a_snooze_is_lost_although_the_number_matches(world: &impl World) {
    let nap = Outcome::snoozed(SECOND);
    let first = world.running(job("welcome")).await;
    world.end(&first, nap.clone()).await;
    world.advance(SECOND).await;
    let second = world.claim_one().await;
    assert_eq!(first.job().attempts, second.job().attempts);
    assert_others_lost(world, &first, &nap, "snoozed, then claimed").await;
}

pub(crate) async fn a_settle_after_a_redrive_is_lost_although_the_number_matches(world: &impl World) {
    let first = world.running(with_attempts(1)).await;
    world.lose(&first).await;
    assert!(matches!(world.redrive(first.job().id).await, Redriven::Queued(_)));
    assert_lost(world, &first, "redriven").await;
    let second = world.claim_one().await;
    assert_eq!(first.job().attempts, second.job().attempts);
    assert_lost(world, &first, "redriven, then claimed").await;
    assert_eq!(world.end(&second, succeeded()).await.status, Status::Succeeded);
}

pub(crate) async fn a_settle_for_a_deleted_job_is_lost(world: &impl World) {
    for (name, outcome) in every_outcome() {
        let lease = world.running(job("welcome")).await;
        if world.end(&lease, outcome.clone()).await.status.is_ready() {
            world.cancel(lease.job().id).await;
        }
        world.delete(lease.job().id).await;
        assert_eq!(world.settle(&lease, outcome).await, Settled::Lost, "{name}");
        assert_eq!(world.find(lease.job().id).await, None);
    }
}

pub(crate) async fn a_settle_with_a_token_or_job_nobody_knows_is_lost(world: &impl World) {
    let lease = world.running(job("welcome")).await;
    let other = world.running(job("welcome")).await;
    let before = (world.all_of(lease.job().id).await, world.all_of(other.job().id).await);
    let unknown = [
        changed(lease.key(), |key| key.token = LeaseToken::random()),
        changed(lease.key(), |key| key.token = other.token()),
        changed(lease.key(), |key| key.job_id = JobId::new()),
    ];
    let settles = unknown.map(|lease| Settle::new(lease, succeeded())).to_vec();
    assert_eq!(world.settle_all(settles).await, [Settled::Lost; 3]);
    assert_eq!((world.all_of(lease.job().id).await, world.all_of(other.job().id).await), before);
}

pub(crate) async fn the_same_settle_twice_is_answered_the_same_and_recorded_once(world: &impl World) {
    for (name, outcome) in every_outcome() {
        let lease = world.running(job("welcome")).await;
        world.end(&lease, outcome.clone()).await;
        assert_recorded_already(world, &lease, &outcome, name).await;
        assert_recorded_already(world, &lease, &outcome, name).await;
        if world.status(lease.job().id).await.is_ready() {
            world.cancel(lease.job().id).await;
            assert_recorded_already(world, &lease, &outcome, "cancelled since").await;
        }
    }
}

pub(crate) async fn the_same_settle_is_answered_the_same_whatever_happened_since(world: &impl World) {
    let again = [
        ("failed", failed_retry_after(SECOND)),
        ("timed out", timed_out()),
        ("released", Outcome::Released),
        ("snoozed", Outcome::snoozed(SECOND)),
    ];
    for (name, outcome) in again {
        let first = world.running(with_attempts(3)).await;
        world.end(&first, outcome.clone()).await;
        world.advance(MINUTE).await;
        let second = world.claim_one().await;
        assert_recorded_already(world, &first, &outcome, "claimed since").await;
        assert_eq!(world.settle(&second, Outcome::failed_permanently("x")).await, Settled::Recorded, "{name}");
        assert_recorded_already(world, &first, &outcome, "finished since").await;
        world.redrive(first.job().id).await;
        assert_recorded_already(world, &first, &outcome, "redriven since").await;
        let third = world.claim_one().await;
        assert_recorded_already(world, &first, &outcome, "running again since").await;
        assert_recorded_already(world, &second, &Outcome::failed_permanently("x"), "running again since").await;
        world.end(&third, succeeded()).await;
        assert_recorded_already(world, &first, &outcome, "succeeded since").await;
    }
}

pub(crate) async fn the_same_final_settle_is_answered_the_same_after_a_redrive(world: &impl World) {
    for outcome in [Outcome::failed_permanently("no such user"), Outcome::Cancelled] {
        let first = world.running(job("welcome")).await;
        world.end(&first, outcome.clone()).await;
        world.redrive(first.job().id).await;
        assert_recorded_already(world, &first, &outcome, "redriven").await;
        assert_others_lost(world, &first, &outcome, "redriven").await;
        let second = world.claim_one().await;
        assert_recorded_already(world, &first, &outcome, "running again").await;
        assert_others_lost(world, &first, &outcome, "running again").await;
        world.end(&second, succeeded()).await;
        assert_recorded_already(world, &first, &outcome, "succeeded since").await;
    }
}

pub(crate) async fn a_different_outcome_for_an_ended_attempt_is_lost(world: &impl World) {
    for (name, outcome) in every_outcome() {
        let lease = world.running(job("welcome")).await;
        world.end(&lease, outcome.clone()).await;
        world.advance(SECOND).await;
        assert_others_lost(world, &lease, &outcome, name).await;
        if world.status(lease.job().id).await.is_ready() {
            world.cancel(lease.job().id).await;
        }
    }
}

pub(crate) async fn two_settles_for_one_lease_in_one_batch_are_taken_in_order(world: &impl World) {
    let lease = world.running(job("welcome")).await;
    let fail = || settle_of(&lease, failed_retry_after(MINUTE));
    let answers = world.settle_all(vec![fail(), settle_of(&lease, succeeded()), fail()]).await;
    assert_eq!(answers, [Settled::Recorded, Settled::Lost, Settled::Recorded]);
    let ended = world.job(lease.job().id).await;
    assert_eq!((ended.status, ended.attempts), (Status::Retrying, 1));
    assert_eq!(world.history(ended.id).await.len(), 1);
}

pub(crate) async fn a_late_settle_that_the_reaper_has_not_seen_still_counts(world: &impl World) {
    for (name, outcome) in every_outcome() {
        let lease = world.running(job("welcome")).await;
        world.advance(LEASE * 100).await;
        let ended = world.end(&lease, outcome.clone()).await;
        assert_ne!(ended.status, Status::Running, "{name}");
        assert_eq!(world.reap().await, [], "{name}");
        assert_eq!(world.history(ended.id).await[0].outcome, Some(outcome.recorded_as()), "{name}");
        if ended.status.is_ready() {
            world.cancel(ended.id).await;
        }
    }
}
