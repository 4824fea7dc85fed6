//! `webhook_delivery` against a real receiver: what arrives, what an answer leads to, what a caller may not do, and what one
//! bad receiver does to the others.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use serde_json::value::RawValue;
use steadfast::job::{AttemptOutcome, JobId, RetryPolicy};
use steadfast::kinds::endpoint::{Directory, Endpoint, NamedSecret};
use steadfast::kinds::webhook::{WebhookSettings, Webhooks};
use steadfast::kinds::{Method, Secrets, WebhookDelivery};
use steadfast::outbound::{HostGate, Outbound};
use steadfast::{Job, JobRecord, JobRequest, Json, Status};

use crate::receiver::{Receiver, Reply, Seen};
use crate::world::{Log, Running, World, brisk, eventually, guarded, strictly_guarded, trusted};

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

fn worker(world: &World, webhooks: &Webhooks) -> steadfast::Worker {
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

fn raw(text: &str) -> Box<RawValue> {
    RawValue::from_string(text.to_owned()).unwrap()
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
async fn s22_the_bytes_that_arrive_are_those_that_were_signed_and_those_that_the_producer_wrote() {
    let bodies = [
        r#"{"b":1,"a":1e2,"n":12345678901234567890123}"#,
        r#"{ "spaces" : [ 1 , 2 ] , "twice": 1, "twice": 2, "escaped": "\u00e9\/", "plain": "é😀" }"#,
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
    let metrics = world.api().await.call("GET", "/metrics").send().await.body;
    assert!(metrics.contains("webhook_gone_total"), "{metrics}");
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
        let reply = Reply::status(if case % 2 == 0 { 429 } else { 503 });
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
        let worker = start(&world, &webhooks());
        let id = world.enqueue(WebhookDelivery::new(receiver.url("/"), json!({}))).await;
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
async fn jobs_over_the_limit_of_an_endpoint_are_put_off_without_costing_an_attempt() {
    let world = World::sqlite().await;
    retry_at_once(&world).await;
    let receiver = Receiver::always(Reply::status(200).held()).await;
    let endpoint = Endpoint::new(&receiver.url("/")).unwrap().max_in_flight(1);
    let directory = Directory::new().with_endpoint("slow", endpoint).unwrap();
    let worker = start(&world, &webhooks_with(WebhookSettings::default(), directory));
    let mut ids = Vec::new();
    for n in 0..3 {
        ids.push(world.enqueue(WebhookDelivery::to_endpoint("slow", json!(n))).await);
    }
    receiver.sees(1).await;
    eventually("the others to be put off", async || {
        let mut put_off = 0;
        for id in &ids {
            let attempts = world.attempts(*id).await;
            put_off += usize::from(attempts.iter().any(|one| one.outcome == Some(AttemptOutcome::Snoozed)));
        }
        (put_off >= 2).then_some(())
    })
    .await;
    assert_eq!(receiver.seen().len(), 1, "one at a time");
    receiver.let_go();
    for id in ids {
        let job = world.ends(id).await;
        assert_eq!((job.status, job.attempts), (Status::Succeeded, 1), "{}", said(&job));
    }
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s45_a_thousand_jobs_for_a_dead_host_delay_no_other_and_each_ends_after_its_attempts() {
    let (world, clock) = World::with_held_clock().await;
    world
        .declare_with::<WebhookDelivery>(|defaults| {
            defaults.max_attempts(3).retry(RetryPolicy::fixed([Duration::from_secs(5)]))
        })
        .await;
    let dead = Receiver::always(Reply::status(200).held()).await;
    let alive = Receiver::always(Reply::status(204)).await;
    let jobs = (0..1000).map(|n| WebhookDelivery::new(dead.url_as("dead.test", "/"), json!(n)));
    let ids: Vec<_> = world.queue.enqueue_many(jobs).await.unwrap().into_iter().map(|stored| stored.job.id).collect();
    let webhooks = webhooks_with(WebhookSettings::default().timeout(Duration::from_secs(2)), Directory::new());
    // More slots than calls that one host may have; a lease that outlasts the time that passes too fast here.
    let settings = brisk().concurrency(32).lease(Duration::from_secs(3600));
    let worker = Running::start(worker(&world, &webhooks).settings(settings));
    dead.sees(1).await;
    // A hundred times as fast as it should: jobs that were put off come back soon.
    let passing = tokio::spawn({
        let clock = clock.clone();
        async move {
            let mut tick = tokio::time::interval(Duration::from_millis(50));
            loop {
                tick.tick().await;
                clock.advance(Duration::from_secs(5));
            }
        }
    });
    let mut slowest = Duration::ZERO;
    for n in 1..=30 {
        let begun = Instant::now();
        world.enqueue(WebhookDelivery::new(alive.url_as("alive.test", "/"), json!(n))).await;
        alive.sees(n).await;
        slowest = slowest.max(begun.elapsed());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(slowest < Duration::from_secs(1), "{slowest:?}");
    for id in ids {
        let job = world.ends(id).await;
        assert_eq!((job.status, job.attempts), (Status::FailedPermanent, 3), "{}", said(&job));
    }
    assert!(dead.seen().len() < 100, "{} calls to a dead host", dead.seen().len());
    passing.abort();
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s45_a_failing_host_is_not_called_until_a_probe_finds_it_well() {
    let world = World::sqlite().await;
    retry_at_once(&world).await;
    let well = Arc::new(AtomicUsize::new(0));
    let asked = well.clone();
    let receiver = Receiver::start(move |_| match asked.load(Ordering::SeqCst) {
        0 => Reply::status(500),
        _ => Reply::status(204),
    })
    .await;
    let worker = start(&world, &webhooks());
    let deliver = async || {
        let delivery = WebhookDelivery::new(receiver.url("/"), json!({}));
        let id = world.queue.enqueue(delivery).max_attempts(1).await.unwrap().job.id;
        world.ends(id).await
    };
    for _ in 0..5 {
        assert!(said(&deliver().await).contains("HTTP 500"));
    }
    let tripped = Instant::now();
    let not_tried = deliver().await;
    assert!(said(&not_tried).contains("not tried: the host has been failing for"), "{}", said(&not_tried));
    assert_eq!((not_tried.attempts, receiver.seen().len()), (1, 5), "it costs its attempt, and no call");
    well.store(1, Ordering::SeqCst);
    // The probe is one of these.
    let probed = eventually("a probe", async || {
        let job = deliver().await;
        (job.status == Status::Succeeded).then_some(job)
    })
    .await;
    assert!(tripped.elapsed() > Duration::from_secs(9), "{:?}", tripped.elapsed());
    assert_eq!((probed.status, receiver.seen().len()), (Status::Succeeded, 6));
    assert_eq!(deliver().await.status, Status::Succeeded, "closed again");
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s38_what_the_door_refuses_the_handler_refuses_for_good_and_sends_nothing() {
    let world = World::sqlite().await;
    retry_at_once(&world).await;
    let receiver = Receiver::always(Reply::status(204)).await;
    let named = NamedSecret::new(OTHER_SECRET, ["shop.test", "*.tenant.test"]).unwrap();
    let directory = Directory::new().with_secret("shop", named).unwrap();
    let fixed = Endpoint::new(&receiver.url("/")).unwrap().header("authorization", "Bearer of-the-operator").unwrap();
    let directory = directory.with_endpoint("crm", fixed.secret(SECRET).unwrap()).unwrap();
    let webhooks = webhooks_with(WebhookSettings::default(), directory);
    let worker = start(&world, &webhooks);
    let url = receiver.url_as("shop.test", "/");
    let job = || WebhookDelivery::new(url.clone(), json!({"a": 1}));
    let with = |change: &dyn Fn(&mut WebhookDelivery)| {
        let mut job = job();
        change(&mut job);
        job
    };
    let header = |name: &'static str, value: &'static str| with(&move |job| job.headers = headers(&[(name, value)]));
    let refused = [
        ("s17 userinfo", WebhookDelivery::new("http://user@shop.test/", json!({})), "user or a password"),
        ("s17 metadata", WebhookDelivery::new("http://169.254.169.254/", json!({})), "public"),
        ("s37 port", WebhookDelivery::new("http://shop.test:25/", json!({})), "port 25"),
        ("neither", with(&|job| job.url = None), "exactly one of url and endpoint"),
        ("both", with(&|job| job.endpoint = Some("crm".into())), "exactly one of url and endpoint"),
        ("no such endpoint", WebhookDelivery::to_endpoint("nope", json!({})), "no endpoint of this name"),
        ("s21 host", header("Host", "evil.test"), "leave it out"),
        ("s21 length", header("content-length", "1"), "leave it out"),
        ("s21 transfer", header("Transfer-Encoding", "chunked"), "leave it out"),
        ("s21 connection", header("connection", "close"), "leave it out"),
        ("s21 signature", header("Webhook-Signature", "v1,x"), "leave it out"),
        ("s21 as a variable", header("webhook_id", "x"), "leave it out"),
        ("s21 line", header("x-a", "b\r\nwebhook-id: c"), "visible ASCII"),
        ("s21 nul", header("x-a", "b\0"), "visible ASCII"),
        ("s39 name", header("x a", "b"), "not the name"),
        ("s39 long", with(&|job| job.headers = headers(&[("x-a", &"v".repeat(1025))])), "1025 bytes"),
        ("not a string", with(&|job| job.content_type = Some("text/plain".into())), "the body is a string"),
        ("not a type", with(&|job| job.content_type = Some("text\r\n".into())), "content_type"),
        ("dotted id", with(&|job| job.message_id = Some("a.b".into())), "message_id"),
        ("short key", job().secret("whsec_AAAA"), "24 to 64 bytes"),
        ("no such secret", job().secret("nope"), "nor the name of a secret"),
        (
            "s43 other host",
            WebhookDelivery::new(receiver.url_as("evil.test", "/"), json!({})).secret("shop"),
            "does not sign for",
        ),
        (
            "s43 below",
            WebhookDelivery::new(receiver.url_as("tenant.test", "/"), json!({})).secret("shop"),
            "does not sign for",
        ),
        ("endpoint signs", WebhookDelivery::to_endpoint("crm", json!({})).secret(SECRET), "leave it out"),
    ];
    for (what, job, reason) in refused {
        let at_the_door = webhooks.check(&job).unwrap_err();
        assert!(at_the_door.contains(reason), "{what}: {at_the_door}");
        // As if another server had stored it.
        let request = JobRequest::of(&job).unwrap();
        let stored = world.queue.enqueue_request(request).await;
        // The schema catches some already.
        let Ok(stored) = stored else { continue };
        let ended = world.ends(stored.job.id).await;
        assert_eq!((ended.status, ended.attempts), (Status::FailedPermanent, 1), "{what}");
        assert_eq!(ended.last_error.unwrap(), at_the_door, "{what}");
    }
    let mut replaced = WebhookDelivery::to_endpoint("crm", json!({}));
    replaced.headers = headers(&[("Authorization", "Bearer mine")]);
    assert!(webhooks.check(&replaced).unwrap_err().contains("set by the endpoint"));
    assert!(receiver.seen().is_empty());
    let allowed = WebhookDelivery::new(receiver.url_as("a.tenant.test", "/"), json!({})).secret("shop");
    webhooks.check(&allowed).unwrap();
    let id = world.enqueue(allowed).await;
    assert_eq!(world.ends(id).await.status, Status::Succeeded);
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s43_the_settings_can_demand_a_signature_and_forbid_secrets_in_payloads() {
    let job = || WebhookDelivery::new("https://shop.test/", json!({}));
    let signed_only = webhooks_with(WebhookSettings::default().require_signature(true), Directory::new());
    assert!(signed_only.check(&job()).unwrap_err().contains("signed webhooks only"));
    signed_only.check(&job().secret(SECRET)).unwrap();
    let named_only = webhooks_with(WebhookSettings::default().inline_secrets(false), Directory::new());
    let error = named_only.check(&job().secret(SECRET)).unwrap_err();
    assert!(error.contains("only the names") && !error.contains(&SECRET[6..]), "{error}");
    named_only.check(&job()).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn s38_an_endpoint_may_be_where_a_callers_url_may_not() {
    let world = World::sqlite().await;
    retry_at_once(&world).await;
    let receiver = Receiver::always(Reply::status(204)).await;
    let directory = Directory::new().with_endpoint("inside", Endpoint::new(&receiver.url("/in")).unwrap()).unwrap();
    let webhooks = webhooks_through(strictly_guarded(), WebhookSettings::default(), directory);
    let worker = start(&world, &webhooks);
    assert!(webhooks.check(&WebhookDelivery::new(receiver.url("/"), json!({}))).is_err());
    // No name is looked up at the door; the attempt fails for good.
    let named = WebhookDelivery::new(receiver.url_as("inside.test", "/"), json!({}));
    webhooks.check(&named).unwrap();
    let id = world.enqueue(named).await;
    let ended = world.ends(id).await;
    assert_eq!((ended.status, ended.attempts), (Status::FailedPermanent, 1), "{}", said(&ended));
    assert!(!said(&ended).contains("127.0.0.1"), "{}", said(&ended));
    assert!(receiver.seen().is_empty());
    let id = world.enqueue(WebhookDelivery::to_endpoint("inside", json!({}))).await;
    assert_eq!(world.ends(id).await.status, Status::Succeeded);
    assert_eq!(receiver.seen()[0].path, "/in");
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

#[tokio::test(flavor = "multi_thread")]
async fn s43_secrets_are_in_no_log_no_error_no_result_and_no_answer_of_the_api() {
    let log = Log::kept();
    let world = World::sqlite().await;
    retry_at_once(&world).await;
    // Echoes everything, as a debugging receiver does, and fails in each way.
    let receiver = Receiver::start(|seen| {
        let status = seen.path[1..].parse().unwrap();
        Reply::status(status).body(format!("canary-answer {:?}", seen.headers))
    })
    .await;
    let named_key = "whsec_Y2FuYXJ5LW5hbWVkLWNhbmFyeS1uYW1lZC0x";
    let endpoint_key = "whsec_Y2FuYXJ5LWVuZHBvaW50LWNhbmFyeS1lbmRwLTI=";
    let named = NamedSecret::new(named_key, ["shop.test"]).unwrap();
    let mut directory = Directory::new().with_secret("shop", named).unwrap();
    for status in [200, 404, 410, 422] {
        let endpoint = Endpoint::new(&receiver.url(&format!("/{status}"))).unwrap().secret(endpoint_key).unwrap();
        let endpoint = endpoint.header("authorization", "Bearer canary-authorization").unwrap();
        directory = directory.with_endpoint(&format!("e{status}"), endpoint).unwrap();
    }
    let webhooks = webhooks_with(WebhookSettings::default(), directory);
    let shown = format!("{webhooks:?}");
    let worker = start(&world, &webhooks);
    let api = world.api().await;
    let mut outputs = vec![shown];
    for status in [200, 404, 410, 422] {
        let named = WebhookDelivery::new(receiver.url_as("shop.test", &format!("/{status}")), json!({})).secret("shop");
        for job in [named, WebhookDelivery::to_endpoint(format!("e{status}"), json!({}))] {
            let id = world.queue.enqueue(job).max_attempts(2).await.unwrap().job.id;
            let ended = world.ends(id).await;
            assert!(said(&ended).contains("canary-answer"), "what the receiver said is kept: {}", said(&ended));
            outputs.push(format!("{ended:?} {}", said(&ended)));
            outputs.push(format!("{:?}", world.attempts(id).await));
            outputs.push(api.call("GET", &format!("/jobs/{id}")).send().await.body);
        }
    }
    outputs.push(api.call("GET", "/jobs").send().await.body);
    outputs.push(api.call("GET", "/metrics").send().await.body);
    let secrets = [&named_key[6..], &endpoint_key[6..], "canary-named", "canary-endpoint", "canary-authorization"];
    for output in &outputs {
        for secret in secrets {
            assert!(!output.contains(secret), "{secret} is in {output}");
        }
    }
    worker.stop().await;
    let logged = log.text();
    assert!(logged.contains("a receiver answered 410"), "nothing was logged, so nothing was tested");
    for secret in secrets.into_iter().chain(["canary-answer"]) {
        assert!(!logged.contains(secret), "{secret} was logged");
    }
}

/// One message as `verify.py` and `verify.cjs` read it.
fn message(what: &str, seen: &Seen, body: &[u8], public: &str, good: bool) -> serde_json::Value {
    use base64::Engine;
    let names = ["webhook-id", "webhook-timestamp", "webhook-signature"];
    let headers: BTreeMap<_, _> = names.iter().map(|name| (*name, seen.header(name))).collect();
    let body = base64::engine::general_purpose::STANDARD.encode(body);
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

#[tokio::test(flavor = "multi_thread")]
async fn s44_signatures_are_verified_by_the_libraries_of_rust_python_and_javascript() {
    let world = World::sqlite().await;
    retry_at_once(&world).await;
    let receiver = Receiver::always(Reply::status(204)).await;
    let pair = steadfast::kinds::webhook::signature::generate_ed25519().unwrap();
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
        let (python, node) = (crate::world::python_tool("python3"), crate::world::node_directory());
        let tests = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kinds");
        let by_python = std::process::Command::new(python).arg(tests.join("verify.py")).arg(&path).output();
        let mut by_node = std::process::Command::new("node");
        let by_node = by_node.arg(tests.join("verify.cjs")).arg(&path).arg(node).output();
        [by_python.unwrap(), by_node.unwrap()]
    };
    for output in tokio::task::spawn_blocking(verifying).await.unwrap() {
        assert!(output.status.success(), "{output:?}");
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), messages.len().to_string(), "{output:?}");
    }
}
