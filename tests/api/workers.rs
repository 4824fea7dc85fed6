//! Workers in other languages: the scripts of the guide, against the real server, killed at random.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;
use steadfast::job::Status;
use steadfast::store::{List, Reap};

use crate::on_every_store;
use crate::world::{Server, World};

on_every_store!(
    python_workers_killed_at_random_finish_every_job_once,
    javascript_workers_killed_at_random_finish_every_job_once,
);

const JOBS: usize = 500;
const A_LITTLE: usize = 20;

async fn python_workers_killed_at_random_finish_every_job_once(world: World) {
    killed_at_random(world, "python3", "worker.py", 5).await;
}

async fn javascript_workers_killed_at_random_finish_every_job_once(world: World) {
    killed_at_random(world, "node", "worker.mjs", 60).await;
}

#[test]
fn the_guide_shows_the_workers_as_they_are_run() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let read = |path: &str| std::fs::read_to_string(root.join(path)).unwrap();
    for script in ["examples/workers/worker.py", "examples/workers/worker.mjs"] {
        let source = read(script);
        assert!(source.lines().count() <= 40, "{script} has more than 40 lines");
        assert!(read("docs/api.md").contains(source.trim_end()), "docs/api.md shows another {script}");
    }
}

/// A process that dies with the test.
struct Worker(Child);

impl Worker {
    fn start(server: &Server, interpreter: &str, script: &str) -> Self {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("examples/workers").join(script);
        let child = Command::new(interpreter)
            .arg(path)
            .env("STEADFAST_URL", format!("http://{}", server.address))
            .env("LEASE_MS", "1000")
            .stdin(Stdio::null())
            .spawn();
        Self(child.unwrap_or_else(|error| panic!("{interpreter} is needed for this test: {error}")))
    }

    fn is_running(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }

    /// SIGKILL: it cannot clean up.
    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// `ms` is how long a job takes: Python works off its ten leases one by one, JavaScript all at once.
async fn killed_at_random(world: World, interpreter: &str, script: &str, ms: u64) {
    let server = world.server().await;
    // What a server's reaper does.
    let store = server.queue.store().clone();
    let reaper = tokio::spawn(async move {
        loop {
            store.reap(Reap { limit: 1000 }).await.unwrap();
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
    let deadline = Instant::now() + Duration::from_secs(120);
    let mut random = fastrand::Rng::with_seed(7);
    let mut workers: Vec<_> = (0..2).map(|_| Worker::start(&server, interpreter, script)).collect();
    let (mut enqueued, mut kills) = (0, 0);
    while enqueued < JOBS || succeeded(&server).await < JOBS as u64 {
        // A little at a time, so that workers are killed in the middle of it and not after.
        if enqueued < JOBS {
            let jobs: Vec<_> = (enqueued..enqueued + A_LITTLE)
                .map(|n| json!({"kind": "welcome", "payload": {"n": n, "ms": ms}, "max_attempts": 100}))
                .collect();
            server.post("/jobs/batch", json!({"jobs": jobs})).await.expect(200);
            enqueued += A_LITTLE;
        }
        assert!(Instant::now() < deadline, "{} of {JOBS} succeeded after {kills} kills", succeeded(&server).await);
        tokio::time::sleep(Duration::from_millis(random.u64(20..400))).await;
        let victim = random.usize(0..workers.len());
        assert!(workers[victim].is_running(), "a worker ended by itself");
        workers[victim].kill();
        kills += 1;
        workers[victim] = Worker::start(&server, interpreter, script);
    }
    drop(workers);
    reaper.abort();
    let mut lost_attempts = 0;
    let mut before = None;
    let mut seen = 0;
    loop {
        let page = server.queue.list(List { before, limit: 200, ..List::default() }).await.unwrap();
        for job in &page.jobs {
            seen += 1;
            assert_eq!(job.status, Status::Succeeded);
            let result: serde_json::Value = job.result.as_ref().unwrap().decode().unwrap();
            assert_eq!(result["worked_on"], job.payload.decode::<serde_json::Value>().unwrap());
            let attempts = server.queue.attempts(job.id).await.unwrap().unwrap();
            let outcomes: Vec<_> = attempts.iter().map(|attempt| attempt.outcome.unwrap().as_str()).collect();
            let (last, others) = outcomes.split_last().unwrap();
            // Released: the worker died while its claim was under way, and the server gave the job back by itself.
            let cut_short = |outcome: &&str| ["lease_expired", "released"].contains(outcome);
            assert!(*last == "succeeded" && others.iter().all(cut_short), "{outcomes:?}");
            lost_attempts += others.len();
        }
        before = page.next;
        if before.is_none() {
            break;
        }
    }
    assert_eq!(seen, JOBS);
    println!("{script}: {JOBS} jobs succeeded once each; {kills} kills cost {lost_attempts} attempts");
    assert!(kills >= JOBS / A_LITTLE && lost_attempts > 0, "the workers were not killed at work");
}

async fn succeeded(server: &Server) -> u64 {
    let stats = server.get("/stats").await.expect(200);
    stats["totals"]["succeeded"].as_u64().unwrap()
}
