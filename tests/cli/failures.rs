//! A failed attempt is a line in the log, a dead letter an error; and how often a job is tried is a setting.

use serde_json::{Value, json};

use crate::support::postgres::{Cluster, TestDatabase};
use crate::world::{Running, World, until};

/// On either store, with jobs left to this test and settings as given.
fn serve(world: &World, database: Option<&TestDatabase>, variables: &[(&str, &str)]) -> Running {
    let mut all = vec![("STEADFAST_EXECUTOR", "none"), ("STEADFAST_REAP_INTERVAL_MS", "100")];
    all.extend(database.map(|database| ("DATABASE_URL", database.url.as_str())));
    all.extend(variables);
    world.serve(&all)
}

fn enqueue(server: &Running, options: &Value) -> String {
    let mut job = json!({ "kind": "summarize_text", "payload": { "text": "canary-payload" } });
    job.as_object_mut().unwrap().extend(options.as_object().unwrap().clone());
    let (status, job) = server.post("/jobs", &job);
    assert_eq!(status, 201, "{job}");
    job["id"].as_str().unwrap().to_owned()
}

/// Leases the job that is next and reports how it went.
fn settle(server: &Running, id: &str, outcome: &Value) {
    let lease = until("the job is leased", || {
        let (_, leased) = server.post("/leases", &json!({ "worker": "w", "wait_ms": 5000 }));
        leased["leases"].get(0).cloned()
    });
    assert_eq!(lease["job"]["id"], id);
    let mut report = json!({ "job_id": id, "lease_token": lease["lease_token"] });
    report.as_object_mut().unwrap().extend(outcome.as_object().unwrap().clone());
    let settlement = json!({ "worker": "w", "outcomes": [report] });
    for _ in 0..2 {
        // The second time it is on record already, and no news.
        let (_, settled) = server.post("/leases/settle", &settlement);
        assert_eq!(settled["outcomes"][0]["status"], "recorded");
    }
}

fn lines_of(log: &str, id: &str) -> Vec<String> {
    let lines = log.lines().filter(|line| line.contains(id) && line.contains("an attempt failed"));
    lines.map(str::to_owned).collect()
}

async fn every_failure_is_said_once(database: Option<TestDatabase>) {
    let world = World::new();
    let server = serve(&world, database.as_ref(), &[]);
    let failed = json!({ "outcome": "failed", "error": "smtp 451\nERROR forged", "retry_after_ms": 0 });

    let retried = enqueue(&server, &json!({ "max_attempts": 2 }));
    settle(&server, &retried, &failed);
    settle(&server, &retried, &failed);
    let cancelled = enqueue(&server, &json!({ "max_attempts": 1 }));
    let (_, leased) = server.post("/leases", &json!({ "worker": "w" }));
    assert_eq!(server.post(&format!("/jobs/{cancelled}/cancel"), &json!({})).0, 202);
    let mut report = json!({ "job_id": cancelled, "lease_token": leased["leases"][0]["lease_token"] });
    report.as_object_mut().unwrap().extend(failed.as_object().unwrap().clone());
    server.post("/leases/settle", &json!({ "worker": "w", "outcomes": [report] }));
    let fine = enqueue(&server, &json!({}));
    settle(&server, &fine, &json!({ "outcome": "succeeded" }));
    let abandoned = enqueue(&server, &json!({ "max_attempts": 1 }));
    server.post("/leases", &json!({ "worker": "gone", "lease_ms": 1000 }));
    until("the lease expires", || (!lines_of(&server.log(), &abandoned).is_empty()).then_some(()));

    let log = server.stop();
    let said = |id: &str, expected: &[&[&str]]| {
        let lines = lines_of(&log, id);
        assert_eq!(lines.len(), expected.len(), "{id}\n{log}");
        for (line, words) in lines.iter().zip(expected) {
            assert!(words.iter().all(|word| line.contains(word)), "{words:?}: {line}");
        }
    };
    let error = "smtp 451 ERROR forged";
    let first: &[&str] = &["WARN", "kind=summarize_text", "attempt=1", error, "retrying"];
    said(&retried, &[first, &["ERROR", "attempt=2", error, "dead letter"]]);
    said(&cancelled, &[&["WARN", "attempt=1", error, "cancelled"]]);
    said(&fine, &[]);
    said(&abandoned, &[&["ERROR", "attempt=1", "gone was not heard of", "lease_expired", "dead letter"]]);
    assert!(!log.contains("canary"), "{log}");
}

#[tokio::test]
async fn a_failed_attempt_is_a_warning_and_a_dead_letter_an_error_on_sqlite() {
    every_failure_is_said_once(None).await;
}

#[tokio::test]
async fn a_failed_attempt_is_a_warning_and_a_dead_letter_an_error_on_postgresql() {
    every_failure_is_said_once(Some(Cluster::shared().await.database().await)).await;
}

#[test]
fn jobs_that_a_worker_of_this_process_runs_are_said_the_same_way() {
    let world = World::new();
    let server = world.serve(&[("STEADFAST_EXECUTOR", "simulated")]);
    // Some of these fail, as their dice say.
    until("one fails", || {
        for _ in 0..20 {
            enqueue(&server, &json!({ "max_attempts": 1 }));
        }
        server.log().lines().any(|line| line.contains("ERROR") && line.contains("dead letter")).then_some(())
    });
    server.stop();
}

/// As a program reads it.
#[test]
fn a_dead_letter_is_an_error_in_a_log_of_json_too() {
    let world = World::new();
    let server = serve(&world, None, &[("RUST_LOG_FORMAT", "json")]);
    let id = enqueue(&server, &json!({ "max_attempts": 1 }));
    let error = "smtp 451\nforged \u{7f}\u{9b}31m\u{202e}";
    settle(&server, &id, &json!({ "outcome": "failed", "error": error }));
    let log = server.stop();
    let [line] = &lines_of(&log, &id)[..] else { panic!("{log}") };
    assert!(!line.contains(|c: char| c.is_control() || c == '\u{202e}'), "{line:?}");
    let event: Value = serde_json::from_str(line).unwrap();
    let said = (&event["level"], &event["job_id"], &event["kind"], &event["attempt"]);
    assert_eq!(said, (&json!("ERROR"), &json!(id), &json!("summarize_text"), &json!(1)));
    assert_eq!(event["error"], "smtp 451 forged   31m\u{202e}");
}

async fn retries_are_as_set(database: Option<TestDatabase>) {
    let world = World::new();
    let settings = [
        ("STEADFAST_DEFAULT_MAX_ATTEMPTS", "7"),
        ("STEADFAST_DEFAULT_RETRY_BASE_MS", "3600000"),
        ("STEADFAST_DEFAULT_RETRY_CAP_MS", "7200000"),
    ];
    let server = serve(&world, database.as_ref(), &settings);
    let put = |kind: &str, settings: &Value| {
        let put = ureq::put(format!("{}/kinds/{kind}", server.url)).header("content-type", "application/json");
        assert_eq!(put.send(settings.to_string()).unwrap().status().as_u16(), 201);
    };
    put("plain", &json!({}));
    let id = enqueue(&server, &json!({ "kind": "plain" }));
    assert_eq!(server.json(&format!("/jobs/{id}"))["max_attempts"], 7);
    settle(&server, &id, &json!({ "outcome": "failed", "error": "e" }));
    let job = server.json(&format!("/jobs/{id}"));
    let time = |field: &str| job[field].as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
    let wait = time("run_at").duration_since(time("updated_at")).as_secs();
    assert!((3_600..=7_200).contains(&wait), "{wait} s");

    put("own", &json!({ "retry": { "base_ms": 60_000, "cap_ms": 60_000 }, "max_attempts": 4 }));
    let id = enqueue(&server, &json!({ "kind": "own" }));
    settle(&server, &id, &json!({ "outcome": "failed", "error": "e" }));
    let job = server.json(&format!("/jobs/{id}"));
    assert_eq!(job["max_attempts"], 4, "what the kind says comes first");
    let time = |field: &str| job[field].as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
    assert_eq!(time("run_at").duration_since(time("updated_at")).as_secs(), 60);
    server.stop();
}

#[tokio::test]
async fn retry_defaults_are_settings_on_sqlite() {
    retries_are_as_set(None).await;
}

#[tokio::test]
async fn retry_defaults_are_settings_on_postgresql() {
    retries_are_as_set(Some(Cluster::shared().await.database().await)).await;
}

#[test]
fn a_shortest_wait_above_the_longest_is_refused() {
    let world = World::new();
    let done = world.run(&["serve", "--default-retry-base-ms", "60001"]);
    let line = done.one_line(2);
    assert!(line.contains("default_retry_base_ms") && line.contains("default_retry_cap_ms"), "{line}");
}
