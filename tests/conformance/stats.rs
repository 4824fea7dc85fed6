//! stats: jobs per queue and status, and how long the oldest due one has waited. See also `fields.rs`.

use std::time::Duration;

use steadfast::job::{Outcome, QueueName, Status};
use steadfast::store::{Pause, QueueStats, Reap, Stats, StatsRequest};

use crate::phrases::*;
use crate::world::World;

pub(crate) async fn an_empty_store_has_no_queues_and_answers_a_ping(world: &impl World) {
    assert_eq!(world.store().stats(StatsRequest::new()).await.unwrap(), Stats::default());
    world.store().ping().await.unwrap();
}

pub(crate) async fn every_queue_is_counted_by_itself_and_by_status(world: &impl World) {
    world.enqueue(in_queue("mail").delay_ms(1_000)).await;
    for outcome in [succeeded(), succeeded(), Outcome::Cancelled, Outcome::failed_permanently("x")] {
        let lease = world.running(in_queue("mail")).await;
        world.end(&lease, outcome).await;
    }
    let lease = world.running(in_queue("images")).await;
    world.end(&lease, failed_retry_after(HOUR)).await;
    world.running(in_queue("images")).await;
    let counted = |counts: &[(Status, u64)]| {
        let mut queue = QueueStats::default();
        queue.counts = counts.iter().copied().collect();
        queue
    };
    let mail =
        counted(&[(Status::Queued, 1), (Status::Succeeded, 2), (Status::FailedPermanent, 1), (Status::Cancelled, 1)]);
    let images = counted(&[(Status::Running, 1), (Status::Retrying, 1)]);
    let expected = [(queue("mail"), mail), (queue("images"), images)].into();
    assert_eq!(world.store().stats(StatsRequest::new()).await.unwrap().queues, expected);
}

pub(crate) async fn a_status_without_jobs_is_left_out(world: &impl World) {
    let lease = world.running(job("welcome")).await;
    assert_eq!(world.counts("default").await, [(Status::Running, 1)].into());
    world.end(&lease, succeeded()).await;
    assert_eq!(world.counts("default").await, [(Status::Succeeded, 1)].into());
    world.delete(lease.job().id).await;
    assert_eq!(world.store().stats(StatsRequest::new()).await.unwrap(), Stats::default());
}

pub(crate) async fn known_keys_and_unknown_jobs_are_not_counted(world: &impl World) {
    world.enqueue(with_key("once")).await;
    world.enqueue_all(vec![with_key("once"), with_key("once")]).await;
    world.cancel(steadfast::job::JobId::new()).await;
    world.redrive(steadfast::job::JobId::new()).await;
    assert_eq!(world.counts("default").await, [(Status::Queued, 1)].into());
}

async fn oldest_ready(world: &impl World) -> Option<Duration> {
    world.queue_stats("default").await.oldest_ready
}

pub(crate) async fn the_oldest_ready_is_the_longest_due_whatever_its_priority_or_kind(world: &impl World) {
    assert_eq!(oldest_ready(world).await, None);
    world.enqueue(delayed(MINUTE)).await;
    assert_eq!(oldest_ready(world).await, None);
    world.advance(MINUTE).await;
    assert_eq!(oldest_ready(world).await, Some(Duration::ZERO));
    world.advance(SECOND).await;
    world.enqueue(job("other").priority(50)).await;
    world.enqueue(job("another").priority(-50)).await;
    world.enqueue(in_queue("mail")).await;
    world.advance(SECOND).await;
    assert_eq!(oldest_ready(world).await, Some(SECOND * 2));
    assert_eq!(world.queue_stats("mail").await.oldest_ready, Some(SECOND));
}

pub(crate) async fn only_jobs_that_wait_and_are_due_count_as_ready(world: &impl World) {
    let lease = world.running(job("welcome")).await;
    world.advance(SECOND).await;
    assert_eq!(oldest_ready(world).await, None, "running");
    world.end(&lease, failed_retry_after(MINUTE)).await;
    assert_eq!(oldest_ready(world).await, None, "retrying, not due");
    world.advance(MINUTE + SECOND).await;
    assert_eq!(oldest_ready(world).await, Some(SECOND), "retrying, due");
    world.store().pause(Pause::new(queue("default"))).await.unwrap();
    assert_eq!(oldest_ready(world).await, Some(SECOND), "paused");
    world.cancel(lease.job().id).await;
    assert_eq!(oldest_ready(world).await, None, "cancelled");
    world.redrive(lease.job().id).await;
    world.advance(SECOND * 3).await;
    assert_eq!(oldest_ready(world).await, Some(SECOND * 3), "redriven");
}

/// `q00` and so on, one job each, and one that is only paused.
async fn many_queues(world: &impl World) -> Vec<QueueName> {
    let names: Vec<_> = (0..7).map(|n| format!("q{n:02}")).collect();
    for name in &names {
        world.enqueue(in_queue(name)).await;
    }
    world.store().pause(Pause::new(queue("q03-paused"))).await.unwrap();
    world.store().pause(Pause::new(queue("q06"))).await.unwrap();
    let mut all: Vec<_> = names.iter().map(|name| queue(name)).chain([queue("q03-paused")]).collect();
    all.sort();
    all
}

pub(crate) async fn pages_go_by_name_and_every_queue_is_on_one_of_them(world: &impl World) {
    let all = many_queues(world).await;
    world.advance(SECOND).await;
    for limit in [1, 2, 3, 7, 8, 9] {
        let (mut told, mut after, mut pages) = (Vec::new(), None, 0);
        loop {
            let request = StatsRequest::new().after(after).limit(limit);
            let page = world.store().stats(request).await.unwrap();
            assert!(page.queues.len() <= limit, "{page:?}");
            assert_eq!(page.totals, [(Status::Queued, 7)].into(), "over all queues, on every page");
            for (name, stats) in &page.queues {
                let has_job = name.as_str() != "q03-paused";
                assert_eq!(stats.oldest_ready, has_job.then_some(SECOND), "{name}");
                assert_eq!(stats.counts.contains_key(&Status::Queued), has_job, "{name}");
                assert_eq!(stats.paused, ["q03-paused", "q06"].contains(&name.as_str()), "{name}");
            }
            told.extend(page.queues.into_keys());
            (after, pages) = (page.next, pages + 1);
            if after.is_none() {
                break;
            }
        }
        assert_eq!((told, pages), (all.clone(), all.len().div_ceil(limit)), "limit {limit}");
    }
}

pub(crate) async fn a_cursor_need_not_be_a_queue_that_still_exists(world: &impl World) {
    many_queues(world).await;
    let request = StatsRequest::new().after(queue("q05-gone")).limit(5);
    let page = world.store().stats(request).await.unwrap();
    assert_eq!((page.queues.into_keys().collect::<Vec<_>>(), page.next), (vec![queue("q06")], None));
    let page = world.store().stats(StatsRequest::new().after(queue("zzz"))).await.unwrap();
    assert_eq!((page.queues.len(), page.next), (0, None));
}

pub(crate) async fn queues_asked_for_by_name_are_all_that_is_told_and_counted(world: &impl World) {
    world.running(in_queue("q02")).await;
    many_queues(world).await;
    let asked = ["q06", "q02", "nowhere", "q03-paused", "q02"].map(queue);
    let stats = world.store().stats(StatsRequest::of(asked)).await.unwrap();
    assert_eq!(stats.queues.keys().cloned().collect::<Vec<_>>(), ["q02", "q03-paused", "q06"].map(queue));
    assert_eq!(stats.totals, [(Status::Queued, 2), (Status::Running, 1)].into());
    assert_eq!(stats.next, None);
    assert!(stats.queues[&queue("q02")].oldest_ready.is_some() && stats.queues[&queue("q06")].paused);
    let none = world.store().stats(StatsRequest::of([])).await.unwrap();
    assert_eq!(none, Stats::default());
}

pub(crate) async fn counts_alone_and_totals_alone_can_be_asked_for(world: &impl World) {
    many_queues(world).await;
    let counts = world.store().stats(StatsRequest::new().without_ages()).await.unwrap();
    assert!(counts.queues.len() == 8 && counts.queues.values().all(|queue| queue.oldest_ready.is_none()));
    let totals = world.store().stats(StatsRequest::new().limit(0)).await.unwrap();
    assert_eq!((totals.queues.len(), totals.next), (0, None));
    assert_eq!(totals.totals, [(Status::Queued, 7)].into());
}

pub(crate) async fn a_queue_is_gone_with_its_last_job_unless_it_is_paused(world: &impl World) {
    for name in ["kept", "gone"] {
        let lease = world.running(in_queue(name)).await;
        world.end(&lease, succeeded()).await;
        if name == "kept" {
            world.store().pause(Pause::new(queue(name))).await.unwrap();
        }
        world.delete(lease.job().id).await;
    }
    let stats = world.store().stats(StatsRequest::new()).await.unwrap();
    assert_eq!(stats.queues.into_keys().collect::<Vec<_>>(), [queue("kept")]);
}

pub(crate) async fn queues_that_are_gone_hide_none_that_are_there(world: &impl World) {
    for n in 0..30 {
        let lease = world.running(in_queue(&format!("gone{n:02}"))).await;
        world.end(&lease, succeeded()).await;
        world.delete(lease.job().id).await;
    }
    for name in ["a", "gone15.there", "z"] {
        world.enqueue(in_queue(name)).await;
    }
    // Once what changed is counted, once after it was rolled up.
    for _ in 0..2 {
        let (mut told, mut request, mut pages) = (Vec::new(), StatsRequest::new().limit(1), 0);
        loop {
            let page = world.store().stats(request.clone()).await.unwrap();
            assert_eq!(page.totals, [(Status::Queued, 3)].into());
            told.extend(page.queues.into_keys());
            let Some(next) = page.next else { break };
            request = request.after(next);
            pages += 1;
            assert!(pages < 100, "pages without end: {told:?}");
        }
        assert_eq!(told, ["a", "gone15.there", "z"].map(queue));
        world.store().reap(Reap::up_to(1)).await.unwrap();
    }
}
