//! Steadfast: a durable background-job queue that never loses a job it accepted.
//!
//! Jobs are stored in one SQLite file, or in PostgreSQL for many processes, with the same API and guarantees. They run at
//! least once: a handler may run again after a crash. A whole program:
//!
//! ```no_run
//! use schemars::JsonSchema;
//! use serde::{Deserialize, Serialize};
//! use std::time::Duration;
//! # #[cfg(all(feature = "sqlite", feature = "worker"))]
//! use steadfast::{Context, Job, Queue, Worker, worker::shutdown_signal};
//!
//! #[derive(Serialize, Deserialize, JsonSchema)]
//! struct Welcome { user: u64 }
//! # #[cfg(all(feature = "sqlite", feature = "worker"))]
//! impl Job for Welcome { const KIND: &'static str = "welcome"; }
//!
//! # #[cfg(not(all(feature = "sqlite", feature = "worker")))]
//! # fn main() {}
//! # #[cfg(all(feature = "sqlite", feature = "worker"))]
//! #[tokio::main]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let queue = Queue::open("sqlite://jobs.db").await?; // or postgres://…
//!     queue.enqueue(Welcome { user: 42 }).delay(Duration::from_secs(60)).idempotency_key("welcome-42").await?;
//!
//!     Worker::new(queue)
//!         .handle(|job: Welcome, _: Context| async move {
//!             println!("welcome, user {}", job.user);
//!             Ok(())
//!         })
//!         .concurrency(16)
//!         .run_until(shutdown_signal())
//!         .await?;
//!     Ok(())
//! }
//! ```
//!
//! | module | what for |
//! |---|---|
//! | [`queue`] | open a queue, enqueue jobs, read, cancel and redrive them: [`Queue`] is where to start |
//! | `worker` | run jobs in this process: [`Worker`] (feature `worker`) |
//! | `api` | serve the same over HTTP (feature `api`) |
//! | [`job`] | domain types, limits, and the state machine [`decide`](job::decide()) |
//! | [`store`] | the stores (features `sqlite`, `postgres`), their requests and answers, and how to wrap them |
//! | [`kinds`] | the built-in kinds of the server |
//! | `outbound` | the guarded HTTP client of the built-in kinds (feature `kinds-http`) |
//! | [`reexports`] | the crates whose types appear in this API |
//!
//! The default features build the server, too; a program that only embeds a queue uses
//! `default-features = false, features = ["sqlite", "worker"]` or the like. The README has the build flags for SQLite.
//!
//! Public structs and enums can gain members: build requests with constructors and setters, and give a `match` a `_` arm.
//! What is guaranteed, and the test of each guarantee, is in `docs/guarantees.md`.

#![warn(unreachable_pub)]

#[cfg(panic = "abort")]
compile_error!(
    "steadfast needs panic = \"unwind\": a handler that panics fails its own job, and a payload that is too expensive to \
     check is given up by unwinding"
);

// What tests/support says of this crate holds for the unit tests that use it, too.
#[cfg(all(test, feature = "postgres"))]
extern crate self as steadfast;

#[cfg(feature = "api")]
pub mod api;
pub mod job;
pub mod kinds;
#[cfg(feature = "kinds-http")]
pub mod outbound;
mod planted;
pub mod queue;
#[cfg(feature = "server")]
#[doc(hidden)]
pub mod server;
pub mod store;
#[cfg(feature = "worker")]
pub mod worker;

/// The crates whose types are part of this API, in the versions it was built with: `jiff` for times,
/// `schemars` for the schema of a typed job (derive with `#[schemars(crate = "steadfast::schemars")]` if your crate does not
/// depend on it), `serde_json` for schemas of declared kinds, `uuid` for ids, `async_trait` to implement [`Around`](store::Around),
/// and the database drivers whose transactions jobs can be part of.
pub mod reexports {
    #[cfg(feature = "sqlite")]
    pub use rusqlite;
    #[cfg(feature = "sqlx")]
    pub use sqlx;
    #[cfg(feature = "postgres")]
    pub use tokio_postgres;
    pub use {async_trait, jiff, schemars, serde_json, uuid};
}

pub use job::{JobId, JobRecord, JobRequest, Json, Status};
pub use queue::{Job, Queue};
pub use schemars;
#[cfg(feature = "worker")]
pub use worker::{Context, Worker};
