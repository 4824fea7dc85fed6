//! What jobs say of themselves over HTTP: their group and cost, a deadline to start by, a unique key.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::limits::{enqueue, ids, job, lease_until, succeed};
use crate::on_every_store;
use crate::world::World;

on_every_store!(
    options_of_jobs_are_stored_and_shown_and_null_unless_used,
    options_that_contradict_each_other_are_422,
    a_unique_job_that_waits_is_the_answer_and_another_is_not_stored,
    a_unique_job_is_free_again_once_started_or_finished,
    a_unique_job_can_be_replaced_while_it_waits,
    a_throttled_job_is_the_answer_for_its_window,
    a_caller_that_may_not_read_learns_little_of_a_unique_job,
    a_job_that_has_not_started_by_its_deadline_is_cancelled,
);

async fn options_of_jobs_are_stored_and_shown_and_null_unless_used(world: World) {
    let server = world.server().await;
    let plain = server.post("/jobs", job(json!({}))).await.expect(201);
    for field in ["group_key", "cost", "start_by", "unique"] {
        assert_eq!(plain.get(field), Some(&Value::Null), "{field}");
    }
    let fields = json!({"group_key": "Acme / é", "cost": 3, "start_by": "2029-05-06T07:08:09Z",
        "unique": {"key": "report-7", "while": "unfinished", "for_ms": 60000}});
    let stored = server.post("/jobs", job(fields)).await.expect(201);
    assert_eq!((&stored["group_key"], &stored["cost"]), (&json!("Acme / é"), &json!(3)));
    assert_eq!(stored["start_by"], "2029-05-06T07:08:09Z");
    let unique =
        json!({"key": "report-7", "while": "unfinished", "on_conflict": "keep", "for_ms": 60000, "max_wait_ms": null});
    assert_eq!(stored["unique"], unique);
    let id = stored["id"].as_str().unwrap();
    assert_eq!(server.get(&format!("/jobs/{id}")).await.expect(200), stored);
    let listed = server.get("/jobs").await.expect(200);
    assert!(listed.as_array().unwrap().contains(&stored), "{listed}");
    let batch = json!({"jobs": [job(json!({"group_key": "b", "start_within_ms": 60000})), job(json!({"unique": {"key": "x"}}))]});
    let batch = server.post("/jobs/batch", batch).await.expect(200);
    assert_eq!(batch["results"][0]["job"]["group_key"], "b");
    assert!(batch["results"][0]["job"]["start_by"].is_string());
    assert_eq!(batch["results"][1]["job"]["unique"]["while"], "waiting");
    let leased = lease_until(&server, 4).await;
    assert!(leased.iter().any(|lease| lease["job"]["group_key"] == "Acme / é"), "workers are told");
}

async fn options_that_contradict_each_other_are_422(world: World) {
    let server = world.server().await;
    for (fields, said) in [
        (json!({"cost": 0}), "cost 0 is out of range: use 1 to 1000000"),
        (json!({"group_key": ""}), "group_key is empty"),
        (json!({"group_key": "x".repeat(256)}), "group_key is longer"),
        (json!({"start_within_ms": 0}), "start_within_ms 0"),
        (json!({"start_within_ms": 5, "start_by": "2029-05-06T07:08:09Z"}), "exclude each other"),
        (json!({"start_within_ms": 5, "delay_ms": 5}), "delay_ms"),
        (json!({"unique": {"key": ""}}), "unique.key is empty"),
        (json!({"unique": {"key": "k", "max_wait_ms": 5}}), "replace"),
        (json!({"unique": {"key": "k", "on_conflict": "replace", "for_ms": 5}}), "keep"),
    ] {
        let problem = server.post("/jobs", job(fields.clone())).await.problem(422, "invalid_value");
        assert!(problem["detail"].as_str().unwrap().contains(said), "{fields}: {problem}");
        let problem = server.post("/jobs/batch", json!({"jobs": [job(json!({})), job(fields)]})).await;
        let problem = problem.problem(422, "invalid_batch");
        assert_eq!(problem["errors"][0]["index"], 1);
    }
    assert_eq!(server.get("/jobs").await.expect(200), json!([]));
    let nul = server.post("/jobs", job(json!({"group_key": "a\0b"}))).await;
    assert_eq!(nul.status, 422, "{nul:?}");
}

async fn a_unique_job_that_waits_is_the_answer_and_another_is_not_stored(world: World) {
    let server = world.server().await;
    let unique = |n: u64| json!({"payload": n, "unique": {"key": "report-7"}});
    let first = server.post("/jobs", job(unique(1))).await.expect(201);
    let again = server.post("/jobs", job(unique(2))).await;
    assert_eq!(again.expect(200), first, "the payload of the second does not count");
    assert_eq!(again.header("idempotent-replayed"), None, "it was the unique key");
    assert_eq!(again.header("location"), Some(&*format!("/jobs/{}", first["id"].as_str().unwrap())));
    let batch = json!({"jobs": [job(unique(3)), job(json!({"unique": {"key": "other"}}))]});
    let batch = server.post("/jobs/batch", batch).await.expect(200);
    let results = batch["results"].as_array().unwrap();
    assert_eq!((&results[0]["created"], &results[0]["job"]), (&json!(false), &first));
    assert_eq!((results[0].get("replaced"), &results[1]["created"]), (None, &json!(true)));
    // Another kind may have the same key.
    server.put("/kinds/other", json!({})).await.expect(201);
    let other = json!({"kind": "other", "payload": 1, "unique": {"key": "report-7"}});
    server.post("/jobs", other).await.expect(201);
    assert_eq!(server.get("/jobs").await.expect(200).as_array().unwrap().len(), 3);
}

async fn a_unique_job_is_free_again_once_started_or_finished(world: World) {
    let server = world.server().await;
    let waiting = || job(json!({"unique": {"key": "w"}}));
    let unfinished = || job(json!({"unique": {"key": "u", "while": "unfinished"}}));
    server.post("/jobs", waiting()).await.expect(201);
    let running = lease_until(&server, 1).await;
    server.post("/jobs", waiting()).await.expect(201);
    server.post("/jobs", waiting()).await.expect(200);
    let second = lease_until(&server, 1).await;
    server.post("/jobs", unfinished()).await.expect(201);
    let third = lease_until(&server, 1).await;
    server.post("/jobs", unfinished()).await.expect(200);
    succeed(&server, &third[0]).await;
    server.post("/jobs", unfinished()).await.expect(201);
    succeed(&server, &running[0]).await;
    succeed(&server, &second[0]).await;
}

async fn a_unique_job_can_be_replaced_while_it_waits(world: World) {
    let server = world.server().await;
    let unique = json!({"key": "report-7", "on_conflict": "replace", "max_wait_ms": 3_600_000});
    let debounced =
        |n: u64, priority: i64| job(json!({"payload": n, "priority": priority, "delay_ms": 600_000, "unique": unique}));
    let first = server.post("/jobs", debounced(1, 0)).await.expect(201);
    let second = server.post("/jobs", debounced(2, 5)).await.expect(200);
    assert_eq!((&second["replaced"], &second["id"]), (&json!(true), &first["id"]));
    assert_eq!((&second["payload"], &second["priority"]), (&json!(2), &json!(5)));
    let batch = server.post("/jobs/batch", json!({"jobs": [debounced(3, 0)]})).await.expect(200);
    let result = &batch["results"][0];
    assert_eq!((&result["created"], &result["replaced"]), (&json!(false), &json!(true)));
    assert_eq!(result["job"]["payload"], 3);
    let time = |job: &Value| job["run_at"].as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
    assert!(time(&second) >= time(&first), "put off");
    let id = first["id"].as_str().unwrap();
    assert_eq!(server.get(&format!("/jobs/{id}")).await.expect(200)["payload"], 3);
    assert_eq!(server.get("/jobs").await.expect(200).as_array().unwrap().len(), 1);
}

async fn a_throttled_job_is_the_answer_for_its_window(world: World) {
    let server = world.server().await;
    let throttled = || job(json!({"unique": {"key": "hourly", "for_ms": 3_600_000}}));
    let first = server.post("/jobs", throttled()).await.expect(201);
    let lease = lease_until(&server, 1).await;
    succeed(&server, &lease[0]).await;
    let again = server.post("/jobs", throttled()).await.expect(200);
    assert_eq!((&again["id"], &again["status"]), (&first["id"], &json!("succeeded")), "whatever became of the first");
    let soon = || job(json!({"unique": {"key": "soon", "for_ms": 1}}));
    server.post("/jobs", soon()).await.expect(201);
    let deadline = Instant::now() + Duration::from_secs(30);
    while server.post("/jobs", soon()).await.status != 201 {
        assert!(Instant::now() < deadline, "the window is over");
    }
}

async fn a_caller_that_may_not_read_learns_little_of_a_unique_job(world: World) {
    let server = world.server_with(|settings| settings.admin_token("the-operators-own".to_owned())).await;
    let body = json!({"name": "producer", "scopes": ["enqueue"]});
    let made = server.call("POST", "/tokens").token("the-operators-own").json(&body).send().await.expect(201);
    let token = made["token"].as_str().unwrap();
    let send = |n: u64| {
        let unique = json!({"key": "k", "on_conflict": "replace"});
        server
            .call("POST", "/jobs")
            .token(token)
            .json(&job(json!({"payload": n, "delay_ms": 600_000, "unique": unique})))
    };
    let first = send(1).send().await.expect(201);
    let known = json!({"id": first["id"], "status": "queued", "created": false, "replaced": true});
    assert_eq!(send(2).send().await.expect(200), known);
}

async fn a_job_that_has_not_started_by_its_deadline_is_cancelled(world: World) {
    let server = world.server().await;
    let late = enqueue(&server, json!({"start_by": "2020-01-01T00:00:00Z"})).await;
    let fine = enqueue(&server, json!({"start_within_ms": 3_600_000})).await;
    assert_eq!(ids(&lease_until(&server, 1).await), [&*fine]);
    let job = server.get(&format!("/jobs/{late}")).await.expect(200);
    assert_eq!((&job["status"], &job["started_at"]), (&json!("cancelled"), &json!(null)));
    let said = job["last_error"].as_str().unwrap();
    assert!(said.starts_with("expired: not started by 2020-01-01T00:00:00"), "{said}");
    let redriven = server.call("POST", &format!("/jobs/{late}/redrive")).send().await.expect(200);
    assert_eq!(redriven["start_by"], json!(null), "a redrive clears it");
}
