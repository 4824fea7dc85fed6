//! Secrets appear nowhere: marked strings go through every path, then everything that comes out is searched.

use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex};

use serde_json::json;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::world::World;

const ADMIN: &str = "canary-admin-7f3a9c";
const PAYLOAD: &str = "canary-payload-51be20";
const GUESS: &str = "canary-guess-c0ffee";

/// Everything that is logged, at every level, as text.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<String>>);

impl Visit for Log {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        writeln!(self.0.lock().unwrap(), "{field}={value:?}").unwrap();
    }
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("steadfast")
    }
    fn new_span(&self, span: &Attributes<'_>) -> Id {
        span.record(&mut self.clone());
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, values: &Record<'_>) {
        values.record(&mut self.clone());
    }
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        event.record(&mut self.clone());
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn secrets_and_payloads_appear_in_no_log_error_metric_or_document() {
    let log = Log::default();
    tracing::subscriber::set_global_default(log.clone()).unwrap();
    let world = World::sqlite().await;
    let server = world.server_with(|settings| settings.admin_token(ADMIN.to_owned())).await;
    let made = json!({"name": "ci", "scopes": ["enqueue", "work", "read"]});
    let made = server.call("POST", "/tokens").token(ADMIN).json(&made).send().await.expect(201);
    let token = made["token"].as_str().unwrap().to_owned();
    let secret = token.split_once('.').unwrap().1.to_owned();
    let mut outputs = Vec::new();
    let started = server.call("POST", "/session").json(&json!({"token": token})).send().await;
    let cookie = started.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
    let session = cookie.split_once('.').unwrap().1.to_owned();
    outputs.push(started.body);
    for body in [json!({"token": GUESS}), json!({"token": ADMIN, "more": 1}), json!({"token": [session]})] {
        outputs.push(server.call("POST", "/session").json(&body).send().await.body);
    }
    for path in ["/session", "/jobs", "/tokens", "/nowhere"] {
        outputs.push(server.call("GET", path).header("cookie", &cookie).send().await.body);
        outputs.push(server.call("DELETE", path).header("cookie", &cookie).send().await.body);
    }
    outputs.push(server.call("GET", "/jobs").header("cookie", &format!("steadfast={GUESS}")).send().await.body);
    let job = json!({"kind": "welcome", "payload": PAYLOAD});
    server.call("POST", "/jobs").token(&token).json(&job).send().await.expect(201);
    let lease = server.call("POST", "/leases").token(&token).json(&json!({"worker": "w"})).send().await.expect(200);
    let lease_token = lease["leases"][0]["lease_token"].as_str().unwrap().to_owned();
    for body in [
        json!({"kind": "welcome", "payload": PAYLOAD, "priority": 999}),
        json!({"kind": "nope", "payload": PAYLOAD}),
        json!({"kind": "welcome", "payload": PAYLOAD, "secret": GUESS}),
    ] {
        outputs.push(server.call("POST", "/jobs").token(&token).json(&body).send().await.body);
    }
    let stale = json!({"worker": "w", "outcomes": [{"job_id": uuid::Uuid::nil(), "lease_token": lease_token, "outcome": "succeeded"}]});
    outputs.push(server.call("POST", "/leases/settle").token(&token).json(&stale).send().await.body);
    for (path, sent) in [("/jobs", GUESS), ("/tokens", &token), ("/nowhere", ADMIN), ("/queues/x/pause", &token)] {
        outputs.push(server.call("POST", path).token(sent).send().await.body);
    }
    outputs.push(server.call("GET", "/tokens").token(ADMIN).send().await.body);
    outputs.push(server.call("GET", "/metrics").token(&token).send().await.body);
    outputs.push(server.call("GET", "/docs").token(&token).send().await.body);
    outputs.push(server.call("GET", "/api-docs/openapi.json").token(&token).send().await.body);
    outputs.push(server.call("GET", "/readyz").send().await.body);
    let settings = steadfast::api::ApiSettings::new(server.queue.clone()).admin_token(ADMIN.to_owned());
    outputs.push(format!("{settings:?}"));
    let logged = log.0.lock().unwrap().clone();
    assert!(logged.contains("request_id"), "nothing was logged, so nothing was tested");
    outputs.push(logged);
    for output in &outputs {
        for canary in [ADMIN, PAYLOAD, GUESS, &secret, &session, &lease_token] {
            assert!(!output.contains(canary), "{canary} is in\n{output}");
        }
    }
    for file in world.files() {
        let bytes = std::fs::read(&file).unwrap();
        for canary in [ADMIN, &secret, &session, GUESS] {
            let found = bytes.windows(canary.len()).any(|window| window == canary.as_bytes());
            assert!(!found, "{canary} is in {}", file.display());
        }
    }
}
