//! Hostile traffic: it gets the right refusal or a closed connection, memory stays bounded, and others do not notice.

use std::time::{Duration, Instant};

use serde_json::json;
use steadfast::api::ApiLimits;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::client::read_reply;
use crate::world::{Server, World};

/// Everything the server sends until it closes or resets the connection.
async fn rest(stream: &mut TcpStream) -> String {
    let mut read = Vec::new();
    let mut chunk = vec![0; 4096];
    let reading = async {
        while let Ok(n) = stream.read(&mut chunk).await {
            if n == 0 {
                break;
            }
            read.extend_from_slice(&chunk[..n]);
        }
    };
    tokio::time::timeout(Duration::from_secs(60), reading).await.expect("the connection stays open");
    String::from_utf8_lossy(&read).into_owned()
}

fn resident_mib() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() / 1024
}

async fn is_fine(server: &Server) {
    let started = Instant::now();
    server.enqueue().await;
    assert!(started.elapsed() < Duration::from_secs(30), "a normal request took {:?}", started.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_hundred_slow_sockets_are_cut_off_and_others_do_not_notice() {
    let world = World::sqlite().await;
    let server = world
        .server_with(|settings| settings.limits(ApiLimits::default().header_timeout(Duration::from_secs(2))))
        .await;
    let mut slow = Vec::new();
    for _ in 0..500 {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(b"GET /jobs HTTP/1.1\r\nhost: localhost\r\nx-slow").await.unwrap();
        slow.push(stream);
    }
    for n in 0..20 {
        is_fine(&server).await;
        for stream in &mut slow {
            // One byte more each time; those that were cut off cannot take it.
            let _ = stream.write_all(if n % 2 == 0 { b"a" } else { b"b" }).await;
        }
    }
    for stream in &mut slow {
        let answer = rest(stream).await;
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 408"), "{answer}");
    }
    is_fine(&server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gigabyte_in_chunks_is_refused_early() {
    let world = World::sqlite().await;
    let server = world.server().await;
    let before = resident_mib();
    for path in ["/jobs", "/jobs/batch", "/leases/settle"] {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        let chunk = [b"100000\r\n", &vec![b' '; 1 << 20][..], b"\r\n"].concat();
        let mut sent = 0;
        for _ in 0..1024 {
            if stream.write_all(&chunk).await.is_err() {
                break;
            }
            sent += 1;
        }
        assert!(sent < 64, "{path} took {sent} MiB");
        let answer = rest(&mut stream).await;
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 413"), "{answer}");
    }
    let announced = server.call("POST", "/jobs").header("content-length", "1073741824");
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let head = String::from_utf8(announced.bytes())
        .unwrap()
        .replace("content-length: 0\r\n", "content-type: application/json\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    read_reply(&mut stream).await.problem(413, "too_large");
    // Other tests of this process use memory too; a gigabyte would show all the same.
    assert!(resident_mib() < before + 500, "from {before} to {} MiB", resident_mib());
    is_fine(&server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_in_single_bytes_takes_no_more_room_than_in_one_piece() {
    let world = World::sqlite().await;
    let server = world.server_with(|settings| settings.limits(ApiLimits::default().body_bytes(64 * 1024))).await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let head = "POST /jobs HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
                transfer-encoding: chunked\r\n\r\n";
    let body = format!("{:>10000}", r#"{"kind":"welcome","payload":1}"#);
    let chunks: String = body.chars().map(|byte| format!("1\r\n{byte}\r\n")).collect();
    stream.write_all(format!("{head}{chunks}0\r\n\r\n").as_bytes()).await.unwrap();
    read_reply(&mut stream).await.expect(201);
}

/// A body that takes 64 KiB of memory and never ends.
async fn flood_of_64_kib(address: std::net::SocketAddr) -> TcpStream {
    let mut flood = TcpStream::connect(address).await.unwrap();
    let head = "POST /jobs HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
                content-length: 100000\r\n\r\n";
    flood.write_all(format!("{head}{}", " ".repeat(64 * 1024)).as_bytes()).await.unwrap();
    flood
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_get_through_while_producers_fill_the_memory_for_bodies() {
    let world = World::sqlite().await;
    let server = world.server_with(|settings| settings.limits(ApiLimits::default().body_bytes(64 * 1024))).await;
    server.enqueue().await;
    let mut flood = flood_of_64_kib(server.address).await;
    let deadline = Instant::now() + Duration::from_secs(20);
    let job = json!({"kind": "welcome", "payload": 1});
    while server.post("/jobs", job.clone()).await.status != 503 {
        assert!(Instant::now() < deadline, "the memory does not fill");
        // The post before may have held the last bit of it, and the flood been refused in its place.
        if flood.try_read(&mut [0; 1]).is_ok() {
            flood = flood_of_64_kib(server.address).await;
        }
    }
    server.post("/jobs", job).await.problem(503, "overloaded");
    let lease = server.lease(1).await.remove(0);
    assert_eq!(server.settle(&lease, json!({"outcome": "succeeded"})).await, "recorded");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heads_that_are_no_heads_are_refused() {
    let world = World::sqlite().await;
    let server = world.server().await;
    let many: String = (0..10_000).map(|n| format!("x-{n}: y\r\n")).collect();
    let long = format!("x-long: {}\r\n", "y".repeat(1 << 20));
    for head in [
        format!("GET /jobs HTTP/1.1\r\nhost: localhost\r\n{many}\r\n"),
        format!("GET /jobs HTTP/1.1\r\nhost: localhost\r\n{long}\r\n"),
        format!("GET /{} HTTP/1.1\r\nhost: localhost\r\n\r\n", "x".repeat(1 << 20)),
        "\0\0\0\0\r\n\r\n".to_owned(),
        "GET /jobs\r\n\r\n".to_owned(),
        "GET /jobs HTTP/9.9\r\n\r\n".to_owned(),
        "POST /jobs HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\n".to_owned(),
        "POST /jobs HTTP/1.1\r\nhost: localhost\r\ncontent-length: -1\r\n\r\n".to_owned(),
        "GET /jobs HTTP/1.1\r\nhost: localhost\r\nx: \0\r\n\r\n".to_owned(),
    ] {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        // The server may close before it has read everything.
        let _ = stream.write_all(head.as_bytes()).await;
        let _ = stream.shutdown().await;
        let answer = rest(&mut stream).await;
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{:.40} answered {answer:.200}", head);
        is_fine(&server).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_does_not_come_is_408() {
    let world = World::sqlite().await;
    let server = world
        .server_with(|settings| settings.limits(ApiLimits::default().body_timeout(Duration::from_millis(300))))
        .await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let head =
        "POST /jobs HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{";
    stream.write_all(head.as_bytes()).await.unwrap();
    read_reply(&mut stream).await.problem(408, "body_timeout");
    is_fine(&server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_producer_that_hangs_up_leaves_nothing_half_done() {
    let world = World::sqlite().await;
    let server = world.server().await;
    let call = |n: usize| {
        let key = format!("k{n}");
        server.call("POST", "/jobs").header("idempotency-key", &key).json(&json!({"kind": "welcome", "payload": n}))
    };
    for n in 0..100 {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(&call(n).bytes()).await.unwrap();
    }
    for n in 0..100 {
        let reply = call(n).send().await;
        assert!(reply.status == 200 || reply.status == 201, "{reply:?}");
        assert_eq!(reply.json()["payload"], json!(n));
    }
    assert_eq!(server.get("/stats").await.expect(200)["totals"]["queued"], 100);
}
