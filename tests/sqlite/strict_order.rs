//! Groups of strict order on this store: whatever happens to the first job of one, the next is found.

use std::time::Duration;

use jiff::SignedDuration;
use steadfast::job::{GroupDefaults, GroupOrder, JobId, Lease, Outcome, QueueSettings};
use steadfast::store::{Clock, JobStore, Reap, Redrive, Settled, StatsRequest};

use crate::changed::changed;
use crate::jobs_file::{DEADLINE, LEASE};
use crate::limit_world::{World, mail, of_group};

fn failed_for_now(retry_after: Duration) -> Outcome {
    let mut outcome = Outcome::failed("not yet");
    if let Outcome::Failed(failure) = &mut outcome {
        failure.retry_after = Some(retry_after);
    }
    outcome
}

#[tokio::test]
async fn a_strict_group_runs_one_at_a_time_in_the_order_of_its_enqueues_whatever_happens_to_its_first() {
    let groups = GroupDefaults::default().order(GroupOrder::Strict);
    let world = World::with(QueueSettings::default().groups(groups)).await;
    let later =
        |n: usize| changed(of_group("a"), |job| (job.kind, job.priority) = (format!("kind-{n}"), Some(n as i64)));
    let ids = world.enqueue((0..5).map(later)).await;
    let other = world.enqueue([of_group("b")]).await;
    let first = world.claim(10).await;
    let claimed = |leases: &[Lease]| leases.iter().map(|lease| lease.job().id).collect::<Vec<_>>();
    let mut both = claimed(&first);
    both.sort();
    assert_eq!(both, [ids[0], other[0]]);
    assert_eq!((world.claim(10).await, world.is_startable(ids[1]).await), (vec![], false));
    // One that waits to be retried keeps the others waiting.
    let lease = first.iter().find(|lease| lease.job().id == ids[0]).unwrap().key();
    assert_eq!(world.settle(lease, failed_for_now(Duration::from_secs(60))).await, Settled::Recorded);
    let world = world.reopened();
    assert_eq!(world.claim(10).await, []);
    world.clock.advance(Duration::from_secs(60));
    assert_eq!(claimed(&world.claim(10).await), [ids[0]]);
    world.clock.advance(LEASE);
    assert_eq!(world.store.reap(Reap::up_to(10)).await.unwrap().len(), 2);
    let again = world.claim(10).await;
    let again = again.iter().find(|lease| lease.job().id == ids[0]).unwrap().key();
    // One that has failed for good does not, nor one that is cancelled; one that is redriven is the first again.
    assert_eq!(world.settle(again, Outcome::failed_permanently("no")).await, Settled::Recorded);
    world.store.cancel(steadfast::store::Cancel::new([ids[1]])).await.unwrap();
    let third = world.claim(10).await;
    assert_eq!(claimed(&third), [ids[2]]);
    world.store.redrive(Redrive::new([ids[1]])).await.unwrap();
    assert_eq!(world.claim(10).await, []);
    assert_eq!(world.settle(third[0].key(), Outcome::succeeded(None)).await, Settled::Recorded);
    assert_eq!(claimed(&world.claim(10).await), [ids[1]]);
}

#[tokio::test]
async fn delays_of_jobs_with_a_group_move_along_when_the_clock_is_set_and_their_ages_are_told() {
    for step in [SignedDuration::from_hours(1), SignedDuration::from_hours(-1)] {
        for order in [GroupOrder::Fair, GroupOrder::Strict] {
            let world = World::with(QueueSettings::default().groups(GroupDefaults::default().order(order))).await;
            world.enqueue([of_group("a").delay_ms(60_000)]).await;
            world.clock.set_wall(world.clock.wall() + step);
            world.clock.advance(Duration::from_secs(59));
            assert_eq!(world.claim(10).await, [], "{step:?}");
            world.clock.advance(Duration::from_secs(3));
            let stats = world.store.stats(steadfast::store::StatsRequest::new()).await.unwrap();
            assert_eq!(stats.queues[&mail()].oldest_ready, Some(Duration::from_secs(2)));
            assert_eq!(world.claim(10).await.len(), 1, "{step:?}");
        }
    }
}

async fn strict() -> World {
    World::with(QueueSettings::default().groups(GroupDefaults::default().order(GroupOrder::Strict))).await
}

fn ids_of(leases: &[Lease]) -> Vec<JobId> {
    leases.iter().map(|lease| lease.job().id).collect()
}

#[tokio::test]
async fn a_claim_that_ends_the_first_jobs_of_a_group_starts_the_next_one_at_once() {
    let world = strict().await;
    let ids = world.enqueue([1_000, 1_000, 60_000].map(|ms| of_group("a").start_within_ms(ms))).await;
    world.clock.advance(Duration::from_secs(1));
    assert_eq!(ids_of(&world.claim(10).await), [ids[2]]);
}

#[tokio::test]
async fn a_first_job_that_the_reaper_ends_wakes_whoever_waits_for_the_next() {
    let world = strict().await;
    let ids = world.enqueue([of_group("a").start_within_ms(1_000), of_group("a")]).await;
    world.clock.advance(Duration::from_secs(1));
    let mut wake = world.store.wake().listen();
    world.store.reap(Reap::up_to(10)).await.unwrap();
    tokio::time::timeout(DEADLINE, wake.woken()).await.unwrap();
    assert_eq!(ids_of(&world.claim(10).await), [ids[1]]);
}

#[tokio::test]
async fn the_oldest_ready_of_a_group_is_its_first_unfinished_job_or_none() {
    let world = strict().await;
    let oldest = async || world.store.stats(StatsRequest::new()).await.unwrap().queues[&mail()].oldest_ready;
    let ids = world.enqueue([of_group("a"), of_group("a")]).await;
    let first = world.claim(10).await;
    world.clock.advance(Duration::from_secs(1));
    assert_eq!(oldest().await, None, "it waits for the one that runs");
    assert_eq!(world.settle(first[0].key(), Outcome::failed_permanently("no")).await, Settled::Recorded);
    assert_eq!(oldest().await, Some(Duration::from_secs(1)));
    assert_eq!(ids_of(&world.claim(10).await), [ids[1]]);
    world.store.redrive(Redrive::new([ids[0]])).await.unwrap();
    world.clock.advance(Duration::from_secs(2));
    assert_eq!(oldest().await, Some(Duration::from_secs(2)), "it is the first again, and the next still runs");
}
