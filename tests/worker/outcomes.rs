//! What a handler answers, and what becomes of the job.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use steadfast::job::{AttemptOutcome, Json, Kind, KindDefinition};
use steadfast::worker::{Completion, Handler, HandlerOptions, JobError};
use steadfast::{Context, JobRequest, Status, Worker};

use crate::world::{Running, Task, World, brisk, eventually};

#[tokio::test(flavor = "multi_thread")]
async fn a_job_runs_once_and_its_result_is_kept() {
    let world = World::new().await;
    let id = world.enqueue(20).await;
    let worker = Running::start(Worker::new(world.queue.clone()).handle(async |job: Task, context: Context| {
        assert_eq!(context.attempt(), 1);
        Ok(serde_json::json!({ "doubled": job.n * 2 }))
    }));
    let job = world.reaches(id, Status::Succeeded).await;
    assert_eq!(job.result.unwrap().as_str(), r#"{"doubled":40}"#);
    assert_eq!(job.attempts, 1);
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_is_retried_when_the_handler_says_and_its_text_is_kept() {
    let world = World::new().await;
    let id = world.enqueue(1).await;
    let worker =
        Running::start(Worker::new(world.queue.clone()).handle(
            async |_: Task, context: Context| match context.attempt() {
                1 => Err(JobError::new("smtp 451").retry_after(Duration::ZERO)),
                _ => Ok(()),
            },
        ));
    let job = world.reaches(id, Status::Succeeded).await;
    assert_eq!((job.attempts, job.last_error.as_deref()), (2, Some("smtp 451")));
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_permanent_error_is_not_retried() {
    let world = World::new().await;
    let id = world.enqueue(1).await;
    let worker = Running::start(
        Worker::new(world.queue.clone()).handle(async |_: Task, _| Err::<(), _>(JobError::permanent("no such user"))),
    );
    let job = world.reaches(id, Status::FailedPermanent).await;
    assert_eq!((job.attempts, job.last_error.as_deref()), (1, Some("no such user")));
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snooze_gives_the_attempt_back() {
    let world = World::new().await;
    let id = world.enqueue(1).await;
    let starts = Arc::new(AtomicU64::new(0));
    let worker = Running::start(Worker::new(world.queue.clone()).with_state(starts.clone()).handle(
        async |_: Task, context: Context<Arc<AtomicU64>>| match context.state().fetch_add(1, Ordering::SeqCst) {
            0..3 => Ok(Completion::Snooze(Duration::ZERO)),
            _ => Ok(Completion::from(())),
        },
    ));
    let job = world.reaches(id, Status::Succeeded).await;
    assert_eq!((job.attempts, starts.load(Ordering::SeqCst)), (1, 4));
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_panics_timeouts_and_bad_payloads_fail_their_job_only_and_the_pool_keeps_its_size() {
    let world = World::new().await;
    // A kind without a schema, so that a payload the handler's type cannot hold gets in.
    world.queue.put_kind(KindDefinition::any(Kind::new("any").unwrap())).await.unwrap();
    #[derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
    struct Trouble {
        how: String,
    }
    impl steadfast::Job for Trouble {
        const KIND: &'static str = "any";
    }
    struct Causes;
    impl Handler<Trouble> for Causes {
        async fn run(&self, job: Trouble, _: Context) -> Result<Completion, JobError> {
            match &*job.how {
                "error" => Err(JobError::new("on purpose")),
                "panic" => panic!("on purpose"),
                "hang" => std::future::pending().await,
                _ => Ok(().into()),
            }
        }
    }
    let request = |payload: &str| {
        let request = JobRequest::new("any", Json::parse(payload.to_owned()).unwrap()).max_attempts(1);
        // Only where it must run out: on a slow machine others could run into it too.
        if payload.contains("hang") { request.timeout_ms(300) } else { request }
    };
    let bad = ["{\"how\":\"error\"}", "{\"how\":\"panic\"}", "{\"how\":\"hang\"}", "{\"how\":7}"];
    let requests: Vec<_> = (0..1000).map(|n| request(bad[n % 4])).collect();
    let bad_jobs = world.queue.enqueue_requests(requests).await.unwrap();
    let worker = Running::start(
        Worker::new(world.queue.clone()).settings(brisk()).concurrency(64).handler(HandlerOptions::new(), Causes),
    );
    // Registering the typed handler gives the kind a schema; what is stored already has to be coped with.
    eventually("1000 failures", async || (world.count(Status::FailedPermanent).await == 1000).then_some(())).await;
    let good: Vec<_> = (0..1000).map(|_| request("{\"how\":\"well\"}")).collect();
    world.queue.enqueue_requests(good).await.unwrap();
    eventually("1000 successes", async || (world.count(Status::Succeeded).await == 1000).then_some(())).await;
    for (nth, expected) in [
        (0, ("failed", "on purpose")),
        (1, ("failed", "the handler panicked: on purpose")),
        (2, ("timed_out", "timed out")),
        (3, ("failed", "does not fit the handler's type")),
    ] {
        let attempts = world.queue.attempts(bad_jobs[nth].job.id).await.unwrap().unwrap();
        let [attempt] = &attempts[..] else { panic!("{attempts:?}") };
        assert_eq!(attempt.outcome.unwrap().as_str(), expected.0, "{attempt:?}");
        assert!(attempt.error.as_ref().unwrap().contains(expected.1), "{attempt:?}");
    }
    worker.stop().await.unwrap();
}

/// Everything that this test program logs.
#[derive(Clone, Default)]
struct Log(Arc<std::sync::Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, text: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(text);
        Ok(text.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payload_that_does_not_fit_the_handlers_type_is_quoted_neither_in_the_log_nor_in_the_error() {
    let written = Log::default();
    let world = World::new().await;
    let writer = written.clone();
    tracing_subscriber::fmt().with_writer(move || writer.clone()).with_ansi(false).init();
    for kind in ["task", "raw"] {
        world.queue.put_kind(KindDefinition::any(Kind::new(kind).unwrap())).await.unwrap();
    }
    let mut ids = Vec::new();
    for (kind, payload) in
        [("task", r#"{"n":"canary-7f3a"}"#), ("task", r#""canary-7f3a""#), ("raw", r#"["canary-7f3a"]"#)]
    {
        let request = JobRequest::new(kind, Json::parse(payload.to_owned()).unwrap()).max_attempts(1);
        ids.push(world.queue.enqueue_request(request).await.unwrap().job.id);
    }
    let worker = Running::start(Worker::new(world.queue.clone()).handle(async |_: Task, _| Ok(())).handle_raw(
        "raw",
        HandlerOptions::new(),
        async |payload: Json, _| payload.decode::<Task>().map(drop).map_err(JobError::from),
    ));
    for id in ids {
        let error = world.reaches(id, Status::FailedPermanent).await.last_error.unwrap();
        assert!(!error.contains("canary") && error.contains("line 1 column"), "{error}");
        // Logged once it is recorded.
        let line = eventually("the line of the failed attempt", async || {
            let log = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
            log.lines().find(|line| line.contains(&id.to_string()) && line.contains("ERROR")).map(str::to_owned)
        });
        let line = line.await;
        assert!(line.contains("line 1 column"), "{line}");
    }
    worker.stop().await.unwrap();
    let log = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
    assert!(!log.contains("canary"), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_is_seen_while_the_job_runs() {
    let world = World::new().await;
    let id = world.enqueue(1).await;
    let worker =
        Running::start(Worker::new(world.queue.clone()).settings(brisk()).handle(async |_: Task, context: Context| {
            context.progress(40, Some("half way"));
            context.stopped().await;
            Err::<(), _>(JobError::new("told to stop"))
        }));
    let progress = eventually("progress", async || world.job(id).await.progress).await;
    assert_eq!((progress.percent(), progress.message()), (Some(40), Some("half way")));
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_of_many_leases_runs_once() {
    let world = World::new().await;
    let id = world.enqueue(1).await;
    let settings = brisk();
    let five_leases = settings.lease * 5;
    let worker =
        Running::start(Worker::new(world.queue.clone()).settings(settings).handle(move |_: Task, _| async move {
            tokio::time::sleep(five_leases).await;
            Ok(())
        }));
    let job = world.reaches(id, Status::Succeeded).await;
    assert_eq!(job.attempts, 1);
    assert_eq!(world.queue.attempts(id).await.unwrap().unwrap().len(), 1);
    worker.stop().await.unwrap();
}

/// `docs/guarantees.md` F16.
#[test]
fn handlers_that_block_every_thread_for_three_leases_lose_no_lease() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let world = World::new().await;
        let mut ids = Vec::new();
        for n in 0..4 {
            ids.push(world.enqueue(n).await);
        }
        let settings = brisk();
        let three_leases = settings.lease * 3;
        let worker =
            Running::start(Worker::new(world.queue.clone()).settings(settings).handle(move |_: Task, _| async move {
                // Not an await: this thread of the runtime does nothing else meanwhile.
                std::thread::sleep(three_leases);
                Ok(())
            }));
        for id in ids {
            let job = world.reaches(id, Status::Succeeded).await;
            let attempts = world.queue.attempts(id).await.unwrap().unwrap();
            assert_eq!(attempts.len(), 1, "{attempts:?}");
            assert_eq!(attempts[0].outcome, Some(AttemptOutcome::Succeeded));
            assert_eq!(job.attempts, 1);
        }
        worker.stop().await.unwrap();
    });
}

/// `docs/guarantees.md` F16: the claim was under way when the only thread was blocked.
#[test]
fn a_job_that_is_claimed_while_every_thread_is_blocked_keeps_its_lease() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let world = runtime.block_on(World::new());
    let first = runtime.block_on(world.enqueue(0));
    let settings = brisk();
    let three_leases = settings.lease * 3;
    let (say, said) = std::sync::mpsc::channel();
    let running = {
        let _inside = runtime.enter();
        Running::start(Worker::new(world.queue.clone()).settings(settings).handle(
            move |task: Task, context: Context| {
                let say = say.clone();
                async move {
                    if task.n == 0 {
                        let second = context.queue().enqueue(Task { n: 1 }).await?;
                        say.send(second.job.id)?;
                        // Whoever was woken by it may send its claim.
                        for _ in 0..3 {
                            tokio::task::yield_now().await;
                        }
                        std::thread::sleep(three_leases);
                    }
                    Ok(())
                }
            },
        ))
    };
    let second = said.recv_timeout(std::time::Duration::from_secs(60)).unwrap();
    runtime.block_on(async {
        for id in [first, second] {
            world.reaches(id, Status::Succeeded).await;
            let attempts = world.queue.attempts(id).await.unwrap().unwrap();
            assert_eq!(attempts.len(), 1, "{attempts:?}");
        }
        running.stop().await.unwrap();
    });
}
