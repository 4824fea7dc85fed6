//! What a program that embeds the worker says, in any order, is what it gets.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use steadfast::job::RetryPolicy;
use steadfast::kinds::{Addresses, Fit, ImageFormat, Method, ResizeImage, SendEmail, WebhookDelivery};
use steadfast::worker::JobError;
use steadfast::{Context, Job, JobRequest, Queue, Status, Worker};

use crate::world::{Running, Task, World, brisk, eventually};

#[derive(Debug, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
struct Stateful {
    add: u64,
}

impl Job for Stateful {
    const KIND: &'static str = "stateful";
}

#[tokio::test(flavor = "multi_thread")]
async fn handlers_registered_before_the_state_stay_registered() {
    let world = World::new().await;
    let worker = Running::start(
        Worker::new(world.queue.clone())
            .settings(brisk())
            .handle(async |task: Task, _: Context| Ok(serde_json::json!(task.n)))
            .with_state(40)
            .handle(async |job: Stateful, context: Context<u64>| Ok(serde_json::json!(context.state() + job.add))),
    );
    let before = world.enqueue(7).await;
    let after = world.queue.enqueue(Stateful { add: 2 }).await.unwrap().job.id;
    let result = |job: steadfast::JobRecord| job.result.unwrap().as_str().to_owned();
    assert_eq!(result(world.reaches(before, Status::Succeeded).await), "7");
    assert_eq!(result(world.reaches(after, Status::Succeeded).await), "42");
    worker.stop().await.unwrap();
}

/// How many jobs run at the same time.
#[derive(Default)]
struct AtOnce {
    now: AtomicUsize,
    most: AtomicUsize,
}

#[tokio::test(flavor = "multi_thread")]
async fn the_concurrency_that_was_asked_for_stands_whatever_settings_come_before_or_after() {
    type Build = fn(Worker<Arc<AtOnce>>) -> Worker<Arc<AtOnce>>;
    let orders: [Build; 2] = [
        |worker| worker.concurrency(2).settings(brisk().concurrency(7)),
        |worker| worker.settings(brisk().concurrency(7)).concurrency(2),
    ];
    for build in orders {
        let world = World::new().await;
        for n in 0..20 {
            world.enqueue(n).await;
        }
        let at_once = Arc::new(AtOnce::default());
        let worker = build(Worker::new(world.queue.clone()).with_state(at_once.clone()));
        let worker = Running::start(worker.handle(async |_: Task, context: Context<Arc<AtOnce>>| {
            let now = context.state().now.fetch_add(1, Ordering::SeqCst) + 1;
            context.state().most.fetch_max(now, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(20)).await;
            context.state().now.fetch_sub(1, Ordering::SeqCst);
            Ok(())
        }));
        eventually("all to be done", async || (world.count(Status::Succeeded).await == 20).then_some(())).await;
        worker.stop().await.unwrap();
        assert_eq!(at_once.most.load(Ordering::SeqCst), 2);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_anyhow_error_fails_the_job_with_every_cause() {
    fn greet() -> anyhow::Result<()> {
        Err(std::io::Error::other("smtp 451")).context("cannot connect").context("cannot greet")
    }
    let world = World::new().await;
    let id = world.enqueue(1).await;
    let worker =
        Running::start(Worker::new(world.queue.clone()).settings(brisk()).handle(async |_: Task, _: Context| {
            greet()?;
            Ok(())
        }));
    let job = world.reaches(id, Status::Retrying).await;
    assert_eq!(job.last_error.as_deref(), Some("cannot greet: cannot connect: smtp 451"));
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_is_told_the_kind_the_queue_and_how_many_attempts_there_are() {
    let world = World::new().await;
    let request = JobRequest::of(&Task { n: 1 }).unwrap().queue("mail").max_attempts(9);
    world.queue.declare::<Task>().await.unwrap();
    let id = world.queue.enqueue_request(request).await.unwrap().job.id;
    let worker =
        Running::start(Worker::new(world.queue.clone()).settings(brisk()).handle(async |_: Task, context: Context| {
            let told = (context.kind().as_str(), context.queue_name().as_str(), context.max_attempts());
            Ok(serde_json::json!([told.0, told.1, told.2, context.attempt()]))
        }));
    let job = world.reaches(id, Status::Succeeded).await;
    assert_eq!(job.result.unwrap().as_str(), r#"["task","mail",9,1]"#);
    worker.stop().await.unwrap();
}

#[test]
fn payloads_of_the_built_in_kinds_can_be_written_down_whole() {
    let mut mail = SendEmail::new(vec!["a@example.org".to_owned()], "s", "b");
    mail.cc = Some("b@example.org".into());
    mail.bcc = Some(Addresses::Several(vec!["c@example.org".to_owned()]));
    assert!(matches!(&mail.cc, Some(Addresses::One(address)) if address == "b@example.org"));
    let mut image = ResizeImage::new("https://example.org/a.png", 1, 1);
    (image.fit, image.format) = (Some(Fit::Cover), Some(ImageFormat::Webp));
    let mut hook = WebhookDelivery::new("https://example.org", serde_json::json!({}));
    hook.method = Some(Method::Put);
    for request in [JobRequest::of(&mail), JobRequest::of(&image), JobRequest::of(&hook)] {
        assert!(request.is_ok());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn how_often_a_job_is_tried_and_how_long_it_waits_is_said_when_the_queue_is_opened() {
    let directory = tempfile::tempdir().unwrap();
    let hour = Duration::from_secs(3_600);
    let queue = Queue::builder(&format!("sqlite://{}", directory.path().join("jobs.db").display()))
        .default_max_attempts(7)
        .default_retry(RetryPolicy::spread(hour, 2 * hour))
        .open()
        .await
        .unwrap();
    let id = queue.enqueue(Task { n: 1 }).await.unwrap().job.id;
    let worker = Worker::new(queue.clone()).settings(brisk());
    let worker = Running::start(worker.handle(async |_: Task, _: Context| Err::<(), _>(JobError::new("no"))));
    let job = eventually("the first failure", async || {
        let job = queue.get(id).await.unwrap().unwrap();
        (job.status == Status::Retrying).then_some(job)
    });
    let job = job.await;
    let wait_s = job.run_at.duration_since(job.updated_at).as_secs();
    assert!(job.max_attempts == 7 && (3_600..=7_200).contains(&wait_s), "{wait_s} s, {job:?}");
    worker.stop().await.unwrap();
}
