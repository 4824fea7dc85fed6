//! What a caller may not do, at the door and in the handler, and where secrets never appear.

use serde_json::json;
use steadfast::kinds::endpoint::{Directory, Endpoint, NamedSecret};
use steadfast::kinds::webhook::WebhookSettings;
use steadfast::kinds::{Secrets, WebhookDelivery};
use steadfast::{JobRequest, Status};

use super::{OTHER_SECRET, SECRET, headers, retry_at_once, said, start, webhooks_through, webhooks_with};
use crate::receiver::{Receiver, Reply};
use crate::world::{Log, World, strictly_guarded};

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
        ("no keys", with(&|job| job.secret = Some(Secrets::Several(vec![]))), "use 1 to 8"),
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
