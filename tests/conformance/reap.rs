//! reap: running → retrying, failed_permanent or cancelled, for leases that have expired.

use std::time::Duration;

use steadfast::job::{AttemptOutcome, Lease, Status};
use steadfast::store::{Extended, Pause, Reaped, Settled};

use crate::changed::changed;
use crate::phrases::*;
use crate::world::World;

fn assert_reaped(reaped: Vec<Reaped>, leases: &[&Lease], to: Status, recorded: AttemptOutcome) {
    let reaped: Vec<_> =
        reaped.into_iter().map(|one| (one.job_id, one.kind, one.attempt, one.worker, one.to, one.recorded)).collect();
    let expected = leases.iter().map(|lease| {
        let job = lease.job();
        (job.id, job.kind.clone(), job.attempts, worker("host-1"), to, recorded)
    });
    assert_eq!(reaped, expected.collect::<Vec<_>>());
}

pub(crate) async fn an_expired_job_with_attempts_left_is_retried_at_once(world: &impl World) {
    let lease = world.running(job("welcome")).await;
    world.advance(LEASE + SECOND).await;
    let now = world.now().await;
    assert_reaped(world.reap().await, &[&lease], Status::Retrying, AttemptOutcome::LeaseExpired);
    let after = world.job(lease.job().id).await;
    let error = after.last_error.clone().unwrap();
    assert!(error.contains("lease"), "{error}");
    let expected = changed(lease.job().clone(), |job| {
        job.status = Status::Retrying;
        job.run_at = now;
        job.locked_by = None;
        job.locked_at = None;
        job.lease_expires_at = None;
        job.updated_at = now;
        job.last_error = Some(error.clone());
    });
    assert_eq!(after, expected);
    let history = world.history(after.id).await;
    assert_eq!((history.len(), history[0].outcome), (1, Some(AttemptOutcome::LeaseExpired)));
    assert_eq!((history[0].ended_at, history[0].error.as_ref()), (Some(now), Some(&error)));
    let next = world.claim_one().await;
    assert_eq!((next.job().id, next.job().attempts), (after.id, 2));
    assert_ne!(next.token(), lease.token());
}

pub(crate) async fn reaping_the_last_attempt_dead_letters_and_the_next_claim_works(world: &impl World) {
    let lease = world.running(with_attempts(1)).await;
    let other = world.enqueue(delayed(MINUTE)).await;
    world.advance(MINUTE).await;
    assert_reaped(world.reap().await, &[&lease], Status::FailedPermanent, AttemptOutcome::LeaseExpired);
    let dead = world.job(lease.job().id).await;
    assert_eq!((dead.status, dead.attempts), (Status::FailedPermanent, 1));
    assert_eq!((dead.finished_at, dead.lease_expires_at), (Some(world.now().await), None));
    assert_eq!(ids(&world.claim(10).await), [other.id]);
}

pub(crate) async fn a_job_that_always_dies_ends_and_never_stops_a_claim(world: &impl World) {
    for max_attempts in 1..=4 {
        let killer = world.enqueue(with_attempts(max_attempts)).await;
        for starts in 1..=max_attempts {
            let neighbour = world.enqueue(job("welcome")).await;
            let leases = world.claim(10).await;
            assert_eq!(ids(&leases), [killer.id, neighbour.id], "start {starts} of {max_attempts}");
            world.end(&leases[1], succeeded()).await;
            world.lose(&leases[0]).await;
        }
        assert_eq!(world.status(killer.id).await, Status::FailedPermanent);
        assert_eq!(world.claim(10).await, []);
        assert_eq!(world.history(killer.id).await.len() as i64, max_attempts);
    }
}

pub(crate) async fn an_expired_job_whose_cancel_was_requested_is_cancelled(world: &impl World) {
    for max_attempts in [1, 3] {
        let lease = world.running(with_attempts(max_attempts)).await;
        world.cancel(lease.job().id).await;
        world.advance(HOUR).await;
        assert_reaped(world.reap().await, &[&lease], Status::Cancelled, AttemptOutcome::LeaseExpired);
        let after = world.job(lease.job().id).await;
        assert_eq!((after.status, after.finished_at), (Status::Cancelled, Some(world.now().await)));
        assert!(after.cancel_requested && after.locked_by.is_none());
        assert_eq!(world.claim(10).await, []);
    }
}

pub(crate) async fn a_lease_lives_up_to_its_end_and_no_longer(world: &impl World) {
    let lease = world.running(job("welcome")).await;
    world.advance(LEASE - MS).await;
    assert_eq!(world.reap().await, []);
    assert_eq!(world.job(lease.job().id).await, *lease.job());
    world.advance(MS).await;
    assert_eq!(world.reap().await.len(), 1);
}

pub(crate) async fn a_heartbeat_in_time_keeps_the_reaper_away(world: &impl World) {
    let lease = world.running(job("welcome")).await;
    for _ in 0..10 {
        world.advance(LEASE - SECOND).await;
        assert_eq!(world.extend(&lease).await, Extended::Ok);
        assert_eq!(world.reap().await, []);
    }
    assert_eq!(world.end(&lease, succeeded()).await.status, Status::Succeeded);
}

pub(crate) async fn a_lease_held_up_to_the_timeout_is_recorded_as_timed_out(world: &impl World) {
    // By a claim that is cut at the timeout, and by heartbeats up to it.
    for timeout in [SECOND * 10, LEASE, SECOND * 50] {
        let lease = world.running(with_timeout(timeout)).await;
        world.advance(timeout.min(LEASE) - SECOND).await;
        world.extend(&lease).await;
        world.advance(timeout).await;
        assert_reaped(world.reap().await, &[&lease], Status::Retrying, AttemptOutcome::TimedOut);
        let after = world.job(lease.job().id).await;
        assert!(after.last_error.clone().unwrap().contains("timed out"), "{:?}", after.last_error);
        assert_eq!(world.history(after.id).await[0].outcome, Some(AttemptOutcome::TimedOut));
        assert_eq!(world.history(after.id).await[0].error, after.last_error);
        world.cancel(after.id).await;
    }
}

pub(crate) async fn a_lease_that_ended_before_the_timeout_is_recorded_as_expired(world: &impl World) {
    let lease = world.running(with_timeout(LEASE + MS)).await;
    world.advance(HOUR).await;
    assert_reaped(world.reap().await, &[&lease], Status::Retrying, AttemptOutcome::LeaseExpired);
}

pub(crate) async fn a_time_out_on_the_last_attempt_is_the_dead_letter(world: &impl World) {
    let request = with_timeout(SECOND).max_attempts(1);
    let lease = world.running(request).await;
    world.advance(SECOND).await;
    assert_reaped(world.reap().await, &[&lease], Status::FailedPermanent, AttemptOutcome::TimedOut);
}

/// Six jobs whose leases end one after the other, the first claimed ending last.
async fn six_leases(world: &impl World) -> Vec<Lease> {
    let mut leases = Vec::new();
    for n in 0..6 {
        world.enqueue(job("welcome")).await;
        let claim = claim_of(1).lease(Duration::from_secs(60 - n));
        leases.extend(world.claim_with(claim).await);
    }
    leases
}

pub(crate) async fn the_oldest_expiry_is_reaped_first_and_no_more_than_asked_for(world: &impl World) {
    let mut leases = six_leases(world).await;
    leases.reverse();
    world.advance(HOUR).await;
    assert_eq!(world.reap_up_to(0).await, []);
    let mut order = Vec::new();
    for limit in [1, 2, 2, 5] {
        let batch = world.reap_up_to(limit).await;
        assert!(batch.len() <= limit);
        order.extend(batch.into_iter().map(|reaped| reaped.job_id));
    }
    assert_eq!(order, ids(&leases));
    assert_eq!(world.reap().await, []);
}

pub(crate) async fn live_leases_are_left_alone(world: &impl World) {
    let leases = six_leases(world).await;
    // 55 to 60 s: three of them are over.
    world.advance(SECOND * 57).await;
    let mut over: Vec<_> = world.reap().await.into_iter().map(|reaped| reaped.job_id).collect();
    over.sort();
    assert_eq!(over, ids(&leases[3..]));
    for lease in &leases[..3] {
        assert_eq!(world.job(lease.job().id).await, *lease.job());
        assert_eq!(world.settle(lease, succeeded()).await, Settled::Recorded);
    }
}

pub(crate) async fn one_expired_lease_is_found_behind_a_thousand_live_ones(world: &impl World) {
    world.enqueue_all((0..1000).map(|_| job("welcome")).collect()).await;
    world.claim_with(claim_of(1000).lease(HOUR)).await;
    let last = world.running(job("welcome")).await;
    world.advance(MINUTE).await;
    assert_reaped(world.reap_up_to(10).await, &[&last], Status::Retrying, AttemptOutcome::LeaseExpired);
}

pub(crate) async fn a_settled_job_is_never_reaped(world: &impl World) {
    for (_, outcome) in every_outcome() {
        let lease = world.running(job("welcome")).await;
        let ended = world.end(&lease, outcome).await;
        if ended.status.is_ready() {
            world.cancel(ended.id).await;
        }
    }
    world.advance(HOUR).await;
    let before = world.everything().await;
    assert_eq!(world.reap().await, []);
    assert_eq!(world.everything().await, before);
}

pub(crate) async fn a_paused_queue_is_reaped_too(world: &impl World) {
    let lease = world.running(in_queue("mail")).await;
    world.store().pause(Pause::new(queue("mail"))).await.unwrap();
    assert_eq!(world.lose(&lease).await.status, Status::Retrying);
    assert_eq!(world.claim(10).await, []);
}

pub(crate) async fn a_running_row_that_cannot_be_decoded_is_reaped_like_the_others(world: &impl World) {
    world.enqueue_all((0..3).map(|_| job("welcome")).collect()).await;
    let leases = world.claim(3).await;
    world.break_payload(leases[1].job().id).await;
    world.advance(HOUR).await;
    let mut over: Vec<_> = world.reap().await.into_iter().map(|reaped| reaped.job_id).collect();
    over.sort();
    assert_eq!(over, ids(&leases));
    assert_eq!(world.claim(10).await.len(), 2);
    assert_eq!(world.status(leases[1].job().id).await, Status::FailedPermanent);
}
