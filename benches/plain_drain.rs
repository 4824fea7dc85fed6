//! Jobs that use nothing new, so that two trees can be compared: one program of each, run in turns.
//!
//! `cargo bench --bench plain_drain -- postgres` (or `sqlite`); a number says how many jobs a round has. It only uses what
//! older trees have too. There, copied to `examples/`, it needs no entry in `Cargo.toml`:
//! `cp benches/plain_drain.rs ../older/examples/ && cd ../older && cargo run --release --all-features --example plain_drain -- postgres`

#![expect(clippy::unwrap_used, reason = "a benchmark that fails has no figures")]

#[path = "../benches/drain/mod.rs"]
mod drain;
#[path = "../tests/support/mod.rs"]
mod support;

use steadfast::store::Store;
use steadfast::store::sqlite::{SqliteSettings, SqliteStore};

use crate::drain::{drain, enqueue};
use crate::support::postgres::Cluster;

const ROUNDS: usize = 6;

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let count: usize = arguments.iter().find_map(|argument| argument.parse().ok()).unwrap_or(50_000);
    match arguments.first().map(String::as_str) {
        Some("postgres") => {
            let cluster = Cluster::start(&[]).await;
            let database = cluster.database().await;
            rounds(&database.store().await, count).await;
        }
        Some("sqlite") => {
            // Not in memory, where a temporary directory may be.
            let directory = tempfile::tempdir_in(std::env::current_dir().unwrap()).unwrap();
            rounds(&SqliteStore::open(SqliteSettings::at(directory.path().join("jobs.db"))).unwrap(), count).await;
        }
        other => panic!("which store? postgres or sqlite, not {other:?}"),
    }
}

async fn rounds(store: &dyn Store, count: usize) {
    let mut rates = Vec::new();
    for round in 0..=ROUNDS {
        enqueue(store, count).await;
        let rate = drain(store, count).await;
        // The first was to warm up.
        rates.extend((round > 0).then_some(rate));
    }
    let told: Vec<_> = rates.iter().map(|rate| format!("{rate:.0}")).collect();
    rates.sort_by(f64::total_cmp);
    println!("plain   {} jobs/s, median {:.0}", told.join(" "), rates[rates.len() / 2]);
}
