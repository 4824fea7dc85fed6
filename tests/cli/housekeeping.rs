//! A fleet of API processes and workers over HTTP, without a process that runs jobs itself: crashed workers' jobs come
//! back all the same.

use serde_json::json;

use crate::support::postgres::Cluster;
use crate::world::{Running, World, until};

fn a_crashed_workers_job_comes_back(world: &World, server: &Running) {
    let job = server.run(world, &["enqueue", "summarize_text", r#"{"text":"t"}"#, "--json"]).json();
    let path = format!("/jobs/{}", job["id"].as_str().unwrap());
    // It leases the job and is never heard of again.
    let leases = server.post("/leases", &json!({"worker": "doomed", "max": 1, "lease_ms": 1000})).1;
    assert_eq!(leases["leases"][0]["job"]["id"], job["id"], "{leases}");
    assert_eq!(server.json(&path)["status"], "running");
    until("the job comes back", || (server.json(&path)["status"] == "retrying").then_some(()));
    let attempts = server.json(&format!("{path}/attempts"));
    assert_eq!(attempts[0]["outcome"], "lease_expired", "{attempts}");
}

#[tokio::test]
async fn an_api_process_reaps() {
    let database = Cluster::shared().await.database().await;
    let world = World::new();
    let mut command = world.steadfast();
    command.arg("api").env("DATABASE_URL", &database.url).env("API_BIND_ADDR", "127.0.0.1:0");
    command.env("STEADFAST_REAP_INTERVAL_MS", "100");
    let api = Running::start(command);
    a_crashed_workers_job_comes_back(&world, &api);
    api.stop();
}

#[test]
fn serve_without_an_executor_reaps() {
    let world = World::new();
    let server = world.serve(&[("STEADFAST_EXECUTOR", "none"), ("STEADFAST_REAP_INTERVAL_MS", "100")]);
    a_crashed_workers_job_comes_back(&world, &server);
    assert_eq!(server.get("/readyz").0, 200);
    server.stop();
}
