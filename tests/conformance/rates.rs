//! Rates count starts: what a burst is, how starts are spaced behind it, and when to ask again.

use std::time::Duration;

use steadfast::job::{GroupDefaults, Outcome, QueueSettings, Rate};

use crate::limit_phrases::*;
use crate::phrases::*;
use crate::world::World;

/// Ten a second, two at once.
fn ten_a_second() -> Rate {
    Rate::new(10, 1_000).burst(2)
}

pub(crate) async fn starts_are_spaced_once_the_burst_is_used(world: &impl World) {
    world.set_queue(DEFAULT, starts_of_queue(ten_a_second())).await;
    world.enqueue_some(10, job("welcome")).await;
    assert_eq!(world.claim_up_to(10).await.len(), 2);
    world.advance(99 * MS).await;
    assert_eq!(world.claim_up_to(10).await, []);
    world.advance(MS).await;
    assert_eq!(world.claim_up_to(10).await.len(), 1);
    world.advance(HOUR).await;
    assert_eq!(world.claim_up_to(10).await.len(), 2, "a quiet time does not add up");
}

pub(crate) async fn a_claim_that_finds_nothing_allowed_says_when_to_look_again(world: &impl World) {
    world.set_queue(DEFAULT, starts_of_queue(ten_a_second())).await;
    world.enqueue_some(4, job("welcome")).await;
    assert_eq!(world.claim_up_to(10).await.len(), 2);
    let mut told = world.store().claim(claim_of(10)).await.unwrap();
    for _ in 0..2 {
        assert_eq!(told.leases, []);
        let wait = told.look_again.expect("the claim must say when to look again");
        assert!(wait <= 100 * MS, "{wait:?}, and the next may start in 100 ms");
        world.advance(wait - Duration::from_micros(1)).await;
        assert_eq!(world.claim_up_to(10).await, [], "too soon");
        world.advance(Duration::from_micros(1)).await;
        assert_eq!(world.claim_up_to(10).await.len(), 1, "at the time that was told");
        told = world.store().claim(claim_of(10)).await.unwrap();
    }
}

/// By the store's own clock: whoever comes when it is told to come uses 95 % of the rate, and never more than all of it.
pub(crate) async fn a_rate_is_used_to_95_percent_and_never_exceeded_in_any_window(world: &impl World) {
    let rate = Rate::new(50, 1_000).burst(5);
    world.set_queue(DEFAULT, starts_of_queue(rate)).await;
    world.enqueue_some(700, job("welcome")).await;
    let (began, mut starts) = (world.now().await, Vec::new());
    while starts.last().is_none_or(|at| *at < 10_000) {
        let claimed = world.store().claim(claim_of(20)).await.unwrap();
        let at = world.now().await.duration_since(began).as_millis() as u64;
        starts.extend(claimed.leases.iter().map(|_| at));
        let wait = claimed.look_again.filter(|_| claimed.leases.is_empty());
        if claimed.leases.is_empty() {
            world.advance(wait.expect("the claim must say when to look again").max(MS)).await;
        }
    }
    assert!(starts.len() >= 475, "{} starts in ten seconds, 500 are allowed", starts.len());
    let step_ms = rate.per_ms / u64::from(rate.limit);
    for (n, from) in starts.iter().enumerate() {
        for (m, at) in starts.iter().enumerate().skip(n) {
            let allowed = u64::from(rate.burst) + (at - from) / step_ms;
            assert!(((m - n) as u64) < allowed, "{} starts in {} ms", m - n + 1, at - from);
        }
    }
}

pub(crate) async fn a_cost_uses_that_much_of_the_rate(world: &impl World) {
    world.set_queue(DEFAULT, starts_of_queue(Rate::new(10, 1_000).burst(5))).await;
    world.enqueue_some(4, job("welcome").cost(2)).await;
    assert_eq!(world.claim_up_to(10).await.len(), 2, "four of five");
    world.advance(100 * MS).await;
    assert_eq!(world.claim_up_to(10).await.len(), 1, "one of five and one that came");
    world.advance(199 * MS).await;
    assert_eq!(world.claim_up_to(10).await, []);
    world.advance(MS).await;
    assert_eq!(world.claim_up_to(10).await.len(), 1);
}

pub(crate) async fn a_job_dearer_than_the_burst_starts_when_all_of_it_is_there_and_leaves_a_debt(world: &impl World) {
    world.set_queue(DEFAULT, starts_of_queue(ten_a_second())).await;
    world.enqueue(job("welcome").priority(1)).await;
    world.enqueue(job("welcome").cost(5)).await;
    world.enqueue(with_priority(-1)).await;
    assert_eq!(world.claim_up_to(10).await.len(), 1, "the dear one is not passed by the one behind it");
    world.advance(99 * MS).await;
    assert_eq!(world.claim_up_to(10).await, []);
    world.advance(MS).await;
    let dear = world.claim_up_to(10).await;
    assert_eq!(dear.len(), 1);
    assert_eq!(dear[0].job().cost, Some(5));
    // Five steps of debt, less the burst that was there, and one for the next.
    world.advance(399 * MS).await;
    assert_eq!(world.claim_up_to(10).await, []);
    world.advance(MS).await;
    assert_eq!(world.claim_up_to(10).await.len(), 1);
}

pub(crate) async fn retries_count_as_starts_and_a_release_is_not_refunded(world: &impl World) {
    world.set_queue(DEFAULT, starts_of_queue(ten_a_second())).await;
    let lease = world.running(job("welcome")).await;
    world.end(&lease, failed_retry_after(Duration::ZERO)).await;
    let lease = world.claim_one().await;
    world.end(&lease, Outcome::Released).await;
    assert_eq!(world.claim_up_to(2).await, []);
    world.advance(100 * MS).await;
    assert_eq!(world.claim_up_to(2).await.len(), 1);
}

pub(crate) async fn kinds_and_groups_have_rates_of_their_own(world: &impl World) {
    let each = GroupDefaults::default().rate(Rate::new(1, 1_000).burst(1));
    world.set_queue(DEFAULT, QueueSettings::default().groups(each)).await;
    world.limit_kind("welcome", None, Some(Rate::new(1, 1_000).burst(3))).await;
    for key in ["a", "b", "c", "d"] {
        world.enqueue_some(2, in_group(key)).await;
    }
    let mut first = groups_of(&world.claim_up_to(10).await);
    first.sort();
    first.dedup();
    assert_eq!(first.len(), 3, "three of the kind, one of each group");
    world.advance(SECOND).await;
    assert_eq!(world.claim_up_to(10).await.len(), 1);
}

/// hatchet#4804: what one limit lets through and another holds back must use up nothing.
pub(crate) async fn a_job_that_another_limit_holds_back_uses_none_of_its_rates(world: &impl World) {
    let each = GroupDefaults::default().concurrency(1);
    world.set_queue(DEFAULT, starts_of_queue(Rate::new(1, 1_000).burst(3)).groups(each)).await;
    world.enqueue_some(5, in_group("a")).await;
    let held = world.claim_up_to(5).await;
    assert_eq!(held.len(), 1);
    for _ in 0..5 {
        assert_eq!(world.claim_up_to(5).await, []);
    }
    world.enqueue(in_group("b")).await;
    assert_eq!(groups_of(&world.claim_up_to(5).await), ["b"], "two starts are left");
    world.end(&held[0], succeeded()).await;
    assert_eq!(groups_of(&world.claim_up_to(5).await), ["a"]);
}

pub(crate) async fn a_rate_that_is_used_up_in_front_keeps_nobody_else_back(world: &impl World) {
    world.set_queue("slow", starts_of_queue(Rate::new(1, 60_000).burst(1))).await;
    world.enqueue_some(1_500, in_queue("slow").priority(9)).await;
    world.enqueue(job("welcome")).await;
    let mut queues: Vec<_> = world.claim_up_to(10).await.iter().map(|lease| lease.job().queue.to_string()).collect();
    queues.sort();
    assert_eq!(queues, ["default", "slow"]);
}

/// The rule in Rust and the rule in SQL, along random waits and costs.
pub(crate) async fn a_store_and_the_rule_agree_to_the_microsecond(world: &impl World) {
    let rate = Rate::new(7, 1_000).burst(3);
    world.set_queue(DEFAULT, starts_of_queue(rate)).await;
    let (mut dice, mut tat) = (fastrand::Rng::with_seed(7), None);
    for round in 0..60 {
        world.advance(Duration::from_micros(dice.u64(0..300_000))).await;
        let cost = dice.u32(1..=4);
        let job = world.enqueue(job("welcome").cost(cost.into())).await.id;
        let now = world.now().await.as_microsecond();
        let allowed = rate.admits(cost, rate.available(tat, now));
        let claimed = world.claim_up_to(1).await;
        // Rounding to whole microseconds may cost one.
        let on_the_edge =
            rate.admits(cost, rate.available(tat, now + 2)) != rate.admits(cost, rate.available(tat, now - 2));
        assert!(
            on_the_edge || allowed != claimed.is_empty(),
            "round {round}: cost {cost}, {:?} left",
            rate.available(tat, now)
        );
        if claimed.is_empty() {
            // It starts when the rule says so, to the microsecond that rounding may cost.
            let next = rate.next_at(tat, now, cost);
            world.advance(Duration::from_micros((next - now - 2).max(0) as u64)).await;
            assert_eq!(world.claim_up_to(1).await, [], "round {round}: too soon");
            world.advance(Duration::from_micros(3)).await;
            assert_eq!(ids(&world.claim_up_to(1).await), [job], "round {round}: cost {cost}");
        }
        tat = Some(rate.take(tat, world.now().await.as_microsecond(), cost.into()));
    }
}
