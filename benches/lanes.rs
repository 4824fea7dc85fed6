//! Does it cost more to claim, enqueue and beat when jobs wait in 100,000 lanes? With one lane, with as many that are due,
//! and with as many whose jobs lie in the future, in turns. Medians of single calls.
//!
//! `cargo bench --no-default-features --features postgres,sqlite --bench lanes -- postgres` (or `sqlite`; a second
//! argument says how many lanes)

#![expect(clippy::unwrap_used, reason = "a benchmark that fails has no figures")]

#[path = "../tests/support/mod.rs"]
mod support;

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use steadfast::job::{JobRequest, Json, KindDefaults, Limits, NewJob, Outcome, WorkerId};
use steadfast::store::sqlite::{SqliteSettings, SqliteStore};
use steadfast::store::{Beat, Claim, Extend, Settle, Store};
use tempfile::TempDir;

use crate::support::postgres::{Cluster, TestDatabase};

const LANES: usize = 100_000;
/// Calls of each verb in one turn, and turns.
const CALLS: usize = 50;
const TURNS: usize = 20;

struct Case {
    name: &'static str,
    store: Arc<dyn Store>,
    /// Microseconds per call: claim, enqueue, heartbeat.
    times: [Vec<f64>; 3],
    _home: Home,
}

enum Home {
    #[expect(dead_code, reason = "kept until the end")]
    Database(TestDatabase),
    #[expect(dead_code, reason = "kept until the end")]
    File(TempDir),
}

fn job(queue: &str, delay_ms: Option<i64>) -> NewJob {
    let mut request = JobRequest::new("welcome", Json::parse("{\"user\":42}".into()).unwrap()).queue(queue);
    request.delay_ms = delay_ms;
    NewJob::new(request, &KindDefaults::default(), &Limits::default(), Timestamp::now()).unwrap()
}

async fn fill(store: &dyn Store, lanes: usize, delay_ms: Option<i64>) {
    for start in (0..lanes).step_by(1000) {
        let jobs = (start..lanes.min(start + 1000)).map(|n| job(&format!("queue-{n}"), delay_ms));
        store.enqueue(jobs.collect()).await.unwrap();
    }
}

impl Case {
    async fn new(name: &'static str, cluster: Option<&Cluster>) -> Self {
        let (store, home): (Arc<dyn Store>, Home) = match cluster {
            Some(cluster) => {
                let database = cluster.database().await;
                (Arc::new(database.store().await), Home::Database(database))
            }
            None => {
                let directory = tempfile::tempdir().unwrap();
                let settings = SqliteSettings::at(directory.path().join("jobs.db"));
                (Arc::new(SqliteStore::open(settings).unwrap()), Home::File(directory))
            }
        };
        Self { name, store, times: Default::default(), _home: home }
    }

    async fn turn(&mut self) {
        let store = &self.store;
        for _ in 0..CALLS {
            let began = Instant::now();
            store.enqueue(vec![job("default", None)]).await.unwrap();
            self.times[1].push(began.elapsed().as_secs_f64() * 1e6);
        }
        for _ in 0..CALLS {
            let claim = Claim::new(WorkerId::new("bench").unwrap(), Duration::from_secs(600));
            let began = Instant::now();
            let lease = store.claim(claim).await.unwrap().leases.pop().unwrap();
            self.times[0].push(began.elapsed().as_secs_f64() * 1e6);
            let began = Instant::now();
            store.extend(Extend::new([Beat::new(lease.key())])).await.unwrap();
            self.times[2].push(began.elapsed().as_secs_f64() * 1e6);
            store.settle(vec![Settle::new(lease.key(), Outcome::Succeeded(None))]).await.unwrap();
        }
    }
}

fn median(times: &[f64]) -> f64 {
    let mut times = times.to_vec();
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let lanes = arguments.get(1).map_or(LANES, |lanes| lanes.parse().unwrap());
    let cluster = match arguments.first().map(String::as_str) {
        Some("sqlite") => None,
        Some("postgres") => Some(Cluster::start(&[]).await),
        other => panic!("which store? postgres or sqlite, not {other:?}"),
    };
    let mut cases = Vec::new();
    for (name, lanes, delay_ms) in
        [("one", 0, None), ("many, due", lanes, None), ("many, future", lanes, Some(864_000_000))]
    {
        let case = Case::new(name, cluster.as_ref()).await;
        fill(&*case.store, lanes, delay_ms).await;
        cases.push(case);
    }
    for turn in 0..=TURNS {
        for case in &mut cases {
            case.turn().await;
            if turn == 0 {
                // That was to warm up.
                case.times = Default::default();
            }
        }
    }
    let one = cases[0].times.each_ref().map(|times| median(times));
    println!("{lanes} lanes; p50 in µs, and against one lane");
    for case in &cases {
        let told = case.times.iter().zip(one).zip(["claim", "enqueue", "heartbeat"]).map(|((times, one), verb)| {
            let p50 = median(times);
            format!("{verb} {p50:7.0} ({:4.2} ×)", p50 / one)
        });
        println!("{:14} {}", case.name, told.collect::<Vec<_>>().join("  "));
    }
}
