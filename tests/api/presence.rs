//! Workers as operators see them over HTTP: live, deaf, draining, gone; what they hold; and what remembering them costs.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use serde_json::{Value, json};
use steadfast::Queue;
use steadfast::api::{ApiLimits, ApiSettings};
use steadfast::store::sqlite::{SqliteSettings, SqliteStore};
use steadfast::store::{Around, Call, ManualClock, StoreError, Wrapped};

use crate::on_every_store;
use crate::world::{Server, World};

on_every_store!(
    a_worker_is_seen_with_what_it_says_and_holds,
    a_drained_worker_is_told_and_gets_no_more_until_undrain,
    an_unknown_worker_is_404,
    pages_link_to_the_next,
    what_a_worker_says_of_itself_is_checked,
    workers_are_in_the_metrics,
);

fn at_once(settings: ApiSettings) -> ApiSettings {
    settings.limits(ApiLimits::default().worker_report_interval(Duration::from_millis(20)))
}

/// Asks until the worker is recorded as it should be.
async fn until(server: &Server, worker: &str, is_so: impl Fn(&Value) -> bool) -> Value {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let reply = server.get(&format!("/workers/{worker}")).await;
        let seen = reply.json();
        if reply.status == 200 && is_so(&seen) {
            return seen;
        }
        assert!(Instant::now() < deadline, "{worker} is still {seen}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn tell(server: &Server, worker: &str, verb: &str) -> Value {
    server.call("POST", &format!("/workers/{worker}/{verb}")).send().await.expect(200)
}

async fn a_worker_is_seen_with_what_it_says_and_holds(world: World) {
    let server = world.server_with(at_once).await;
    assert_eq!(server.get("/workers").await.expect(200), json!([]));
    let id = server.enqueue().await;
    let info = json!({"host": "web-1", "pid": 4711, "language": "python", "version": "2.0", "concurrency": 8});
    let body = json!({"worker": "w", "queues": ["default"], "kinds": ["welcome"], "max": 3, "info": info});
    let lease = server.post("/leases", body).await.expect(200)["leases"][0].clone();
    let seen = until(&server, "w", |seen| seen["busy"] == 1).await;
    for (field, value) in [
        ("state", json!("live")),
        ("source", json!("http")),
        ("host", json!("web-1")),
        ("pid", json!(4711)),
        ("language", json!("python")),
        ("version", json!("2.0")),
        ("concurrency", json!(8)),
        ("queues", json!(["default"])),
        ("kinds", json!(["welcome"])),
        ("told", json!("run")),
        ("token", Value::Null),
        ("last_beat_at", Value::Null),
    ] {
        assert_eq!(seen[field], value, "{field} of {seen}");
    }
    assert!(seen["last_fetch_at"].is_string() && seen["last_seen_at"].is_string(), "{seen}");
    let jobs = seen["jobs"].as_array().unwrap();
    assert_eq!((jobs.len(), &jobs[0]["job_id"], &jobs[0]["kind"]), (1, &json!(id), &json!("welcome")));
    let beat = json!({"job_id": id, "lease_token": lease["lease_token"]});
    server.post("/leases/heartbeat", json!({"worker": "w", "leases": [beat]})).await.expect(200);
    let seen = until(&server, "w", |seen| seen["last_beat_at"].is_string()).await;
    assert_eq!(seen["kinds"], json!(["welcome"]), "a heartbeat does not say, and changes nothing");
    assert_eq!(server.settle(&lease, json!({"outcome": "succeeded"})).await, "recorded");
    until(&server, "w", |seen| seen["busy"] == 0 && seen["jobs"] == json!([])).await;
    let listed = server.get("/workers").await.expect(200);
    assert_eq!((listed.as_array().unwrap().len(), &listed[0]["worker"]), (1, &json!("w")));
    assert!(listed[0].get("jobs").is_none());
    server.post("/leases", json!({"worker": "plain", "max": 5})).await.expect(200);
    let plain = until(&server, "plain", |_| true).await;
    assert_eq!((&plain["concurrency"], &plain["host"], &plain["kinds"]), (&json!(5), &Value::Null, &Value::Null));
}

async fn a_drained_worker_is_told_and_gets_no_more_until_undrain(world: World) {
    // Ten seconds between records: what is told through this server holds at once all the same.
    let server = world.server().await;
    server.enqueue().await;
    let lease = server.lease(1).await.remove(0);
    let told = tell(&server, "w", "drain").await;
    assert_eq!((&told["state"], &told["told"], &told["busy"]), (&json!("draining"), &json!("drain"), &json!(1)));
    let waiting = server.enqueue().await;
    assert_eq!(server.lease(1).await, Vec::<Value>::new());
    let beat = json!({"job_id": lease["job"]["id"], "lease_token": lease["lease_token"]});
    let body = json!({"worker": "w", "leases": [beat]});
    let answer = server.post("/leases/heartbeat", body.clone()).await.expect(200);
    assert_eq!((&answer["worker"], &answer["leases"][0]["status"]), (&json!("drain"), &json!("ok")));
    assert_eq!(server.settle(&lease, json!({"outcome": "succeeded"})).await, "recorded");
    let other = server.post("/leases/heartbeat", json!({"worker": "other", "leases": []})).await.expect(200);
    assert_eq!(other["worker"], "run", "others are not meant");
    // A poll that waits is not answered at once: the worker would only come again.
    let began = Instant::now();
    let poll = server.post("/leases", json!({"worker": "w", "wait_ms": 300})).await.expect(200);
    assert_eq!(poll["leases"], json!([]));
    assert!(began.elapsed() >= Duration::from_millis(300), "{:?}", began.elapsed());
    assert_eq!(tell(&server, "w", "undrain").await["state"], "live");
    assert_eq!(server.post("/leases/heartbeat", body).await.expect(200)["worker"], "run");
    assert_eq!(server.lease(1).await[0]["job"]["id"], json!(waiting));
}

async fn an_unknown_worker_is_404(world: World) {
    let server = world.server().await;
    server.get("/workers/nobody").await.problem(404, "not_found");
    for verb in ["drain", "undrain"] {
        server.call("POST", &format!("/workers/nobody/{verb}")).send().await.problem(404, "not_found");
        server.call("POST", &format!("/workers/No%20Body/{verb}")).send().await.problem(404, "not_found");
    }
    server.get("/workers?limit=many").await.problem(400, "malformed");
    server.get("/workers?cursor=No%20Body").await.problem(400, "malformed");
    server.get("/workers?state=live").await.problem(400, "malformed");
}

async fn pages_link_to_the_next(world: World) {
    let server = world.server_with(at_once).await;
    for worker in ["c", "a", "b"] {
        server.post("/leases", json!({"worker": worker})).await.expect(200);
    }
    for worker in ["a", "b", "c"] {
        until(&server, worker, |_| true).await;
    }
    let first = server.get("/workers?limit=2").await;
    let names = |page: &Value| page.as_array().unwrap().iter().map(|w| w["worker"].clone()).collect::<Vec<_>>();
    assert_eq!(names(&first.expect(200)), ["a", "b"]);
    assert_eq!(first.header("link"), Some("</workers?limit=2&cursor=b>; rel=\"next\""));
    let last = server.get("/workers?limit=2&cursor=b").await;
    assert_eq!((names(&last.expect(200)), last.header("link")), (vec![json!("c")], None));
}

async fn what_a_worker_says_of_itself_is_checked(world: World) {
    let server = world.server().await;
    for info in [
        json!({"host": ""}),
        json!({"version": "a\nb"}),
        json!({"language": "x".repeat(65)}),
        json!({"pid": -1}),
        json!({"concurrency": 0}),
        json!({"colour": "red"}),
    ] {
        let reply = server.post("/leases", json!({"worker": "w", "info": info})).await;
        assert!([400, 422].contains(&reply.status), "{info}: {reply:?}");
    }
    assert_eq!(server.get("/workers").await.expect(200), json!([]), "who is refused was not there");
}

async fn workers_are_in_the_metrics(world: World) {
    let server = world.server_with(at_once).await;
    server.lease(1).await;
    until(&server, "w", |_| true).await;
    let text = server.get("/metrics").await.body;
    for line in ["workers{state=\"live\"} 1", "workers{state=\"gone\"} 0", "# TYPE workers gauge"] {
        assert!(text.lines().any(|shown| shown == line), "{line} in {text}");
    }
}

/// A server whose store has a clock of the test's.
async fn with_held_clock() -> (tempfile::TempDir, Server, Arc<ManualClock>) {
    let directory = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at("2030-01-01T00:00:00Z".parse().unwrap()));
    let store = SqliteStore::open(SqliteSettings::at(directory.path().join("jobs.db")).clock(clock.clone())).unwrap();
    let wake = store.wake().clone();
    let server = World::server_on(Queue::over(Arc::new(store), wake), at_once).await;
    (directory, server, clock)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_stops_fetching_is_deaf_and_one_that_stops_calling_is_gone() {
    let (_directory, server, clock) = with_held_clock().await;
    server.enqueue().await;
    let lease = server.lease(2).await.remove(0);
    let waiting = server.enqueue().await;
    until(&server, "w", |seen| seen["state"] == "live" && seen["busy"] == 1).await;
    clock.advance(Duration::from_secs(20));
    let beat = json!({"job_id": lease["job"]["id"], "lease_token": lease["lease_token"], "progress": null});
    let body = json!({"worker": "w", "leases": [beat], "lease_ms": 600_000});
    server.post("/leases/heartbeat", body.clone()).await.expect(200);
    until(&server, "w", |seen| seen["last_beat_at"].is_string()).await;
    clock.advance(Duration::from_secs(41));
    server.post("/leases/heartbeat", body).await.expect(200);
    let deaf = until(&server, "w", |seen| seen["state"] == "deaf").await;
    assert!(deaf["last_fetch_at"].as_str() < deaf["last_beat_at"].as_str(), "{deaf}");
    let why = server.get(&format!("/jobs/{waiting}/explain")).await.expect(200);
    assert_eq!((&why["verdict"], &why["workers"]["idle_slots"]), (&json!("waits_for_slot"), &json!(0)), "{why}");
    assert_eq!(server.lease(1).await.len(), 1);
    until(&server, "w", |seen| seen["state"] == "live").await;
    // Its leases would end in ten minutes.
    clock.advance(Duration::from_secs(31));
    until(&server, "w", |seen| seen["state"] == "live").await;
    clock.advance(Duration::from_secs(600));
    until(&server, "w", |seen| seen["state"] == "gone").await;
    server.lease(1).await;
    until(&server, "w", |seen| seen["state"] == "live").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_poll_that_waits_keeps_its_worker_live() {
    let (_directory, server, clock) = with_held_clock().await;
    let poll = server.call("POST", "/leases").json(&json!({"worker": "w", "wait_ms": 30_000}));
    let polling = tokio::spawn(poll.send());
    until(&server, "w", |_| true).await;
    clock.advance(Duration::from_secs(31));
    let seen = until(&server, "w", |seen| seen["state"] == "live").await;
    assert!(seen["last_fetch_at"].as_str() > Some("2030-01-01T00:00:30Z"), "{seen}");
    server.enqueue().await;
    polling.await.unwrap().expect(200);
}

/// Counts records of workers.
#[derive(Debug, Default)]
struct Reports {
    calls: AtomicUsize,
    workers: AtomicUsize,
}

#[async_trait]
impl Around for Reports {
    async fn before(&self, call: Call<'_>) -> Result<(), StoreError> {
        if let Call::ReportWorkers(reports) = call {
            self.calls.fetch_add(1, Ordering::SeqCst);
            self.workers.fetch_add(reports.len(), Ordering::SeqCst);
        }
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_workers_are_recorded_in_one_batch_and_none_while_nobody_calls() {
    let directory = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(SqliteSettings::at(directory.path().join("jobs.db"))).unwrap();
    let (wake, reports) = (store.wake().clone(), Arc::new(Reports::default()));
    let queue = Queue::over(Arc::new(Wrapped::new(Arc::new(store), reports.clone())), wake);
    let server = World::server_on(queue, |settings| settings).await;
    // The first call of all is recorded soon; from then on there are ten seconds for everything.
    server.post("/leases", json!({"worker": "w0"})).await.expect(200);
    let deadline = Instant::now() + Duration::from_secs(60);
    while reports.calls.load(Ordering::SeqCst) == 0 {
        assert!(Instant::now() < deadline, "it is never recorded");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let began = Instant::now();
    for round in 0..2 {
        for n in 0..1000 {
            let (path, body) = match round {
                0 => ("/leases", json!({"worker": format!("w{n}")})),
                _ => ("/leases/heartbeat", json!({"worker": format!("w{n}"), "leases": []})),
            };
            server.post(path, body).await.expect(200);
        }
    }
    while reports.workers.load(Ordering::SeqCst) < 1001 {
        assert!(Instant::now() < deadline, "they are never recorded");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let batches = reports.calls.load(Ordering::SeqCst) - 1;
    let most = began.elapsed().as_secs() as usize / 10 + 1;
    assert!(batches <= most, "{batches} batches in {:?}", began.elapsed());
    // Counted before they are written.
    while server.get("/workers?limit=200").await.expect(200).as_array().unwrap().len() < 200 {
        assert!(Instant::now() < deadline, "they are never shown");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
