//! Schemas and payloads that are expensive, and kinds that nobody declared: what the caller is told.

use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};
use steadfast::job::{Kind, KindDefinition};
use steadfast::store::PutKind;

use crate::on_every_store;
use crate::world::{Server, World};

on_every_store! {
    a_schema_that_is_too_expensive_is_refused_with_what_to_change,
    a_stored_schema_that_is_too_expensive_makes_its_kind_unusable_and_no_other,
    a_payload_that_takes_too_long_to_check_is_refused_and_the_kind_is_named,
    large_and_small_payloads_are_judged_alike,
    a_batch_of_unknown_kinds_is_refused_within_bounds,
}

/// Twice the next, and so on: 134 million schemas in 27 lines.
fn doubling() -> Value {
    let twice = |n| {
        let next = json!({"$ref": format!("#/$defs/a{}", n + 1)});
        (format!("a{n}"), json!({"allOf": [next, next]}))
    };
    let definitions: Map<_, _> = (0..27).map(twice).chain([("a27".to_owned(), json!(true))]).collect();
    json!({"$defs": definitions, "$ref": "#/$defs/a0"})
}

async fn detail(server: &Server, kind: &str, payload: Value, code: &str) -> String {
    let problem = server.post("/jobs", json!({"kind": kind, "payload": payload})).await.problem(422, code);
    problem["detail"].as_str().unwrap().to_owned()
}

async fn a_schema_that_is_too_expensive_is_refused_with_what_to_change(world: World) {
    let server = world.server().await;
    let deep = (0..40).fold(json!({}), |inner, _| json!({"items": {"not": inner}}));
    for (schema, reason) in [
        (doubling(), "refer to each definition once"),
        (deep, "move inner schemas to $defs"),
        (json!({"enum": vec![0; 30_000]}), "split the kind"),
        (json!({"pattern": "^(a+)\\1$"}), "without look-around and back-references"),
        (json!({"$ref": "#/$defs/nowhere"}), "leads nowhere"),
    ] {
        let problem = server.put("/kinds/dear", json!({"schema": schema})).await.problem(422, "invalid_value");
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains("\"dear\"") && detail.contains(reason), "{detail}");
    }
    let kinds = server.get("/kinds").await.expect(200);
    assert!(kinds.as_array().unwrap().iter().all(|kind| kind["kind"] != "dear"), "{kinds}");
}

async fn a_stored_schema_that_is_too_expensive_makes_its_kind_unusable_and_no_other(world: World) {
    let server = world.server().await;
    let keyed = json!({"kind": "dear", "payload": 2, "idempotency_key": "before"});
    server.put("/kinds/dear", json!({})).await.expect(201);
    let before = server.post("/jobs", keyed.clone()).await.expect(201);
    // As a version did that had no budget.
    let stored = KindDefinition::any(Kind::new("dear").unwrap()).schema(doubling());
    server.queue.store().put_kind(PutKind::new(stored)).await.unwrap();
    let cheap = json!({"schema": {"type": "object", "required": ["user"]}});
    server.put("/kinds/cheap", cheap).await.expect(201);
    for _ in 0..2 {
        let detail = detail(&server, "dear", json!(1), "invalid_value").await;
        assert!(detail.contains("\"dear\" is too expensive to check"), "{detail}");
        server.post("/jobs", json!({"kind": "cheap", "payload": {"user": 1}})).await.expect(201);
        server.enqueue().await;
        // A known idempotency key is answered before the schema is asked; a new one is not taken.
        assert_eq!(server.post("/jobs", keyed.clone()).await.expect(200)["id"], before["id"]);
        let new = json!({"kind": "dear", "payload": 2, "idempotency_key": "after"});
        server.post("/jobs", new).await.problem(422, "invalid_value");
        let batch = server.post("/jobs/batch", json!({"jobs": [&keyed]})).await.expect(200);
        assert_eq!(batch["results"][0]["job"]["id"], before["id"]);
    }
    assert_eq!(server.get("/stats").await.expect(200)["totals"]["queued"], 5);
}

async fn a_payload_that_takes_too_long_to_check_is_refused_and_the_kind_is_named(world: World) {
    let server = world.server().await;
    let patterns: Map<_, _> = (0..100).map(|n| (format!("x{n}y+z"), json!(true))).collect();
    let all = vec![json!({"$ref": "#/$defs/names"}); 4];
    let schema = json!({"$defs": {"names": {"patternProperties": patterns}}, "allOf": all});
    server.put("/kinds/names", json!({"schema": schema})).await.expect(201);
    let names = |count| Value::Object((0..count).map(|n| (format!("name-{n}"), json!(1))).collect());
    server.post("/jobs", json!({"kind": "names", "payload": names(10)})).await.expect(201);
    let detail = detail(&server, "names", names(1_500), "invalid_payload").await;
    assert!(
        detail.contains("too long to check") && detail.contains("\"names\"") && detail.contains("smaller"),
        "{detail}"
    );
}

async fn large_and_small_payloads_are_judged_alike(world: World) {
    let server = world.server().await;
    let schema = json!({"properties": {"user": {"type": "integer"}, "notes": {"items": {"type": "string"}}}});
    server.put("/kinds/strict", json!({"schema": schema})).await.expect(201);
    let payload = |user: Value, notes: usize| json!({"user": user, "notes": vec!["a note"; notes]});
    for notes in [1, 20_000] {
        server.post("/jobs", json!({"kind": "strict", "payload": payload(json!(1), notes)})).await.expect(201);
        let detail = detail(&server, "strict", payload(json!("x"), notes), "invalid_payload").await;
        assert!(detail.contains("at /user: \"x\" is not of type \"integer\""), "{detail}");
    }
}

async fn a_batch_of_unknown_kinds_is_refused_within_bounds(world: World) {
    let server = world.server().await;
    let name = |n: usize| format!("a-very-long-name-that-many-others-begin-with-just-as-this-{n:04}");
    for n in 0..900 {
        server.queue.store().put_kind(PutKind::new(KindDefinition::any(Kind::new(name(n)).unwrap()))).await.unwrap();
    }
    let jobs: Vec<_> = (1_000..2_000).map(|n| json!({"kind": name(n), "payload": 1})).collect();
    let problem = server.post("/jobs/batch", json!({"jobs": jobs})).await.problem(422, "invalid_batch");
    let errors = problem["errors"].as_array().unwrap();
    assert_eq!(errors.len(), 1_000);
    assert!(errors[0]["detail"].as_str().unwrap().contains("did you mean a-very-long"), "{}", errors[0]);
    // Comparing names is what takes the time: some are compared at each reload of the kinds, never all.
    let helped = errors.iter().filter(|error| error["detail"].as_str().unwrap().contains("did you mean")).count();
    assert!(helped < 500, "{helped} of 1,000 typos were compared with every kind");
    // Others are helped again a moment later.
    let give_up = Instant::now() + Duration::from_secs(60);
    while !detail(&server, "welcom", json!({}), "unknown_kind").await.contains("did you mean welcome") {
        assert!(Instant::now() < give_up, "no suggestion any more");
    }
}
