//! Real processes, stopped, continued and killed by real signals.
//!
//! A test that finds [`URL`] set is the child: it runs a worker there, says what happens on standard output, and ends when
//! its standard input is closed.

use std::process::Stdio;
use std::time::Duration;

use steadfast::job::AttemptOutcome;
use steadfast::store::List;
use steadfast::worker::{JobError, WorkerSettings};
use steadfast::{Context, JobId, Queue, Status, Worker};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use crate::world::{Running, Task, World, brisk, eventually, in_time};

const URL: &str = "STEADFAST_TEST_CHILD_URL";

/// What the child does: says that a job started, and holds it until it is told to stop.
async fn be_the_child(url: &str, settings: WorkerSettings) {
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).init();
    let queue = Queue::open(url).await.unwrap();
    let worker = Worker::new(queue).settings(settings).handle(|job: Task, context: Context| async move {
        println!("started {}", job.n);
        let reason = context.stopped().await;
        println!("told {reason:?}");
        Err::<(), _>(JobError::new("stopped"))
    });
    let closed = async {
        let _ = tokio::io::stdin().read_to_end(&mut Vec::new()).await;
    };
    worker.run_until(closed).await.unwrap();
}

struct WorkerProcess {
    child: Child,
    says: Lines<BufReader<ChildStdout>>,
}

impl WorkerProcess {
    fn start(test: &str, url: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture"])
            .env(URL, url)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let says = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, says }
    }

    async fn says(&mut self, wanted: &str) {
        let hearing = async {
            while let Some(line) = self.says.next_line().await.unwrap() {
                if line.contains(wanted) {
                    return;
                }
            }
            panic!("the child ended without saying {wanted:?}");
        };
        in_time(&format!("the child to say {wanted:?}"), hearing).await;
    }

    async fn signal(&self, signal: &str) {
        let pid = self.child.id().expect("it still runs").to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().await.unwrap().success());
    }

    /// Ends it the gentle way; what it logged.
    async fn end(mut self) -> String {
        drop(self.child.stdin.take());
        while self.says.next_line().await.unwrap().is_some() {}
        let output = in_time("the child to end", self.child.wait_with_output()).await.unwrap();
        let log = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{log}");
        log
    }
}

/// A worker of this process that does the work.
fn successor(world: &World) -> Running {
    Running::start(
        Worker::new(world.queue.clone())
            .settings(brisk())
            .handle(|_: Task, _: Context| async { Ok(serde_json::json!("done by the successor")) }),
    )
}

async fn assert_done_by_the_successor(world: &World, id: JobId) {
    let job = world.job(id).await;
    assert_eq!((job.status, job.attempts), (Status::Succeeded, 2));
    assert_eq!(job.result.unwrap().as_str(), r#""done by the successor""#);
    let attempts = world.queue.attempts(id).await.unwrap().unwrap();
    let outcomes: Vec<_> = attempts.iter().map(|attempt| attempt.outcome.unwrap()).collect();
    assert_eq!(outcomes, [AttemptOutcome::LeaseExpired, AttemptOutcome::Succeeded]);
    assert_ne!(attempts[0].worker, attempts[1].worker);
}

/// `docs/guarantees.md` F12, F13.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_stopped_for_three_leases_changes_nothing_and_logs_one_line() {
    if let Ok(url) = std::env::var(URL) {
        return be_the_child(&url, brisk()).await;
    }
    let (world, url) = World::on_postgres().await;
    let id = world.enqueue(1).await;
    let test = "processes::a_worker_stopped_for_three_leases_changes_nothing_and_logs_one_line";
    let mut zombie = WorkerProcess::start(test, &url);
    zombie.says("started 1").await;
    zombie.signal("-STOP").await;
    let successor = successor(&world);
    world.reaches(id, Status::Succeeded).await;
    eventually("three leases to have passed", async || {
        let held = world.job(id).await.finished_at.unwrap();
        (jiff::Timestamp::now().duration_since(held).unsigned_abs() > brisk().lease * 2).then_some(())
    })
    .await;
    zombie.signal("-CONT").await;
    zombie.says("told LeaseLost").await;
    let log = zombie.end().await;
    assert_eq!(log.matches("lost the lease").count(), 1, "{log}");
    successor.stop().await.unwrap();
    assert_done_by_the_successor(&world, id).await;
}

/// `docs/guarantees.md` F10.
#[tokio::test(flavor = "multi_thread")]
async fn the_job_of_a_killed_worker_is_run_again_with_the_cause_recorded() {
    if let Ok(url) = std::env::var(URL) {
        return be_the_child(&url, brisk()).await;
    }
    let (world, url) = World::on_postgres().await;
    let id = world.enqueue(1).await;
    let test = "processes::the_job_of_a_killed_worker_is_run_again_with_the_cause_recorded";
    let mut victim = WorkerProcess::start(test, &url);
    victim.says("started 1").await;
    victim.signal("-KILL").await;
    let successor = successor(&world);
    world.reaches(id, Status::Succeeded).await;
    successor.stop().await.unwrap();
    assert_done_by_the_successor(&world, id).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_enqueued_by_another_process_starts_without_a_poll_and_its_cancel_arrives_by_heartbeat() {
    if let Ok(url) = std::env::var(URL) {
        // Polls only after longer than anybody waits here.
        let never = Duration::from_secs(600);
        return be_the_child(&url, brisk().poll_min(never).poll_max(never).concurrency(100)).await;
    }
    let (world, url) = World::on_postgres().await;
    world.queue.declare::<Task>().await.unwrap();
    let test = "processes::a_job_enqueued_by_another_process_starts_without_a_poll_and_its_cancel_arrives_by_heartbeat";
    let mut idle = WorkerProcess::start(test, &url);
    // The first may come before the child listens; a later one then wakes it for all.
    let running = List::new().status(Status::Running).limit(1);
    let mut enqueued = 0;
    let id = eventually("a job to start", async || {
        if enqueued < 50 {
            world.enqueue(1).await;
            enqueued += 1;
        }
        world.queue.list(running.clone()).await.unwrap().jobs.pop().map(|job| job.id)
    })
    .await;
    idle.says("started 1").await;
    world.queue.cancel(id).await.unwrap();
    idle.says("told Cancelled").await;
    world.reaches(id, Status::Cancelled).await;
    idle.end().await;
}
