//! Things break here, on purpose: real processes, real signals, real databases. Each test begins with the number of the
//! line it proves (`docs/guarantees.md` has the list). `planted`, in a build of its own, shows that the tests can fail.
//!
//! `STEADFAST_FAULTS=long` asks for more rounds and minutes of the same; `STEADFAST_FAULTS_SEED` for the seed that a
//! scenario has printed. What a verb does without anything breaking is tested in `tests/conformance`, not here.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

#[path = "../support/changed.rs"]
mod changed;

mod attackers;
mod batches;
mod both;
mod clocks;
mod customers;
mod database;
mod disk_full;
mod errors;
mod flood;
mod gone_workers;
mod guesses;
mod history;
mod history_cases;
mod hooks;
mod hostile_text;
mod io_error;
mod journal;
mod kill;
mod killers;
mod leases;
mod limit_site;
mod limit_storms;
mod limit_turns;
mod limits;
mod link;
mod logs;
mod made_up_queues;
mod memory_attacks;
mod mount;
mod operations;
mod outbound;
mod overload;
mod payload_attacks;
#[cfg(steadfast_planted)]
mod planted;
mod players;
mod poison;
mod power_cut;
mod producers;
#[path = "../support/programs.rs"]
mod programs;
#[path = "../support/proxy.rs"]
mod proxy;
mod remote;
mod root;
mod scale;
mod schedule_site;
mod schedules;
mod shutdown;
mod sqlite_file;
mod stage;
#[path = "../support/mod.rs"]
mod support;
mod sync_order;
mod tokens;
mod tracer;
mod unwritable;
mod zombies;
