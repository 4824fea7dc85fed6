//! A queue of its own for every test, on either store, workers on it, and a network that ends at the loopback.

use std::fmt::{Debug, Write};
use std::future::Future;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use steadfast::api::{ApiSettings, serve};
use steadfast::job::{AttemptRecord, JobId, KindDefaults, KindDefinition};
use steadfast::outbound::{Dial, Network, Outbound, Policy, Resolve, Roots};
use steadfast::store::ManualClock;
use steadfast::store::sqlite::{SqliteSettings, SqliteStore};
use steadfast::worker::{HandlerOptions, WorkerError, WorkerSettings};
use steadfast::{Context, Job, JobRecord, Json, Queue, Status, Worker};
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::support::postgres::{Cluster, TestDatabase};

/// Machines are slow; nothing here should take that long.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(120);

/// One store. Worlds share nothing with each other.
pub(crate) struct World {
    pub(crate) queue: Queue,
    _home: Home,
}

/// Where the jobs are, for as long as the world lasts.
enum Home {
    File(#[expect(dead_code, reason = "removed when dropped")] TempDir),
    Database(#[expect(dead_code, reason = "removed when dropped")] TestDatabase),
}

impl World {
    pub(crate) async fn sqlite() -> Self {
        // Beside the build, on a real disk: a system's temporary directory may be memory, where syncing is free.
        let directory = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let url = format!("sqlite://{}", directory.path().join("jobs.db").display());
        Self { queue: Queue::open(&url).await.unwrap(), _home: Home::File(directory) }
    }

    pub(crate) async fn postgres() -> Self {
        let database = Cluster::shared().await.database().await;
        Self { queue: Queue::open(&database.url).await.unwrap(), _home: Home::Database(database) }
    }

    /// One on each store.
    pub(crate) async fn both() -> [Self; 2] {
        [Self::sqlite().await, Self::postgres().await]
    }

    /// Time passes only when the test says so, for the store; polls and calls go on.
    pub(crate) async fn with_held_clock() -> (Self, Arc<ManualClock>) {
        let directory = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let clock = Arc::new(ManualClock::at("2030-01-01T00:00:00Z".parse().unwrap()));
        let store =
            SqliteStore::open(SqliteSettings::at(directory.path().join("jobs.db")).clock(clock.clone())).unwrap();
        let wake = store.wake().clone();
        (Self { queue: Queue::over(Arc::new(store), wake), _home: Home::File(directory) }, clock)
    }

    /// Declares a kind with other defaults than its own, such as short waits between attempts.
    pub(crate) async fn declare_with<J: Job>(&self, change: impl FnOnce(KindDefaults) -> KindDefaults) {
        let definition = KindDefinition::of::<J>().unwrap().defaults(change(J::defaults()));
        self.queue.put_kind(definition).await.unwrap();
    }

    pub(crate) async fn enqueue<J: Job>(&self, job: J) -> JobId {
        self.queue.enqueue(job).await.unwrap().job.id
    }

    pub(crate) async fn job(&self, id: JobId) -> JobRecord {
        self.queue.get(id).await.unwrap().expect("the job is there")
    }

    pub(crate) async fn attempts(&self, id: JobId) -> Vec<AttemptRecord> {
        self.queue.attempts(id).await.unwrap().expect("the job is there")
    }

    /// Waits until the job is where it should be.
    pub(crate) async fn reaches(&self, id: JobId, status: Status) -> JobRecord {
        eventually(&format!("job {id} to be {status}"), async || {
            let job = self.job(id).await;
            (job.status == status).then_some(job)
        })
        .await
    }

    /// Waits until the job succeeded, failed for good, or was cancelled.
    pub(crate) async fn ends(&self, id: JobId) -> JobRecord {
        eventually(&format!("the end of job {id}"), async || {
            let job = self.job(id).await;
            job.status.is_terminal().then_some(job)
        })
        .await
    }

    /// A worker for jobs of one kind, which keeps the kind as it was declared.
    pub(crate) fn worker<F, Fut>(&self, kind: &str, run: F) -> Worker
    where
        F: Fn(Json, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<steadfast::worker::Completion, steadfast::worker::JobError>> + Send + 'static,
    {
        Worker::new(self.queue.clone()).settings(brisk()).handle_raw(kind, HandlerOptions::new(), run)
    }

    /// The HTTP API on this queue, until the test is over.
    pub(crate) async fn api(&self) -> Api {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        tokio::spawn(serve(listener, ApiSettings::new(self.queue.clone()), async move {
            let _ = stopped.await;
        }));
        Api { address, _stop: stop }
    }
}

pub(crate) struct Api {
    address: SocketAddr,
    _stop: oneshot::Sender<()>,
}

impl Api {
    pub(crate) fn call(&self, method: &str, path: &str) -> crate::client::Call {
        crate::client::Call::new(self.address, method, path)
    }
}

/// Asks again and again until there is an answer.
pub(crate) async fn eventually<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let mut again = tokio::time::interval(Duration::from_millis(5));
    let asking = async {
        loop {
            if let Some(answer) = ask().await {
                return answer;
            }
            again.tick().await;
        }
    };
    tokio::time::timeout(TIMEOUT, asking).await.unwrap_or_else(|_| panic!("waited in vain for {what}"))
}

pub(crate) async fn in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(TIMEOUT, future).await.unwrap_or_else(|_| panic!("waited in vain for {what}"))
}

/// Short leases and intervals, so that what takes half a minute in production takes a second here.
pub(crate) fn brisk() -> WorkerSettings {
    WorkerSettings::default()
        .concurrency(8)
        .lease(Duration::from_secs(4))
        .reap_interval(Duration::from_millis(100))
        .poll_min(Duration::from_millis(20))
        .poll_max(Duration::from_millis(50))
        .shutdown_grace(Duration::from_secs(10))
}

/// A worker that runs until it is told to stop.
pub(crate) struct Running {
    stop: oneshot::Sender<()>,
    ended: JoinHandle<Result<(), WorkerError>>,
}

impl Running {
    pub(crate) fn start<S: Send + Sync + 'static>(worker: Worker<S>) -> Self {
        let (stop, stopped) = oneshot::channel();
        let ended = tokio::spawn(worker.run_until(async move {
            let _ = stopped.await;
        }));
        Self { stop, ended }
    }

    /// Shuts it down and waits for its end.
    pub(crate) async fn stop(self) {
        let _ = self.stop.send(());
        in_time("the worker to stop", self.ended).await.expect("the worker does not panic").unwrap();
    }
}

/// Names below `.test` lead to the loopback, others nowhere; and nothing but the loopback is dialled, whatever was decided
/// before.
struct Loopback;

#[async_trait]
impl Resolve for Loopback {
    async fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        match host.ends_with(".test") {
            true => Ok(vec![SocketAddr::from((Ipv4Addr::LOCALHOST, port))]),
            false => Err(io::Error::new(io::ErrorKind::NotFound, "no such name")),
        }
    }
}

#[async_trait]
impl Dial for Loopback {
    async fn dial(&self, address: SocketAddr) -> io::Result<TcpStream> {
        assert!(address.ip().is_loopback(), "a test tried to leave the machine");
        TcpStream::connect(address).await
    }
}

pub(crate) fn network() -> Network {
    Network::new(Arc::new(Loopback), Arc::new(Loopback))
}

/// For callers' URLs; the loopback is allowed.
pub(crate) fn guarded() -> Outbound {
    Outbound::guarded(Policy::default().allow("loopback").unwrap(), network(), Roots::none())
}

/// As an operator has it who set nothing.
pub(crate) fn strictly_guarded() -> Outbound {
    Outbound::guarded(Policy::default(), network(), Roots::none())
}

pub(crate) fn trusted() -> Outbound {
    Outbound::trusted(network(), Roots::none())
}

/// One installation at a time; the tests of this program run side by side.
static INSTALLING: Mutex<()> = Mutex::new(());

fn tests() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kinds")
}

/// A Python program in an environment of its own below `target`, so that nothing of the machine is touched. It has what
/// `requirements.txt` lists.
pub(crate) fn python_tool(name: &str) -> PathBuf {
    let _alone = INSTALLING.lock().unwrap_or_else(PoisonError::into_inner);
    let wanted = std::fs::read_to_string(tests().join("requirements.txt")).unwrap();
    let environment = Path::new(env!("CARGO_TARGET_TMPDIR")).join("kinds-python");
    // Written last: an installation that was interrupted, or another list, is done again.
    let installed = environment.join("installed.txt");
    if std::fs::read_to_string(&installed).ok().as_ref() != Some(&wanted) {
        run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&environment));
        let requirements = tests().join("requirements.txt");
        run(Command::new(environment.join("bin/pip")).args(["install", "--quiet", "-r"]).arg(requirements));
        std::fs::write(&installed, wanted).unwrap();
    }
    environment.join("bin").join(name)
}

/// The npm packages that tests use, with exact versions.
const NODE_PACKAGES: &str = "standardwebhooks@1.1.1";

/// A directory below `target` where `node` finds [`NODE_PACKAGES`].
pub(crate) fn node_directory() -> PathBuf {
    let _alone = INSTALLING.lock().unwrap_or_else(PoisonError::into_inner);
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("kinds-node");
    let installed = directory.join("installed.txt");
    if std::fs::read_to_string(&installed).ok().as_deref() != Some(NODE_PACKAGES) {
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join("package.json"), "{\"private\":true}").unwrap();
        let mut install = Command::new("npm");
        install.args(["install", "--no-audit", "--no-fund", "--ignore-scripts", "--save-exact", NODE_PACKAGES]);
        run(install.current_dir(&directory));
        std::fs::write(&installed, NODE_PACKAGES).unwrap();
    }
    directory
}

fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?} is needed for this test: {error}"));
    assert!(output.status.success(), "{command:?}: {output:?}");
}

/// Everything that this program has logged, at every level, as text. It is one log for all tests of the program: look for
/// what only your test can have said.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<String>>);

impl Log {
    pub(crate) fn kept() -> Self {
        static LOG: OnceLock<Log> = OnceLock::new();
        let log = LOG.get_or_init(|| {
            let log = Log::default();
            tracing::subscriber::set_global_default(log.clone()).unwrap();
            log
        });
        log.clone()
    }

    pub(crate) fn text(&self) -> String {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Visit for Log {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        writeln!(self.0.lock().unwrap_or_else(PoisonError::into_inner), "{field}={value:?}").unwrap();
    }
}

impl Subscriber for Log {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, span: &Attributes<'_>) -> Id {
        span.record(&mut self.clone());
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, values: &Record<'_>) {
        values.record(&mut self.clone());
    }
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        event.record(&mut self.clone());
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}
