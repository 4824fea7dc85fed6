//! What is true of the SQLite store alone: its one file, its one writer, its clock, and what is done to them from outside.
//!
//! What every store must do is in `tests/conformance` and not repeated here. The other side is always played by something
//! real: a second connection, a second process, a killed one. Where to look: `jobs_file.rs` has the words the cases are
//! written in, `child.rs` the roles that a second process plays.

#![cfg(feature = "sqlite")]
#![expect(clippy::unwrap_used, reason = "an unwrap that fails is a test that fails")]

#[path = "../support/changed.rs"]
mod changed;

mod backup;
mod bad_item;
mod child;
mod clock_steps;
mod counts;
mod damage;
mod enqueue_in;
mod external_lock;
mod file_modes;
mod fixture;
mod group_commit;
mod jobs_file;
mod kill;
mod lanes;
mod limit_settings;
mod limit_world;
mod limits;
mod manual_edits;
mod neighbouring_rows;
mod rates;
mod read_timeout;
mod refusals;
mod settings;
mod shutdown;
mod strict_order;
mod upgrade;
#[path = "../support/welcome.rs"]
mod welcome;
mod write_ahead_log;
