//! What is signed, by whom it can be verified, and how secrets are rotated.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use serde_json::value::RawValue;
use steadfast::Status;
use steadfast::kinds::endpoint::{Directory, Endpoint, NamedSecret};
use steadfast::kinds::webhook::WebhookSettings;
use steadfast::kinds::webhook::signature::generate_ed25519;
use steadfast::kinds::{Secrets, WebhookDelivery};

use super::{OTHER_SECRET, SECRET, retry_after, retry_at_once, start, verifies, webhooks, webhooks_with};
use crate::receiver::{Receiver, Reply, Seen};
use crate::world::{World, node_directory, python_tool};

#[tokio::test(flavor = "multi_thread")]
async fn s22_the_bytes_that_arrive_are_those_that_were_signed_and_those_that_the_producer_wrote() {
    let bodies = [
        r#"{"b":1,"a":1e2,"n":12345678901234567890123}"#,
        r#"{ "spaces" : [ 1 , 2 ] , "tab": "\t", "escaped": "\u00e9\/", "plain": "é😀" }"#,
        r#""only text""#,
        "null",
        "-0.0",
    ];
    for world in World::both().await {
        let receiver = Receiver::always(Reply::status(204)).await;
        world.queue.declare::<WebhookDelivery>().await.unwrap();
        let worker = start(&world, &webhooks());
        let api = world.api().await;
        for body in bodies {
            let job = format!(
                r#"{{"kind":"webhook_delivery","payload":{{"url":"{}","body":{body},"secret":"{SECRET}"}}}}"#,
                receiver.url("/")
            );
            api.call("POST", "/jobs").text("application/json", &job).send().await.expect(201);
        }
        let seen = receiver.sees(bodies.len()).await;
        let mut arrived: Vec<_> = seen.iter().map(|seen| std::str::from_utf8(&seen.body).unwrap()).collect();
        arrived.sort_unstable();
        let mut written = bodies.to_vec();
        written.sort_unstable();
        assert_eq!(arrived, written);
        for seen in &seen {
            assert!(verifies(SECRET, seen), "{seen:?}");
            assert_eq!((seen.method.as_str(), seen.header("content-type")), ("POST", "application/json"));
            assert!(seen.header("user-agent").starts_with("Steadfast/"), "{seen:?}");
            assert_eq!(seen.header("accept-encoding"), "identity");
        }
        worker.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s22_the_id_stays_over_attempts_and_a_redrive_and_the_timestamp_moves() {
    let world = World::sqlite().await;
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    let receiver = Receiver::start(move |_| match counted.fetch_add(1, Ordering::SeqCst) {
        0 | 1 => Reply::status(404),
        _ => Reply::status(200),
    })
    .await;
    // More than a second: timestamps are whole ones.
    retry_after(&world, Duration::from_millis(1100)).await;
    let worker = start(&world, &webhooks());
    let delivery = WebhookDelivery::new(receiver.url("/"), json!({"n": 1})).secret(SECRET);
    let id = world.queue.enqueue(delivery).max_attempts(2).await.unwrap().job.id;
    assert_eq!(world.ends(id).await.status, Status::FailedPermanent);
    world.queue.redrive(id).await.unwrap();
    assert_eq!(world.reaches(id, Status::Succeeded).await.attempts, 1);
    let seen = receiver.sees(3).await;
    assert!(seen.iter().all(|seen| seen.header("webhook-id") == id.to_string()), "{seen:?}");
    assert!(seen.iter().all(|seen| verifies(SECRET, seen)), "{seen:?}");
    let timestamps: Vec<u64> = seen.iter().map(|seen| seen.header("webhook-timestamp").parse().unwrap()).collect();
    assert!(timestamps[0] < timestamps[1] && timestamps[1] <= timestamps[2], "{timestamps:?}");
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s44_while_a_secret_is_rotated_the_old_and_the_new_one_each_verify() {
    let world = World::sqlite().await;
    let receiver = Receiver::always(Reply::status(204)).await;
    retry_at_once(&world).await;
    let named = NamedSecret::new(OTHER_SECRET, ["shop.test"]).unwrap();
    let directory = Directory::new().with_secret("old", named).unwrap();
    let endpoint = Endpoint::new(&receiver.url("/endpoint")).unwrap().secret(SECRET).unwrap();
    let directory = directory.with_endpoint("crm", endpoint.secret(OTHER_SECRET).unwrap()).unwrap();
    let worker = start(&world, &webhooks_with(WebhookSettings::default(), directory));
    let mut two = WebhookDelivery::new(receiver.url_as("shop.test", "/two"), json!({}));
    two.secret = Some(Secrets::Several(vec![SECRET.into(), "old".into()]));
    let one = WebhookDelivery::new(receiver.url("/one"), json!({})).secret(SECRET);
    let none = WebhookDelivery::new(receiver.url("/none"), json!({}));
    for job in [two, one, none, WebhookDelivery::to_endpoint("crm", json!({}))] {
        let id = world.enqueue(job).await;
        assert_eq!(world.ends(id).await.status, Status::Succeeded);
    }
    let seen = receiver.sees(4).await;
    let by = |path: &str| seen.iter().find(|seen| seen.path == path).unwrap();
    for path in ["/two", "/endpoint"] {
        assert!(verifies(SECRET, by(path)) && verifies(OTHER_SECRET, by(path)), "{path}");
    }
    assert!(verifies(SECRET, by("/one")) && !verifies(OTHER_SECRET, by("/one")));
    assert!(!by("/none").headers.contains_key("webhook-signature"));
    assert!(by("/none").headers.contains_key("webhook-id"));
    worker.stop().await;
}

/// One message as `verify.py` and `verify.cjs` read it.
fn message(what: &str, seen: &Seen, body: &[u8], public: &str, good: bool) -> serde_json::Value {
    let names = ["webhook-id", "webhook-timestamp", "webhook-signature"];
    let headers: BTreeMap<_, _> = names.iter().map(|name| (*name, seen.header(name))).collect();
    let body = STANDARD.encode(body);
    json!({"what": what, "headers": headers, "body": body, "secrets": [SECRET, OTHER_SECRET], "public": public, "good": good})
}

/// Bodies of every sort, the last of them nearly as large as a payload may be.
fn bodies() -> Vec<String> {
    let mut random = fastrand::Rng::with_seed(17);
    let mut bodies = vec!["{}".to_owned(), "\"\"".into(), json!({"grüße": "日本語 😀 \u{202e}\0"}).to_string()];
    for _ in 0..20 {
        let length = random.usize(1..2000);
        let text: String = (0..length).map(|_| random.char(..)).collect();
        bodies.push(json!({"n": random.u64(..), "text": text}).to_string());
    }
    bodies.push(json!("é".repeat(120_000)).to_string());
    bodies
}

fn raw(text: &str) -> Box<RawValue> {
    RawValue::from_string(text.to_owned()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn s44_signatures_are_verified_by_the_libraries_of_rust_python_and_javascript() {
    let world = World::sqlite().await;
    retry_at_once(&world).await;
    let receiver = Receiver::always(Reply::status(204)).await;
    let pair = generate_ed25519().unwrap();
    let worker = start(&world, &webhooks());
    let mut messages = Vec::new();
    for (n, body) in bodies().into_iter().enumerate() {
        let mut job = WebhookDelivery::new(receiver.url("/"), json!(null)).raw_body(raw(&body));
        job.secret = Some(Secrets::Several(vec![SECRET.into(), pair.private.clone(), OTHER_SECRET.into()]));
        let id = world.enqueue(job).await;
        assert_eq!(world.ends(id).await.status, Status::Succeeded);
        let seen = receiver.seen().remove(n);
        assert_eq!(seen.body, body);
        assert!(verifies(SECRET, &seen) && verifies(OTHER_SECRET, &seen), "message {n}");
        messages.push(message(&format!("message {n}"), &seen, &seen.body, &pair.public, true));
        let changed = Seen { body: [&seen.body[..], b" "].concat().into(), ..seen.clone() };
        assert!(!verifies(SECRET, &changed), "message {n}");
        messages.push(message(&format!("message {n}, changed"), &seen, &changed.body, &pair.public, false));
    }
    worker.stop().await;
    let directory = tempfile::TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = directory.path().join("messages.json");
    std::fs::write(&path, json!(messages).to_string()).unwrap();
    let verifying = move || {
        let (python, node) = (python_tool("python3"), node_directory());
        let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kinds");
        let by_python = Command::new(python).arg(tests.join("verify.py")).arg(&path).output();
        let mut by_node = Command::new("node");
        let by_node = by_node.arg(tests.join("verify.cjs")).arg(&path).arg(node).output();
        [by_python.unwrap(), by_node.unwrap()]
    };
    for output in tokio::task::spawn_blocking(verifying).await.unwrap() {
        assert!(output.status.success(), "{output:?}");
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), messages.len().to_string(), "{output:?}");
    }
}
