//! Somebody with the scope `enqueue` makes up the name of a new queue for every job, on many connections at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};

use crate::attackers::{ATTACKER, Client, GOOD};
use crate::programs::World;
use crate::scale::quick_or_long;
use crate::stage::Stage;

const ADMIN: &str = "the-operators-own-token";
const QUEUES_MAX: usize = 100;
const ATTACKERS: usize = 16;

fn job(queue: &str) -> Value {
    json!({"kind": "summarize_text", "payload": {"text": "t"}, "queue": queue})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s30_names_made_up_without_end_begin_as_many_queues_as_there_may_be_and_a_good_client_does_not_notice() {
    let stage = Stage::on_sqlite().await;
    let world = World::new();
    let server = world.serve(&[
        ("DATABASE_URL", &stage.url),
        ("STEADFAST_ADMIN_TOKEN", ADMIN),
        ("STEADFAST_EXECUTOR", "none"),
        ("STEADFAST_MAX_QUEUES", &QUEUES_MAX.to_string()),
        ("RUST_LOG", "warn"),
    ]);
    let good = Client::new(GOOD, &server.url, ADMIN);
    assert_eq!(good.post("/jobs", &job("good")).await.unwrap().status, 201);
    let made = good.post("/tokens", &json!({"name": "attacker", "scopes": ["enqueue"]})).await.unwrap();
    let token = serde_json::from_str::<Value>(&made.body).unwrap()["token"].as_str().unwrap().to_owned();
    let refused = Arc::new(AtomicU64::new(0));
    let rounds = quick_or_long(30, 1_000);
    let mut attackers = tokio::task::JoinSet::new();
    for attacker in 0..ATTACKERS {
        let (client, refused) = (Client::new(ATTACKER, &server.url, &token), refused.clone());
        attackers.spawn(async move {
            for n in 0..rounds {
                let Some(answer) = client.post("/jobs", &job(&format!("made-up-{attacker}-{n}"))).await else {
                    continue;
                };
                match answer.status {
                    201 => {}
                    429 => {
                        assert!(answer.has_header("retry-after: ") && answer.body.contains("too_many_queues"));
                        refused.fetch_add(1, Ordering::Relaxed);
                    }
                    other => panic!("a made-up queue is answered {other}: {}", answer.body),
                }
            }
        });
    }
    while !attackers.is_empty() {
        let answer = good.post("/jobs", &job("good")).await;
        assert_eq!(answer.map(|answer| answer.status), Some(201), "a good client is not served");
        while let Some(ended) = attackers.try_join_next() {
            ended.unwrap();
        }
    }
    let page: Value = serde_json::from_str(&good.get("/queues?limit=1000").await.unwrap().body).unwrap();
    let queues = page.as_array().unwrap().len();
    println!("{queues} queues, {} jobs refused", refused.load(Ordering::Relaxed));
    assert!(queues <= QUEUES_MAX, "{queues} queues were begun, at most {QUEUES_MAX} may be");
    assert_eq!(queues, QUEUES_MAX, "fewer queues than there may be");
    assert!(refused.load(Ordering::Relaxed) > 0);
    server.stop();
}
