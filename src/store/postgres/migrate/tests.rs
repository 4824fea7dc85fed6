//! The kinds of steps, on a real server: a few rows, and migrations that exist only here.

use std::time::Duration;

use tokio::time::{Instant, sleep};
use tokio_postgres::Client;

use super::{LockWait, MigrationStep, apply};
use crate::store::postgres::PostgresSettings;

#[path = "../../../../tests/support/postgres.rs"]
pub(in crate::store::postgres) mod postgres;

use self::postgres::{Cluster, TestDatabase};

const TABLE: MigrationStep = MigrationStep::Transactional(
    "CREATE TABLE SCHEMA.items (id integer PRIMARY KEY, name text);
     INSERT INTO SCHEMA.items SELECT n, 'item ' || n FROM generate_series(1, 2500) n;",
);
const INDEX: MigrationStep = MigrationStep::ConcurrentIndex {
    name: "items_name",
    sql: "CREATE UNIQUE INDEX CONCURRENTLY items_name ON SCHEMA.items (name)",
};
const COLUMN: MigrationStep = MigrationStep::Transactional("ALTER TABLE SCHEMA.items ADD COLUMN length integer");
const BACKFILL: MigrationStep = MigrationStep::Backfill(
    "UPDATE SCHEMA.items SET length = char_length(name)
     WHERE id IN (SELECT id FROM SCHEMA.items WHERE length IS NULL ORDER BY id LIMIT $1)",
);

/// Gives up soon, so that a test need not wait for it.
const HASTY: LockWait = LockWait {
    timeout: Duration::from_millis(100),
    tries: 3,
    backoff: Duration::from_millis(10),
    backoff_max: Duration::from_millis(20),
};

/// Does not give up before the test does.
const STUBBORN: LockWait = LockWait { tries: u32::MAX, ..HASTY };

async fn database() -> (TestDatabase, PostgresSettings, Client) {
    let database = Cluster::shared().await.empty_database().await;
    let (settings, admin) = (database.settings(), database.admin().await);
    (database, settings, admin)
}

async fn number(client: &Client, sql: &str) -> i64 {
    client.query_one(sql, &[]).await.unwrap().get(0)
}

async fn eventually(client: &Client, what: &str, sql: &str) {
    let give_up = Instant::now() + Duration::from_secs(60);
    while number(client, sql).await == 0 {
        assert!(Instant::now() < give_up, "not within a minute: {what}");
        sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_that_meets_a_lock_lets_the_queue_pass_and_comes_back() {
    let (database, settings, mut admin) = self::database().await;
    apply(&settings, &[TABLE], HASTY).await.unwrap();
    let holder = admin.transaction().await.unwrap();
    holder.execute("SELECT FROM items LIMIT 1", &[]).await.unwrap();

    let error = apply(&settings, &[TABLE, COLUMN], HASTY).await.unwrap_err().to_string();
    assert!(error.contains("migration 2 gave up waiting for a lock"), "{error}");
    assert!(error.contains("pg_stat_activity"), "{error}");

    let migration = tokio::spawn({
        let settings = settings.clone();
        async move { apply(&settings, &[TABLE, COLUMN], STUBBORN).await }
    });
    let other = database.admin().await;
    let waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
                   AND wait_event_type = 'Lock' AND query LIKE 'ALTER TABLE%'";
    eventually(&other, "the step waits for the table", waiting).await;
    // Behind an ALTER that waits for good, this would wait for good.
    other.batch_execute("SET statement_timeout = '30s'; UPDATE items SET name = 'passed' WHERE id = 7").await.unwrap();
    assert!(!migration.is_finished());
    holder.commit().await.unwrap();
    assert_eq!(migration.await.unwrap().unwrap(), 1);
    assert_eq!(number(&other, "SELECT count(*) FROM items WHERE name = 'passed' AND length IS NULL").await, 1);
}

#[tokio::test]
async fn an_index_that_was_left_invalid_is_dropped_and_built_again() {
    let (_database, settings, admin) = database().await;
    apply(&settings, &[TABLE], HASTY).await.unwrap();
    admin.batch_execute("UPDATE items SET name = 'twice' WHERE id IN (1, 2)").await.unwrap();
    let error = apply(&settings, &[TABLE, INDEX], HASTY).await.unwrap_err().to_string();
    assert!(error.contains("migration 2 failed"), "{error}");
    let invalid = "SELECT count(*) FROM pg_index WHERE indexrelid = 'items_name'::regclass AND NOT indisvalid";
    assert_eq!(number(&admin, invalid).await, 1, "the server is expected to leave an invalid index");
    assert_eq!(number(&admin, "SELECT max(version)::bigint FROM steadfast_migrations").await, 1);

    admin.batch_execute("UPDATE items SET name = 'once' WHERE id = 1").await.unwrap();
    assert_eq!(apply(&settings, &[TABLE, INDEX], HASTY).await.unwrap(), 1);
    assert_eq!(number(&admin, invalid).await, 0);
    assert_eq!(apply(&settings, &[TABLE, INDEX], HASTY).await.unwrap(), 0);
}

#[tokio::test]
async fn an_index_that_was_built_but_not_recorded_is_not_built_again() {
    let (_database, settings, admin) = database().await;
    apply(&settings, &[TABLE, INDEX], HASTY).await.unwrap();
    let before = number(&admin, "SELECT 'items_name'::regclass::oid::bigint").await;
    admin.batch_execute("DELETE FROM steadfast_migrations WHERE version = 2").await.unwrap();
    assert_eq!(apply(&settings, &[TABLE, INDEX], HASTY).await.unwrap(), 1);
    assert_eq!(number(&admin, "SELECT 'items_name'::regclass::oid::bigint").await, before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_migrators_at_once_build_one_index_and_neither_waits_for_the_other_in_a_circle() {
    let (_database, settings, admin) = database().await;
    let steps = [TABLE, INDEX, COLUMN, BACKFILL];
    let (a, b) = tokio::join!(apply(&settings, &steps, STUBBORN), apply(&settings, &steps, STUBBORN));
    assert_eq!(a.unwrap() + b.unwrap(), steps.len());
    assert_eq!(number(&admin, "SELECT count(*) FROM items WHERE length IS NULL").await, 0);
}

#[tokio::test]
async fn a_backfill_goes_in_batches_and_goes_on_where_it_was_interrupted() {
    let (_database, settings, mut admin) = database().await;
    apply(&settings, &[TABLE, COLUMN], HASTY).await.unwrap();
    // A row of the third batch is locked: the first two are committed by the time the step gives up.
    let holder = admin.transaction().await.unwrap();
    holder.execute("SELECT FROM items WHERE id = 2400 FOR UPDATE", &[]).await.unwrap();
    let steps = [TABLE, COLUMN, BACKFILL];
    let error = apply(&settings, &steps, HASTY).await.unwrap_err().to_string();
    assert!(error.contains("migration 3 gave up waiting for a lock"), "{error}");
    holder.rollback().await.unwrap();
    assert_eq!(number(&admin, "SELECT count(*) FROM items WHERE length IS NULL").await, 500);
    let xmin = "SELECT xmin::text::bigint FROM items WHERE id = 1";
    let before = number(&admin, xmin).await;

    assert_eq!(apply(&settings, &steps, HASTY).await.unwrap(), 1);
    assert_eq!(number(&admin, "SELECT count(*) FROM items WHERE length IS NULL").await, 0);
    assert_eq!(number(&admin, xmin).await, before, "what was done has been done again");
}
