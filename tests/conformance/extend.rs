//! extend: running → running, the heartbeat.

use steadfast::job::{LeaseToken, Outcome, Progress};
use steadfast::store::{Beat, Cancelled, Extend, Extended};

use crate::changed::changed;
use crate::phrases::*;
use crate::world::World;

pub(crate) async fn a_heartbeat_moves_the_end_of_the_lease_and_nothing_else(world: &impl World) {
    let lease = world.running(job("welcome")).await;
    world.advance(SECOND * 20).await;
    let now = world.now().await;
    assert_eq!(world.beat(&lease, None, Some(MINUTE)).await, Extended::Ok);
    let after = world.job(lease.job().id).await;
    let expected = changed(lease.job().clone(), |job| job.lease_expires_at = Some(now + MINUTE));
    assert_eq!(changed(after, |job| job.updated_at = expected.updated_at), expected);
    assert_eq!(world.history(lease.job().id).await.len(), 1);
}

pub(crate) async fn without_a_length_a_lease_is_extended_by_what_it_was_claimed_with(world: &impl World) {
    world.enqueue(job("welcome")).await;
    let mut claim = claim_of(1);
    claim.lease = SECOND * 17;
    let lease = world.claim_with(claim).await.remove(0);
    for _ in 0..3 {
        world.advance(SECOND * 10).await;
        assert_eq!(world.extend(&lease).await, Extended::Ok);
        assert_eq!(world.job(lease.job().id).await.lease_expires_at, Some(world.now().await + SECOND * 17));
    }
    // Another length in between is for that once.
    assert_eq!(world.beat(&lease, None, Some(HOUR)).await, Extended::Ok);
    assert_eq!(world.extend(&lease).await, Extended::Ok);
    assert_eq!(world.job(lease.job().id).await.lease_expires_at, Some(world.now().await + SECOND * 17));
}

pub(crate) async fn the_length_asked_for_counts_from_now(world: &impl World) {
    let lease = world.running(job("welcome")).await;
    for length in [HOUR, SECOND * 5, MINUTE] {
        world.advance(SECOND).await;
        assert_eq!(world.beat(&lease, None, Some(length)).await, Extended::Ok);
        assert_eq!(world.job(lease.job().id).await.lease_expires_at, Some(world.now().await + length));
    }
}

pub(crate) async fn no_heartbeat_moves_a_lease_past_the_timeout(world: &impl World) {
    let lease = world.running(with_timeout(SECOND * 50)).await;
    let deadline = lease.job().started_at.unwrap() + SECOND * 50;
    world.advance(SECOND * 15).await;
    assert_eq!(world.extend(&lease).await, Extended::Ok);
    assert_eq!(world.job(lease.job().id).await.lease_expires_at, Some(deadline - SECOND * 5));
    world.advance(SECOND * 15).await;
    for length in [None, Some(HOUR)] {
        assert_eq!(world.beat(&lease, None, length).await, Extended::Ok);
        assert_eq!(world.job(lease.job().id).await.lease_expires_at, Some(deadline));
    }
    // Not even one that comes after it.
    world.advance(MINUTE).await;
    world.beat(&lease, None, Some(HOUR)).await;
    assert_eq!(world.job(lease.job().id).await.lease_expires_at, Some(deadline));
    assert_eq!(world.reap().await.len(), 1);
}

pub(crate) async fn the_timeout_counts_from_the_start_of_this_attempt(world: &impl World) {
    let first = world.running(with_timeout(MINUTE)).await;
    world.advance(SECOND * 50).await;
    world.end(&first, Outcome::Released).await;
    let second = world.claim_one().await;
    world.advance(SECOND * 20).await;
    assert_eq!(world.beat(&second, None, Some(HOUR)).await, Extended::Ok);
    assert_eq!(world.job(second.job().id).await.lease_expires_at, Some(second.job().started_at.unwrap() + MINUTE));
}

pub(crate) async fn a_heartbeat_is_told_of_a_cancel_request_and_still_holds_the_lease(world: &impl World) {
    let lease = world.running(job("welcome")).await;
    assert_eq!(world.extend(&lease).await, Extended::Ok);
    assert_eq!(world.cancel(lease.job().id).await, Cancelled::Requested);
    for _ in 0..3 {
        world.advance(SECOND * 20).await;
        assert_eq!(world.extend(&lease).await, Extended::Cancel);
        assert_eq!(world.job(lease.job().id).await.lease_expires_at, Some(world.now().await + LEASE));
        assert_eq!(world.reap().await, []);
    }
}

pub(crate) async fn a_late_heartbeat_before_the_reaper_keeps_the_lease(world: &impl World) {
    let lease = world.running(job("welcome")).await;
    world.advance(LEASE * 2).await;
    assert_eq!(world.extend(&lease).await, Extended::Ok);
    assert_eq!(world.reap().await, []);
    world.end(&lease, succeeded()).await;
}

pub(crate) async fn a_heartbeat_for_an_attempt_that_has_ended_is_lost_and_changes_nothing(world: &impl World) {
    for (name, outcome) in every_outcome() {
        let lease = world.running(job("welcome")).await;
        world.end(&lease, outcome).await;
        assert_lost(world, &lease, name).await;
        if world.status(lease.job().id).await.is_ready() {
            world.cancel(lease.job().id).await;
            assert_lost(world, &lease, name).await;
        }
    }
}

pub(crate) async fn a_heartbeat_is_lost_after_the_reaper_and_after_the_next_claim(world: &impl World) {
    let lease = world.running(job("welcome")).await;
    world.lose(&lease).await;
    assert_lost(world, &lease, "reaped").await;
    let next = world.claim_one().await;
    assert_lost(world, &lease, "claimed by another").await;
    assert_eq!(world.extend(&next).await, Extended::Ok);
}

pub(crate) async fn the_attempt_number_is_no_fence_for_a_heartbeat(world: &impl World) {
    let first = world.running(job("welcome")).await;
    world.end(&first, Outcome::Released).await;
    let second = world.claim_one().await;
    assert_eq!((first.job().id, first.job().attempts), (second.job().id, second.job().attempts));
    assert_lost(world, &first, "same number, other attempt").await;
}

pub(crate) async fn a_heartbeat_with_a_token_or_job_nobody_knows_is_lost(world: &impl World) {
    let lease = world.running(job("welcome")).await;
    let other = world.running(job("welcome")).await;
    let before = (world.all_of(lease.job().id).await, world.all_of(other.job().id).await);
    let unknown = [
        changed(lease.key(), |key| key.token = LeaseToken::random()),
        changed(lease.key(), |key| key.token = other.token()),
        changed(lease.key(), |key| key.job_id = steadfast::job::JobId::new()),
    ];
    let beats = unknown.map(|lease| Beat::new(lease).progress(percent(99))).to_vec();
    let answers = world.store().extend(Extend::new(beats).lease(HOUR)).await.unwrap();
    assert_eq!(answers, [Extended::Lost; 3]);
    assert_eq!((world.all_of(lease.job().id).await, world.all_of(other.job().id).await), before);
}

pub(crate) async fn a_heartbeat_with_the_token_of_another_lease_in_the_same_call_is_lost(world: &impl World) {
    let (lease, other) = (world.running(job("welcome")).await, world.running(job("welcome")).await);
    let before = world.all_of(lease.job().id).await;
    world.advance(SECOND).await;
    let borrowed = changed(lease.key(), |key| key.token = other.token());
    let beat = |lease| Beat::new(lease).progress(percent(99));
    for (beats, expected) in [
        (vec![borrowed, other.key()], vec![Extended::Lost, Extended::Ok]),
        (vec![other.key(), borrowed, other.key()], vec![Extended::Ok, Extended::Lost, Extended::Ok]),
    ] {
        let beats = beats.into_iter().map(beat);
        assert_eq!(world.store().extend(Extend::new(beats).lease(HOUR)).await.unwrap(), expected);
        assert_eq!(world.all_of(lease.job().id).await, before);
    }
    assert_eq!(world.job(other.job().id).await.lease_expires_at, Some(world.now().await + HOUR));
}

pub(crate) async fn two_heartbeats_for_one_lease_in_one_call_are_both_answered_and_the_newer_progress_stays(
    world: &impl World,
) {
    let lease = world.running(job("welcome")).await;
    for (reports, kept) in [([Some(10), Some(20)], 20), ([Some(30), None], 30)] {
        let beats = reports.map(|report| Beat::new(lease.key()).progress(report.map(percent))).to_vec();
        let answers = world.store().extend(Extend::new(beats)).await.unwrap();
        assert_eq!(answers, [Extended::Ok; 2]);
        assert_eq!(world.job(lease.job().id).await.progress, Some(percent(kept)));
    }
}

async fn assert_lost(world: &impl World, lease: &steadfast::job::Lease, why: &str) {
    let before = world.all_of(lease.job().id).await;
    world.advance(SECOND).await;
    assert_eq!(world.beat(lease, Some(percent(99)), Some(HOUR)).await, Extended::Lost, "{why}");
    assert_eq!(world.all_of(lease.job().id).await, before, "{why}");
}

pub(crate) async fn progress_is_stored_and_kept_until_there_is_newer(world: &impl World) {
    let lease = world.running(job("welcome")).await;
    let id = lease.job().id;
    for progress in [
        Progress::new(Some(0), None),
        Progress::new(None, Some("half way")),
        Progress::new(Some(100), Some("\"done\" é")),
    ] {
        assert_eq!(world.beat(&lease, Some(progress.clone()), None).await, Extended::Ok);
        assert_eq!(world.job(id).await.progress, Some(progress.clone()));
        assert_eq!(world.extend(&lease).await, Extended::Ok);
        assert_eq!(world.job(id).await.progress, Some(progress));
    }
    assert_eq!(world.end(&lease, succeeded()).await.progress, Some(Progress::new(Some(100), Some("\"done\" é"))));
}

pub(crate) async fn a_batch_of_heartbeats_is_answered_in_order_and_one_lost_harms_no_other(world: &impl World) {
    world.enqueue_all((0..4).map(|_| job("welcome")).collect()).await;
    let leases = world.claim(4).await;
    world.end(&leases[1], succeeded()).await;
    world.cancel(leases[3].job().id).await;
    world.advance(SECOND).await;
    let beat = |n: usize| Beat::new(leases[n].key()).progress(percent(n as u8));
    let beats = vec![beat(3), beat(1), beat(0), beat(2)];
    let answers = world.store().extend(Extend::new(beats)).await.unwrap();
    assert_eq!(answers, [Extended::Cancel, Extended::Lost, Extended::Ok, Extended::Ok]);
    for n in [0, 2, 3] {
        let job = world.job(leases[n].job().id).await;
        assert_eq!((job.progress, job.lease_expires_at), (Some(percent(n as u8)), Some(world.now().await + LEASE)));
    }
    assert_eq!(world.store().extend(Extend::new(vec![])).await.unwrap(), []);
}
