//! Groups take turns: how many jobs one has waiting makes no difference to the others.

use std::collections::HashMap;

use steadfast::job::GroupSettings;

use crate::limit_phrases::*;
use crate::phrases::*;
use crate::world::World;

/// Claims `rounds` times `max` jobs and finishes them; the groups in the order of their starts.
async fn served(world: &impl World, rounds: usize, max: usize) -> Vec<String> {
    let mut starts = Vec::new();
    for _ in 0..rounds {
        let leases = world.claim_up_to(max).await;
        starts.extend(groups_of(&leases));
        world.settle_all(leases.iter().map(|lease| settle_of(lease, succeeded())).collect()).await;
    }
    starts
}

fn counted(groups: &[String]) -> HashMap<&str, usize> {
    let mut counts = HashMap::new();
    groups.iter().for_each(|group| *counts.entry(group.as_str()).or_default() += 1);
    counts
}

pub(crate) async fn a_flood_of_one_group_delays_the_first_job_of_another_by_a_round_at_most(world: &impl World) {
    world.enqueue_some(1_000, in_group("flood")).await;
    served(world, 3, 10).await;
    for key in ["a", "b", "c"] {
        world.enqueue(in_group(key)).await;
    }
    let starts = served(world, 1, 6).await;
    let late = |key: &str| !starts.iter().any(|group| group == key);
    assert!(!late("a") && !late("b") && !late("c"), "the share of the flood was not bounded: {starts:?}");
    assert_eq!(starts.len(), 6, "turns that nobody else uses are the flood's");
}

/// In any `k·q` starts in a row no group has more than `2q`, whatever a claim takes.
pub(crate) async fn of_groups_that_always_have_jobs_none_has_more_than_twice_its_share(world: &impl World) {
    const GROUPS: usize = 5;
    for n in 0..GROUPS {
        world.enqueue_some(200, in_group(&format!("g{n}"))).await;
    }
    let mut starts = Vec::new();
    for max in [1, 2, 3, 7, 1, 1, 10, 4, 25, 1, 2, 2, 3, 40, 1, 6] {
        starts.extend(served(world, 2, max).await);
    }
    for share in 1..=6 {
        for window in starts.windows(GROUPS * share) {
            for (group, count) in counted(window) {
                assert!(count <= 2 * share, "group {group} had {count} of {} turns: {window:?}", window.len());
            }
        }
    }
}

pub(crate) async fn claims_of_one_job_go_round_the_groups(world: &impl World) {
    for key in ["a", "b", "c"] {
        world.enqueue_some(10, in_group(key)).await;
    }
    let starts = served(world, 12, 1).await;
    let counts = counted(&starts);
    assert_eq!(counts.len(), 3, "the turn was not passed on: {starts:?}");
    assert!(counts.values().all(|count| (3..=5).contains(count)), "the turn was not passed on: {starts:?}");
}

pub(crate) async fn a_weight_is_a_number_of_turns_for_one_of_another_group(world: &impl World) {
    world.set_group(DEFAULT, "heavy", GroupSettings::default().weight(3)).await;
    for key in ["heavy", "light"] {
        world.enqueue_some(200, in_group(key)).await;
    }
    let starts = served(world, 10, 8).await;
    let heavy = counted(&starts)["heavy"];
    assert!((55..=65).contains(&heavy), "{heavy} of {} turns, 60 expected", starts.len());
}

pub(crate) async fn a_higher_priority_goes_first_across_groups(world: &impl World) {
    world.enqueue_some(5, in_group("a")).await;
    let first = world.enqueue(in_group("b").priority(5)).await.id;
    let second = world.enqueue(in_group("b").priority(5)).await.id;
    let third = world.enqueue(in_group("a").priority(4)).await.id;
    assert_eq!(ids(&world.claim_up_to(3).await), [first, second, third]);
}

pub(crate) async fn within_a_group_the_order_is_priority_then_run_at_then_age(world: &impl World) {
    let mut expected = Vec::new();
    for priority in [5, 0] {
        let (a, b) = (
            world.enqueue(in_group("a").priority(priority)).await,
            world.enqueue(in_group("a").priority(priority)).await,
        );
        expected.extend([a.id, b.id]);
    }
    let mut claimed = Vec::new();
    for max in [1, 2, 1] {
        claimed.extend(ids(&world.claim_up_to(max).await));
    }
    assert_eq!(claimed, expected);
}

pub(crate) async fn a_paused_group_is_left_alone_until_it_is_resumed(world: &impl World) {
    world.set_group(DEFAULT, "a", GroupSettings::default().paused(true)).await;
    let (paused, other) = (world.enqueue(in_group("a")).await.id, world.enqueue(in_group("b")).await.id);
    world.enqueue(in_group("a").queue("elsewhere")).await;
    let claimed = world.claim_up_to(5).await;
    assert_eq!(claimed.len(), 2, "the same key in another queue is another group");
    assert!(ids(&claimed).contains(&other));
    world.set_group(DEFAULT, "a", GroupSettings::default()).await;
    assert_eq!(ids(&world.claim_up_to(5).await), [paused]);
}

pub(crate) async fn jobs_without_a_group_are_together_one_taker_of_turns(world: &impl World) {
    world.enqueue_some(100, job("welcome")).await;
    world.enqueue_some(100, job("other")).await;
    for key in ["a", "b"] {
        world.enqueue_some(100, in_group(key)).await;
    }
    let starts = served(world, 10, 9).await;
    let counts = counted(&starts);
    for key in ["", "a", "b"] {
        assert!((25..=35).contains(&counts[key]), "{counts:?}");
    }
}

pub(crate) async fn groups_of_many_kinds_and_queues_are_all_found(world: &impl World) {
    let mut expected = Vec::new();
    for n in 0..60 {
        let request = job(["welcome", "other"][n % 2]).queue(["a", "b", "c"][n % 3]).group_key(format!("g{}", n % 20));
        expected.push(world.enqueue(request).await.id);
    }
    let (mut claimed, mut empty) = (Vec::new(), 0);
    while empty < 2 {
        let leases = world.claim(7).await;
        empty = if leases.is_empty() { empty + 1 } else { 0 };
        claimed.extend(ids(&leases));
    }
    claimed.sort();
    expected.sort();
    assert_eq!(claimed, expected);
}
