//! How near is the queue to what its database allows? The raw limit for the same contract and `steadfast bench`, in
//! turns on the same disk and the same server, and the ratios between them.
//!
//! `cargo bench --bench limits`, or `cargo bench --bench limits -- 0.1` for a tenth of the rows; add `sqlite` or
//! `postgres` for one of them.

#![expect(clippy::unwrap_used, reason = "a benchmark that fails has no figures")]

mod raw;
#[path = "../tests/support/mod.rs"]
mod support;

use std::path::Path;
use std::process::Command;

use crate::raw::Steps;
use crate::support::postgres::Cluster;

const TURNS: usize = 3;

/// The raw cases: steps, rows per batch, rows on SQLite, rows on PostgreSQL. Sized for some seconds each.
const RAW: [(Steps, usize, usize, usize); 8] = [
    (Steps::Insert, 1, 10_000, 30_000),
    (Steps::Insert, 1000, 500_000, 1_000_000),
    (Steps::Life, 1, 10_000, 20_000),
    (Steps::Life, 100, 300_000, 200_000),
    (Steps::Life, 1000, 500_000, 300_000),
    (Steps::Drain, 1, 10_000, 20_000),
    (Steps::Drain, 100, 300_000, 300_000),
    (Steps::Drain, 1000, 500_000, 500_000),
];

/// What `steadfast bench` is asked for, and the raw case it is held against.
struct Ours {
    shape: &'static str,
    arguments: &'static [&'static str],
    jobs: usize,
    against: (Steps, usize),
}

const OURS: [Ours; 5] = [
    Ours { shape: "drain", arguments: &[], jobs: 200_000, against: (Steps::Drain, 1000) },
    Ours { shape: "life", arguments: &[], jobs: 100_000, against: (Steps::Life, 100) },
    Ours { shape: "enqueue", arguments: &[], jobs: 100_000, against: (Steps::Insert, 1) },
    Ours { shape: "enqueue", arguments: &["--batch", "1000"], jobs: 300_000, against: (Steps::Insert, 1000) },
    Ours { shape: "http", arguments: &["--batch", "500"], jobs: 300_000, against: (Steps::Insert, 1000) },
];

/// A database under test.
enum Store<'a> {
    Sqlite(&'a Path),
    Postgres(String),
}

impl Store<'_> {
    async fn raw(&self, steps: Steps, batch: usize, scale: f64) -> f64 {
        let (.., sqlite_rows, postgres_rows) = *RAW.iter().find(|(s, b, ..)| (*s, *b) == (steps, batch)).unwrap();
        let rows = |rows: usize| ((rows as f64 * scale) as usize).max(batch);
        match self {
            Self::Sqlite(directory) => raw::sqlite::rate(directory, steps, rows(sqlite_rows), batch),
            Self::Postgres(url) => raw::postgres::rate(url, steps, rows(postgres_rows), batch).await,
        }
    }

    /// The rate that `steadfast bench` reports for one round.
    fn ours(&self, ours: &Ours, scale: f64) -> f64 {
        let mut command = Command::new(env!("CARGO_BIN_EXE_steadfast"));
        let jobs = ((ours.jobs as f64 * scale) as usize).max(1000).to_string();
        command.args(["bench", ours.shape, "--json", "--repeats", "1", "--jobs", &jobs]).args(ours.arguments);
        match self {
            Self::Sqlite(directory) => command.arg("--dir").arg(directory),
            Self::Postgres(url) => command.env("STEADFAST_BENCH_STORE", url),
        };
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        report["cases"][0]["per_s"]["median"].as_f64().unwrap()
    }
}

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let scale = arguments.iter().find_map(|argument| argument.parse().ok()).unwrap_or(1.0);
    let wanted = |name: &str| {
        let named = |name: &str| arguments.iter().any(|argument| argument == name);
        named(name) || !(named("sqlite") || named("postgres"))
    };
    if wanted("sqlite") {
        let directory = tempfile::tempdir_in(std::env::current_dir().unwrap()).unwrap();
        compare("SQLite, synchronous=FULL, one connection", &Store::Sqlite(directory.path()), scale).await;
    }
    if wanted("postgres") {
        let cluster = Cluster::bare(&["checkpoint_timeout = 15min", "max_wal_size = 8GB"]).await;
        let admin = cluster.admin("postgres").await;
        admin.batch_execute("CREATE DATABASE limits").await.unwrap();
        let name = "PostgreSQL, synchronous_commit=on, 32 connections at batch 1, else 2";
        compare(name, &Store::Postgres(cluster.url("limits")), scale).await;
    }
}

async fn compare(name: &str, store: &Store<'_>, scale: f64) {
    let mut raw = vec![Vec::new(); RAW.len()];
    let mut ours = vec![Vec::new(); OURS.len()];
    for _ in 0..TURNS {
        for (rates, (steps, batch, ..)) in raw.iter_mut().zip(RAW) {
            rates.push(store.raw(steps, batch, scale).await);
        }
        for (rates, case) in ours.iter_mut().zip(OURS) {
            rates.push(store.ours(&case, scale));
        }
    }
    println!("\n{name}: jobs/s, median of {TURNS} turns, least..most");
    for (rates, (steps, batch, ..)) in raw.iter().zip(RAW) {
        println!("  raw {:24} {}", format!("{steps:?} batch {batch}"), shown(rates));
    }
    for (rates, Ours { shape, arguments, against, .. }) in ours.iter().zip(OURS) {
        let limit = RAW.iter().position(|(steps, batch, ..)| (*steps, *batch) == against).unwrap();
        // Against the raw rate of the same turn.
        let ratio = median(rates.iter().zip(&raw[limit]).map(|(ours, raw)| ours / raw).collect());
        let (what, (steps, batch)) = (format!("{shape} {}", arguments.join(" ")), against);
        println!("  steadfast {what:40} {}   {ratio:.2} × raw {steps:?} batch {batch}", shown(rates));
    }
}

fn shown(rates: &[f64]) -> String {
    let (least, most) = (rates.iter().copied().fold(f64::MAX, f64::min), rates.iter().copied().fold(0.0, f64::max));
    format!("{:9.0}  {least:.0}..{most:.0}", median(rates.to_vec()))
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}
