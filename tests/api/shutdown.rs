//! The end of a server: nobody new, nobody cut off.

use std::time::{Duration, Instant};

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::client::read_reply;
use crate::faulty::Fault;
use crate::on_every_store;
use crate::operators::faulty_server;
use crate::world::World;

on_every_store!(
    shutdown_ends_long_polls_finishes_requests_and_accepts_nobody_new,
    shutdown_waits_for_the_settle_of_a_worker_that_hung_up,
);

async fn shutdown_ends_long_polls_finishes_requests_and_accepts_nobody_new(world: World) {
    let server = world.server().await;
    let (address, queue) = (server.address, server.queue.clone());
    let mut worker = TcpStream::connect(address).await.unwrap();
    worker
        .write_all(&server.call("POST", "/leases").json(&json!({"worker": "w", "wait_ms": 30000})).bytes())
        .await
        .unwrap();
    // A connection that has been used and is idle, and one that never said anything.
    let mut idle = TcpStream::connect(address).await.unwrap();
    let keep = server.call("GET", "/livez").replace_header("connection", "keep-alive");
    idle.write_all(&keep.bytes()).await.unwrap();
    assert_eq!(read_reply(&mut idle).await.status, 200);
    let _silent = TcpStream::connect(address).await.unwrap();
    let posts: Vec<_> = (0..50)
        .map(|n| {
            tokio::spawn(
                server
                    .call("POST", "/jobs")
                    .json(&json!({"kind": "welcome", "payload": n, "queue": "q"}))
                    .send_if_possible(),
            )
        })
        .collect();
    let stopped = server.stop();
    // The poll ends at once, not after its wait: with nothing, or with one of the jobs that were being enqueued.
    read_reply(&mut worker).await.expect(200);
    stopped.await.unwrap().unwrap();
    let mut accepted = 0;
    for post in posts {
        accepted += u64::from(post.await.unwrap().is_some_and(|reply| reply.status == 201));
    }
    let stats = queue.stats(steadfast::store::StatsRequest::new()).await.unwrap();
    let stored: u64 = stats.queues.values().flat_map(|queue| queue.counts.values()).sum();
    assert!(stored >= accepted, "{accepted} were accepted and {stored} are stored");
    assert!(TcpStream::connect(address).await.is_err(), "nobody new");
}

async fn shutdown_waits_for_the_settle_of_a_worker_that_hung_up(world: World) {
    let (server, store) = faulty_server(&world, |settings| settings).await;
    let queue = server.queue.clone();
    let id = server.enqueue().await;
    let lease = server.lease(1).await.remove(0);
    let outcome = json!({"job_id": id, "lease_token": lease["lease_token"], "outcome": "succeeded"});
    let settle = server.call("POST", "/leases/settle").json(&json!({"worker": "w", "outcomes": [outcome]}));
    // The tokens are known for half a second: the next call of the store is the settle, or a look at them before it.
    server.get("/jobs").await.expect(200);
    let mut idle = TcpStream::connect(server.address).await.unwrap();
    let keep = server.call("GET", "/livez").replace_header("connection", "keep-alive");
    idle.write_all(&keep.bytes()).await.unwrap();
    assert_eq!(read_reply(&mut idle).await.status, 200);
    let before = store.calls();
    store.set(Fault::Held);
    let address = server.address;
    let mut worker = TcpStream::connect(address).await.unwrap();
    worker.write_all(&settle.bytes()).await.unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while store.calls() == before {
        assert!(Instant::now() < deadline, "the settle does not reach the store");
        tokio::task::yield_now().await;
    }
    drop(worker);
    let mut stopped = server.stop();
    // It accepts nobody new and has closed who was idle: the settle is all that is left to wait for.
    let closed = async {
        while TcpStream::connect(address).await.is_ok() {}
        assert_eq!(idle.read(&mut [0; 1]).await.unwrap_or(0), 0);
        for _ in 0..1_000 {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        _ = &mut stopped => panic!("it does not wait for the settle"),
        () = closed => {}
    }
    store.set(Fault::None);
    stopped.await.unwrap().unwrap();
    let job = queue.get(id.parse().unwrap()).await.unwrap().unwrap();
    assert_eq!(job.status.to_string(), "succeeded");
}
