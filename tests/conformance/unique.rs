//! Unique jobs: one that waits, one that is unfinished, debounce and throttle. A key is only ever cleared by what becomes of
//! its job, never set again, so nothing but an enqueue can meet it.

use std::collections::HashSet;

use steadfast::job::{JobRequest, Outcome, Status, Unique};
use steadfast::store::{Enqueued, Redriven};

use crate::concurrency::together;
use crate::limit_phrases::*;
use crate::phrases::*;
use crate::world::World;

fn waiting(key: &str) -> JobRequest {
    job("welcome").unique(Unique::new(key))
}

fn unfinished(key: &str) -> JobRequest {
    job("welcome").unique(Unique::new(key).unfinished())
}

fn replacing(key: &str, payload: &str) -> JobRequest {
    JobRequest::new("welcome", json(payload)).unique(Unique::new(key).replace())
}

async fn again(world: &impl World, request: JobRequest) -> Enqueued {
    world.enqueue_all(vec![request]).await.remove(0)
}

pub(crate) async fn while_one_waits_another_is_answered_with_it(world: &impl World) {
    let first = world.enqueue(waiting("k")).await;
    assert_eq!(first.unique, Some(Unique::new("k")));
    let known = again(world, waiting("k").priority(9)).await;
    assert_eq!((known.created, known.replaced, known.job.id), (false, false, first.id));
    assert_eq!(known.job, first, "it is as it was");
    world.enqueue(waiting("other")).await;
    world.enqueue(job("other").unique(Unique::new("k"))).await;
    assert_eq!(world.everything().await.len(), 3, "keys of different kinds are different");
}

pub(crate) async fn a_key_of_a_waiting_job_is_free_when_it_starts(world: &impl World) {
    let lease = world.running(waiting("k")).await;
    let second = world.enqueue(waiting("k")).await;
    world.end(&lease, failed_retry_after(HOUR)).await;
    assert_eq!(again(world, waiting("k")).await.job.id, second.id, "the retry has not taken it back");
    assert_eq!(world.counts(DEFAULT).await, [(Status::Queued, 1), (Status::Retrying, 1)].into());
}

pub(crate) async fn a_key_of_an_unfinished_job_is_free_when_it_has_ended_however(world: &impl World) {
    for (name, outcome) in every_outcome() {
        let lease = world.running(unfinished(name).max_attempts(2)).await;
        assert!(!again(world, unfinished(name)).await.created, "{name}: it runs");
        let ended = world.end(&lease, outcome).await;
        let next = again(world, unfinished(name)).await;
        assert_eq!(next.created, ended.status.is_terminal(), "{name}: it is {}", ended.status);
        for id in [ended.id, next.job.id] {
            world.cancel(id).await;
        }
        assert!(again(world, unfinished(name)).await.created, "{name}: cancelled while it waited");
        world.cancel(world.everything().await[0].id).await;
    }
}

pub(crate) async fn a_lost_lease_of_the_last_attempt_frees_the_key(world: &impl World) {
    let lease = world.running(unfinished("k").max_attempts(1)).await;
    assert_eq!(world.lose(&lease).await.status, Status::FailedPermanent);
    world.enqueue(unfinished("k")).await;
}

pub(crate) async fn replacing_changes_payload_priority_and_start_of_the_one_that_waits(world: &impl World) {
    let first = world.enqueue(replacing("k", "1").priority(1)).await;
    world.advance(SECOND).await;
    let answer = again(world, replacing("k", "2").priority(7).delay_ms(5_000)).await;
    assert_eq!((answer.created, answer.replaced, answer.job.id), (false, true, first.id));
    assert_eq!((answer.job.payload.as_str(), answer.job.priority), ("2", 7));
    assert_eq!(answer.job.run_at, world.now().await + 5 * SECOND);
    assert_eq!((answer.job.created_at, answer.job.updated_at), (first.created_at, world.now().await));
    assert_eq!(world.job(first.id).await, answer.job);
    assert_eq!(world.claim_up_to(2).await, [], "it was put off");
    world.advance(5 * SECOND).await;
    let lease = world.claim_one().await;
    assert_eq!((lease.job().id, lease.job().payload.as_str()), (first.id, "2"));
    assert_eq!(world.counts(DEFAULT).await, [(Status::Running, 1)].into());
}

pub(crate) async fn a_debounced_job_is_put_off_no_longer_than_its_longest_wait(world: &impl World) {
    let request = |payload: &str| {
        let unique = Unique::new("k").replace().max_wait_ms(10_000);
        JobRequest::new("welcome", json(payload)).unique(unique).delay_ms(4_000)
    };
    let first = world.enqueue(request("0")).await;
    for n in 1..=3 {
        world.advance(3 * SECOND).await;
        let replaced = again(world, request(&n.to_string())).await;
        let expected = (world.now().await + 4 * SECOND).min(first.created_at + 10 * SECOND);
        assert_eq!((replaced.replaced, replaced.job.run_at), (true, expected));
    }
    world.advance(SECOND).await;
    assert_eq!(world.claim_one().await.job().payload.as_str(), "3", "the newest payload, ten seconds after the first");
}

pub(crate) async fn a_running_job_is_not_replaced(world: &impl World) {
    let lease = world.running(replacing("k", "1")).await;
    let next = world.enqueue(replacing("k", "2")).await;
    assert_ne!(next.id, lease.job().id, "its key was free when it started");
    world.cancel(next.id).await;
    let busy = JobRequest::new("welcome", json("3")).unique(Unique::new("b").unfinished().replace());
    let lease = world.running(busy.clone()).await;
    let known = again(world, busy.priority(9)).await;
    assert_eq!((known.created, known.replaced, known.job.id), (false, false, lease.job().id));
    assert_eq!(known.job.priority, 0);
}

pub(crate) async fn a_throttle_lets_one_through_in_its_window_whatever_became_of_it(world: &impl World) {
    let throttled = || job("welcome").unique(Unique::new("k").for_ms(60_000));
    let lease = world.running(throttled()).await;
    assert_eq!(again(world, throttled()).await.job.id, lease.job().id);
    world.end(&lease, succeeded()).await;
    world.advance(MINUTE - MS).await;
    let known = again(world, throttled()).await;
    assert_eq!((known.created, known.job.status), (false, Status::Succeeded));
    world.advance(MS).await;
    world.enqueue(throttled()).await;
    assert_eq!(again(world, throttled()).await.job.status, Status::Queued);
}

pub(crate) async fn redrives_and_retries_never_meet_the_key(world: &impl World) {
    for request in [waiting("w"), unfinished("u"), job("welcome").unique(Unique::new("t").for_ms(1))] {
        let lease = world.running(request.clone().max_attempts(1)).await;
        let dead = world.end(&lease, Outcome::failed_permanently("x")).await;
        world.advance(SECOND).await;
        let successor = world.enqueue(request.clone()).await;
        assert!(matches!(world.redrive(dead.id).await, Redriven::Queued(_)), "a redrive met the key of its successor");
        let mut waiting = ids(&world.claim_up_to(5).await);
        waiting.sort();
        assert_eq!(waiting, [dead.id, successor.id]);
        for lease in [dead.id, successor.id] {
            world.cancel(lease).await;
        }
        world.advance(HOUR).await;
        world.reap().await;
    }
}

pub(crate) async fn a_cancelled_or_deleted_job_frees_its_key(world: &impl World) {
    let first = world.enqueue(waiting("k")).await.id;
    world.cancel(first).await;
    let second = world.enqueue(waiting("k")).await.id;
    world.cancel(second).await;
    let throttled = || job("welcome").unique(Unique::new("t").for_ms(60_000));
    let third = world.enqueue(throttled()).await.id;
    world.cancel(third).await;
    assert!(!again(world, throttled()).await.created);
    world.delete(third).await;
    assert!(again(world, throttled()).await.created, "what is deleted has no window");
}

pub(crate) async fn fifty_enqueues_with_one_unique_key_make_one_job(world: &impl World) {
    let mut requests = Vec::new();
    for n in 0..50 {
        let unique = if n % 2 == 0 { Unique::new("once") } else { Unique::new("once").replace() };
        requests.push(world.checked(job("welcome").unique(unique)).await);
    }
    let store = world.store();
    let answers = together(50, |n| {
        let (store, job) = (store.clone(), requests[n].clone());
        async move { store.enqueue(vec![job]).await.unwrap().remove(0) }
    })
    .await;
    assert_eq!(answers.iter().filter(|answer| answer.created).count(), 1);
    assert_eq!(answers.iter().map(|answer| answer.job.id).collect::<HashSet<_>>().len(), 1);
    assert_eq!(world.counts(DEFAULT).await, [(Status::Queued, 1)].into());
}

/// Whoever replaces a job that is being claimed has either changed what is claimed, or made a new one; no payload is lost.
pub(crate) async fn a_payload_that_replaces_one_being_claimed_is_run(world: &impl World) {
    for round in 0..40 {
        let key = format!("k{round}");
        let first = world.enqueue(replacing(&key, "1")).await;
        let newer = world.checked(replacing(&key, "2")).await;
        let store = world.store();
        let claimed = together(2, |n| {
            let (store, newer) = (store.clone(), newer.clone());
            async move {
                match n {
                    0 => store.claim(claim_of(1)).await.unwrap().leases,
                    _ => {
                        store.enqueue(vec![newer]).await.unwrap();
                        vec![]
                    }
                }
            }
        })
        .await;
        let mut run: Vec<_> = claimed.into_iter().flatten().collect();
        run.extend(world.claim_up_to(2).await);
        let payloads: Vec<_> = run.iter().map(|lease| lease.job().payload.as_str().to_owned()).collect();
        let replaced = payloads == ["2"] && run[0].job().id == first.id;
        assert!(replaced || payloads == ["1", "2"], "round {round}: {payloads:?}");
        world.settle_all(run.iter().map(|lease| settle_of(lease, succeeded())).collect()).await;
    }
}

pub(crate) async fn a_batch_with_unique_jobs_is_answered_in_order_beside_others(world: &impl World) {
    let known = world.enqueue(waiting("a")).await.id;
    let answers =
        world.enqueue_all(vec![job("welcome"), waiting("a"), waiting("b"), waiting("b"), with_key("i")]).await;
    let created: Vec<_> = answers.iter().map(|answer| answer.created).collect();
    assert_eq!(created, [true, false, true, false, true]);
    assert_eq!(answers[1].job.id, known);
    assert_eq!(answers[3].job.id, answers[2].job.id);
    assert_eq!(world.counts(DEFAULT).await, [(Status::Queued, 4)].into());
}
