//! Limits over HTTP: declared, looked at, and refused. What they do to workers is in `limits_in_force`.

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
);

pub(crate) fn job(fields: Value) -> Value {
    let mut job = json!({"kind": "welcome", "payload": {}});
    job.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    job
}

pub(crate) async fn enqueue(server: &Server, fields: Value) -> String {
    server.post("/jobs", job(fields)).await.expect(201)["id"].as_str().unwrap().to_owned()
}

pub(crate) fn ids(leases: &[Value]) -> Vec<&str> {
    leases.iter().map(|lease| lease["job"]["id"].as_str().unwrap()).collect()
}

/// A new limit binds every claim from its answer on; what may lag is what a process remembers of lanes.
pub(crate) async fn lease_until(server: &Server, wanted: usize) -> Vec<Value> {
    let (mut leases, deadline) = (Vec::new(), Instant::now() + Duration::from_secs(30));
    while leases.len() < wanted {
        assert!(Instant::now() < deadline, "{} of {wanted} were leased", leases.len());
        let body = json!({"worker": "w", "max": wanted - leases.len(), "wait_ms": 500});
        leases.extend(server.post("/leases", body).await.expect(200)["leases"].as_array().unwrap().clone());
    }
    leases
}

pub(crate) async fn succeed(server: &Server, lease: &Value) {
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
    // And what is going on with it besides.
    for (name, value) in put.as_object().unwrap() {
        assert_eq!(&listed[name], value, "{name}");
    }
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
