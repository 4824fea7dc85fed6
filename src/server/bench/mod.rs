//! `steadfast bench`: how fast this machine and this database are with Steadfast on them, measured the way people use
//! it: through [`Queue`](crate::queue::Queue), [`Worker`](crate::worker::Worker) and the HTTP API, with their defaults.
//!
//! It works in a file or a schema of its own and removes it, also when interrupted; it never touches anybody's jobs,
//! and never turns a safety off to be faster. The shapes of load are in `in_process`, `latency`, `http` and `workers`;
//! `stopwatch` is what they measure with, `run` repeats them in turns, `report` prints the results. What these mean, and
//! how they compare, is in `docs/benchmarks.md`.

mod arrivals;
mod http;
mod in_process;
mod latency;
mod noop_jobs;
mod report;
mod run;
mod server_process;
mod statistics;
mod stopwatch;
mod workers;
mod workspace;

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Args, Subcommand};

// For the harness of `benches/peer`, which measures the same operations one at a time.
pub use self::in_process::{measure_drain, measure_enqueue};
pub use self::latency::measure_latency;
pub use self::noop_jobs::{Behaviour, check_succeeded, declare, preload};
pub use self::stopwatch::{Fixture, Round};
pub use self::workspace::StoreLocation;

/// Measure how fast jobs go in and out, on this machine and database
#[derive(Debug, Args)]
pub(super) struct Bench {
    #[command(subcommand)]
    shape: Shape,
}

#[derive(Debug, Subcommand)]
enum Shape {
    /// Preload jobs, then let one worker finish them all
    Drain(in_process::Drain),
    /// Enqueue one by one and work at the same time, in one process
    Life(in_process::Life),
    /// Enqueue only, one job per call or in batches
    Enqueue(in_process::Enqueue),
    /// Jobs arrive by the clock: how long until each is started
    Latency(latency::Latency),
    /// Enqueue over HTTP against a real server process, or drain with the worker protocol
    Http(http::Http),
    /// Drain with 1, 2 and 4 worker processes at equal total concurrency (PostgreSQL)
    Workers(workers::Workers),
    /// A worker process of another benchmark
    #[command(hide = true)]
    Child(workers::WorkerProcessArgs),
}

/// What every shape takes.
#[derive(Debug, Args)]
struct Common {
    /// sqlite://FILE (which must not exist yet) or postgres://… (a schema of its own is made in that database);
    /// left out: a SQLite file in a directory of its own
    #[arg(long, value_name = "URL", env = "STEADFAST_BENCH_STORE", hide_env_values = true)]
    store: Option<String>,
    /// Where that directory is made; left out: TMPDIR if set, else the current directory
    #[arg(long, value_name = "DIRECTORY")]
    dir: Option<PathBuf>,
    /// How often each measurement is repeated; the median is reported
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    repeats: u32,
    /// One JSON object on stdout, and nothing else
    #[arg(long)]
    json: bool,
}

/// Runs the benchmark.
pub(super) fn run(bench: Bench) -> Result<()> {
    let filter = std::env::var("RUST_LOG").unwrap_or_else(|_| "warn".into());
    let lines = tracing_subscriber::fmt().with_env_filter(tracing_subscriber::EnvFilter::builder().parse_lossy(filter));
    // A program that embeds this may log by itself already.
    let _ = lines.with_writer(std::io::stderr).try_init();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start threads")?;
    let ended = runtime.block_on(async {
        match bench.shape {
            Shape::Drain(shape) => run::run(&shape.common, &shape).await,
            Shape::Life(shape) => run::run(&shape.common, &shape).await,
            Shape::Enqueue(shape) => run::run(&shape.common, &shape).await,
            Shape::Latency(shape) => run::run(&shape.common, &shape).await,
            Shape::Http(shape) => run::run(&shape.common, &shape).await,
            Shape::Workers(shape) => run::run(&shape.common, &shape).await,
            Shape::Child(child) => child.run().await,
        }
    });
    // A measurement that was broken off may still be waiting for a database.
    runtime.shutdown_background();
    ended
}
