//! One process on SQLite and several on PostgreSQL: the same jobs, the same results.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::support::postgres::Cluster;
use crate::world::{Running, World, enqueue_lines, until};

const JOBS: usize = 1000;

/// What became of each job, by its key; without what may differ: ids, times, workers, and how often it was tried.
fn results(world: &World, server: &Running) -> BTreeMap<String, (Value, Value, Value, Value)> {
    until("all jobs succeed", || (server.count("succeeded") == JOBS as u64).then_some(()));
    let listed = server.run(world, &["jobs", "list", "--limit", "5000", "--json"]);
    assert_eq!(listed.code, Some(0), "{}", listed.stderr);
    let jobs = listed.json();
    let jobs = jobs.as_array().unwrap().iter().map(|job| {
        let field = |name: &str| job[name].clone();
        let key = job["idempotency_key"].as_str().unwrap().to_owned();
        (key, (field("kind"), field("status"), field("payload"), field("result")))
    });
    jobs.collect()
}

fn postgres_role(world: &World, program: &str, url: &str, variables: &[(&str, &str)]) -> Running {
    let mut command = world.program(program);
    command.env("DATABASE_URL", url).env("API_BIND_ADDR", "127.0.0.1:0");
    command.env("WORKER_METRICS_BIND_ADDR", "127.0.0.1:0").env("WORKER_CONCURRENCY", "50");
    command.env("STEADFAST_EXECUTOR", "simulated");
    command.envs(variables.iter().copied());
    Running::start(command)
}

#[tokio::test]
async fn one_process_on_sqlite_and_a_fleet_on_postgresql_come_to_the_same_results() {
    let database = Cluster::shared().await.empty_database().await;
    let world = World::new();

    let migrate = |expected: &str| {
        let mut command = world.program(env!("CARGO_BIN_EXE_job-queue-migrate"));
        let done = crate::world::ended(command.env("DATABASE_URL", &database.url));
        assert_eq!(done.code, Some(0), "{}", done.stderr);
        assert!(done.stdout.contains(expected), "{}", done.stdout);
        assert!(!done.stdout.contains(crate::support::postgres::PASSWORD), "{}", done.stdout);
    };
    migrate("applied");
    migrate("nothing to do");

    let api = postgres_role(&world, env!("CARGO_BIN_EXE_job-queue-api"), &database.url, &[]);
    let worker_program = env!("CARGO_BIN_EXE_job-queue-worker");
    let workers = [0, 1].map(|_| postgres_role(&world, worker_program, &database.url, &[]));
    let single = world.serve(&[("WORKER_CONCURRENCY", "100"), ("STEADFAST_EXECUTOR", "simulated")]);

    enqueue_lines(&world, &api, JOBS);
    enqueue_lines(&world, &single, JOBS);
    let (fleet_results, single_results) = (results(&world, &api), results(&world, &single));
    assert_eq!(fleet_results.len(), JOBS);
    assert!(fleet_results == single_results, "the same jobs came to other results");

    for worker in &workers {
        assert_eq!(worker.get("/livez").0, 200);
        assert_eq!(worker.get("/readyz").0, 200);
        assert_eq!(worker.get("/jobs").0, 404, "a worker is no API");
        let (_, metrics) = worker.get("/metrics");
        let started = metrics.lines().any(|line| line.starts_with("worker_jobs_started_total"));
        assert!(started, "both workers took part: {metrics}");
    }
    let ids: Vec<String> = api.json("/jobs?limit=200").as_array().unwrap().iter().map(id_of).collect();
    let names: BTreeSet<String> = ids.iter().flat_map(|id| workers_of(&api, id)).collect();
    assert_eq!(names.len(), 2, "two processes with the same settings have two names: {names:?}");

    for program in workers.into_iter().chain([api, single]) {
        program.stop();
    }
}

fn id_of(job: &Value) -> String {
    job["id"].as_str().unwrap().to_owned()
}

fn workers_of(api: &Running, id: &str) -> Vec<String> {
    let attempts = api.json(&format!("/jobs/{id}/attempts"));
    attempts.as_array().unwrap().iter().map(|attempt| attempt["worker"].as_str().unwrap().to_owned()).collect()
}
