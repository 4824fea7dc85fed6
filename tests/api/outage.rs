//! A real outage: the database server is killed under load, twice, and comes back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::client::{Call, Reply};
use crate::support::postgres::Cluster;
use crate::world::World;

fn post(address: std::net::SocketAddr, key: &str) -> Call {
    Call::new(address, "POST", "/jobs").header("idempotency-key", key).json(&json!({"kind": "welcome", "payload": key}))
}

/// Nothing but success, or a 503 that says when to come back.
fn check(reply: &Reply) -> bool {
    match reply.status {
        200 | 201 => true,
        503 => {
            let code = reply.json()["code"].as_str().unwrap().to_owned();
            assert!(["store_unavailable", "outcome_unknown"].contains(&code.as_str()), "{reply:?}");
            assert!(reply.header("retry-after").is_some(), "{reply:?}");
            false
        }
        _ => panic!("{reply:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_killed_under_load_is_503_with_retry_after_and_loses_nothing_acknowledged() {
    let cluster = Arc::new(Cluster::start(&[]).await);
    let world = World::in_database(cluster.database().await);
    let server = world.server().await;
    let (address, over) = (server.address, Arc::new(AtomicBool::new(false)));
    let (accepted, refused) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let producers: Vec<_> = (0..4)
        .map(|producer| {
            let (over, accepted, refused) = (over.clone(), accepted.clone(), refused.clone());
            tokio::spawn(async move {
                let mut keys = Vec::new();
                while !over.load(Ordering::SeqCst) {
                    let key = format!("{producer}-{}", keys.len());
                    // As a careful client does: the same key until it is in.
                    while !check(&post(address, &key).send().await) {
                        refused.fetch_add(1, Ordering::SeqCst);
                        tokio::time::sleep(Duration::from_millis(50)).await;
                    }
                    accepted.fetch_add(1, Ordering::SeqCst);
                    keys.push(key);
                }
                keys
            })
        })
        .collect();
    let flowing = async |more: usize| {
        let (before, deadline) = (accepted.load(Ordering::SeqCst), Instant::now() + Duration::from_secs(60));
        while accepted.load(Ordering::SeqCst) < before + more {
            assert!(Instant::now() < deadline, "jobs are not accepted any more");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    for _ in 0..2 {
        flowing(100).await;
        let cluster = cluster.clone();
        tokio::task::spawn_blocking(move || cluster.kill_and_restart()).await.unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        while server.get("/readyz").await.status != 200 {
            assert!(Instant::now() < deadline, "it does not become ready again");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    flowing(100).await;
    over.store(true, Ordering::SeqCst);
    let mut keys = Vec::new();
    for producer in producers {
        keys.extend(producer.await.unwrap());
    }
    for key in &keys {
        assert_eq!(post(address, key).send().await.status, 200, "{key} was acknowledged and is gone");
    }
    let stored = server.get("/stats").await.expect(200)["totals"]["queued"].as_u64().unwrap();
    assert_eq!(stored, keys.len() as u64, "each key made one job");
    println!("{} jobs acknowledged over two kills, {} refusals", keys.len(), refused.load(Ordering::SeqCst));
}
