//! A job that exists if, and only if, the caller's own transaction commits.
//!
//! `cargo run --example transactional_enqueue` uses a SQLite file; with `DATABASE_URL=postgres://…` it uses that database.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use steadfast::store::StatsRequest;
use steadfast::store::sqlite::Connection;
use steadfast::{Job, Queue, Status};

type AnyError = Box<dyn std::error::Error + Send + Sync>;

#[derive(Serialize, Deserialize, JsonSchema)]
struct Welcome {
    user: u64,
}

impl Job for Welcome {
    const KIND: &'static str = "welcome";
}

#[tokio::main]
async fn main() -> Result<(), AnyError> {
    match std::env::var("DATABASE_URL") {
        Ok(url) if url.starts_with("postgres") => on_postgres(&url).await,
        _ => on_sqlite().await,
    }
}

async fn report(queue: &Queue, what: &str) -> Result<(), AnyError> {
    let stats = queue.stats(StatsRequest::new()).await?;
    let queued = stats.totals.get(&Status::Queued).copied().unwrap_or(0);
    println!("{what}: {queued} job(s) queued");
    Ok(())
}

/// SQLite has one writer, so the caller's writes go to it.
async fn on_sqlite() -> Result<(), AnyError> {
    let directory = tempfile::tempdir()?;
    let queue = Queue::open(&format!("sqlite://{}", directory.path().join("jobs.db").display())).await?;
    let add_user = |sql: &Connection| {
        sql.execute_batch("CREATE TABLE users (id INTEGER PRIMARY KEY); INSERT INTO users VALUES (42);")
    };

    let add_user_twice = move |sql: &Connection| {
        add_user(sql)?;
        sql.execute_batch("INSERT INTO users VALUES (42)")
    };
    let outcome = queue.enqueue(Welcome { user: 42 }).with_writes(add_user_twice).await?;
    println!("the user exists twice: {}", outcome.expect_err("a primary key is unique"));
    report(&queue, "after the rollback").await?;

    queue.enqueue(Welcome { user: 42 }).with_writes(add_user).await??;
    report(&queue, "after the commit").await
}

/// PostgreSQL takes part in the caller's own transaction.
async fn on_postgres(url: &str) -> Result<(), AnyError> {
    Queue::builder(url).migrate().await?;
    let queue = Queue::open(url).await?;
    let (mut client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await?;
    tokio::spawn(connection);

    let mut transaction = client.transaction().await?;
    queue.enqueue(Welcome { user: 42 }).within(&mut transaction).await?;
    transaction.rollback().await?;
    report(&queue, "after the rollback").await?;

    let mut transaction = client.transaction().await?;
    queue.enqueue(Welcome { user: 42 }).within(&mut transaction).await?;
    transaction.commit().await?;
    report(&queue, "after the commit").await
}
