//! What limits cost, and what they do under load. One case after the other, in turns, on one store.
//!
//! `cargo bench --bench limit_cost -- postgres` (or `sqlite`); a third word asks for one case only: `drain`, `blocked`,
//! `held` (PostgreSQL), `fair`, `rate`; a number says how much of everything, 0.1 for a tenth.
//! Plain jobs against the release before: the line `plain` of `drain`, run on both commits in turns.

#![expect(clippy::unwrap_used, reason = "a benchmark that fails has no figures")]

#[path = "../tests/support/mod.rs"]
mod support;

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use steadfast::job::{
    GroupDefaults, GroupKey, GroupSettings, JobRequest, Json, KindDefaults, Lease, Limits, NewJob, Outcome, QueueName,
    QueueSettings, Rate, WorkerId,
};
use steadfast::store::sqlite::{SqliteSettings, SqliteStore};
use steadfast::store::{Claim, PutGroup, PutQueue, Settle, Store};
use tempfile::TempDir;

use crate::support::postgres::{Cluster, TestDatabase};

/// What a dispatcher of fast jobs asks for.
const BATCH: usize = 200;
const TURNS: usize = 5;

struct Home {
    store: Arc<dyn Store>,
    database: Option<TestDatabase>,
    _directory: Option<TempDir>,
}

impl Home {
    async fn new(cluster: Option<&Cluster>) -> Self {
        match cluster {
            Some(cluster) => {
                let database = cluster.database().await;
                Self { store: Arc::new(database.store().await), database: Some(database), _directory: None }
            }
            None => {
                let directory = tempfile::tempdir_in(std::env::current_dir().unwrap()).unwrap();
                let store = SqliteStore::open(SqliteSettings::at(directory.path().join("jobs.db"))).unwrap();
                Self { store: Arc::new(store), database: None, _directory: Some(directory) }
            }
        }
    }

    async fn set(&self, settings: QueueSettings) {
        self.store.put_queue(PutQueue::new(queue(), settings)).await.unwrap();
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

    async fn claim(&self, max: usize) -> Vec<Lease> {
        let claim = Claim::new(WorkerId::new("bench").unwrap(), Duration::from_secs(600)).max(max);
        self.store.claim(claim).await.unwrap().leases
    }

    async fn settle(&self, leases: &[Lease]) {
        let settles = leases.iter().map(|lease| Settle::new(lease.key(), Outcome::Succeeded(None)));
        self.store.settle(settles.collect()).await.unwrap();
    }

    /// Jobs per second over the claim and settle of `count` jobs.
    async fn drain(&self, count: usize) -> f64 {
        let (began, mut left) = (Instant::now(), count);
        while left > 0 {
            let leases = self.claim(BATCH.min(left)).await;
            left -= leases.len();
            self.settle(&leases).await;
        }
        count as f64 / began.elapsed().as_secs_f64()
    }
}

fn queue() -> QueueName {
    QueueName::new("default").unwrap()
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

fn quantile(figures: &mut [f64], part: f64) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[((figures.len() - 1) as f64 * part) as usize]
}

/// Plain, a queue limit that is not reached, 100 active groups without and with a limit.
async fn drain(cluster: Option<&Cluster>, count: usize) {
    let limited = QueueSettings::default().concurrency(100_000);
    let groups = QueueSettings::default().groups(GroupDefaults::default().concurrency(10_000));
    let cases = [
        ("plain", None, 0),
        ("queue limit", Some(limited), 0),
        ("100 groups", None, 100),
        ("100 limited groups", Some(groups), 100),
    ];
    let mut homes = Vec::new();
    for (_, settings, _) in cases {
        let home = Home::new(cluster).await;
        if let Some(settings) = settings {
            home.set(settings).await;
        }
        homes.push(home);
    }
    let mut rates = vec![Vec::new(); cases.len()];
    for turn in 0..=TURNS {
        for ((home, (_, _, groups)), rates) in homes.iter().zip(cases).zip(&mut rates) {
            home.fill(count, |n| (groups > 0).then(|| format!("group-{}", n % groups))).await;
            let rate = home.drain(count).await;
            // The first was to warm up.
            rates.extend((turn > 0).then_some(rate));
        }
    }
    for (of_case, (name, ..)) in rates.iter().zip(cases) {
        // Against the plain drain of the same turn.
        let ratio = median(of_case.iter().zip(&rates[0]).map(|(rate, plain)| rate / plain).collect());
        println!("drain  {name:20} {:9.0} jobs/s  {ratio:.2} × plain", median(of_case.clone()));
    }
}

/// A claim of one job with many jobs of a blocked group in front of it.
async fn blocked(cluster: Option<&Cluster>, most: usize) {
    for in_front in [0, most / 100, most] {
        let home = Home::new(cluster).await;
        home.set(QueueSettings::default().groups(GroupDefaults::default().concurrency(1))).await;
        home.fill(in_front, |_| Some("blocked".into())).await;
        home.claim(1).await;
        let mut times = Vec::new();
        for n in 0..200 {
            home.fill(1, |_| Some(format!("g{}", n % 10))).await;
            let began = Instant::now();
            let leases = home.claim(1).await;
            times.push(began.elapsed().as_secs_f64() * 1e6);
            assert!(leases.len() == 1 || in_front == 0, "nothing was claimed behind {in_front}");
            home.settle(&leases).await;
        }
        println!(
            "blocked {in_front:9} in front: claim {:7.0} µs p50, {:7.0} p99",
            median(times.clone()),
            quantile(&mut times, 0.99)
        );
    }
}

/// Rounds under a snapshot that is held, with a limit.
async fn held(cluster: &Cluster, round: usize) {
    let home = Home::new(Some(cluster)).await;
    home.set(QueueSettings::default().concurrency(100_000)).await;
    let reader = home.database.as_ref().unwrap().admin().await;
    reader.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM jobs").await.unwrap();
    let mut rates = Vec::new();
    for _ in 0..20 {
        home.fill(round, |_| None).await;
        rates.push(home.drain(round).await);
    }
    let told: Vec<_> = rates.iter().map(|rate| format!("{rate:.0}")).collect();
    println!(
        "held, limited: {} jobs/s; last five {:.2} × the first",
        told.join(" "),
        median(rates[15..].to_vec()) / rates[0]
    );
}

/// How long jobs of 99 tenants wait while claims keep up, with and without a flood of the hundredth.
async fn fair(cluster: Option<&Cluster>, flood: usize) {
    for flood in [0, flood] {
        let home = Home::new(cluster).await;
        home.fill(flood, |_| Some("flood".into())).await;
        let weight = GroupSettings::default().weight(1);
        home.store.put_group(PutGroup::new(queue(), GroupKey::new("flood").unwrap(), weight)).await.unwrap();
        let mut waits = Vec::new();
        for round in 0..300 {
            home.fill(10, |n| Some(format!("tenant-{}", (round * 10 + n) % 99))).await;
            let leases = home.claim(BATCH).await;
            let now = Timestamp::now();
            for lease in &leases {
                if lease.job().group_key.as_ref().is_some_and(|key| key.as_str() != "flood") {
                    waits.push(now.duration_since(lease.job().created_at).as_secs_f64() * 1e3);
                }
            }
            home.settle(&leases).await;
        }
        let served = waits.len();
        println!(
            "fair, flood of {flood:8}: {served} of 3000 others served, wait {:6.1} ms p50, {:6.1} ms p99",
            quantile(&mut waits, 0.5),
            quantile(&mut waits, 0.99)
        );
    }
}

/// Starts under saturation, by whoever comes when it is told to.
async fn rate(cluster: Option<&Cluster>) {
    for (limit, burst) in [(10, 1), (200, 20), (2_000, 200)] {
        let home = Home::new(cluster).await;
        home.set(QueueSettings::default().rate(Rate::new(limit, 1_000).burst(burst))).await;
        home.fill(limit as usize * 12, |_| None).await;
        let (began, mut starts) = (Instant::now(), 0);
        while began.elapsed() < Duration::from_secs(10) {
            let claim = Claim::new(WorkerId::new("bench").unwrap(), Duration::from_secs(600)).max(BATCH);
            let claimed = home.store.claim(claim).await.unwrap();
            starts += claimed.leases.len();
            home.settle(&claimed.leases).await;
            if claimed.leases.is_empty() {
                tokio::time::sleep(claimed.look_again.unwrap_or(Duration::from_millis(1))).await;
            }
        }
        let allowed = f64::from(burst) + f64::from(limit) * began.elapsed().as_secs_f64();
        println!(
            "rate {limit:5}/s burst {burst:4}: {starts} starts, {:.1} % of what is allowed",
            starts as f64 * 100.0 / allowed
        );
    }
}

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let scale: f64 = arguments.iter().find_map(|argument| argument.parse().ok()).unwrap_or(1.0);
    let cluster = match arguments.first().map(String::as_str) {
        Some("sqlite") => None,
        Some("postgres") => Some(Cluster::start(&[]).await),
        other => panic!("which store? postgres or sqlite, not {other:?}"),
    };
    let named =
        ["drain", "blocked", "held", "fair", "rate"].iter().find(|case| arguments.iter().any(|word| word == *case));
    let wanted = |case: &str| named.is_none_or(|named| *named == case);
    let many = |count: f64| (count * scale) as usize;
    let cluster = cluster.as_ref();
    if wanted("drain") {
        drain(cluster, many(50_000.0)).await;
    }
    if wanted("blocked") {
        blocked(cluster, many(1_000_000.0)).await;
    }
    if let Some(cluster) = cluster.filter(|_| wanted("held")) {
        held(cluster, many(50_000.0)).await;
    }
    if wanted("fair") {
        fair(cluster, many(1_000_000.0)).await;
    }
    if wanted("rate") {
        rate(cluster).await;
    }
}
