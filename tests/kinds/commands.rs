//! Commands: real programs, run by a worker on a file of its own. What a run leaves behind is looked for in `/proc`.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use steadfast::job::{AttemptOutcome, JobId, Json, Kind, KindDefaults, KindDefinition, RetryPolicy};
use steadfast::kinds::command::{Command, CommandSettings};
use steadfast::store::ManualClock;
use steadfast::store::sqlite::{SqliteSettings, SqliteStore};
use steadfast::worker::{WorkerError, WorkerSettings};
use steadfast::{JobRecord, JobRequest, Queue, Status, Worker};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::world::{TIMEOUT, eventually};

const KIND: &str = "report";

/// One queue, one worker with one command.
struct World {
    queue: Queue,
    stop: oneshot::Sender<()>,
    ended: JoinHandle<Result<(), WorkerError>>,
    directory: tempfile::TempDir,
}

fn brisk() -> WorkerSettings {
    WorkerSettings::default()
        .concurrency(8)
        .lease(Duration::from_secs(2))
        .reap_interval(Duration::from_millis(100))
        .shutdown_grace(Duration::from_secs(60))
}

fn shell(script: &str) -> CommandSettings {
    CommandSettings::new("/bin/sh").args(["-c", script])
}

fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

impl World {
    /// The command may write into `$DIR`.
    async fn run(settings: CommandSettings) -> Self {
        Self::run_by(brisk(), settings).await
    }

    async fn run_by(worker: WorkerSettings, settings: CommandSettings) -> Self {
        let directory = directory();
        let url = format!("sqlite://{}", directory.path().join("jobs.db").display());
        let hour = Duration::from_secs(3600);
        let defaults = KindDefaults::default().max_attempts(5).retry(RetryPolicy::fixed([hour]));
        let kind = KindDefinition::any(Kind::new(KIND).unwrap()).defaults(defaults);
        let queue = Queue::builder(&url).built_in_kinds(vec![kind]).open().await.unwrap();
        Self::on(queue, worker, settings, directory)
    }

    fn on(queue: Queue, worker: WorkerSettings, settings: CommandSettings, directory: tempfile::TempDir) -> Self {
        let command = Command::new(settings.env("DIR", directory.path().to_str().unwrap())).unwrap();
        let options = command.options();
        let worker = Worker::new(queue.clone()).settings(worker).handle_raw(KIND, options, move |payload, context| {
            let command = command.clone();
            async move { command.run(payload, &context).await }
        });
        let (stop, stopped) = oneshot::channel();
        let ended = tokio::spawn(worker.run_until(async move {
            let _ = stopped.await;
        }));
        Self { queue, stop, ended, directory }
    }

    async fn enqueue(&self, payload: &Value) -> JobId {
        let request = JobRequest::new(KIND, Json::of(payload).unwrap());
        self.queue.enqueue_request(request).await.unwrap().job.id
    }

    async fn job(&self, id: JobId) -> JobRecord {
        self.queue.get(id).await.unwrap().unwrap()
    }

    /// Waits until the job's first attempt has ended.
    async fn first_end(&self, id: JobId) -> JobRecord {
        eventually("the attempt to end", async || {
            let job = self.job(id).await;
            (!matches!(job.status, Status::Queued | Status::Running)).then_some(job)
        })
        .await
    }

    /// Runs one job to the end of its first attempt.
    async fn once(settings: CommandSettings, payload: &Value) -> JobRecord {
        let world = Self::run(settings).await;
        let id = world.enqueue(payload).await;
        let job = world.first_end(id).await;
        world.stop().await;
        job
    }

    /// Waits for a process that wrote its id to this file.
    async fn process(&self, file: &str) -> RunningProcess {
        let path = self.directory.path().join(file);
        eventually("a process to say its id", async || RunningProcess::read(&path)).await
    }

    async fn outcome(&self, id: JobId) -> Option<AttemptOutcome> {
        self.queue.attempts(id).await.unwrap().unwrap()[0].outcome
    }

    /// Answers when the worker has ended, with what the queue needs to be read.
    async fn stop(self) -> tempfile::TempDir {
        let _ = self.stop.send(());
        tokio::time::timeout(TIMEOUT, self.ended).await.unwrap().unwrap().unwrap();
        self.directory
    }
}

/// A process that a command started.
struct RunningProcess(PathBuf);

impl RunningProcess {
    /// The id is complete once its line is.
    fn read(file: &Path) -> Option<Self> {
        let id = std::fs::read_to_string(file).ok()?;
        Some(Self(Path::new("/proc").join(id.strip_suffix('\n')?)))
    }

    /// A zombie does nothing any more; whose child it is decides when it is reaped.
    fn is_gone(&self) -> bool {
        let stat = std::fs::read_to_string(self.0.join("stat"));
        stat.map_or(true, |stat| stat.rsplit(") ").next().unwrap().starts_with(['Z', 'X']))
    }
}

/// Children of this process that ended and were not waited for.
fn zombies(name: &str) -> Vec<String> {
    let parent = std::process::id().to_string();
    let stats = std::fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let stat = std::fs::read_to_string(entry.ok()?.path().join("stat")).ok()?;
        let (id_and_name, rest) = stat.rsplit_once(") ")?;
        let mut fields = rest.split(' ');
        let is_one = fields.next() == Some("Z") && fields.next() == Some(&parent);
        (is_one && id_and_name.ends_with(&format!("({name}"))).then_some(stat)
    });
    stats.collect()
}

fn result(job: &JobRecord) -> Value {
    assert_eq!(job.status, Status::Succeeded, "{:?}", job.last_error);
    job.result.as_ref().map_or(Value::Null, |result| result.decode().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_payload_is_the_input_and_the_output_is_the_result() {
    let payload = json!({"month": "2030-01", "text": "$(touch x) `touch x` ; é"});
    let echoed = World::once(CommandSettings::new("/bin/cat"), &payload).await;
    assert_eq!(result(&echoed), payload);
    let text = World::once(shell("echo 12 pages; echo to Paris"), &payload).await;
    assert_eq!(result(&text), json!("12 pages\nto Paris"));
    let binary = World::once(shell(r"printf '\377\001'"), &payload).await;
    assert_eq!(result(&binary), json!("\u{fffd}\u{1}"));
    assert_eq!(World::once(shell("true"), &payload).await.result, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_environment_has_what_was_given_and_nothing_of_the_servers() {
    let settings = CommandSettings::new("/usr/bin/env").env("TZ", "UTC").env("LANG", "C");
    let world = World::run(settings).await;
    let id = world.enqueue(&json!({})).await;
    let shown = result(&world.first_end(id).await);
    let mut names = Vec::new();
    for line in shown.as_str().unwrap().lines() {
        let (name, value) = line.split_once('=').unwrap();
        match name {
            "STEADFAST_JOB_ID" => assert_eq!(value, id.to_string()),
            "STEADFAST_JOB_KIND" => assert_eq!(value, KIND),
            "STEADFAST_JOB_ATTEMPT" => assert_eq!(value, "1"),
            "LANG" => assert_eq!(value, "C"),
            "TZ" => assert_eq!(value, "UTC"),
            _ => {}
        }
        names.push(name);
    }
    names.retain(|name| !["PATH", "HOME"].contains(name));
    names.sort_unstable();
    assert_eq!(names, ["DIR", "LANG", "STEADFAST_JOB_ATTEMPT", "STEADFAST_JOB_ID", "STEADFAST_JOB_KIND", "TZ"]);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_exit_code_decides_and_the_end_of_stderr_is_the_error() {
    for (script, status, error) in [
        ("exit 0", Status::Succeeded, None),
        ("echo disk full >&2; exit 1", Status::Retrying, Some("exit code 1: disk full")),
        ("exit 75", Status::Retrying, Some("exit code 75")),
        ("echo no such month >&2; exit 65", Status::FailedPermanent, Some("exit code 65: no such month")),
        ("exit 100", Status::FailedPermanent, Some("exit code 100")),
        ("echo half-way; kill -9 $$", Status::Retrying, Some("ended by signal 9 (SIGKILL)")),
        ("kill -TERM $$", Status::Retrying, Some("ended by signal 15 (SIGTERM)")),
    ] {
        let job = World::once(shell(script), &json!({})).await;
        assert_eq!((job.status, job.last_error.as_deref()), (status, error), "{script}");
    }
    let long = World::once(shell("seq 100000 >&2; exit 1"), &json!({})).await.last_error.unwrap();
    assert!(long.ends_with("\n99999\n100000") && long.len() < 5_000, "{} bytes", long.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_reads_nothing_or_writes_while_it_reads_ends_all_the_same() {
    let payload = json!("x".repeat(200_000));
    let closed = World::once(shell("exec <&-; echo done"), &payload).await;
    assert_eq!(result(&closed), json!("done"));
    let both = World::once(shell("tee /dev/stderr"), &payload).await;
    assert_eq!(result(&both), payload);
}

#[tokio::test(flavor = "multi_thread")]
async fn more_output_than_a_result_may_have_is_a_permanent_failure_that_says_so() {
    let job = World::once(shell("head -c 50000000 /dev/zero"), &json!({})).await;
    assert_eq!(job.status, Status::FailedPermanent);
    let error = job.last_error.unwrap();
    assert!(error.contains("50000000 bytes") && error.contains("262144 at most"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn endless_output_ends_with_the_timeout_which_is_recorded_as_one() {
    let world = World::run(shell("echo $$ > $DIR/id; exec yes").timeout(Duration::from_millis(500))).await;
    let id = world.enqueue(&json!({})).await;
    let process = world.process("id").await;
    let job = world.first_end(id).await;
    assert!(process.is_gone(), "the attempt ends after the program");
    assert_eq!((job.status, world.outcome(id).await), (Status::Retrying, Some(AttemptOutcome::TimedOut)));
    assert_eq!(job.last_error.as_deref(), Some("timed out: the command ran longer than 500 ms"));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_is_told_to_end_before_it_is_killed() {
    let script =
        "trap 'echo asked > $DIR/asked; echo tidied >&2; exit 3' TERM; echo $$ > $DIR/id; while :; do sleep 0.05; done";
    let world = World::run(shell(script).timeout(Duration::from_secs(1))).await;
    let id = world.enqueue(&json!({})).await;
    let job = world.first_end(id).await;
    assert_eq!(std::fs::read_to_string(world.directory.path().join("asked")).unwrap(), "asked\n");
    // A shell may say more: that the program it waited for was terminated, too.
    let error = job.last_error.unwrap();
    assert!(
        error.starts_with("timed out: the command ran longer than 1000 ms: ") && error.ends_with("tidied"),
        "{error}"
    );
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_command_is_gone_with_what_it_started_even_if_that_ignores_sigterm() {
    // Both ignore SIGTERM; the inner one is a child of the outer and in its group.
    let script = "trap '' TERM; sh -c 'echo $$ > $DIR/inner; exec sleep 1000' & echo $$ > $DIR/outer; wait; sleep 1000";
    let world = World::run(shell(script)).await;
    let id = world.enqueue(&json!({})).await;
    let (outer, inner) = (world.process("outer").await, world.process("inner").await);
    assert!(!outer.is_gone() && !inner.is_gone());
    world.queue.cancel(id).await.unwrap();
    let job = eventually("the job to end", async || Some(world.job(id).await).filter(|job| job.status.is_terminal()));
    assert_eq!(job.await.status, Status::Cancelled);
    assert!(outer.is_gone() && inner.is_gone());
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_program_leaves_in_the_background_does_not_outlive_its_job() {
    let script =
        "sh -c 'echo $$ > $DIR/left; exec sleep 1000' & while [ ! -s $DIR/left ]; do sleep 0.01; done; echo done";
    let world = World::run(shell(script)).await;
    let id = world.enqueue(&json!({})).await;
    assert_eq!(result(&world.first_end(id).await), json!("done"));
    assert!(world.process("left").await.is_gone());
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn at_the_jobs_own_timeout_the_program_is_ended_too() {
    let world = World::run(shell("echo $$ > $DIR/id; exec sleep 1000")).await;
    let request = JobRequest::new(KIND, Json::null()).timeout_ms(1_000);
    let id = world.queue.enqueue_request(request).await.unwrap().job.id;
    let process = world.process("id").await;
    let job = world.first_end(id).await;
    assert_eq!((job.status, world.outcome(id).await), (Status::Retrying, Some(AttemptOutcome::TimedOut)));
    eventually("the program to end", async || process.is_gone().then_some(())).await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_lost_lease_the_program_ends_before_the_job_starts_again_here() {
    let directory = directory();
    let clock = Arc::new(ManualClock::at("2030-01-01T00:00:00Z".parse().unwrap()));
    let store = SqliteStore::open(SqliteSettings::at(directory.path().join("jobs.db")).clock(clock.clone())).unwrap();
    let wake = store.wake().clone();
    let queue = Queue::over(Arc::new(store), wake);
    queue.put_kind(KindDefinition::any(Kind::new(KIND).unwrap())).await.unwrap();
    let script = "if [ $STEADFAST_JOB_ATTEMPT = 1 ]; then echo $$ > $DIR/id; exec sleep 1000; fi; \
                  kill -0 $(cat $DIR/id) 2> /dev/null && exit 100; echo alone";
    let world = World::on(queue, brisk(), shell(script), directory);
    let id = world.enqueue(&json!({})).await;
    let process = world.process("id").await;
    clock.advance(Duration::from_secs(3600));
    let job =
        eventually("the job to end", async || Some(world.job(id).await).filter(|job| job.status.is_terminal())).await;
    assert_eq!((result(&job), job.attempts), (json!("alone"), 2));
    assert!(process.is_gone());
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_lets_a_command_finish_within_the_grace_period() {
    let world = World::run(shell("echo $$ > $DIR/id; sleep 0.1; echo done")).await;
    let id = world.enqueue(&json!({})).await;
    world.process("id").await;
    let queue = world.queue.clone();
    let _directory = world.stop().await;
    assert_eq!(result(&queue.get(id).await.unwrap().unwrap()), json!("done"));
}

#[tokio::test(flavor = "multi_thread")]
async fn at_the_end_of_the_grace_period_a_command_is_told_to_end_and_its_job_is_released() {
    let script =
        "trap 'sleep 0.2; echo tidied > $DIR/tidied; exit 0' TERM; echo $$ > $DIR/id; while :; do sleep 0.05; done";
    let brief = brisk().shutdown_grace(Duration::from_millis(300));
    let world = World::run_by(brief, shell(script)).await;
    let id = world.enqueue(&json!({})).await;
    let process = world.process("id").await;
    let queue = world.queue.clone();
    let directory = world.stop().await;
    let tidied = directory.path().join("tidied").exists();
    assert!(process.is_gone() && tidied, "the worker waits for what it told to end");
    let job = queue.get(id).await.unwrap().unwrap();
    assert_eq!((job.status, job.attempts), (Status::Queued, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_is_dropped_leaves_no_program_behind() {
    let world = World::run(shell("echo $$ > $DIR/id; exec sleep 1000")).await;
    world.enqueue(&json!({})).await;
    let process = world.process("id").await;
    world.ended.abort();
    eventually("the program to end", async || process.is_gone().then_some(())).await;
}

#[test]
fn a_runtime_that_is_dropped_leaves_no_program_behind() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let (process, _directory) = runtime.block_on(async {
        // Ignores SIGTERM: only SIGKILL ends it.
        let world = World::run(shell("trap '' TERM; echo $$ > $DIR/id; while :; do sleep 0.05; done")).await;
        world.enqueue(&json!({})).await;
        (world.process("id").await, world.directory)
    });
    runtime.shutdown_timeout(TIMEOUT);
    let began = std::time::Instant::now();
    while !process.is_gone() {
        assert!(began.elapsed() < TIMEOUT, "the program goes on");
        std::thread::yield_now();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn after_many_runs_there_are_no_zombies_and_no_open_files_are_left() {
    const RUNS: usize = 400;
    // A name that no other test's programs have.
    let directory = directory();
    let program = directory.path().join("uncommon-sh");
    std::os::unix::fs::symlink("/bin/sh", &program).unwrap();
    let world = World::run(CommandSettings::new(&program).args(["-c", "exit 0"]).concurrency(8)).await;
    let mut ids = Vec::new();
    for _ in 0..RUNS {
        ids.push(world.enqueue(&json!({})).await);
    }
    for id in ids {
        let job = world.first_end(id).await;
        assert_eq!(job.status, Status::Succeeded, "{:?}", job.last_error);
    }
    eventually("every program to be waited for", async || zombies("uncommon-sh").is_empty().then_some(())).await;
    let pipes = std::fs::read_dir("/proc/self/fd").unwrap().count();
    assert!(pipes < RUNS, "{pipes} files are open");
    world.stop().await;
}
