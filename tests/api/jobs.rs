//! Jobs: in, out, and every status and header that the API promises on the way.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::on_every_store;
use crate::world::World;

on_every_store!(
    a_job_is_accepted_with_201_and_found_where_location_says,
    the_same_key_answers_200_with_the_same_job_and_says_so,
    the_header_beats_the_body_and_validation_comes_before_the_key,
    fifty_concurrent_posts_with_one_key_make_one_job,
    what_is_malformed_is_400,
    what_is_not_acceptable_is_422_with_the_reason,
    an_unknown_kind_is_refused_with_the_closest_ones,
    sizes_and_types_are_413_and_415,
    a_batch_is_stored_whole_or_not_at_all,
    ids_that_are_no_uuids_are_400_and_unknown_ones_404,
    pages_follow_each_other_by_cursor_and_by_offset,
    filters_and_bad_queries,
    cancel_answers_200_202_404_and_409,
    a_cancel_raced_against_the_worker_always_ends_the_job,
    redrive_and_delete_mind_the_status,
    attempts_are_told_oldest_first,
    a_nul_in_a_batch_names_its_item,
    a_key_that_is_there_twice_is_400_and_named_wherever_it_is,
    a_body_that_is_compressed_is_415,
    a_long_page_is_whole_and_in_order_and_the_next_one_goes_on_after_it,
);

const ALL_FIELDS: [&str; 29] = [
    "error_group",
    "id",
    "kind",
    "queue",
    "payload",
    "status",
    "priority",
    "attempts",
    "max_attempts",
    "run_at",
    "timeout_ms",
    "idempotency_key",
    "group_key",
    "cost",
    "start_by",
    "unique",
    "cancel_requested",
    "locked_by",
    "locked_at",
    "lease_expires_at",
    "last_error",
    "result",
    "progress",
    "created_at",
    "updated_at",
    "started_at",
    "finished_at",
    "notify",
    "trace",
];

async fn a_job_is_accepted_with_201_and_found_where_location_says(world: World) {
    let server = world.server().await;
    let body = json!({
        "kind": "welcome", "payload": {"user": 42}, "queue": "mail", "priority": 7, "max_attempts": 5,
        "run_at": "2030-01-01T00:00:00Z", "timeout_ms": 30000, "idempotency_key": "welcome-42"
    });
    let reply = server.post("/jobs", body).await;
    let job = reply.expect(201);
    assert_eq!(reply.header("content-type"), Some("application/json"));
    assert_eq!(reply.header("location"), Some(format!("/jobs/{}", job["id"].as_str().unwrap()).as_str()));
    assert_eq!(reply.header("idempotent-replayed"), None);
    assert!(reply.header("x-request-id").is_some());
    let fields: BTreeSet<_> = job.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(fields, ALL_FIELDS.into_iter().collect());
    let told = json!({
        "kind": "welcome", "queue": "mail", "payload": {"user": 42}, "status": "queued", "priority": 7, "attempts": 0,
        "max_attempts": 5, "run_at": "2030-01-01T00:00:00Z", "timeout_ms": 30000, "idempotency_key": "welcome-42",
        "cancel_requested": false, "locked_by": null, "locked_at": null, "lease_expires_at": null,
        "last_error": null, "result": null, "progress": null, "started_at": null, "finished_at": null
    });
    for (field, value) in told.as_object().unwrap() {
        assert_eq!(&job[field], value, "{field}");
    }
    assert_eq!(server.get(reply.header("location").unwrap()).await.expect(200), job);

    let bare = server.post("/jobs", json!({"kind": "welcome", "payload": null})).await.expect(201);
    assert_eq!((&bare["queue"], &bare["priority"], &bare["max_attempts"]), (&json!("default"), &json!(0), &json!(3)));
    let past = json!({"kind": "welcome", "payload": 1, "run_at": "2001-01-01T00:00:00Z"});
    assert_eq!(server.post("/jobs", past).await.expect(201)["status"], "queued");
    assert!(server.lease(10).await.iter().any(|lease| lease["job"]["payload"] == json!(1)), "the past means now");
}

async fn the_same_key_answers_200_with_the_same_job_and_says_so(world: World) {
    let server = world.server().await;
    let first = json!({"kind": "welcome", "payload": 1, "idempotency_key": "k"});
    let job = server.post("/jobs", first).await.expect(201);
    let again = json!({"kind": "welcome", "payload": 1.0, "queue": "other", "idempotency_key": "k"});
    let reply = server.post("/jobs", again).await;
    assert_eq!(reply.expect(200), job, "unchanged, whatever the other fields say");
    assert_eq!(reply.header("idempotent-replayed"), Some("true"));
    assert_eq!(reply.header("location"), Some(format!("/jobs/{}", job["id"].as_str().unwrap()).as_str()));
}

async fn the_header_beats_the_body_and_validation_comes_before_the_key(world: World) {
    let server = world.server().await;
    let post = |key: &str, body: Value| server.call("POST", "/jobs").header("idempotency-key", key).json(&body).send();
    let body = json!({"kind": "welcome", "payload": 1, "idempotency_key": "of-the-body"});
    let job = post("of-the-header", body).await.expect(201);
    assert_eq!(job["idempotency_key"], "of-the-header");
    let same = post("of-the-header", json!({"kind": "welcome", "payload": 1})).await;
    assert_eq!(same.expect(200)["id"], job["id"]);
    post("of-the-header", json!({"kind": "welcome", "payload": 1, "priority": 1000}))
        .await
        .problem(422, "invalid_value");
    post("of-the-header", json!({"kind": "welcome"})).await.problem(400, "malformed");
    post(&"k".repeat(256), json!({"kind": "welcome", "payload": 1})).await.problem(422, "invalid_value");
    let twice = server.call("POST", "/jobs").header("idempotency-key", "a").header("idempotency-key", "b");
    twice.json(&json!({"kind": "welcome", "payload": 1})).send().await.problem(400, "malformed");
}

async fn fifty_concurrent_posts_with_one_key_make_one_job(world: World) {
    let server = world.server().await;
    let posts: Vec<_> = (0..50)
        .map(|n| {
            let call = server.call("POST", "/jobs").header("idempotency-key", "one");
            tokio::spawn(call.json(&json!({"kind": "welcome", "payload": 1, "priority": n})).send())
        })
        .collect();
    let (mut created, mut replayed, mut ids) = (0, 0, BTreeSet::new());
    for post in posts {
        let reply = post.await.unwrap();
        match reply.status {
            201 => created += 1,
            200 => replayed += 1,
            _ => panic!("{reply:?}"),
        }
        assert_eq!(reply.header("idempotent-replayed").is_some(), reply.status == 200);
        ids.insert(reply.json()["id"].to_string());
    }
    assert_eq!((created, replayed, ids.len()), (1, 49, 1));
}

async fn what_is_malformed_is_400(world: World) {
    let server = world.server().await;
    let deep = format!("{{\"kind\":\"welcome\",\"payload\":{}", "[".repeat(100_000));
    let closed = format!("{{\"kind\":\"welcome\",\"payload\":{}1{}}}", "[".repeat(120), "]".repeat(120));
    for body in [
        "",
        "{",
        "not json",
        "[]",
        "1",
        "null",
        "\"text\"",
        "{}",
        r#"{"kind":"welcome"}"#,
        r#"{"payload":1}"#,
        r#"{"kind":1,"payload":1}"#,
        r#"{"kind":"welcome","payload":1,"priority":"high"}"#,
        r#"{"kind":"welcome","payload":1,"priority":1.5}"#,
        r#"{"kind":"welcome","payload":1,"run_at":"tomorrow"}"#,
        r#"{"kind":"welcome","payload":1,"status":"succeeded"}"#,
        r#"{"kind":"welcome","payload":1,"attempts":0}"#,
        r#"{"kind":"welcome","payload":1,"kind":"welcome"}"#,
        r#"{"kind":"welcome","payload":1} trailing"#,
        r#"{"kind":"welcome","payload":1e400}"#,
        r#"{"kind":"welcome","payload":"\ud800"}"#,
        "{\"kind\":\"welcome\",\"payload\":\"\0\"}",
        &deep,
        &closed,
    ] {
        let reply = server.call("POST", "/jobs").text("application/json", body).send().await;
        reply.problem(400, "malformed");
    }
    let bytes = server.call("POST", "/jobs").text("application/json", "{\"kind\":\"\u{fffd}\"}");
    bytes.send().await.problem(400, "malformed");
}

async fn what_is_not_acceptable_is_422_with_the_reason(world: World) {
    let server = world.server().await;
    for (change, word) in [
        (json!({"priority": 101}), "priority"),
        (json!({"priority": 1e30}), "priority"),
        (json!({"max_attempts": 0}), "max_attempts"),
        (json!({"timeout_ms": 0}), "timeout_ms"),
        (json!({"delay_ms": -1}), "delay_ms"),
        (json!({"delay_ms": 1, "run_at": "2030-01-01T00:00:00Z"}), "exclude"),
        (json!({"run_at": "2099-01-01T00:00:00Z"}), "five years"),
        (json!({"queue": "No Such"}), "queue"),
        (json!({"kind": "No Such"}), "kind"),
        (json!({"idempotency_key": ""}), "idempotency_key"),
        (json!({"payload": "nul \u{0}"}), "NUL"),
    ] {
        let mut body = json!({"kind": "welcome", "payload": {}});
        body.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        let reply = server.post("/jobs", body).await;
        assert_eq!(reply.status, 422, "{change} {reply:?}");
        assert!(reply.json()["detail"].as_str().unwrap().contains(word), "{word} in {reply:?}");
    }
    let schema = json!({"schema": {"type": "object", "required": ["user"]}});
    server.put("/kinds/strict", schema).await.expect(201);
    let reply = server.post("/jobs", json!({"kind": "strict", "payload": {"usr": 1}})).await;
    assert!(reply.problem(422, "invalid_payload")["detail"].as_str().unwrap().contains("user"));
}

async fn an_unknown_kind_is_refused_with_the_closest_ones(world: World) {
    let server = world.server().await;
    let reply = server.post("/jobs", json!({"kind": "welcom", "payload": {}})).await;
    let problem = reply.problem(422, "unknown_kind");
    assert!(problem["detail"].as_str().unwrap().contains("did you mean welcome"), "{problem}");
}

async fn sizes_and_types_are_413_and_415(world: World) {
    let server = world.server().await;
    let payload = |bytes: usize| json!({"kind": "welcome", "payload": "x".repeat(bytes - 2)});
    server.post("/jobs", payload(256 * 1024)).await.expect(201);
    server.post("/jobs", payload(256 * 1024 + 1)).await.problem(413, "too_large");
    server.post("/jobs", payload(400 * 1024)).await.problem(413, "too_large");
    let body = json!({"kind": "welcome", "payload": 1}).to_string();
    for content_type in ["text/plain", "application/x-www-form-urlencoded", "application/jsonp", ""] {
        let reply = server.call("POST", "/jobs").text(content_type, &body).send().await;
        reply.problem(415, "wrong_content_type");
    }
    let with_charset = server.call("POST", "/jobs").text("Application/JSON; charset=utf-8", &body);
    with_charset.send().await.expect(201);
}

async fn a_batch_is_stored_whole_or_not_at_all(world: World) {
    let server = world.server().await;
    let job = |n: usize| json!({"kind": "welcome", "payload": n, "idempotency_key": format!("k{n}")});
    let all: Vec<_> = (0..1000).map(job).collect();
    let reply = server.post("/jobs/batch", json!({"jobs": all})).await.expect(200);
    let results = reply["results"].as_array().unwrap();
    assert_eq!(results.len(), 1000);
    assert!(results.iter().enumerate().all(|(n, one)| one["created"] == true && one["job"]["payload"] == json!(n)));
    let again = server.post("/jobs/batch", json!({"jobs": [job(3), job(2000)]})).await.expect(200);
    assert_eq!((&again["results"][0]["created"], &again["results"][1]["created"]), (&json!(false), &json!(true)));
    assert_eq!(again["results"][0]["job"]["id"], results[3]["job"]["id"]);

    let bad = json!({"jobs": [job(5000), {"kind": "nope", "payload": 1}, job(5001), {"kind": "welcome", "payload": 1, "priority": 999}]});
    let problem = server.post("/jobs/batch", bad).await.problem(422, "invalid_batch");
    let errors = problem["errors"].as_array().unwrap();
    assert_eq!(errors.iter().map(|error| error["index"].as_u64().unwrap()).collect::<Vec<_>>(), [1, 3]);
    assert!(errors[0]["detail"].as_str().unwrap().contains("nope"));
    assert_eq!(server.get("/stats").await.expect(200)["totals"]["queued"], 1001, "nothing of the bad batch is stored");

    server.post("/jobs/batch", json!({"jobs": []})).await.problem(422, "invalid_batch");
    let many: Vec<_> = (0..1001).map(job).collect();
    server.post("/jobs/batch", json!({"jobs": many})).await.problem(422, "invalid_batch");
    server.post("/jobs/batch", json!([])).await.problem(400, "malformed");
    server
        .post("/jobs/batch", json!({"jobs": [{"kind": "welcome", "payload": 1, "x": 1}]}))
        .await
        .problem(400, "malformed");
    let large = json!({"jobs": [{"kind": "welcome", "payload": "x".repeat(9 * 1024 * 1024)}]});
    server.post("/jobs/batch", large).await.problem(413, "too_large");
}

async fn ids_that_are_no_uuids_are_400_and_unknown_ones_404(world: World) {
    let server = world.server().await;
    let nobody = uuid::Uuid::now_v7();
    for (method, tail) in [("GET", ""), ("GET", "/attempts"), ("POST", "/cancel"), ("POST", "/redrive"), ("DELETE", "")]
    {
        let call = |id: &str| server.call(method, &format!("/jobs/{id}{tail}")).send();
        call("not-a-uuid").await.problem(400, "malformed");
        call("%ff").await.problem(400, "malformed");
        call(&nobody.to_string()).await.problem(404, "not_found");
    }
}

async fn pages_follow_each_other_by_cursor_and_by_offset(world: World) {
    let server = world.server().await;
    let jobs: Vec<_> = (0..5).map(|n| json!({"kind": "welcome", "payload": n, "queue": "a"})).collect();
    server.post("/jobs/batch", json!({"jobs": jobs})).await.expect(200);
    let payloads =
        |page: &Value| page.as_array().unwrap().iter().map(|job| job["payload"].as_i64().unwrap()).collect::<Vec<_>>();
    let mut path = "/jobs?limit=2&queue=a".to_owned();
    let mut seen = Vec::new();
    loop {
        let reply = server.get(&path).await;
        seen.extend(payloads(&reply.expect(200)));
        let Some(link) = reply.header("link") else { break };
        let (next, rel) = link.split_once(">; ").unwrap();
        assert_eq!(rel, "rel=\"next\"");
        path = next.trim_start_matches('<').to_owned();
        assert!(path.contains("queue=a") && path.contains("limit=2"), "{path}");
    }
    assert_eq!(seen, [4, 3, 2, 1, 0]);
    assert_eq!(payloads(&server.get("/jobs?offset=1&limit=2").await.expect(200)), [3, 2]);
    assert_eq!(payloads(&server.get("/jobs?offset=-7&limit=0").await.expect(200)), [4], "clamped");
    assert_eq!(server.get("/jobs?limit=100000000000000000000").await.expect(200).as_array().unwrap().len(), 5);
}

async fn filters_and_bad_queries(world: World) {
    let server = world.server().await;
    server.put("/kinds/other", json!({})).await.expect(201);
    server.enqueue().await;
    server.post("/jobs", json!({"kind": "other", "payload": 1, "queue": "q"})).await.expect(201);
    let count = async |query: &str| server.get(&format!("/jobs?{query}")).await.expect(200).as_array().unwrap().len();
    assert_eq!(count("").await, 2);
    assert_eq!((count("kind=other").await, count("queue=q").await, count("status=queued").await), (1, 1, 2));
    assert_eq!((count("status=succeeded").await, count("kind=other&queue=default").await), (0, 0));
    for bad in [
        "limit=ten",
        "offset=1.5",
        "limit=",
        "status=done",
        "kind=No%20Such",
        "queue=",
        "cursor=xyz",
        "unknown=1",
        "limit=1&limit=2",
        "offset=1000000",
        "cursor=00000000000000000000000000000000&offset=1",
        "status=%ff",
    ] {
        server.get(&format!("/jobs?{bad}")).await.problem(400, "malformed");
    }
}

async fn cancel_answers_200_202_404_and_409(world: World) {
    let server = world.server().await;
    let waiting = server.enqueue().await;
    let cancel = async |id: &str| server.call("POST", &format!("/jobs/{id}/cancel")).send().await;
    assert_eq!(cancel(&waiting).await.expect(200), json!({"status": "cancelled"}));
    cancel(&waiting).await.problem(409, "already_finished");
    let running = server.enqueue().await;
    let leases = server.lease(1).await;
    assert_eq!(cancel(&running).await.expect(202), json!({"status": "pending"}));
    assert_eq!(cancel(&running).await.expect(202), json!({"status": "pending"}));
    assert_eq!(server.settle(&leases[0], json!({"outcome": "failed", "error": "e"})).await, "recorded");
    assert_eq!(server.get(&format!("/jobs/{running}")).await.expect(200)["status"], "cancelled");
    cancel(&running).await.problem(409, "already_finished");
}

async fn a_cancel_raced_against_the_worker_always_ends_the_job(world: World) {
    let server = world.server().await;
    for round in 0..20 {
        let id = server.enqueue().await;
        let lease = server.lease(1).await.remove(0);
        let settle = server.settle(&lease, json!({"outcome": if round % 2 == 0 { "succeeded" } else { "failed" }}));
        let cancel = server.call("POST", &format!("/jobs/{id}/cancel")).send();
        let (verdict, cancelled) = tokio::join!(settle, cancel);
        assert_eq!(verdict, "recorded");
        let status = server.get(&format!("/jobs/{id}")).await.expect(200)["status"].as_str().unwrap().to_owned();
        match (cancelled.status, status.as_str(), round % 2 == 0) {
            (409 | 202, "succeeded", true) => {}
            (200 | 202, "cancelled", false) => {}
            other => panic!("{other:?}"),
        }
    }
}

async fn redrive_and_delete_mind_the_status(world: World) {
    let server = world.server().await;
    let id = server.enqueue().await;
    let (job, redrive) = (format!("/jobs/{id}"), format!("/jobs/{id}/redrive"));
    server.call("POST", &redrive).send().await.problem(409, "not_dead");
    server.delete(&job).await.problem(409, "not_finished");
    let lease = server.lease(1).await.remove(0);
    let outcome = json!({"outcome": "failed", "error": "hopeless", "permanent": true});
    assert_eq!(server.settle(&lease, outcome).await, "recorded");
    assert_eq!(server.get(&job).await.expect(200)["status"], "failed_permanent");
    let again = server.call("POST", &redrive).send().await.expect(200);
    assert_eq!(
        (&again["status"], &again["attempts"], &again["last_error"]),
        (&json!("queued"), &json!(0), &json!("hopeless"))
    );
    server.call("POST", &format!("{job}/cancel")).send().await.expect(200);
    let gone = server.delete(&job).await;
    assert_eq!((gone.expect(204), gone.body.as_str()), (Value::Null, ""));
    server.get(&job).await.problem(404, "not_found");
}

async fn attempts_are_told_oldest_first(world: World) {
    let server = world.server().await;
    let id = server.enqueue().await;
    let first = server.lease(1).await.remove(0);
    let outcome = json!({"outcome": "failed", "error": "smtp 451", "retry_after_ms": 0});
    assert_eq!(server.settle(&first, outcome).await, "recorded");
    let second = server.lease(1).await.remove(0);
    assert_eq!(second["attempt"], 2);
    let attempts = server.get(&format!("/jobs/{id}/attempts")).await.expect(200);
    let told: Vec<_> =
        attempts.as_array().unwrap().iter().map(|a| (&a["attempt"], &a["outcome"], &a["error"])).collect();
    assert_eq!(told[0], (&json!(1), &json!("failed"), &json!("smtp 451")));
    assert_eq!(told[1], (&json!(2), &Value::Null, &Value::Null));
    assert!(
        attempts[0]["started_at"].is_string()
            && attempts[0]["ended_at"].is_string()
            && attempts[1]["ended_at"].is_null()
    );
    assert_eq!(attempts[0]["worker"], "w");
}

async fn a_nul_in_a_batch_names_its_item(world: World) {
    let server = world.server().await;
    let job = |payload: &str| json!({"kind": "welcome", "payload": [payload]});
    let keyed = json!({"kind": "welcome", "payload": 1, "idempotency_key": "k\u{0}"});
    let jobs = json!({"jobs": [job("fine"), job("nul \u{0}"), job("\\u0000"), keyed]});
    let problem = server.post("/jobs/batch", jobs).await.problem(422, "invalid_batch");
    let at_fault: Vec<_> = problem["errors"].as_array().unwrap().iter().map(|error| error["index"].clone()).collect();
    assert_eq!(at_fault, [1, 3]);
    assert_eq!(server.get("/stats").await.expect(200)["totals"]["queued"], 0);
}

async fn a_key_that_is_there_twice_is_400_and_named_wherever_it_is(world: World) {
    let server = world.server().await;
    for (method, path, body) in [
        ("POST", "/jobs", r#"{"kind":"welcome","payload":{"a":[{"amount":1,"amount":1000}]}}"#),
        ("POST", "/jobs", r#"{"amount":1,"kind":"welcome","payload":1,"amount":2}"#),
        ("POST", "/jobs/batch", r#"{"jobs":[{"kind":"welcome","payload":{"amount":1,"b":2,"\u0061mount":3}}]}"#),
        ("PUT", "/kinds/other", r#"{"schema":{"properties":{"amount":{},"amount":{}}}}"#),
        ("POST", "/leases/settle", r#"{"worker":"w","outcomes":[{"amount":1,"amount":1}]}"#),
    ] {
        let reply = server.call(method, path).text("application/json", body).send().await;
        let problem = reply.problem(400, "malformed");
        assert!(problem["detail"].as_str().unwrap().contains("\"amount\" is there twice"), "{problem}");
    }
    assert_eq!(server.get("/jobs").await.expect(200), json!([]));
}

async fn a_body_that_is_compressed_is_415(world: World) {
    let server = world.server().await;
    let job = json!({"kind": "welcome", "payload": 1});
    for encoding in ["gzip", "br", "deflate", "identity, gzip", ""] {
        let call = server.call("POST", "/jobs").header("content-encoding", encoding).json(&job);
        call.send().await.problem(415, "wrong_content_encoding");
    }
    let twice = server.call("POST", "/jobs").header("content-encoding", "identity").header("content-encoding", "gzip");
    twice.json(&job).send().await.problem(415, "wrong_content_encoding");
    server.call("POST", "/jobs").header("content-encoding", "Identity").json(&job).send().await.expect(201);
}

async fn a_long_page_is_whole_and_in_order_and_the_next_one_goes_on_after_it(world: World) {
    let server = world.server().await;
    let jobs: Vec<_> = (0..100).map(|n| json!({"kind": "welcome", "payload": n})).collect();
    server.post("/jobs/batch", json!({"jobs": jobs})).await.expect(200);
    let payloads = |page: &Value| -> Vec<i64> {
        page.as_array().unwrap().iter().map(|job| job["payload"].as_i64().unwrap()).collect()
    };
    let all = payloads(&server.get("/jobs?limit=200").await.expect(200));
    let newest_first: Vec<i64> = (0..100).rev().collect();
    assert_eq!(all.iter().copied().collect::<BTreeSet<_>>().len(), 100);
    assert!(all == newest_first, "{all:?}");
    for (first, offset) in
        [("/jobs?limit=70&offset=7", 7), ("/jobs?limit=16&offset=0", 0), ("/jobs?limit=33&offset=50", 50)]
    {
        let (mut path, mut seen) = (first.to_owned(), Vec::new());
        loop {
            let reply = server.get(&path).await;
            seen.extend(payloads(&reply.expect(200)));
            let Some(link) = reply.header("link") else { break };
            path = link.trim_start_matches('<').split('>').next().unwrap().to_owned();
        }
        assert_eq!(seen, newest_first[offset..], "{first}");
    }
}
