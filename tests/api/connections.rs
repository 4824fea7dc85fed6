//! Connections: what is left of a refused body is not taken for the next request; the limits per address and in all;
//! answers that are not read.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use serde_json::json;
use steadfast::api::ApiLimits;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use crate::client::{Call, read_reply};
use crate::world::{Server, World};

const ADMIN: &str = "the-operators-own-token";

/// From one of the many addresses of the loopback.
async fn connect_from(last: [u8; 2], server: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    let source = Ipv4Addr::new(127, 0, last[0], last[1]);
    socket.bind(SocketAddr::new(IpAddr::V4(source), 0)).unwrap();
    let stream = socket.connect(server).await.unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

fn keep_alive(call: Call) -> Vec<u8> {
    call.replace_header("connection", "keep-alive").bytes()
}

/// Head and body in packets of their own, as many clients send them.
async fn send_in_two(stream: &mut TcpStream, request: &[u8]) {
    let end = request.windows(4).position(|window| window == b"\r\n\r\n").unwrap() + 4;
    stream.write_all(&request[..end]).await.unwrap();
    // Part of the scenario: the body is on its way while the head is being refused.
    tokio::time::sleep(Duration::from_millis(5)).await;
    // A server that has closed is found out by the next request.
    let _ = stream.write_all(&request[end..]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_connection_of_a_refused_request_can_be_used_again_or_says_that_it_cannot() {
    let world = World::sqlite().await;
    let server = world.server_with(|settings| settings.admin_token(ADMIN.to_owned())).await;
    let reader = json!({"name": "reader", "scopes": ["read"]});
    let reader = server.call("POST", "/tokens").token(ADMIN).json(&reader).send().await.expect(201);
    let reader = reader["token"].as_str().unwrap();
    let job = json!({"kind": "welcome", "payload": {"user": 42}});
    let large = json!({"kind": "welcome", "payload": "x".repeat(400 * 1024)});
    let unknown = json!({"kind": "nobody_knows", "payload": 1});
    let post = |path: &str| server.call("POST", path).token(ADMIN).json(&job);
    let cases = [
        (404, post("/nowhere")),
        (405, server.call("PATCH", "/jobs").token(ADMIN).json(&job)),
        (415, server.call("POST", "/jobs").token(ADMIN).text("text/plain", &job.to_string())),
        (415, post("/jobs").header("content-encoding", "gzip")),
        (400, post("/jobs/not-a-uuid/cancel")),
        (401, server.call("POST", "/jobs").token("wrong").json(&job)),
        (403, server.call("POST", "/jobs").token(reader).json(&job)),
        (413, server.call("POST", "/jobs").token(ADMIN).json(&large)),
        (422, server.call("POST", "/jobs").token(ADMIN).json(&unknown)),
    ];
    for (status, call) in cases {
        let request = keep_alive(call);
        for n in 0..30 {
            // Each from an address of its own, so that refusals are not throttled.
            let mut stream = connect_from([1, n + 1], server.address).await;
            send_in_two(&mut stream, &request).await;
            let reply = read_reply(&mut stream).await;
            assert_eq!(reply.status, status, "{reply:?}");
            if reply.header("connection") == Some("close") {
                continue;
            }
            stream.write_all(&keep_alive(server.call("GET", "/livez"))).await.unwrap();
            assert_eq!(read_reply(&mut stream).await.status, 200, "after {status}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_body_that_is_long_in_coming_closes_the_connection_and_the_answer_says_so() {
    let world = World::sqlite().await;
    let server = world.server().await;
    for headers in ["content-length: 100\r\n", "content-length: 2000000\r\n", "transfer-encoding: chunked\r\n"] {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream
            .write_all(format!("POST /nowhere HTTP/1.1\r\nhost: localhost\r\n{headers}\r\n").as_bytes())
            .await
            .unwrap();
        let reply = read_reply(&mut stream).await;
        reply.problem(404, "no_such_route");
        assert_eq!(reply.header("connection"), Some("close"), "{headers}");
    }
    // Who asks before sending is told at once, and not to send.
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let head = "POST /nowhere HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5\r\nexpect: 100-continue\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut start = [0; 12];
    stream.read_exact(&mut start).await.unwrap();
    assert_eq!(&start, b"HTTP/1.1 404");
}

/// A connection that has been used and is kept; `None` if the answer says that it is closed.
async fn held(server: &Server, source: [u8; 2]) -> Option<TcpStream> {
    let mut stream = connect_from(source, server.address).await;
    stream.write_all(&keep_alive(server.call("GET", "/livez"))).await.unwrap();
    let reply = read_reply(&mut stream).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    (reply.header("connection") != Some("close")).then_some(stream)
}

async fn ask_from(source: [u8; 2], call: Call, server: &Server) -> crate::client::Reply {
    let mut stream = connect_from(source, server.address).await;
    stream.write_all(&call.bytes()).await.unwrap();
    read_reply(&mut stream).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn beyond_the_connections_there_are_only_probes_and_workers_get_in() {
    let world = World::sqlite().await;
    let server = world.server_with(|settings| settings.limits(ApiLimits::default().connections(4))).await;
    let (here, there) = ([0, 1], [0, 2]);
    let mut places = Vec::new();
    for n in 0..3 {
        places.push(held(&server, here).await.unwrap_or_else(|| panic!("connection {n} is one too many")));
    }
    assert!(held(&server, here).await.is_none(), "one address has three quarters");
    places.push(held(&server, there).await.expect("the rest is for others"));
    for source in [here, there, [0, 3]] {
        for path in ["/livez", "/readyz", "/health"] {
            let reply = ask_from(source, server.call("GET", path), &server).await;
            assert_eq!((reply.status, reply.header("connection")), (200, Some("close")), "{path}");
        }
        let began = Instant::now();
        let lease = server.call("POST", "/leases").json(&json!({"worker": "w", "wait_ms": 30000}));
        ask_from(source, lease, &server).await.expect(200);
        assert!(began.elapsed() < Duration::from_secs(20), "a long poll holds the reserve for long");
        for call in [server.call("GET", "/jobs"), server.call("POST", "/jobs").json(&json!({"kind": "welcome"}))] {
            let reply = ask_from(source, call, &server).await;
            reply.problem(503, "overloaded");
            assert_eq!((reply.header("retry-after"), reply.header("connection")), (Some("1"), Some("close")));
        }
    }
    drop(places);
    let deadline = Instant::now() + Duration::from_secs(10);
    while server.get("/jobs").await.status != 200 {
        assert!(Instant::now() < deadline, "places are not given back");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_connections_do_not_keep_a_probe_out_of_the_reserve() {
    let world = World::sqlite().await;
    let server = world.server_with(|settings| settings.limits(ApiLimits::default().connections(1))).await;
    let _place = held(&server, [0, 1]).await.expect("the first one is served");
    let mut silent = Vec::new();
    for n in 0..200_u8 {
        let mut stream = connect_from([0, n / 100 + 1], server.address).await;
        stream.write_all(b"GET /livez HT").await.unwrap();
        silent.push(stream);
        if n % 10 == 0 {
            assert_eq!(ask_from([0, 1], server.call("GET", "/livez"), &server).await.status, 200);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_may_give_one_address_every_connection() {
    let world = World::sqlite().await;
    let server = world
        .server_with(|settings| settings.limits(ApiLimits::default().connections(4).connections_per_address(4)))
        .await;
    let mut places = Vec::new();
    for _ in 0..4 {
        places.push(held(&server, [0, 1]).await.expect("a proxy needs them all"));
    }
    assert!(held(&server, [0, 2]).await.is_none());
}

/// Asks for the job on so many connections and does not read the answers; says how many were given.
async fn unread(server: &Server, path: &str, count: usize) -> (Vec<TcpStream>, usize) {
    let (mut streams, mut given) = (Vec::new(), 0);
    for _ in 0..count {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(&keep_alive(server.call("GET", path))).await.unwrap();
        let mut start = [0; 12];
        while stream.peek(&mut start).await.unwrap() < 12 {}
        given += usize::from(start.ends_with(b"200"));
        streams.push(stream);
    }
    (streams, given)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_nobody_reads_use_up_the_readers_budget_and_no_other() {
    let world = World::sqlite().await;
    let server = world.server_with(|settings| settings.limits(ApiLimits::default().response_bytes(24 << 20))).await;
    let large = json!({"kind": "welcome", "payload": "x".repeat(255 * 1024), "queue": "large"});
    for _ in 0..32 {
        server.post("/jobs", large.clone()).await.expect(201);
    }
    let small = server.enqueue().await;
    let path = "/jobs?limit=30&queue=large";
    let (streams, given) = unread(&server, path, 8).await;
    assert_eq!(given, 2, "24 MiB are one page of 7.5 MiB and another being made");
    server.get(path).await.problem(503, "overloaded");
    // What is small, what is done and what workers are given does not depend on it.
    server.get(&format!("/jobs/{small}")).await.expect(200);
    server.get("/jobs?limit=1").await.expect(200);
    let id = server.post("/jobs", large).await.expect(201)["id"].as_str().unwrap().to_owned();
    assert_eq!(server.lease(30).await.len(), 30);
    assert_eq!(server.get("/metrics").await.status, 200);
    drop(streams);
    let deadline = Instant::now() + Duration::from_secs(10);
    while server.get(path).await.status != 200 {
        assert!(Instant::now() < deadline, "the budget is not given back");
    }
    server.get(&format!("/jobs/{id}")).await.expect(200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shutdown_does_not_wait_for_an_answer_that_nobody_reads_beyond_its_grace() {
    let world = World::sqlite().await;
    let server = world
        .server_with(|settings| {
            let limits = ApiLimits::default().response_bytes(4 << 20).shutdown_grace(Duration::from_secs(2));
            settings.limits(limits)
        })
        .await;
    let large = json!({"kind": "welcome", "payload": "x".repeat(255 * 1024)});
    for _ in 0..32 {
        server.post("/jobs", large.clone()).await.expect(201);
    }
    let mut poll = TcpStream::connect(server.address).await.unwrap();
    let lease = json!({"worker": "w", "queues": ["none"], "wait_ms": 30000});
    poll.write_all(&server.call("POST", "/leases").json(&lease).bytes()).await.unwrap();
    // Answered after it on connections of their own: by then it has been read.
    let (_streams, given) = unread(&server, "/jobs?limit=30", 3).await;
    assert_eq!(given, 1, "what is larger than the budget gets through alone");
    let began = Instant::now();
    server.stop().await.unwrap().unwrap();
    assert!(began.elapsed() < Duration::from_secs(20), "took {:?}", began.elapsed());
    assert_eq!(read_reply(&mut poll).await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_job_is_claimed_for_a_worker_while_others_do_not_read_theirs() {
    let world = World::sqlite().await;
    let server = world.server().await;
    let large = json!({"kind": "welcome", "payload": "x".repeat(255 * 1024)});
    for _ in 0..9 {
        server.post("/jobs/batch", json!({"jobs": vec![&large; 32]})).await.expect(200);
    }
    let lease = |max: usize| server.call("POST", "/leases").json(&json!({"worker": "w", "max": max}));
    let mut unread = Vec::new();
    for _ in 0..8 {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(&keep_alive(lease(32))).await.unwrap();
        let mut start = [0; 12];
        while stream.peek(&mut start).await.unwrap() < 12 {}
        assert!(start.ends_with(b"200"));
        unread.push(stream);
    }
    lease(4).send().await.problem(503, "overloaded");
    assert_eq!(server.get("/stats").await.expect(200)["totals"]["running"], 8 * 32);
    let beat = json!({"worker": "w", "leases": []});
    server.post("/leases/heartbeat", beat).await.expect(200);
    drop(unread);
    let deadline = Instant::now() + Duration::from_secs(10);
    while lease(4).send().await.status != 200 {
        assert!(Instant::now() < deadline, "the room is not given back");
    }
}
