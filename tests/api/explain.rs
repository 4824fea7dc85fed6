//! "Why is it not running?" over HTTP: every reason with its numbers, and the verdict first.

use serde_json::{Value, json};
use steadfast::job::{WorkerAsks, WorkerId, WorkerSource};
use steadfast::store::WorkerReport;

use crate::on_every_store;
use crate::world::{Server, World};

on_every_store!(
    a_job_that_nothing_holds_is_startable,
    every_reason_is_named_with_its_numbers,
    limits_that_are_full_say_so,
    a_strict_group_names_the_job_in_front,
    what_runs_or_has_finished_says_so,
    a_queue_says_whether_anything_of_it_moves,
    unknown_jobs_are_404_and_no_uuid_is_400,
    what_is_startable_is_what_a_claim_gets,
);

async fn enqueue(server: &Server, fields: Value) -> String {
    let mut job = json!({"kind": "welcome", "payload": {}});
    job.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    server.post("/jobs", job).await.expect(201)["id"].as_str().unwrap().to_owned()
}

/// So that what is said is about limits, not about workers.
async fn some_worker_asks(server: &Server) {
    let report = WorkerReport::new(WorkerId::new("asks-for-all").unwrap(), WorkerSource::Http);
    let report = report.concurrency(1000).fetched(WorkerAsks::default());
    server.queue.report_workers(vec![report]).await.unwrap();
}

async fn explained(server: &Server, id: &str) -> Value {
    some_worker_asks(server).await;
    let explained = server.get(&format!("/jobs/{id}/explain")).await.expect(200);
    for field in ["verdict", "says", "as_of"] {
        assert!(explained[field].as_str().is_some_and(|text| !text.is_empty()), "{field} of {explained}");
    }
    for field in ["since", "startable", "reasons", "ahead", "workers"] {
        assert!(explained.get(field).is_some(), "{field} of {explained}");
    }
    assert_eq!(explained["job_id"], id);
    assert_eq!(
        (&explained["verdict"], &explained["says"]),
        (&explained["reasons"][0]["code"], &explained["reasons"][0]["says"])
    );
    explained
}

fn codes(explained: &Value) -> Vec<&str> {
    explained["reasons"].as_array().unwrap().iter().map(|reason| reason["code"].as_str().unwrap()).collect()
}

async fn a_job_that_nothing_holds_is_startable(world: World) {
    let server = world.server().await;
    let first = enqueue(&server, json!({})).await;
    let second = enqueue(&server, json!({})).await;
    let explained_first = explained(&server, &first).await;
    assert_eq!((codes(&explained_first), &explained_first["startable"]), (vec!["startable"], &json!(true)));
    let explained_second = explained(&server, &second).await;
    assert_eq!((codes(&explained_second), &explained_second["startable"]), (vec!["waits_for_slot"], &json!(true)));
    assert_eq!(explained_second["ahead"], json!({"n": 1, "at_least": false}));
}

async fn every_reason_is_named_with_its_numbers(world: World) {
    let server = world.server().await;
    let later = enqueue(&server, json!({"delay_ms": 3_600_000, "group_key": "acme"})).await;
    server.call("POST", "/queues/default/pause").send().await.expect(200);
    server.put("/queues/default/groups/acme", json!({"paused": true})).await.expect(201);
    let explained = explained(&server, &later).await;
    assert_eq!(codes(&explained), ["not_due", "queue_paused", "group_paused"]);
    assert_eq!(explained["startable"], false);
    assert!(explained["reasons"][0]["at"].is_string(), "{explained}");
    assert_eq!(explained["reasons"][2]["group"], "acme");
}

async fn limits_that_are_full_say_so(world: World) {
    let server = world.server().await;
    let rate = json!({"limit": 1, "per_ms": 3_600_000});
    server
        .put("/queues/default", json!({"concurrency": 1, "rate": rate, "groups": {"concurrency": 1}}))
        .await
        .expect(201);
    server.put("/kinds/welcome", json!({"concurrency": 1})).await.expect(200);
    enqueue(&server, json!({"group_key": "acme"})).await;
    let held = enqueue(&server, json!({"group_key": "acme"})).await;
    assert_eq!(
        server.post("/leases", json!({"worker": "w", "max": 5, "wait_ms": 5000})).await.expect(200)["leases"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    let explained = explained(&server, &held).await;
    assert_eq!(codes(&explained), ["queue_full", "kind_full", "group_full", "rate"]);
    let group = &explained["reasons"][2];
    assert_eq!((&group["limit"], &group["running"]), (&json!(1), &json!(1)));
    assert_eq!(group["says"], "group acme of queue default runs 1 of 1");
    let rate = &explained["reasons"][3];
    assert_eq!((&rate["scope"], &rate["limit"], &rate["per_ms"]), (&json!("queue"), &json!(1), &json!(3_600_000)));
    assert!(rate["at"].is_string() && explained["startable"] == false, "{explained}");
}

async fn a_strict_group_names_the_job_in_front(world: World) {
    let server = world.server().await;
    server.put("/queues/default", json!({"groups": {"order": "strict"}})).await.expect(201);
    let first = enqueue(&server, json!({"group_key": "acme", "delay_ms": 3_600_000})).await;
    let second = enqueue(&server, json!({"group_key": "acme"})).await;
    let explained = explained(&server, &second).await;
    assert_eq!((codes(&explained), &explained["reasons"][0]["job_id"]), (vec!["behind"], &json!(first)));
}

async fn what_runs_or_has_finished_says_so(world: World) {
    let server = world.server().await;
    let id = enqueue(&server, json!({})).await;
    let leases = server.lease(1).await;
    let running = explained(&server, &id).await;
    assert_eq!((codes(&running), &running["reasons"][0]["worker"]), (vec!["running"], &json!("w")));
    assert_eq!((&running["ahead"], &running["startable"]), (&json!(null), &json!(false)));
    server.call("POST", &format!("/jobs/{id}/cancel")).send().await.expect(202);
    assert_eq!(codes(&explained(&server, &id).await), ["running", "cancel_requested"]);
    assert_eq!(server.settle(&leases[0], json!({"outcome": "cancelled"})).await, "recorded");
    let finished = explained(&server, &id).await;
    assert_eq!((codes(&finished), &finished["reasons"][0]["status"]), (vec!["finished"], &json!("cancelled")));
}

async fn a_queue_says_whether_anything_of_it_moves(world: World) {
    let server = world.server().await;
    some_worker_asks(&server).await;
    let queue = async || server.get("/queues/default/explain").await.expect(200);
    server.put("/queues/default", json!({"concurrency": 1})).await.expect(201);
    let empty = queue().await;
    assert_eq!((codes(&empty), &empty["queue"]), (vec!["empty"], &json!("default")));
    server.enqueue().await;
    server.enqueue().await;
    let moving = queue().await;
    assert_eq!((codes(&moving), &moving["startable"]), (vec!["startable"], &json!(true)));
    assert_eq!((&moving["reasons"][0]["waiting"], &moving["reasons"][0]["running"]), (&json!(2), &json!(0)));
    assert_eq!(
        server.post("/leases", json!({"worker": "w", "max": 5, "wait_ms": 5000})).await.expect(200)["leases"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    let full = queue().await;
    assert_eq!((&full["verdict"], &full["startable"]), (&json!("queue_full"), &json!(false)));
    server.call("POST", "/queues/default/pause").send().await.expect(200);
    assert_eq!(queue().await["verdict"], "queue_paused");
}

async fn unknown_jobs_are_404_and_no_uuid_is_400(world: World) {
    let server = world.server().await;
    server.get(&format!("/jobs/{}/explain", uuid::Uuid::now_v7())).await.problem(404, "not_found");
    server.get("/jobs/7/explain").await.problem(400, "malformed");
}

async fn what_is_startable_is_what_a_claim_gets(world: World) {
    let server = world.server().await;
    server.put("/queues/limited", json!({"concurrency": 2, "groups": {"concurrency": 1}})).await.expect(201);
    server.put("/queues/default/groups/held", json!({"paused": true})).await.expect(201);
    let mut ids = Vec::new();
    for fields in [
        json!({}),
        json!({"delay_ms": 3_600_000}),
        json!({"group_key": "held"}),
        json!({"group_key": "free"}),
        json!({"queue": "limited", "group_key": "a"}),
        json!({"start_within_ms": 3_600_000}),
    ] {
        ids.push(enqueue(&server, fields).await);
    }
    let mut startable = Vec::new();
    for id in &ids {
        if explained(&server, id).await["startable"] == true {
            startable.push(id.clone());
        }
    }
    let (mut leased, deadline) = (Vec::new(), std::time::Instant::now() + std::time::Duration::from_secs(30));
    while leased.len() < startable.len() {
        assert!(std::time::Instant::now() < deadline, "{leased:?} of {startable:?}");
        let body = json!({"worker": "w", "max": 10, "wait_ms": 500});
        let leases = server.post("/leases", body).await.expect(200);
        leased.extend(
            leases["leases"].as_array().unwrap().iter().map(|lease| lease["job"]["id"].as_str().unwrap().to_owned()),
        );
    }
    assert!(server.lease(10).await.is_empty(), "no other is claimed");
    startable.sort();
    leased.sort();
    assert_eq!(leased, startable);
}
