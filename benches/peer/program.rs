//! Lets a harness that compares queues drive this one: `OPERATION KEY=VALUE …` on the database in `DATABASE_URL`, or on
//! the SQLite file in `db=FILE`, and one JSON line in the end. The harness makes the database and throws it away.
//!
//! `cargo build --release --example peer`, then `target/release/examples/peer setup` and so on; the operations and what
//! they answer are listed in `docs/benchmarks.md`.

mod operations;

use std::process::ExitCode;

use anyhow::{Context, Result};

fn main() -> Result<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    // `latency` starts a worker process the way `steadfast bench` does: this program again, with `bench child`.
    if arguments.first().is_some_and(|first| first == "bench") {
        return Ok(steadfast::server::steadfast());
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start threads")?;
    let answer = runtime.block_on(operations::answer(&arguments, std::env::var("DATABASE_URL").ok()))?;
    println!("{answer}");
    Ok(ExitCode::SUCCESS)
}
