//! Does a forgotten transaction slow claims down? Successive rounds of 50,000 jobs, without a held snapshot, with one,
//! and with one but without low-water marks, which shows that the benchmark can tell.
//!
//! `cargo bench --no-default-features --features postgres --bench held_snapshot`

#![expect(clippy::unwrap_used, reason = "a benchmark that fails has no figures")]

mod drain;
#[path = "../tests/support/mod.rs"]
mod support;

use steadfast::store::postgres::PostgresStore;

use crate::drain::{drain, enqueue};
use crate::support::postgres::Cluster;

const ROUND: usize = 50_000;
const ROUNDS: usize = 6;

#[tokio::main]
async fn main() {
    let cluster = Cluster::start(&[]).await;
    for (name, held, low_water_marks) in
        [("nothing held", false, true), ("held", true, true), ("held, without marks", true, false)]
    {
        let database = cluster.database().await;
        let mut settings = database.settings();
        settings.low_water_marks = low_water_marks;
        let store = PostgresStore::open(settings).await.unwrap();
        let reader = database.admin().await;
        if held {
            let hold = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM jobs";
            reader.batch_execute(hold).await.unwrap();
        }
        let mut rates = Vec::new();
        for _ in 0..ROUNDS {
            enqueue(&store, ROUND).await;
            rates.push(format!("{:6.0}", drain(&store, ROUND).await));
        }
        println!("{name:20} {}  jobs/s", rates.join(" "));
    }
}
