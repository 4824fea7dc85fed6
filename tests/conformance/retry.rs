//! How long a failed job waits: the kind's policy, unless the handler said.

use std::time::Duration;

use jiff::Timestamp;
use steadfast::job::{Failure, KindDefinition, Outcome, RetryPolicy, Status};
use steadfast::store::{DeleteKind, PutKind};

use crate::phrases::*;
use crate::world::World;

fn waited(from: Timestamp, to: Timestamp) -> Duration {
    to.duration_since(from).try_into().unwrap()
}

/// The waits after one failure each of 60 jobs of this kind, claimed together, on the attempt they are at.
async fn waits(world: &impl World, outcome: Outcome) -> Vec<Duration> {
    let leases = world.claim(100).await;
    world.settle_all(leases.iter().map(|lease| settle_of(lease, outcome.clone())).collect()).await;
    let now = world.now().await;
    let mut waits = Vec::new();
    for lease in leases {
        let job = world.job(lease.job().id).await;
        assert_eq!(job.status, Status::Retrying);
        waits.push(waited(now, job.run_at));
    }
    assert_eq!(waits.len(), 60);
    waits
}

fn assert_spread(waits: &[Duration], shortest: Duration, longest: Duration) {
    for wait in waits {
        assert!((shortest..=longest).contains(wait), "{wait:?} is not within {shortest:?} to {longest:?}");
    }
    // Jobs that failed together must not come back together: of 60 throws, some lie in each half.
    let middle = (shortest + longest) / 2;
    assert!(waits.iter().any(|wait| *wait < middle) && waits.iter().any(|wait| *wait > middle), "{waits:?}");
}

pub(crate) async fn a_kind_without_a_policy_waits_1_to_3_then_1_to_9_seconds(world: &impl World) {
    world.enqueue_all((0..60).map(|_| job("welcome")).collect()).await;
    assert_spread(&waits(world, failed("x")).await, SECOND, SECOND * 3);
    world.advance(MINUTE).await;
    assert_spread(&waits(world, timed_out()).await, SECOND, SECOND * 9);
}

pub(crate) async fn a_kinds_own_window_is_used(world: &impl World) {
    world.put_kind("welcome", RetryPolicy::spread(MS * 10_000, MS * 50_000).growing_by(2.0)).await;
    world.enqueue_all((0..60).map(|_| with_attempts(9)).collect()).await;
    for longest in [20, 40, 50, 50] {
        assert_spread(&waits(world, failed("x")).await, SECOND * 10, SECOND * longest);
        world.advance(MINUTE).await;
    }
}

pub(crate) async fn fixed_delays_are_kept_to_the_microsecond_and_the_last_repeats(world: &impl World) {
    world.put_kind("welcome", fixed(&[1_500, 60_000])).await;
    world.enqueue(with_attempts(9)).await;
    for delay_ms in [1_500, 60_000, 60_000, 60_000] {
        let lease = world.claim_one().await;
        world.advance(SECOND).await;
        let ended = world.end(&lease, failed("x")).await;
        assert_eq!(waited(world.now().await, ended.run_at), Duration::from_millis(delay_ms));
        world.advance(Duration::from_millis(delay_ms)).await;
    }
}

pub(crate) async fn fixed_delays_with_a_jitter_are_spread_to_both_sides(world: &impl World) {
    world.put_kind("welcome", fixed(&[10_000]).with_jitter(0.2)).await;
    world.enqueue_all((0..60).map(|_| job("welcome")).collect()).await;
    assert_spread(&waits(world, failed("x")).await, SECOND * 8, SECOND * 12);
}

pub(crate) async fn a_built_in_kind_waits_by_its_own_policy_and_a_stored_one_wins(world: &impl World) {
    world.enqueue(job(BUILT_IN).max_attempts(9)).await;
    for (outcome, wait) in [(failed("x"), SECOND * 7), (timed_out(), SECOND * 70), (failed("x"), SECOND * 70)] {
        let lease = world.claim_one().await;
        assert_eq!(world.end(&lease, outcome).await.run_at, world.now().await + wait);
        world.advance(wait).await;
    }
    world.put_kind(BUILT_IN, fixed(&[1_000])).await;
    let lease = world.claim_one().await;
    assert_eq!(world.end(&lease, failed("x")).await.run_at, world.now().await + SECOND);
    world.advance(SECOND).await;
    let without_policy = KindDefinition::any(kind(BUILT_IN));
    world.store().put_kind(PutKind::new(without_policy)).await.unwrap();
    let lease = world.claim_one().await;
    assert_eq!(world.end(&lease, failed("x")).await.run_at, world.now().await + SECOND * 70);
}

pub(crate) async fn a_floor_given_by_the_handler_is_kept_and_is_no_shortcut(world: &impl World) {
    world.put_kind("welcome", fixed(&[10_000])).await;
    world.enqueue(with_attempts(9)).await;
    for (floor, waited) in [(SECOND * 60, SECOND * 60), (SECOND, SECOND * 10), (HOUR * 24, HOUR * 24)] {
        let lease = world.claim_one().await;
        let ended = world.end(&lease, Outcome::Failed(Failure::new("429").no_sooner_than(floor))).await;
        assert_eq!(ended.run_at, world.now().await + waited);
        world.advance(waited).await;
    }
}

pub(crate) async fn a_wait_given_by_the_handler_wins_over_the_kinds(world: &impl World) {
    world.put_kind("welcome", fixed(&[1_000])).await;
    world.enqueue(with_attempts(9)).await;
    for wait in [Duration::ZERO, MS, HOUR * 24] {
        let lease = world.claim_one().await;
        let ended = world.end(&lease, failed_retry_after(wait)).await;
        assert_eq!(ended.run_at, world.now().await + wait);
        world.advance(wait).await;
    }
}

pub(crate) async fn each_kind_in_a_batch_waits_by_its_own_policy(world: &impl World) {
    world.put_kind("slow", fixed(&[100_000])).await;
    world.put_kind("quick", fixed(&[100])).await;
    world.enqueue_all(vec![job("slow"), job("quick"), job("undeclared"), job("quick")]).await;
    let leases = world.claim(4).await;
    world.settle_all(leases.iter().map(|lease| settle_of(lease, failed("x"))).collect()).await;
    for lease in leases {
        let wait = waited(world.now().await, world.job(lease.job().id).await.run_at);
        match lease.job().kind.as_str() {
            "slow" => assert_eq!(wait, SECOND * 100),
            "quick" => assert_eq!(wait, MS * 100),
            _ => assert!((SECOND..=SECOND * 3).contains(&wait)),
        }
    }
}

pub(crate) async fn a_changed_policy_holds_for_the_next_failure_of_old_jobs(world: &impl World) {
    world.put_kind("welcome", fixed(&[1_000])).await;
    world.enqueue(with_attempts(9)).await;
    let lease = world.claim_one().await;
    assert_eq!(world.end(&lease, failed("x")).await.run_at, world.now().await + SECOND);
    world.advance(SECOND).await;
    let lease = world.claim_one().await;
    world.put_kind("welcome", fixed(&[7_000])).await;
    assert_eq!(world.end(&lease, failed("x")).await.run_at, world.now().await + SECOND * 7);
    world.advance(SECOND * 7).await;
    let lease = world.claim_one().await;
    world.store().delete_kind(DeleteKind::new(kind("welcome"))).await.unwrap();
    let wait = waited(world.now().await, world.end(&lease, failed("x")).await.run_at);
    assert!((SECOND..=SECOND * 27).contains(&wait), "{wait:?}");
}

pub(crate) async fn attempts_given_back_do_not_lengthen_the_next_wait(world: &impl World) {
    world.put_kind("welcome", fixed(&[1_000, 60_000])).await;
    world.enqueue(with_attempts(9)).await;
    for outcome in [Outcome::Released, Outcome::snoozed(Duration::ZERO), Outcome::Released] {
        let lease = world.claim_one().await;
        world.end(&lease, outcome).await;
    }
    let lease = world.claim_one().await;
    assert_eq!(world.end(&lease, failed("x")).await.run_at, world.now().await + SECOND);
}
