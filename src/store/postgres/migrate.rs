//! Migrations: numbered, forward only, one migrator at a time. Whoever dies halfway leaves something that the next run
//! completes.
//!
//! The tables are in use meanwhile. A statement that waits for a table lock makes everything behind it wait as well, so
//! a step waits for its locks only a moment, gives up its position in the lock queue, and tries again later.

use std::time::Duration;

use tokio::time::sleep;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, SimpleQueryMessage};

use super::error::Cause;
use super::open::{check_server, connect, newer_than_known};
use super::pool::{Connector, quoted};
use super::settings::PostgresSettings;
use super::sql::rendered;
use crate::store::OpenError;

/// In order; the first one is version 1.
const MIGRATIONS: &[MigrationStep] = &[
    MigrationStep::Transactional(include_str!("migrations/0001_jobs.sql")),
    MigrationStep::Transactional(include_str!("migrations/0002_tokens.sql")),
    MigrationStep::Transactional(include_str!("migrations/0003_schedules.sql")),
    MigrationStep::Transactional(include_str!("migrations/0004_limits.sql")),
    MigrationStep::Transactional(include_str!("migrations/0005_operations.sql")),
    MigrationStep::Transactional(include_str!("migrations/0006_series.sql")),
    MigrationStep::Transactional(include_str!("migrations/0007_hooks.sql")),
];

/// The versions of the tables that this program works on. While `min` is below `max`, programs of this version may
/// replace older ones before the tables are migrated.
pub(super) struct SchemaVersions {
    pub(super) min: i32,
    pub(super) max: i32,
}

/// 7: operators' acts are written down since 5, series since 6, ends of watched jobs since 7.
pub(super) const SUPPORTED: SchemaVersions = SchemaVersions { min: 7, max: MIGRATIONS.len() as i32 };

/// Which migrations have been applied.
pub(super) const VERSIONS_TABLE: &str = "steadfast_migrations";

/// Any number, as long as nobody else uses it: the first half of the advisory lock's key. The second half is the
/// schema's name, so that two schemas of one database do not wait for each other.
const LOCK: i32 = 0x57ea_dfa5;

/// 200 ms: how often a migrator that waits for another looks whether it has ended.
const TURN_INTERVAL: Duration = Duration::from_millis(200);

/// One migration. In its SQL, `SCHEMA.` stands for the schema of the jobs.
#[derive(Clone, Copy)]
// The tables have needed nothing but the first kind so far; `tests` has steps of the others.
#[cfg_attr(not(test), expect(dead_code, reason = "kinds of steps for migrations to come"))]
enum MigrationStep {
    /// All of it or nothing. For what is quick whatever the size of the tables.
    Transactional(&'static str),
    /// One `CREATE INDEX CONCURRENTLY`, which blocks no reader and no writer however long it takes. It must create an
    /// index of this name.
    ConcurrentIndex { name: &'static str, sql: &'static str },
    /// One statement that changes at most `$1` of the rows that still need it, run until it finds none. Where it was
    /// interrupted is told by the rows themselves.
    Backfill(&'static str),
}

/// How a step waits for locks.
#[derive(Clone, Copy)]
struct LockWait {
    /// As long as this, the queue behind a waiting step stands still.
    timeout: Duration,
    /// How often a step is tried.
    tries: u32,
    /// Before the second try; doubled each time.
    backoff: Duration,
    backoff_max: Duration,
}

impl Default for LockWait {
    /// 2 s of standstill at most, a fifth of a statement's own timeout; 20 tries take two to three minutes.
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(2),
            tries: 20,
            backoff: Duration::from_millis(200),
            backoff_max: Duration::from_secs(8),
        }
    }
}

/// 1,000 rows: some tens of milliseconds during which they are locked.
const BACKFILL_ROWS: i64 = 1_000;

/// Brings the tables up to this program's version; answers how many migrations that took. Doing it again changes
/// nothing.
pub async fn migrate(settings: &PostgresSettings) -> Result<usize, OpenError> {
    apply(settings, MIGRATIONS, LockWait::default()).await
}

async fn apply(settings: &PostgresSettings, steps: &[MigrationStep], lock_wait: LockWait) -> Result<usize, OpenError> {
    let connector = Connector::new(settings)?;
    let mut turn = connect(&connector, settings).await?;
    let client = connect(&connector, settings).await?;
    check_server(&client, &connector, settings).await?;
    let explain = |error, version| explain(error, &connector, &settings.schema, version);
    let turn = take_turn(&mut turn, &settings.schema).await.map_err(|error| explain(error, 1))?;
    let mut migrator = Migrator { client, session: connector.session(), schema: &settings.schema, lock_wait };
    let found = migrator.find_version().await.map_err(|error| explain(error, 1))?;
    if found > steps.len() as i32 {
        return Err(newer_than_known(found, steps.len() as i32, &connector, settings));
    }
    let pending = (1..).zip(steps).skip(found as usize);
    let mut applied = 0;
    for (version, step) in pending {
        migrator.run(version, step).await.map_err(|error| explain(error, version))?;
        applied += 1;
    }
    // Released with its transaction, also by every error above.
    drop(turn);
    Ok(applied)
}

/// Waits until no other migrator is at work on this schema. The lock is that of a transaction on a connection of its own,
/// so that it is released by every death, and a pooler cannot give it to somebody else. An index that is built
/// concurrently waits for every snapshot, and this transaction must not have one: nobody waits for the lock in the
/// server, and it is asked for as plain text, because a statement with parameters keeps its snapshot until the next.
async fn take_turn<'a>(
    client: &'a mut Client,
    schema: &str,
) -> Result<tokio_postgres::Transaction<'a>, tokio_postgres::Error> {
    let mut is_announced = false;
    let transaction = client.transaction().await?;
    transaction.batch_execute("SET LOCAL idle_in_transaction_session_timeout = 0").await?;
    let try_lock = format!("SELECT pg_try_advisory_xact_lock({LOCK}, hashtext('{}'))", schema.replace('\'', "''"));
    loop {
        let answer = transaction.simple_query(&try_lock).await?;
        let is_locked = |message: &_| matches!(message, SimpleQueryMessage::Row(row) if row.get(0) == Some("t"));
        if answer.iter().any(is_locked) {
            return Ok(transaction);
        }
        if !std::mem::replace(&mut is_announced, true) {
            tracing::info!(schema, "another process is migrating; waiting for it to end");
        }
        sleep(TURN_INTERVAL).await;
    }
}

/// Runs steps, one after the other.
struct Migrator<'a> {
    client: Client,
    /// What a connection is set to.
    session: &'a str,
    schema: &'a str,
    lock_wait: LockWait,
}

impl Migrator<'_> {
    /// The newest migration that was applied, 0 before the first.
    async fn find_version(&self) -> Result<i32, tokio_postgres::Error> {
        let sql = "SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relname = $2";
        if self.client.query_opt(sql, &[&self.schema, &VERSIONS_TABLE]).await?.is_none() {
            return Ok(0);
        }
        let sql = format!("SELECT coalesce(max(version), 0) FROM {}", self.versions_table());
        self.client.query_one(&sql, &[]).await?.try_get(0)
    }

    async fn run(&mut self, version: i32, step: &MigrationStep) -> Result<(), tokio_postgres::Error> {
        let sql = |text| rendered(text, self.schema);
        match step {
            MigrationStep::Transactional(text) => self.run_transaction(version, &sql(text)).await,
            MigrationStep::ConcurrentIndex { name, sql: text } => {
                let sql = sql(text);
                self.build_index(name, &sql).await?;
                self.run_transaction(version, "").await
            }
            MigrationStep::Backfill(text) => {
                let sql = sql(text);
                while self.backfill_batch(&sql).await? > 0 {}
                self.run_transaction(version, "").await
            }
        }
    }

    /// The statements and the record that they were applied, or neither.
    async fn run_transaction(&mut self, version: i32, sql: &str) -> Result<(), tokio_postgres::Error> {
        let mut waits = LockRetries::new(self.lock_wait);
        loop {
            match self.try_transaction(version, sql).await {
                Err(error) => waits.again(error).await?,
                done => return done,
            }
        }
    }

    async fn try_transaction(&mut self, version: i32, sql: &str) -> Result<(), tokio_postgres::Error> {
        let table = self.versions_table();
        let (lock_timeout, schema) = (self.lock_timeout(), self.schema);
        let transaction = self.client.transaction().await?;
        transaction.batch_execute(&lock_timeout).await?;
        if version == 1 {
            // CREATE SCHEMA IF NOT EXISTS asks for a right that a user of an existing schema need not have.
            let find = "SELECT FROM pg_namespace WHERE nspname = $1";
            if transaction.query_opt(find, &[&schema]).await?.is_none() {
                transaction.batch_execute(&format!("CREATE SCHEMA {}", quoted(schema))).await?;
            }
            let columns = "version integer PRIMARY KEY, applied_at timestamptz NOT NULL";
            transaction.batch_execute(&format!("CREATE TABLE IF NOT EXISTS {table} ({columns})")).await?;
        }
        // First, so that a second migrator, which there should not be, could not do the same a second time.
        let record = format!("INSERT INTO {table} (version, applied_at) VALUES ($1, now())");
        transaction.execute(&record, &[&version]).await?;
        transaction.batch_execute(sql).await?;
        transaction.commit().await
    }

    /// Builds an index outside of any transaction, unless it is there. One that was interrupted leaves an index which is
    /// written to and never read: it is dropped and built again.
    async fn build_index(&mut self, name: &str, sql: &str) -> Result<(), tokio_postgres::Error> {
        let find = "SELECT i.indisvalid FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
                    JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relname = $2";
        let is_valid = self.client.query_opt(find, &[&self.schema, &name]).await?;
        let is_valid: Option<bool> = is_valid.map(|row| row.try_get(0)).transpose()?;
        if is_valid == Some(true) {
            return Ok(());
        }
        // It waits for every transaction that is under way, and nobody waits behind it: no lock timeout.
        self.client.batch_execute("SET statement_timeout = 0; SET lock_timeout = 0").await?;
        if is_valid == Some(false) {
            let drop = format!("DROP INDEX CONCURRENTLY {}.{}", quoted(self.schema), quoted(name));
            self.client.batch_execute(&drop).await?;
        }
        self.client.batch_execute(sql).await?;
        self.client.batch_execute(self.session).await
    }

    /// One batch, in its own transaction; answers how many rows it changed.
    async fn backfill_batch(&mut self, sql: &str) -> Result<u64, tokio_postgres::Error> {
        let mut waits = LockRetries::new(self.lock_wait);
        loop {
            match self.try_backfill_batch(sql).await {
                Err(error) => waits.again(error).await?,
                rows => return rows,
            }
        }
    }

    async fn try_backfill_batch(&mut self, sql: &str) -> Result<u64, tokio_postgres::Error> {
        let lock_timeout = self.lock_timeout();
        let transaction = self.client.transaction().await?;
        transaction.batch_execute(&lock_timeout).await?;
        let rows = transaction.execute(sql, &[&BACKFILL_ROWS]).await?;
        transaction.commit().await?;
        Ok(rows)
    }

    fn lock_timeout(&self) -> String {
        format!("SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = {}", self.lock_wait.timeout.as_millis())
    }

    fn versions_table(&self) -> String {
        format!("{}.{VERSIONS_TABLE}", quoted(self.schema))
    }
}

/// Counts the tries of one transaction.
struct LockRetries {
    wait: LockWait,
    left: u32,
}

impl LockRetries {
    fn new(wait: LockWait) -> Self {
        Self { wait, left: wait.tries.saturating_sub(1) }
    }

    /// Returns after a wait if the transaction met a lock and another try is due; the error otherwise.
    async fn again(&mut self, error: tokio_postgres::Error) -> Result<(), tokio_postgres::Error> {
        if self.left == 0 || !is_of_a_lock(&error) {
            return Err(error);
        }
        self.left -= 1;
        tracing::info!(tries_left = self.left, "a migration met a lock; it steps aside and tries again");
        sleep(self.wait.backoff.mul_f64(0.5 + fastrand::f64())).await;
        self.wait.backoff = (self.wait.backoff * 2).min(self.wait.backoff_max);
        Ok(())
    }
}

/// A lock timeout, or a deadlock that this side lost.
fn is_of_a_lock(error: &tokio_postgres::Error) -> bool {
    matches!(error.code(), Some(&SqlState::LOCK_NOT_AVAILABLE | &SqlState::T_R_DEADLOCK_DETECTED))
}

fn explain(error: tokio_postgres::Error, connector: &Connector, schema: &str, version: i32) -> OpenError {
    let (problem, way_out) = match error.code().map(SqlState::code) {
        Some("42501") => (
            format!("this user may not create tables in schema {schema:?}"),
            "GRANT it CREATE on the schema (or on the database, to make the schema), or migrate as their owner",
        ),
        Some("42P07" | "42710") => (
            format!("schema {schema:?} has tables or types of the same name that are not this program's"),
            "choose another schema for the jobs",
        ),
        Some("55P03" | "40P01") => (
            format!("migration {version} gave up waiting for a lock that another transaction holds"),
            "find that transaction in pg_stat_activity, end it, and run it again: nothing is lost",
        ),
        Some("53100") => ("the server's disk is full".into(), "free some space and run it again"),
        Some(_) => (format!("migration {version} failed"), "see the server's message, and run it again"),
        None => (format!("the connection was lost during migration {version}"), "run it again: it goes on from there"),
    };
    OpenError::new(&connector.shown, problem, way_out).caused_by(Cause::from(&error))
}

#[cfg(test)]
pub(super) mod tests;
