//! Idempotency keys: what they answer, what they refuse, what they come before, and to whom they tell what.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use steadfast::api::ApiSettings;
use steadfast::store::StoreErrorKind;

use crate::client::Reply;
use crate::faulty::{Fault, Faults};
use crate::on_every_store;
use crate::world::{Server, World};

on_every_store!(
    a_key_of_another_job_is_422_and_names_that_job,
    a_batch_with_a_key_of_another_job_is_422_and_stores_nothing,
    a_known_key_is_answered_although_its_kind_has_become_stricter_or_is_gone,
    a_known_key_is_answered_by_a_full_queue_and_takes_no_place_in_it,
    a_caller_without_read_learns_little_of_a_job_it_did_not_create,
    keys_with_control_characters_are_422,
    keys_with_a_reserved_prefix_are_422_in_header_body_and_batch_and_for_the_library,
    fifty_posts_that_fight_for_one_key_make_one_job_and_the_losers_are_told,
);

fn keyed(key: &str, payload: Value) -> Value {
    json!({"kind": "welcome", "payload": payload, "idempotency_key": key})
}

async fn count(server: &Server) -> usize {
    server.get("/jobs?limit=200").await.expect(200).as_array().unwrap().len()
}

fn assert_names(reply: &Reply, job: &Value) {
    reply.problem(422, "idempotency_conflict");
    assert!(reply.body.contains(job["id"].as_str().unwrap()), "{reply:?}");
}

async fn a_key_of_another_job_is_422_and_names_that_job(world: World) {
    let server = world.server().await;
    server.put("/kinds/other", json!({})).await.expect(201);
    let job = server.post("/jobs", keyed("k", json!({"user": 42}))).await.expect(201);
    let other_kind = json!({"kind": "other", "payload": {"user": 42}, "idempotency_key": "k"});
    assert_names(&server.post("/jobs", other_kind).await, &job);
    assert_names(&server.post("/jobs", keyed("k", json!({"user": 43}))).await, &job);
    assert_eq!(count(&server).await, 1);
    // However the job has ended meanwhile.
    server.post(&format!("/jobs/{}/cancel", job["id"].as_str().unwrap()), json!({})).await.expect(200);
    assert_names(&server.post("/jobs", keyed("k", json!({"user": 43}))).await, &job);
    assert_eq!(server.post("/jobs", keyed("k", json!({"user": 42}))).await.expect(200)["status"], "cancelled");
}

async fn a_batch_with_a_key_of_another_job_is_422_and_stores_nothing(world: World) {
    let server = world.server().await;
    let job = server.post("/jobs", keyed("k", json!(1))).await.expect(201);
    let batch =
        json!({"jobs": [keyed("a", json!(1)), keyed("k", json!(2)), keyed("b", json!(1)), keyed("a", json!(2))]});
    let reply = server.post("/jobs/batch", batch).await;
    reply.problem(422, "invalid_batch");
    let errors = reply.json()["errors"].clone();
    let at_fault: Vec<_> = errors.as_array().unwrap().iter().map(|error| error["index"].clone()).collect();
    assert_eq!(at_fault, [1, 3], "{errors}");
    assert!(errors.to_string().contains(job["id"].as_str().unwrap()), "{errors}");
    assert_eq!(count(&server).await, 1);
    let batch = json!({"jobs": [keyed("a", json!(1)), keyed("k", json!(1)), keyed("a", json!(1.0))]});
    let results = server.post("/jobs/batch", batch).await.expect(200)["results"].clone();
    let created: Vec<_> = results.as_array().unwrap().iter().map(|one| one["created"].clone()).collect();
    assert_eq!(created, [true, false, false]);
    assert_eq!((&results[1]["job"]["id"], &results[2]["job"]["id"]), (&job["id"], &results[0]["job"]["id"]));
    assert_eq!(count(&server).await, 2);
}

async fn a_known_key_is_answered_although_its_kind_has_become_stricter_or_is_gone(world: World) {
    let server = world.server().await;
    let job = server.post("/jobs", keyed("k", json!({"user": 42}))).await.expect(201);
    server.put("/kinds/welcome", json!({"schema": {"type": "string"}})).await.expect(200);
    server.post("/jobs", keyed("new", json!({"user": 42}))).await.problem(422, "invalid_payload");
    assert_eq!(server.post("/jobs", keyed("k", json!({"user": 42}))).await.expect(200)["id"], job["id"]);
    assert_names(&server.post("/jobs", keyed("k", json!({"user": 43}))).await, &job);
    let batch = json!({"jobs": [keyed("k", json!({"user": 42})), keyed("fits", json!("text"))]});
    let results = server.post("/jobs/batch", batch).await.expect(200)["results"].clone();
    assert_eq!((&results[0]["created"], &results[1]["created"]), (&json!(false), &json!(true)));
    server.delete("/kinds/welcome").await;
    server.post("/jobs", keyed("new", json!({"user": 42}))).await.problem(422, "unknown_kind");
    assert_eq!(server.post("/jobs", keyed("k", json!({"user": 42}))).await.expect(200)["id"], job["id"]);
}

async fn a_known_key_is_answered_by_a_full_queue_and_takes_no_place_in_it(world: World) {
    let server = world.server_with_depth(3).await;
    let job = server.post("/jobs", keyed("k", json!(1))).await.expect(201);
    for _ in 0..10 {
        server.post("/jobs", keyed("k", json!(1))).await.expect(200);
    }
    // The replays have taken none of the three places.
    server.post("/jobs", keyed("a", json!(1))).await.expect(201);
    server.post("/jobs", keyed("b", json!(1))).await.expect(201);
    server.post("/jobs", keyed("c", json!(1))).await.problem(429, "queue_full");
    assert_eq!(server.post("/jobs", keyed("k", json!(1))).await.expect(200)["id"], job["id"]);
    assert_names(&server.post("/jobs", keyed("k", json!(2))).await, &job);
    let batch = json!({"jobs": [keyed("k", json!(1)), keyed("a", json!(1))]});
    server.post("/jobs/batch", batch).await.expect(200);
    let batch = json!({"jobs": [keyed("k", json!(1)), keyed("c", json!(1))]});
    server.post("/jobs/batch", batch).await.problem(429, "queue_full");
    assert_eq!(count(&server).await, 3);
}

async fn a_caller_without_read_learns_little_of_a_job_it_did_not_create(world: World) {
    let server = world.server_with(|settings| settings.admin_token("admin".to_owned())).await;
    let token = async |scopes: Value| {
        let call = server.call("POST", "/tokens").token("admin").json(&json!({"name": "t", "scopes": scopes}));
        call.send().await.expect(201)["token"].as_str().unwrap().to_owned()
    };
    let (producer, reader) = (token(json!(["enqueue"])).await, token(json!(["enqueue", "read"])).await);
    let post =
        async |token: &str, path: &str, body: &Value| server.call("POST", path).token(token).json(body).send().await;
    let body = keyed("k", json!({"secret": "canary"}));
    let job = post(&reader, "/jobs", &body).await.expect(201);
    let reply = post(&producer, "/jobs", &body).await;
    assert_eq!(reply.expect(200), json!({"id": job["id"], "status": "queued", "created": false}));
    assert_eq!(reply.header("idempotent-replayed"), Some("true"));
    assert_eq!(post(&reader, "/jobs", &body).await.expect(200), job);
    let batch = json!({"jobs": [body, keyed("new", json!("mine"))]});
    let results = post(&producer, "/jobs/batch", &batch).await.expect(200)["results"].clone();
    assert_eq!(results[0]["created"], false);
    assert_eq!(results[0]["job"], json!({"id": job["id"], "status": "queued", "created": false}));
    assert_eq!(results[1]["job"]["payload"], "mine", "what it has just created, it knows");
}

async fn keys_with_control_characters_are_422(world: World) {
    let server = world.server().await;
    for key in ["a\nb", "a\r\nINFO forged", "\u{1b}[31m", "\u{7f}", "\u{9b}"] {
        let reply = server.post("/jobs", keyed(key, json!(1))).await;
        reply.problem(422, "invalid_value");
        assert!(reply.body.contains("control character"), "{reply:?}");
    }
    let batch = json!({"jobs": [keyed("a", json!(1)), keyed("b\nc", json!(1))]});
    server.post("/jobs/batch", batch).await.problem(422, "invalid_batch");
    assert_eq!(count(&server).await, 0);
}

async fn keys_with_a_reserved_prefix_are_422_in_header_body_and_batch_and_for_the_library(world: World) {
    let server = world.server().await;
    for key in ["schedule:nightly@2030", "flow:1", "hook:x"] {
        let prefix = &key[..=key.find(':').unwrap()];
        let in_header = server.call("POST", "/jobs").header("idempotency-key", key);
        for reply in [
            server.post("/jobs", keyed(key, json!(1))).await,
            in_header.json(&json!({"kind": "welcome", "payload": 1})).send().await,
        ] {
            let problem = reply.problem(422, "invalid_value");
            let detail = problem["detail"].as_str().unwrap();
            assert!(detail.contains(prefix) && detail.contains("use another prefix"), "{detail}");
        }
        let reply = server.post("/jobs/batch", json!({"jobs": [keyed("fine", json!(1)), keyed(key, json!(1))]})).await;
        let errors = reply.problem(422, "invalid_batch")["errors"].clone();
        assert_eq!((errors.as_array().unwrap().len(), &errors[0]["index"]), (1, &json!(1)));
        assert!(errors.to_string().contains(prefix), "{errors}");
        let request = steadfast::JobRequest::new("welcome", steadfast::Json::null()).idempotency_key(key);
        let error = server.queue.enqueue_request(request).await.unwrap_err().to_string();
        assert!(error.contains(prefix), "{error}");
    }
    assert_eq!(count(&server).await, 0);
    server.post("/jobs", keyed("schedules:are-fine", json!(1))).await.expect(201);
}

async fn fifty_posts_that_fight_for_one_key_make_one_job_and_the_losers_are_told(world: World) {
    let server = world.server().await;
    let posts: Vec<_> =
        (0..50).map(|n| tokio::spawn(server.call("POST", "/jobs").json(&keyed("one", json!(n % 2))).send())).collect();
    let mut replies = Vec::new();
    for post in posts {
        replies.push(post.await.unwrap());
    }
    let first = replies.iter().find(|reply| reply.status == 201).expect("one is first").json();
    for reply in replies {
        match reply.status {
            200 | 201 => assert_eq!((&reply.json()["id"], &reply.json()["payload"]), (&first["id"], &first["payload"])),
            _ => assert_names(&reply, &first),
        }
    }
    assert_eq!(count(&server).await, 1);
}

/// With a token of the operator's own, so that nothing but the limit asks the store before the enqueue itself does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_depth_that_cannot_be_counted_is_not_asked_for_by_every_call_and_is_known_again_afterwards() {
    let world = World::sqlite().await;
    let real = world.queue().await;
    let (store, faults) = Faults::before(real.store().clone());
    let queue = world.queue_builder().max_queue_depth(Some(1_000_000)).over(store, real.wake().clone()).unwrap();
    let settings = ApiSettings::new(queue.clone()).admin_token("admin".to_owned());
    let server = Server::start(queue, settings).await;
    let post = || server.call("POST", "/jobs").token("admin").json(&json!({"kind": "built_in", "payload": 1})).send();
    // Nothing was ever counted: one call in a fifth of a second asks, and the others are refused at once.
    faults.set(Fault::Fails(StoreErrorKind::Unavailable));
    let (before, began) = (faults.calls(), Instant::now());
    for _ in 0..50 {
        post().await.problem(503, "store_unavailable");
    }
    let (asked, slots) = (faults.calls() - before, began.elapsed().as_millis() / 200 + 1);
    assert!(asked as u128 <= slots, "the outage is not remembered: asked {asked} times in {slots} fifths of a second");
    faults.set(Fault::None);
    let deadline = Instant::now() + Duration::from_secs(30);
    while post().await.status != 201 {
        assert!(Instant::now() < deadline, "it does not recover");
    }
    // A count that does not come: nobody waits behind the call that asked for it.
    faults.set(Fault::StatsHeld);
    let deadline = Instant::now() + Duration::from_secs(60);
    let held = loop {
        let call = tokio::spawn(post());
        while faults.stats_held() == 0 && !call.is_finished() {
            tokio::task::yield_now().await;
        }
        if faults.stats_held() > 0 {
            break call;
        }
        assert!(Instant::now() < deadline, "old counts are never read again");
    };
    for _ in 0..5 {
        post().await.expect(201);
    }
    assert!(!held.is_finished() && faults.stats_held() == 1, "{} ask at once", faults.stats_held());
    faults.set(Fault::None);
    held.await.unwrap().expect(201);
}
