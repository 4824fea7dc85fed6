//! Databases of every schema version, as plain SQL in `tests/fixtures`, and how they are made.
//!
//! `STEADFAST_UPDATE_FIXTURES=1 cargo test --all-features --test sqlite fixture` writes them: one database, filled through
//! the store, is written down once for each version that no release has yet. Those of released versions stay as they are.
//! Above the SQL stands what the store told of the database when it was made; `upgrade.rs` holds later programs to it.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rusqlite::Connection;
use serde_json::json;
use steadfast::job::{
    AttemptRecord, JobId, JobRecord, JobRequest, Json, Kind, KindDefaults, KindDefinition, Lease, LeaseKey, Limits,
    NewJob, Outcome, Progress, QueueName,
};
use steadfast::store::sqlite::SqliteStore;
use steadfast::store::{
    Beat, Cancel, CatalogStore, Clock, Extend, JobStore, ManualClock, Pause, PutKind, PutToken, Redrive, Scope, Settle,
    StatsRequest, TokenRecord,
};

use crate::jobs_file::{JobsFile, claim_of, make_private, walk};

/// The first version that no release has: its fixture and those of later ones are made anew when asked for.
const FIRST_UNRELEASED: usize = 1;

/// Half an hour: how far in the future what is not due yet is.
const LATER: Duration = Duration::from_secs(30 * 60);

const MADE_BY: &str = "STEADFAST_UPDATE_FIXTURES=1 cargo test --all-features --test sqlite fixture";

/// Every job, by its kind; the name says what has become of it.
pub(crate) const KINDS: [&str; 15] = [
    "queued",
    "queued-for-later",
    "queued-for-a-time-of-day",
    "queued-with-a-key",
    "queued-in-a-paused-queue",
    "running",
    "running-with-a-dead-worker",
    "running-and-to-be-cancelled",
    "retrying",
    "released",
    "snoozed",
    "succeeded",
    "failed",
    "cancelled",
    "redriven",
];

/// What stands in one file of `tests/fixtures`.
pub(crate) struct Fixture {
    pub(crate) version: usize,
    /// When the database was left alone.
    pub(crate) now: jiff::Timestamp,
    /// One line for each thing that the store tells: see [`told`].
    pub(crate) told: Vec<String>,
    /// Leases that were held, and one that was settled, by the kind of their job.
    leases: Vec<(String, LeaseKey)>,
    sql: String,
}

impl Fixture {
    /// One for each version up to the newest, oldest first.
    pub(crate) fn all() -> Vec<Self> {
        (1..=newest_version()).map(Self::read).collect()
    }

    fn read(version: usize) -> Self {
        let path = path(version);
        let sql = std::fs::read_to_string(&path).unwrap_or_else(|error| {
            panic!("schema version {version} has no fixture: {} ({error}); make it with {MADE_BY}", path.display())
        });
        let noted = |what: &str| {
            let prefix = format!("-- {what}: ");
            sql.lines().filter_map(|line| line.strip_prefix(&prefix)).map(str::to_owned).collect::<Vec<_>>()
        };
        let lease = |line: String| {
            let words: Vec<_> = line.split(' ').collect();
            (words[0].to_owned(), LeaseKey::new(words[1].parse().unwrap(), words[2].parse().unwrap()))
        };
        let leases = noted("lease").into_iter().map(lease).collect();
        Self { version, now: noted("now")[0].parse().unwrap(), told: noted("told"), leases, sql }
    }

    /// The database, as the program of that version left it.
    pub(crate) fn load(&self) -> JobsFile {
        let file = JobsFile::new();
        file.external_connection().execute_batch(&self.sql).unwrap();
        make_private(&file.path);
        file
    }

    pub(crate) fn clock(&self) -> Arc<ManualClock> {
        Arc::new(ManualClock::at(self.now))
    }

    pub(crate) fn lease(&self, kind: &str) -> LeaseKey {
        self.leases.iter().find(|(of, _)| of == kind).unwrap().1
    }
}

fn path(version: usize) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/fixtures/sqlite-schema-{version}.sql"))
}

/// The version of a file that this program makes.
pub(crate) fn newest_version() -> usize {
    let file = JobsFile::new();
    drop(file.open());
    version_of(&file.external_connection())
}

pub(crate) fn version_of(connection: &Connection) -> usize {
    connection.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap()
}

/// Tables and indexes, with the SQL that makes them.
pub(crate) fn schema(connection: &Connection) -> Vec<(String, String)> {
    let mut statement = connection
        .prepare("SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite!_%' ESCAPE '!' ORDER BY type <> 'table', rowid")
        .unwrap();
    statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap().collect::<Result<_, _>>().unwrap()
}

/// What the migrations up to a version make.
pub(crate) fn schema_at(version: usize) -> Vec<(String, String)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/store/sqlite/migrations");
    let mut files: Vec<_> = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let connection = Connection::open_in_memory().unwrap();
    for file in files {
        let number: usize = file.file_name().unwrap().to_str().unwrap()[..4].parse().unwrap();
        if number <= version {
            connection.execute_batch(&std::fs::read_to_string(file).unwrap()).unwrap();
        }
    }
    schema(&connection)
}

/// Everything that the store tells of its jobs, kinds, queues and tokens, one line each.
pub(crate) async fn told(store: &SqliteStore) -> Vec<String> {
    let mut lines = Vec::new();
    for job in walk(store).await.unwrap() {
        let attempts = store.attempts(job.id).await.unwrap().unwrap();
        lines.push(format!("job {}", described(&job, &attempts)));
    }
    for kind in store.kinds().await.unwrap() {
        let retry = serde_json::to_value(&kind.defaults.retry).unwrap();
        let queue = kind.defaults.queue.map(|queue| queue.to_string());
        lines.push(format!("kind {} {}", kind.kind, json!({ "schema": kind.schema, "retry": retry, "queue": queue })));
    }
    for (queue, stats) in store.stats(StatsRequest::new()).await.unwrap().queues {
        let counts: Vec<_> = stats.counts.iter().map(|(status, n)| format!("{status} {n}")).collect();
        lines.push(format!("queue {queue} {}", json!({ "paused": stats.paused, "counts": counts })));
    }
    for token in store.tokens().await.unwrap().tokens {
        let scopes: Vec<_> = token.scopes.iter().map(|scope| scope.as_str()).collect();
        lines.push(format!("token {} {} {scopes:?} {}", token.id, token.name, token.created_at));
    }
    lines
}

fn described(job: &JobRecord, attempts: &[AttemptRecord]) -> serde_json::Value {
    let attempt = |attempt: &AttemptRecord| {
        json!({
            "attempt": attempt.attempt,
            "worker": attempt.worker.as_str(),
            "started_at": attempt.started_at.to_string(),
            "ended_at": attempt.ended_at.map(|at| at.to_string()),
            "outcome": attempt.outcome.map(|outcome| outcome.as_str()),
            "error": attempt.error,
        })
    };
    json!({
        "id": job.id.to_string(),
        "kind": job.kind.as_str(),
        "queue": job.queue.as_str(),
        "payload": job.payload.as_str(),
        "status": job.status.as_str(),
        "priority": job.priority,
        "attempts": job.attempts,
        "max_attempts": job.max_attempts,
        "run_at": job.run_at.to_string(),
        "timeout_ms": job.timeout_ms,
        "idempotency_key": job.idempotency_key,
        "cancel_requested": job.cancel_requested,
        "locked_by": job.locked_by.as_ref().map(|worker| worker.as_str()),
        "locked_at": job.locked_at.map(|at| at.to_string()),
        "lease_expires_at": job.lease_expires_at.map(|at| at.to_string()),
        "last_error": job.last_error,
        "result": job.result.as_ref().map(|result| result.as_str()),
        "progress": job.progress,
        "created_at": job.created_at.to_string(),
        "updated_at": job.updated_at.to_string(),
        "started_at": job.started_at.map(|at| at.to_string()),
        "finished_at": job.finished_at.map(|at| at.to_string()),
        "history": attempts.iter().map(attempt).collect::<Vec<_>>(),
    })
}

/// The job with this name. The one with a key is asked for twice: when the fixture is made, and after the upgrade.
pub(crate) fn request(kind: &str, now: jiff::Timestamp) -> NewJob {
    let mut request = JobRequest::new(kind, Json::parse(r#"{"text":"it's \"quoted\" – once"}"#.into()).unwrap());
    match kind {
        "queued-for-later" => request.delay_ms = Some(LATER.as_millis() as i64),
        "queued-for-a-time-of-day" => request.run_at = Some(now + LATER),
        "queued-with-a-key" => request.idempotency_key = Some("key-1".into()),
        "queued-in-a-paused-queue" => request.queue = Some("letters".into()),
        "running" => (request.timeout_ms, request.priority) = (Some(7_200_000), Some(-7)),
        _ => {}
    }
    NewJob::new(request, &KindDefaults::default(), &Limits::default(), now).unwrap()
}

/// Fills a store so that there is a job in every status, and one of each kind of history.
struct Filler {
    store: Arc<SqliteStore>,
    clock: Arc<ManualClock>,
    leases: Vec<(&'static str, LeaseKey)>,
}

impl Filler {
    async fn fill(&mut self) {
        self.declare().await;
        for kind in KINDS {
            self.store.enqueue(vec![request(kind, self.clock.wall())]).await.unwrap();
        }
        self.end("succeeded", Outcome::succeeded(Some(Json::parse(r#"{"sent":1}"#.into()).unwrap()))).await;
        for kind in ["failed", "redriven", "retrying"] {
            self.end(kind, failed("the first time", Duration::from_secs(1))).await;
        }
        self.clock.advance(Duration::from_secs(1));
        for kind in ["failed", "redriven"] {
            self.end(kind, Outcome::failed_permanently("the second time")).await;
        }
        let redriven = self.id_of("redriven").await;
        self.store.redrive(Redrive::new([redriven])).await.unwrap();
        self.end("retrying", failed("the second time", LATER)).await;
        self.end("released", Outcome::Released).await;
        self.end("snoozed", Outcome::snoozed(LATER)).await;
        let cancelled = self.id_of("cancelled").await;
        self.store.cancel(Cancel::new([cancelled])).await.unwrap();
        for kind in ["running", "running-with-a-dead-worker", "running-and-to-be-cancelled"] {
            self.claim(kind).await;
        }
        let to_be_cancelled = self.id_of("running-and-to-be-cancelled").await;
        self.store.cancel(Cancel::new([to_be_cancelled])).await.unwrap();
        let running = self.leases.iter().find(|(kind, _)| *kind == "running").unwrap().1;
        let beat = Beat::new(running).progress(Progress::new(Some(40), Some("on its way")));
        self.store.extend(Extend::new([beat])).await.unwrap();
    }

    async fn declare(&self) {
        let mut kind = KindDefinition::any(Kind::new("queued").unwrap());
        kind.schema = Some(json!({ "type": "object" }));
        kind.defaults.queue = Some(QueueName::new("default").unwrap());
        kind.defaults.retry = Some(steadfast::job::RetryPolicy::default());
        self.store.put_kind(PutKind::new(kind)).await.unwrap();
        self.store.put_kind(PutKind::new(KindDefinition::any(Kind::new("running").unwrap()))).await.unwrap();
        self.store.pause(Pause::new(QueueName::new("letters").unwrap())).await.unwrap();
        let mut token = TokenRecord::new("token-1", "shop", [7; 32]).scopes([Scope::Enqueue, Scope::Read]);
        token.created_at = self.clock.wall();
        self.store.put_token(PutToken::new(token)).await.unwrap();
    }

    async fn claim(&mut self, kind: &'static str) -> Lease {
        let claim = claim_of(1).kinds(vec![Kind::new(kind).unwrap()]);
        let lease = self.store.claim(claim).await.unwrap().leases.remove(0);
        self.leases.push((kind, lease.key()));
        lease
    }

    async fn end(&mut self, kind: &'static str, outcome: Outcome) {
        let lease = self.claim(kind).await.key();
        self.store.settle(vec![Settle::new(lease, outcome)]).await.unwrap();
    }

    async fn id_of(&self, kind: &str) -> JobId {
        walk(&self.store).await.unwrap().into_iter().find(|job| job.kind.as_str() == kind).unwrap().id
    }
}

fn failed(error: &str, retry_after: Duration) -> Outcome {
    let mut outcome = Outcome::failed(error);
    if let Outcome::Failed(failure) = &mut outcome {
        failure.retry_after = Some(retry_after);
    }
    outcome
}

/// The rows of `filled`, in the tables and columns that a version has.
fn dump(filled: &Connection, version: usize) -> String {
    let at_version = Connection::open_in_memory().unwrap();
    let application_id: i64 = filled.pragma_query_value(None, "application_id", |row| row.get(0)).unwrap();
    let mut sql = format!("PRAGMA application_id = {application_id};\nPRAGMA user_version = {version};\n");
    for (name, made_by) in schema_at(version) {
        writeln!(sql, "\n{made_by};").unwrap();
        at_version.execute_batch(&made_by).unwrap();
        let mut columns = at_version.prepare("SELECT name FROM pragma_table_info(?1)").unwrap();
        let columns: Vec<String> =
            columns.query_map([&name], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap();
        let quoted: Vec<_> = columns.iter().map(|column| format!("quote({column})")).collect();
        // An index has columns, too, but no rows of its own.
        if !made_by.starts_with("CREATE TABLE") {
            continue;
        }
        let rows = format!("SELECT concat_ws(', ', {}) FROM {name}", quoted.join(", "));
        let mut rows = filled.prepare(&rows).unwrap();
        for row in rows.query_map([], |row| row.get::<_, String>(0)).unwrap() {
            writeln!(sql, "INSERT INTO {name} ({}) VALUES ({});", columns.join(", "), row.unwrap()).unwrap();
        }
    }
    sql
}

/// Writes the fixtures if asked to; else there is nothing to make.
#[tokio::test]
async fn makes_the_fixtures_of_unreleased_versions_when_asked_to() {
    if std::env::var_os("STEADFAST_UPDATE_FIXTURES").is_none() {
        return;
    }
    let file = JobsFile::new();
    let (store, clock) = file.open_held();
    let mut filler = Filler { store, clock, leases: Vec::new() };
    filler.fill().await;
    let (now, lines) = (filler.clock.wall(), told(&filler.store).await);
    for version in FIRST_UNRELEASED..=newest_version() {
        let mut text = format!("-- A database at schema version {version}.\n-- Made by: {MADE_BY}\n-- now: {now}\n");
        for (kind, lease) in &filler.leases {
            writeln!(text, "-- lease: {kind} {} {}", lease.job_id, lease.token).unwrap();
        }
        // There were no tokens before version 2.
        for line in lines.iter().filter(|line| version >= 2 || !line.starts_with("token ")) {
            writeln!(text, "-- told: {line}").unwrap();
        }
        let sql = dump(&file.external_connection(), version);
        std::fs::write(path(version), format!("{text}\n{sql}")).unwrap();
    }
}
