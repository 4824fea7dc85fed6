//! Limits in force for workers over HTTP: leases, starts, turns and order.

use std::collections::BTreeSet;

use serde_json::json;

use crate::limits::{enqueue, ids, job, lease_until, succeed};
use crate::on_every_store;
use crate::world::World;

on_every_store!(
    no_more_leases_live_than_a_queue_allows,
    no_more_leases_live_than_kind_and_group_allow,
    starts_follow_the_rate,
    groups_take_turns,
    a_strict_group_runs_one_at_a_time_in_order,
    a_paused_group_is_not_started_and_others_are,
);

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
