//! Strict order: of a group one job at a time, always the first that has not finished.

use steadfast::job::{JobId, Outcome, QueueSettings, Status};
use steadfast::store::{Redrive, Redriven};

use crate::concurrency::together;
use crate::limit_phrases::*;
use crate::phrases::*;
use crate::world::World;

async fn strict(world: &impl World) {
    world.set_queue(DEFAULT, strict_groups()).await;
}

/// Works off one job at a time; in which order they came.
async fn worked_off(world: &impl World) -> Vec<JobId> {
    let mut order = Vec::new();
    loop {
        let leases = world.claim_up_to(10).await;
        let Some(lease) = leases.first() else { return order };
        assert_eq!(leases.len(), 1, "two of one group at a time: {:?}", ids(&leases));
        order.push(lease.job().id);
        world.end(lease, succeeded()).await;
    }
}

pub(crate) async fn a_group_runs_one_at_a_time_in_the_order_of_enqueues_whatever_kind_and_priority(world: &impl World) {
    strict(world).await;
    let mut expected = Vec::new();
    for (n, priority) in [0, 9, -5, 9, 0, 3].into_iter().enumerate() {
        let request = job(["welcome", "other"][n % 2]).group_key("acme").priority(priority);
        expected.push(world.enqueue(request).await.id);
    }
    assert_eq!(worked_off(world).await, expected);
}

pub(crate) async fn jobs_of_one_call_are_in_the_order_of_the_call(world: &impl World) {
    strict(world).await;
    let requests = (0..20).map(|n| in_group("acme").priority(n % 7)).collect();
    let expected: Vec<_> = world.enqueue_all(requests).await.iter().map(|answer| answer.job.id).collect();
    assert_eq!(worked_off(world).await, expected);
}

pub(crate) async fn groups_do_not_wait_for_each_other(world: &impl World) {
    strict(world).await;
    for key in ["a", "b", "c"] {
        world.enqueue_some(3, in_group(key)).await;
    }
    world.enqueue(job("welcome")).await;
    let mut keys = groups_of(&world.claim_up_to(20).await);
    keys.sort();
    assert_eq!(keys, ["", "a", "b", "c"]);
}

pub(crate) async fn a_first_job_that_waits_for_its_retry_keeps_the_others_waiting(world: &impl World) {
    strict(world).await;
    let first = world.enqueue(in_group("acme")).await.id;
    let second = world.enqueue(in_group("acme")).await.id;
    let lease = world.claim_one().await;
    world.end(&lease, failed_retry_after(MINUTE)).await;
    assert_eq!(world.claim_up_to(5).await, []);
    world.advance(MINUTE).await;
    assert_eq!(ids(&world.claim_up_to(5).await), [first]);
    assert_eq!(world.why(second).await, [steadfast::job::HeldCode::Behind]);
}

pub(crate) async fn a_redriven_job_keeps_the_order_that_its_queue_had_and_its_priority(world: &impl World) {
    let urgent = world.enqueue(in_group("acme").priority(5)).await.id;
    let lease = world.claim_one().await;
    strict(world).await;
    // So that the store knows of the new order.
    assert_eq!(world.claim_up_to(1).await, []);
    world.end(&lease, Outcome::failed_permanently("no such user")).await;
    world.enqueue(job("welcome").queue("other").group_key("globex")).await;
    world.enqueue(job("welcome").queue("other")).await;
    assert!(matches!(world.redrive(urgent).await, Redriven::Queued(_)));
    assert_eq!(ids(&world.claim(1).await), [urgent]);
}

pub(crate) async fn a_first_job_that_is_planned_for_later_keeps_the_others_waiting(world: &impl World) {
    strict(world).await;
    let first = world.enqueue(delayed(MINUTE).group_key("acme")).await.id;
    world.enqueue(in_group("acme")).await;
    assert_eq!(world.claim_up_to(5).await, []);
    world.advance(MINUTE).await;
    assert_eq!(ids(&world.claim_up_to(5).await), [first]);
}

pub(crate) async fn a_dead_or_cancelled_first_job_lets_the_next_one_go(world: &impl World) {
    strict(world).await;
    let (_, second) = (world.enqueue(in_group("acme")).await.id, world.enqueue(in_group("acme")).await.id);
    let third = world.enqueue(in_group("acme")).await.id;
    let lease = world.claim_one().await;
    world.end(&lease, steadfast::job::Outcome::failed_permanently("x")).await;
    world.cancel(second).await;
    assert_eq!(ids(&world.claim_up_to(5).await), [third]);
}

pub(crate) async fn a_first_job_of_a_kind_nobody_asks_for_keeps_the_others_waiting(world: &impl World) {
    strict(world).await;
    let first = world.enqueue(job("other").group_key("acme")).await.id;
    world.enqueue(in_group("acme")).await;
    for _ in 0..2 {
        assert_eq!(world.claim_with(claim_of(5).kinds(vec![kind("welcome")])).await, []);
    }
    assert_eq!(ids(&world.claim_up_to(5).await), [first]);
}

pub(crate) async fn a_redriven_job_is_the_first_again_and_waits_for_the_one_that_runs(world: &impl World) {
    strict(world).await;
    let first = world.enqueue(in_group("acme")).await.id;
    let second = world.enqueue(in_group("acme")).await.id;
    let lease = world.claim_one().await;
    world.end(&lease, steadfast::job::Outcome::failed_permanently("x")).await;
    let running = world.claim_one().await;
    assert_eq!(running.job().id, second);
    world.redrive(first).await;
    assert_eq!(world.claim_up_to(5).await, [], "one at a time");
    assert!(!world.explained(first).await.startable, "{:?}", world.explained(first).await);
    world.end(&running, failed_retry_after(std::time::Duration::ZERO)).await;
    assert_eq!(ids(&world.claim_up_to(5).await), [first]);
}

pub(crate) async fn a_lost_lease_keeps_the_place_of_its_job(world: &impl World) {
    strict(world).await;
    let first = world.enqueue(in_group("acme")).await.id;
    world.enqueue(in_group("acme")).await;
    let lease = world.claim_one().await;
    world.advance(LEASE + SECOND).await;
    assert_eq!(world.claim_up_to(5).await, [], "not reaped yet");
    world.lose(&lease).await;
    assert_eq!(ids(&world.claim_up_to(5).await), [first]);
    world.assert_recounted().await;
}

pub(crate) async fn a_change_of_the_order_holds_for_jobs_that_are_enqueued_afterwards(world: &impl World) {
    world.enqueue_some(2, in_group("acme")).await;
    strict(world).await;
    world.enqueue_some(2, in_group("acme")).await;
    assert_eq!(world.claim_up_to(10).await.len(), 3, "two of before, and one of those in order");
    world.set_queue(DEFAULT, QueueSettings::default()).await;
    world.enqueue_some(2, in_group("acme")).await;
    assert_eq!(
        world.claim_up_to(10).await.len(),
        2,
        "those enqueued now; the last of those in order waits for its turn"
    );
}

pub(crate) async fn eight_claimers_never_have_two_of_a_group_and_keep_the_order(world: &impl World) {
    strict(world).await;
    let (groups, each) = (6, 15);
    for _ in 0..each {
        for n in 0..groups {
            world.enqueue(in_group(&format!("g{n}"))).await;
        }
    }
    let store = world.store();
    let done = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    together(8, |n| {
        let (store, done) = (store.clone(), done.clone());
        async move {
            let give_up = tokio::time::Instant::now() + 2 * MINUTE;
            while done.lock().unwrap().len() < groups * each {
                assert!(tokio::time::Instant::now() < give_up, "{} done", done.lock().unwrap().len());
                let leases = store.claim(claim_of(3).worker(worker(&format!("w{n}")))).await.unwrap().leases;
                if leases.is_empty() {
                    tokio::task::yield_now().await;
                }
                for lease in leases {
                    // Noted before the end: whoever comes next notes later.
                    done.lock().unwrap().push((groups_of(std::slice::from_ref(&lease)).remove(0), lease.job().id));
                    store.settle(vec![settle_of(&lease, succeeded())]).await.unwrap();
                }
            }
        }
    })
    .await;
    let done = std::mem::take(&mut *done.lock().unwrap());
    for n in 0..groups {
        let of_group: Vec<_> = done.iter().filter(|(key, _)| *key == format!("g{n}")).map(|(_, id)| *id).collect();
        assert!(of_group.is_sorted(), "group {n} ran in another order than it was enqueued: {of_group:?}");
        assert_eq!(of_group.len(), each);
    }
    assert_eq!(world.counts(DEFAULT).await, [(Status::Succeeded, (groups * each) as u64)].into());
}

pub(crate) async fn redrives_and_claims_at_once_never_have_two_of_a_group(world: &impl World) {
    strict(world).await;
    let dead = world.enqueue_some(20, in_group("acme").max_attempts(1)).await;
    for _ in &dead {
        let lease = world.claim_one().await;
        world.end(&lease, failed("x")).await;
    }
    let store = world.store();
    let running = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    together(8, |n| {
        let (store, running, dead) = (store.clone(), running.clone(), dead.clone());
        async move {
            for id in dead.into_iter().skip(n % 4) {
                if n < 4 {
                    let redriven = store.redrive(Redrive::new([id])).await.unwrap().remove(0).unwrap();
                    assert!(!matches!(redriven, Redriven::NotFound));
                    continue;
                }
                for lease in store.claim(claim_of(2)).await.unwrap().leases {
                    assert_eq!(running.fetch_add(1, std::sync::atomic::Ordering::SeqCst), 0, "two of one group");
                    tokio::task::yield_now().await;
                    running.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                    store.settle(vec![settle_of(&lease, succeeded())]).await.unwrap();
                }
            }
        }
    })
    .await;
    world.assert_recounted().await;
}
