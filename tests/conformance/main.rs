//! One suite for every store: what makes SQLite and PostgreSQL give the same answers.
//!
//! Each case is a sentence about one verb, written against the [`Store`](steadfast::store::Store) trait and a [`World`]
//! that holds the store's clock. `suite.rs` lists the cases; a store takes part by one `conformance_suite!` line below.
//! `model.rs` is the same behaviour once more, as the simplest program there could be, and `model_test.rs` compares a
//! store with it along random sequences of calls. Nothing here reaches around the trait, except for the damage that
//! [`World`] can do.

#![expect(clippy::unwrap_used, reason = "an unwrap that fails is a test that fails")]

#[path = "../support/changed.rs"]
mod changed;

mod attempts;
mod audit;
mod cancel;
mod claim;
mod concurrency;
mod corners;
mod delete;
mod enqueue;
mod errors;
mod explain;
mod extend;
mod fence;
mod fields;
mod filters;
mod groups;
mod hooks;
mod kinds;
mod limit_phrases;
mod limit_races;
mod limit_steps;
mod limit_taker;
mod limits;
mod list;
mod model;
mod model_errors;
mod model_limits;
mod model_test;
mod operations;
mod pause;
mod phrases;
#[cfg(feature = "postgres")]
mod postgres_world;
mod prune;
mod races;
mod rates;
mod reap;
mod redrive;
mod retry;
mod schedules;
mod series;
mod sessions;
mod settle;
#[cfg(feature = "sqlite")]
mod sqlite_world;
mod start_deadline;
mod stats;
mod step;
mod step_taker;
mod strict_order;
mod suite;
#[cfg(feature = "postgres")]
#[path = "../support/mod.rs"]
mod support;
mod tokens;
mod unique;
mod workers;
mod world;

use crate::suite::{cases, conformance_suite};
use crate::world::World;

#[cfg(feature = "sqlite")]
conformance_suite!(sqlite => crate::sqlite_world::SqliteWorld);

#[cfg(feature = "postgres")]
conformance_suite!(postgres => crate::postgres_world::PostgresWorld);
