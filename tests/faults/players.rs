//! Processes to be stopped, continued and killed: this test program, started again to play a part.
//!
//! Only the parts are here: a server, a worker on the database, a worker over HTTP. When each dies is the scenario's
//! affair. Their handlers write into a [`Journal`].

use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use steadfast::api::{ApiLimits, ApiSettings, serve};
use steadfast::job::KindDefaults;
use steadfast::worker::{JobError, WorkerHealth, WorkerSettings, run_housekeeping, shutdown_signal};
use steadfast::{Context, Job, Queue, Worker};

use crate::journal::Journal;
use crate::remote;

const PART: &str = "STEADFAST_TEST_PART";
const SCRIPT: &str = "STEADFAST_TEST_SCRIPT";
/// Sets what a part says apart from what the test harness prints.
const SAYS: &str = "says ";

/// 1 s: the shortest there is.
pub(crate) const LEASE: Duration = Duration::from_secs(1);
/// For leases that must not run out, however slow the machine is.
pub(crate) const LONG_LEASE: Duration = Duration::from_secs(60);
pub(crate) const REAP_INTERVAL: Duration = Duration::from_millis(200);
/// 10 minutes: work that no grace period outlasts, and no test. Whoever is at it is killed at it.
pub(crate) const LONG_WORK_MS: u64 = 600_000;

/// A job that takes its time and sometimes fails.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Task {
    pub(crate) work_ms: u64,
    #[serde(default)]
    pub(crate) fail_percent: u8,
}

impl Job for Task {
    const KIND: &'static str = "task";

    fn defaults() -> KindDefaults {
        KindDefaults::default().max_attempts(50)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// API, worker, reaper: everything that `steadfast serve` is.
    Server,
    /// API and reaper; others do the work.
    Api,
    /// A worker on the database.
    Worker,
    /// A worker over HTTP.
    Remote,
}

/// What a part is told.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Script {
    /// Of the database; for a worker over HTTP, of the server.
    pub(crate) url: String,
    pub(crate) journal: PathBuf,
    /// Jobs at one time.
    pub(crate) slots: usize,
    pub(crate) lease_ms: u64,
    /// At shutdown.
    pub(crate) grace_ms: u64,
    /// This one reports failure, whatever its job says.
    pub(crate) always_fails: bool,
    /// And takes this long, instead of what its job says.
    pub(crate) work_ms: Option<u64>,
    /// Enqueues at one time, for a server.
    pub(crate) enqueues_in_flight: Option<usize>,
}

/// Not a case of its own: without a part there is nothing to play.
#[test]
fn plays_its_part_when_it_is_started_as_a_process_of_its_own() {
    let Ok(name) = std::env::var(PART) else { return };
    // Whatever the scenario dies of, nothing of it stays behind.
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(1);
    });
    let script: Script = serde_json::from_str(&std::env::var(SCRIPT).unwrap()).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    match name.as_str() {
        "Server" => runtime.block_on(play_server(&script, true)),
        "Api" => runtime.block_on(play_server(&script, false)),
        "Worker" => runtime.block_on(play_worker(&script)),
        "Remote" => {
            say("ready");
            remote::work(script);
        }
        other => panic!("no part {other}"),
    }
}

async fn play_server(script: &Script, works: bool) {
    let queue = Queue::open(&script.url).await.unwrap();
    queue.declare::<Task>().await.unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let limits = match script.enqueues_in_flight {
        Some(max) => ApiLimits::default().enqueues_in_flight(max),
        None => ApiLimits::default(),
    };
    let settings = ApiSettings::new(queue.clone()).limits(limits);
    let serving = tokio::spawn(async move { serve(listener, settings, shutdown_signal()).await.unwrap() });
    say(&format!("ready http://{address}"));
    if works {
        worker(queue, script).run_until(shutdown_signal()).await.unwrap();
    } else {
        let health = WorkerHealth::default();
        run_housekeeping(queue, worker_settings(script), health, shutdown_signal()).await.unwrap();
    }
    serving.await.unwrap();
}

async fn play_worker(script: &Script) {
    let queue = Queue::open(&script.url).await.unwrap();
    say("ready");
    worker(queue, script).run_until(shutdown_signal()).await.unwrap();
}

pub(crate) fn worker_settings(script: &Script) -> WorkerSettings {
    WorkerSettings::default()
        .concurrency(script.slots)
        .lease(Duration::from_millis(script.lease_ms))
        .reap_interval(REAP_INTERVAL)
        .shutdown_grace(Duration::from_millis(script.grace_ms))
}

pub(crate) fn worker(queue: Queue, script: &Script) -> Worker<Journal> {
    let (always_fails, work_ms) = (script.always_fails, script.work_ms);
    let worker = Worker::new(queue).settings(worker_settings(script)).with_state(Journal::at(&script.journal));
    worker.handle(move |task: Task, context: Context<Journal>| async move {
        let run = context.state().start(context.job_id(), context.attempt(), context.worker_id().as_str());
        tokio::time::sleep(Duration::from_millis(work_ms.unwrap_or(task.work_ms))).await;
        context.state().end(run);
        if always_fails || fastrand::u8(..100) < task.fail_percent {
            return Err(JobError::new("as the dice said").retry_after(Duration::ZERO));
        }
        Ok(json!({ "run": run }))
    })
}

/// One line, in one piece, and on a line of its own.
fn say(words: &str) {
    let mut out = std::io::stdout().lock();
    out.write_all(format!("\n{SAYS}{words}\n").as_bytes()).unwrap();
    out.flush().unwrap();
}

impl Script {
    pub(crate) fn new(url: &str, journal: &Journal) -> Self {
        Self {
            url: url.into(),
            journal: journal.path().into(),
            slots: 8,
            lease_ms: LEASE.as_millis() as u64,
            grace_ms: 10_000,
            always_fails: false,
            work_ms: None,
            enqueues_in_flight: None,
        }
    }
}

/// A process that plays a part. Killed when dropped.
pub(crate) struct Player {
    child: Child,
    /// Of a server.
    pub(crate) url: String,
}

impl Player {
    /// Returns when it is ready.
    pub(crate) fn start(part: Part, script: &Script) -> Self {
        let test = "players::plays_its_part_when_it_is_started_as_a_process_of_its_own";
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture", "--test-threads=1"])
            .env(PART, format!("{part:?}"))
            .env(SCRIPT, serde_json::to_string(script).unwrap())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut player = Self { child, url: String::new() };
        let said = lines.by_ref().map_while(Result::ok).find_map(|line| line.strip_prefix(SAYS).map(str::to_owned));
        let Some(said) = said else { panic!("{part:?} ended before it was ready: {:?}", player.child.wait()) };
        player.url = said.trim_start_matches("ready").trim().to_owned();
        // So that it never waits for somebody to read what the harness says at its end.
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
        player
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([&format!("-{name}"), &pid]).status().unwrap().success());
    }

    /// `SIGKILL`: no handler, no destructor, no farewell.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(crate) fn is_alive(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Waits for its end.
    pub(crate) fn ended(&mut self) -> std::process::ExitStatus {
        crate::stage::until("the process ends", || self.child.try_wait().unwrap())
    }

    /// SIGTERM, then an orderly end.
    pub(crate) fn stop(mut self) {
        self.signal("TERM");
        let status = self.ended();
        assert!(status.success(), "{status}");
    }
}

impl Drop for Player {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// How a task is sent over HTTP.
pub(crate) fn body(task: &Task, key: &str) -> Value {
    json!({ "kind": Task::KIND, "payload": task, "idempotency_key": key })
}
