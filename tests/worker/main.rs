//! The worker runtime against real stores: what handlers do, and what the runtime makes of it.

#![allow(clippy::unwrap_used, reason = "what a test relies on may fail it")]

mod cancel;
mod dispatch;
mod drain;
mod fleet;
mod heartbeat;
mod library;
mod outcomes;
mod processes;
mod shutdown;
mod stuck;
mod watchdog;
mod world;

#[path = "../support/mod.rs"]
mod support;
