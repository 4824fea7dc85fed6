//! Caps on the whole store: queues, waiting jobs, kinds and tokens. Whoever makes up names or sends without end is refused
//! and told why; what there is goes on.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use steadfast::job::limits::{KINDS_MAX, TOKENS_MAX};
use steadfast::job::{Kind, KindDefinition, QueueName};
use steadfast::queue::{EnqueueError, LimitReached, PauseError};
use steadfast::store::{
    Around, Call, PutKind, PutToken, StatsRequest, StoreError, StoreErrorKind, TokenRecord, Wrapped,
};
use steadfast::{JobRequest, Json, Queue};

use crate::client::Reply;
use crate::on_every_store;
use crate::world::{Server, World};

on_every_store!(
    made_up_queues_are_429_at_the_cap_while_those_that_exist_go_on,
    a_batch_that_would_begin_one_queue_too_many_is_refused_whole,
    a_known_key_is_answered_at_the_cap_and_begins_no_queue,
    pausing_counts_queues_and_never_refuses_one_that_exists,
    what_was_not_stored_begins_no_queue,
    all_queues_together_are_full_at_their_depth,
    one_kind_and_one_token_too_many_are_429,
    a_store_that_is_down_is_not_asked_for_its_queues_again_and_again,
);

fn job(queue: &str) -> Value {
    json!({"kind": "welcome", "payload": 1, "queue": queue})
}

async fn capped(world: &World, queues: u64) -> Server {
    World::server_on(world.queue_builder().max_queues(Some(queues)).open().await.unwrap(), |settings| {
        settings.admin_token("admin".to_owned())
    })
    .await
}

async fn post(server: &Server, token: &str, path: &str, body: &Value) -> Reply {
    server.call("POST", path).token(token).json(body).send().await
}

/// Refused, by name and with the way out.
fn assert_too_many(reply: &Reply, max: u64) {
    let problem = reply.problem(429, "too_many_queues");
    let detail = problem["detail"].as_str().unwrap();
    assert!(
        detail.contains(&format!("max_queues) is {max}")) && detail.contains("use a queue that exists"),
        "{detail}"
    );
    assert!(reply.header("retry-after").is_some());
}

/// Waits for what the server notices within about a second.
async fn eventually(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_so().await {
        assert!(Instant::now() < deadline, "{what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn queue_count(queue: &Queue) -> usize {
    queue.stats(StatsRequest::new()).await.unwrap().queues.len()
}

async fn made_up_queues_are_429_at_the_cap_while_those_that_exist_go_on(world: World) {
    let server = capped(&world, 20).await;
    let made = post(&server, "admin", "/tokens", &json!({"name": "p", "scopes": ["enqueue"]})).await.expect(201);
    let token = made["token"].as_str().unwrap();
    let mut refused = 0;
    for n in 0..60 {
        let reply = post(&server, token, "/jobs", &job(&format!("made-up-{n}"))).await;
        if reply.status != 201 {
            assert_too_many(&reply, 20);
            refused += 1;
        }
    }
    assert_eq!((refused, queue_count(&server.queue).await), (40, 20));
    for n in 0..20 {
        post(&server, token, "/jobs", &job(&format!("made-up-{n}"))).await.expect(201);
    }
    // A queue is gone with its last job, and makes room.
    let lease = server.call("POST", "/leases").token("admin");
    let lease = lease.json(&json!({"worker": "w", "queues": ["made-up-3"], "max": 10})).send().await.expect(200);
    for lease in lease["leases"].as_array().unwrap() {
        let id = &lease["job"]["id"];
        let outcome = json!({"job_id": id, "lease_token": lease["lease_token"], "outcome": "succeeded"});
        post(&server, "admin", "/leases/settle", &json!({"worker": "w", "outcomes": [outcome]})).await.expect(200);
        let path = format!("/jobs/{}", id.as_str().unwrap());
        server.call("DELETE", &path).token("admin").send().await.expect(204);
    }
    eventually("room for a queue is not noticed", async || {
        post(&server, token, "/jobs", &job("later")).await.status == 201
    })
    .await;
    assert_too_many(&post(&server, token, "/jobs", &job("made-up-3")).await, 20);
}

async fn a_batch_that_would_begin_one_queue_too_many_is_refused_whole(world: World) {
    let server = capped(&world, 3).await;
    let batch = |queues: &[&str]| json!({"jobs": queues.iter().map(|queue| job(queue)).collect::<Vec<_>>()});
    let send = async |queues: &[&str]| post(&server, "admin", "/jobs/batch", &batch(queues)).await;
    assert_too_many(&send(&["a", "b", "c", "d"]).await, 3);
    assert_eq!(queue_count(&server.queue).await, 0);
    send(&["a", "b", "a", "b", "a"]).await.expect(200);
    assert_too_many(&send(&["a", "c", "d"]).await, 3);
    send(&["c", "a", "c"]).await.expect(200);
    assert_too_many(&send(&["d"]).await, 3);
}

async fn a_known_key_is_answered_at_the_cap_and_begins_no_queue(world: World) {
    let server = capped(&world, 1).await;
    let keyed =
        |key: &str, queue: &str| json!({"kind": "welcome", "payload": 1, "queue": queue, "idempotency_key": key});
    let first = post(&server, "admin", "/jobs", &keyed("k", "one")).await.expect(201);
    // The queue is not part of what a key stands for: it is a replay, wherever it would have gone.
    let replay = post(&server, "admin", "/jobs", &keyed("k", "two")).await.expect(200);
    assert_eq!(replay["id"], first["id"]);
    let batch = json!({"jobs": [keyed("k", "three"), keyed("k2", "one")]});
    post(&server, "admin", "/jobs/batch", &batch).await.expect(200);
    assert_too_many(&post(&server, "admin", "/jobs", &keyed("new", "two")).await, 1);
    assert_eq!(queue_count(&server.queue).await, 1);
}

async fn pausing_counts_queues_and_never_refuses_one_that_exists(world: World) {
    let server = capped(&world, 2).await;
    let act = async |path: &str| server.call("POST", path).token("admin").send().await;
    post(&server, "admin", "/jobs", &job("a")).await.expect(201);
    act("/queues/b/pause").await.expect(200);
    assert_too_many(&act("/queues/c/pause").await, 2);
    assert_too_many(&post(&server, "admin", "/jobs", &job("c")).await, 2);
    act("/queues/a/pause").await.expect(200);
    act("/queues/b/pause").await.expect(200);
    act("/queues/b/resume").await.expect(200);
    // Another process begins a queue; this one has not read the list since, and pauses it all the same.
    let unchecked = server.queue.prepare(request("elsewhere")).await.unwrap();
    server.queue.store().enqueue(vec![unchecked]).await.unwrap();
    act("/queues/elsewhere/pause").await.expect(200);
    assert_eq!(queue_count(&server.queue).await, 2, "an empty queue that was resumed is gone");
}

/// Fails one verb of the store, and counts how often it is called.
#[derive(Debug, Default)]
struct FailingVerb {
    verb: Mutex<Option<&'static str>>,
    calls: AtomicUsize,
}

impl FailingVerb {
    fn set(&self, verb: Option<&'static str>) {
        *self.verb.lock().unwrap() = verb;
    }

    async fn capped(world: &World, queues: u64) -> (Queue, Arc<Self>) {
        let (real, failing) = (world.queue().await, Arc::<Self>::default());
        let store = Arc::new(Wrapped::new(real.store().clone(), failing.clone()));
        let queue = world.queue_builder().max_queues(Some(queues)).over(store, real.wake().clone()).unwrap();
        queue.put_kind(KindDefinition::any(Kind::new("welcome").unwrap())).await.unwrap();
        (queue, failing)
    }
}

#[async_trait::async_trait]
impl Around for FailingVerb {
    async fn before(&self, call: Call<'_>) -> Result<(), StoreError> {
        if *self.verb.lock().unwrap() != Some(call.verb()) {
            return Ok(());
        }
        self.calls.fetch_add(1, Ordering::SeqCst);
        Err(StoreError::new(StoreErrorKind::Unavailable, call.verb()))
    }
}

fn request(queue: &str) -> JobRequest {
    JobRequest::new("welcome", Json::null()).queue(queue)
}

async fn what_was_not_stored_begins_no_queue(world: World) {
    let (queue, failing) = FailingVerb::capped(&world, 1).await;
    failing.set(Some("enqueue"));
    assert!(matches!(queue.enqueue_request(request("lost")).await, Err(EnqueueError::Store(_))));
    failing.set(Some("pause"));
    assert!(matches!(queue.pause(QueueName::new("neither").unwrap()).await, Err(PauseError::Store(_))));
    failing.set(None);
    queue.enqueue_request(request("kept")).await.unwrap();
    let refused = queue.enqueue_request(request("lost")).await.unwrap_err();
    assert!(matches!(refused, EnqueueError::OverLimit(LimitReached::Queues { queues: 1, max: 1, .. })), "{refused}");
}

async fn all_queues_together_are_full_at_their_depth(world: World) {
    let queue = world.queue_builder().max_depth(Some(4)).max_queue_depth(Some(3)).open().await.unwrap();
    let server = World::server_on(queue, |settings| settings).await;
    for queue in ["a", "a", "b"] {
        server.post("/jobs", job(queue)).await.expect(201);
    }
    let two = json!({"jobs": [job("b"), job("c")]});
    let reply = server.post("/jobs/batch", two).await;
    let problem = reply.problem(429, "too_many_jobs");
    assert!(problem["detail"].as_str().unwrap().contains("3 jobs wait in all queues"), "{problem}");
    assert!(reply.header("retry-after").is_some());
    let keyed = json!({"kind": "welcome", "payload": 1, "queue": "c", "idempotency_key": "k"});
    server.post("/jobs", keyed.clone()).await.expect(201);
    server.post("/jobs", job("c")).await.problem(429, "too_many_jobs");
    server.post("/jobs", keyed).await.expect(200);
    server.call("POST", "/queues/new/pause").send().await.expect(200);
    for lease in server.lease(1).await {
        assert_eq!(server.settle(&lease, json!({"outcome": "succeeded"})).await, "recorded");
    }
    eventually("room is not noticed", async || server.post("/jobs", job("c")).await.status == 201).await;
}

async fn one_kind_and_one_token_too_many_are_429(world: World) {
    let server = capped(&world, 10).await;
    let store = server.queue.store();
    // One kind, `welcome`, is declared already; built-in ones do not count.
    for n in 1..KINDS_MAX {
        let kind = KindDefinition::any(Kind::new(format!("k{n}")).unwrap());
        store.put_kind(PutKind::new(kind)).await.unwrap();
    }
    let put = async |kind: &str| {
        server.call("PUT", &format!("/kinds/{kind}")).token("admin").json(&json!({"priority": 1})).send().await
    };
    let reply = put("one-more").await;
    let problem = reply.problem(429, "too_many_kinds");
    assert!(problem["detail"].as_str().unwrap().contains("delete one"), "{problem}");
    assert!(reply.header("retry-after").is_some());
    put("welcome").await.expect(200);
    server.call("DELETE", "/kinds/k7").token("admin").send().await.expect(204);
    put("one-more").await.expect(201);

    for n in 0..TOKENS_MAX {
        store.put_token(PutToken::new(TokenRecord::new(format!("t{n}"), "t", [0; 32]))).await.unwrap();
    }
    let make = async || post(&server, "admin", "/tokens", &json!({"name": "t", "scopes": ["read"]})).await;
    let problem = make().await.problem(429, "too_many_tokens");
    assert!(problem["detail"].as_str().unwrap().contains("revoke one"), "{problem}");
    server.call("DELETE", "/tokens/t7").token("admin").send().await.expect(204);
    make().await.expect(201);
}

async fn a_store_that_is_down_is_not_asked_for_its_queues_again_and_again(world: World) {
    let (queue, failing) = FailingVerb::capped(&world, 100).await;
    failing.set(Some("stats"));
    let began = Instant::now();
    for n in 0..500 {
        let refused = queue.enqueue_request(request(&format!("q{n}"))).await;
        assert!(matches!(refused, Err(EnqueueError::Store(_))), "{refused:?}");
    }
    // A failed read is remembered for a fifth of a second.
    let (reads, allowed) = (failing.calls.load(Ordering::SeqCst), 1 + began.elapsed().as_millis() / 200);
    assert!((1..=allowed).contains(&(reads as u128)), "{reads} reads in {:?}", began.elapsed());
    failing.set(None);
    eventually("it does not recover", async || queue.enqueue_request(request("q")).await.is_ok()).await;
    // What was read stays good enough while the store cannot be read.
    failing.set(Some("stats"));
    queue.enqueue_request(request("q")).await.unwrap();
    queue.enqueue_request(request("another")).await.unwrap();
}

/// Each process reads what there is about once a second, and does not see what others have begun since.
#[cfg(feature = "postgres")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_exceed_the_cap_by_no_more_than_each_begins_before_it_looks_again() {
    let world = World::postgres().await;
    let (one, other) = (capped(&world, 30).await, capped(&world, 30).await);
    let mut is_closed = [false; 2];
    for n in 0..200 {
        for (server, is_closed) in [&one, &other].into_iter().zip(&mut is_closed) {
            let reply = post(server, "admin", "/jobs", &job(&format!("{n}-{}", server.address.port()))).await;
            *is_closed = reply.status != 201;
            if *is_closed {
                assert_too_many(&reply, 30);
            }
        }
    }
    assert_eq!(is_closed, [true; 2]);
    let queues = queue_count(&one.queue).await;
    assert!((30..=60).contains(&queues), "{queues} queues");
    // From then on both know, whatever they are sent.
    eventually("one does not see what the other has begun", async || {
        let reply = post(&other, "admin", "/jobs", &job("one-more")).await;
        reply.status == 429 && reply.body.contains(&format!("there are {queues} queues"))
    })
    .await;
    assert_eq!(queue_count(&one.queue).await, queues);
}
