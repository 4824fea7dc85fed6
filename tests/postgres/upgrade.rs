//! Upgrades: a database of every schema version there was is migrated, with jobs in every status in it, and every job
//! goes on its way.
//!
//! The databases are plain SQL in `tests/fixtures`. Those of versions that no release has yet are made by
//! `STEADFAST_UPDATE_FIXTURES=1 cargo test --all-features --test postgres fixture`: one database is filled through the
//! store, and what came after a version is taken away. The fixture of a released version stays as it is.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use steadfast::job::{
    Failure, JobId, JobRequest, Json, Kind, KindDefinition, LeaseKey, Outcome, Progress, QueueName, RetryPolicy, Status,
};
use steadfast::store::postgres::{PostgresStore, migrate};
use steadfast::store::{
    Beat, Cancel, Cancelled, CatalogStore, Delete, Deleted, Extend, Extended, JobStore, List, Pause, Prune, PutKind,
    Reap, Redrive, Redriven, Resume, Settle, Settled, StatsRequest,
};
use tokio_postgres::Client;
use uuid::Uuid;

use crate::support::postgres::{CLOCK, Cluster, TestDatabase};
use crate::work::{checked, claim};

/// What takes a database that no release has made yet back to an earlier version.
const TAKE_BACK: [(usize, &str); 6] = [
    (6, "DROP TABLE hooks, outbox; ALTER TABLE jobs DROP notify; DELETE FROM steadfast_migrations WHERE version > 6"),
    (5, "DROP TABLE series; DELETE FROM steadfast_migrations WHERE version > 5"),
    (
        4,
        "DROP TABLE error_groups, error_deltas, error_snoozes, audit, workers, operations;
         ALTER TABLE tokens DROP expires_at, DROP last_used_at, DROP created_by, DROP parent;
         DELETE FROM steadfast_migrations WHERE version > 4",
    ),
    (
        3,
        "DROP TABLE queue_settings, group_settings, usage; DROP SEQUENCE group_seq;
         ALTER TABLE kinds DROP concurrency, DROP rate_limit, DROP rate_per_us, DROP rate_burst, DROP hidden;
         ALTER TABLE jobs DROP unique_shown; DELETE FROM steadfast_migrations WHERE version > 3",
    ),
    (2, "DROP TABLE schedule_ticks, schedules; DELETE FROM steadfast_migrations WHERE version > 2"),
    (1, "DROP TABLE tokens, had_token; DELETE FROM steadfast_migrations WHERE version > 1"),
];

/// Half an hour: how far in the future what is not due yet is.
const LATER: Duration = Duration::from_secs(30 * 60);

/// Every job, by its kind; the name says what has become of it.
const KINDS: [&str; 13] = [
    "queued",
    "queued-for-later",
    "queued-with-a-key",
    "queued-in-a-paused-queue",
    "running",
    "running-with-a-dead-worker",
    "running-and-to-be-cancelled",
    "retrying",
    "released",
    "succeeded",
    "failed",
    "cancelled",
    "redriven",
];

fn path(version: usize) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/fixtures/postgres-schema-{version}.sql"))
}

fn job(kind: &str) -> JobRequest {
    let payload = Json::parse(r#"{"text":"it's \"quoted\" – once"}"#.into()).unwrap();
    let mut request = JobRequest::new(kind, payload);
    match kind {
        "queued-for-later" => request.delay_ms = Some(LATER.as_millis() as i64),
        "queued-with-a-key" => request.idempotency_key = Some("key-1".into()),
        "queued-in-a-paused-queue" => request.queue = Some("letters".into()),
        "running" => (request.timeout_ms, request.priority) = (Some(7_200_000), Some(-7)),
        _ => {}
    }
    request
}

/// A database whose time stands still, and what is done to it.
struct World {
    store: PostgresStore,
    admin: Client,
    /// Last, so that the store is gone before its database is.
    database: TestDatabase,
}

impl World {
    async fn new(database: TestDatabase) -> Self {
        let store = PostgresStore::open(database.held_clock()).await.unwrap();
        Self { store, admin: database.admin().await, database }
    }

    async fn advance(&self, by: Duration) {
        let us = by.as_micros() as i64;
        let sql = "UPDATE held.clock SET now = now + $1::bigint * interval '1 microsecond'";
        assert_eq!(self.admin.execute(sql, &[&us]).await.unwrap(), 1);
    }

    async fn id_of(&self, kind: &str) -> JobId {
        let row = self.admin.query_one("SELECT id FROM jobs WHERE kind = $1", &[&kind]).await.unwrap();
        row.get::<_, Uuid>(0).into()
    }

    /// The newest lease of a job, whether or not it is held.
    async fn lease(&self, kind: &str) -> LeaseKey {
        let row = self.admin.query_one("SELECT id, lease_token FROM jobs WHERE kind = $1", &[&kind]).await.unwrap();
        LeaseKey::new(row.get::<_, Uuid>(0).into(), row.get::<_, Uuid>(1).into())
    }

    async fn start(&self, kind: &str) -> LeaseKey {
        let claim = claim(1).kinds(vec![Kind::new(kind).unwrap()]);
        self.store.claim(claim).await.unwrap().leases.remove(0).key()
    }

    async fn settle(&self, lease: LeaseKey, outcome: Outcome) -> Settled {
        self.store.settle(vec![Settle::new(lease, outcome)]).await.unwrap().remove(0).unwrap()
    }

    async fn end(&self, kind: &str, outcome: Outcome) {
        let lease = self.start(kind).await;
        assert_eq!(self.settle(lease, outcome).await, Settled::Recorded);
    }

    async fn cancel(&self, kind: &str) -> Cancelled {
        self.store.cancel(Cancel::new([self.id_of(kind).await])).await.unwrap().remove(0).unwrap()
    }

    async fn redrive(&self, kind: &str) {
        let redriven = self.store.redrive(Redrive::new([self.id_of(kind).await])).await.unwrap().remove(0).unwrap();
        assert!(matches!(redriven, Redriven::Queued(_)), "{redriven:?}");
    }

    /// Claims and finishes whatever is due; answers the kinds, sorted.
    async fn work_off(&self) -> Vec<String> {
        let mut kinds = Vec::new();
        for lease in self.store.claim(claim(100)).await.unwrap().leases {
            kinds.push(lease.job().kind.to_string());
            assert_eq!(self.settle(lease.key(), Outcome::Succeeded(None)).await, Settled::Recorded);
        }
        kinds.sort();
        kinds
    }

    /// A job in every status, and one of each kind of history.
    async fn fill(&self) {
        let mut kind = KindDefinition::any(Kind::new("queued").unwrap());
        kind.schema = Some(serde_json::json!({ "type": "object" }));
        kind.defaults.retry = Some(RetryPolicy::default());
        self.store.put_kind(PutKind::new(kind)).await.unwrap();
        self.store.pause(Pause::new(QueueName::new("letters").unwrap())).await.unwrap();
        for kind in KINDS {
            self.store.enqueue(vec![checked(job(kind))]).await.unwrap();
        }
        // A part of the counts is rolled up, a part is not.
        self.store.reap(Reap::up_to(1)).await.unwrap();
        self.end("succeeded", Outcome::succeeded(Some(Json::parse(r#"{"sent":1}"#.into()).unwrap()))).await;
        for kind in ["failed", "redriven", "retrying"] {
            self.end(kind, failed("the first time", Duration::from_secs(1))).await;
        }
        self.advance(Duration::from_secs(1)).await;
        for kind in ["failed", "redriven"] {
            self.end(kind, Outcome::failed_permanently("the second time")).await;
        }
        self.redrive("redriven").await;
        self.end("retrying", failed("the second time", LATER)).await;
        self.end("released", Outcome::Released).await;
        assert_eq!(self.cancel("cancelled").await, Cancelled::Now);
        let lease = self.start("running").await;
        let beat = Beat::new(lease).progress(Progress::new(Some(40), Some("on its way")));
        self.store.extend(Extend::new([beat])).await.unwrap();
        self.start("running-with-a-dead-worker").await;
        self.start("running-and-to-be-cancelled").await;
        assert_eq!(self.cancel("running-and-to-be-cancelled").await, Cancelled::Requested);
    }
}

fn failed(error: &str, retry_after: Duration) -> Outcome {
    Outcome::Failed(Failure::new(error).retry_after(retry_after))
}

/// Every row of the tables that have to do with jobs, with the name of its table.
async fn rows(client: &Client) -> Vec<(String, Value)> {
    let mut rows = Vec::new();
    for (table, order) in [
        ("jobs", "id"),
        ("attempts", "seq"),
        ("kinds", "kind"),
        ("paused_queues", "queue"),
        ("counts", "queue, status"),
        ("kind_counts", "kind, queue, status"),
    ] {
        for row in
            client.query(&format!("SELECT to_jsonb(t)::text FROM {table} t ORDER BY {order}"), &[]).await.unwrap()
        {
            rows.push((table.to_owned(), serde_json::from_str(row.get(0)).unwrap()));
        }
    }
    rows
}

/// Tables with their columns, indexes and rules.
async fn shape(client: &Client) -> Vec<String> {
    let sql = "
        SELECT format('column %s.%s %s %s %s', table_name, column_name, data_type, is_nullable, column_default)
        FROM information_schema.columns WHERE table_schema = 'public'
        UNION ALL SELECT indexdef FROM pg_indexes WHERE schemaname = 'public'
        UNION ALL SELECT format('rule %s %s', conname, pg_get_constraintdef(oid))
                  FROM pg_constraint WHERE connamespace = 'public'::regnamespace
        ORDER BY 1";
    client.query(sql, &[]).await.unwrap().iter().map(|row| row.get(0)).collect()
}

/// Loads the fixture of a version.
async fn load(version: usize) -> TestDatabase {
    let database = Cluster::shared().await.empty_database().await;
    let path = path(version);
    let sql = std::fs::read_to_string(&path).unwrap_or_else(|error| {
        panic!(
            "schema version {version} has no fixture: {}: {error}; the top of this file says how to make it",
            path.display()
        )
    });
    database.admin().await.batch_execute(&format!("{CLOCK} {sql}")).await.unwrap();
    // It was left a second after it was made.
    database.admin().await.batch_execute("UPDATE held.clock SET now = now + interval '1 second'").await.unwrap();
    database
}

/// The version that this program migrates to.
async fn newest_version() -> usize {
    let database = Cluster::shared().await.database().await;
    let row = database.admin().await.query_one("SELECT max(version) FROM steadfast_migrations", &[]).await.unwrap();
    row.get::<_, i32>(0) as usize
}

#[tokio::test]
async fn a_database_of_every_version_is_migrated_with_every_job_as_it_was() {
    let fresh = shape(&Cluster::shared().await.database().await.admin().await).await;
    for version in 1..=newest_version().await {
        let database = load(version).await;
        let admin = database.admin().await;
        let before = rows(&admin).await;
        assert_eq!(migrate(&database.settings()).await.unwrap(), newest_version().await - version);
        let after = rows(&admin).await;
        assert_eq!(before.len(), after.len(), "from version {version}");
        for ((table, before), (_, after)) in before.iter().zip(&after) {
            for (column, value) in before.as_object().unwrap() {
                assert_eq!(&after[column], value, "{column} of {table}, from version {version}: {before}");
            }
        }
        assert_eq!(shape(&admin).await, fresh, "a database that was migrated from version {version} and a new one");
    }
}

#[tokio::test]
async fn every_job_of_a_migrated_database_goes_on_its_way() {
    for version in 1..=newest_version().await {
        let database = load(version).await;
        migrate(&database.settings()).await.unwrap();
        let world = World::new(database).await;
        let jobs = world.store.list(List::new().limit(100)).await.unwrap().jobs;
        assert_eq!(jobs.len(), KINDS.len());
        let mut counts = BTreeMap::<Status, u64>::new();
        for job in &jobs {
            *counts.entry(job.status).or_default() += 1;
        }
        assert!(Status::ALL.iter().all(|status| counts.contains_key(status)), "a job in every status: {counts:?}");
        assert_eq!(counted(&world.store).await, counts);

        // Leases that were granted before the upgrade are worth what they were.
        let (running, to_stop) = (world.lease("running").await, world.lease("running-and-to-be-cancelled").await);
        let extended = world.store.extend(Extend::new([running, to_stop].map(Beat::new))).await.unwrap();
        assert_eq!(extended, [Extended::Ok, Extended::Cancel]);
        assert_eq!(world.settle(running, Outcome::Succeeded(None)).await, Settled::Recorded);
        assert_eq!(world.settle(to_stop, Outcome::Cancelled).await, Settled::Recorded);
        let succeeded = world.lease("succeeded").await;
        assert_eq!(world.settle(succeeded, Outcome::Succeeded(None)).await, Settled::Recorded, "the same again");
        assert_eq!(world.settle(succeeded, Outcome::Released).await, Settled::Lost);

        // Operators.
        let again = world.store.enqueue(vec![checked(job("queued-with-a-key"))]).await.unwrap().remove(0);
        assert_eq!((again.created, again.job.id), (false, world.id_of("queued-with-a-key").await));
        world.redrive("failed").await;
        world.redrive("cancelled").await;
        let deleted =
            world.store.delete(Delete::new([world.id_of("succeeded").await])).await.unwrap().remove(0).unwrap();
        assert_eq!(deleted, Deleted::Gone);

        // What is due is claimed, and later the rest; the dead worker's job comes back.
        let due = ["cancelled", "failed", "queued", "queued-with-a-key", "redriven", "released"];
        assert_eq!(world.work_off().await, due);
        world.advance(Duration::from_secs(2 * 60 * 60)).await;
        let reaped = world.store.reap(Reap::up_to(100)).await.unwrap();
        assert_eq!(reaped.iter().map(|job| job.kind.as_str()).collect::<Vec<_>>(), ["running-with-a-dead-worker"]);
        world.store.resume(Resume::new(QueueName::new("letters").unwrap())).await.unwrap();
        let later = ["queued-for-later", "queued-in-a-paused-queue", "retrying", "running-with-a-dead-worker"];
        assert_eq!(world.work_off().await, later);

        // All are finished, with their history, and retention removes them.
        let history = world.store.attempts(world.id_of("failed").await).await.unwrap().unwrap();
        assert_eq!(history.iter().map(|attempt| attempt.attempt).collect::<Vec<_>>(), [1, 2, 1]);
        let ended = BTreeMap::from([(Status::Succeeded, KINDS.len() as u64 - 2), (Status::Cancelled, 1)]);
        assert_eq!(counted(&world.store).await, ended);
        let prune = Prune::keeping(Duration::ZERO).limit(1000);
        assert_eq!(world.store.prune(prune).await.unwrap().deleted, KINDS.len() - 1);
        assert_eq!(rows(&world.admin).await.iter().filter(|(table, _)| table == "attempts").count(), 0);
    }
}

/// Jobs per status, as the store tells.
async fn counted(store: &PostgresStore) -> BTreeMap<Status, u64> {
    let mut counts = BTreeMap::new();
    for queue in store.stats(StatsRequest::new()).await.unwrap().queues.values() {
        for (status, n) in &queue.counts {
            *counts.entry(*status).or_default() += n;
        }
    }
    counts
}

/// Writes the fixtures if asked to; else there is nothing to make.
#[tokio::test]
async fn makes_the_fixtures_of_unreleased_versions_when_asked_to() {
    if std::env::var_os("STEADFAST_UPDATE_FIXTURES").is_none() {
        return;
    }
    let world = World::new(Cluster::shared().await.database().await).await;
    world.fill().await;
    drop(world.store);
    let write = |version| {
        let header =
            format!("-- A database at schema version {version}; tests/postgres/upgrade.rs says how it is made.\n");
        std::fs::write(path(version), header + &world.database.dump()).unwrap();
    };
    write(newest_version().await);
    for (version, take_back) in TAKE_BACK {
        world.admin.batch_execute(take_back).await.unwrap();
        write(version);
    }
}
