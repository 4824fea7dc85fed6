//! Ten thousand schedules that fire at the same moment: how long until all have, and what enqueues and claims of other jobs
//! notice of it. Then, what a process asks of the store while no schedule is due.
//!
//! `cargo bench --no-default-features --features postgres,sqlite,worker --bench schedules -- postgres` (or `sqlite`; a
//! second argument says how many schedules)

#![expect(clippy::unwrap_used, reason = "a benchmark that fails has no figures")]

#[path = "../tests/support/mod.rs"]
mod support;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde_json::json;
use steadfast::job::schedule::{ScheduleRequest, ScheduleSource, ScheduledJob};
use steadfast::job::{JobRequest, Json, Outcome, ScheduleName, WorkerId};
use steadfast::store::sqlite::{SqliteSettings, SqliteStore};
use steadfast::store::{Around, CallDone, Claim, List, Settle, StatsRequest, Store, Wake, Wrapped};
use steadfast::worker::{WorkerHealth, WorkerSettings, run_housekeeping};
use steadfast::{Queue, job::Kind};

use crate::support::postgres::Cluster;

const SCHEDULES: usize = 10_000;
/// 5 s before the tick and, at least, 5 s from it on: what other jobs notice.
const MEASURED: Duration = Duration::from_secs(5);
/// 65 s: two looks of a ticker that has nothing to do.
const IDLE: Duration = Duration::from_secs(65);

/// Counts the calls of each verb.
#[derive(Debug, Default, Clone)]
struct Calls(Arc<Mutex<BTreeMap<&'static str, u64>>>);

impl Around for Calls {
    fn after(&self, done: CallDone) {
        *self.0.lock().unwrap().entry(done.verb).or_default() += 1;
    }
}

/// Milliseconds of single enqueues and claims, one after the other, until `end` says so.
async fn other_jobs(queue: &Queue, end: impl AsyncFn() -> bool) -> [Vec<f64>; 2] {
    let mut times: [Vec<f64>; 2] = Default::default();
    while !end().await {
        for _ in 0..20 {
            let began = Instant::now();
            queue.enqueue_request(JobRequest::new("other", Json::null()).queue("other")).await.unwrap();
            times[0].push(began.elapsed().as_secs_f64() * 1e3);
            let claim = Claim::new(WorkerId::new("bench").unwrap(), Duration::from_secs(600))
                .kinds(vec![Kind::new("other").unwrap()]);
            let began = Instant::now();
            let lease = queue.claim(claim).await.unwrap().leases.pop().unwrap();
            times[1].push(began.elapsed().as_secs_f64() * 1e3);
            queue.settle(vec![Settle::new(lease.key(), Outcome::Succeeded(None))]).await.unwrap();
        }
    }
    times
}

fn percentiles(times: &mut [f64]) -> String {
    times.sort_by(f64::total_cmp);
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
    format!("p50 {:.2} ms, p99 {:.2} ms, max {:.0} ms of {}", at(0.5), at(0.99), at(1.0), times.len())
}

async fn fired(queue: &Queue) -> u64 {
    let stats = queue.stats(StatsRequest::of(["scheduled".parse().unwrap()]).without_ages()).await.unwrap();
    stats.queues.values().map(|queue| queue.counts.values().sum::<u64>()).sum()
}

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let schedules = arguments.get(1).map_or(SCHEDULES, |number| number.parse().unwrap());
    let (calls, directory) = (Calls::default(), tempfile::tempdir().unwrap());
    let mut cluster = None;
    let (store, wake, _database): (Arc<dyn Store>, Wake, _) = match arguments.first().map(String::as_str) {
        Some("sqlite") => {
            let store = SqliteStore::open(SqliteSettings::at(directory.path().join("jobs.db"))).unwrap();
            let wake = store.wake().clone();
            (Arc::new(store), wake, None)
        }
        Some("postgres") => {
            let database = cluster.insert(Cluster::start(&[]).await).database().await;
            let store = database.store().await;
            let wake = store.wake().clone();
            (Arc::new(store), wake, Some(database))
        }
        other => panic!("which store? postgres or sqlite, not {other:?}"),
    };
    let builder = Queue::builder("").allow_undeclared_kinds(true);
    let queue = builder.over(Arc::new(Wrapped::new(store, calls.clone())), wake).unwrap();

    // Far enough ahead that all are stored before.
    let tick = Timestamp::now() + Duration::from_secs(20 + schedules as u64 / 100);
    let payload = Json::of(&json!({"at": "{{tick}}"})).unwrap();
    let request = ScheduleRequest::every_ms(86_400_000, ScheduledJob::new("report", payload).queue("scheduled"));
    let request = request.anchor_at(tick);
    let began = Instant::now();
    for n in 0..schedules {
        let name = ScheduleName::new(format!("schedule-{n}")).unwrap();
        queue.put_schedule(name, request.clone(), ScheduleSource::Api, None).await.unwrap();
    }
    println!("{schedules} schedules put one by one in {:.1} s", began.elapsed().as_secs_f64());

    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let housekeeping = run_housekeeping(queue.clone(), WorkerSettings::default(), WorkerHealth::default(), async {
        let _ = stopped.await;
    });
    let housekeeping = tokio::spawn(housekeeping);
    let before = tick - MEASURED;
    assert!(Timestamp::now() < before, "putting them took too long: say fewer");
    tokio::time::sleep(before.duration_since(Timestamp::now()).unsigned_abs()).await;
    let mut quiet = other_jobs(&queue, async || Timestamp::now() >= tick).await;
    let all_fired = Mutex::new(None);
    let mut busy = other_jobs(&queue, async || {
        if all_fired.lock().unwrap().is_none() && fired(&queue).await >= schedules as u64 {
            *all_fired.lock().unwrap() = Some(Timestamp::now());
        }
        all_fired.lock().unwrap().is_some() && Timestamp::now() >= tick + MEASURED
    })
    .await;
    let took = all_fired.lock().unwrap().unwrap().duration_since(tick);
    assert_eq!(fired(&queue).await, schedules as u64, "one job per tick");
    println!("all fired {:.1} s after the tick", took.as_secs_f64());
    for (n, verb) in ["enqueue", "claim"].into_iter().enumerate() {
        println!("{verb:8} before: {}", percentiles(&mut quiet[n]));
        println!("{verb:8} from the tick on: {}", percentiles(&mut busy[n]));
    }
    assert_eq!(queue.list(List::new().limit(1)).await.unwrap().jobs.len(), 1);

    calls.0.lock().unwrap().clear();
    tokio::time::sleep(IDLE).await;
    let asked = calls.0.lock().unwrap().get("due_schedules").copied().unwrap_or(0);
    println!("idle: due_schedules was called {asked} times in {} s", IDLE.as_secs());
    let _ = stop.send(());
    housekeeping.await.unwrap().unwrap();
}
