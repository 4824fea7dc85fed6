//! SIGTERM under load: exit 0, nothing left running, nothing lost. Twice: at once.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::support::postgres::Cluster;
use crate::world::{Running, World, enqueue_lines, until};

const JOBS: u64 = 400;
const STATUSES: [&str; 6] = ["queued", "running", "retrying", "succeeded", "failed_permanent", "cancelled"];

fn totals(server: &Running) -> u64 {
    STATUSES.iter().map(|status| server.count(status)).sum()
}

#[test]
fn serve_stopped_under_load_leaves_nothing_running_and_loses_nothing() {
    let world = World::new();
    let server = world.serve(&[("WORKER_CONCURRENCY", "2"), ("STEADFAST_EXECUTOR", "simulated")]);
    enqueue_lines(&world, &server, JOBS as usize);
    until("some jobs run and some wait", || (server.count("running") > 0 && server.count("queued") > 0).then_some(()));
    server.stop();

    let looking = world.serve(&[("STEADFAST_EXECUTOR", "none")]);
    assert_eq!(looking.count("running"), 0);
    assert_eq!(totals(&looking), JOBS);
    assert!(looking.count("queued") > 0, "it was under load when it was stopped");
    looking.stop();

    let server = world.serve(&[("WORKER_CONCURRENCY", "100"), ("STEADFAST_EXECUTOR", "simulated")]);
    until("all jobs succeed", || (server.count("succeeded") == JOBS).then_some(()));
    server.stop();
}

#[tokio::test]
async fn a_worker_stopped_under_load_leaves_nothing_running_and_loses_nothing() {
    let database = Cluster::shared().await.database().await;
    let world = World::new();
    let role = |role: &str, concurrency: &str| {
        let mut command = world.steadfast();
        command.arg(role).env("DATABASE_URL", &database.url).env("API_BIND_ADDR", "127.0.0.1:0");
        command.env("WORKER_METRICS_BIND_ADDR", "off").env("WORKER_CONCURRENCY", concurrency);
        command.env("STEADFAST_EXECUTOR", "simulated");
        Running::start(command)
    };
    let api = role("api", "1");
    let worker = role("worker", "2");
    enqueue_lines(&world, &api, JOBS as usize);
    until("some jobs run and some wait", || (api.count("running") > 0 && api.count("queued") > 0).then_some(()));
    worker.stop();
    assert_eq!(api.count("running"), 0);
    assert_eq!(totals(&api), JOBS);
    let next = role("worker", "100");
    until("all jobs succeed", || (api.count("succeeded") == JOBS).then_some(()));
    next.stop();
    api.stop();
}

#[tokio::test]
async fn an_api_stopped_under_load_finishes_its_requests_and_loses_nothing_it_accepted() {
    let database = Cluster::shared().await.database().await;
    let world = World::new();
    let start = || {
        let mut command = world.steadfast();
        command.arg("api").env("DATABASE_URL", &database.url).env("API_BIND_ADDR", "127.0.0.1:0");
        Running::start(command)
    };
    let api = start();
    let url = format!("{}/jobs", api.url);
    let producers: Vec<_> = (0..4)
        .map(|_| {
            std::thread::spawn({
                let url = url.clone();
                move || produce(&url)
            })
        })
        .collect();
    until("jobs are coming in", || (totals(&api) > 50).then_some(()));
    api.stop();
    let accepted: u64 = producers.into_iter().map(|producer| producer.join().unwrap()).sum();

    let api = start();
    let stored = totals(&api);
    assert!(stored >= accepted, "{accepted} were accepted, {stored} are there");
    assert!(stored <= accepted + 4, "at most one request of each producer went unanswered: {accepted} {stored}");
    api.stop();
}

/// Enqueues one job after the other until nobody answers; how many were accepted.
fn produce(url: &str) -> u64 {
    let agent = ureq::Agent::config_builder().http_status_as_error(false).proxy(None).build().new_agent();
    let body = r#"{"kind":"summarize_text","payload":{"text":"t"}}"#;
    let mut accepted = 0;
    while let Ok(mut response) = agent.post(url).header("content-type", "application/json").send(body) {
        let whole = response.body_mut().read_to_string().is_ok();
        match response.status().as_u16() {
            201 if whole => accepted += 1,
            201 => break,
            other => assert_eq!(other, 503),
        }
    }
    accepted
}

#[test]
fn a_second_signal_stops_at_once() {
    for (signal, code) in [("TERM", 143), ("INT", 130)] {
        let world = World::new();
        let server = world.serve(&[]);
        let _request = unfinished_request(&server);
        server.signal(signal);
        until("it has begun to stop", || server.log().contains("stopping").then_some(()));
        let asked = Instant::now();
        server.signal(signal);
        let (status, log) = server.wait();
        assert_eq!(status.code(), Some(code), "{log}");
        assert!(asked.elapsed() < Duration::from_secs(10), "{:?}", asked.elapsed());
    }
}

/// A request whose body never comes: the server waits for it until the grace period is over.
fn unfinished_request(server: &Running) -> TcpStream {
    let mut stream = TcpStream::connect(server.url.strip_prefix("http://").unwrap()).unwrap();
    let head = "POST /jobs HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\
                expect: 100-continue\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    // It asks for the body, so it has the request.
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 100");
    stream
}
