//! Operations while processes are killed: none of the jobs is redriven twice and none is left out, the tally is right, and
//! the rate is kept.
//!
//! `docs/guarantees.md` F49. What a step does, case by case, is `tests/conformance` `operations`.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::programs::{Running, World};
use crate::scale::{MACHINE, dice, quick_or_long};
use crate::stage::{Store, until};
use crate::support::postgres::{Cluster, TestDatabase};

/// 1,000 jobs in a call, as the API allows.
const CALL_MAX: usize = 1000;

/// A store, and what the programs need to find it.
struct Site {
    world: World,
    database: Option<TestDatabase>,
}

impl Site {
    async fn on(store: Store) -> Self {
        let database = match store {
            Store::Sqlite => None,
            Store::Postgres => Some(Cluster::shared().await.database().await),
        };
        Self { world: World::new(), database }
    }

    /// A process that serves requests and carries operations on, and leaves the jobs to others.
    fn start(&self) -> Running {
        let mut command = self.world.steadfast();
        match &self.database {
            None => command.arg("serve"),
            Some(database) => command.arg("api").env("DATABASE_URL", &database.url),
        };
        command.env("API_BIND_ADDR", "127.0.0.1:0").env("STEADFAST_EXECUTOR", "none");
        Running::start(command)
    }

    /// So many dead letters.
    fn dead_letters(&self, server: &Running, count: usize) {
        assert_eq!(server.run(&self.world, &["kinds", "put", "mail"]).code, Some(0));
        for _ in 0..count / CALL_MAX {
            let jobs = vec![json!({"kind": "mail", "payload": {}, "max_attempts": 1}); CALL_MAX];
            assert_eq!(server.post("/jobs/batch", &json!({"jobs": jobs})).0, 200);
        }
        let mut died = BTreeMap::new();
        while die(server, &mut died) > 0 {}
        assert_eq!((died.len(), server.count("failed_permanent")), (count, count as u64));
    }
}

/// Starts up to 1,000 jobs and lets them fail. Notes the times at which each was to start; answers how many there were.
fn die(server: &Running, started: &mut BTreeMap<String, Vec<Timestamp>>) -> usize {
    let (status, answer) = server.post("/leases", &json!({"worker": "w", "max": CALL_MAX, "lease_ms": 600_000}));
    assert_eq!(status, 200, "{answer}");
    let leases = answer["leases"].as_array().unwrap();
    let failed = |lease: &Value| {
        json!({"job_id": lease["job"]["id"], "lease_token": lease["lease_token"], "outcome": "failed",
            "error": "smtp 451", "permanent": true})
    };
    for lease in leases {
        let run_at = lease["job"]["run_at"].as_str().unwrap().parse().unwrap();
        started.entry(lease["job"]["id"].as_str().unwrap().to_owned()).or_default().push(run_at);
    }
    if !leases.is_empty() {
        let outcomes: Vec<Value> = leases.iter().map(failed).collect();
        let (status, answer) = server.post("/leases/settle", &json!({"worker": "w", "outcomes": outcomes}));
        assert_eq!(status, 200, "{answer}");
    }
    leases.len()
}

fn begin(server: &Running, rate: u64) -> String {
    let redrive = json!({"action": "redrive", "filter": {"kind": "mail"}, "rate": rate});
    let (status, operation) = server.post("/operations", &redrive);
    assert_eq!(status, 202, "{operation}");
    format!("/operations/{}", operation["id"].as_str().unwrap())
}

fn changed(server: &Running, operation: &str) -> u64 {
    server.json(operation)["counts"]["changed"].as_u64().unwrap()
}

fn assert_none_twice(started: &BTreeMap<String, Vec<Timestamp>>) {
    let twice = started.values().filter(|starts| starts.len() > 1).count();
    assert_eq!(twice, 0, "so many were redriven twice");
}

/// The process that redrives 2,000 dead letters is killed again and again, and what it has redriven dies again meanwhile.
async fn killed_while_it_redrives(store: Store) {
    let _share = MACHINE.read().await;
    let mut dice = dice("operations and kills");
    let site = Site::on(store).await;
    let mut server = site.start();
    let (count, kills) = (2000, quick_or_long(4, 12));
    site.dead_letters(&server, count);
    let operation = begin(&server, 500);
    let mut started = BTreeMap::new();
    for kill in 1..=kills {
        until("it gets on", || (changed(&server, &operation) >= kill * count as u64 / (kills + 1)).then_some(()));
        die(&server, &mut started);
        assert_none_twice(&started);
        // Somewhere in a step or between two.
        std::thread::sleep(Duration::from_millis(dice.u64(..110)));
        // SIGKILL.
        drop(server);
        server = site.start();
    }
    let finished = until("it is finished", || {
        die(&server, &mut started);
        assert_none_twice(&started);
        let now = server.json(&operation);
        (now["state"] == "finished").then_some(now)
    });
    while die(&server, &mut started) > 0 {}
    let counts = &finished["counts"];
    assert_eq!(
        (&counts["changed"], &counts["unchanged"], &counts["failed"]),
        (&json!(count), &json!(0), &json!(0)),
        "the tally is wrong: {finished}"
    );
    assert_eq!(started.len(), count, "some were left out");
    assert_none_twice(&started);
    server.stop();
}

/// `docs/guarantees.md` F49.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f49_a_killed_redrive_goes_on_where_it_was_and_redrives_each_job_once_on_sqlite() {
    killed_while_it_redrives(Store::Sqlite).await;
}

/// `docs/guarantees.md` F49.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f49_a_killed_redrive_goes_on_where_it_was_and_redrives_each_job_once_on_postgresql() {
    killed_while_it_redrives(Store::Postgres).await;
}

/// By the store's own times: when each job was put back into its queue.
async fn keeps_its_rate(store: Store) {
    let _alone = MACHINE.write().await;
    let site = Site::on(store).await;
    let server = site.start();
    let (count, rate) = (1000, 200);
    site.dead_letters(&server, count);
    let operation = begin(&server, rate);
    until("it is finished", || (server.json(&operation)["state"] == "finished").then_some(()));
    let mut started = BTreeMap::new();
    while die(&server, &mut started) > 0 {}
    let mut times: Vec<Timestamp> = started.into_values().flatten().collect();
    times.sort_unstable();
    assert_eq!(times.len(), count);
    // The last step is not followed by its pause.
    let steps = times.iter().collect::<std::collections::BTreeSet<_>>().len();
    let seconds = times[count - 1].duration_since(times[0]).as_secs_f64() * steps as f64 / (steps - 1) as f64;
    let measured = count as f64 / seconds;
    assert!((measured / rate as f64 - 1.0).abs() <= 0.1, "{measured:.0} jobs a second instead of {rate}");
    server.stop();
}

/// `docs/guarantees.md` F49.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f49_a_redrive_keeps_its_rate_on_sqlite() {
    keeps_its_rate(Store::Sqlite).await;
}

/// `docs/guarantees.md` F49.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f49_a_redrive_keeps_its_rate_on_postgresql() {
    keeps_its_rate(Store::Postgres).await;
}
