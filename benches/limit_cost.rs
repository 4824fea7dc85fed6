//! What limits cost, and what they do under load. Every case beside what it is compared with, in turns, on one store.
//!
//! `cargo bench --bench limit_cost -- postgres` (or `sqlite`). Further words: one case only, of `drain`, `blocked`, `held`
//! (PostgreSQL), `fair` and `rate`; a number says how many jobs are in front or flood (100,000 unless told; 1,000,000 for
//! the record), and everything else is at most as many.
//!
//! Plain jobs against a tree without limits: `benches/plain_drain.rs`.

#![expect(clippy::unwrap_used, reason = "a benchmark that fails has no figures")]

#[path = "../tests/support/mod.rs"]
mod support;

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use steadfast::job::{
    GroupDefaults, JobRequest, Json, KindDefaults, Lease, Limits, NewJob, Outcome, QueueName, QueueSettings, Rate,
    WorkerId,
};
use steadfast::store::sqlite::{SqliteSettings, SqliteStore};
use steadfast::store::{Claim, Claimed, PutQueue, Settle, Store};
use tempfile::TempDir;

use crate::support::postgres::{Cluster, TestDatabase};

/// What a dispatcher of fast jobs asks for.
const BATCH: usize = 200;
const TURNS: usize = 5;
/// So many claims in a row that find nothing mean that nothing will be found.
const EMPTY_MAX: usize = 1_000;

struct Home {
    store: Arc<dyn Store>,
    database: Option<TestDatabase>,
    _directory: Option<TempDir>,
}

impl Home {
    async fn new(cluster: Option<&Cluster>, settings: Option<QueueSettings>) -> Self {
        let home = match cluster {
            Some(cluster) => {
                let database = cluster.database().await;
                Self { store: Arc::new(database.store().await), database: Some(database), _directory: None }
            }
            None => {
                // Not in memory, where a temporary directory may be.
                let directory = tempfile::tempdir_in(std::env::current_dir().unwrap()).unwrap();
                let store = SqliteStore::open(SqliteSettings::at(directory.path().join("jobs.db"))).unwrap();
                Self { store: Arc::new(store), database: None, _directory: Some(directory) }
            }
        };
        if let Some(settings) = settings {
            home.store.put_queue(PutQueue::new(QueueName::new("default").unwrap(), settings)).await.unwrap();
        }
        home
    }

    async fn fill(&self, count: usize, group: impl Fn(usize) -> Option<String>) {
        let payload = Json::parse("{\"user\":42}".into()).unwrap();
        for start in (0..count).step_by(1000) {
            let jobs = (start..count.min(start + 1000)).map(|n| {
                let mut request = JobRequest::new("welcome", payload.clone());
                request.group_key = group(n);
                NewJob::new(request, &KindDefaults::default(), &Limits::default(), Timestamp::now()).unwrap()
            });
            self.store.enqueue(jobs.collect()).await.unwrap();
        }
    }

    async fn claim(&self, max: usize) -> Claimed {
        let claim = Claim::new(WorkerId::new("bench").unwrap(), Duration::from_secs(600)).max(max);
        self.store.claim(claim).await.unwrap()
    }

    async fn settle(&self, leases: &[Lease]) {
        let settles = leases.iter().map(|lease| Settle::new(lease.key(), Outcome::Succeeded(None)));
        self.store.settle(settles.collect()).await.unwrap();
    }

    /// Jobs per second over the claim and settle of `count` jobs.
    async fn drain(&self, count: usize) -> f64 {
        let (began, mut left, mut empty) = (Instant::now(), count, 0);
        while left > 0 {
            let leases = self.claim(BATCH.min(left)).await.leases;
            empty = if leases.is_empty() { empty + 1 } else { 0 };
            assert!(empty < EMPTY_MAX, "{left} of {count} jobs are nowhere to be found");
            left -= leases.len();
            self.settle(&leases).await;
        }
        count as f64 / began.elapsed().as_secs_f64()
    }
}

fn group_of(lease: &Lease) -> Option<&str> {
    lease.job().group_key.as_ref().map(|key| key.as_str())
}

fn each_group(settings: GroupDefaults) -> Option<QueueSettings> {
    Some(QueueSettings::default().groups(settings))
}

fn quantile(figures: &[f64], part: f64) -> f64 {
    let mut figures = figures.to_vec();
    figures.sort_by(f64::total_cmp);
    figures.get(((figures.len().max(1) - 1) as f64 * part) as usize).copied().unwrap_or(f64::NAN)
}

fn median(figures: &[f64]) -> f64 {
    quantile(figures, 0.5)
}

/// Plain, a queue limit that is not reached, 100 active groups without and with a limit.
async fn drain(cluster: Option<&Cluster>, count: usize) {
    let limited = Some(QueueSettings::default().concurrency(100_000));
    let cases = [
        ("plain", None, 0),
        ("queue limit", limited, 0),
        ("100 groups", None, 100),
        ("100 limited groups", each_group(GroupDefaults::default().concurrency(10_000)), 100),
    ];
    let mut homes = Vec::new();
    for (_, settings, _) in &cases {
        homes.push(Home::new(cluster, *settings).await);
    }
    let mut rates = vec![Vec::new(); cases.len()];
    for turn in 0..=TURNS {
        for ((home, (_, _, groups)), rates) in homes.iter().zip(&cases).zip(&mut rates) {
            home.fill(count, |n| (*groups > 0).then(|| format!("group-{}", n % groups))).await;
            let rate = home.drain(count).await;
            // The first was to warm up.
            rates.extend((turn > 0).then_some(rate));
        }
    }
    for (of_case, (name, ..)) in rates.iter().zip(&cases) {
        // Against the plain drain of the same turn.
        let ratios: Vec<f64> = of_case.iter().zip(&rates[0]).map(|(rate, plain)| rate / plain).collect();
        println!("drain   {name:20} {:9.0} jobs/s  {:.2} × plain", median(of_case), median(&ratios));
    }
}

/// A claim of one job with many jobs of a blocked group in front of it: flat, however many.
async fn blocked(cluster: Option<&Cluster>, most: usize) {
    let mut cases = Vec::new();
    for in_front in [10, most / 100, most] {
        let home = Home::new(cluster, each_group(GroupDefaults::default().concurrency(1))).await;
        home.fill(in_front, |_| Some("blocked".into())).await;
        let first = home.claim(1).await.leases;
        assert_eq!(first.len(), 1, "the place of the group that is to be blocked was not taken");
        cases.push((in_front, home, Vec::new(), 0));
    }
    for n in 0..200 {
        for (in_front, home, times, empty) in &mut cases {
            home.fill(1, |_| Some(format!("group-{}", n % 10))).await;
            let began = Instant::now();
            let leases = loop {
                let leases = home.claim(1).await.leases;
                if !leases.is_empty() {
                    break leases;
                }
                *empty += 1;
                assert!(*empty < EMPTY_MAX, "nothing is claimed behind {in_front}");
            };
            times.push(began.elapsed().as_secs_f64() * 1e6);
            assert_ne!(group_of(&leases[0]), Some("blocked"), "the group was not blocked");
            home.settle(&leases).await;
        }
    }
    for (in_front, _, times, empty) in &cases {
        let (p50, p99) = (median(times), quantile(times, 0.99));
        println!(
            "blocked {in_front:9} in front: {p50:7.0} µs p50, {p99:7.0} µs p99 to the job behind, {empty} empty claims"
        );
    }
}

/// Twenty rounds under a snapshot that is held, plain and with a limit.
async fn held(cluster: &Cluster, round: usize) {
    let limited = Some(QueueSettings::default().concurrency(100_000));
    let mut cases = Vec::new();
    for (name, settings) in [("plain", None), ("queue limit", limited)] {
        let home = Home::new(Some(cluster), settings).await;
        let reader = home.database.as_ref().unwrap().admin().await;
        reader.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM jobs").await.unwrap();
        cases.push((name, home, reader, Vec::new()));
    }
    for _ in 0..20 {
        for (_, home, _, rates) in &mut cases {
            home.fill(round, |_| None).await;
            rates.push(home.drain(round).await);
        }
    }
    for (name, _, _, rates) in &cases {
        let told: Vec<_> = rates.iter().map(|rate| format!("{rate:.0}")).collect();
        let last = median(&rates[15..]) / rates[0];
        println!("held    {name:12} {} jobs/s; last five {last:.2} × the first", told.join(" "));
    }
}

/// How long jobs of 99 tenants wait, with and without a flood of the hundredth, which was there first. They bring a tenth
/// of what is claimed: 20 jobs every 10 ms at most.
async fn fair(cluster: Option<&Cluster>, flood: usize) {
    // The flood outlasts it.
    let rounds = (flood / 40).clamp(50, 2_000);
    let mut cases = Vec::new();
    for flood in [0, flood] {
        let home = Home::new(cluster, None).await;
        home.fill(flood, |_| Some("flood".into())).await;
        cases.push((flood, home, Vec::new(), 0));
    }
    for round in 0..rounds {
        for (_, home, waits, of_flood) in &mut cases {
            let due = Instant::now() + Duration::from_millis(10);
            home.fill(2, |n| Some(format!("tenant-{}", (round * 2 + n) % 99))).await;
            let leases = home.claim(20).await.leases;
            for lease in &leases {
                if group_of(lease) == Some("flood") {
                    *of_flood += 1;
                } else {
                    let job = lease.job();
                    // Both by the store's clock.
                    waits.push(job.started_at.unwrap().duration_since(job.created_at).as_secs_f64() * 1e3);
                }
            }
            home.settle(&leases).await;
            tokio::time::sleep_until(due.into()).await;
        }
    }
    for (flood, _, waits, of_flood) in &cases {
        let (served, sent) = (waits.len(), rounds * 2);
        let (p50, p99, max) = (median(waits), quantile(waits, 0.99), quantile(waits, 1.0));
        println!(
            "fair    flood of {flood:8}: {served} of {sent} jobs of others started, after {p50:.1} ms p50, {p99:.1} ms p99, \
             {max:.1} ms at most; {of_flood} of the flood"
        );
    }
}

/// Starts under saturation, by whoever comes when it is told to. By the host's clock: a look, not a proof.
async fn rate(cluster: Option<&Cluster>, seconds: f64) {
    for (limit, burst) in [(10, 1), (200, 20), (2_000, 200)] {
        let home = Home::new(cluster, Some(QueueSettings::default().rate(Rate::new(limit, 1_000).burst(burst)))).await;
        home.fill((f64::from(limit) * (seconds + 2.0)) as usize + burst as usize, |_| None).await;
        let (began, mut starts) = (Instant::now(), 0);
        while began.elapsed().as_secs_f64() < seconds {
            let claimed = home.claim(BATCH).await;
            starts += claimed.leases.len();
            home.settle(&claimed.leases).await;
            if claimed.leases.is_empty() {
                tokio::time::sleep(claimed.look_again.unwrap_or(Duration::from_millis(1))).await;
            }
        }
        let allowed = f64::from(burst) + f64::from(limit) * began.elapsed().as_secs_f64();
        let used = f64::from(starts as u32) * 100.0 / allowed;
        println!("rate    {limit:5}/s burst {burst:4}: {starts} starts, {used:.1} % of what is allowed");
    }
}

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let size: usize = arguments.iter().find_map(|argument| argument.parse().ok()).unwrap_or(100_000);
    let cluster = match arguments.first().map(String::as_str) {
        Some("sqlite") => None,
        Some("postgres") => Some(Cluster::start(&[]).await),
        other => panic!("which store? postgres or sqlite, not {other:?}"),
    };
    let cases = ["drain", "blocked", "held", "fair", "rate"];
    let named: Vec<&str> = cases.into_iter().filter(|case| arguments.iter().any(|word| word == case)).collect();
    let wanted = |case: &str| named.is_empty() || named.contains(&case);
    let (cluster, round) = (cluster.as_ref(), size.min(50_000));
    if wanted("drain") {
        drain(cluster, round).await;
    }
    if wanted("blocked") {
        blocked(cluster, size).await;
    }
    if let Some(cluster) = cluster.filter(|_| wanted("held")) {
        held(cluster, round).await;
    }
    if wanted("fair") {
        fair(cluster, size).await;
    }
    if wanted("rate") {
        rate(cluster, (size as f64 / 10_000.0).clamp(1.0, 10.0)).await;
    }
}
