//! The log cannot be written, or nobody reads it, or the terminal is gone: jobs are run all the same.

use std::fs::File;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::producers::{agent, post};
use crate::programs::{Running, World};

/// As many as one call takes.
const BATCH: usize = 1000;

/// A server whose jobs are left to workers over HTTP: to this test.
fn serve(world: &World, log: Stdio) -> Running {
    let mut command = world.steadfast();
    command.arg("serve").env("API_BIND_ADDR", "127.0.0.1:0").env("STEADFAST_EXECUTOR", "none");
    Running::start_logging_to(command, log)
}

/// Every failure is a line in the log.
fn fail_jobs(server: &Running, count: usize) {
    let agent = agent();
    let ask = |path: &str, body: Value| {
        let answer = post(&agent, &format!("{}{path}", server.url), &body);
        let answer = answer.unwrap_or_else(|| panic!("nobody answers {path} any more: the server is gone"));
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.body
    };
    for count in (0..count).step_by(BATCH).map(|done| BATCH.min(count - done)) {
        let jobs: Vec<Value> = vec![json!({ "kind": "summarize_text", "payload": { "text": "t" } }); count];
        ask("/jobs/batch", json!({ "jobs": jobs }));
        let mut failed = 0;
        while failed < count {
            let leased = ask("/leases", json!({ "worker": "w", "max": count - failed }));
            let outcome = |lease: &Value| {
                json!({ "job_id": lease["job"]["id"], "lease_token": lease["lease_token"], "outcome": "failed",
                    "error": "x".repeat(200), "permanent": true })
            };
            let outcomes: Vec<Value> = leased["leases"].as_array().unwrap().iter().map(outcome).collect();
            failed += outcomes.len();
            ask("/leases/settle", json!({ "worker": "w", "outcomes": outcomes }));
        }
    }
}

/// `docs/guarantees.md` F48.
#[test]
fn f48_a_server_whose_log_is_on_a_full_disk_goes_on() {
    let world = World::new();
    let full = File::options().write(true).open("/dev/full").unwrap();
    let server = serve(&world, full.into());
    fail_jobs(&server, 10);
    assert_eq!(server.get("/readyz").0, 200);
    server.stop();
}

/// `docs/guarantees.md` F48.
#[test]
fn f48_a_server_whose_log_reader_has_left_goes_on() {
    let world = World::new();
    let (reader, writer) = std::io::pipe().unwrap();
    let server = serve(&world, writer.into());
    drop(reader);
    fail_jobs(&server, 10);
    assert_eq!(server.get("/readyz").0, 200);
    server.stop();
}

/// `docs/guarantees.md` F48.
#[test]
fn f48_a_server_whose_log_nobody_reads_goes_on_and_ends_when_told() {
    let world = World::new();
    let (reader, writer) = std::io::pipe().unwrap();
    let server = serve(&world, writer.into());
    // Far more than a pipe holds, 64 KiB, and than may wait, 1 MiB.
    fail_jobs(&server, 6_000);
    assert_eq!(server.get("/readyz").0, 200);
    server.stop();
    drop(reader);
}

/// `docs/guarantees.md` F48.
#[test]
fn f48_a_server_whose_terminal_is_gone_goes_on() {
    let world = World::new();
    let server = serve(&world, Stdio::piped());
    server.signal("HUP");
    crate::stage::until("the signal is seen", || server.log().contains("SIGHUP").then_some(()));
    fail_jobs(&server, 10);
    assert_eq!(server.get("/readyz").0, 200);
    server.stop();
}
