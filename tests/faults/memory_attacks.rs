//! One caller who tries to fill the server: with answers that are never read, or with connections. Its memory stays
//! within bounds, and everybody else is served.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::attackers::{ATTACKER, Answer, Client, GOOD, memory_kib, peek_status, read_answer};
use crate::programs::{Running, World};
use crate::scale::{is_sabotaged, wait_timeout};
use crate::stage::{Stage, Store};

const ADMIN: &str = "the-operators-own-token";
/// 128 MiB: 32 MiB of answers, the first steps of four pages with rows and records, the page caches of four readers of
/// SQLite (16 MiB each at most), the other requests, and what an allocator keeps. Unbounded, it would be 2.2 GiB.
const GROWTH_MAX_MIB: u64 = 128;
/// Each would hold 8 MiB.
const SOCKETS: usize = 280;
/// With the bug alive, these are enough to tell.
const SOCKETS_SABOTAGED: usize = 60;
/// Connections that the server has in the second attack.
const CONNECTIONS: usize = 400;

/// `steadfast serve`, without workers.
fn server(world: &World, stage: &Stage) -> Running {
    let migrated = world.steadfast().arg("migrate").env("DATABASE_URL", &stage.url).status().unwrap();
    assert!(migrated.success());
    world.serve(&[
        ("DATABASE_URL", &stage.url),
        ("STEADFAST_ADMIN_TOKEN", ADMIN),
        ("STEADFAST_EXECUTOR", "none"),
        ("STEADFAST_ALLOW_UNDECLARED_KINDS", "true"),
        ("STEADFAST_MAX_CONNECTIONS", &CONNECTIONS.to_string()),
        ("RUST_LOG", "warn"),
    ])
}

#[track_caller]
fn json(answer: Option<Answer>, status: u16) -> Value {
    let answer = answer.expect("an answer");
    assert_eq!(answer.status, status, "{}", answer.body);
    serde_json::from_str(&answer.body).unwrap()
}

/// Small requests of a good client, each of which must be served.
async fn is_served(client: &Client, whom: &str) {
    let small = json!({ "kind": "small", "payload": 1, "queue": "small" });
    let job = client.post("/jobs", &small).await.filter(|answer| answer.status == 201);
    let job = job.unwrap_or_else(|| panic!("{whom} was turned away at POST /jobs"));
    let id = json(Some(job), 201)["id"].as_str().unwrap().to_owned();
    for path in ["/livez", "/readyz", "/health", "/jobs?limit=1&queue=small", &format!("/jobs/{id}")] {
        let answer = client.get(path).await;
        let status = answer.map(|answer| answer.status);
        assert_eq!(status, Some(200), "{whom} was turned away at {path}");
    }
}

async fn s31_answers(scenario: &str, stage: Stage) {
    let world = World::new();
    let server = server(&world, &stage);
    let good = Client::new(GOOD, &server.url, ADMIN);
    let large = "x".repeat(256 * 1024 - 2);
    for _ in 0..32 {
        json(good.post("/jobs", &json!({ "kind": "large", "payload": large, "queue": "large" })).await, 201);
    }
    let token = json(good.post("/tokens", &json!({ "name": "reader", "scopes": ["read"] })).await, 201);
    let attacker = Client::new(ATTACKER, &server.url, token["token"].as_str().unwrap());
    is_served(&good, "a good client").await;
    let before = memory_kib(server.pid(), "VmRSS:") / 1024;
    let mut held: Vec<TcpStream> = Vec::new();
    for _ in 0..if is_sabotaged() { SOCKETS_SABOTAGED } else { SOCKETS } {
        let mut stream = attacker.connect().await.unwrap();
        stream.write_all(&attacker.request("GET", "/jobs?limit=32", "")).await.unwrap();
        held.push(stream);
    }
    // A worker's jobs are large too, and it must get them.
    let lease = json(good.post("/leases", &json!({ "worker": "w", "queues": ["large"], "max": 4 })).await, 200);
    assert_eq!(lease["leases"].as_array().map(Vec::len), Some(4));
    let (mut answered, mut refused) = (0, 0);
    for stream in &held {
        match peek_status(stream).await {
            Some(200) => answered += 1,
            Some(503) => refused += 1,
            other => panic!("the answer is {other:?}"),
        }
    }
    is_served(&good, "a good client").await;
    is_served(&Client::new(ATTACKER, &server.url, ADMIN), "a good client at the attacker's address").await;
    let growth = (memory_kib(server.pid(), "VmHWM:") / 1024).saturating_sub(before);
    println!("{scenario}: {answered} answered, {refused} refused; from {before} MiB by {growth} MiB");
    assert!(growth <= GROWTH_MAX_MIB, "answers nobody reads took {growth} MiB, {GROWTH_MAX_MIB} are allowed");
    assert!(answered > 0 && refused > 0);
    let answer = good.get("/jobs?limit=32&queue=large").await.expect("an answer");
    assert!(answer.status == 503 && answer.has_header("retry-after: "), "{}", answer.head);
    drop(held);
    let give_up = Instant::now() + wait_timeout();
    while good.get("/jobs?limit=32&queue=large").await.is_none_or(|answer| answer.status != 200) {
        assert!(Instant::now() < give_up, "the memory is not given back");
    }
    server.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s31_answers_that_are_never_read_do_not_fill_the_memory_on_sqlite() {
    s31_answers("unread answers on sqlite", Stage::on(Store::Sqlite).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s31_answers_that_are_never_read_do_not_fill_the_memory_on_postgresql() {
    s31_answers("unread answers on postgresql", Stage::on(Store::Postgres).await).await;
}

/// Connections that are used once and then held; those that the server closes are not among them.
async fn hold(client: &Client, count: usize) -> Vec<TcpStream> {
    let mut held = Vec::new();
    for _ in 0..count {
        let Ok(mut stream) = client.connect().await else { continue };
        if stream.write_all(&client.request("GET", "/livez", "")).await.is_err() {
            continue;
        }
        if read_answer(&mut stream).await.is_some_and(|answer| !answer.has_header("connection: close")) {
            held.push(stream);
        }
    }
    held
}

/// Keeps every connection in use, as a client that wants to hold it would.
async fn use_again(client: &Client, held: &mut [TcpStream]) {
    for stream in held {
        stream.write_all(&client.request("GET", "/livez", "")).await.unwrap();
        assert_eq!(read_answer(stream).await.map(|answer| answer.status), Some(200));
    }
}

async fn s31_connections(scenario: &str, stage: Stage) {
    let world = World::new();
    let server = server(&world, &stage);
    let (good, attacker) = (Client::new(GOOD, &server.url, ADMIN), Client::new(ATTACKER, &server.url, "wrong"));
    is_served(&good, "a good client").await;
    let before = memory_kib(server.pid(), "VmRSS:") / 1024;
    let mut held = hold(&attacker, CONNECTIONS + 100).await;
    println!("{scenario}: one address holds {} of {CONNECTIONS} connections", held.len());
    // And goes on: connections that say nothing, or not all they have to say.
    let more = tokio::spawn({
        let attacker = attacker.clone();
        async move {
            let mut silent = std::collections::VecDeque::new();
            loop {
                let Ok(mut stream) = attacker.connect().await else { continue };
                let _ = stream.write_all(b"GET /li").await;
                silent.push_back(stream);
                if silent.len() > 200 {
                    silent.pop_front();
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    });
    let neighbour = Client::new(ATTACKER, &server.url, ADMIN);
    for _ in 0..20 {
        is_served(&good, "a good client").await;
        is_let_in(&neighbour, "at the attacker's address").await;
        use_again(&attacker, &mut held).await;
    }
    assert_eq!(held.len(), CONNECTIONS * 3 / 4);
    // What a neighbour of the attacker wants besides is refused, and it is told when to come back.
    let answer = neighbour.get("/jobs").await.expect("an answer");
    assert!(answer.status == 503 && answer.has_header("retry-after: "), "{}", answer.head);
    // Other addresses take what is left: probes and workers get in all the same.
    let mut rest = hold(&Client::new([127, 0, 0, 3].into(), &server.url, "wrong"), CONNECTIONS).await;
    for _ in 0..20 {
        is_let_in(&good, "when every connection is taken").await;
        use_again(&attacker, &mut held).await;
        use_again(&attacker, &mut rest).await;
    }
    let growth = (memory_kib(server.pid(), "VmHWM:") / 1024).saturating_sub(before);
    println!("{scenario}: {} and {} connections held; from {before} MiB by {growth} MiB", held.len(), rest.len());
    assert!(growth <= GROWTH_MAX_MIB, "connections took {growth} MiB, {GROWTH_MAX_MIB} are allowed");
    more.abort();
    drop((held, rest));
    let give_up = Instant::now() + wait_timeout();
    while neighbour.get("/jobs").await.is_none_or(|answer| answer.status != 200) {
        assert!(Instant::now() < give_up, "places are not given back");
    }
    server.stop();
}

/// Probes and workers.
async fn is_let_in(client: &Client, whom: &str) {
    for path in ["/livez", "/readyz", "/health"] {
        let status = client.get(path).await.map(|answer| answer.status);
        assert_eq!(status, Some(200), "a probe {whom} was turned away at {path}");
    }
    let nothing = json!({ "worker": "w", "leases": [] });
    let lease = json!({ "worker": "w", "queues": ["none"], "wait_ms": 0 });
    for (path, body) in [("/leases", lease), ("/leases/heartbeat", nothing)] {
        let status = client.post(path, &body).await.map(|answer| answer.status);
        assert_eq!(status, Some(200), "a worker {whom} was turned away at {path}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s31_one_address_cannot_take_every_connection_on_sqlite() {
    s31_connections("connections on sqlite", Stage::on(Store::Sqlite).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s31_one_address_cannot_take_every_connection_on_postgresql() {
    s31_connections("connections on postgresql", Stage::on(Store::Postgres).await).await;
}
