//! Rates on this store: starts are spaced, and a rate that gathers for a dear job does so no longer than that waits.

use std::time::Duration;

use jiff::SignedDuration;
use steadfast::job::{GroupDefaults, GroupSettings, JobId, JobRequest, Kind, QueueName, QueueSettings, Rate, Unique};
use steadfast::store::{Cancel, CatalogStore, Claim, Clock, JobStore, Pause, PutKind, Reap};

use crate::changed::changed;
use crate::jobs_file::{DEADLINE, claim_of, in_queue};
use crate::limit_world::{World, mail, of_group};

#[tokio::test]
async fn a_rate_spaces_starts_says_when_to_look_again_and_survives_a_restart_and_steps_of_the_clock() {
    for step in [SignedDuration::ZERO, SignedDuration::from_hours(1), SignedDuration::from_hours(-1)] {
        let world = World::with(QueueSettings::default().rate(Rate::new(10, 1_000).burst(2))).await;
        world.enqueue((0..10).map(|_| in_queue("mail"))).await;
        let claimed = world.store.claim(claim_of(10)).await.unwrap();
        assert_eq!(claimed.leases.len(), 2);
        let wait = claimed.look_again.unwrap();
        assert!((99..=101).contains(&wait.as_millis()), "{wait:?}");
        // Another queue's claim need not look again for this one.
        let other = claim_of(1).queues(vec![QueueName::default()]);
        assert_eq!(world.store.claim(other).await.unwrap().look_again, None);
        let world = if step.is_zero() { world.reopened() } else { world };
        world.clock.set_wall(world.clock.wall() + step);
        let claimed = world.store.claim(claim_of(10)).await.unwrap();
        assert!(
            claimed.leases.is_empty() && claimed.look_again.is_some_and(|wait| wait.as_millis() <= 101),
            "{step:?}"
        );
        world.clock.advance(wait);
        assert_eq!(world.claim(10).await.len(), 1, "{step:?}");
        assert_eq!(world.claim(10).await.len(), 0);
        world.clock.advance(Duration::from_secs(10));
        assert_eq!(world.claim(10).await.len(), 2);
    }
}

#[tokio::test]
async fn a_job_dearer_than_the_burst_starts_when_all_of_it_is_there_and_is_not_overtaken() {
    let world = World::with(QueueSettings::default().rate(Rate::new(10, 1_000).burst(2))).await;
    world.enqueue([in_queue("mail"), in_queue("mail").cost(5), in_queue("mail")]).await;
    assert_eq!(world.claim(10).await.len(), 1);
    world.clock.advance(Duration::from_millis(99));
    assert_eq!(world.claim(10).await.len(), 0);
    world.clock.advance(Duration::from_millis(2));
    let dear = world.claim(10).await;
    assert_eq!(dear.iter().map(|lease| lease.job().cost).collect::<Vec<_>>(), [Some(5)]);
    world.clock.advance(Duration::from_millis(300));
    assert_eq!(world.claim(10).await.len(), 0, "it has left a debt");
    world.clock.advance(Duration::from_millis(200));
    assert_eq!(world.claim(10).await.len(), 1);
}

/// Five at once, of which two are left.
async fn with_two_left() -> World {
    let world = World::with(QueueSettings::default().rate(Rate::new(1, 60_000).burst(5))).await;
    world.enqueue([in_queue("mail").cost(3)]).await;
    assert_eq!(world.claim(10).await.len(), 1);
    world
}

fn ids_of(leases: &[steadfast::job::Lease]) -> Vec<JobId> {
    leases.iter().map(|lease| lease.job().id).collect()
}

fn of_kind(request: JobRequest, kind: &str) -> JobRequest {
    changed(request, |job| job.kind = kind.into())
}

fn claim_of_kind(kind: &str) -> Claim {
    claim_of(10).kinds(vec![Kind::new(kind).unwrap()])
}

#[tokio::test]
async fn a_dear_job_that_is_gone_keeps_nobody_back_that_waited_behind_it() {
    for way in ["cancelled", "expired", "put off", "put behind", "its group is paused"] {
        let world = with_two_left().await;
        let unique = Unique::new("dear").replace();
        let dear = in_queue("mail").cost(4).unique(unique).start_within_ms(1_000);
        let dear = if way == "its group is paused" { dear.group_key("a") } else { dear };
        let ids = world.enqueue([dear.clone(), in_queue("mail")]).await;
        assert_eq!(world.claim(10).await, [], "the rate gathers for the dear one");
        assert_eq!(world.claim(10).await, []);
        let mut wake = world.store.wake().listen();
        match way {
            "cancelled" => drop(world.store.cancel(Cancel::new([ids[0]])).await.unwrap()),
            "expired" => {
                world.clock.advance(Duration::from_secs(1));
                world.store.reap(Reap::up_to(10)).await.unwrap();
            }
            "put off" => drop(world.enqueue([dear.delay_ms(500)]).await),
            "put behind" => drop(world.enqueue([dear.priority(-1)]).await),
            _ => world.set_group("a", GroupSettings::default().paused(true)).await,
        }
        tokio::time::timeout(DEADLINE, wake.woken()).await.unwrap();
        assert_eq!(ids_of(&world.claim(10).await), [ids[1]], "{way}");
    }
}

#[tokio::test]
async fn a_dear_job_of_a_paused_queue_keeps_nobody_of_its_kind_back() {
    let world = World::new();
    let definition = steadfast::job::KindDefinition::any(Kind::new("costly").unwrap());
    world.store.put_kind(PutKind::new(definition.rate(Some(Rate::new(1, 60_000).burst(5))))).await.unwrap();
    let costly = |queue: &str, cost| of_kind(in_queue(queue).cost(cost), "costly");
    world.enqueue([costly("mail", 3)]).await;
    assert_eq!(world.claim(10).await.len(), 1);
    let ids = world.enqueue([costly("mail", 4), costly("other", 1)]).await;
    assert_eq!(world.claim(10).await, []);
    world.store.pause(Pause::new(mail())).await.unwrap();
    assert_eq!(ids_of(&world.claim(10).await), [ids[1]]);
}

#[tokio::test]
async fn a_rate_that_gathers_for_a_dear_job_lets_those_in_front_of_it_pass_and_none_behind_it() {
    for group in [None, Some("a")] {
        let world = with_two_left().await;
        let grouped = |request: JobRequest| changed(request, |job| job.group_key = group.map(Into::into));
        let front = world.enqueue([of_kind(in_queue("mail").priority(1), "front")]).await;
        world.clock.advance(Duration::from_millis(1));
        let dear = world.enqueue([grouped(of_kind(in_queue("mail").cost(4), "dear"))]).await;
        world.clock.advance(Duration::from_millis(1));
        world.enqueue([grouped(of_kind(in_queue("mail"), "behind"))]).await;
        // Each by workers who do not ask for the others.
        let claim = |kind: &'static str| world.store.claim(claim_of_kind(kind));
        let told = claim("dear").await.unwrap();
        assert!(told.leases.is_empty() && told.look_again.is_some(), "{told:?}");
        assert_eq!(claim("behind").await.unwrap().leases, [], "it would starve the dear one");
        assert_eq!(ids_of(&claim("front").await.unwrap().leases), front);
        assert_eq!(claim("behind").await.unwrap().leases, []);
        let newer = world.enqueue([of_kind(in_queue("mail").priority(1), "front")]).await;
        assert_eq!(ids_of(&world.claim(10).await), newer, "of two that were left, one");
        // None is left, and four are to come.
        world.clock.advance(Duration::from_secs(4 * 60 - 1));
        assert_eq!(world.claim(10).await, []);
        world.clock.advance(Duration::from_secs(1));
        assert_eq!(ids_of(&world.claim(10).await), dear);
    }
}

#[tokio::test]
async fn groups_of_a_rate_that_gathers_wait_behind_the_dear_job_and_go_on_when_it_is_gone() {
    let groups = GroupDefaults::default().concurrency(1);
    let world = World::with(QueueSettings::default().rate(Rate::new(1, 60_000).burst(5)).groups(groups)).await;
    let ids = world.enqueue([of_group("a").cost(3), of_group("a").cost(4), of_group("b").cost(4)]).await;
    world.clock.advance(Duration::from_millis(1));
    world.enqueue((0..3).map(|n| of_group(&format!("c{n}")))).await;
    assert_eq!(ids_of(&world.claim(10).await), [ids[0]]);
    assert_eq!(world.claim(10).await, []);
    world.store.cancel(Cancel::new([ids[2]])).await.unwrap();
    assert_eq!(world.claim(10).await.len(), 2, "the other dear one waits for its group");
}
