//! A job that exists if, and only if, the caller's own transaction commits.
//!
//! `cargo run --example transactional_enqueue` uses a SQLite file; with `DATABASE_URL=postgres://…` it uses that database.

use std::sync::Arc;

use steadfast::job::{JobRequest, Json, Kind, KindDefinition};
use steadfast::store::postgres::{PostgresSettings, PostgresStore, migrate};
use steadfast::store::sqlite::{SqliteSettings, SqliteStore};
use steadfast::{Queue, Status};

type AnyError = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), AnyError> {
    match std::env::var("DATABASE_URL") {
        Ok(url) if url.starts_with("postgres") => on_postgres(&url).await,
        _ => on_sqlite().await,
    }
}

async fn welcome(queue: &Queue) -> Result<steadfast::job::NewJob, AnyError> {
    queue.put_kind(KindDefinition::any(Kind::new("welcome")?)).await?;
    Ok(queue.prepare(JobRequest::new("welcome", Json::of(&serde_json::json!({ "user": 42 }))?)).await?)
}

async fn report(queue: &Queue, what: &str) -> Result<(), AnyError> {
    let counts = queue.stats().await?;
    let queued: u64 = counts.queues.values().filter_map(|queue| queue.counts.get(&Status::Queued)).sum();
    println!("{what}: {queued} job(s) queued");
    Ok(())
}

/// SQLite has one writer, so the caller's work goes to it.
async fn on_sqlite() -> Result<(), AnyError> {
    let directory = tempfile::tempdir()?;
    let store = Arc::new(SqliteStore::open(SqliteSettings::at(directory.path().join("jobs.db")))?);
    let queue = Queue::over(store.clone(), store.wake().clone());
    let job = welcome(&queue).await?;

    let failing = job.clone();
    let outcome = store
        .enqueue_in(move |sql| {
            sql.execute_batch("CREATE TABLE users (id INTEGER PRIMARY KEY); INSERT INTO users VALUES (42);")?;
            sql.execute("INSERT INTO users VALUES (42)", [])?;
            Ok::<_, rusqlite::Error>(vec![failing.clone()])
        })
        .await?;
    println!("the user exists twice: {}", outcome.expect_err("a primary key is unique"));
    report(&queue, "after the rollback").await?;

    store
        .enqueue_in(move |sql| {
            sql.execute_batch("CREATE TABLE users (id INTEGER PRIMARY KEY); INSERT INTO users VALUES (42);")?;
            Ok::<_, rusqlite::Error>(vec![job.clone()])
        })
        .await??;
    report(&queue, "after the commit").await
}

/// PostgreSQL takes part in the caller's own transaction.
async fn on_postgres(url: &str) -> Result<(), AnyError> {
    let settings = PostgresSettings::new(url);
    migrate(&settings).await?;
    let store = Arc::new(PostgresStore::open(settings).await?);
    let queue = Queue::over(store.clone(), store.wake().clone());
    let job = welcome(&queue).await?;
    let (mut client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await?;
    tokio::spawn(connection);

    let mut transaction = client.transaction().await?;
    store.enqueue_in(&mut transaction, std::slice::from_ref(&job)).await?;
    transaction.rollback().await?;
    report(&queue, "after the rollback").await?;

    let mut transaction = client.transaction().await?;
    store.enqueue_in(&mut transaction, &[job]).await?;
    transaction.commit().await?;
    report(&queue, "after the commit").await
}
