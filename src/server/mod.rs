//! The programs: settings, roles and the command line. Only here: clap, anyhow, tracing-subscriber.
//!
//! **Not public API.** It is `pub` because the programs in `src/bin`, which call [`steadfast()`] and [`role()`], and our
//! own benchmarks are crates of their own; it changes without notice. To embed a queue, use [`queue`](crate::queue),
//! `worker` and `api`.
//!
//! Nothing here knows how a job is stored, run or served. `roles` puts the other rooms together as told by `settings`,
//! `cli` talks to a running server over HTTP, `bench` measures, `demo` shows.

#![cfg_attr(
    not(all(
        feature = "api",
        feature = "worker",
        feature = "kinds-image",
        feature = "kinds-mail",
        feature = "kinds-text"
    )),
    allow(dead_code, unused_imports, reason = "a program with fewer roles or kinds uses a part of this")
)]

// It measures all there is, so it needs all there is.
#[cfg(all(feature = "api", feature = "postgres", feature = "sqlite", feature = "worker"))]
pub mod bench;
mod cli;
mod command_line;
// A server with a file of its own.
#[cfg(all(feature = "api", feature = "sqlite", feature = "worker"))]
mod demo;
mod exit;
mod log_writer;
mod logging;
mod program;
// From one store to the other.
#[cfg(all(feature = "postgres", feature = "sqlite"))]
mod promote;
mod roles;
mod settings;
mod stdio;
mod webhooks;

pub use program::{Role, role, steadfast};
