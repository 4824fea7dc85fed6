//! Groups of errors over HTTP: listed, looked at, snoozed, named by workers.

use serde_json::{Value, json};

use crate::on_every_store;
use crate::world::{Server, World};

on_every_store!(
    dead_letters_are_listed_by_cause,
    a_worker_names_the_cause,
    names_that_do_not_fit_are_422_and_of_other_outcomes_too,
    groups_are_filtered_and_paged,
    a_group_is_snoozed_with_a_note_and_by_whom,
    a_snooze_without_an_end_or_with_a_wrong_one_is_422,
    what_is_no_group_is_404_and_what_is_no_filter_is_400,
);

async fn die(server: &Server, queue: &str, outcome: Value) -> String {
    let job = json!({"kind": "welcome", "payload": {}, "queue": queue, "max_attempts": 1});
    let id = server.post("/jobs", job).await.expect(201)["id"].as_str().unwrap().to_owned();
    let lease = server.lease(1).await.remove(0);
    let mut report = json!({"outcome": "failed"});
    report.as_object_mut().unwrap().extend(outcome.as_object().unwrap().clone());
    assert_eq!(server.settle(&lease, report).await, "recorded");
    id
}

async fn dead_letters_are_listed_by_cause(world: World) {
    let server = world.server().await;
    let first = die(&server, "mail", json!({"error": "user 42 not found"})).await;
    let second = die(&server, "sms", json!({"error": "user 4711 not found"})).await;
    let job = server.get(&format!("/jobs/{first}")).await.expect(200);
    let fingerprint = job["error_group"].as_str().unwrap();
    let groups = server.get("/errors").await.expect(200);
    assert_eq!(groups.as_array().unwrap().len(), 1);
    let group = &groups[0];
    assert_eq!((&group["fingerprint"], &group["kind"]), (&json!(fingerprint), &json!("welcome")));
    assert_eq!((&group["outcome"], &group["title"]), (&json!("failed"), &json!("user * not found")));
    assert_eq!((&group["dead"], &group["seen_total"], &group["snoozed"]), (&json!(2), &json!(2), &json!(null)));
    let queues = json!([{"queue": "mail", "dead": 1, "seen_total": 1}, {"queue": "sms", "dead": 1, "seen_total": 1}]);
    assert_eq!(group["queues"], queues);
    assert_eq!(group["sample"], json!({"job_id": second, "error": null}));
    let one = server.get(&format!("/errors/{fingerprint}")).await.expect(200);
    assert_eq!(one["sample"], json!({"job_id": second, "error": "user 4711 not found"}));

    let redriven = server.post(&format!("/jobs/{second}/redrive"), json!({})).await.expect(200);
    assert_eq!(redriven["error_group"], json!(null));
    let one = server.get(&format!("/errors/{fingerprint}")).await.expect(200);
    assert_eq!((&one["dead"], &one["seen_total"]), (&json!(1), &json!(2)));
    assert_eq!(one["sample"]["error"], json!(null), "it is not dead any more");
}

async fn a_worker_names_the_cause(world: World) {
    let server = world.server().await;
    for error in ["451 greylisted", "451 try again in 5 minutes"] {
        die(&server, "mail", json!({"error": error, "error_group": "smtp-451"})).await;
    }
    let groups = server.get("/errors").await.expect(200);
    let told: Vec<_> = groups.as_array().unwrap().iter().map(|group| (&group["title"], &group["dead"])).collect();
    assert_eq!(told, [(&json!("smtp-451"), &json!(2))]);
}

async fn names_that_do_not_fit_are_422_and_of_other_outcomes_too(world: World) {
    let server = world.server().await;
    server.enqueue().await;
    let lease = server.lease(1).await.remove(0);
    let settle = async |mut outcome: Value| {
        outcome["job_id"] = lease["job"]["id"].clone();
        outcome["lease_token"] = lease["lease_token"].clone();
        server.post("/leases/settle", json!({"worker": "w", "outcomes": [outcome]})).await
    };
    for (outcome, said) in [
        (json!({"outcome": "failed", "error_group": "x".repeat(65)}), "longer than 64"),
        (json!({"outcome": "failed", "error_group": " "}), "is empty"),
        (json!({"outcome": "failed", "error_group": "a\nb"}), "control characters"),
        (json!({"outcome": "succeeded", "error_group": "a"}), "does not belong"),
    ] {
        let problem = settle(outcome.clone()).await;
        assert!(problem.status == 422 && problem.body.contains(said), "{outcome}: {problem:?}");
    }
    settle(json!({"outcome": "failed", "error_group": "é".repeat(64)})).await.expect(200);
}

async fn groups_are_filtered_and_paged(world: World) {
    let server = world.server().await;
    for word in ["one", "two", "three"] {
        die(&server, "mail", json!({"error": word})).await;
    }
    let last = die(&server, "sms", json!({"error": "four"})).await;
    let titles = |groups: &Value| -> Vec<String> {
        groups.as_array().unwrap().iter().map(|group| group["title"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(titles(&server.get("/errors?queue=sms").await.expect(200)), ["four"]);
    assert_eq!(titles(&server.get("/errors?kind=nobody").await.expect(200)), [""; 0]);
    assert_eq!(titles(&server.get("/errors?since=2999-01-01T00:00:00Z").await.expect(200)), [""; 0]);
    server.post(&format!("/jobs/{last}/redrive"), json!({})).await.expect(200);
    assert_eq!(titles(&server.get("/errors?dead=false").await.expect(200)), ["four"]);

    let (mut path, mut seen) = ("/errors?limit=2&dead=true&since=2020-01-01T00:00:00%2B01:00".to_owned(), Vec::new());
    loop {
        let reply = server.get(&path).await;
        seen.extend(titles(&reply.expect(200)));
        let Some(link) = reply.header("link") else { break };
        path = link.trim_start_matches('<').split('>').next().unwrap().to_owned();
    }
    assert_eq!(seen, ["three", "two", "one"]);
}

async fn a_group_is_snoozed_with_a_note_and_by_whom(world: World) {
    let server = world.server().await;
    let id = die(&server, "mail", json!({"error": "no"})).await;
    let job = server.get(&format!("/jobs/{id}")).await.expect(200);
    let path = format!("/errors/{}/snooze", job["error_group"].as_str().unwrap());
    let snoozed = server.put(&path, json!({"for_ms": 3_600_000, "note": "ticket 4711"})).await.expect(200);
    assert_eq!((&snoozed["snoozed"]["note"], &snoozed["snoozed"]["by"]), (&json!("ticket 4711"), &json!("anyone")));
    let at = |field: &str| snoozed["snoozed"][field].as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
    assert_eq!(at("until").duration_since(at("at")).as_secs(), 3_600);
    assert_eq!(server.get("/errors?snoozed=false").await.expect(200), json!([]));
    assert_eq!(server.get("/errors?snoozed=true").await.expect(200)[0]["snoozed"], snoozed["snoozed"]);
    let until = jiff::Timestamp::now() + std::time::Duration::from_secs(600);
    let again = server.put(&path, json!({"until": until})).await.expect(200);
    assert_eq!((&again["snoozed"]["note"], &again["dead"]), (&json!(null), &json!(1)), "replaced as a whole");
    assert_eq!(server.delete(&path).await.status, 204);
    server.delete(&path).await.problem(404, "not_found");
    assert_eq!(server.get("/errors").await.expect(200)[0]["snoozed"], json!(null));
}

async fn a_snooze_without_an_end_or_with_a_wrong_one_is_422(world: World) {
    let server = world.server().await;
    let id = die(&server, "mail", json!({"error": "no"})).await;
    let job = server.get(&format!("/jobs/{id}")).await.expect(200);
    let path = format!("/errors/{}/snooze", job["error_group"].as_str().unwrap());
    for body in [
        json!({}),
        json!({"for_ms": 0}),
        json!({"for_ms": 31_536_000_001_i64}),
        json!({"for_ms": 1_000, "until": "2999-01-01T00:00:00Z"}),
        json!({"until": "2020-01-01T00:00:00Z"}),
        json!({"until": "2999-01-01T00:00:00Z"}),
        json!({"for_ms": 1_000, "note": "x".repeat(501)}),
        json!({"for_ms": 1_000, "note": "a\0b"}),
    ] {
        let reply = server.put(&path, body.clone()).await;
        assert_eq!(reply.status, 422, "{body}: {reply:?}");
    }
    for body in [json!({"for": 1}), json!({"for_ms": "1"}), json!({"until": "tomorrow"})] {
        assert_eq!(server.put(&path, body.clone()).await.status, 400, "{body}");
    }
}

async fn what_is_no_group_is_404_and_what_is_no_filter_is_400(world: World) {
    let server = world.server().await;
    for fingerprint in ["9f3c0d6a1b2e4f58", "9f3c", "nonsense", "%00"] {
        assert_eq!(server.get(&format!("/errors/{fingerprint}")).await.status, 404, "{fingerprint}");
        let snooze = server.put(&format!("/errors/{fingerprint}/snooze"), json!({"for_ms": 1_000})).await;
        assert_eq!(snooze.status, 404, "{fingerprint}");
        assert_eq!(server.delete(&format!("/errors/{fingerprint}/snooze")).await.status, 404, "{fingerprint}");
    }
    for query in
        ["kind=A", "queue=%20", "since=yesterday", "dead=maybe", "snoozed=1", "limit=x", "cursor=12", "color=red"]
    {
        assert_eq!(server.get(&format!("/errors?{query}")).await.status, 400, "{query}");
    }
}
