//! What a heartbeat costs PostgreSQL: 10,000 running jobs, all of them extended again and again, the reaper in between.
//! Write-ahead log and CPU of the server per lease and beat.
//!
//! `cargo bench --no-default-features --features postgres --bench heartbeats`

#![expect(clippy::unwrap_used, reason = "a benchmark that fails has no figures")]

#[path = "../tests/support/mod.rs"]
mod support;

use std::time::Duration;

use jiff::Timestamp;
use steadfast::job::{JobRequest, Json, KindDefaults, Limits, NewJob, WorkerId};
use steadfast::store::{Beat, Claim, Extend, JobStore, Reap};
use tokio_postgres::Client;

use crate::support::postgres::Cluster;

const RUNNING: usize = 10_000;
const BEATS: usize = 30;
/// As many in one call as a worker's heartbeat sends.
const STEP: usize = 1_000;

fn job() -> NewJob {
    let request = JobRequest::new("welcome", Json::parse("{\"user\":42}".into()).unwrap());
    NewJob::new(request, &KindDefaults::default(), &Limits::default(), Timestamp::now()).unwrap()
}

/// Bytes of write-ahead log, and seconds of CPU of the processes that serve this database.
async fn spent(admin: &Client) -> (f64, f64) {
    let wal: i64 = admin.query_one("SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint", &[]).await.unwrap().get(0);
    let sql = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
               AND backend_type = 'client backend'";
    let mut ticks = 0.0;
    for row in admin.query(sql, &[]).await.unwrap() {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", row.get::<_, i32>(0))).unwrap();
        let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
        ticks += fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap();
    }
    // Linux counts in hundredths of a second.
    (wal as f64, ticks / 100.0)
}

#[tokio::main]
async fn main() {
    let cluster = Cluster::start(&[]).await;
    let database = cluster.database().await;
    let (store, admin) = (database.store().await, database.admin().await);
    for _ in 0..RUNNING / STEP {
        store.enqueue((0..STEP).map(|_| job()).collect()).await.unwrap();
    }
    let mut leases = Vec::new();
    while leases.len() < RUNNING {
        let claim = Claim::new(WorkerId::new("bench").unwrap(), Duration::from_secs(30)).max(STEP);
        leases.extend(store.claim(claim).await.unwrap().leases.iter().map(|lease| lease.key()));
    }
    admin.batch_execute("VACUUM ANALYZE").await.unwrap();
    admin.batch_execute("CHECKPOINT").await.unwrap();
    let mut figures = Vec::new();
    let mut before = spent(&admin).await;
    for beat in 0..BEATS {
        for some in leases.chunks(STEP) {
            store.extend(Extend::new(some.iter().copied().map(Beat::new))).await.unwrap();
        }
        assert_eq!(store.reap(Reap::up_to(500)).await.unwrap(), []);
        let after = spent(&admin).await;
        // The first writes whole pages, because of the checkpoint.
        if beat > 0 {
            figures.push((after.0 - before.0, after.1 - before.1));
        }
        before = after;
    }
    let of_each = (figures.len() * RUNNING) as f64;
    let wal: f64 = figures.iter().map(|(wal, _)| wal).sum();
    let cpu: f64 = figures.iter().map(|(_, cpu)| cpu).sum();
    println!(
        "{RUNNING} leases, {} beats: {:.0} bytes of WAL, {:.1} µs of the server's CPU per lease and beat",
        figures.len(),
        wal / of_each,
        cpu / of_each * 1e6
    );
}
