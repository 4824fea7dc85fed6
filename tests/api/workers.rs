//! Workers in other languages: the scripts of the guide, against the real server, as a careful user would run them, and
//! killed at random.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use steadfast::job::Status;
use steadfast::store::{List, Reap};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::on_every_store;
use crate::world::{Server, World};

on_every_store!(
    python_workers_killed_at_random_finish_every_job_once,
    javascript_workers_killed_at_random_finish_every_job_once,
    the_python_worker_does_the_job_of_the_guide_and_leaves_other_kinds_alone,
    the_javascript_worker_does_the_job_of_the_guide_and_leaves_other_kinds_alone,
    the_python_worker_stops_a_cancelled_job,
    the_javascript_worker_stops_a_cancelled_job,
    the_python_worker_drops_a_job_that_it_lost,
    the_javascript_worker_drops_a_job_that_it_lost,
    the_python_worker_leaves_nothing_running_when_it_is_interrupted,
    the_javascript_worker_leaves_nothing_running_when_it_is_interrupted,
    the_python_worker_finishes_and_ends_when_it_is_told_to_drain,
    the_javascript_worker_finishes_and_ends_when_it_is_told_to_drain,
);

const JOBS: usize = 500;
const A_LITTLE: usize = 20;
/// Far longer than a test: a job that is stopped, not one that ends.
const HOURS_MS: u64 = 3_600_000;
/// Machines are slow; a condition that is not met by then never will be.
const DEADLINE: Duration = Duration::from_secs(60);

const PYTHON: (&str, &str) = ("python3", "worker.py");
const JAVASCRIPT: (&str, &str) = ("node", "worker.mjs");

async fn python_workers_killed_at_random_finish_every_job_once(world: World) {
    killed_at_random(world, PYTHON).await;
}

async fn javascript_workers_killed_at_random_finish_every_job_once(world: World) {
    killed_at_random(world, JAVASCRIPT).await;
}

async fn the_python_worker_does_the_job_of_the_guide_and_leaves_other_kinds_alone(world: World) {
    does_the_job_of_the_guide(world, PYTHON).await;
}

async fn the_javascript_worker_does_the_job_of_the_guide_and_leaves_other_kinds_alone(world: World) {
    does_the_job_of_the_guide(world, JAVASCRIPT).await;
}

async fn the_python_worker_stops_a_cancelled_job(world: World) {
    stops_a_cancelled_job(world, PYTHON).await;
}

async fn the_javascript_worker_stops_a_cancelled_job(world: World) {
    stops_a_cancelled_job(world, JAVASCRIPT).await;
}

async fn the_python_worker_drops_a_job_that_it_lost(world: World) {
    drops_a_job_that_it_lost(world, PYTHON).await;
}

async fn the_javascript_worker_drops_a_job_that_it_lost(world: World) {
    drops_a_job_that_it_lost(world, JAVASCRIPT).await;
}

async fn the_python_worker_leaves_nothing_running_when_it_is_interrupted(world: World) {
    leaves_nothing_running(world, PYTHON).await;
}

async fn the_javascript_worker_leaves_nothing_running_when_it_is_interrupted(world: World) {
    leaves_nothing_running(world, JAVASCRIPT).await;
}

async fn the_python_worker_finishes_and_ends_when_it_is_told_to_drain(world: World) {
    drains(world, PYTHON).await;
}

async fn the_javascript_worker_finishes_and_ends_when_it_is_told_to_drain(world: World) {
    drains(world, JAVASCRIPT).await;
}

fn shipped(path: &str) -> String {
    std::fs::read_to_string(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

#[test]
fn the_guide_shows_the_workers_as_they_are_run() {
    for script in ["examples/workers/worker.py", "examples/workers/worker.mjs"] {
        let source = shipped(script);
        assert!(source.lines().count() <= 150, "{script} is too long for a guide");
        assert!(shipped("docs/api.md").contains(source.trim_end()), "docs/api.md shows another {script}");
    }
}

#[test]
fn a_worker_that_is_refused_says_so_and_ends() {
    for (interpreter, script) in [PYTHON, JAVASCRIPT] {
        // Anything that answers: this one asks for a token that the worker does not have.
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let server = runtime.block_on(async {
            World::sqlite()
                .await
                .server_with(|settings| settings.admin_token("a-token-of-some-length".to_owned()))
                .await
        });
        let mut worker = Worker::start(&server, interpreter, script, &[]);
        let status = runtime.block_on(worker.ended());
        assert_eq!(status.code(), Some(1), "{}", worker.log());
        assert!(worker.log().contains("401"), "{}", worker.log());
    }
}

/// A process that dies with the test.
struct Worker {
    child: Child,
    log: Arc<Mutex<String>>,
}

impl Worker {
    fn start(server: &Server, interpreter: &str, script: &str, variables: &[(&str, &str)]) -> Self {
        Self::start_at(server.address, interpreter, script, variables)
    }

    fn start_at(address: SocketAddr, interpreter: &str, script: &str, variables: &[(&str, &str)]) -> Self {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("examples/workers").join(script);
        let child = Command::new(interpreter)
            .arg(path)
            .env("STEADFAST_URL", format!("http://{address}"))
            .env("LEASE_MS", "1000")
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn();
        let mut child = child.unwrap_or_else(|error| panic!("{interpreter} is needed for this test: {error}"));
        let (said, log) = (BufReader::new(child.stderr.take().unwrap()), Arc::new(Mutex::new(String::new())));
        let kept = log.clone();
        std::thread::spawn(move || {
            for line in said.lines().map_while(Result::ok) {
                let mut kept = kept.lock().unwrap();
                kept.push_str(&line);
                kept.push('\n');
            }
        });
        Self { child, log }
    }

    fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([&format!("-{name}"), &pid]).status().unwrap().success());
    }

    async fn ended(&mut self) -> ExitStatus {
        until("the worker ends", async || self.child.try_wait().unwrap()).await
    }

    /// SIGKILL: it cannot clean up.
    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let give_up = Instant::now() + DEADLINE;
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(Instant::now() < give_up, "waited in vain: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn until_status(server: &Server, id: &str, status: &str) -> Value {
    let path = format!("/jobs/{id}");
    until(status, async || Some(server.get(&path).await.expect(200)).filter(|job| job["status"] == status)).await
}

async fn enqueue(server: &Server, payload: Value) -> String {
    let job = server.post("/jobs", json!({"kind": "welcome", "payload": payload})).await.expect(201);
    job["id"].as_str().unwrap().to_owned()
}

async fn outcomes(server: &Server, id: &str) -> Vec<String> {
    let attempts = server.get(&format!("/jobs/{id}/attempts")).await.expect(200);
    attempts.as_array().unwrap().iter().map(|attempt| attempt["outcome"].as_str().unwrap_or("running").into()).collect()
}

/// The body of the first `curl` of the guide whose command holds these words.
fn body_in_the_guide(words: &str) -> Value {
    let guide = shipped("docs/api.md");
    let command = &guide[guide.find(words).unwrap_or_else(|| panic!("no {words} in the guide"))..];
    let body = command.split("-d '").nth(1).unwrap();
    serde_json::from_str(&body[..body.find('\'').unwrap()]).unwrap()
}

async fn does_the_job_of_the_guide(world: World, (interpreter, script): (&str, &str)) {
    let server = world.server().await;
    server
        .put("/kinds/welcome", body_in_the_guide("curl -X PUT http://127.0.0.1:8080/kinds/welcome"))
        .await
        .expect(200);
    let foreign = server.post("/jobs", json!({"kind": "built_in", "payload": {}})).await.expect(201);
    let job = server.post("/jobs", body_in_the_guide("curl -i http://127.0.0.1:8080/jobs ")).await.expect(201);
    let id = job["id"].as_str().unwrap();
    let worker = Worker::start(&server, interpreter, script, &[]);
    until(&format!("it succeeds: {}", worker.log()), async || {
        let job = server.get(&format!("/jobs/{id}")).await.expect(200);
        assert!(job["last_error"].is_null(), "{job}");
        (job["status"] == "succeeded").then_some(())
    })
    .await;
    // A payload that no attempt can help is given up at once.
    let bad = enqueue(&server, json!({"user": "nobody"})).await;
    let job = until_status(&server, &bad, "failed_permanent").await;
    assert!(job["last_error"].as_str().unwrap().contains("not a number") && job["attempts"] == 1, "{job}");
    let foreign = server.get(&format!("/jobs/{}", foreign["id"].as_str().unwrap())).await.expect(200);
    assert_eq!((foreign["status"].as_str(), foreign["attempts"].as_i64()), (Some("queued"), Some(0)));
}

async fn stops_a_cancelled_job(world: World, (interpreter, script): (&str, &str)) {
    let server = world.server().await;
    let id = enqueue(&server, json!({"user": 1, "takes_ms": HOURS_MS})).await;
    let _worker = Worker::start(&server, interpreter, script, &[("SLOTS", "1")]);
    until_status(&server, &id, "running").await;
    server.post(&format!("/jobs/{id}/cancel"), json!({})).await.expect(202);
    until_status(&server, &id, "cancelled").await;
    assert_eq!(outcomes(&server, &id).await, ["cancelled"]);
    // Its only slot is free again: the handler has ended.
    let next = enqueue(&server, json!({"user": 2})).await;
    until_status(&server, &next, "succeeded").await;
}

async fn drops_a_job_that_it_lost(world: World, (interpreter, script): (&str, &str)) {
    let server = world.server().await;
    let id = enqueue(&server, json!({"user": 1, "takes_ms": HOURS_MS})).await;
    let worker = Worker::start(&server, interpreter, script, &[("SLOTS", "1")]);
    until_status(&server, &id, "running").await;
    // It stands still for longer than its lease; meanwhile the job is given to another worker.
    worker.signal("STOP");
    let other = until("the lease expires", async || {
        server.queue.store().reap(Reap::up_to(10)).await.unwrap();
        server.lease(1).await.pop()
    })
    .await;
    worker.signal("CONT");
    until("it is told", async || worker.log().contains(&format!("{id} lost")).then_some(())).await;
    let next = enqueue(&server, json!({"user": 2})).await;
    until_status(&server, &next, "succeeded").await;
    assert!(!worker.log().contains(&format!("{id} released")), "{}", worker.log());
    assert_eq!(server.settle(&other, json!({"outcome": "succeeded"})).await, "recorded");
    assert_eq!(outcomes(&server, &id).await, ["lease_expired", "succeeded"]);
}

async fn leaves_nothing_running(world: World, (interpreter, script): (&str, &str)) {
    let server = world.server().await;
    let brief = enqueue(&server, json!({"user": 1, "takes_ms": 2000})).await;
    let long = enqueue(&server, json!({"user": 2, "takes_ms": HOURS_MS})).await;
    let mut worker = Worker::start(&server, interpreter, script, &[("GRACE_S", "10"), ("LEASE_MS", "10000")]);
    until_status(&server, &brief, "running").await;
    until_status(&server, &long, "running").await;
    worker.signal("INT");
    // The poll that is under way may bring this one: it is given back, or has ended before the signal was noticed.
    let just_then = enqueue(&server, json!({"user": 3})).await;
    until("it takes no more jobs", async || worker.log().contains("stopping;").then_some(())).await;
    let late = enqueue(&server, json!({"user": 4})).await;
    assert_eq!(worker.ended().await.code(), Some(0), "{}", worker.log());
    assert_eq!(outcomes(&server, &brief).await, ["succeeded"], "{}", worker.log());
    assert_eq!(outcomes(&server, &long).await, ["released"], "{}", worker.log());
    until_status(&server, &long, "queued").await;
    let just_then = server.get(&format!("/jobs/{just_then}")).await.expect(200);
    assert!(["queued", "succeeded"].contains(&just_then["status"].as_str().unwrap()), "{just_then}");
    until_status(&server, &late, "queued").await;
    assert!(outcomes(&server, &late).await.is_empty(), "{}", worker.log());
    let stats = server.get("/stats").await.expect(200);
    assert_eq!(stats["totals"]["running"], 0, "{stats}");
}

async fn drains(world: World, (interpreter, script): (&str, &str)) {
    let server = Arc::new(world.server().await);
    let id = enqueue(&server, json!({"user": 1, "takes_ms": 2000})).await;
    let address = that_drains(server.clone()).await;
    let mut worker = Worker::start_at(address, interpreter, script, &[("SLOTS", "1")]);
    assert_eq!(worker.ended().await.code(), Some(0), "{}", worker.log());
    assert_eq!(outcomes(&server, &id).await, ["succeeded"], "{}", worker.log());
}

/// The server, seen through somebody who changes one word of its heartbeats. (A server that really drains takes no new
/// connections, and of those there are it is not known which sends the next heartbeat.)
async fn that_drains(server: Arc<Server>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::spawn(pass_on(server.clone(), stream));
        }
    });
    address
}

/// One request, as it came.
async fn pass_on(server: Arc<Server>, mut stream: TcpStream) -> Option<()> {
    let (mut read, mut chunk) = (Vec::new(), vec![0; 64 * 1024]);
    let (path, body) = loop {
        let n = stream.read(&mut chunk).await.ok().filter(|n| *n > 0)?;
        read.extend_from_slice(&chunk[..n]);
        let text = String::from_utf8(read.clone()).unwrap();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let head = head.to_ascii_lowercase();
        let length: usize = head.split("content-length: ").nth(1)?.split("\r\n").next()?.parse().ok()?;
        if body.len() == length {
            break (head.split(' ').nth(1)?.to_owned(), serde_json::from_str(body).unwrap());
        }
    };
    let reply = server.post(&path, body).await;
    let body = reply.body.replace("\"worker\":\"run\"", "\"worker\":\"drain\"");
    let head = format!("HTTP/1.1 {} X\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", reply.status, body.len());
    stream.write_all(format!("{head}{body}").as_bytes()).await.ok()
}

async fn killed_at_random(world: World, (interpreter, script): (&str, &str)) {
    let server = world.server().await;
    // What a server's reaper does.
    let (store, reaped) = (server.queue.store().clone(), Arc::new(AtomicUsize::new(0)));
    let lost_leases = reaped.clone();
    let reaper = tokio::spawn(async move {
        loop {
            let some = store.reap(Reap::up_to(1000)).await.unwrap();
            reaped.fetch_add(some.len(), Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
    let mut random = fastrand::Rng::with_seed(7);
    let mut workers: Vec<_> = (0..2).map(|_| Worker::start(&server, interpreter, script, &[])).collect();
    let (mut enqueued, mut kills) = (0, 0);
    // A little at a time, so that workers are killed in the middle of it and not after.
    while enqueued < JOBS || lost_leases.load(Ordering::SeqCst) == 0 {
        let jobs: Vec<_> = (enqueued..enqueued + A_LITTLE)
            .map(|n| json!({"kind": "welcome", "payload": {"user": n, "takes_ms": 60}, "max_attempts": 100}))
            .collect();
        server.post("/jobs/batch", json!({"jobs": jobs})).await.expect(200);
        enqueued += A_LITTLE;
        // However long an interpreter takes to start.
        until("somebody is at work, or done", async || {
            let totals = server.get("/stats").await.expect(200)["totals"].clone();
            (totals["running"] != 0 || totals["succeeded"] == enqueued).then_some(())
        })
        .await;
        tokio::time::sleep(Duration::from_millis(random.u64(20..400))).await;
        let victim = random.usize(0..workers.len());
        assert!(workers[victim].is_running(), "a worker ended by itself");
        workers[victim].kill();
        kills += 1;
        workers[victim] = Worker::start(&server, interpreter, script, &[]);
    }
    until("all are done", async || (succeeded(&server).await == enqueued as u64).then_some(())).await;
    drop(workers);
    reaper.abort();
    let mut lost_attempts = 0;
    let mut cursor = None;
    let mut seen = 0;
    loop {
        let page = server.queue.list(List::new().cursor(cursor).limit(200)).await.unwrap();
        for job in &page.jobs {
            seen += 1;
            assert_eq!(job.status, Status::Succeeded);
            let result: Value = job.result.as_ref().unwrap().decode().unwrap();
            assert_eq!(result["welcomed"], job.payload.decode::<Value>().unwrap()["user"]);
            let attempts = server.queue.attempts(job.id).await.unwrap().unwrap();
            let outcomes: Vec<_> = attempts.iter().map(|attempt| attempt.outcome.unwrap().as_str()).collect();
            let (last, others) = outcomes.split_last().unwrap();
            // Released: the worker died while its claim was under way, and the server gave the job back by itself.
            let cut_short = |outcome: &&str| ["lease_expired", "released"].contains(outcome);
            assert!(*last == "succeeded" && others.iter().all(cut_short), "{outcomes:?}");
            lost_attempts += others.len();
        }
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(seen, enqueued);
    println!("{script}: {enqueued} jobs succeeded once each; {kills} kills cost {lost_attempts} attempts");
    assert!(lost_attempts > 0, "the workers were not killed at work");
}

async fn succeeded(server: &Server) -> u64 {
    let stats = server.get("/stats").await.expect(200);
    stats["totals"]["succeeded"].as_u64().unwrap()
}
