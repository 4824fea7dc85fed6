//! Migrations: numbered, forward only, each in a transaction of its own under a lock, so that two processes may
//! migrate at once and one that dies halfway leaves nothing half done.

use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

use super::cause::Cause;
use super::open::{check_server, connect, newer_than_known};
use super::pool::{Dial, quoted};
use super::settings::PostgresSettings;
use super::sql::rendered;
use crate::store::OpenError;

/// In order; the first one is version 1.
pub(super) const MIGRATIONS: [&str; 2] =
    [include_str!("migrations/0001_jobs.sql"), include_str!("migrations/0002_tokens.sql")];

/// Which of them have been applied.
pub(super) const VERSIONS_TABLE: &str = "steadfast_migrations";

/// Any number, as long as nobody else uses it: the first half of the advisory lock's key. The second half is the
/// schema's name, so that two schemas of one database do not wait for each other.
const LOCK: i32 = 0x57ea_dfa5;

/// Brings the tables up to this program's version; answers how many migrations that took. Doing it again changes
/// nothing.
pub async fn migrate(settings: &PostgresSettings) -> Result<usize, OpenError> {
    let dial = Dial::new(settings)?;
    let mut client = connect(&dial, settings).await?;
    check_server(&client, &dial, settings).await?;
    let mut applied = 0;
    for (n, migration) in MIGRATIONS.iter().enumerate() {
        let version = n as i32 + 1;
        match step(&mut client, &settings.schema, version, migration).await {
            Ok(Step::Applied) => applied += 1,
            Ok(Step::AppliedBefore) => {}
            Ok(Step::Newer(found)) => return Err(newer_than_known(found, &dial, settings)),
            Err(error) => return Err(explain(error, &dial, &settings.schema, version)),
        }
    }
    Ok(applied)
}

/// What came of one migration.
enum Step {
    Applied,
    AppliedBefore,
    /// A newer program has been here; this is its version. Nothing was changed.
    Newer(i32),
}

/// Applies one migration, unless it has been.
async fn step(client: &mut Client, schema: &str, version: i32, migration: &str) -> Result<Step, tokio_postgres::Error> {
    let transaction = client.transaction().await?;
    // Another migrator may take long, and so may an index on a large table.
    transaction.batch_execute("SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0").await?;
    transaction.execute("SELECT pg_advisory_xact_lock($1, hashtext($2))", &[&LOCK, &schema]).await?;
    // CREATE SCHEMA IF NOT EXISTS asks for a right that a user of an existing schema need not have.
    let exists = transaction.query_opt("SELECT FROM pg_namespace WHERE nspname = $1", &[&schema]).await?.is_some();
    if !exists {
        transaction.batch_execute(&format!("CREATE SCHEMA {}", quoted(schema))).await?;
    }
    let table = format!("{}.{VERSIONS_TABLE}", quoted(schema));
    let find =
        "SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relname = $2";
    if transaction.query_opt(find, &[&schema, &VERSIONS_TABLE]).await?.is_none() {
        let create = format!("CREATE TABLE {table} (version integer PRIMARY KEY, applied_at timestamptz NOT NULL)");
        transaction.batch_execute(&create).await?;
    }
    let find = format!("SELECT coalesce(max(version), 0) FROM {table}");
    let found: i32 = transaction.query_one(&find, &[]).await?.try_get(0)?;
    if found > MIGRATIONS.len() as i32 {
        return Ok(Step::Newer(found));
    }
    if found >= version {
        return Ok(Step::AppliedBefore);
    }
    transaction.batch_execute(&rendered(migration, schema)).await?;
    let record = format!("INSERT INTO {table} (version, applied_at) VALUES ($1, now())");
    transaction.execute(&record, &[&version]).await?;
    transaction.commit().await?;
    Ok(Step::Applied)
}

fn explain(error: tokio_postgres::Error, dial: &Dial, schema: &str, version: i32) -> OpenError {
    let (problem, way_out) = match error.code().map(SqlState::code) {
        Some("42501") => (
            format!("this user may not create tables in schema {schema:?}"),
            "GRANT it CREATE on the schema (or on the database, to make the schema), or migrate as their owner",
        ),
        Some("42P07" | "42710") => (
            format!("schema {schema:?} has tables or types of the same name that are not this program's"),
            "choose another schema for the jobs",
        ),
        Some("53100") => ("the server's disk is full".into(), "free some space and run it again"),
        Some(_) => (format!("migration {version} failed and was undone"), "see the server's message"),
        None => (format!("the connection was lost during migration {version}"), "run it again: nothing is half done"),
    };
    OpenError::new(&dial.shown, problem, way_out).caused_by(Cause::from(&error))
}
