//! Payloads and schemas made to be expensive, from several clients at once, against the real server: it refuses them and
//! goes on. Probes are answered, a worker over HTTP keeps its lease, and memory stays where it was.
//!
//! Which schemas and payloads are refused, and how, is tested in `src/queue/payload_check_cases.rs`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use crate::attackers::memory_kib;
use crate::producers::{agent, post, send_text};
use crate::programs::{Running, World, get};
use crate::scale::quick_or_long;
use crate::stage::{Stage, Store};

/// 64 MiB more than before the attack.
const GROWTH_MAX_KIB: u64 = 64 * 1024;
/// 200 ms for 99 of 100 probes.
const PROBE_MAX: Duration = Duration::from_millis(200);
const LEASE_MS: u64 = 5_000;

/// Alternatives that refer to themselves: the errors of a wrong leaf triple with every level.
fn rules() -> Value {
    let node = |name| {
        let properties = json!({ "child": { "$ref": "#/$defs/rule" }, "type": { "const": name } });
        json!({ "type": "object", "required": ["type", "child"], "properties": properties })
    };
    let leaf = json!({ "type": "object", "required": ["type"], "properties": { "type": { "const": "leaf" } },
        "additionalProperties": false });
    json!({ "$defs": { "rule": { "oneOf": [node("and"), node("or"), node("not"), leaf] } }, "$ref": "#/$defs/rule" })
}

fn rule(leaf: &str) -> Value {
    (0..11).fold(json!({ "type": leaf }), |child, _| json!({ "child": child, "type": "not" }))
}

/// Twice the next, 27 times: short to write, and 134 million schemas to go through.
fn doubling() -> Value {
    let twice = |n| {
        let next = json!({ "$ref": format!("#/$defs/a{}", n + 1) });
        (format!("a{n}"), json!({ "allOf": [next, next] }))
    };
    let definitions: Map<_, _> = (0..27).map(twice).chain([("a27".to_owned(), json!(true))]).collect();
    json!({ "$defs": definitions, "$ref": "#/$defs/a0" })
}

fn alternatives() -> Value {
    let types = ["string", "boolean", "null", "object"].map(|name| json!({ "type": name }));
    json!({ "items": { "anyOf": types } })
}

/// Every name is matched against every pattern, four times.
fn patterns() -> Value {
    let patterns: Map<_, _> = (0..100).map(|n| (format!("x{n}y+z"), json!(true))).collect();
    let all = vec![json!({ "$ref": "#/$defs/names" }); 4];
    json!({ "$defs": { "names": { "patternProperties": patterns } }, "allOf": all })
}

/// 42 KiB of names.
fn names() -> Value {
    Value::Object((0..3_000).map(|n| (format!("name-{n:04}"), json!(1))).collect())
}

fn numbers(count: usize) -> Value {
    Value::Array(vec![json!(0); count])
}

/// Path and body: one client each.
fn attacks() -> [(&'static str, String); 7] {
    // 4 KiB each, small enough to be checked in place: a thousand of them are not.
    let elements: Vec<_> = vec![json!({}); 1_300].into_iter().chain([json!(0)]).collect();
    let small = json!({ "kind": "alternatives", "payload": elements });
    let mail = json!({ "kind": "send_email", "payload": { "to": numbers(125_001), "subject": "s", "body": "b" } });
    [
        ("/jobs", json!({ "kind": "rule", "payload": rule("leef") }).to_string()),
        ("/jobs/batch", json!({ "jobs": vec![mail; 31] }).to_string()),
        ("/jobs/batch", json!({ "jobs": vec![small; 1_000] }).to_string()),
        // Had it not been refused, its kind would be there.
        ("/jobs", json!({ "kind": "doubling", "payload": 1 }).to_string()),
        ("/jobs", json!({ "kind": "alternatives", "payload": numbers(131_000) }).to_string()),
        // Takes all that is allowed, every time.
        ("/jobs", json!({ "kind": "patterns", "payload": names() }).to_string()),
        ("/jobs", json!({ "kind": "patterns", "payload": names() }).to_string()),
    ]
}

fn put_kind(server: &Running, kind: &str, schema: &Value) -> (u16, Value) {
    let body = json!({ "schema": schema }).to_string();
    let url = format!("{}/kinds/{kind}", server.url);
    let mut response = agent().put(&url).header("content-type", "application/json").send(&body).unwrap();
    let text = response.body_mut().read_to_string().unwrap();
    (response.status().as_u16(), serde_json::from_str(&text).unwrap())
}

/// Does something again and again until it is over.
struct Loop<T> {
    thread: JoinHandle<T>,
}

impl<T: Send + 'static> Loop<T> {
    fn start(over: &Arc<AtomicBool>, mut found: T, mut turn: impl FnMut(&mut T) + Send + 'static) -> Self {
        let over = over.clone();
        let thread = std::thread::spawn(move || {
            while !over.load(Ordering::SeqCst) {
                turn(&mut found);
            }
            found
        });
        Self { thread }
    }

    fn end(self) -> T {
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

/// Takes the one job of the kind `held` and beats for it, as a worker of any language does.
fn keep_a_lease(server: &Running, over: &Arc<AtomicBool>) -> Loop<Vec<String>> {
    let (agent, url) = (agent(), server.url.clone());
    let ask = json!({ "worker": "host-1", "kinds": ["held"], "max": 1, "lease_ms": LEASE_MS });
    let lease = post(&agent, &format!("{url}/leases"), &ask).unwrap().body["leases"][0].clone();
    let held = json!({ "job_id": lease["job"]["id"], "lease_token": lease["lease_token"] });
    Loop::start(over, Vec::new(), move |answers| {
        let beat = json!({ "worker": "host-1", "leases": [held] });
        let answer = post(&agent, &format!("{url}/leases/heartbeat"), &beat).unwrap();
        answers.push(answer.body["leases"][0]["status"].as_str().unwrap_or_default().to_owned());
        std::thread::sleep(Duration::from_millis(LEASE_MS / 5));
    })
}

async fn s28(scenario: &str, store: Store) {
    let stage = Stage::alone_on(store).await;
    let world = World::new();
    let server = world.serve(&[("DATABASE_URL", &stage.url), ("STEADFAST_EXECUTOR", "none")]);
    let kinds = [("rule", rules()), ("alternatives", alternatives()), ("patterns", patterns()), ("held", json!({}))];
    for (kind, schema) in kinds {
        assert_eq!(put_kind(&server, kind, &schema).0, 201);
    }
    let began = Instant::now();
    let (status, refusal) = put_kind(&server, "doubling", &doubling());
    let reason = refusal["detail"].as_str().unwrap_or_default();
    assert!(status == 422 && reason.contains("unfolds to more than"), "{status} {refusal}");
    assert!(began.elapsed() < Duration::from_secs(10), "refused after {:?}", began.elapsed());
    // What looks like the attack and is none.
    for (kind, payload) in [("rule", rule("leaf")), ("alternatives", json!([null, true, "x"])), ("held", json!({}))] {
        assert_eq!(server.post("/jobs", &json!({ "kind": kind, "payload": payload })).0, 201);
    }

    let over = Arc::new(AtomicBool::new(false));
    let (pid, before) = (server.pid(), memory_kib(server.pid(), "VmRSS:"));
    let grown = Arc::new(AtomicU64::new(0));
    let lease = keep_a_lease(&server, &over);
    let probes = Loop::start(&over, Vec::new(), {
        let url = format!("{}/livez", server.url);
        // A probe on the workers' lane, and the same question on the threads that the attacked requests are on.
        let (on_lane, beside_attacks) = (agent(), agent());
        move |took: &mut Vec<Duration>| {
            let began = Instant::now();
            assert_eq!(on_lane.get(&url).call().unwrap().status().as_u16(), 200);
            let answered = Instant::now();
            assert_eq!(beside_attacks.head(&url).call().unwrap().status().as_u16(), 200);
            took.extend([answered - began, answered.elapsed()]);
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    let memory = Loop::start(&over, (), {
        let grown = grown.clone();
        move |()| {
            grown.fetch_max(memory_kib(pid, "VmRSS:").saturating_sub(before), Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(5));
        }
    });
    let clients = attacks().map(|(path, body)| {
        let (agent, url) = (agent(), format!("{}{path}", server.url));
        Loop::start(&over, Vec::new(), move |answers| answers.push(send_text(&agent, &url, &body)))
    });
    let end = Instant::now() + Duration::from_secs(quick_or_long(15, 120));
    while Instant::now() < end && grown.load(Ordering::SeqCst) <= GROWTH_MAX_KIB {
        std::thread::sleep(Duration::from_millis(20));
    }
    over.store(true, Ordering::SeqCst);
    let grown = grown.load(Ordering::SeqCst);
    memory.end();
    let mut took = probes.end();
    took.sort_unstable();
    let p99 = took[(took.len() - 1) * 99 / 100];
    let told = clients.map(Loop::end);
    let beats = lease.end();
    println!(
        "{scenario}: attacks {:?}, {} probes with p99 {p99:?} and at most {:?}, memory +{} MiB, {} beats",
        told.each_ref().map(Vec::len),
        took.len(),
        took[took.len() - 1],
        grown / 1024,
        beats.len()
    );
    // Told together: the same bug can show first in either.
    let mut harm = Vec::new();
    if p99 >= PROBE_MAX {
        harm.push(format!("probes wait: p99 {p99:?} of {}", took.len()));
    }
    if grown > GROWTH_MAX_KIB {
        harm.push(format!("memory grew by {} MiB", grown / 1024));
    }
    assert!(harm.is_empty(), "{scenario}: {}", harm.join("; "));
    assert!(beats.iter().all(|answer| answer == "ok"), "{scenario}: a lease was lost: {beats:?}");
    for (attack, answers) in told.iter().enumerate() {
        assert!(!answers.is_empty(), "{scenario}: attack {attack} was never answered");
        for answer in answers {
            let answer = answer.as_ref().unwrap_or_else(|| panic!("{scenario}: attack {attack} got no answer"));
            let overloaded = answer.status == 503 && answer.body["code"] == "overloaded";
            let (status, detail) = (answer.status, &answer.body["detail"]);
            assert!(status == 422 || overloaded, "{scenario}: attack {attack}: {status} {detail}");
        }
    }
    let (status, _) = get(&format!("{}/readyz", server.url), None);
    assert_eq!(status, 200);
    server.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s28_expensive_payloads_from_several_clients_cost_no_lease_no_probe_and_no_memory_on_sqlite() {
    s28("payload attacks on sqlite", Store::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s28_expensive_payloads_from_several_clients_cost_no_lease_no_probe_and_no_memory_on_postgresql() {
    s28("payload attacks on postgresql", Store::Postgres).await;
}
