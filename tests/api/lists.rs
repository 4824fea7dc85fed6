//! `GET /jobs`: every parameter and its errors, the order of waiting jobs, summaries, and what readers are not shown.

use serde_json::{Value, json};

use crate::client::Reply;
use crate::on_every_store;
use crate::world::{Server, World};

on_every_store!(
    every_parameter_filters,
    bad_values_are_named_with_what_is_allowed,
    waiting_jobs_come_next_to_run_first_and_their_link_goes_on,
    a_summary_has_the_beginning_of_the_payload_and_its_length,
    a_text_is_found_in_payloads_and_errors_and_the_link_keeps_it,
    hidden_parts_are_in_no_list_and_found_by_no_text,
    hidden_payloads_are_for_admins_only,
);

async fn job(server: &Server, body: Value) -> String {
    server.post("/jobs", body).await.expect(201)["id"].as_str().unwrap().to_owned()
}

fn ids(reply: &Reply) -> Vec<String> {
    let jobs = reply.expect(200);
    jobs.as_array().unwrap().iter().map(|job| job["id"].as_str().unwrap().to_owned()).collect()
}

/// The path of the next page.
fn next(reply: &Reply) -> Option<String> {
    let link = reply.header("link")?;
    Some(link.strip_prefix('<')?.split_once('>')?.0.to_owned())
}

async fn every_parameter_filters(world: World) {
    let server = world.server().await;
    server.put("/kinds/other", json!({})).await.expect(201);
    let runs = job(&server, json!({"kind": "welcome", "payload": 1, "priority": 9})).await;
    assert_eq!(server.lease(1).await.len(), 1);
    let dead = job(&server, json!({"kind": "other", "payload": "Größe", "priority": 9})).await;
    let lease = server.lease(1).await.remove(0);
    server.settle(&lease, json!({"outcome": "failed", "error": "smtp 451: try & again", "permanent": true})).await;
    let waits = job(
        &server,
        json!({"kind": "welcome", "payload": 2, "queue": "mail", "group_key": "a, b & c", "idempotency_key": "k 1"}),
    )
    .await;
    let waits = server.get(&format!("/jobs/{waits}")).await.expect(200);
    let (waits, created) = (waits["id"].as_str().unwrap(), waits["created_at"].as_str().unwrap());
    let [runs, dead] = [runs.as_str(), dead.as_str()];
    for (query, expected) in [
        ("status=running,failed_permanent", vec![dead, runs]),
        ("status=running,failed_permanent&order=oldest", vec![runs, dead]),
        ("kind=welcome,other", vec![waits, dead, runs]),
        ("queue=mail,nowhere", vec![waits]),
        ("worker=w", vec![runs]),
        ("worker=x", vec![]),
        ("group=a,%20b%20%26%20c", vec![waits]),
        ("key=k%201", vec![waits]),
        ("error=00000000000000ff", vec![]),
        ("finished_after=2020-01-01T00:00:00Z", vec![dead]),
        ("finished_before=2020-01-01T00:00:00Z", vec![]),
        ("created_after=2020-01-01T00:00:00Z&created_before=2020-01-02T00:00:00%2B01:00", vec![]),
        ("created_after=2020-01-01T00:00:00Z&order=newest", vec![waits, dead, runs]),
        ("order=next", vec![waits]),
        ("text=Gr%C3%B6%C3%9Fe", vec![dead]),
        ("text=%26%20again&status=failed_permanent", vec![dead]),
    ] {
        let reply = server.get(&format!("/jobs?{query}")).await;
        assert_eq!(ids(&reply), expected, "{query}");
        assert!(reply.header("x-looked").unwrap().parse::<u64>().unwrap() >= expected.len() as u64, "{query}");
    }
    let reply = server.get("/jobs?status=queued").await;
    assert_eq!((reply.header("x-looked"), reply.header("x-looked-to")), (Some("1"), Some(created)));
    let all = server.get("/jobs?limit=1").await;
    assert_eq!(ids(&server.get(&next(&all).unwrap()).await), [dead]);
}

async fn bad_values_are_named_with_what_is_allowed(world: World) {
    let server = world.server().await;
    let many = vec!["a"; 51].join(",");
    let malformed: [(&str, &str); 14] = [
        ("status=done", "done"),
        ("status=queued,", "queued, running"),
        ("kind=a,,b", "kind"),
        ("worker=No%20Name", "worker"),
        ("error=12", "16 digits"),
        ("error=00000000000000FF", "16 digits"),
        ("created_after=yesterday", "yesterday"),
        ("finished_before=2020-01-01", "2020-01-01"),
        ("order=first", "newest, oldest, next"),
        ("view=short", "summary, full"),
        ("cursor=c7b7d&order=newest", "Link"),
        ("cursor=00000000000000000000000000000000&status=queued", "Link"),
        ("text=a&offset=1", "offset"),
        ("cursor=00000000000000000000000000000000&offset=1", "exclude"),
    ];
    for (query, says) in malformed {
        let problem = server.get(&format!("/jobs?{query}")).await.problem(400, "malformed");
        assert!(problem["detail"].as_str().unwrap().contains(says), "{query}: {problem}");
    }
    let out_of_range = [
        (format!("kind={many}"), "at most 50"),
        (format!("status={}", vec!["queued"; 51].join(",")), "at most 50"),
        ("group=".to_owned(), "255"),
        (format!("key={}", "k".repeat(256)), "1 to 255"),
        ("text=".to_owned(), "1 to 200"),
        (format!("text={}", "x".repeat(201)), "1 to 200"),
        ("created_after=2020-01-02T00:00:00Z&created_before=2020-01-01T00:00:00Z".to_owned(), "earlier"),
        ("order=next&status=queued,succeeded".to_owned(), "succeeded"),
    ];
    for (query, says) in out_of_range {
        let problem = server.get(&format!("/jobs?{query}")).await.problem(422, "invalid_value");
        assert!(problem["detail"].as_str().unwrap().contains(says), "{query}: {problem}");
    }
}

async fn waiting_jobs_come_next_to_run_first_and_their_link_goes_on(world: World) {
    let server = world.server().await;
    let new =
        |priority: i64, delay: i64| json!({"kind": "welcome", "payload": 1, "priority": priority, "delay_ms": delay});
    let later = job(&server, new(9, 3_600_000)).await;
    let low = job(&server, new(0, 0)).await;
    let high = job(&server, new(5, 0)).await;
    let mut page = server.get("/jobs?status=queued,retrying&limit=1").await;
    for expected in [&high, &low, &later] {
        assert_eq!(ids(&page), [expected.as_str()]);
        let Some(path) = next(&page) else { break };
        assert!(path.contains("&status=queued,retrying"), "{path}");
        page = server.get(&path).await;
    }
    assert_eq!((ids(&page), next(&page)), (vec![later], None));
}

async fn a_summary_has_the_beginning_of_the_payload_and_its_length(world: World) {
    let server = world.server().await;
    let payload = "ü".repeat(500);
    job(&server, json!({"kind": "welcome", "payload": payload})).await;
    let full = server.get("/jobs").await.expect(200)[0].clone();
    let reply = server.get("/jobs?view=summary").await.expect(200);
    let summary = reply[0].as_object().unwrap();
    assert_eq!(summary["payload_bytes"], 1002);
    assert_eq!(summary["payload_preview"], format!("\"{}", "ü".repeat(199)));
    assert!(!summary.contains_key("payload") && !summary.contains_key("result"));
    for (field, value) in
        full.as_object().unwrap().iter().filter(|(field, _)| !["payload", "result", "trace"].contains(&&***field))
    {
        assert_eq!(&summary[field], value, "{field}");
    }
}

async fn a_text_is_found_in_payloads_and_errors_and_the_link_keeps_it(world: World) {
    let server = world.server().await;
    let batch: Vec<Value> = (0..300).map(|n| json!({"kind": "welcome", "payload": format!("number {n}.")})).collect();
    server.post("/jobs/batch", json!({"jobs": batch})).await.expect(200);
    let (mut path, mut found, mut pages) = ("/jobs?text=7.&limit=4".to_owned(), Vec::new(), 0);
    loop {
        let page = server.get(&path).await;
        assert!(ids(&page).len() <= 4);
        found.extend(ids(&page));
        pages += 1;
        let Some(next) = next(&page) else { break };
        assert!(next.ends_with("&text=7."), "{next}");
        path = next;
    }
    assert_eq!(found.len(), 30);
    assert!(pages < 100, "{pages}");
}

async fn hidden_parts_are_in_no_list_and_found_by_no_text(world: World) {
    let server = world.server().await;
    server.put("/kinds/card", json!({"hidden": ["/number"]})).await.expect(201);
    job(&server, json!({"kind": "card", "payload": {"number": "4111-canary", "name": "seen"}})).await;
    let found = server.get("/jobs?text=canary").await;
    assert_eq!((ids(&found), next(&found)), (vec![], None));
    assert_eq!(found.header("x-looked"), server.get("/jobs?text=nothing").await.header("x-looked"));
    assert_eq!(ids(&server.get("/jobs?text=seen").await).len(), 1);
    for query in ["", "view=summary", "status=queued", "kind=card&order=oldest", "text=seen&view=summary"] {
        let reply = server.get(&format!("/jobs?{query}")).await;
        assert_eq!(ids(&reply).len(), 1, "{query}");
        assert!(reply.body.contains("(secret)") && !reply.body.contains("canary"), "{query}: {}", reply.body);
    }
}

async fn hidden_payloads_are_for_admins_only(world: World) {
    let server =
        world.server_with(|settings| settings.admin_token("admin-token-of-16".to_owned()).hide_payloads(true)).await;
    let admin = "admin-token-of-16";
    let post = |path: &str, token: &str, body: Value| server.call("POST", path).token(token).json(&body).send();
    let made = json!({"name": "reader", "scopes": ["read", "operate", "enqueue", "work"]});
    let made = post("/tokens", admin, made).await.expect(201);
    let reader = made["token"].as_str().unwrap();
    let new = json!({"kind": "welcome", "payload": {"a": "canary-in"}, "idempotency_key": "k"});
    let sent = post("/jobs", reader, new.clone()).await.expect(201);
    assert_eq!(sent["payload"]["a"], "canary-in", "who has just sent it may see it");
    let id = sent["id"].as_str().unwrap();
    let lease = post("/leases", reader, json!({"worker": "w"})).await.expect(200)["leases"][0].clone();
    assert_eq!(lease["job"]["payload"]["a"], "canary-in", "a worker needs it");
    let outcome =
        json!({"job_id": id, "lease_token": lease["lease_token"], "outcome": "succeeded", "result": "canary-out"});
    post("/leases/settle", reader, json!({"worker": "w", "outcomes": [outcome]})).await.expect(200);
    let schedule = json!({"every_ms": 3_600_000, "job": {"kind": "welcome", "payload": "canary-tick"}});
    server.call("PUT", "/schedules/s").token(admin).json(&schedule).send().await.expect(201);
    let job = format!("/jobs/{id}");
    for path in [&*job, "/jobs", "/jobs?view=summary", "/jobs?status=succeeded", "/schedules", "/schedules/s"] {
        let get = async |token: &str| server.call("GET", path).token(token).send().await;
        let shown = get(reader).await;
        assert!(shown.status == 200 && !shown.body.contains("canary"), "{path}: {}", shown.body);
        assert!(get(admin).await.body.contains("canary"), "{path}");
    }
    assert!(!post("/jobs", reader, new).await.body.contains("canary"), "a replay is a look at a job");
    let found = server.call("GET", "/jobs?text=canary").token(reader).send().await;
    assert_eq!(ids(&found), Vec::<String>::new());
    assert_eq!(ids(&server.call("GET", "/jobs?text=canary").token(admin).send().await).len(), 1);
}
