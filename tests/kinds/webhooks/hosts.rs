//! One bad receiver and the others: limits per host, and hosts that are dead.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use steadfast::Status;
use steadfast::job::{AttemptOutcome, RetryPolicy};
use steadfast::kinds::WebhookDelivery;
use steadfast::kinds::endpoint::{Directory, Endpoint};
use steadfast::kinds::webhook::WebhookSettings;

use super::{retry_at_once, said, start, webhooks, webhooks_with, worker};
use crate::receiver::{Receiver, Reply};
use crate::world::{Running, World, brisk, eventually};

#[tokio::test(flavor = "multi_thread")]
async fn jobs_over_the_limit_of_an_endpoint_are_put_off_without_costing_an_attempt() {
    let world = World::sqlite().await;
    retry_at_once(&world).await;
    let receiver = Receiver::always(Reply::status(200).held()).await;
    let endpoint = Endpoint::new(&receiver.url("/")).unwrap().max_in_flight(1);
    let directory = Directory::new().with_endpoint("slow", endpoint).unwrap();
    let worker = start(&world, &webhooks_with(WebhookSettings::default(), directory));
    let mut ids = Vec::new();
    for n in 0..3 {
        ids.push(world.enqueue(WebhookDelivery::to_endpoint("slow", json!(n))).await);
    }
    receiver.sees(1).await;
    eventually("the others to be put off", async || {
        let mut put_off = 0;
        for id in &ids {
            let attempts = world.attempts(*id).await;
            put_off += usize::from(attempts.iter().any(|one| one.outcome == Some(AttemptOutcome::Snoozed)));
        }
        (put_off >= 2).then_some(())
    })
    .await;
    assert_eq!(receiver.seen().len(), 1, "one at a time");
    receiver.let_go();
    for id in ids {
        let job = world.ends(id).await;
        assert_eq!((job.status, job.attempts), (Status::Succeeded, 1), "{}", said(&job));
    }
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s45_a_thousand_jobs_for_a_dead_host_delay_no_other_and_each_ends_after_its_attempts() {
    let (world, clock) = World::with_held_clock().await;
    world
        .declare_with::<WebhookDelivery>(|defaults| {
            defaults.max_attempts(3).retry(RetryPolicy::fixed([Duration::from_secs(5)]))
        })
        .await;
    let dead = Receiver::always(Reply::status(200).held()).await;
    let alive = Receiver::always(Reply::status(204)).await;
    let jobs = (0..1000).map(|n| WebhookDelivery::new(dead.url_as("dead.test", "/"), json!(n)));
    let ids: Vec<_> = world.queue.enqueue_many(jobs).await.unwrap().into_iter().map(|stored| stored.job.id).collect();
    let webhooks = webhooks_with(WebhookSettings::default().timeout(Duration::from_secs(2)), Directory::new());
    // More slots than calls that one host may have; a lease that outlasts the time that passes too fast here.
    let settings = brisk().concurrency(32).lease(Duration::from_secs(3600));
    let worker = Running::start(worker(&world, &webhooks).settings(settings));
    dead.sees(1).await;
    // A hundred times as fast as it should: jobs that were put off come back soon.
    let passing = tokio::spawn({
        let clock = clock.clone();
        async move {
            let mut tick = tokio::time::interval(Duration::from_millis(50));
            loop {
                tick.tick().await;
                clock.advance(Duration::from_secs(5));
            }
        }
    });
    let mut slowest = Duration::ZERO;
    // Over three seconds: while the dead host is tried, when it is given up, and after that.
    let mut pace = tokio::time::interval(Duration::from_millis(100));
    for n in 1..=30 {
        pace.tick().await;
        let begun = Instant::now();
        world.enqueue(WebhookDelivery::new(alive.url_as("alive.test", "/"), json!(n))).await;
        alive.sees(n).await;
        slowest = slowest.max(begun.elapsed());
    }
    assert!(slowest < Duration::from_secs(1), "{slowest:?}");
    for id in ids {
        let job = world.ends(id).await;
        assert_eq!((job.status, job.attempts), (Status::FailedPermanent, 3), "{}", said(&job));
    }
    assert!(dead.seen().len() < 100, "{} calls to a dead host", dead.seen().len());
    passing.abort();
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s45_a_failing_host_is_not_called_until_a_probe_finds_it_well() {
    let world = World::sqlite().await;
    retry_at_once(&world).await;
    let well = Arc::new(AtomicUsize::new(0));
    let asked = well.clone();
    let receiver = Receiver::start(move |_| match asked.load(Ordering::SeqCst) {
        0 => Reply::status(500),
        _ => Reply::status(204),
    })
    .await;
    let worker = start(&world, &webhooks());
    let deliver = async || {
        let delivery = WebhookDelivery::new(receiver.url("/"), json!({}));
        let id = world.queue.enqueue(delivery).max_attempts(1).await.unwrap().job.id;
        world.ends(id).await
    };
    for _ in 0..5 {
        assert!(said(&deliver().await).contains("HTTP 500"));
    }
    let tripped = Instant::now();
    let not_tried = deliver().await;
    assert!(said(&not_tried).contains("not tried: the host has been failing for"), "{}", said(&not_tried));
    assert_eq!((not_tried.attempts, receiver.seen().len()), (1, 5), "it costs its attempt, and no call");
    well.store(1, Ordering::SeqCst);
    // The probe is one of these.
    let probed = eventually("a probe", async || {
        let job = deliver().await;
        (job.status == Status::Succeeded).then_some(job)
    })
    .await;
    assert!(tripped.elapsed() > Duration::from_secs(9), "{:?}", tripped.elapsed());
    assert_eq!((probed.status, receiver.seen().len()), (Status::Succeeded, 6));
    assert_eq!(deliver().await.status, Status::Succeeded, "closed again");
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s45_jobs_that_leave_a_host_no_time_do_not_count_against_it() {
    let world = World::sqlite().await;
    retry_at_once(&world).await;
    let receiver = Receiver::start(|seen| match seen.path.as_str() {
        "/slow" => Reply::status(204).held(),
        _ => Reply::status(204),
    })
    .await;
    let worker = start(&world, &webhooks());
    for _ in 0..6 {
        let delivery = WebhookDelivery::new(receiver.url("/slow"), json!({}));
        let hurried = world.queue.enqueue(delivery).max_attempts(1).timeout(Duration::from_millis(300));
        let ended = world.ends(hurried.await.unwrap().job.id).await;
        assert!(said(&ended).contains("timeout: "), "{}", said(&ended));
    }
    let id = world.enqueue(WebhookDelivery::new(receiver.url("/"), json!({}))).await;
    let ended = world.ends(id).await;
    assert_eq!((ended.status, ended.attempts), (Status::Succeeded, 1), "{}", said(&ended));
    worker.stop().await;
}
