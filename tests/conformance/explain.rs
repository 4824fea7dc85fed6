//! Why a job is not running: each reason by itself, with its numbers. That *startable* is what claims say is shown in every
//! state that the model reaches.

use steadfast::job::{GroupDefaults, GroupSettings, HeldCode, JobId, LimitScope, Rate, explain_queue};
use steadfast::store::Pause;

use crate::limit_phrases::*;
use crate::phrases::*;
use crate::world::World;

pub(crate) async fn an_unknown_job_is_not_explained(world: &impl World) {
    assert_eq!(world.store().explain(JobId::new()).await.unwrap(), None);
}

pub(crate) async fn a_job_that_nothing_holds_is_startable(world: &impl World) {
    let first = world.enqueue(job("welcome")).await.id;
    let second = world.enqueue(job("welcome")).await.id;
    assert_eq!(world.why(first).await, [HeldCode::Startable]);
    let told = world.explained(second).await;
    assert_eq!((told.verdict, told.startable, told.ahead.unwrap().n), (HeldCode::WaitsForSlot, true, 1));
    assert_eq!(told.as_of, world.now().await);
}

pub(crate) async fn a_job_that_runs_or_has_ended_says_so(world: &impl World) {
    let lease = world.running(job("welcome")).await;
    let id = lease.job().id;
    assert_eq!(world.why(id).await, [HeldCode::Running]);
    world.cancel(id).await;
    world.advance(LEASE + SECOND).await;
    let told = world.why(id).await;
    assert_eq!(told, [HeldCode::Running, HeldCode::LeaseExpiredUnreaped, HeldCode::CancelRequested]);
    world.end(&lease, succeeded()).await;
    let told = world.explained(id).await;
    assert_eq!((told.verdict, told.startable, told.ahead), (HeldCode::Finished, false, None));
}

pub(crate) async fn every_limit_that_is_full_is_named_with_its_numbers(world: &impl World) {
    world.set_queue(DEFAULT, leases_of_queue(1).groups(GroupDefaults::default().concurrency(1))).await;
    world.limit_kind("welcome", Some(1), None).await;
    world.running(in_group("acme")).await;
    let id = world.enqueue(in_group("acme")).await.id;
    assert_eq!(world.why(id).await, [HeldCode::QueueFull, HeldCode::KindFull, HeldCode::GroupFull]);
    let facts = world.store().explain(id).await.unwrap().unwrap();
    let told: Vec<_> = facts.limits.iter().map(|fact| (fact.scope, fact.running, fact.concurrency)).collect();
    let full = |scope| (scope, 1, Some(1));
    assert_eq!(told, [full(LimitScope::Queue), full(LimitScope::Kind), full(LimitScope::Group)]);
    let other = world.enqueue(job("other").queue("elsewhere").group_key("acme")).await.id;
    assert_eq!(world.why(other).await, [HeldCode::Startable]);
}

pub(crate) async fn a_rate_says_when_it_allows_the_next_start_of_this_cost(world: &impl World) {
    world.set_queue(DEFAULT, starts_of_queue(Rate::new(1, 1_000).burst(2))).await;
    world.enqueue_some(2, job("welcome")).await;
    assert_eq!(world.claim_up_to(5).await.len(), 2);
    let (cheap, dear) = (world.enqueue(job("welcome")).await.id, world.enqueue(job("welcome").cost(2)).await.id);
    for (id, wait) in [(cheap, SECOND), (dear, 2 * SECOND)] {
        let facts = world.store().explain(id).await.unwrap().unwrap();
        assert_eq!(facts.limits[0].next_at, Some(world.now().await + wait));
        assert_eq!(world.why(id).await, [HeldCode::Rate]);
    }
}

pub(crate) async fn pauses_waits_and_several_reasons_at_once_are_all_told(world: &impl World) {
    let id = world.enqueue(delayed(MINUTE).group_key("acme")).await.id;
    assert_eq!(world.why(id).await, [HeldCode::NotDue]);
    world.store().pause(Pause::new(queue(DEFAULT))).await.unwrap();
    world.set_group(DEFAULT, "acme", GroupSettings::default().paused(true)).await;
    assert_eq!(world.why(id).await, [HeldCode::NotDue, HeldCode::QueuePaused, HeldCode::GroupPaused]);
    world.advance(MINUTE).await;
    let told = world.explained(id).await;
    assert_eq!((told.verdict, told.startable), (HeldCode::QueuePaused, false));
    assert!(told.says.contains("paused"), "{}", told.says);
}

pub(crate) async fn a_queue_says_whether_anything_of_it_moves(world: &impl World) {
    let told = |facts| explain_queue(&facts);
    world.some_worker_asks().await;
    let empty = told(world.store().explain_queue(queue(DEFAULT)).await.unwrap());
    assert_eq!((empty.verdict, empty.startable), (HeldCode::Empty, false));
    world.set_queue(DEFAULT, leases_of_queue(1)).await;
    world.running(job("welcome")).await;
    world.enqueue(job("welcome")).await;
    let facts = world.store().explain_queue(queue(DEFAULT)).await.unwrap();
    assert_eq!((facts.waiting, facts.running, facts.paused), (1, 1, false));
    assert_eq!((told(facts.clone()).verdict, told(facts).startable), (HeldCode::QueueFull, false));
}
