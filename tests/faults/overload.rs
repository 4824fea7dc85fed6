//! More than the server can take: it says so and goes on. Memory stays within bounds, refusals say when to come back,
//! what was accepted is done, and no live lease runs out: workers' calls do not queue behind new jobs.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::json;
use steadfast::JobRequest;
use steadfast::job::{AttemptOutcome, Outcome, WorkerId};
use steadfast::store::{Beat, Claim, Extend, Extended, Settle, Settled, StatsRequest};

use crate::attackers::memory_kib;
use crate::customers::Customers;
use crate::flood;
use crate::players::{Part, Player, Script, Task};
use crate::producers::post;
use crate::programs::{World, get};
use crate::scale::{dice, quick_or_long, short_wait_timeout};
use crate::stage::{Stage, Store, wait_until_done};

/// 512 MiB: 256 MiB of request bodies are allowed, 4,096 connections have their buffers, and the rest is the server.
const MEMORY_MAX_KIB: u64 = 512 * 1024;
/// What is offered, times what is sustained.
const TIMES: f64 = 5.0;
/// 512 enqueues in flight: about what this server commits in a fifth of a second, as the default of 4,096 is for a
/// machine that is not shared with the flood.
const IN_FLIGHT: usize = 512;
/// 800: those beyond [`IN_FLIGHT`] are refused, and all fit into the usual limit of open files.
const CONNECTIONS: usize = 800;

/// 2 s: twice the shortest there is. Also the worker that hears its answers late must get some processor time between two.
const LEASE_MS: u64 = 2_000;

fn request(server: &str) -> Vec<u8> {
    let body = json!({ "kind": "task", "queue": "flood", "payload": { "work_ms": 0 } }).to_string();
    let host = server.trim_start_matches("http://");
    let head = format!("POST /jobs HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\n");
    format!("{head}content-length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

async fn f9(scenario: &str, stage: Stage) {
    let mut dice = dice(scenario);
    let script = Script { slots: 16, lease_ms: LEASE_MS, enqueues_in_flight: Some(IN_FLIGHT), ..stage.script() };
    let server = Player::start(Part::Server, &script);
    let remote = Player::start(Part::Remote, &Script { url: server.url.clone(), slots: 4, ..script.clone() });
    // Jobs that need their heartbeats, all the time.
    let task = |dice: &mut fastrand::Rng| Task { work_ms: dice.u64(LEASE_MS..2 * LEASE_MS), fail_percent: 0 };
    let customers = Customers::start(1, Duration::from_millis(500), &server.url, &mut dice, task);
    let calm = Duration::from_secs(quick_or_long(2, 10));
    let sustained = flood::back_to_back(&server.url, request(&server.url), 64, calm).await;
    let rate = sustained.accepted as f64 / calm.as_secs_f64();
    let time = Duration::from_secs(quick_or_long(8, 180));
    let mut told = flood::per_second(&server.url, request(&server.url), CONNECTIONS, time, TIMES * rate).await;
    let peak = memory_kib(server.pid(), "VmHWM:");
    let (p50, p99) = (told.percentile(50), told.percentile(99));
    println!(
        "{scenario}: sustained {rate:.0}/s, offered {:.0}/s for {time:?}: {} accepted (p50 {p50} ms, p99 {p99} ms), \
         refused {:?}, {} unanswered, {} found every connection waiting; at most {} MiB",
        told.offered() as f64 / time.as_secs_f64(),
        told.accepted,
        told.refused,
        told.unanswered,
        told.unsent,
        peak / 1024,
    );
    assert!(sustained.accepted > 0 && told.accepted > 0);
    assert!(peak < MEMORY_MAX_KIB, "{} MiB are more than {} MiB", peak / 1024, MEMORY_MAX_KIB / 1024);
    let odd: Vec<_> = told.refused.keys().filter(|refused| !matches!(refused, (429 | 503, true))).collect();
    assert!(odd.is_empty(), "refusals are 429 or 503 with Retry-After, and not {odd:?}");
    let history = customers.close();
    wait_until_done(&server.url);
    let (_, metrics) = get(&format!("{}/metrics", server.url), None);
    let expired = metrics.lines().find(|line| line.starts_with("leases_expired_total")).map(str::to_owned);
    drop(remote);
    server.stop();
    assert!(expired.as_deref().is_none_or(|line| line.ends_with(" 0")), "a live lease expired under load: {expired:?}");

    let queue = stage.queue().await;
    let stats = queue.stats(StatsRequest::new()).await.unwrap();
    let done: u64 =
        stats.queues.iter().filter(|(name, _)| name.as_str() == "flood").flat_map(|(_, q)| q.counts.values()).sum();
    let (least, most) = (sustained.accepted + told.accepted, sustained.unanswered + told.unanswered);
    assert!((least..=least + most).contains(&done), "lost: {least} accepted, {most} unanswered, {done} there");
    // The others are too many to look at one by one; these are the ones whose leases had to be kept.
    for (key, id) in &history.acknowledged {
        let tries = queue.attempts(*id).await.unwrap().expect("an acknowledged job is there");
        let expired = tries.iter().any(|one| one.outcome == Some(AttemptOutcome::LeaseExpired));
        assert!(!expired, "a live lease expired under load: {key} was started again: {tries:?}");
    }
    println!("{scenario}: {} jobs kept their leases", history.acknowledged.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f9_five_times_the_load_is_refused_in_order_and_costs_no_lease_on_sqlite() {
    f9("overload on sqlite", Stage::alone_on(Store::Sqlite).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f9_five_times_the_load_is_refused_in_order_and_costs_no_lease_on_postgresql() {
    f9("overload on postgresql", Stage::alone_on(Store::Postgres).await).await;
}

/// Who finds the queue of new connections full tries again after a second, when a lease of a second is over. The server
/// stands still meanwhile: this is about what the kernel keeps for it.
#[test]
fn f9_a_thousand_clients_that_come_at_once_all_get_a_connection_at_once() {
    let world = World::new();
    let server = world.serve(&[]);
    let address = server.url.trim_start_matches("http://").parse().unwrap();
    // It says where it is before it serves.
    assert_eq!(server.get("/livez").0, 200);
    server.signal("STOP");
    let mut connections = Vec::new();
    for n in 0..1_000 {
        match std::net::TcpStream::connect_timeout(&address, short_wait_timeout()) {
            Ok(connection) => connections.push(connection),
            Err(error) => panic!("only {n} of a thousand were let in: {error}"),
        }
    }
    server.signal("CONT");
    drop(connections);
    assert_eq!(server.get("/livez").0, 200);
    server.stop();
}

/// However many connections want something: here, all threads that serve them are taken, and stay so.
#[test]
fn f9_workers_and_probes_are_answered_while_every_thread_that_serves_others_is_busy() {
    const THREADS: usize = 2;
    let serving = tokio::runtime::Builder::new_multi_thread().worker_threads(THREADS).enable_all().build().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}", directory.path().join("jobs.db").display());
    let (server, queue) = serving.block_on(async {
        let queue = steadfast::Queue::open(&url).await.unwrap();
        queue.enqueue(Task { work_ms: 0, fail_percent: 0 }).await.unwrap();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = format!("http://{}", listener.local_addr().unwrap());
        let settings = steadfast::api::ApiSettings::new(queue.clone());
        tokio::spawn(async move { steadfast::api::serve(listener, settings, std::future::pending()).await.unwrap() });
        (server, queue)
    });
    assert_eq!(get(&format!("{server}/livez"), None).0, 200);
    let (taken, all_taken) = std::sync::mpsc::channel();
    let mut held = Vec::new();
    for _ in 0..THREADS {
        let (hold, until_dropped) = std::sync::mpsc::channel::<()>();
        let taken = taken.clone();
        serving.spawn(async move {
            taken.send(()).unwrap();
            let _ = until_dropped.recv();
        });
        held.push(hold);
    }
    (0..THREADS).for_each(|_| all_taken.recv().unwrap());
    let config = ureq::Agent::config_builder().http_status_as_error(false).proxy(None);
    let agent = config.timeout_global(Some(short_wait_timeout())).build().new_agent();
    let ask = |path: &str, body: serde_json::Value| {
        let answer = post(&agent, &format!("{server}{path}"), &body);
        let answer = answer.unwrap_or_else(|| panic!("{path} is not answered while others are served"));
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.body
    };
    let leased = ask("/leases", json!({ "worker": "w", "lease_ms": 1000 }));
    let lease = &leased["leases"][0];
    let mut proof = json!({ "job_id": lease["job"]["id"], "lease_token": lease["lease_token"] });
    let beaten = ask("/leases/heartbeat", json!({ "worker": "w", "leases": [proof] }));
    assert_eq!(beaten["leases"][0]["status"], "ok");
    proof["outcome"] = json!("succeeded");
    let settled = ask("/leases/settle", json!({ "worker": "w", "outcomes": [proof] }));
    assert_eq!(settled["outcomes"][0]["status"], "recorded");
    for probe in ["/livez", "/readyz", "/health"] {
        let answer = agent.get(format!("{server}{probe}")).header("connection", "close").call();
        assert_eq!(answer.unwrap_or_else(|_| panic!("{probe} is not answered")).status().as_u16(), 200);
    }
    drop(held);
    serving.shutdown_background();
    drop(queue);
}

/// Counted in calls, not in time: how many of the flood are answered before the heartbeat is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f9_heartbeats_and_settles_do_not_queue_behind_new_jobs() {
    const CALLS: usize = 3_000;
    const JOBS: usize = 10;
    let stage = Stage::on_sqlite().await;
    let queue = stage.queue().await;
    let job = Task { work_ms: 0, fail_percent: 0 };
    queue.enqueue(job.clone()).await.unwrap();
    let (worker, lease) = (WorkerId::new("w").unwrap(), Duration::from_secs(60));
    let claim = Claim::new(worker, lease).max(1);
    let lease = queue.store().claim(claim).await.unwrap().leases.pop().unwrap();
    // Checked beforehand, so that the calls are there faster than they can be answered.
    let mut calls = vec![Vec::new(); CALLS];
    for jobs in &mut calls {
        for _ in 0..JOBS {
            jobs.push(queue.prepare(JobRequest::of(&job).unwrap()).await.unwrap());
        }
    }
    // Nothing is answered until all of it is there.
    let file = rusqlite::Connection::open(stage.url.strip_prefix("sqlite://").unwrap()).unwrap();
    file.execute_batch("BEGIN IMMEDIATE").unwrap();
    let (sent, answered) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let mut flood = tokio::task::JoinSet::new();
    for jobs in calls {
        let (store, sent, answered) = (queue.store().clone(), sent.clone(), answered.clone());
        flood.spawn(async move {
            sent.fetch_add(1, Ordering::SeqCst);
            store.enqueue(jobs).await.unwrap();
            answered.fetch_add(1, Ordering::SeqCst);
        });
    }
    while sent.load(Ordering::SeqCst) < CALLS {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let before = answered.load(Ordering::SeqCst);
    let beating = queue.store().extend(Extend::new(vec![Beat::new(lease.key())]));
    let (beaten, ()) = tokio::join!(beating, async { file.execute_batch("ROLLBACK").unwrap() });
    assert_eq!(beaten.unwrap(), [Extended::Ok]);
    let settle = Settle::new(lease.key(), Outcome::succeeded(None));
    assert_eq!(queue.store().settle(vec![settle]).await.unwrap().pop().unwrap().unwrap(), Settled::Recorded);
    let behind = answered.load(Ordering::SeqCst) - before;
    flood.join_all().await;
    let waiting = CALLS - before;
    assert!(waiting > CALLS / 2, "the flood was over too soon: nothing was tested");
    assert!(4 * behind < 3 * waiting, "a heartbeat and a settle waited behind {behind} of {waiting} calls of new jobs");
}
