//! The audit: every route by which an operator changes something is in it, with who asked; operators read it, and nobody
//! changes it.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use steadfast::job::{Kind, KindDefinition};

use crate::access::{ALSO_ADMIN, TABLE, routes};
use crate::client::Reply;
use crate::on_every_store;
use crate::world::{Server, World};

on_every_store!(
    every_operator_route_is_audited_and_the_others_are_not,
    the_audit_is_read_page_by_page_and_filtered,
    no_route_changes_the_audit,
);

const ADMIN: &str = "the-operators-own-token";
const WORKER: &str = "w-1";
const SECRET: &str = "canary-secret-51be20";

/// A call of an operator's route: the route, the path, the body, and the action that is to be found. In an order in which
/// each changes something.
struct Act {
    route: (&'static str, &'static str),
    path: String,
    body: Value,
    action: &'static str,
}

fn act(method: &'static str, route: &'static str, named: &[(&str, &str)], body: Value, action: &'static str) -> Act {
    let fill = |path: String, (name, value): &(&str, &str)| path.replace(&format!("{{{name}}}"), value);
    Act { route: (method, route), path: named.iter().fold(route.to_owned(), fill), body, action }
}

/// Every route by which an operator changes something, with a call of it. A route that is missing here fails the test.
fn acts(job: &str, token: &str, error: &str, operation: &str) -> Vec<Act> {
    let (error, operation) = (&[("fingerprint", error)][..], &[("id", operation)][..]);
    let worker = &[("worker", WORKER)][..];
    let nothing = json!({"action": "cancel", "filter": {"queue": "nothing"}, "reason": "to be sure"});
    let (queue, kind, name) = (&[("queue", "mail")][..], &[("kind", "letter")][..], &[("name", "nightly")][..]);
    let (job, token) = (&[("id", job)][..], &[("id", token)][..]);
    let group = &[("queue", "mail"), ("group", "acme")][..];
    let schedule = json!({"cron": "0 2 * * *", "job": {"kind": "welcome", "payload": {"key": SECRET}}});
    vec![
        act("post", "/jobs/{id}/cancel", job, json!({}), "cancel"),
        act("post", "/jobs/{id}/redrive", job, json!({}), "redrive"),
        act("post", "/jobs/{id}/cancel", job, json!({}), "cancel"),
        act("delete", "/jobs/{id}", job, json!({}), "delete"),
        act("post", "/queues/{queue}/pause", queue, json!({}), "pause"),
        act("post", "/queues/{queue}/resume", queue, json!({}), "resume"),
        act("put", "/queues/{queue}", queue, json!({"concurrency": 5}), "put_queue"),
        act("put", "/queues/{queue}/groups/{group}", group, json!({"weight": 2}), "put_group"),
        act("delete", "/queues/{queue}/groups/{group}", group, json!({}), "delete_group"),
        act("put", "/kinds/{kind}", kind, json!({"max_attempts": 7}), "put_kind"),
        act("delete", "/kinds/{kind}", kind, json!({}), "delete_kind"),
        act("put", "/schedules/{name}", name, schedule, "put_schedule"),
        act("post", "/schedules/{name}/pause", name, json!({}), "pause_schedule"),
        act("post", "/schedules/{name}/resume", name, json!({}), "resume_schedule"),
        act("post", "/schedules/{name}/run", name, json!({}), "run_schedule"),
        act("delete", "/schedules/{name}", name, json!({}), "delete_schedule"),
        act("put", "/hooks/{name}", name, json!({"url": "https://example.org/hook", "secret": SECRET}), "put_hook"),
        act("post", "/hooks/{name}/pause", name, json!({}), "pause_hook"),
        act("post", "/hooks/{name}/resume", name, json!({}), "resume_hook"),
        act("delete", "/hooks/{name}", name, json!({}), "delete_hook"),
        act("put", "/errors/{fingerprint}/snooze", error, json!({"for_ms": 60000}), "snooze"),
        act("delete", "/errors/{fingerprint}/snooze", error, json!({}), "unsnooze"),
        act("post", "/workers/{worker}/drain", worker, json!({}), "drain"),
        act("post", "/workers/{worker}/undrain", worker, json!({}), "undrain"),
        act("post", "/operations", &[], nothing, "begin_operation"),
        act("patch", "/operations/{id}", operation, json!({"rate": 7}), "rate_operation"),
        act("post", "/operations/{id}/pause", operation, json!({}), "pause_operation"),
        act("post", "/operations/{id}/resume", operation, json!({}), "resume_operation"),
        act("post", "/operations/{id}/stop", operation, json!({}), "stop_operation"),
        act("post", "/tokens", &[], json!({"name": "third", "scopes": ["read"]}), "put_token"),
        act("delete", "/tokens/{id}", token, json!({}), "delete_token"),
    ]
}

/// From the document that is made from the routes: whatever is not read, enqueued or worked.
fn operator_routes() -> BTreeSet<(String, String)> {
    let scope = |method: &str, path: &str| {
        let table = TABLE.into_iter().chain([ALSO_ADMIN]);
        table.clone().find(|(m, p, _)| *m == method && *p == path).map_or("none", |(_, _, scope)| scope)
    };
    let acts = |(method, path): &(String, String)| {
        // A session is its owner's own, and a preview changes nothing.
        let acts_on_nothing = ["/session", "/operations/preview"].contains(&path.as_str());
        method != "get" && !acts_on_nothing && !["read", "enqueue", "work"].contains(&scope(method, path))
    };
    routes().into_iter().filter(acts).collect()
}

async fn closed_server(world: &World) -> (Server, String) {
    let server = world.server_with(|settings| settings.admin_token(ADMIN.to_owned())).await;
    let body = json!({"name": "ops", "scopes": ["admin"]});
    let made = server.call("POST", "/tokens").token(ADMIN).json(&body).send().await.expect(201);
    (server, made["token"].as_str().unwrap().to_owned())
}

async fn audit(server: &Server, query: &str) -> Reply {
    server.call("GET", &format!("/audit{query}")).token(ADMIN).send().await
}

/// A job that a worker has failed for good, and the worker is known: the group of its error.
async fn dead_letter(server: &Server, token: &str) -> String {
    let post = async |path: &str, body: Value| server.call("POST", path).token(token).json(&body).send().await;
    let job = post("/jobs", json!({"kind": "welcome", "payload": {"key": SECRET}})).await.expect(201);
    let lease = &post("/leases", json!({"worker": WORKER})).await.expect(200)["leases"][0];
    let failed = json!({"job_id": job["id"], "lease_token": lease["lease_token"], "outcome": "failed", "error": "smtp 451",
                        "permanent": true});
    post("/leases/settle", json!({"worker": WORKER, "outcomes": [failed]})).await.expect(200);
    let deadline = Instant::now() + Duration::from_secs(60);
    while server.call("GET", &format!("/workers/{WORKER}")).token(token).send().await.status != 200 {
        assert!(Instant::now() < deadline, "the worker is never known");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let path = format!("/jobs/{}", job["id"].as_str().unwrap());
    let dead = server.call("GET", &path).token(token).send().await.expect(200);
    dead["error_group"].as_str().unwrap().to_owned()
}

async fn every_operator_route_is_audited_and_the_others_are_not(world: World) {
    let (server, ops) = closed_server(&world).await;
    let (ops_id, secret) = ops.split_once('.').unwrap();
    let send = async |method: &str, path: &str, request_id: &str, body: &Value| -> Reply {
        let call = server.call(&method.to_uppercase(), path).token(&ops);
        call.header("x-request-id", request_id).json(body).send().await
    };
    let deliveries = Kind::new("webhook_delivery").unwrap();
    server.queue.put_kind(KindDefinition::any(deliveries)).await.unwrap();
    let error = dead_letter(&server, &ops).await;
    let job = json!({"kind": "welcome", "payload": {"key": SECRET}});
    let job = send("post", "/jobs", "enqueue", &job).await.expect(201);
    let operation = json!({"action": "cancel", "filter": {"queue": "nothing"}});
    let operation = send("post", "/operations", "operation", &operation).await.expect(202);
    let other = json!({"name": "other", "scopes": ["read"]});
    let other = send("post", "/tokens", "other", &other).await.expect(201);
    let id = |value: &Value| value["id"].as_str().unwrap().to_owned();
    let acts = acts(&id(&job), &id(&other), &error, &id(&operation));
    let called: BTreeSet<_> = acts.iter().map(|act| (act.route.0.to_owned(), act.route.1.to_owned())).collect();
    assert_eq!(called, operator_routes(), "the audited routes, and those of operators");
    for (n, act) in acts.iter().enumerate() {
        let request_id = format!("act-{n}");
        let reply = send(act.route.0, &act.path, &request_id, &act.body).await;
        assert!((200..300).contains(&reply.status), "{} {}: {reply:?}", act.route.0, act.path);
        let newest = audit(&server, "?limit=1").await.expect(200);
        let told = &newest[0];
        assert_eq!((&told["action"], &told["request_id"]), (&json!(act.action), &json!(request_id)), "{told}");
        assert_eq!((&told["token_id"], &told["token_name"]), (&json!(ops_id), &json!("ops")), "{told}");
        assert_eq!(told["remote"], "127.0.0.1", "{told}");
    }
    let all = audit(&server, "?limit=200&token=ops").await;
    assert_eq!(
        all.expect(200).as_array().unwrap().len(),
        acts.len() + 2,
        "and the token and the operation that were made before"
    );
    // Those of producers and workers have a history of their own.
    let leased = send("post", "/jobs", "enqueue", &json!({"kind": "welcome", "payload": SECRET})).await;
    leased.expect(201);
    send("post", "/leases", "lease", &json!({"worker": "w"})).await.expect(200);
    send("post", "/schedules/preview", "preview", &json!({"cron": "0 2 * * *"})).await.expect(200);
    let after = audit(&server, "?limit=200").await;
    assert_eq!(after.expect(200).as_array().unwrap()[0]["request_id"], json!(format!("act-{}", acts.len() - 1)));
    for canary in [SECRET, secret, ADMIN] {
        assert!(!after.body.contains(canary), "{canary} is in {}", after.body);
    }
}

async fn the_audit_is_read_page_by_page_and_filtered(world: World) {
    let (server, ops) = closed_server(&world).await;
    for name in ["a", "b", "c"] {
        server.call("POST", &format!("/queues/{name}/pause")).token(&ops).send().await.expect(200);
    }
    let refused = server.call("POST", "/jobs/00000000-0000-0000-0000-000000000000/cancel").token(&ops).send().await;
    refused.problem(404, "not_found");
    let first = audit(&server, "?limit=2&action=pause&token=ops").await;
    let targets = |reply: &Reply| -> Vec<Value> {
        reply.expect(200).as_array().unwrap().iter().map(|entry| entry["target"].clone()).collect()
    };
    assert_eq!(targets(&first), ["queue:c", "queue:b"]);
    let link = first.header("link").unwrap();
    let next = link.split(['<', '>']).nth(1).unwrap().strip_prefix("/audit").unwrap();
    assert!(next.contains("action=pause") && next.contains("token=ops"), "{link}");
    let second = audit(&server, next).await;
    assert_eq!((targets(&second), second.header("link")), (vec![json!("queue:a")], None));
    assert_eq!(targets(&audit(&server, "?target=queue%3Ab").await), ["queue:b"]);
    let at = first.json()[1]["at"].as_str().unwrap().to_owned();
    assert_eq!(targets(&audit(&server, &format!("?since={at}&action=pause")).await), ["queue:c", "queue:b"]);
    assert_eq!(targets(&audit(&server, &format!("?before={at}&action=pause")).await), ["queue:a"]);
    let long = format!("?target={}", "x".repeat(600));
    for bad in ["?since=yesterday", "?cursor=x", "?limit=many", "?who=ops", "?action=%00", &long] {
        audit(&server, bad).await.problem(400, "malformed");
    }
    let read = json!({"name": "reader", "scopes": ["read"]});
    let read = server.call("POST", "/tokens").token(ADMIN).json(&read).send().await.expect(201);
    let read = server.call("GET", "/audit").token(read["token"].as_str().unwrap()).send().await;
    let detail = read.problem(403, "scope_missing")["detail"].as_str().unwrap().to_owned();
    assert!(detail.contains("operate or admin"), "{detail}");
}

async fn no_route_changes_the_audit(world: World) {
    let (server, _) = closed_server(&world).await;
    let before = audit(&server, "").await.expect(200);
    for method in ["POST", "PUT", "PATCH", "DELETE"] {
        server.call(method, "/audit").token(ADMIN).send().await.problem(405, "method_not_allowed");
        server.call(method, "/audit/1").token(ADMIN).send().await.problem(404, "no_such_route");
    }
    assert_eq!(audit(&server, "").await.expect(200), before);
}
