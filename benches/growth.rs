//! Does it cost more to claim and settle when the table is full? On an empty table, with 1,000,000 finished rows, and
//! with 1,000,000 waiting rows, in turns.
//!
//! `cargo bench --no-default-features --features postgres --bench growth`

#![expect(clippy::unwrap_used, reason = "a benchmark that fails has no figures")]

mod drain;
#[path = "../tests/support/mod.rs"]
mod support;

use steadfast::store::postgres::PostgresStore;

use crate::drain::{drain, enqueue};
use crate::support::postgres::{Cluster, TestDatabase};

const ROWS: usize = 1_000_000;
/// Short turns, so that what else the machine does hits all alike.
const ROUND: usize = 5_000;
const ROUNDS: usize = 40;

/// Written by hand: what the store would have written, only faster. Ids follow time, as they do in life.
const FINISHED: &str = "
    INSERT INTO jobs (id, kind, queue, payload, status, priority, attempts, max_attempts, run_at, created_at, updated_at,
                      finished_at, worker, lease_token, lease_ms, started_at, ended_at, outcome)
    SELECT (lpad(to_hex(n), 12, '0') || '70008000000000000000')::uuid, 'welcome', 'default', '{\"user\":42}', 'succeeded', 0,
           1, 3, now(), now(), now(), now(), 'w', gen_random_uuid(), 30000, now(), now(), 'succeeded'
    FROM generate_series(1, 1000000) n";

struct Case {
    name: &'static str,
    store: PostgresStore,
    rates: Vec<f64>,
    _database: TestDatabase,
}

#[tokio::main]
async fn main() {
    let cluster = Cluster::start(&[]).await;
    let mut cases = Vec::new();
    for name in ["empty", "1,000,000 finished", "1,000,000 waiting"] {
        let database = cluster.database().await;
        let store = database.store().await;
        match name {
            "1,000,000 finished" => database.admin().await.batch_execute(FINISHED).await.unwrap(),
            "1,000,000 waiting" => enqueue(&store, ROWS).await,
            _ => (),
        }
        let admin = database.admin().await;
        for tidy in ["VACUUM ANALYZE", "CHECKPOINT"] {
            admin.batch_execute(tidy).await.unwrap();
        }
        cases.push(Case { name, store, rates: Vec::new(), _database: database });
    }
    for round in 0..=ROUNDS {
        // Each in another place every round, so that what one leaves behind does not always hit the same one.
        let turns = cases.len();
        for n in 0..turns {
            let case = &mut cases[(n + round) % turns];
            enqueue(&case.store, ROUND).await;
            let rate = drain(&case.store, ROUND).await;
            // The first round warms up.
            if round > 0 {
                case.rates.push(rate);
            }
        }
    }
    let median = |mut figures: Vec<f64>| {
        figures.sort_by(f64::total_cmp);
        figures[figures.len() / 2]
    };
    for case in &cases {
        // Against the empty table in the same round.
        let shares = case.rates.iter().zip(&cases[0].rates).map(|(rate, empty)| 100.0 * rate / empty);
        let (rate, share) = (median(case.rates.clone()), median(shares.collect()));
        println!("{:20} {rate:6.0} jobs/s  {share:5.1} % of the empty table", case.name);
    }
}
