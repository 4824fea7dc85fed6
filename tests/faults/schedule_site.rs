//! Where schedules are put to the test: a store whose clock can be set, and what became of each tick.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::clocks::{call, lie, serve_lied_to, time};
use crate::producers::agent;
use crate::programs::{Running, World};
use crate::stage::{Store, until};
use crate::support::postgres::{Cluster, TestDatabase};

pub(crate) const SECOND: SignedDuration = SignedDuration::from_secs(1);

/// A store whose clock can be set, and what the programs need to find it.
pub(crate) struct Site {
    world: World,
    pub(crate) database: Option<(TestDatabase, tokio_postgres::Client)>,
}

impl Site {
    pub(crate) async fn on(store: Store) -> Self {
        let site = match store {
            Store::Sqlite => Self { world: World::new(), database: None },
            Store::Postgres => {
                let database = Cluster::shared().await.database().await;
                let admin = database.admin().await;
                // In this database only. Not replaced: what is built in is called by its number, whatever its row says.
                let clock = "CREATE TABLE offset_of_clock (by_seconds bigint NOT NULL);
                             INSERT INTO offset_of_clock VALUES (0);
                             GRANT SELECT ON offset_of_clock TO public;
                             ALTER FUNCTION pg_catalog.now() RENAME TO true_now;
                             CREATE FUNCTION pg_catalog.now() RETURNS timestamptz LANGUAGE sql STABLE AS
                             'SELECT true_now() + o.by_seconds * interval ''1 second''
                              FROM public.offset_of_clock o';";
                admin.batch_execute(clock).await.unwrap();
                Self { world: World::new(), database: Some((database, admin)) }
            }
        };
        site.set_clock(SignedDuration::ZERO).await;
        site
    }

    /// Sets the store's clock, so far from the true time.
    pub(crate) async fn set_clock(&self, by: SignedDuration) {
        match &self.database {
            None => {
                lie(&self.world, "clock", &format!("{:+}s", by.as_secs()));
            }
            Some((_, admin)) => {
                let set = "UPDATE offset_of_clock SET by_seconds = $1";
                assert_eq!(admin.execute(set, &[&by.as_secs()]).await.unwrap(), 1);
            }
        }
    }

    /// A process that serves requests and ticks, and leaves the jobs to others.
    pub(crate) fn start(&self) -> Running {
        match &self.database {
            None => serve_lied_to(&self.world, &self.world.path("clock"), "serve", &[]),
            Some((database, _)) => self.start_role(database, "api", "none"),
        }
    }

    /// One of several on a database.
    pub(crate) fn start_role(&self, database: &TestDatabase, role: &str, executor: &str) -> Running {
        let mut command = self.world.steadfast();
        command.arg(role).env("DATABASE_URL", &database.url).env("API_BIND_ADDR", "127.0.0.1:0");
        command.env("WORKER_METRICS_BIND_ADDR", "127.0.0.1:0").env("STEADFAST_EXECUTOR", executor);
        command.env("STEADFAST_REAP_INTERVAL_MS", "50");
        Running::start(command)
    }
}

/// A schedule that nobody had put. Answers its first tick.
pub(crate) fn put(server: &Running, name: &str, mut schedule: Value) -> Timestamp {
    // Two attempts: a job that fails is over soon.
    schedule["job"] = json!({"kind": "summarize_text", "payload": {"text": "{{tick}}"}, "max_attempts": 2});
    let request = agent().put(format!("{}/schedules/{name}", server.url)).header("content-type", "application/json");
    let mut response = request.send(schedule.to_string()).unwrap();
    let text = response.body_mut().read_to_string().unwrap();
    assert_eq!(response.status().as_u16(), 201, "{text}");
    time(&serde_json::from_str::<Value>(&text).unwrap()["next_runs"][0])
}

pub(crate) fn every_second() -> Value {
    json!({"every_ms": 1000, "overlap": "allow", "catch_up": "all"})
}

pub(crate) fn last_tick(server: &Running, name: &str) -> Option<Timestamp> {
    let schedule = server.json(&format!("/schedules/{name}"));
    (!schedule["last_tick_at"].is_null()).then(|| time(&schedule["last_tick_at"]))
}

pub(crate) fn next_tick(server: &Running, name: &str) -> Timestamp {
    time(&server.json(&format!("/schedules/{name}"))["next_runs"][0])
}

pub(crate) fn wait_for_tick(server: &Running, name: &str, tick: Timestamp) {
    until(&format!("{name} ticks at {tick}"), || last_tick(server, name).filter(|last| *last >= tick));
}

/// The ticks that have a job, by the keys of the jobs.
pub(crate) fn ticks_with_a_job(server: &Running, name: &str) -> Vec<Timestamp> {
    let jobs = server.json("/jobs?kind=summarize_text&limit=200");
    let jobs = jobs.as_array().unwrap();
    assert!(jobs.len() < 200, "more jobs than fit a page");
    let prefix = format!("schedule:{name}:");
    let keys = jobs.iter().filter_map(|job| {
        let tick = job["idempotency_key"].as_str().unwrap().strip_prefix(&prefix)?;
        assert_eq!(job["payload"]["text"], tick, "the job of another tick");
        Some(tick.parse().unwrap())
    });
    let mut ticks: Vec<_> = keys.collect();
    ticks.sort();
    ticks
}

/// That each second from `first` on to the last tick has one job, and that the schedule says the same of itself.
pub(crate) fn assert_one_job_per_second(server: &Running, name: &str, first: Timestamp) {
    // From here on it stands still.
    call(server, &format!("/schedules/{name}/pause"), &json!({}));
    let last = last_tick(server, name).expect("it has ticked");
    let (ticks, mut expected) = (ticks_with_a_job(server, name), BTreeSet::new());
    let mut tick = first;
    while tick <= last {
        expected.insert(tick);
        tick += SECOND;
    }
    let fired: BTreeSet<_> = ticks.iter().copied().collect();
    assert_eq!(ticks.len(), fired.len(), "ticks with two jobs: {ticks:?}");
    let missing: Vec<_> = expected.difference(&fired).collect();
    assert!(missing.is_empty(), "ticks without a job: {missing:?} of {first} to {last}");
    let schedule = server.json(&format!("/schedules/{name}"));
    assert_eq!(schedule["counts"]["fired"], ticks.len(), "it counts other jobs than there are: {schedule}");
}

/// That nothing but firing has become of any tick.
pub(crate) fn assert_all_fired(server: &Running, name: &str, first: Timestamp) {
    assert_one_job_per_second(server, name, first);
    let schedule = server.json(&format!("/schedules/{name}"));
    let counts = &schedule["counts"];
    assert!(["missed", "skipped", "refused"].iter().all(|count| counts[count] == 0), "{counts}");
    let ticks = ticks_with_a_job(server, name);
    assert_eq!(ticks.first(), Some(&first), "a job of a tick before its first");
    let records = server.json(&format!("/schedules/{name}/ticks"));
    let recorded: Vec<_> = records.as_array().unwrap().iter().map(|record| time(&record["tick"])).collect();
    // The newest 100 are kept.
    let newest: Vec<_> = ticks.iter().rev().take(100).copied().collect();
    assert_eq!(recorded, newest, "ticks that are recorded, and ticks with a job");
}

/// How many ticks a process says it has fired.
pub(crate) fn fired_by(process: &Running, name: &str) -> usize {
    let (_, metrics) = process.get("/metrics");
    let labels = format!("schedule_ticks_total{{schedule=\"{name}\",outcome=\"fired\"}} ");
    let count = metrics.lines().find_map(|line| line.strip_prefix(&labels));
    count.map_or(0, |count| count.trim().parse().unwrap())
}
