//! Limits over HTTP: declared, looked at, refused, and in force for workers over HTTP.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::on_every_store;
use crate::world::{Server, World};

on_every_store!(
    limits_of_a_queue_are_set_read_changed_and_taken_away,
    a_queue_that_nobody_knows_is_404_until_it_has_settings,
    values_out_of_range_are_422_with_the_range_and_the_way_out,
    what_is_no_number_or_no_word_is_400,
    groups_are_any_text_and_are_put_back,
    limits_come_in_pages_by_group,
    kinds_have_limits_and_hidden_parts,
    hidden_parts_are_shown_to_nobody_but_workers,
    options_of_jobs_are_stored_and_shown_and_null_unless_used,
    options_that_contradict_each_other_are_422,
    a_unique_job_that_waits_is_the_answer_and_another_is_not_stored,
    a_unique_job_is_free_again_once_started_or_finished,
    a_unique_job_can_be_replaced_while_it_waits,
    a_throttled_job_is_the_answer_for_its_window,
    a_caller_that_may_not_read_learns_little_of_a_unique_job,
    no_more_leases_live_than_a_queue_allows,
    no_more_leases_live_than_kind_and_group_allow,
    starts_follow_the_rate,
    groups_take_turns,
    a_strict_group_runs_one_at_a_time_in_order,
    a_paused_group_is_not_started_and_others_are,
    a_job_that_has_not_started_by_its_deadline_is_cancelled,
);

fn job(fields: Value) -> Value {
    let mut job = json!({"kind": "welcome", "payload": {}});
    job.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    job
}

async fn enqueue(server: &Server, fields: Value) -> String {
    server.post("/jobs", job(fields)).await.expect(201)["id"].as_str().unwrap().to_owned()
}

fn ids(leases: &[Value]) -> Vec<&str> {
    leases.iter().map(|lease| lease["job"]["id"].as_str().unwrap()).collect()
}

/// A new limit binds every claim from its answer on; what may lag is what a process remembers of lanes.
async fn lease_until(server: &Server, wanted: usize) -> Vec<Value> {
    let (mut leases, deadline) = (Vec::new(), Instant::now() + Duration::from_secs(30));
    while leases.len() < wanted {
        assert!(Instant::now() < deadline, "{} of {wanted} were leased", leases.len());
        let body = json!({"worker": "w", "max": wanted - leases.len(), "wait_ms": 500});
        leases.extend(server.post("/leases", body).await.expect(200)["leases"].as_array().unwrap().clone());
    }
    leases
}

async fn succeed(server: &Server, lease: &Value) {
    assert_eq!(server.settle(lease, json!({"outcome": "succeeded"})).await, "recorded");
}

async fn limits_of_a_queue_are_set_read_changed_and_taken_away(world: World) {
    let server = world.server().await;
    let settings = json!({
        "concurrency": 50, "rate": {"limit": 100, "per_ms": 1000, "burst": 20},
        "groups": {"concurrency": 2, "rate": {"limit": 10, "per_ms": 1000}, "order": "strict"},
    });
    let set = server.put("/queues/mail", settings).await.expect(201);
    assert_eq!((&set["queue"], &set["concurrency"], &set["paused"]), (&json!("mail"), &json!(50), &json!(false)));
    assert_eq!(set["rate"], json!({"limit": 100, "per_ms": 1000, "burst": 20}));
    let groups = json!({"concurrency": 2, "rate": {"limit": 10, "per_ms": 1000, "burst": 1}, "order": "strict"});
    assert_eq!(set["groups"], groups, "a burst is what the rate allows in 100 ms");
    assert_eq!(set["usage"], json!({"running": 0, "next_token_ms": null, "waiting": null}));
    assert_eq!(server.get("/queues/mail").await.expect(200), set);
    let changed = server.put("/queues/mail", json!({"concurrency": 3})).await.expect(200);
    assert_eq!(
        (&changed["concurrency"], &changed["rate"], &changed["groups"]),
        (&json!(3), &json!(null), &json!(null))
    );
    let none = server.put("/queues/mail", json!({})).await.expect(200);
    assert_eq!(none["concurrency"], json!(null));
    assert_eq!(server.get("/queues/mail").await.expect(200)["concurrency"], json!(null));
}

async fn a_queue_that_nobody_knows_is_404_until_it_has_settings(world: World) {
    let server = world.server().await;
    for path in ["/queues/mail", "/queues/mail/limits", "/queues/mail/explain", "/queues/No%20Name"] {
        server.get(path).await.problem(404, "not_found");
    }
    server.put("/queues/mail", json!({"concurrency": 1})).await.expect(201);
    for path in ["/queues/mail", "/queues/mail/limits", "/queues/mail/explain"] {
        server.get(path).await.expect(200);
    }
    server.enqueue().await;
    assert_eq!(server.get("/queues/default").await.expect(200)["counts"]["queued"], 1, "jobs make it known, too");
    server.put("/queues/No%20Name", json!({})).await.problem(422, "invalid_value");
    server.delete("/queues/mail/groups/acme").await.problem(404, "not_found");
}

async fn values_out_of_range_are_422_with_the_range_and_the_way_out(world: World) {
    let server = world.server().await;
    let rate = |limit: i64, per_ms: i64| json!({"limit": limit, "per_ms": per_ms});
    let bad = [
        (json!({"concurrency": 0}), "concurrency 0 is out of range: use 1 to 1000000"),
        (json!({"concurrency": -1}), "concurrency -1 is out of range: use 1 to 1000000"),
        (json!({"concurrency": 1_000_001}), "concurrency 1000001"),
        (json!({"concurrency": 99_999_999_999_i64}), "concurrency 99999999999 is out of range: use 1 to 1000000"),
        (json!({"rate": rate(0, 1000)}), "rate.limit 0 is out of range: use 1 to 1000000"),
        (json!({"rate": rate(1, 0)}), "rate.per_ms 0 is out of range: use 1 to 86400000"),
        (json!({"rate": rate(1, 86_400_001)}), "rate.per_ms 86400001"),
        (
            json!({"rate": {"limit": 1, "per_ms": 1, "burst": 10_001}}),
            "rate.burst 10001 is out of range: use 1 to 10000",
        ),
        (json!({"groups": {"concurrency": 0}}), "groups.concurrency 0"),
        (json!({"groups": {"rate": rate(0, 1)}}), "groups.rate.limit 0"),
    ];
    for (body, said) in bad {
        let problem = server.put("/queues/mail", body.clone()).await.problem(422, "invalid_value");
        assert!(problem["detail"].as_str().unwrap().starts_with(said), "{body}: {problem}");
    }
    let problem = server.put("/queues/mail", json!({"concurrency": 0})).await.problem(422, "invalid_value");
    assert!(problem["detail"].as_str().unwrap().contains("pause"), "{problem}");
    for (body, said) in [
        (json!({"weight": 0}), "weight 0 is out of range: use 1 to 100"),
        (json!({"weight": 101}), "weight 101"),
        (json!({"concurrency": 0}), "concurrency 0"),
    ] {
        let problem = server.put("/queues/mail/groups/acme", body).await.problem(422, "invalid_value");
        assert!(problem["detail"].as_str().unwrap().starts_with(said), "{problem}");
    }
    let problem = server.put("/kinds/welcome", json!({"concurrency": 0})).await.problem(422, "invalid_value");
    assert!(problem["detail"].as_str().unwrap().starts_with("concurrency 0"), "{problem}");
    server.put("/kinds/welcome", json!({"hidden": ["no pointer"]})).await.problem(422, "invalid_value");
    server.get("/queues/mail").await.problem(404, "not_found");
}

async fn what_is_no_number_or_no_word_is_400(world: World) {
    let server = world.server().await;
    for body in [
        json!({"concurrency": "many"}),
        json!({"rate": {"limit": 1}}),
        json!({"rate": {"limit": 1, "per_ms": 1, "per": "s"}}),
        json!({"groups": {"order": "sorted"}}),
        json!({"weight": 1}),
    ] {
        server.put("/queues/mail", body).await.problem(400, "malformed");
    }
    for body in [json!({"paused": 1}), json!({"order": "fair"})] {
        server.put("/queues/mail/groups/acme", body).await.problem(400, "malformed");
    }
    for fields in [
        json!({"unique": "key"}),
        json!({"unique": {}}),
        json!({"unique": {"key": "k", "while": "running"}}),
        json!({"unique": {"key": "k", "on_conflict": "drop"}}),
        json!({"start_by": "tomorrow"}),
        json!({"cost": 1.5}),
    ] {
        server.post("/jobs", job(fields)).await.problem(400, "malformed");
    }
    server.put("/queues/mail/groups/%FF", json!({})).await.problem(400, "malformed");
}

async fn groups_are_any_text_and_are_put_back(world: World) {
    let server = world.server().await;
    let settings = json!({"concurrency": 10, "weight": 3, "paused": false});
    let stored = json!({"concurrency": 10, "rate": null, "weight": 3, "paused": false});
    for (path, name) in [("acme", "acme"), ("a%2Fb%20%C3%A9%3F%23%25", "a/b é?#%"), ("..", "..")] {
        let path = format!("/queues/mail/groups/{path}");
        assert_eq!(server.put(&path, settings.clone()).await.expect(201), stored);
        assert_eq!(server.put(&path, settings.clone()).await.expect(200), stored);
        let limits = server.get("/queues/mail/limits").await.expect(200);
        let limits = limits.as_array().unwrap();
        let found = limits.iter().find(|limit| limit["scope"] == "group" && limit["name"] == name).unwrap();
        assert_eq!((&found["own"], &found["concurrency"], &found["weight"]), (&stored, &json!(10), &json!(3)));
        server.delete(&path).await.expect(204);
        server.delete(&path).await.problem(404, "not_found");
    }
    let long = |characters: usize| format!("/queues/mail/groups/{}", "x".repeat(characters));
    server.put(&long(255), json!({})).await.expect(201);
    let problem = server.put(&long(256), json!({})).await.problem(422, "invalid_value");
    assert!(problem["detail"].as_str().unwrap().contains("255"), "{problem}");
    server.put("/queues/mail/groups/a%0Ab", json!({})).await.problem(422, "invalid_value");
}

async fn limits_come_in_pages_by_group(world: World) {
    let server = world.server().await;
    server.put("/queues/mail", json!({"concurrency": 7})).await.expect(201);
    let names = ["a", "b c", "d&cursor=x", "z", "é"];
    for name in names {
        let path: String = name.bytes().map(|byte| format!("%{byte:02X}")).collect();
        server.put(&format!("/queues/mail/groups/{path}"), json!({"weight": 2})).await.expect(201);
    }
    let (mut seen, mut sizes, mut path) = (Vec::new(), Vec::new(), Some("/queues/mail/limits?limit=2".to_owned()));
    while let Some(page) = path {
        let reply = server.get(&page).await;
        let limits = reply.expect(200);
        sizes.push(limits.as_array().unwrap().len());
        seen.extend(
            limits
                .as_array()
                .unwrap()
                .iter()
                .map(|limit| (limit["scope"].as_str().unwrap().to_owned(), limit["name"].as_str().unwrap().to_owned())),
        );
        let link =
            reply.header("link").map(|link| link.strip_prefix('<').unwrap().split_once('>').unwrap().0.to_owned());
        assert!(link.as_ref().is_none_or(|link| link.starts_with("/queues/mail/limits?limit=2&cursor=")), "{link:?}");
        assert!(sizes.len() < 10, "it ends");
        path = link;
    }
    assert_eq!(seen.first(), Some(&("queue".to_owned(), "mail".to_owned())), "the queue's own comes first");
    let groups: Vec<_> = seen.iter().filter(|(scope, _)| scope == "group").map(|(_, name)| name.as_str()).collect();
    assert_eq!(groups, names, "each once, by key");
    for bad in ["?limit=x", "?cursor=", "?offset=1"] {
        server.get(&format!("/queues/mail/limits{bad}")).await.problem(400, "malformed");
    }
}

async fn kinds_have_limits_and_hidden_parts(world: World) {
    let server = world.server().await;
    let declaration = json!({"concurrency": 20, "rate": {"limit": 5, "per_ms": 60000}, "hidden": ["/card/number"]});
    let put = server.put("/kinds/welcome", declaration).await.expect(200);
    assert_eq!((&put["concurrency"], &put["hidden"]), (&json!(20), &json!(["/card/number"])));
    assert_eq!(put["rate"], json!({"limit": 5, "per_ms": 60000, "burst": 1}));
    let kinds = server.get("/kinds").await.expect(200);
    let listed = kinds.as_array().unwrap().iter().find(|kind| kind["kind"] == "welcome").unwrap();
    assert_eq!(listed, &put);
    let put = server.put("/kinds/welcome", json!({})).await.expect(200);
    assert_eq!((&put["concurrency"], &put["rate"], &put["hidden"]), (&json!(null), &json!(null), &json!([])));
}

async fn hidden_parts_are_shown_to_nobody_but_workers(world: World) {
    let server = world.server().await;
    server.put("/kinds/welcome", json!({"hidden": ["/card/number", "/notes"]})).await.expect(200);
    let sent = json!({"kind": "welcome", "payload": {"user": 7, "card": {"number": "4111", "name": "Ada"}, "notes": [1]},
        "idempotency_key": "k"});
    let shown = json!({"user": 7, "card": {"number": "(secret)", "name": "Ada"}, "notes": ["(secret)"]});
    let created = server.post("/jobs", sent.clone()).await.expect(201);
    assert_eq!(created["payload"], shown);
    assert_eq!(server.post("/jobs", sent.clone()).await.expect(200)["payload"], shown);
    let batch = server.post("/jobs/batch", json!({"jobs": [sent]})).await.expect(200);
    assert_eq!(batch["results"][0]["job"]["payload"], shown);
    let id = created["id"].as_str().unwrap();
    assert_eq!(server.get(&format!("/jobs/{id}")).await.expect(200)["payload"], shown);
    assert_eq!(server.get("/jobs").await.expect(200)[0]["payload"], shown);
    let leases = server.lease(1).await;
    assert_eq!(leases[0]["job"]["payload"]["card"]["number"], "4111", "its worker needs it");
}

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

async fn no_more_leases_live_than_a_queue_allows(world: World) {
    let server = world.server().await;
    server.put("/queues/default", json!({"concurrency": 2})).await.expect(201);
    for _ in 0..5 {
        server.enqueue().await;
    }
    let leases = lease_until(&server, 2).await;
    assert!(server.lease(10).await.is_empty(), "it is full");
    let queue = server.get("/queues/default").await.expect(200);
    assert_eq!(queue["usage"], json!({"running": 2, "next_token_ms": null, "waiting": "full"}));
    let limits = server.get("/queues/default/limits").await.expect(200);
    assert_eq!(
        (&limits[0]["scope"], &limits[0]["running"], &limits[0]["waiting"]),
        (&json!("queue"), &json!(2), &json!("full"))
    );
    succeed(&server, &leases[0]).await;
    assert_eq!(lease_until(&server, 1).await.len(), 1);
    assert!(server.lease(10).await.is_empty());
    server.put("/queues/default", json!({})).await.expect(200);
    assert_eq!(lease_until(&server, 2).await.len(), 2, "no limit any more");
}

async fn no_more_leases_live_than_kind_and_group_allow(world: World) {
    let server = world.server().await;
    server.put("/kinds/welcome", json!({"concurrency": 3})).await.expect(200);
    server.put("/queues/default", json!({"groups": {"concurrency": 1}})).await.expect(201);
    server.put("/queues/default/groups/big", json!({"concurrency": 2})).await.expect(201);
    for group in ["a", "a", "a", "big", "big", "big"] {
        enqueue(&server, json!({"group_key": group})).await;
    }
    let leases = lease_until(&server, 3).await;
    assert!(server.lease(10).await.is_empty(), "the kind is full");
    let count = |group: &str| leases.iter().filter(|lease| lease["job"]["group_key"] == group).count();
    assert!(count("a") <= 1 && count("big") <= 2, "{leases:?}");
    server.put("/kinds/welcome", json!({})).await.expect(200);
    let more = server.lease(10).await;
    assert!(more.is_empty(), "each group is full: {more:?}");
    let of_a = leases.iter().find(|lease| lease["job"]["group_key"] == "a").unwrap();
    succeed(&server, of_a).await;
    assert_eq!(lease_until(&server, 1).await[0]["job"]["group_key"], "a");
}

async fn starts_follow_the_rate(world: World) {
    let server = world.server().await;
    server.put("/queues/default", json!({"rate": {"limit": 1, "per_ms": 3_600_000, "burst": 3}})).await.expect(201);
    enqueue(&server, json!({"cost": 2})).await;
    for _ in 0..3 {
        server.enqueue().await;
    }
    assert_eq!(lease_until(&server, 2).await.len(), 2, "2 and 1 of 3");
    assert!(server.lease(10).await.is_empty(), "the burst is used up");
    let queue = server.get("/queues/default").await.expect(200);
    assert_eq!(queue["usage"]["waiting"], "rate");
    let wait_ms = queue["usage"]["next_token_ms"].as_u64().unwrap();
    assert!((3_400_000..=3_600_000).contains(&wait_ms), "{wait_ms}");
}

async fn groups_take_turns(world: World) {
    let server = world.server().await;
    let many = |group: &str, n: usize| vec![job(json!({"group_key": group})); n];
    server.post("/jobs/batch", json!({"jobs": many("loud", 100)})).await.expect(200);
    server.post("/jobs/batch", json!({"jobs": many("quiet", 2)})).await.expect(200);
    let leases = lease_until(&server, 10).await;
    let quiet = leases.iter().filter(|lease| lease["job"]["group_key"] == "quiet").count();
    assert_eq!(quiet, 2, "100 jobs in front of it do not count: {:?}", ids(&leases));
}

async fn a_strict_group_runs_one_at_a_time_in_order(world: World) {
    let server = world.server().await;
    server.put("/queues/default", json!({"groups": {"order": "strict"}})).await.expect(201);
    let first = enqueue(&server, json!({"group_key": "acme", "priority": -5})).await;
    let second = enqueue(&server, json!({"group_key": "acme", "priority": 50})).await;
    let other = enqueue(&server, json!({"group_key": "other"})).await;
    let leases = lease_until(&server, 2).await;
    assert_eq!(ids(&leases).into_iter().collect::<BTreeSet<_>>(), BTreeSet::from([&*first, &*other]));
    assert!(server.lease(10).await.is_empty(), "one at a time");
    let of_first = leases.iter().find(|lease| lease["job"]["id"] == first.as_str()).unwrap();
    let failed = json!({"outcome": "failed", "error": "e", "retry_after_ms": 3_600_000});
    assert_eq!(server.settle(of_first, failed).await, "recorded");
    assert!(server.lease(10).await.is_empty(), "it waits to be retried, and keeps the others waiting");
    server.call("POST", &format!("/jobs/{first}/cancel")).send().await.expect(200);
    assert_eq!(ids(&lease_until(&server, 1).await), [&*second]);
}

async fn a_paused_group_is_not_started_and_others_are(world: World) {
    let server = world.server().await;
    let held = enqueue(&server, json!({"group_key": "acme"})).await;
    let free = enqueue(&server, json!({"group_key": "other"})).await;
    server.put("/queues/default/groups/acme", json!({"paused": true})).await.expect(201);
    assert_eq!(ids(&lease_until(&server, 1).await), [&*free]);
    assert!(server.lease(10).await.is_empty());
    let limits = server.get("/queues/default/limits").await.expect(200);
    let acme = limits.as_array().unwrap().iter().find(|limit| limit["name"] == "acme").unwrap();
    assert_eq!((&acme["paused"], &acme["waiting"]), (&json!(true), &json!("paused")));
    server.delete("/queues/default/groups/acme").await.expect(204);
    assert_eq!(ids(&lease_until(&server, 1).await), [&*held]);
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
