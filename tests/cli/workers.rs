//! `steadfast workers`: what it shows, on terminals of two widths, and that a drain reaches the worker.

use serde_json::json;

use crate::terminal::{Terminal, bare};
use crate::world::{World, until};

const EXECUTOR: [(&str, &str); 1] = [("STEADFAST_EXECUTOR", "none")];
const WORKER: &str = "a-worker-with-a-rather-long-name-01a1e137";

#[test]
fn workers_are_listed_shown_drained_and_let_go_on() {
    let world = World::new();
    let server = world.serve(&EXECUTOR);
    let nobody = server.run(&world, &["workers"]);
    assert_eq!((nobody.code, nobody.stdout.trim()), (Some(0), "no worker was seen within a day"));
    server.run(&world, &["enqueue", "summarize_text", r#"{"text":"t"}"#]);
    let info =
        json!({"host": "a-host-with-a-name", "pid": 4711, "language": "python", "version": "2.0.1", "concurrency": 16});
    let kinds = ["summarize_text", "send_email", "resize_image", "webhook_delivery"];
    let body = json!({"worker": WORKER, "kinds": kinds, "info": info});
    let lease = server.post("/leases", &body).1["leases"][0].clone();
    let id = lease["job"]["id"].as_str().unwrap();
    until("the worker is recorded", || (server.get(&format!("/workers/{WORKER}")).0 == 200).then_some(()));
    let listed = server.run(&world, &["workers", "--json"]).json();
    assert_eq!((&listed[0]["worker"], &listed[0]["state"]), (&json!(WORKER), &json!("live")));
    for columns in [60, 80] {
        for (arguments, seen) in [
            ("workers".to_owned(), &["STATE", "live", "1/16", "KINDS", "FETCHED"][..]),
            (format!("workers show {WORKER}"), &["is live, busy 1/16", "python", id, "summarize_text"]),
            ("workers --help".to_owned(), &["undrain"]),
        ] {
            let shown = bare(&Terminal { columns, input: "" }.run(&world, &server, &arguments));
            assert!(shown.iter().all(|line| line.chars().count() <= columns.into()), "{arguments}: {shown:#?}");
            let text = shown.join("\n");
            assert!(seen.iter().all(|word| text.contains(word)), "{arguments}: {text}");
        }
    }
    let said = server.run(&world, &["workers", "drain", WORKER]).stdout;
    assert_eq!(said.trim(), format!("worker {WORKER} is told to drain: it finishes 1 job and starts no more"));
    let beat = json!({"job_id": id, "lease_token": lease["lease_token"]});
    let beat = json!({"worker": WORKER, "leases": [beat]});
    assert_eq!(server.post("/leases/heartbeat", &beat).1["worker"], "drain");
    assert!(server.run(&world, &["workers"]).stdout.contains("draining"));
    let said = server.run(&world, &["workers", "undrain", WORKER]).stdout;
    assert_eq!(said.trim(), format!("worker {WORKER} is told to go on"));
    assert_eq!(server.post("/leases/heartbeat", &beat).1["worker"], "run");
    assert_eq!(server.run(&world, &["workers", "drain", "nobody"]).code, Some(4));
    assert_eq!(server.run(&world, &["workers", "show", "nobody"]).code, Some(4));
    server.stop();
}

#[test]
fn the_workers_of_a_server_are_listed_too() {
    let world = World::new();
    let server = world.serve(&[("STEADFAST_EXECUTOR", "simulated")]);
    let shown = until("the worker is recorded", || {
        let listed = server.run(&world, &["workers", "--json"]).json();
        listed.as_array().unwrap().first().cloned()
    });
    assert_eq!(
        (&shown["source"], &shown["state"], &shown["language"]),
        (&json!("embedded"), &json!("live"), &json!("rust"))
    );
    assert!(shown["kinds"].as_array().unwrap().contains(&json!("send_email")), "{shown}");
    let name = shown["worker"].as_str().unwrap();
    let told = server.run(&world, &["workers", "drain", name, "--json"]).json();
    assert_eq!(told["state"], "draining");
    let id = server.run(&world, &["enqueue", "summarize_text", r#"{"text":"t"}"#, "--json"]).json()["id"].clone();
    let why = server.run(&world, &["jobs", "why", id.as_str().unwrap(), "--json"]).json();
    assert_eq!(why["verdict"], "no_worker_for_kind", "{why}");
    assert_eq!(server.run(&world, &["workers", "undrain", name]).code, Some(0));
    until("the job is done", || (server.count("succeeded") == 1).then_some(()));
    server.stop();
}
