//! The overview over HTTP: its shape, its stream, who may see it, and what it costs when nobody looks. Problems and series.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use serde_json::{Value, json};
use steadfast::Queue;
use steadfast::store::sqlite::{SqliteSettings, SqliteStore};
use steadfast::store::{Around, Call, StoreError, Wrapped};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::access::{closed_server, make_token};
use crate::on_every_store;
use crate::world::{Server, World};

on_every_store!(
    the_overview_has_everything_in_it,
    an_overview_that_has_not_changed_is_not_sent_again,
    a_stream_tells_of_a_change,
    a_revoked_token_ends_its_stream_within_two_seconds,
    a_shutdown_ends_streams_at_once,
    a_missing_worker_is_a_problem_until_it_is_there,
    series_add_up_to_what_ran,
    queues_and_kinds_say_what_is_going_on,
);

/// No wait of these tests takes longer, even on a slow machine.
const DEADLINE: Duration = Duration::from_secs(60);

/// A stream, and what was read of it.
struct Stream {
    socket: TcpStream,
    text: String,
}

impl Stream {
    async fn open(server: &Server, token: Option<&str>) -> Self {
        let mut call = server.call("GET", "/pulse/stream").replace_header("connection", "keep-alive");
        if let Some(token) = token {
            call = call.token(token);
        }
        let mut socket = TcpStream::connect(server.address).await.unwrap();
        socket.write_all(&call.bytes()).await.unwrap();
        let mut stream = Self { socket, text: String::new() };
        stream.until(|text| text.contains("\r\n\r\n")).await;
        stream
    }

    fn status(&self) -> u16 {
        self.text.split(' ').nth(1).unwrap().parse().unwrap()
    }

    /// Reads on; `false`: the server has ended it.
    async fn read(&mut self) -> bool {
        let mut chunk = vec![0; 64 * 1024];
        let n = tokio::time::timeout(DEADLINE, self.socket.read(&mut chunk)).await.unwrap().unwrap_or(0);
        self.text.push_str(&String::from_utf8_lossy(&chunk[..n]));
        n > 0
    }

    async fn until(&mut self, is_so: impl Fn(&str) -> bool) {
        let deadline = Instant::now() + DEADLINE;
        while !is_so(&self.text) {
            assert!(self.read().await && Instant::now() < deadline, "it ended with {}", self.text);
        }
    }

    /// Until the server has said that this was all.
    async fn end(&mut self) -> String {
        let deadline = Instant::now() + DEADLINE;
        while !self.text.ends_with("0\r\n\r\n") && self.read().await {
            assert!(Instant::now() < deadline, "it goes on");
        }
        self.text.clone()
    }

    /// The newest document.
    fn newest(&self) -> Option<Value> {
        self.text.lines().rev().find_map(|line| serde_json::from_str(line.strip_prefix("data: ")?).ok())
    }
}

async fn until(server: &Server, path: &str, is_so: impl Fn(&Value) -> bool) -> Value {
    let deadline = Instant::now() + DEADLINE;
    loop {
        let seen = server.get(path).await.expect(200);
        if is_so(&seen) {
            return seen;
        }
        assert!(Instant::now() < deadline, "it is still {seen}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn the_overview_has_everything_in_it(world: World) {
    let server = world.server().await;
    server.enqueue().await;
    server.enqueue().await;
    server.call("POST", "/queues/reports/pause").send().await.expect(200);
    let lease = server.lease(1).await.remove(0);
    server.settle(&lease, json!({"outcome": "succeeded"})).await;
    let pulse =
        until(&server, "/pulse", |pulse| pulse["totals"]["succeeded"] == 1 && pulse["workers"]["live"] == 1).await;
    assert!(pulse["at"].is_string() && pulse["version"].is_string(), "{pulse}");
    assert_eq!(
        (&pulse["ready"], &pulse["more_queues"], &pulse["more_problems"]),
        (&json!(true), &json!(false), &json!(0))
    );
    let queue = &pulse["queues"][0];
    assert_eq!((&queue["queue"], &queue["counts"]["queued"]), (&json!("default"), &json!(1)));
    assert_eq!(queue["due"], json!({"n": 1, "at_least": false}));
    assert_eq!(queue["workers"]["live"], 1);
    assert!(queue["oldest_ready_ms"].is_u64() && queue["wait_p95_ms"].is_number(), "{queue}");
    assert_eq!(queue["spark"].as_array().unwrap().len(), 30);
    assert_eq!(queue["spark"].as_array().unwrap().iter().filter_map(Value::as_u64).sum::<u64>(), 1);
    assert!(pulse["rates"]["enqueued_per_s"].as_f64().unwrap() > 0.0, "{pulse}");
    assert!(queue["rates"]["started_per_s"].as_f64().unwrap() > 0.0, "{queue}");
    let paused = &pulse["queues"][1];
    assert_eq!(
        (&paused["queue"], &paused["paused"], &paused["paused_by"]),
        (&json!("reports"), &json!(true), &json!("anyone"))
    );
    assert!(paused["paused_at"].is_string() && pulse["audit_seq"].is_i64(), "{pulse}");
    assert_eq!((&pulse["problems"], &pulse["operations"]), (&json!([]), &json!([])));
    assert_eq!(server.get("/problems").await.expect(200), json!([]));
    // An operation that waits for an operator.
    let body = json!({"action": "cancel", "filter": {"queue": "default"}, "rate": 1});
    let begun = server.post("/operations", body).await.expect(202);
    until(&server, "/pulse", |pulse| pulse["operations"][0]["id"] == begun["id"]).await;
}

async fn an_overview_that_has_not_changed_is_not_sent_again(world: World) {
    let server = world.server().await;
    let reply = server.get("/pulse").await;
    reply.expect(200);
    let etag = reply.header("etag").unwrap().to_owned();
    let again = || server.call("GET", "/pulse").header("if-none-match", &etag).send();
    let same = again().await;
    assert_eq!((same.status, same.body.as_str(), same.header("etag")), (304, "", Some(&*etag)));
    server.enqueue().await;
    let deadline = Instant::now() + DEADLINE;
    loop {
        let reply = again().await;
        if reply.status == 200 {
            assert_ne!(reply.header("etag"), Some(&*etag));
            break;
        }
        assert!(Instant::now() < deadline, "it never changes");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn a_stream_tells_of_a_change(world: World) {
    let server = world.server().await;
    let mut stream = Stream::open(&server, None).await;
    assert_eq!(stream.status(), 200);
    assert!(stream.text.to_ascii_lowercase().contains("content-type: text/event-stream"), "{}", stream.text);
    stream.until(|text| text.contains("retry: 3000") && text.contains("event: pulse")).await;
    assert_eq!(stream.newest().unwrap()["totals"]["queued"], 0);
    server.enqueue().await;
    stream.until(|text| text.contains("\"queued\":1")).await;
    // The document of the stream is that of the route.
    let shown = stream.newest().unwrap();
    let got = server.get("/pulse").await.expect(200);
    let keys = |json: &Value| json.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(&shown), keys(&got));
}

async fn a_revoked_token_ends_its_stream_within_two_seconds(world: World) {
    let server = closed_server(&world).await;
    let token = make_token(&server, &["read"]).await;
    let other = make_token(&server, &["read"]).await;
    let mut stream = Stream::open(&server, Some(&token)).await;
    let mut kept = Stream::open(&server, Some(&other)).await;
    stream.until(|text| text.contains("event: pulse")).await;
    let id = token.split_once('.').unwrap().0;
    server.queue.delete_token(id, steadfast::store::LastAdmin::Delete).await.unwrap();
    let revoked = Instant::now();
    let ended = stream.end().await;
    assert!(ended.contains("event: end\ndata: {\"reason\":\"unauthorized\"}"), "{ended}");
    // Generous: two seconds on a machine that is not busy with other tests.
    assert!(revoked.elapsed() < Duration::from_secs(10), "{:?}", revoked.elapsed());
    kept.until(|text| text.contains("event: pulse")).await;
}

async fn a_shutdown_ends_streams_at_once(world: World) {
    let server = world.server().await;
    let mut stream = Stream::open(&server, None).await;
    stream.until(|text| text.contains("event: pulse")).await;
    let began = Instant::now();
    let stopped = server.stop();
    assert!(stream.end().await.contains("event: end\ndata: {\"reason\":\"closing\"}"), "{}", stream.text);
    stopped.await.unwrap().unwrap();
    // Not the grace period of 30 s.
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
}

async fn a_missing_worker_is_a_problem_until_it_is_there(world: World) {
    let server = world.server().await;
    server.post("/jobs", json!({"kind": "welcome", "payload": 1, "queue": "images"})).await.expect(201);
    // Nobody is expected to be back sooner than after half a minute.
    let problems = until(&server, "/problems", |problems| problems[0]["code"] == "no_worker").await;
    let problem = &problems[0];
    assert_eq!((&problem["severity"], &problem["key"]), (&json!("red"), &json!("no_worker:images/welcome")));
    assert_eq!(problem["subject"], json!({"queue": "images", "kind": "welcome"}));
    assert!(problem["says"].as_str().unwrap().starts_with("No live worker takes welcome from images; 1 due job waits"));
    assert!(problem["since"].is_string() && problem["see"] == "/ui/workers" && problem["snoozed_until"].is_null());
    let pulse = server.get("/pulse").await.expect(200);
    assert_eq!(pulse["problems"][0]["key"], problem["key"]);
    // What is usually done about it can be done as it stands there.
    let call = &problem["do"][0];
    server.call(call["method"].as_str().unwrap(), call["path"].as_str().unwrap()).send().await.expect(200);
    until(&server, "/problems", |problems| problems == &json!([])).await;
}

async fn series_add_up_to_what_ran(world: World) {
    let server = world.server().await;
    for n in 0..20 {
        let queue = if n % 4 == 0 { "mail" } else { "default" };
        let job = json!({"kind": "welcome", "payload": n, "queue": queue, "max_attempts": 1});
        server.post("/jobs", job).await.expect(201);
    }
    for (n, lease) in server.lease(20).await.iter().enumerate() {
        let outcome = match n % 10 {
            0 => json!({"outcome": "failed", "error": "smtp 451"}),
            1 => json!({"outcome": "snoozed", "delay_ms": 3_600_000}),
            _ => json!({"outcome": "succeeded"}),
        };
        assert_eq!(server.settle(lease, outcome).await, "recorded");
    }
    let sum =
        |series: &Value, column: &str| series[column].as_array().unwrap().iter().filter_map(Value::as_u64).sum::<u64>();
    let check = |series: &Value| {
        for (column, expected) in [("enqueued", 20), ("started", 20), ("succeeded", 16), ("failed", 2), ("dead", 2)] {
            assert_eq!(sum(series, column), expected, "{column} of {series}");
        }
    };
    let series = server.get("/series").await.expect(200);
    check(&series);
    assert_eq!(
        (&series["step"], &series["step_ms"], &series["queue"]),
        (&json!("minute"), &json!(60_000), &Value::Null)
    );
    let t = series["t"].as_array().unwrap().len();
    assert!((60..=62).contains(&t), "{t}");
    for column in ["enqueued", "wait_p50_ms", "wait_p95_ms", "run_p50_ms", "run_p95_ms", "dead"] {
        assert_eq!(series[column].as_array().unwrap().len(), t, "{column}");
    }
    assert!(series["run_p95_ms"].as_array().unwrap().iter().any(Value::is_number), "{series}");
    assert_eq!(sum(&server.get("/series?queue=mail").await.expect(200), "started"), 5);
    assert_eq!(sum(&server.get("/series?queue=mail&kind=welcome").await.expect(200), "started"), 5);
    assert_eq!(sum(&server.get("/series?kind=welcome&step=hour").await.expect(200), "started"), 20);
    assert_eq!(sum(&server.get("/series?kind=other").await.expect(200), "started"), 0);
    // Another process sees it once it is written.
    server.queue.write_series().await.unwrap();
    let other = steadfast::store::ReadSeries::new(steadfast::store::SeriesOf::Total, jiff_hour_ago());
    let rows = server.queue.store().series(other).await.unwrap().rows;
    assert_eq!(rows.iter().map(|row| row.counts.started).sum::<u64>(), 20);
    check(&server.get("/series").await.expect(200));
    for bad in ["from=yesterday", "step=week", "queue=%2A", "x=1"] {
        server.get(&format!("/series?{bad}")).await.problem(400, "malformed");
    }
    server.get("/series?from=2020-01-01T00:00:00Z&step=minute").await.problem(422, "invalid_value");
}

fn jiff_hour_ago() -> jiff::Timestamp {
    jiff::Timestamp::now() - jiff::SignedDuration::from_hours(1)
}

async fn queues_and_kinds_say_what_is_going_on(world: World) {
    let server = world.server().await;
    server.enqueue().await;
    server.enqueue().await;
    let lease = server.lease(1).await.remove(0);
    server.settle(&lease, json!({"outcome": "failed", "error": "smtp 451", "permanent": true})).await;
    server.call("POST", "/queues/default/pause").send().await.expect(200);
    let queues = server.get("/queues").await.expect(200);
    assert_eq!((&queues[0]["due"]["n"], &queues[0]["paused_by"]), (&json!(1), &json!("anyone")), "{queues}");
    assert!(queues[0]["paused_at"].is_string() && queues[0]["drained_in_ms"].is_null(), "{queues}");
    assert!(queues[0]["rates"]["failed_per_s"].as_f64().unwrap() > 0.0, "{queues}");
    let kinds = server.get("/kinds").await.expect(200);
    let welcome = kinds.as_array().unwrap().iter().find(|kind| kind["kind"] == "welcome").unwrap();
    assert_eq!((&welcome["counts"]["queued"], &welcome["counts"]["failed_permanent"]), (&json!(1), &json!(1)));
    assert_eq!(welcome["failed_ratio"], 1.0, "{welcome}");
    assert!(welcome["run_p50_ms"].is_number() && welcome["run_p95_ms"].is_number(), "{welcome}");
    let built_in = kinds.as_array().unwrap().iter().find(|kind| kind["kind"] == "built_in").unwrap();
    assert!(built_in["failed_ratio"].is_null() && built_in["counts"]["queued"] == 0, "{built_in}");
}

/// Counts calls of the store.
#[derive(Debug, Default)]
struct Calls {
    looks: AtomicUsize,
    series: AtomicUsize,
    all: AtomicUsize,
}

#[async_trait]
impl Around for Calls {
    async fn before(&self, call: Call<'_>) -> Result<(), StoreError> {
        match call {
            Call::Pulse => _ = self.looks.fetch_add(1, Ordering::SeqCst),
            Call::WriteSeries(_) => _ = self.series.fetch_add(1, Ordering::SeqCst),
            _ => {}
        }
        self.all.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

async fn counting_server() -> (tempfile::TempDir, Server, Arc<Calls>) {
    let directory = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(SqliteSettings::at(directory.path().join("jobs.db"))).unwrap();
    let (wake, calls) = (store.wake().clone(), Arc::new(Calls::default()));
    let queue = Queue::over(Arc::new(Wrapped::new(Arc::new(store), calls.clone())), wake);
    (directory, World::server_on(queue, |settings| settings).await, calls)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_streams_share_one_look_a_second_and_nobody_watching_costs_nothing() {
    let (_directory, server, calls) = counting_server().await;
    let mut streams = Vec::new();
    let began = Instant::now();
    for _ in 0..100 {
        streams.push(Stream::open(&server, None).await);
    }
    for stream in &mut streams {
        stream.until(|text| text.contains("event: pulse")).await;
    }
    let (looks, took) = (calls.looks.load(Ordering::SeqCst), began.elapsed());
    assert!(looks as u64 <= took.as_secs() + 1, "{looks} looks in {took:?}");
    drop(streams);
    // It lingers for half a minute, and then there is nothing.
    let deadline = Instant::now() + 2 * DEADLINE;
    loop {
        let before = calls.all.load(Ordering::SeqCst);
        tokio::time::sleep(Duration::from_secs(4)).await;
        if calls.all.load(Ordering::SeqCst) == before {
            break;
        }
        assert!(Instant::now() < deadline, "somebody is still looking");
    }
    let looks = calls.looks.load(Ordering::SeqCst);
    server.get("/pulse").await.expect(200);
    assert!(calls.looks.load(Ordering::SeqCst) > looks, "it begins again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_257th_stream_is_refused_and_may_poll_instead() {
    let (_directory, server, _) = counting_server().await;
    let mut streams = Vec::new();
    for _ in 0..256 {
        streams.push(Stream::open(&server, None).await);
    }
    let refused = server.get("/pulse/stream").await;
    refused.problem(503, "overloaded");
    assert!(refused.header("retry-after").is_some());
    server.get("/pulse").await.expect(200);
    streams.pop();
    let deadline = Instant::now() + DEADLINE;
    loop {
        // A place becomes free once the server has noticed.
        let mut next = Stream::open(&server, None).await;
        if next.status() == 200 {
            next.until(|text| text.contains("event: pulse")).await;
            break;
        }
        assert!(Instant::now() < deadline, "its place is never free again");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn statistics_are_written_while_there_are_some_and_never_when_idle() {
    let (_directory, server, calls) = counting_server().await;
    for _ in 0..200 {
        server.enqueue().await;
    }
    let deadline = Instant::now() + DEADLINE;
    while calls.series.load(Ordering::SeqCst) == 0 {
        assert!(Instant::now() < deadline, "they are never written");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let written = calls.series.load(Ordering::SeqCst);
    assert!(written <= 3, "{written} writes for 200 jobs");
    // Longer than between two writes.
    tokio::time::sleep(Duration::from_secs(12)).await;
    assert!(calls.series.load(Ordering::SeqCst) <= written + 1, "nothing has happened since");
    let settled = calls.series.load(Ordering::SeqCst);
    tokio::time::sleep(Duration::from_secs(12)).await;
    assert_eq!(calls.series.load(Ordering::SeqCst), settled);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_that_does_not_read_is_closed_and_holds_nobody_up() {
    let (_directory, server, _) = counting_server().await;
    // A long document, so that the buffers of the sockets are full soon.
    for n in 0..200 {
        let queue = format!("{:0>60}", n);
        server.post("/jobs", json!({"kind": "welcome", "payload": n, "queue": queue})).await.expect(201);
    }
    let small = tokio::net::TcpSocket::new_v4().unwrap();
    small.set_recv_buffer_size(4096).unwrap();
    let mut small = small.connect(server.address).await.unwrap();
    let call = server.call("GET", "/pulse/stream").replace_header("connection", "keep-alive");
    small.write_all(&call.bytes()).await.unwrap();
    let mut reads = Stream::open(&server, None).await;
    // Every second there is something new: jobs wait for longer and longer. Ten seconds are given for one event, and twenty for what is
    // left of it to be written.
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(45) {
        reads.text.clear();
        reads.until(|text| text.contains("event: pulse")).await;
    }
    let (mut held, mut chunk) = (0, vec![0; 64 * 1024]);
    loop {
        let read = tokio::time::timeout(Duration::from_secs(20), small.read(&mut chunk)).await;
        match read.expect("it is neither written to nor closed") {
            Ok(0) | Err(_) => break,
            Ok(n) => held += n,
        }
        assert!(began.elapsed() < Duration::from_secs(240), "it is still open");
    }
    // What the sockets hold, and an event or two; not one for each of 45 seconds.
    assert!(held < 4 << 20, "{held} bytes were kept for it");
}
