//! The worker protocol: leases, heartbeats, settles, and the long poll.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::client::read_reply;
use crate::faulty::Fault;
use crate::on_every_store;
use crate::operators::faulty_server;
use crate::world::World;

on_every_store!(
    a_lease_has_the_job_its_token_and_its_attempt,
    a_worker_gets_only_what_it_asks_for,
    lease_requests_out_of_range_are_422_and_malformed_ones_400,
    every_outcome_leads_where_the_lifecycle_says,
    a_settle_sent_twice_is_recorded_twice_and_a_stale_one_is_lost,
    heartbeats_answer_ok_cancel_and_lost_and_keep_progress,
    a_bad_outcome_is_named_and_nothing_is_settled,
    a_result_over_the_limit_is_a_failure_that_says_so,
    a_long_poll_is_answered_when_work_arrives,
    a_long_poll_ends_empty_after_its_wait,
    a_caller_that_hangs_up_while_polling_takes_no_job_along,
    jobs_claimed_for_a_caller_that_has_hung_up_go_back_at_once,
    every_job_reaches_one_of_many_polls_that_wait_for_it,
    one_wake_makes_one_of_many_polls_look,
    an_answer_with_large_jobs_stops_growing_and_the_rest_is_there_for_the_next,
    a_lease_without_a_length_lasts_as_long_as_the_server_is_set_to,
);

async fn a_lease_has_the_job_its_token_and_its_attempt(world: World) {
    let server = world.server().await;
    assert_eq!(server.post("/leases", json!({"worker": "w"})).await.expect(200), json!({"leases": []}));
    let id = server.enqueue().await;
    let request =
        json!({"worker": "host-1", "queues": ["default"], "kinds": ["welcome"], "max": 10, "lease_ms": 45000});
    let answer = server.post("/leases", request).await.expect(200);
    let lease = &answer["leases"][0];
    assert_eq!(answer["leases"].as_array().unwrap().len(), 1);
    assert_eq!((&lease["lease_ms"], &lease["attempt"]), (&json!(45000), &json!(1)));
    assert!(lease["lease_token"].as_str().unwrap().len() >= 32);
    let job = &lease["job"];
    assert_eq!((&job["id"], &job["status"], &job["locked_by"]), (&json!(id), &json!("running"), &json!("host-1")));
    assert!(job["lease_expires_at"].is_string() && job["locked_at"].is_string() && job["started_at"].is_string());
    assert_eq!(&server.get(&format!("/jobs/{id}")).await.expect(200), job);
}

async fn a_worker_gets_only_what_it_asks_for(world: World) {
    let server = world.server().await;
    server.put("/kinds/other", json!({})).await.expect(201);
    for (kind, queue) in [("welcome", "a"), ("welcome", "b"), ("other", "a"), ("other", "b")] {
        server.post("/jobs", json!({"kind": kind, "payload": 1, "queue": queue})).await.expect(201);
    }
    let leased = async |request: Value| {
        let answer = server.post("/leases", request).await.expect(200);
        let name = |lease: &Value| {
            format!("{}@{}", lease["job"]["kind"].as_str().unwrap(), lease["job"]["queue"].as_str().unwrap())
        };
        answer["leases"].as_array().unwrap().iter().map(name).collect::<Vec<_>>()
    };
    server.call("POST", "/queues/a/pause").send().await.expect(200);
    assert!(leased(json!({"worker": "w", "queues": ["a"], "max": 9})).await.is_empty(), "paused");
    assert_eq!(leased(json!({"worker": "w", "kinds": ["other"], "max": 9})).await, ["other@b"]);
    server.call("POST", "/queues/a/resume").send().await.expect(200);
    assert_eq!(leased(json!({"worker": "w", "queues": ["a"], "kinds": ["other"], "max": 9})).await, ["other@a"]);
    assert_eq!(leased(json!({"worker": "w"})).await.len(), 1, "one unless more is asked for");
    assert_eq!(leased(json!({"worker": "w", "max": 9})).await.len(), 1);
}

async fn lease_requests_out_of_range_are_422_and_malformed_ones_400(world: World) {
    let server = world.server().await;
    for (field, value) in [
        ("worker", json!("Not A Name")),
        ("max", json!(0)),
        ("max", json!(1001)),
        ("lease_ms", json!(999)),
        ("lease_ms", json!(3_600_001)),
        ("wait_ms", json!(30_001)),
        ("wait_ms", json!(-1)),
        ("queues", json!([])),
        ("kinds", json!(["No"])),
        ("max", json!(1e300)),
    ] {
        let mut request = json!({"worker": "w"});
        request[field] = value;
        server.post("/leases", request).await.problem(422, "invalid_value");
    }
    for request in
        [json!({}), json!({"worker": 1}), json!({"worker": "w", "nope": 1}), json!({"worker": "w", "queues": "a"})]
    {
        server.post("/leases", request).await.problem(400, "malformed");
    }
    let beats: Vec<_> = (0..1001).map(|_| json!({"job_id": uuid::Uuid::nil(), "lease_token": "x"})).collect();
    server.post("/leases/heartbeat", json!({"worker": "w", "leases": beats})).await.problem(422, "invalid_value");
    let bad_id = json!({"worker": "w", "leases": [{"job_id": "x", "lease_token": "x"}]});
    server.post("/leases/heartbeat", bad_id).await.problem(400, "malformed");
    let beat =
        |percent: i64| json!({"job_id": uuid::Uuid::nil(), "lease_token": "x", "progress": {"percent": percent}});
    let percent = json!({"worker": "w", "leases": [beat(100), beat(101)]});
    let problem = server.post("/leases/heartbeat", percent).await.problem(422, "invalid_batch");
    assert_eq!(problem["errors"][0]["index"], 1);
    server
        .post("/leases/heartbeat", json!({"worker": "w", "leases": [], "lease_ms": 1}))
        .await
        .problem(422, "invalid_value");
    let outcome =
        json!({"worker": "w", "outcomes": [{"job_id": uuid::Uuid::nil(), "lease_token": "x", "outcome": "done"}]});
    server.post("/leases/settle", outcome).await.problem(400, "malformed");
    assert_eq!(
        server.post("/leases/settle", json!({"worker": "w", "outcomes": []})).await.expect(200),
        json!({"outcomes": []})
    );
}

async fn every_outcome_leads_where_the_lifecycle_says(world: World) {
    let server = world.server().await;
    for (outcome, status) in [
        (json!({"outcome": "succeeded", "result": {"n": 1}}), "succeeded"),
        (json!({"outcome": "succeeded"}), "succeeded"),
        (json!({"outcome": "failed", "error": "smtp 451", "permanent": false, "retry_after_ms": 60000}), "retrying"),
        (json!({"outcome": "failed", "error": "gone", "permanent": true}), "failed_permanent"),
        (json!({"outcome": "cancelled"}), "cancelled"),
        (json!({"outcome": "released"}), "queued"),
        (json!({"outcome": "snoozed", "delay_ms": 60000}), "retrying"),
    ] {
        let id = server.post("/jobs", json!({"kind": "welcome", "payload": 1, "priority": 9})).await.expect(201)["id"]
            .clone();
        let lease = server.lease(1).await.remove(0);
        assert_eq!(lease["job"]["id"], id);
        assert_eq!(server.settle(&lease, outcome.clone()).await, "recorded");
        let job = server.get(&format!("/jobs/{}", id.as_str().unwrap())).await.expect(200);
        assert_eq!(job["status"], status, "{outcome}");
        assert_eq!(job["result"], outcome["result"]);
        assert_eq!(job["last_error"], outcome["error"]);
        assert_eq!(job["locked_by"], Value::Null);
        server.call("POST", &format!("/jobs/{}/cancel", id.as_str().unwrap())).send().await;
    }
}

async fn a_settle_sent_twice_is_recorded_twice_and_a_stale_one_is_lost(world: World) {
    let server = world.server().await;
    let id = server.enqueue().await;
    let first = server.lease(1).await.remove(0);
    assert_eq!(server.settle(&first, json!({"outcome": "released"})).await, "recorded");
    let second = server.lease(1).await.remove(0);
    assert_ne!(first["lease_token"], second["lease_token"]);
    assert_eq!(server.settle(&first, json!({"outcome": "succeeded"})).await, "lost", "the token is stale");
    assert_eq!(server.settle(&first, json!({"outcome": "released"})).await, "recorded", "said again");
    assert_eq!(server.settle(&second, json!({"outcome": "succeeded"})).await, "recorded");
    assert_eq!(server.settle(&second, json!({"outcome": "succeeded"})).await, "recorded", "said again");
    assert_eq!(server.settle(&second, json!({"outcome": "failed", "error": "e"})).await, "lost");
    for token in ["", "garbage", "00000000-0000-0000-0000-000000000000"] {
        let mut forged = second.clone();
        forged["lease_token"] = json!(token);
        assert_eq!(server.settle(&forged, json!({"outcome": "succeeded"})).await, "lost", "{token}");
    }
    assert_eq!(server.get(&format!("/jobs/{id}")).await.expect(200)["status"], "succeeded");
}

async fn heartbeats_answer_ok_cancel_and_lost_and_keep_progress(world: World) {
    let server = world.server().await;
    for _ in 0..3 {
        server.enqueue().await;
    }
    let leases = server.lease(3).await;
    let id = |n: usize| leases[n]["job"]["id"].as_str().unwrap().to_owned();
    server.call("POST", &format!("/jobs/{}/cancel", id(1))).send().await.expect(202);
    assert_eq!(server.settle(&leases[2], json!({"outcome": "succeeded"})).await, "recorded");
    let beat = |n: usize| json!({"job_id": id(n), "lease_token": leases[n]["lease_token"]});
    let mut first = beat(0);
    first["progress"] = json!({"percent": 40, "message": "half way"});
    let forged = json!({"job_id": id(0), "lease_token": "forged"});
    let request = json!({"worker": "w", "leases": [forged, first, beat(1), beat(2)], "lease_ms": 600_000});
    let answer = server.post("/leases/heartbeat", request).await.expect(200);
    let verdicts: Vec<_> = answer["leases"].as_array().unwrap().iter().map(|v| v["status"].as_str().unwrap()).collect();
    assert_eq!((answer["worker"].as_str(), verdicts), (Some("run"), vec!["lost", "ok", "cancel", "lost"]));
    assert_eq!(answer["leases"][2]["job_id"], json!(id(1)));
    let job = server.get(&format!("/jobs/{}", id(0))).await.expect(200);
    assert_eq!(job["progress"], json!({"percent": 40, "message": "half way"}));
    assert!(job["lease_expires_at"].as_str() > leases[0]["job"]["lease_expires_at"].as_str());
}

async fn a_bad_outcome_is_named_and_nothing_is_settled(world: World) {
    let server = world.server().await;
    let id = server.enqueue().await;
    let lease = server.lease(1).await.remove(0);
    let key = |outcome: Value| {
        let mut outcome = outcome;
        outcome["job_id"] = json!(id);
        outcome["lease_token"] = lease["lease_token"].clone();
        outcome
    };
    let good = key(json!({"outcome": "succeeded"}));
    for bad in [
        json!({"outcome": "snoozed"}),
        json!({"outcome": "snoozed", "delay_ms": -1}),
        json!({"outcome": "succeeded", "error": "but"}),
        json!({"outcome": "failed", "error": "e", "retry_after_ms": 1e18}),
        json!({"outcome": "cancelled", "delay_ms": 1}),
    ] {
        let request = json!({"worker": "w", "outcomes": [good, key(bad)]});
        let problem = server.post("/leases/settle", request).await.problem(422, "invalid_batch");
        assert_eq!(problem["errors"][0]["index"], 1);
    }
    assert_eq!(server.get(&format!("/jobs/{id}")).await.expect(200)["status"], "running");
}

async fn a_result_over_the_limit_is_a_failure_that_says_so(world: World) {
    let server = world.server().await;
    let id = server.enqueue().await;
    let lease = server.lease(1).await.remove(0);
    let outcome = json!({"outcome": "succeeded", "result": "x".repeat(256 * 1024)});
    assert_eq!(server.settle(&lease, outcome).await, "recorded");
    let job = server.get(&format!("/jobs/{id}")).await.expect(200);
    assert_eq!(job["status"], "failed_permanent");
    assert!(job["last_error"].as_str().unwrap().contains("262146 bytes"));
}

async fn a_long_poll_is_answered_when_work_arrives(world: World) {
    let server = world.server().await;
    let mut worker = TcpStream::connect(server.address).await.unwrap();
    worker.set_nodelay(true).unwrap();
    let poll = json!({"worker": "w", "max": 1, "wait_ms": 30000});
    let poll = server.call("POST", "/leases").replace_header("connection", "keep-alive").json(&poll).bytes();
    let mut waits = Vec::new();
    for _ in 0..100 {
        worker.write_all(&poll).await.unwrap();
        // Long enough to be waiting; if it is not yet, the round is only easier.
        tokio::time::sleep(Duration::from_millis(5)).await;
        let started = Instant::now();
        let (id, reply) = tokio::join!(server.enqueue(), read_reply(&mut worker));
        waits.push(started.elapsed());
        let lease = reply.expect(200)["leases"][0].clone();
        assert_eq!(lease["job"]["id"], json!(id));
        assert_eq!(server.settle(&lease, json!({"outcome": "succeeded"})).await, "recorded");
    }
    waits.sort_unstable();
    println!("long poll, enqueue to lease: p50 {:?}, p99 {:?}", waits[50], waits[98]);
    // Nobody who was not woken looks again before two seconds are over.
    assert!(waits[50] < Duration::from_secs(1), "polls instead of being woken: {:?}", waits[50]);
}

async fn a_long_poll_ends_empty_after_its_wait(world: World) {
    let server = world.server().await;
    let started = Instant::now();
    let answer = server.post("/leases", json!({"worker": "w", "wait_ms": 300})).await.expect(200);
    assert_eq!(answer, json!({"leases": []}));
    assert!(started.elapsed() >= Duration::from_millis(300));
    // A job whose time comes while somebody waits is found without a notification.
    server.post("/jobs", json!({"kind": "welcome", "payload": 1, "delay_ms": 300})).await.expect(201);
    let answer = server.post("/leases", json!({"worker": "w", "wait_ms": 20000})).await.expect(200);
    assert_eq!(answer["leases"].as_array().unwrap().len(), 1);
}

async fn a_caller_that_hangs_up_while_polling_takes_no_job_along(world: World) {
    let server = world.server().await;
    for _ in 0..10 {
        let mut worker = TcpStream::connect(server.address).await.unwrap();
        let poll = server.call("POST", "/leases").json(&json!({"worker": "gone", "wait_ms": 30000}));
        worker.write_all(&poll.bytes()).await.unwrap();
        drop(worker);
    }
    let id = server.enqueue().await;
    // Whoever took it for a dead connection gives it back; a live worker gets it well before a lease could expire.
    let answer = server.post("/leases", json!({"worker": "alive", "wait_ms": 15000})).await.expect(200);
    assert_eq!(answer["leases"][0]["job"]["id"], json!(id));
}

async fn jobs_claimed_for_a_caller_that_has_hung_up_go_back_at_once(world: World) {
    let (server, store) = faulty_server(&world, |settings| settings).await;
    let id = server.enqueue().await;
    store.set(Fault::Held);
    let before = store.calls();
    let mut worker = TcpStream::connect(server.address).await.unwrap();
    let poll = server.call("POST", "/leases").json(&json!({"worker": "gone"}));
    worker.write_all(&poll.bytes()).await.unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while store.calls() == before {
        assert!(Instant::now() < deadline, "it never claims");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    drop(worker);
    // By the time that these have been answered, by the same threads, it is noticed.
    for _ in 0..30 {
        server.get("/livez").await.expect(200);
    }
    store.set(Fault::None);
    // Well before the lease could expire, and as if nobody had taken it.
    let answer = server.post("/leases", json!({"worker": "alive", "wait_ms": 15000})).await.expect(200);
    let lease = &answer["leases"][0];
    assert_eq!((&lease["job"]["id"], &lease["attempt"]), (&json!(id), &json!(1)));
}

async fn every_job_reaches_one_of_many_polls_that_wait_for_it(world: World) {
    let server = world.server().await;
    let polls: Vec<_> = (0..40)
        .map(|n| {
            // Two groups that want different things must not take each other's empty looks for their own.
            let queue = if n % 2 == 0 { "a" } else { "b" };
            let poll = json!({"worker": "w", "queues": [queue], "wait_ms": 30000});
            tokio::spawn(server.call("POST", "/leases").json(&poll).send())
        })
        .collect();
    for n in 0..40 {
        let queue = if n % 2 == 0 { "a" } else { "b" };
        server.post("/jobs", json!({"kind": "welcome", "payload": n, "queue": queue})).await.expect(201);
    }
    let mut seen = std::collections::HashSet::new();
    for poll in polls {
        let leases = poll.await.unwrap().expect(200);
        assert!(seen.insert(leases["leases"][0]["job"]["id"].as_str().unwrap().to_owned()), "leased twice");
    }
    assert_eq!(seen.len(), 40);
}

async fn an_answer_with_large_jobs_stops_growing_and_the_rest_is_there_for_the_next(world: World) {
    let server = world.server().await;
    let large = "x".repeat(100 * 1024);
    let jobs: Vec<_> = (0..50).map(|_| json!({"kind": "welcome", "payload": large})).collect();
    for _ in 0..5 {
        server.post("/jobs/batch", json!({"jobs": jobs})).await.expect(200);
    }
    let mut lens = Vec::new();
    for _ in 0..4 {
        lens.push(server.lease(1000).await.len());
    }
    // 81 such payloads are 8 MiB.
    assert_eq!(lens, [81, 81, 81, 7]);
    let small: Vec<_> = (0..250).map(|n| json!({"kind": "welcome", "payload": n})).collect();
    server.post("/jobs/batch", json!({"jobs": small})).await.expect(200);
    assert_eq!(server.lease(1000).await.len(), 250, "small ones come in one answer");
}

async fn one_wake_makes_one_of_many_polls_look(world: World) {
    let (server, store) = faulty_server(&world, |settings| settings.admin_token("admin".to_owned())).await;
    let before = store.calls();
    let poll = json!({"worker": "w", "wait_ms": 30000});
    let poll = server.call("POST", "/leases").token("admin").json(&poll);
    let polls: Vec<_> = (0..30).map(|_| tokio::spawn(poll.clone().send())).collect();
    let reached = async |calls: usize| {
        let deadline = Instant::now() + Duration::from_secs(60);
        while store.calls() < calls {
            assert!(Instant::now() < deadline, "{} calls instead of {calls}", store.calls());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    reached(before + 30).await;
    store.set(Fault::Held);
    let before = store.calls();
    server.queue.wake().wake();
    reached(before + 1).await;
    // If all of them looked at once, they would be seen by the time that whoever came later has been answered, by the
    // same threads.
    for _ in 0..30 {
        server.get("/livez").await.expect(200);
    }
    assert!(store.calls() <= before + 3, "{} looks at one time", store.calls() - before);
    store.set(Fault::None);
    drop(server.stop());
    for poll in polls {
        poll.await.unwrap().expect(200);
    }
}

async fn a_lease_without_a_length_lasts_as_long_as_the_server_is_set_to(world: World) {
    let server = world.server_with(|settings| settings.lease(std::time::Duration::from_secs(77))).await;
    server.enqueue().await;
    server.enqueue().await;
    assert_eq!(server.lease(1).await[0]["lease_ms"], 77_000);
    let said = server.post("/leases", json!({"worker": "w", "lease_ms": 5000})).await.expect(200);
    assert_eq!(said["leases"][0]["lease_ms"], 5_000);
}
