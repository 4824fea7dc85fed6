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

/// Sets what new sessions begin with, over a session that may write.
async fn set(admin: &tokio_postgres::Client, sql: &str) {
    admin.batch_execute("SET default_transaction_read_only = off").await.unwrap();
    for statement in sql.split(';') {
        admin.batch_execute(statement).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_is_read_only_is_not_ready_says_why_and_is_ready_again_afterwards() {
    let cluster = Cluster::start(&[]).await;
    let database = cluster.database().await;
    let (admin, name) = (cluster.admin("postgres").await, database.name.clone());
    let world = World::in_database(database);
    let server = world.server().await;
    server.get("/readyz").await.expect(200);
    let close_others = format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'");
    let ways = [
        // Reaches the sessions that there are.
        (
            "ALTER SYSTEM SET default_transaction_read_only = on; SELECT pg_reload_conf()".to_owned(),
            "ALTER SYSTEM RESET default_transaction_read_only; SELECT pg_reload_conf()".to_owned(),
        ),
        // Counts for sessions made from now on, so the ones there are have to go; and so again afterwards.
        (
            format!("ALTER DATABASE {name} SET default_transaction_read_only = on; {close_others}"),
            format!("ALTER DATABASE {name} RESET default_transaction_read_only"),
        ),
    ];
    for (close, open) in ways {
        set(&admin, &close).await;
        let deadline = Instant::now() + Duration::from_secs(60);
        let mut reply = server.get("/readyz").await;
        while reply.status == 200 || !reply.body.contains("store: read-only") {
            assert!(Instant::now() < deadline, "{close}: it is still {reply:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
            reply = server.get("/readyz").await;
        }
        assert!(server.get("/health").await.problem(503, "store_unavailable").to_string().contains("read-only"));
        let refused = post(server.address, "key").send().await.problem(503, "store_unavailable");
        assert!(refused.to_string().contains("read-only"), "{refused}");
        set(&admin, &open).await;
        let deadline = Instant::now() + Duration::from_secs(60);
        while server.get("/readyz").await.status != 200 {
            assert!(Instant::now() < deadline, "{open}: it does not become ready again");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        // Other sessions of the pool may still be read-only; each is replaced when that shows.
        while !check(&post(server.address, "key").send().await) {
            assert!(Instant::now() < deadline, "{open}: nothing can be enqueued although it is ready");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}
