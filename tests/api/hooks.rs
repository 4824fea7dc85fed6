//! Hooks over HTTP: put, looked at, paused, resumed and deleted; what comes of an end; and what is refused. Traces of jobs, too.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use steadfast::worker::{WorkerHealth, WorkerSettings, run_housekeeping};

use crate::on_every_store;
use crate::world::{Server, World};

on_every_store!(
    a_hook_is_put_looked_at_paused_resumed_and_deleted_and_its_secret_never_comes_out,
    a_hook_that_makes_no_sense_is_refused_with_what_is_wrong,
    ends_become_deliveries_of_the_server_itself,
    a_job_may_name_a_hook_and_one_that_there_is_not_is_refused,
    what_a_kind_hides_of_its_payloads_is_not_sent_along,
    a_trace_is_kept_shown_and_handed_to_workers_and_a_bad_one_is_ignored,
);

const SECRET: &str = "whsec_canary+of+hooks";

/// A server that takes deliveries; nobody sends them here.
async fn server(world: &World) -> Server {
    let server = world.server().await;
    server.put("/kinds/webhook_delivery", json!({"hidden": ["/secret"]})).await.expect(201);
    server
}

fn carry_on(server: &Server) {
    let health = WorkerHealth::default();
    tokio::spawn(run_housekeeping(server.queue.clone(), WorkerSettings::default(), health, std::future::pending()));
}

fn hook() -> Value {
    json!({"url": "https://example.org/hook", "secret": SECRET})
}

async fn lease(server: &Server, kind: &str) -> Value {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let asked = json!({"worker": "w", "kinds": [kind], "max": 1, "wait_ms": 1000});
        let leases = server.post("/leases", asked).await.expect(200);
        if !leases["leases"][0].is_null() {
            return leases["leases"][0].clone();
        }
        assert!(Instant::now() < deadline, "no job of kind {kind} comes");
    }
}

async fn settle(server: &Server, lease: &Value, outcome: Value) {
    let mut outcome = outcome;
    (outcome["job_id"], outcome["lease_token"]) = (lease["job"]["id"].clone(), lease["lease_token"].clone());
    server.post("/leases/settle", json!({"worker": "w", "outcomes": [outcome]})).await.expect(200);
}

async fn a_hook_is_put_looked_at_paused_resumed_and_deleted_and_its_secret_never_comes_out(world: World) {
    let server = server(&world).await;
    let mut bodies = Vec::new();
    let reply = server.put("/hooks/billing", hook()).await;
    let made = reply.expect(201);
    bodies.push(reply.body.clone());
    for (field, value) in [
        ("name", json!("billing")),
        ("url", json!("https://example.org/hook")),
        ("endpoint", Value::Null),
        ("secret", json!("(secret)")),
        ("events", json!(["job.succeeded", "job.failed", "job.cancelled"])),
        ("kinds", Value::Null),
        ("queues", Value::Null),
        ("include", json!([])),
        ("paused", json!(false)),
        ("paused_reason", Value::Null),
        ("dead_in_a_row", json!(0)),
        ("missed", json!(0)),
    ] {
        assert_eq!(made[field], value, "{field}");
    }
    let changed = json!({"url": "https://example.org/hook", "secret": [SECRET, "whsec_other"], "events": ["job.failed"],
        "kinds": ["welcome"], "queues": ["default"], "include": ["result", "payload"], "paused": true});
    let reply = server.put("/hooks/billing", changed).await;
    let changed = reply.expect(200);
    bodies.push(reply.body.clone());
    assert_eq!((&changed["events"], &changed["include"]), (&json!(["job.failed"]), &json!(["payload", "result"])));
    assert_eq!((&changed["paused"], &changed["paused_reason"]), (&json!(true), &json!("paused by anyone")));
    assert_eq!(changed["created_at"], made["created_at"], "it is told of the same jobs");
    let one = server.get("/hooks/billing").await;
    assert_eq!(one.expect(200), changed);
    let all = server.get("/hooks").await;
    assert_eq!(all.expect(200), json!([changed]));
    for (verb, paused) in [("resume", false), ("pause", true), ("resume", false)] {
        let switched = server.call("POST", &format!("/hooks/billing/{verb}")).send().await;
        assert_eq!(switched.expect(200)["paused"], paused);
    }
    server.delete("/hooks/billing").await.expect(204);
    server.delete("/hooks/billing").await.problem(404, "not_found");
    server.get("/hooks/billing").await.problem(404, "not_found");
    server.call("POST", "/hooks/billing/pause").send().await.problem(404, "not_found");
    bodies.extend([one.body, all.body, server.get("/audit").await.body]);
    for body in bodies {
        assert!(!body.contains("canary") && !body.contains("whsec"), "{body}");
    }
}

async fn a_hook_that_makes_no_sense_is_refused_with_what_is_wrong(world: World) {
    let unready = world.server().await;
    let said = unready.put("/hooks/h", hook()).await.problem(422, "unknown_kind");
    assert!(said["detail"].as_str().unwrap().contains("webhook_delivery"), "{said}");
    unready
        .put("/kinds/webhook_delivery", json!({"schema": {"properties": {"url": {"pattern": "^https?://"}}}}))
        .await
        .expect(201);
    let with = |field: &str, value: Value| {
        let mut hook = hook();
        hook[field] = value;
        hook
    };
    for (bad, reason) in [
        (json!({"secret": SECRET}), "either a url or an endpoint"),
        (with("endpoint", json!("crm")), "either a url or an endpoint"),
        (with("events", json!(["flow.finished"])), "job.succeeded, job.failed or job.cancelled"),
        (with("events", json!([])), "events is empty"),
        (with("kinds", json!(["No Name"])), "is not a name"),
        (with("queues", json!([])), "queues is empty"),
        (with("include", json!(["secrets"])), "payload or result"),
        (with("secret", json!(["a", "b", "c", "d", "e"])), "the limit is 4"),
    ] {
        let said = unready.put("/hooks/h", bad).await.problem(422, "invalid_value");
        assert!(said["detail"].as_str().unwrap().contains(reason), "{said}");
    }
    unready.put("/hooks/h", with("url", json!("ftp://example.org"))).await.problem(422, "invalid_payload");
    unready.put("/hooks/No%20Name", hook()).await.problem(422, "invalid_value");
    for bad in [with("unknown", json!(1)), with("paused", json!("yes")), with("secret", json!(5)), json!([])] {
        unready.put("/hooks/h", bad).await.problem(400, "malformed");
    }
    assert_eq!(unready.get("/hooks").await.expect(200), json!([]));
}

async fn ends_become_deliveries_of_the_server_itself(world: World) {
    let server = server(&world).await;
    carry_on(&server);
    server
        .put("/hooks/failures", json!({"url": "https://example.org/f", "secret": SECRET, "events": ["job.failed"]}))
        .await
        .expect(201);
    for outcome in ["succeeded", "failed"] {
        server.post("/jobs", json!({"kind": "welcome", "payload": {"user": 1}, "queue": "mail"})).await.expect(201);
        let lease = lease(&server, "welcome").await;
        let mut reported = json!({"outcome": outcome});
        if outcome == "failed" {
            (reported["error"], reported["permanent"]) = (json!("smtp 451"), json!(true));
        }
        settle(&server, &lease, reported).await;
    }
    let delivery = lease(&server, "webhook_delivery").await;
    let (job, payload) = (&delivery["job"], &delivery["job"]["payload"]);
    assert_eq!((&job["queue"], &job["max_attempts"]), (&json!("steadfast.hooks"), &json!(12)));
    assert_eq!((&payload["url"], &payload["secret"]), (&json!("https://example.org/f"), &json!([SECRET])));
    let body = &payload["body"];
    assert_eq!(
        (&body["type"], &body["attempt"], &body["error"]),
        (&json!("job.failed"), &json!(1), &json!("smtp 451"))
    );
    assert_eq!((&body["job"]["kind"], &body["job"]["queue"]), (&json!("welcome"), &json!("mail")));
    assert!(body["job"].get("payload").is_none() && body["id"] == payload["message_id"], "{body}");
    let shown = server.get(&format!("/jobs/{}", job["id"].as_str().unwrap())).await;
    assert_eq!(shown.expect(200)["payload"]["secret"], json!(["(secret)"]));
    // Its own end is no event.
    settle(&server, &delivery, json!({"outcome": "failed", "error": "410", "permanent": true})).await;
    let deadline = Instant::now() + Duration::from_secs(60);
    while server.get("/hooks/failures").await.expect(200)["dead_in_a_row"] != 1 {
        assert!(Instant::now() < deadline, "the end of a delivery is not counted");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let deliveries = server.get("/jobs?kind=webhook_delivery").await.expect(200);
    assert_eq!(deliveries.as_array().unwrap().len(), 1, "{deliveries}");
}

async fn a_job_may_name_a_hook_and_one_that_there_is_not_is_refused(world: World) {
    let server = server(&world).await;
    let other = json!({"url": "https://example.org/b", "events": ["job.failed"], "kinds": ["other"]});
    server.put("/hooks/billing", other).await.expect(201);
    let job = |notify: &str| json!({"kind": "welcome", "payload": {"user": 1}, "notify": notify});
    let made = server.post("/jobs", job("billing")).await.expect(201);
    assert_eq!(made["notify"], "billing");
    let plain = server.post("/jobs", json!({"kind": "welcome", "payload": {}})).await.expect(201);
    assert_eq!(plain["notify"], Value::Null);
    let said = server.post("/jobs", job("biling")).await.problem(422, "unknown_hook");
    assert!(said["detail"].as_str().unwrap().contains("PUT /hooks/biling"), "{said}");
    server.post("/jobs", job("No Name")).await.problem(422, "invalid_value");
    let said = server.post("/jobs/batch", json!({"jobs": [job("billing"), job("none")]})).await;
    let said = said.problem(422, "invalid_batch");
    assert_eq!((&said["errors"][0]["index"], said["errors"].as_array().unwrap().len()), (&json!(1), 1), "{said}");
    let mut keyed = job("billing");
    keyed["idempotency_key"] = json!("k");
    server.post("/jobs", keyed.clone()).await.expect(201);
    server.delete("/hooks/billing").await.expect(204);
    let again = server.post("/jobs", keyed).await.expect(200);
    assert_eq!(again["notify"], "billing", "a known key is answered although its hook is gone");
    server.post("/jobs", job("billing")).await.problem(422, "unknown_hook");
}

async fn what_a_kind_hides_of_its_payloads_is_not_sent_along(world: World) {
    let server = server(&world).await;
    carry_on(&server);
    server.put("/kinds/welcome", json!({"hidden": ["/card"]})).await.expect(200);
    server
        .put("/hooks/all", json!({"url": "https://example.org/a", "include": ["payload", "result"]}))
        .await
        .expect(201);
    server.post("/jobs", json!({"kind": "welcome", "payload": {"card": "4111-canary", "user": 7}})).await.expect(201);
    let leased = lease(&server, "welcome").await;
    assert_eq!(leased["job"]["payload"]["card"], "4111-canary");
    settle(&server, &leased, json!({"outcome": "succeeded", "result": {"sent": 1}})).await;
    let delivery = lease(&server, "webhook_delivery").await;
    let job = &delivery["job"]["payload"]["body"]["job"];
    assert_eq!((&job["payload"], &job["result"]), (&json!({"card": "(secret)", "user": 7}), &json!({"sent": 1})));
}

async fn a_trace_is_kept_shown_and_handed_to_workers_and_a_bad_one_is_ignored(world: World) {
    let server = world.server().await;
    let parent = |digit: &str| format!("00-{}-00f067aa0ba902b7-01", digit.repeat(32));
    let (first, second) = (parent("1"), parent("2"));
    let body = json!({"kind": "welcome", "payload": {"user": 1}});
    let enqueue = async |parent: &str, body: &Value| {
        let call = server.call("POST", "/jobs").header("traceparent", parent).header("tracestate", "vendor=1");
        call.json(body).send().await.expect(201)
    };
    let job = enqueue(&first, &body).await;
    assert_eq!(job["trace"], json!({"traceparent": first, "tracestate": "vendor=1"}));
    let path = format!("/jobs/{}", job["id"].as_str().unwrap());
    assert_eq!(server.get(&path).await.expect(200)["trace"], job["trace"]);
    assert_eq!(server.lease(1).await[0]["job"]["trace"], job["trace"], "workers go on with it");
    let mut own = body.clone();
    own["traceparent"] = json!(second);
    assert_eq!(enqueue(&first, &own).await["trace"], json!({"traceparent": second, "tracestate": null}));
    for bad in ["", "nonsense", &parent("0"), &first.to_uppercase().replace("00-1", "FF-1")] {
        assert_eq!(enqueue(bad, &body).await["trace"], Value::Null, "{bad}");
        let mut own = body.clone();
        own["traceparent"] = json!(bad);
        assert_eq!(enqueue(&first, &own).await["trace"], Value::Null, "its own wins, valid or not: {bad}");
    }
    let batch = json!({"jobs": [body, own]});
    let call = server.call("POST", "/jobs/batch").header("traceparent", &first).json(&batch);
    let results = call.send().await.expect(200)["results"].clone();
    assert_eq!(results[0]["job"]["trace"]["traceparent"], first);
    assert_eq!(results[1]["job"]["trace"]["traceparent"], second);
    assert_eq!(server.post("/jobs", body).await.expect(201)["trace"], Value::Null);
}
