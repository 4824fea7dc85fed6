//! The real programs, started as a person or a service manager would start them.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod bench;
mod bulk;
mod canary;
mod command_line;
mod config;
mod failures;
mod fleet;
mod housekeeping;
mod limits;
mod metrics;
mod packaging;
mod readme;
mod shutdown;
mod startup;
#[path = "../support/mod.rs"]
mod support;
mod terminal;
mod watching;
#[path = "../support/programs.rs"]
mod world;
