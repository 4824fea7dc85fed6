//! The real programs, started as a person or a service manager would start them.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod alerts;
mod audit;
mod bench;
mod bulk;
mod canary;
mod command_line;
mod config;
mod demo;
mod errors;
mod failures;
mod fleet;
mod health;
mod hooks;
mod housekeeping;
mod job_lists;
mod limits;
mod metrics;
mod operations;
mod packaging;
mod promote;
mod readme;
mod schedules;
mod shutdown;
mod startup;
#[path = "../support/mod.rs"]
mod support;
mod terminal;
mod top;
mod watching;
mod workers;
#[path = "../support/programs.rs"]
mod world;
