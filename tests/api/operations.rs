//! Operations over HTTP: previewed, begun, paused, resumed, stopped, listed, and what is refused.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use steadfast::worker::{WorkerHealth, WorkerSettings, run_housekeeping};

use crate::client::Reply;
use crate::on_every_store;
use crate::world::{Server, World};

on_every_store!(
    a_redrive_is_previewed_begun_and_finished_by_the_server_itself,
    hidden_parts_are_not_shown_in_a_preview,
    what_is_done_is_what_was_previewed_or_it_is_refused,
    an_operation_that_makes_no_sense_is_refused_with_what_is_wrong,
    an_operation_is_paused_given_another_rate_resumed_and_stopped,
    jobs_are_moved_reprioritized_cancelled_and_deleted,
    a_delete_needs_admin_and_the_rest_operate,
    operations_come_in_pages_newest_first,
    there_are_no_more_than_a_hundred_at_the_same_time,
    a_bad_canary_pauses_a_redrive_and_says_why,
);

const ADMIN: &str = "the-operators-own-token";

fn detail(problem: &Value) -> &str {
    problem["detail"].as_str().unwrap()
}

fn dead() -> Value {
    json!({"status": "failed_permanent", "kind": "welcome"})
}

/// So many dead letters; their ids, oldest first.
async fn dead_letters(server: &Server, count: usize) -> Vec<String> {
    let jobs: Vec<Value> = (0..count).map(|n| json!({"kind": "welcome", "payload": {"n": n}})).collect();
    server.post("/jobs/batch", json!({"jobs": jobs})).await.expect(200);
    let leases = server.lease(count).await;
    assert_eq!(leases.len(), count);
    let outcomes: Vec<Value> = leases.iter().map(|lease| outcome(lease, "failed")).collect();
    server.post("/leases/settle", json!({"worker": "w", "outcomes": outcomes})).await.expect(200);
    let mut ids: Vec<String> = leases.iter().map(|lease| lease["job"]["id"].as_str().unwrap().to_owned()).collect();
    ids.sort_unstable();
    ids
}

fn outcome(lease: &Value, outcome: &str) -> Value {
    let mut reported = json!({"job_id": lease["job"]["id"], "lease_token": lease["lease_token"], "outcome": outcome});
    if outcome == "failed" {
        (reported["error"], reported["permanent"]) = (json!("smtp 451"), json!(true));
    }
    reported
}

/// The loop that carries operations on, as every process has it.
fn carry_on(server: &Server) {
    let health = WorkerHealth::default();
    tokio::spawn(run_housekeeping(server.queue.clone(), WorkerSettings::default(), health, std::future::pending()));
}

async fn until_state(server: &Server, id: &str, state: &str) -> Value {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let operation = server.get(&format!("/operations/{id}")).await.expect(200);
        if operation["state"] == state {
            return operation;
        }
        assert!(Instant::now() < deadline, "it does not become {state}: {operation}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn begin(server: &Server, operation: Value) -> String {
    let begun = server.post("/operations", operation).await.expect(202);
    begun["id"].as_str().unwrap().to_owned()
}

async fn act(server: &Server, id: &str, verb: &str) -> Reply {
    server.call("POST", &format!("/operations/{id}/{verb}")).send().await
}

async fn a_redrive_is_previewed_begun_and_finished_by_the_server_itself(world: World) {
    let server = world.server().await;
    carry_on(&server);
    let ids = dead_letters(&server, 30).await;
    let asked = json!({"action": "redrive", "filter": dead()});
    let preview = server.post("/operations/preview", asked).await.expect(200);
    assert_eq!((&preview["matches"], &preview["exact"]), (&json!(30), &json!(true)), "{preview}");
    assert_eq!(preview["by_kind"], json!([{"kind": "welcome", "count": 30}]));
    assert_eq!(preview["by_queue"], json!([{"queue": "default", "count": 30}]));
    let sample: Vec<&str> =
        preview["sample"].as_array().unwrap().iter().map(|job| job["id"].as_str().unwrap()).collect();
    assert_eq!(sample, ids[..5], "the oldest");
    assert!(preview["oldest"].as_str() <= preview["newest"].as_str() && preview["as_of"].is_string());
    assert_eq!(server.get("/stats").await.expect(200)["totals"]["failed_permanent"], 30, "nothing is changed");

    let redrive = json!({"action": "redrive", "filter": dead(), "rate": 1000, "max": 25, "reason": "smtp is back",
        "preview": preview["token"]});
    let reply = server.post("/operations", redrive).await;
    let begun = reply.expect(202);
    let id = begun["id"].as_str().unwrap();
    assert_eq!(reply.header("location"), Some(&*format!("/operations/{id}")));
    for (field, value) in [
        ("action", json!("redrive")),
        ("filter", dead()),
        ("ids", Value::Null),
        ("priority", Value::Null),
        ("to", Value::Null),
        ("of", json!(30)),
        ("rate", json!(1000)),
        ("max", json!(25)),
        ("canary", Value::Null),
        ("by", json!("anyone")),
        ("reason", json!("smtp is back")),
        ("note", Value::Null),
    ] {
        assert_eq!(begun[field], value, "{field}");
    }
    let finished = until_state(&server, id, "finished").await;
    let counts = &finished["counts"];
    assert_eq!((&counts["changed"], &counts["unchanged"], &counts["failed"]), (&json!(25), &json!(0), &json!(0)));
    assert!(finished["finished_at"].is_string() && finished["next_step_at"].is_null(), "{finished}");
    let totals = server.get("/stats").await.expect(200)["totals"].clone();
    assert_eq!((&totals["queued"], &totals["failed_permanent"]), (&json!(25), &json!(5)));
    assert_eq!(server.get(&format!("/jobs/{}", ids[0])).await.expect(200)["attempts"], 0);
}

async fn hidden_parts_are_not_shown_in_a_preview(world: World) {
    let server = world.server().await;
    server.put("/kinds/welcome", json!({"hidden": ["/card"]})).await.expect(200);
    let job = json!({"kind": "welcome", "payload": {"card": "4111-canary", "user": 7}});
    server.post("/jobs", job).await.expect(201);
    let asked = json!({"action": "cancel", "filter": {"kind": "welcome"}});
    let reply = server.post("/operations/preview", asked).await;
    assert_eq!(reply.expect(200)["sample"][0]["payload"], json!({"card": "(secret)", "user": 7}));
    assert!(!reply.body.contains("4111-canary"));
}

async fn what_is_done_is_what_was_previewed_or_it_is_refused(world: World) {
    let server = world.server().await;
    dead_letters(&server, 2).await;
    let asked = json!({"action": "redrive", "filter": dead()});
    let token = server.post("/operations/preview", asked).await.expect(200)["token"].clone();
    for other in [
        json!({"action": "delete", "filter": dead(), "preview": token}),
        json!({"action": "redrive", "filter": {"status": "failed_permanent"}, "preview": token}),
        json!({"action": "redrive", "filter": dead(), "preview": "made up"}),
        json!({"action": "redrive", "filter": dead(), "preview": ""}),
    ] {
        let refused = server.post("/operations", other).await.problem(409, "not_previewed");
        assert!(detail(&refused).contains("preview again"), "{refused}");
    }
    assert_eq!(server.get("/operations").await.expect(200), json!([]), "nothing has begun");
    begin(&server, json!({"action": "redrive", "filter": dead(), "preview": token})).await;
}

async fn an_operation_that_makes_no_sense_is_refused_with_what_is_wrong(world: World) {
    let server = world.server().await;
    let id = uuid::Uuid::nil();
    let many: Vec<_> = (0..1001).map(|_| uuid::Uuid::now_v7()).collect();
    let kinds = vec!["k"; 51].join(",");
    for (target, said) in [
        (json!({"action": "explode", "filter": dead()}), "redrive, cancel, delete, reprioritize or move"),
        (json!({"action": "redrive"}), "filter or ids"),
        (json!({"action": "redrive", "filter": null, "ids": null}), "filter or ids"),
        (json!({"action": "redrive", "filter": dead(), "ids": [id]}), "exclude each other"),
        (json!({"action": "redrive", "filter": {}}), "the filter is empty"),
        (json!({"action": "redrive", "filter": {"kind": null}}), "the filter is empty"),
        (json!({"action": "redrive", "ids": []}), "1 to 1000"),
        (json!({"action": "redrive", "ids": many}), "1 to 1000"),
        (json!({"action": "redrive", "filter": {"status": "running"}}), "failed_permanent, cancelled"),
        (json!({"action": "cancel", "filter": {"status": "succeeded"}}), "queued"),
        (json!({"action": "delete", "filter": {"kind": "welcome"}}), "delete needs it"),
        (json!({"action": "delete", "filter": {"status": "queued"}}), "succeeded"),
        (json!({"action": "redrive", "filter": {"status": "dead"}}), "no status \"dead\""),
        (json!({"action": "redrive", "filter": {"kind": "No Name"}}), "No Name"),
        (json!({"action": "redrive", "filter": {"queue": "a,,b"}}), "name"),
        (json!({"action": "redrive", "filter": {"kind": kinds}}), "at most 50"),
        (json!({"action": "redrive", "filter": {"error": "9f3c"}}), "16 digits"),
        (json!({"action": "redrive", "filter": {"key": ""}}), "1 to 255"),
        (json!({"action": "redrive", "filter": {"group": ""}}), "group"),
        (json!({"action": "redrive", "filter": {"finished_after": "yesterday"}}), "2030-01-31T12:00:00Z"),
        (
            json!({"action": "redrive", "filter": {"created_after": "2029-01-02T00:00:00Z", "created_before": "2029-01-01T00:00:00Z"}}),
            "earlier",
        ),
        (json!({"action": "reprioritize", "filter": {"kind": "welcome"}}), "priority: reprioritize needs it"),
        (json!({"action": "reprioritize", "filter": {"kind": "welcome"}, "priority": 101}), "-100 to 100"),
        (json!({"action": "move", "filter": {"kind": "welcome"}}), "to: move needs it"),
        (json!({"action": "move", "filter": {"kind": "welcome"}, "to": "No Name"}), "No Name"),
        (json!({"action": "move", "filter": {"kind": "welcome"}, "to": "q", "priority": 1}), "leave it out"),
        (json!({"action": "redrive", "filter": dead(), "to": "q"}), "leave it out"),
    ] {
        for path in ["/operations/preview", "/operations"] {
            let refused = server.post(path, target.clone()).await.problem(422, "invalid_value");
            assert!(detail(&refused).contains(said), "{path} {target}: {refused}");
        }
    }
    for (field, value, said) in [
        ("rate", json!(0), "1 to 10000"),
        ("rate", json!(10_001), "1 to 10000"),
        ("max", json!(0), "max"),
        ("canary", json!({"first": 0, "need": 1}), "canary.first"),
        ("canary", json!({"first": 101, "need": 1}), "1 to 100"),
        ("canary", json!({"first": 5, "need": 6}), "canary.need"),
        ("reason", json!("x".repeat(2001)), "2000"),
        ("reason", json!("a\u{0}b"), "NUL"),
    ] {
        let mut operation = json!({"action": "redrive", "filter": dead()});
        operation[field] = value;
        let refused = server.post("/operations", operation.clone()).await.problem(422, "invalid_value");
        assert!(detail(&refused).contains(said), "{operation}: {refused}");
    }
    let canary = json!({"action": "cancel", "filter": {"kind": "welcome"}, "canary": {"first": 5, "need": 4}});
    assert!(detail(&server.post("/operations", canary).await.problem(422, "invalid_value")).contains("redrive"));
    for malformed in [
        json!({"filter": dead()}),
        json!({"action": "redrive", "filter": {"staus": "failed_permanent"}}),
        json!({"action": "redrive", "filter": dead(), "dry_run": true}),
        json!({"action": "redrive", "filter": dead(), "canary": {"first": 5}}),
        json!({"action": "redrive", "ids": ["seven"]}),
        json!({"action": 7, "filter": dead()}),
        json!([]),
    ] {
        server.post("/operations", malformed).await.problem(400, "malformed");
    }
    let rate = json!({"action": "redrive", "filter": dead(), "rate": 5});
    server.post("/operations/preview", rate).await.problem(400, "malformed");
    for query in ["state=dead", "limit=x", "cursor=7", "offset=1"] {
        server.get(&format!("/operations?{query}")).await.problem(400, "malformed");
    }
    assert_eq!(server.get("/operations").await.expect(200), json!([]), "nothing has begun");
}

async fn an_operation_is_paused_given_another_rate_resumed_and_stopped(world: World) {
    let server = world.server().await;
    carry_on(&server);
    dead_letters(&server, 200).await;
    let id = begin(&server, json!({"action": "redrive", "filter": dead(), "rate": 1})).await;
    let rate = |rate: Value| {
        let (path, body) = (format!("/operations/{id}"), json!({"rate": rate}));
        let call = server.call("PATCH", &path);
        async move { call.json(&body).send().await }
    };
    assert_eq!(act(&server, &id, "pause").await.expect(200)["state"], "paused");
    assert_eq!(act(&server, &id, "pause").await.expect(200)["state"], "paused", "already");
    for wrong in [json!(0), json!(10_001), json!(-1), json!(5_000_000_000_i64)] {
        assert!(detail(&rate(wrong).await.problem(422, "invalid_value")).contains("1 to 10000"));
    }
    rate(json!("fast")).await.problem(400, "malformed");
    let changed = rate(json!(5)).await.expect(200);
    assert_eq!(
        (&changed["rate"], &changed["state"], &changed["next_step_at"]),
        (&json!(5), &json!("paused"), &Value::Null)
    );
    assert_eq!(act(&server, &id, "resume").await.expect(200)["state"], "running");
    let stopped = act(&server, &id, "stop").await.expect(200);
    assert!(stopped["state"] == "stopped" && stopped["finished_at"].is_string(), "{stopped}");
    for verb in ["pause", "resume", "stop"] {
        let refused = act(&server, &id, verb).await.problem(409, "operation_ended");
        assert!(detail(&refused).contains("stopped"), "{refused}");
    }
    rate(json!(5)).await.problem(409, "operation_ended");
    let changed = stopped["counts"]["changed"].as_u64().unwrap();
    assert_eq!(server.get(&format!("/operations/{id}")).await.expect(200), stopped);
    assert_eq!(server.get("/stats").await.expect(200)["totals"]["queued"], changed, "what is done stays done");

    let nobody = uuid::Uuid::nil();
    for (method, path) in [
        ("GET", format!("/operations/{nobody}")),
        ("POST", format!("/operations/{nobody}/pause")),
        ("POST", format!("/operations/{nobody}/resume")),
        ("POST", format!("/operations/{nobody}/stop")),
    ] {
        server.call(method, &path).send().await.problem(404, "not_found");
        server.call(method, &path.replace(&nobody.to_string(), "seven")).send().await.problem(400, "malformed");
    }
    let patch = server.call("PATCH", &format!("/operations/{nobody}")).json(&json!({"rate": 5}));
    patch.send().await.problem(404, "not_found");
}

async fn jobs_are_moved_reprioritized_cancelled_and_deleted(world: World) {
    let server = world.server().await;
    carry_on(&server);
    let (moved, raised) = (server.enqueue().await, server.enqueue().await);
    let move_one = begin(&server, json!({"action": "move", "ids": [moved], "to": "slow"})).await;
    let raise_one = begin(&server, json!({"action": "reprioritize", "ids": [raised], "priority": 9})).await;
    let done = until_state(&server, &move_one, "finished").await;
    assert_eq!((&done["to"], &done["ids"], &done["filter"]), (&json!("slow"), &json!([moved]), &Value::Null));
    assert_eq!(until_state(&server, &raise_one, "finished").await["priority"], 9);
    assert_eq!(server.get(&format!("/jobs/{moved}")).await.expect(200)["queue"], "slow");
    assert_eq!(server.get(&format!("/jobs/{raised}")).await.expect(200)["priority"], 9);
    let cancel = begin(&server, json!({"action": "cancel", "filter": {"queue": "slow,default"}})).await;
    assert_eq!(until_state(&server, &cancel, "finished").await["counts"]["changed"], 2);
    let delete = begin(&server, json!({"action": "delete", "filter": {"status": "cancelled"}})).await;
    assert_eq!(until_state(&server, &delete, "finished").await["counts"]["changed"], 2);
    server.get(&format!("/jobs/{moved}")).await.problem(404, "not_found");
}

async fn a_delete_needs_admin_and_the_rest_operate(world: World) {
    let server = world.server_with(|settings| settings.admin_token(ADMIN.to_owned())).await;
    let made = json!({"name": "on call", "scopes": ["operate"]});
    let made = server.call("POST", "/tokens").token(ADMIN).json(&made).send().await.expect(201);
    let operate = made["token"].as_str().unwrap().to_owned();
    let delete = json!({"action": "delete", "filter": dead()});
    let redrive = json!({"action": "redrive", "filter": dead()});
    for path in ["/operations/preview", "/operations"] {
        let refused = server.call("POST", path).token(&operate).json(&delete).send().await;
        assert!(detail(&refused.problem(403, "scope_missing")).contains("the scope admin"), "{refused:?}");
    }
    server.call("POST", "/operations/preview").token(&operate).json(&redrive).send().await.expect(200);
    server.call("POST", "/operations/preview").token(ADMIN).json(&delete).send().await.expect(200);
    let begun = server.call("POST", "/operations").token(&operate).json(&redrive).send().await.expect(202);
    assert_eq!(begun["by"], "on call");
    server.call("POST", "/operations").token(ADMIN).json(&delete).send().await.expect(202);
}

async fn operations_come_in_pages_newest_first(world: World) {
    let server = world.server().await;
    let mut ids = Vec::new();
    for _ in 0..5 {
        ids.insert(0, begin(&server, json!({"action": "redrive", "filter": dead()})).await);
    }
    act(&server, &ids[1], "stop").await.expect(200);
    let mut seen = Vec::new();
    let mut path = "/operations?limit=2".to_owned();
    loop {
        let page = server.get(&path).await;
        seen.extend(page.expect(200).as_array().unwrap().iter().map(|shown| shown["id"].as_str().unwrap().to_owned()));
        let Some(link) = page.header("link") else { break };
        path = link.strip_prefix('<').unwrap().split('>').next().unwrap().to_owned();
    }
    assert_eq!(seen, ids);
    let running = server.get("/operations?state=running&limit=3").await;
    assert!(running.header("link").unwrap().contains("&state=running>"), "{running:?}");
    let stopped = server.get("/operations?state=stopped").await.expect(200);
    assert_eq!((stopped.as_array().unwrap().len(), &stopped[0]["id"]), (1, &json!(ids[1])));
}

async fn there_are_no_more_than_a_hundred_at_the_same_time(world: World) {
    let server = world.server().await;
    let redrive = json!({"action": "redrive", "filter": dead()});
    let first = begin(&server, redrive.clone()).await;
    for _ in 1..100 {
        begin(&server, redrive.clone()).await;
    }
    let reply = server.post("/operations", redrive.clone()).await;
    assert!(detail(&reply.problem(429, "too_many_operations")).contains("stop one"));
    assert_eq!(reply.header("retry-after"), Some("10"));
    act(&server, &first, "stop").await.expect(200);
    begin(&server, redrive).await;
}

async fn a_bad_canary_pauses_a_redrive_and_says_why(world: World) {
    let server = world.server().await;
    carry_on(&server);
    dead_letters(&server, 10).await;
    let canary = json!({"first": 2, "need": 2});
    let id = begin(&server, json!({"action": "redrive", "filter": dead(), "rate": 1000, "canary": canary})).await;
    let leased = json!({"worker": "w", "max": 10, "wait_ms": 30_000});
    let leases = server.post("/leases", leased).await.expect(200);
    server.settle(&leases["leases"][0], outcome(&leases["leases"][0], "failed")).await;
    let paused = until_state(&server, &id, "paused").await;
    assert!(paused["note"].as_str().unwrap().contains("1 did not succeed"), "{paused}");
    assert_eq!(paused["canary"], json!({"first": 2, "need": 2, "passed": false}));
    assert_eq!(paused["counts"]["changed"], 2);
    act(&server, &id, "resume").await.expect(200);
    assert_eq!(until_state(&server, &id, "finished").await["counts"]["changed"], 10);
}
