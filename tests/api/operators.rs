//! Queues, kinds, stats, metrics, health, documents: what operators look at and change.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use steadfast::Queue;
use steadfast::api::{ApiLimits, ApiSettings, ReadyCheck, openapi_json};
use steadfast::job::{Kind, KindDefinition};
use steadfast::store::StoreErrorKind;
use tokio::io::AsyncWriteExt;

use crate::faulty::{Fault, Faults, INSIDE};
use crate::on_every_store;
use crate::world::{Server, World};

on_every_store!(
    queues_are_listed_paused_and_resumed,
    kinds_are_declared_changed_and_forgotten,
    stats_count_per_queue_and_in_total,
    metrics_have_the_promised_names_and_bounded_labels,
    health_readiness_and_liveness_answer,
    however_many_ask_for_its_health_the_store_is_asked_once,
    a_store_that_is_down_is_503_until_it_is_back,
    every_store_error_has_its_answer_and_gives_nothing_away,
    a_full_queue_and_too_many_enqueues_are_429,
    framework_rejections_are_problems_too,
    request_ids_are_kept_if_sane,
);

async fn queues_are_listed_paused_and_resumed(world: World) {
    let server = world.server().await;
    assert_eq!(server.get("/queues").await.expect(200), json!([]));
    server.enqueue().await;
    let queues = server.get("/queues").await.expect(200);
    assert_eq!((&queues[0]["queue"], &queues[0]["paused"]), (&json!("default"), &json!(false)));
    let none = json!({"queued": 1, "running": 0, "retrying": 0, "succeeded": 0, "failed_permanent": 0, "cancelled": 0});
    assert_eq!(queues[0]["counts"], none);
    assert!(queues[0]["oldest_ready_ms"].is_u64());
    let paused = server.call("POST", "/queues/later/pause").send().await.expect(200);
    assert_eq!((&paused["queue"], &paused["paused"]), (&json!("later"), &json!(true)), "it need not have jobs yet");
    assert_eq!(server.get("/queues").await.expect(200).as_array().unwrap().len(), 2);
    let resumed = server.call("POST", "/queues/later/resume").send().await.expect(200);
    assert_eq!(resumed["paused"], false);
    server.call("POST", "/queues/nobody/resume").send().await.problem(404, "not_found");
    server.call("POST", "/queues/No%20Name/pause").send().await.problem(404, "not_found");
}

async fn kinds_are_declared_changed_and_forgotten(world: World) {
    let server = world.server().await;
    let declaration = json!({
        "schema": {"type": "object"}, "queue": "mail", "priority": 5, "max_attempts": 7, "timeout_ms": 30000,
        "retry": {"base_ms": 1000, "cap_ms": 60000, "factor": 3.0}
    });
    let made = server.put("/kinds/letter", declaration.clone()).await.expect(201);
    for (field, value) in declaration.as_object().unwrap() {
        assert_eq!(&made[field], value, "{field}");
    }
    assert_eq!((&made["kind"], &made["built_in"]), (&json!("letter"), &json!(false)));
    let job = server.post("/jobs", json!({"kind": "letter", "payload": {}})).await.expect(201);
    assert_eq!((&job["queue"], &job["priority"], &job["max_attempts"]), (&json!("mail"), &json!(5), &json!(7)));
    let changed = server.put("/kinds/letter", json!({"retry": {"delays_ms": [5, 10]}})).await.expect(200);
    assert_eq!((&changed["retry"], &changed["queue"]), (&json!({"delays_ms": [5, 10]}), &Value::Null));
    let spread = json!({"retry": {"delays_ms": [5, 10], "jitter": 0.2}});
    let changed = server.put("/kinds/letter", spread.clone()).await.expect(200);
    assert_eq!(changed["retry"], spread["retry"]);
    let kinds = server.get("/kinds").await.expect(200);
    assert_eq!(kinds[1]["retry"], spread["retry"]);
    let names: Vec<_> = kinds.as_array().unwrap().iter().map(|kind| kind["kind"].as_str().unwrap()).collect();
    assert_eq!(names, ["built_in", "letter", "welcome"]);
    assert_eq!(kinds[0]["built_in"], true);
    server.put("/kinds/built_in", json!({})).await.problem(409, "built_in_kind");
    server.delete("/kinds/built_in").await.problem(409, "built_in_kind");
    server.delete("/kinds/letter").await.expect(204);
    server.delete("/kinds/letter").await.problem(404, "not_found");
    for bad in [
        json!({"schema": {"type": "no such type"}}),
        json!({"priority": 1000}),
        json!({"max_attempts": 0}),
        json!({"retry": {"base_ms": 5, "cap_ms": 1}}),
        json!({"retry": {"delays_ms": [1], "factor": 2}}),
        json!({"retry": {"delays_ms": []}}),
        json!({"retry": {"delays_ms": [1], "jitter": 1.5}}),
        json!({"retry": {"delays_ms": [1], "jitter": -0.1}}),
        json!({"retry": {"base_ms": 1, "jitter": 0.2}}),
        json!({"queue": "No"}),
        json!({"schema": {"$ref": "http://127.0.0.1:9/x"}}),
    ] {
        let reply = server.put("/kinds/bad", bad.clone()).await;
        assert_eq!(reply.status, 422, "{bad} {reply:?}");
    }
    server.put("/kinds/No%20Name", json!({})).await.problem(422, "invalid_value");
    server.put("/kinds/k", json!({"nope": 1})).await.problem(400, "malformed");
}

async fn stats_count_per_queue_and_in_total(world: World) {
    let server = world.server().await;
    server.enqueue().await;
    server.post("/jobs", json!({"kind": "welcome", "payload": 1, "queue": "other"})).await.expect(201);
    server.lease(1).await;
    let stats = server.get("/stats").await.expect(200);
    let queued = stats["queues"]["default"]["counts"]["queued"].as_u64().unwrap()
        + stats["queues"]["other"]["counts"]["queued"].as_u64().unwrap();
    assert_eq!((queued, &stats["totals"]["queued"], &stats["totals"]["running"]), (1, &json!(1), &json!(1)));
    assert!(stats["queues"]["default"].as_object().unwrap().contains_key("oldest_ready_ms"));
    assert!(!stats.as_object().unwrap().contains_key("rates"), "nothing to compare with yet");
}

async fn metrics_have_the_promised_names_and_bounded_labels(world: World) {
    let server = world.server().await;
    let id = server.enqueue().await;
    server.get(&format!("/jobs/{id}")).await.expect(200);
    server.get("/no/such/place").await.problem(404, "no_such_route");
    server.call("BREW", "/jobs").send().await;
    let reply = server.get("/metrics").await;
    assert_eq!(reply.status, 200);
    assert!(reply.header("content-type").unwrap().starts_with("text/plain; version=0.0.4"));
    for line in [
        "http_requests_total{route=\"/jobs/{id}\",method=\"GET\",status=\"200\"}",
        "http_requests_total{route=\"unmatched\",method=\"GET\",status=\"404\"}",
        "http_request_duration_seconds_bucket{route=\"/jobs\",method=\"POST\",status=\"201\",le=\"0.001\"}",
        "queue_depth{queue=\"default\",status=\"queued\"} 1",
        "queue_oldest_ready_seconds{queue=\"default\"}",
    ] {
        assert!(reply.body.contains(line), "{line} is not in\n{}", reply.body);
    }
    assert!(!reply.body.contains(&id) && !reply.body.contains("/no/such/place") && !reply.body.contains("BREW"));
}

async fn health_readiness_and_liveness_answer(world: World) {
    let server = world.server().await;
    for path in ["/health", "/livez", "/readyz"] {
        assert_eq!(server.get(path).await.expect(200), json!({"status": "ok"}), "{path}");
    }
    assert_eq!(server.call("HEAD", "/livez").send().await.status, 200);
}

async fn however_many_ask_for_its_health_the_store_is_asked_once(world: World) {
    let (server, store) = faulty_server(&world, |settings| settings).await;
    store.set(Fault::Held);
    let (before, began) = (store.calls(), Instant::now());
    let asking: Vec<_> = (0..20)
        .map(|n| tokio::spawn(server.call("GET", if n % 2 == 0 { "/health" } else { "/readyz" }).send()))
        .collect();
    let deadline = Instant::now() + Duration::from_secs(60);
    while store.calls() == before {
        assert!(Instant::now() < deadline, "nobody asks the store");
        tokio::task::yield_now().await;
    }
    // Asks and hangs up: the store is not bothered either.
    for _ in 0..20 {
        let mut stream = tokio::net::TcpStream::connect(server.address).await.unwrap();
        stream.write_all(&server.call("GET", "/health").bytes()).await.unwrap();
    }
    store.set(Fault::None);
    for reply in asking {
        reply.await.unwrap().expect(200);
    }
    // An answer holds for half a second: a slow machine may ask again.
    let may_ask = 3 + began.elapsed().as_millis() as usize / 250;
    assert!(store.calls() - before <= may_ask, "{} calls, {may_ask} allowed", store.calls() - before);
}

/// A check of somebody else's.
#[derive(Debug)]
struct Sulking;

#[async_trait::async_trait]
impl ReadyCheck for Sulking {
    fn name(&self) -> &str {
        "dispatcher"
    }
    async fn check(&self) -> Result<(), String> {
        Err("does not turn".into())
    }
}

pub(crate) async fn faulty_server(
    world: &World,
    change: impl FnOnce(ApiSettings) -> ApiSettings,
) -> (Server, Arc<Faults>) {
    let real = world.queue().await;
    let (store, faults) = Faults::before(real.store().clone());
    let queue = Queue::over(store, real.wake().clone());
    let settings = change(ApiSettings::new(queue.clone()));
    queue.put_kind(KindDefinition::any(Kind::new("welcome").unwrap())).await.unwrap();
    (Server::start(queue, settings).await, faults)
}

async fn a_store_that_is_down_is_503_until_it_is_back(world: World) {
    let (server, store) =
        faulty_server(&world, |settings| settings.limits(ApiLimits::default().request_timeout(Duration::from_secs(3))))
            .await;
    server.enqueue().await;
    store.set(Fault::Fails(StoreErrorKind::Unavailable));
    for (method, path, body) in [
        ("POST", "/jobs", json!({"kind": "welcome", "payload": 1})),
        ("GET", "/jobs", Value::Null),
        ("GET", "/stats", Value::Null),
        ("POST", "/leases", json!({"worker": "w", "wait_ms": 10000})),
        ("GET", "/health", Value::Null),
    ] {
        let call = server.call(method, path);
        let reply = if body.is_null() { call.send().await } else { call.json(&body).send().await };
        reply.problem(503, "store_unavailable");
        assert_eq!(reply.header("retry-after"), Some("1"));
    }
    let red = server.get("/readyz").await;
    assert!(red.problem(503, "not_ready")["detail"].as_str().unwrap().contains("store: "), "{red:?}");
    server.get("/livez").await.expect(200);
    store.set(Fault::Hangs);
    let started = Instant::now();
    let unknown = server.post("/jobs", json!({"kind": "welcome", "payload": 1})).await.problem(503, "outcome_unknown");
    assert!(unknown["detail"].as_str().unwrap().contains("same idempotency key"), "{unknown}");
    server.get("/stats").await.expect(503);
    server.get("/readyz").await.problem(503, "not_ready");
    assert!(started.elapsed() < Duration::from_secs(30));
    store.set(Fault::None);
    let deadline = Instant::now() + Duration::from_secs(60);
    while server.get("/readyz").await.status != 200 || server.get("/stats").await.status != 200 {
        assert!(Instant::now() < deadline, "it does not recover by itself");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    server.enqueue().await;
    let other = World::sqlite().await;
    let (sulking, _) =
        faulty_server(&other, |settings| settings.ready_checks([Arc::new(Sulking) as Arc<dyn ReadyCheck>])).await;
    let red = sulking.get("/readyz").await.problem(503, "not_ready");
    assert_eq!(red["detail"], "dispatcher: does not turn");
}

async fn every_store_error_has_its_answer_and_gives_nothing_away(world: World) {
    let (server, store) = faulty_server(&world, |settings| settings.admin_token("admin".to_owned())).await;
    for (fault, status, code) in [
        (Fault::Fails(StoreErrorKind::Unavailable), 503, "store_unavailable"),
        (Fault::Fails(StoreErrorKind::Timeout), 503, "store_unavailable"),
        (Fault::Fails(StoreErrorKind::OutcomeUnknown), 503, "outcome_unknown"),
        (Fault::Fails(StoreErrorKind::Full), 503, "storage_full"),
        (Fault::Fails(StoreErrorKind::Rejected), 500, "internal"),
        (Fault::Fails(StoreErrorKind::Damaged), 500, "internal"),
        (Fault::Fails(StoreErrorKind::Internal), 500, "internal"),
        (Fault::Panics, 500, "internal"),
    ] {
        store.set(fault);
        for (method, path) in [("POST", "/jobs"), ("GET", "/jobs"), ("GET", "/stats")] {
            let call = server.call(method, path).token("admin");
            let body = json!({"kind": "welcome", "payload": 1});
            let reply = if method == "POST" { call.json(&body).send().await } else { call.send().await };
            reply.problem(status, code);
            assert_eq!(reply.header("retry-after").is_some(), status == 503);
            for word in INSIDE.split(' ') {
                assert!(!reply.body.contains(word) || ["at", "FROM"].contains(&word), "{word} in {reply:?}");
            }
        }
    }
    store.set(Fault::None);
    server.call("GET", "/stats").token("admin").send().await.expect(200);
}

async fn a_full_queue_and_too_many_enqueues_are_429(world: World) {
    let server = world.server_with_depth(3).await;
    for _ in 0..3 {
        server.enqueue().await;
    }
    let reply = server.post("/jobs", json!({"kind": "welcome", "payload": 1})).await;
    reply.problem(429, "queue_full");
    assert!(reply.header("retry-after").is_some());
    server.post("/jobs", json!({"kind": "welcome", "payload": 1, "queue": "other"})).await.expect(201);
    let batch: Vec<_> = (0..4).map(|n| json!({"kind": "welcome", "payload": n, "queue": "third"})).collect();
    server.post("/jobs/batch", json!({"jobs": batch})).await.problem(429, "queue_full");
    for lease in server.lease(2).await {
        assert_eq!(server.settle(&lease, json!({"outcome": "succeeded"})).await, "recorded");
    }
    let deadline = Instant::now() + Duration::from_secs(60);
    while server.post("/jobs", json!({"kind": "welcome", "payload": 1})).await.status != 201 {
        assert!(Instant::now() < deadline, "room is not noticed");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    drop(server.stop().await);
    let busy = World::sqlite().await;
    let busy = busy.server_with(|settings| settings.limits(ApiLimits::default().enqueues_in_flight(0))).await;
    let reply = busy.post("/jobs", json!({"kind": "welcome", "payload": 1})).await;
    reply.problem(429, "too_many_requests");
    assert!(reply.header("retry-after").is_some());
    busy.get("/stats").await.expect(200);
}

async fn framework_rejections_are_problems_too(world: World) {
    let server = world.server().await;
    server.get("/nowhere").await.problem(404, "no_such_route");
    server.get("/jobs/").await.problem(404, "no_such_route");
    let reply = server.call("PATCH", "/jobs").send().await;
    reply.problem(405, "method_not_allowed");
    let allow = reply.header("allow").unwrap();
    assert!(allow.contains("GET") && allow.contains("POST"), "{allow}");
    let reply = server.call("OPTIONS", "/leases").send().await;
    reply.problem(405, "method_not_allowed");
    assert_eq!(reply.header("allow"), Some("POST"));
    let docs = server.get("/docs").await;
    assert_eq!((docs.status, docs.header("content-type")), (200, Some("text/html")));
    let csp = docs.header("content-security-policy").unwrap();
    assert!(csp.contains("default-src 'none'") && !csp.contains("unsafe-inline"));
    assert!(!docs.body.contains("<script>") && !docs.body.contains("<style"), "nothing inline");
    let parts: Vec<_> = docs.body.split(['"', '\'']).filter(|part| part.starts_with("docs/")).collect();
    assert!(parts.len() > 3, "relative, so that a path prefix does not matter: {}", docs.body);
    for part in parts {
        assert_eq!(server.get(&format!("/{part}")).await.status, 200, "{part}");
    }
    assert!(server.get("/docs/swagger-initializer.js").await.body.contains("x-steadfast-session"));
    server.get("/docs/nope.js").await.problem(404, "not_found");
    assert_eq!(server.get("/api-docs/openapi.json").await.body, openapi_json());
}

async fn request_ids_are_kept_if_sane(world: World) {
    let server = world.server().await;
    let id = |given: &str| server.call("GET", "/stats").header("x-request-id", given).send();
    assert_eq!(id("trace-42").await.header("x-request-id"), Some("trace-42"));
    assert_ne!(id("not sane").await.header("x-request-id"), Some("not sane"));
    assert_ne!(server.get("/stats").await.header("x-request-id"), server.get("/stats").await.header("x-request-id"));
}
