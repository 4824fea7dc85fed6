//! The words the cases are written in: a file of jobs in a directory of its own, the store on it, and the
//! connection of another program, which opens the same file with plain SQLite.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use steadfast::job::limits::LEASE_DEFAULT;
use steadfast::job::{JobId, JobRecord, JobRequest, Json, KindDefaults, Lease, Limits, NewJob, WorkerId};
use steadfast::store::sqlite::{SqliteSettings, SqliteStore};
use steadfast::store::{Claim, JobStore, List, ManualClock, StatsRequest, StoreError, WorkerFate};
use tempfile::TempDir;

use crate::changed::changed;

/// The lease of every claim that does not ask for another.
pub(crate) const LEASE: Duration = LEASE_DEFAULT;

/// 60 s: what a case waits for takes milliseconds, but machines are slow.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

pub(crate) struct JobsFile {
    pub(crate) path: PathBuf,
    pub(crate) dir: TempDir,
}

impl JobsFile {
    pub(crate) fn new() -> Self {
        // Beside the build, on a real disk: a system's temporary directory may be memory, where syncing is free.
        let dir = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        Self { path: dir.path().join("jobs.db"), dir }
    }

    /// A file that a store has made, filled with `count` jobs and closed again.
    pub(crate) async fn with_jobs(count: usize) -> (Self, Vec<JobId>) {
        let file = Self::new();
        let ids = enqueue(&file.open(), jobs(count)).await;
        (file, ids)
    }

    pub(crate) fn open(&self) -> Arc<SqliteStore> {
        open(&self.path)
    }

    /// With a clock that stands still until it is moved.
    pub(crate) fn open_held(&self) -> (Arc<SqliteStore>, Arc<ManualClock>) {
        let clock = Arc::new(ManualClock::at("2030-01-01T00:00:00Z".parse().unwrap()));
        (self.open_at(&clock), clock)
    }

    pub(crate) fn open_at(&self, clock: &Arc<ManualClock>) -> Arc<SqliteStore> {
        let settings = SqliteSettings::at(&self.path).clock(clock.clone());
        Arc::new(SqliteStore::open(settings).unwrap())
    }

    /// The connection of another program.
    pub(crate) fn external_connection(&self) -> Connection {
        external_connection(&self.path)
    }

    /// Another program that holds the write lock until the answer is dropped.
    pub(crate) fn held_lock(&self) -> HeldLock {
        let connection = self.external_connection();
        connection.execute_batch("BEGIN IMMEDIATE").unwrap();
        HeldLock(connection)
    }

    /// Makes the database refuse what matches, as a constraint of its own would. `what` is `INSERT`, `UPDATE` or `DELETE`.
    pub(crate) fn refuse(&self, what: &str, when: &str) {
        let sql = format!(
            "CREATE TRIGGER planted_{what} BEFORE {what} ON jobs WHEN {when}
             BEGIN SELECT RAISE(ABORT, 'planted'); END"
        );
        self.external_connection().execute_batch(&sql).unwrap();
    }

    /// `jobs.db` → `jobs.db-wal` and the like.
    pub(crate) fn beside(&self, suffix: &str) -> PathBuf {
        let mut path = self.path.as_os_str().to_owned();
        path.push(suffix);
        path.into()
    }
}

/// Lets go of the lock when dropped: closing a connection ends its transaction.
pub(crate) struct HeldLock(#[expect(dead_code, reason = "held, not used")] Connection);

pub(crate) fn open(path: &Path) -> Arc<SqliteStore> {
    Arc::new(SqliteStore::open(SqliteSettings::at(path)).unwrap())
}

/// A file that only its owner may read, as the store wants it.
pub(crate) fn write_private(path: &Path, content: &[u8]) {
    std::fs::write(path, content).unwrap();
    make_private(path);
}

pub(crate) fn make_private(path: &Path) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
}

pub(crate) fn external_connection(path: &Path) -> Connection {
    let connection = Connection::open(path).unwrap();
    connection.busy_timeout(DEADLINE).unwrap();
    connection
}

pub(crate) fn job() -> JobRequest {
    JobRequest::new("welcome", Json::parse(r#"{"user":42}"#.into()).unwrap())
}

pub(crate) fn in_queue(queue: &str) -> JobRequest {
    job().queue(queue)
}

/// A job that takes this much room in the file.
pub(crate) fn job_of(bytes: usize) -> JobRequest {
    changed(job(), |job| job.payload = Json::parse(format!("\"{}\"", "x".repeat(bytes))).unwrap())
}

pub(crate) fn checked(request: JobRequest) -> NewJob {
    NewJob::new(request, &KindDefaults::default(), &Limits::default(), jiff::Timestamp::now()).unwrap()
}

pub(crate) fn jobs(count: usize) -> Vec<NewJob> {
    (0..count).map(|_| checked(job())).collect()
}

pub(crate) async fn enqueue(store: &SqliteStore, jobs: Vec<NewJob>) -> Vec<JobId> {
    store.enqueue(jobs).await.unwrap().iter().map(|enqueued| enqueued.job.id).collect()
}

pub(crate) async fn enqueue_one(store: &SqliteStore, request: JobRequest) -> JobId {
    enqueue(store, vec![checked(request)]).await[0]
}

pub(crate) fn claim_of(max: usize) -> Claim {
    let worker = WorkerId::new("host-1").unwrap();
    Claim::new(worker, LEASE).max(max).fate(WorkerFate::Shared)
}

pub(crate) async fn claim(store: &SqliteStore, max: usize) -> Vec<Lease> {
    store.claim(claim_of(max)).await.unwrap().leases
}

pub(crate) async fn job_with(store: &SqliteStore, id: JobId) -> JobRecord {
    store.get(vec![id]).await.unwrap().remove(0).unwrap_or_else(|| panic!("job {id} is gone"))
}

/// Every job there is, page after page.
pub(crate) async fn walk(store: &SqliteStore) -> Result<Vec<JobRecord>, StoreError> {
    let mut list = List::new().limit(200);
    let mut jobs = Vec::new();
    loop {
        let page = store.list(list.clone()).await?;
        jobs.extend(page.jobs);
        match page.next {
            Some(next) => list.cursor = Some(next),
            None => return Ok(jobs),
        }
    }
}

/// `(queue, status)` → how many.
pub(crate) type Tally = BTreeMap<(String, String), u64>;

/// As the store tells it.
pub(crate) async fn told(store: &SqliteStore) -> Tally {
    let stats = store.stats(StatsRequest::new()).await.unwrap();
    let queues = stats.queues.iter();
    queues.flat_map(|(queue, stats)| stats.counts.iter().map(|(status, n)| (key(queue, status), *n))).collect()
}

fn key(queue: &steadfast::job::QueueName, status: &steadfast::job::Status) -> (String, String) {
    (queue.to_string(), status.to_string())
}

/// As it is, row by row.
pub(crate) fn counted(connection: &Connection) -> Tally {
    let mut statement = connection.prepare("SELECT queue, status, count(*) FROM jobs GROUP BY queue, status").unwrap();
    let rows = statement.query_map([], |row| Ok(((row.get(0)?, row.get(1)?), row.get(2)?))).unwrap();
    rows.collect::<Result<_, _>>().unwrap()
}

/// The counts by kind and queue are a recount, and there is no row that counts nothing.
pub(crate) fn assert_counted_by_kind(connection: &Connection, when: &str) {
    let recount = "SELECT kind, queue, sum(status = 'queued'), sum(status = 'running'), sum(status = 'retrying'),
                          sum(status = 'succeeded'), sum(status = 'failed_permanent'), sum(status = 'cancelled')
                   FROM jobs GROUP BY kind, queue ORDER BY kind, queue";
    let rows = |sql| {
        let mut statement = connection.prepare(sql).unwrap();
        let row = |row: &rusqlite::Row<'_>| {
            let n = (2..8).map(|column| row.get(column)).collect::<Result<Vec<i64>, _>>()?;
            Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?, n))
        };
        statement.query_map([], row).unwrap().collect::<Result<Vec<_>, _>>().unwrap()
    };
    assert_eq!(rows("SELECT * FROM counts ORDER BY kind, queue"), rows(recount), "{when}");
}

pub(crate) fn assert_sound(connection: &Connection) {
    let verdict: String = connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(verdict, "ok");
}

/// For SQL: the id as a literal.
pub(crate) fn literal(id: JobId) -> String {
    format!("x'{}'", id.as_uuid().simple())
}

pub(crate) type Call<'s, T> = Pin<Box<dyn Future<Output = T> + Send + 's>>;

/// Sets a call on its way: what is polled once is with the writer.
pub(crate) fn send<T>(call: &mut Call<'_, T>) {
    let mut context = Context::from_waker(Waker::noop());
    // Else the runtime holds a task back that polls hundreds of calls in a row.
    let call = std::pin::pin!(tokio::task::unconstrained(call));
    assert!(matches!(call.poll(&mut context), Poll::Pending), "answered before it could be");
}

/// Waits for a condition that some thread will bring about.
pub(crate) async fn until(what: &str, condition: impl Fn() -> bool) {
    let given_up_at = Instant::now() + DEADLINE;
    while !condition() {
        assert!(Instant::now() < given_up_at, "waited {DEADLINE:?} until {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
