//! What is refused when a job of a built-in kind is enqueued, what is shown of one, and how it is retried: on both stores.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use steadfast::job::{Json, Kind, KindDefaults, KindDefinition, RetryPolicy};
use steadfast::kinds::{built_in_kinds, is_inline_secret};
use steadfast::queue::{BuiltInKind, EnqueueError};
use steadfast::{JobRequest, Queue};

use crate::api::{Server, World};

const WAY_OUT: &str = "set STEADFAST_SMTP_URL";

macro_rules! on_both_stores {
    ($($name:ident),* $(,)?) => {
        mod on_sqlite {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $name() {
                    super::$name(crate::api::World::sqlite().await).await;
                }
            )*
        }
        mod on_postgres {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $name() {
                    super::$name(crate::api::World::postgres().await).await;
                }
            )*
        }
    };
}

on_both_stores!(
    s38_a_payload_that_breaks_a_rule_is_refused_like_one_that_does_not_fit_its_schema,
    s38_a_large_payload_is_checked_too_and_the_reason_is_cut,
    a_kind_that_is_not_configured_is_refused_with_the_way_out,
    a_known_key_is_answered_although_its_kind_is_no_longer_configured,
    s43_inline_secrets_are_hidden_wherever_a_job_is_shown_and_not_in_leases,
    a_built_in_kinds_own_retry_policy_counts,
);

fn definition(kind: &str) -> KindDefinition {
    KindDefinition::any(Kind::new(kind).unwrap())
}

async fn queue(world: &World, kinds: Vec<BuiltInKind>) -> Queue {
    world.queue_builder().built_in_kinds(kinds).open().await.unwrap()
}

async fn server(world: &World, kinds: Vec<BuiltInKind>) -> Server {
    World::server_on(queue(world, kinds).await, |settings| settings).await
}

/// A kind that takes only objects with an even `n`, and how often its rule was asked.
fn even() -> (BuiltInKind, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = asked.clone();
    let rule = move |payload: &Json| {
        counted.fetch_add(1, Ordering::SeqCst);
        let payload: Value = payload.decode().map_err(|error| error.to_string())?;
        if payload["n"].as_u64().is_some_and(|n| n % 2 == 0) {
            Ok(())
        } else {
            Err("n is odd: send an even one".into())
        }
    };
    (BuiltInKind::new(definition("even").schema(json!({"type": "object"}))).check(rule), asked)
}

async fn s38_a_payload_that_breaks_a_rule_is_refused_like_one_that_does_not_fit_its_schema(world: World) {
    let (kind, asked) = even();
    let server = server(&world, vec![kind]).await;
    server.post("/jobs", json!({"kind": "even", "payload": {"n": 2}})).await.expect(201);
    let refused = server.post("/jobs", json!({"kind": "even", "payload": {"n": 3}})).await;
    let problem = refused.problem(422, "invalid_payload");
    assert_eq!(problem["detail"], "payload does not fit kind \"even\": n is odd: send an even one");
    let before = asked.load(Ordering::SeqCst);
    server.post("/jobs", json!({"kind": "even", "payload": 3})).await.problem(422, "invalid_payload");
    assert_eq!(asked.load(Ordering::SeqCst), before, "a rule is asked after the schema");
    let jobs = json!({"jobs": [
        {"kind": "even", "payload": {"n": 2}}, {"kind": "even", "payload": {"n": 1}}, {"kind": "welcome", "payload": 1},
    ]});
    let problem = server.post("/jobs/batch", jobs).await.problem(422, "invalid_batch");
    let errors = problem["errors"].as_array().unwrap();
    assert_eq!((errors.len(), &errors[0]["index"]), (1, &json!(1)), "{errors:?}");
    assert!(errors[0]["detail"].as_str().unwrap().contains("n is odd"));
    assert_eq!(server.get("/jobs").await.expect(200).as_array().unwrap().len(), 1, "nothing of the batch is stored");
}

async fn s38_a_large_payload_is_checked_too_and_the_reason_is_cut(world: World) {
    let rule = |payload: &Json| Err(format!("no: {}", payload.as_str()));
    let server = server(&world, vec![even().0, BuiltInKind::new(definition("never")).check(rule)]).await;
    let large = |n: u64| json!({"kind": "even", "payload": {"n": n, "text": "x".repeat(100_000)}});
    server.post("/jobs", large(2)).await.expect(201);
    server.post("/jobs", large(3)).await.problem(422, "invalid_payload");
    let long = json!({"kind": "never", "payload": "x".repeat(50_000)});
    let problem = server.post("/jobs", long).await.problem(422, "invalid_payload");
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.contains("no: ") && detail.len() < 500, "{} bytes", detail.len());
}

async fn a_kind_that_is_not_configured_is_refused_with_the_way_out(world: World) {
    let mail = BuiltInKind::new(definition("send_email")).not_configured(WAY_OUT.to_owned());
    let server = server(&world, vec![mail]).await;
    let job = json!({"kind": "send_email", "payload": {}});
    let problem = server.post("/jobs", job.clone()).await.problem(422, "kind_not_configured");
    assert!(problem["detail"].as_str().unwrap().ends_with(WAY_OUT), "{problem}");
    let keyed = json!({"kind": "send_email", "payload": {}, "idempotency_key": "new"});
    server.post("/jobs", keyed).await.problem(422, "kind_not_configured");
    let jobs = json!({"jobs": [{"kind": "welcome", "payload": {}}, job]});
    let problem = server.post("/jobs/batch", jobs).await.problem(422, "invalid_batch");
    assert_eq!(problem["errors"][0]["index"], 1);
    assert!(problem["errors"][0]["detail"].as_str().unwrap().contains(WAY_OUT));
    assert_eq!(server.get("/jobs").await.expect(200), json!([]));
    let kinds = server.get("/kinds").await.expect(200);
    assert_eq!((&kinds[0]["kind"], &kinds[0]["built_in"]), (&json!("send_email"), &json!(true)), "it stays declared");
}

async fn a_known_key_is_answered_although_its_kind_is_no_longer_configured(world: World) {
    let keyed = || {
        let payload = Json::of(&json!({"to": "a@example.org"})).unwrap();
        JobRequest::new("send_email", payload).idempotency_key("mail-1")
    };
    let kind = || BuiltInKind::new(definition("send_email"));
    let configured = queue(&world, vec![kind()]).await;
    let first = configured.enqueue_request(keyed()).await.unwrap().job.id;
    drop(configured);
    let unconfigured = queue(&world, vec![kind().not_configured(WAY_OUT.to_owned())]).await;
    let again = unconfigured.enqueue_request(keyed()).await.unwrap();
    assert_eq!((again.created, again.job.id), (false, first));
    let refused = unconfigured.enqueue_request(keyed().idempotency_key("mail-2")).await.unwrap_err();
    assert!(matches!(refused, EnqueueError::NotConfigured { .. }), "{refused}");
}

async fn s43_inline_secrets_are_hidden_wherever_a_job_is_shown_and_not_in_leases(world: World) {
    let mut kinds = built_in_kinds().unwrap();
    kinds.push(BuiltInKind::new(definition("hook")).hide("/secret", is_inline_secret));
    let server = server(&world, kinds).await;
    let payload = json!({"secret": ["whsec_canary", "crm", "whsk_canary"], "body": {"secret": "whsec_body"}});
    let hidden = json!({"secret": ["(secret)", "crm", "(secret)"], "body": {"secret": "whsec_body"}});
    let job = json!({"kind": "hook", "payload": payload, "idempotency_key": "k", "max_attempts": 1});
    let made = server.post("/jobs", job.clone()).await.expect(201);
    assert_eq!(made["payload"], hidden);
    let id = made["id"].as_str().unwrap();
    assert_eq!(server.post("/jobs", job.clone()).await.expect(200)["payload"], hidden, "a replay");
    let batch = server.post("/jobs/batch", json!({"jobs": [job]})).await.expect(200);
    assert_eq!(batch["results"][0]["job"]["payload"], hidden);
    assert_eq!(server.get(&format!("/jobs/{id}")).await.expect(200)["payload"], hidden);
    let lease = server.lease(1).await.remove(0);
    assert_eq!(lease["job"]["payload"], payload, "a worker needs the secret");
    let failed = json!({"outcome": "failed", "error": "no", "permanent": true});
    assert_eq!(server.settle(&lease, failed).await, "recorded");
    assert_eq!(server.post(&format!("/jobs/{id}/redrive"), json!({})).await.expect(200)["payload"], hidden);

    let webhook = json!({"url": "https://example.org", "body": 1, "secret": "whsec_canary"});
    server.post("/jobs", json!({"kind": "webhook_delivery", "payload": webhook})).await.expect(201);
    server.post("/jobs", json!({"kind": "welcome", "payload": {"secret": "whsec_of_another_kind"}})).await.expect(201);
    let list = server.get("/jobs").await.expect(200).to_string();
    assert!(!list.contains("canary") && list.contains("whsec_of_another_kind"), "{list}");
}

async fn a_built_in_kinds_own_retry_policy_counts(world: World) {
    let day = Duration::from_secs(86_400);
    let defaults = KindDefaults::default().retry(RetryPolicy::fixed([day]));
    let server = server(&world, vec![definition("daily").defaults(defaults).into()]).await;
    let made = server.post("/jobs", json!({"kind": "daily", "payload": {}})).await.expect(201);
    let lease = server.lease(1).await.remove(0);
    assert_eq!(server.settle(&lease, json!({"outcome": "failed", "error": "no"})).await, "recorded");
    let job = server.get(&format!("/jobs/{}", made["id"].as_str().unwrap())).await.expect(200);
    let time = |field: &str| job[field].as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
    assert_eq!(time("run_at").duration_since(time("updated_at")), day.try_into().unwrap());
}

#[tokio::test]
async fn a_built_in_kind_with_a_bad_default_is_an_error_at_open() {
    let world = World::sqlite().await;
    let defaults = KindDefaults::default().retry(RetryPolicy::fixed([]).with_jitter(0.2));
    let kind = BuiltInKind::new(definition("daily").defaults(defaults));
    let error = world.queue_builder().built_in_kinds(vec![kind]).open().await.unwrap_err();
    assert!(error.to_string().contains("delays_ms needs 1 to 1000 values"), "{error}");
}
