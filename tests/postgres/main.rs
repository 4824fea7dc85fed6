//! What only PostgreSQL has: many processes, restarts, migrations, plans, notifications, transactions of the caller's.
//!
//! The verbs themselves are tested in `tests/conformance`, for every store alike. Each file here is about one thing
//! that can go wrong around them. The server is a private one; see `tests/support`.

#![cfg(feature = "postgres")]
#![expect(clippy::unwrap_used, reason = "an unwrap that fails is a test that fails")]

#[path = "../support/changed.rs"]
mod changed;

mod batches;
mod counts;
mod enqueue_in;
mod faults;
mod hot_updates;
mod lease_checks;
mod limits;
mod limits_races;
mod low_water_marks;
mod manual_edits;
mod many_lanes;
mod many_processes;
mod migrations;
mod notifications;
mod opening;
mod plans;
mod pooler;
#[path = "../support/proxy.rs"]
mod proxy;
mod runtimes;
#[path = "../support/mod.rs"]
mod support;
mod tls;
mod upgrade;
#[path = "../support/welcome.rs"]
mod welcome;
mod work;
