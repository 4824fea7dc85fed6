//! `webhook_delivery` against a real receiver: what arrives, and what an answer leads to. Below: what is signed, what a caller
//! may not do, and what one bad receiver does to the others.

mod hosts;
mod rules;
mod signatures;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use steadfast::job::{AttemptOutcome, JobId, RetryPolicy};
use steadfast::kinds::endpoint::Directory;
use steadfast::kinds::webhook::{WebhookSettings, Webhooks};
use steadfast::kinds::{Method, WebhookDelivery};
use steadfast::outbound::{HostGate, Outbound};
use steadfast::{Job, JobRecord, Json, Status, Worker};

use crate::receiver::{Receiver, Reply, Seen};
use crate::world::{Running, World, brisk, eventually, guarded, trusted};

/// 24 bytes that nobody else has.
const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const OTHER_SECRET: &str = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

fn webhooks() -> Webhooks {
    webhooks_with(WebhookSettings::default(), Directory::new())
}

fn webhooks_with(settings: WebhookSettings, directory: Directory) -> Webhooks {
    webhooks_through(guarded(), settings, directory)
}

fn webhooks_through(guarded: Outbound, settings: WebhookSettings, directory: Directory) -> Webhooks {
    Webhooks::new(settings, guarded, trusted(), HostGate::new(), Arc::new(directory))
}

fn start(world: &World, webhooks: &Webhooks) -> Running {
    Running::start(worker(world, webhooks))
}

fn worker(world: &World, webhooks: &Webhooks) -> Worker {
    let webhooks = webhooks.clone();
    world.worker(WebhookDelivery::KIND, move |payload: Json, context| {
        let webhooks = webhooks.clone();
        async move { webhooks.run(payload.decode()?, &context).await }
    })
}

/// Attempts follow each other at once.
async fn retry_at_once(world: &World) {
    retry_after(world, Duration::from_millis(10)).await;
}

async fn retry_after(world: &World, wait: Duration) {
    world.declare_with::<WebhookDelivery>(|defaults| defaults.retry(RetryPolicy::fixed([wait]))).await;
}

fn headers(pairs: &[(&str, &str)]) -> Option<BTreeMap<String, String>> {
    Some(pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
}

fn verifies(secret: &str, seen: &Seen) -> bool {
    standardwebhooks::Webhook::new(secret).unwrap().verify(&seen.body, &seen.headers).is_ok()
}

/// What the job says of its answer or its failure.
fn said(job: &JobRecord) -> String {
    let result = job.result.as_ref().map(|result| result.as_str().to_owned());
    format!("{} {}", job.last_error.clone().unwrap_or_default(), result.unwrap_or_default())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_text_with_a_content_type_is_sent_and_signed_as_text_with_the_headers_and_the_method_given() {
    let world = World::sqlite().await;
    let receiver = Receiver::always(Reply::status(200).header("content-type", "text/plain").body("thanks")).await;
    retry_at_once(&world).await;
    let worker = start(&world, &webhooks());
    let mut job = WebhookDelivery::new(receiver.url("/in?a=1"), json!("{\"line\": \"é\"}\n")).secret(SECRET);
    job.content_type = Some("text/plain; charset=utf-8".into());
    job.headers = headers(&[("x-shop", "7"), ("User-Agent", "Shop/1")]);
    job.method = Some(Method::Put);
    job.message_id = Some("evt_123".into());
    let id = world.enqueue(job).await;
    let done = world.ends(id).await;
    let seen = &receiver.sees(1).await[0];
    assert_eq!(seen.body, "{\"line\": \"é\"}\n");
    assert!(verifies(SECRET, seen));
    assert_eq!((seen.method.as_str(), seen.path.as_str()), ("PUT", "/in?a=1"));
    assert_eq!([seen.header("x-shop"), seen.header("user-agent")], ["7", "Shop/1"]);
    assert_eq!([seen.header("webhook-id"), seen.header("content-type")], ["evt_123", "text/plain; charset=utf-8"]);
    let result: serde_json::Value = done.result.unwrap().decode().unwrap();
    assert_eq!(result["status"], 200);
    assert!(result["ms"].is_u64());
    assert_eq!(result["response"], json!({"content_type": "text/plain", "excerpt": "thanks", "truncated": false}));
    worker.stop().await;
}

/// Status of the job after its first attempt, of at most two.
async fn after_one_attempt(world: &World, id: JobId) -> JobRecord {
    eventually("the first attempt to end", async || {
        let job = world.job(id).await;
        (job.attempts == 1 && job.status != Status::Running).then_some(job)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn every_status_of_the_table_leads_where_it_says() {
    use Status::{FailedPermanent, Retrying, Succeeded};
    let (world, _clock) = World::with_held_clock().await;
    retry_after(&world, Duration::from_secs(3600)).await;
    let receiver = Receiver::start(|seen| {
        let status = seen.path.trim_start_matches('/').parse().unwrap();
        // What no client may follow.
        Reply::status(status).header("location", "http://elsewhere.test/").body("because")
    })
    .await;
    let worker = start(&world, &webhooks());
    // Before the first answer: it counts from here on.
    let api = world.api().await;
    let table: [(Status, &[u16]); 3] = [
        (Succeeded, &[200, 201, 202, 204, 206, 299]),
        (FailedPermanent, &[400, 405, 406, 410, 411, 413, 414, 415, 422, 431, 451, 501, 505]),
        (
            Retrying,
            &[
                300, 301, 302, 303, 304, 307, 308, 401, 402, 403, 404, 407, 408, 409, 418, 421, 423, 424, 425, 429,
                500, 502, 503, 504, 507, 508, 511, 599,
            ],
        ),
    ];
    for (expected, statuses) in table {
        for status in statuses {
            // A host of its own: a breaker is not what is tested here.
            let url = receiver.url_as(&format!("s{status}.test"), &format!("/{status}"));
            let id = world.enqueue(WebhookDelivery::new(url, json!({}))).await;
            let job = after_one_attempt(&world, id).await;
            assert_eq!(job.status, expected, "{status}: {}", said(&job));
            let error = job.last_error.unwrap_or_default();
            match status {
                200..=299 => assert_eq!(error, ""),
                300..=399 => {
                    assert!(error.contains("redirects are never followed") && !error.contains("elsewhere"), "{error}")
                }
                410 => assert!(error.contains("the receiver asks to stop"), "{error}"),
                _ => assert!(
                    error.starts_with(&format!("HTTP {status} after ")) && error.ends_with(": because"),
                    "{error}"
                ),
            }
        }
    }
    let metrics = api.call("GET", "/metrics").send().await.body;
    let gone = metrics.lines().find_map(|line| line.strip_prefix("webhook_gone_total ")).unwrap_or("0");
    assert_ne!(gone, "0", "{metrics}");
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_settings_choose_which_statuses_are_final_and_how_much_of_an_answer_is_kept() {
    let (world, _clock) = World::with_held_clock().await;
    retry_after(&world, Duration::from_secs(3600)).await;
    let receiver = Receiver::start(|seen| Reply::status(seen.path[1..].parse().unwrap()).body("x".repeat(5000))).await;
    let settings = WebhookSettings::default().final_statuses(vec![404]).keep_response(0);
    let worker = start(&world, &webhooks_with(settings, Directory::new()));
    let after = async |status: u16| {
        let id = world.enqueue(WebhookDelivery::new(receiver.url(&format!("/{status}")), json!({}))).await;
        after_one_attempt(&world, id).await
    };
    assert_eq!(after(404).await.status, Status::FailedPermanent);
    assert_eq!(after(422).await.status, Status::Retrying);
    let done = after(200).await;
    assert!(!said(&done).contains("response"), "{}", said(&done));
    worker.stop().await;
    let worker = start(&world, &webhooks());
    let kept: serde_json::Value = after(200).await.result.unwrap().decode().unwrap();
    assert_eq!(kept["response"]["excerpt"].as_str().unwrap().len(), 1024);
    assert_eq!(kept["response"]["truncated"], true);
    let error = after(500).await.last_error.unwrap();
    assert!(error.len() < 1100 && error.contains("xxx"), "{error}");
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn retry_after_is_a_floor_and_never_a_shortcut() {
    let (world, _clock) = World::with_held_clock().await;
    retry_after(&world, Duration::from_secs(10)).await;
    let receiver = Receiver::start(|seen| {
        let case: usize = seen.path[1..].parse().unwrap();
        let reply = Reply::status(if case.is_multiple_of(2) { 429 } else { 503 });
        let reply = reply.header("date", "Tue, 01 Jan 2030 00:00:00 GMT");
        reply.header("retry-after", CASES[case].0)
    })
    .await;
    const CASES: [(&str, u64); 11] = [
        ("0", 10),
        ("1", 10),
        ("10", 10),
        ("90", 90),
        ("1000000000000", 86_400),
        ("99999999999999999999999999", 86_400),
        ("-5", 10),
        ("soon", 10),
        ("Tue, 01 Jan 2030 00:02:00 GMT", 120),
        ("Mon, 31 Dec 2029 00:00:00 GMT", 10),
        ("Tue, 01 Jan 2999 00:00:00 GMT", 86_400),
    ];
    let worker = start(&world, &webhooks());
    for (case, (header, expected_s)) in CASES.iter().enumerate() {
        let url = receiver.url_as(&format!("case{case}.test"), &format!("/{case}"));
        let id = world.enqueue(WebhookDelivery::new(url, json!({}))).await;
        let job = after_one_attempt(&world, id).await;
        let wait = job.run_at.duration_since(job.updated_at);
        assert_eq!(wait.as_secs(), i64::try_from(*expected_s).unwrap(), "Retry-After: {header}");
    }
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_is_cancelled_while_it_waits_for_an_answer_hangs_up() {
    for world in World::both().await {
        let receiver = Receiver::always(Reply::status(200).held()).await;
        retry_at_once(&world).await;
        // Nothing but the cancellation ends it.
        let hour = Duration::from_secs(3600);
        let settings = WebhookSettings::default().timeout(hour);
        let worker = start(&world, &webhooks_with(settings, Directory::new()));
        let delivery = WebhookDelivery::new(receiver.url("/"), json!({}));
        let id = world.queue.enqueue(delivery).timeout(hour).await.unwrap().job.id;
        receiver.sees(1).await;
        world.queue.cancel(id).await.unwrap();
        receiver.is_abandoned(1).await;
        assert_eq!(world.ends(id).await.status, Status::Cancelled);
        worker.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delivery_is_finished_at_shutdown_or_given_back_when_the_grace_period_is_over() {
    let world = World::sqlite().await;
    retry_at_once(&world).await;
    let receiver = Receiver::always(Reply::status(200).held()).await;
    let id = world.enqueue(WebhookDelivery::new(receiver.url("/"), json!({}))).await;
    let given_back = start_with_grace(&world, Duration::from_millis(200));
    receiver.sees(1).await;
    given_back.stop().await;
    let job = world.job(id).await;
    assert_eq!((job.status, job.attempts), (Status::Queued, 0), "{job:?}");
    let finished = start_with_grace(&world, Duration::from_secs(60));
    receiver.sees(2).await;
    let stopping = tokio::spawn(finished.stop());
    receiver.let_go();
    stopping.await.unwrap();
    let job = world.job(id).await;
    assert_eq!((job.status, job.attempts), (Status::Succeeded, 1), "{job:?}");
}

fn start_with_grace(world: &World, grace: Duration) -> Running {
    Running::start(worker(world, &webhooks()).settings(brisk().shutdown_grace(grace)))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_that_stalls_fails_the_attempt_in_time_and_the_error_names_the_stage() {
    let (world, _clock) = World::with_held_clock().await;
    retry_after(&world, Duration::from_secs(3600)).await;
    let receiver = Receiver::always(Reply::status(200).held()).await;
    let worker = start(&world, &webhooks());
    let delivery = WebhookDelivery::new(receiver.url("/"), json!({}));
    let id = world.queue.enqueue(delivery).timeout(Duration::from_secs(1)).await.unwrap().job.id;
    let job = after_one_attempt(&world, id).await;
    assert!(said(&job).contains("no first byte"), "{}", said(&job));
    let attempts = world.attempts(id).await;
    assert_eq!(attempts[0].outcome, Some(AttemptOutcome::Failed), "before the deadline of the attempt");
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s18_a_redirect_is_not_followed() {
    let (world, _clock) = World::with_held_clock().await;
    retry_after(&world, Duration::from_secs(3600)).await;
    let secret_place = Receiver::always(Reply::status(200)).await;
    let place = secret_place.url_as("place.test", "/canary-place");
    let receiver = Receiver::start(move |_| Reply::status(307).header("location", place.clone())).await;
    let worker = start(&world, &webhooks());
    let id = world.enqueue(WebhookDelivery::new(receiver.url("/"), json!({}))).await;
    let job = after_one_attempt(&world, id).await;
    assert!(said(&job).contains("HTTP 307") && !said(&job).contains("canary"), "{}", said(&job));
    assert!(secret_place.seen().is_empty());
    worker.stop().await;
}
