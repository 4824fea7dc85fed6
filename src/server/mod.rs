//! The programs: settings, roles and the command line. Only here: clap, anyhow, tracing-subscriber.
//!
//! Nothing here knows how a job is stored, run or served; it puts [`queue`](crate::queue), `worker` and `api` together
//! (`roles`) as told by `settings`, and talks to a running server over HTTP (`cli`), and measures all of it (`bench`). The
//! programs in `src/bin` only call [`steadfast()`] or [`role()`].

#![cfg_attr(
    not(all(feature = "api", feature = "worker")),
    allow(dead_code, unused_imports, reason = "a program with fewer roles uses a part of this")
)]

// It measures all there is, so it needs all there is.
#[cfg(all(feature = "api", feature = "postgres", feature = "sqlite", feature = "worker"))]
mod bench;
mod cli;
mod command;
mod exit;
mod log_lines;
mod log_writer;
mod out;
mod program;
mod roles;
mod settings;
mod telemetry;

pub use program::{Role, role, steadfast};
