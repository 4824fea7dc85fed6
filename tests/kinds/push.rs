//! Kinds that are pushed to an endpoint, and `http_request`: what the service gets, and what its answer makes of the job.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use steadfast::job::{AttemptOutcome, JobId, Kind, KindDefaults, KindDefinition, RetryPolicy, TraceContext};
use steadfast::kinds::endpoint::{Directory, Endpoint};
use steadfast::kinds::push::{HttpRequests, HttpTargets, Push};
use steadfast::kinds::{HttpRequest, RequestMethod};
use steadfast::outbound::{HostGate, Outbound};
use steadfast::{Job, JobRecord, JobRequest, Json, Status};

use crate::receiver::{Receiver, Reply};
use crate::world::{Running, World, guarded, strictly_guarded, trusted};

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// Declares the kind `welcome`, pushed to this endpoint.
async fn push(world: &World, endpoint: Endpoint) -> Running {
    let retry = RetryPolicy::fixed([Duration::from_millis(10)]);
    let kind = KindDefinition::any(Kind::new("welcome").unwrap()).defaults(KindDefaults::default().retry(retry));
    world.queue.put_kind(kind).await.unwrap();
    let push = Push::new(Arc::new(endpoint), trusted(), HostGate::new());
    Running::start(world.worker("welcome", move |payload: Json, context| {
        let push = push.clone();
        async move { push.run(payload, &context).await }
    }))
}

async fn welcome(world: &World, payload: &str) -> JobId {
    let request = JobRequest::new("welcome", Json::parse(payload.to_owned()).unwrap());
    world.queue.enqueue_request(request).await.unwrap().job.id
}

fn error(job: &JobRecord) -> &str {
    job.last_error.as_deref().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pushed_job_is_a_signed_call_and_its_json_answer_is_the_result() {
    let payload = r#"{"user":12345678901234567890123,"b":1,"a":1e2}"#;
    let answer = r#"{ "greeted":12345678901234567890123, "z":1, "a":"é" }"#;
    for world in World::both().await {
        let receiver = Receiver::always(Reply::status(201).body(answer)).await;
        let endpoint = Endpoint::new(&receiver.url("/jobs?v=1")).unwrap().secret(SECRET).unwrap();
        let worker = push(&world, endpoint.header("authorization", "Bearer x").unwrap()).await;
        let id = welcome(&world, payload).await;
        let job = world.ends(id).await;
        assert_eq!(job.status, Status::Succeeded, "{}", error(&job));
        assert_eq!(job.result.unwrap().as_str(), answer, "as the service wrote it");
        let seen = &receiver.seen()[0];
        assert_eq!(
            (seen.method.as_str(), seen.path.as_str(), &seen.body[..]),
            ("POST", "/jobs?v=1", payload.as_bytes())
        );
        let id = id.to_string();
        let told =
            ["steadfast-job-id", "steadfast-kind", "steadfast-queue", "steadfast-attempt", "steadfast-max-attempts"];
        assert_eq!(told.map(|name| seen.header(name)), [&id, "welcome", "default", "1", "3"]);
        assert_eq!([seen.header("webhook-id"), seen.header("authorization")], [&id, "Bearer x"]);
        standardwebhooks::Webhook::new(SECRET).unwrap().verify(&seen.body, &seen.headers).unwrap();
        worker.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_trace_of_a_job_goes_to_endpoints_that_are_to_get_it_and_to_no_other() {
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let traced = |request: JobRequest| request.trace(TraceContext::parse(parent, Some("vendor=1")));
    let world = World::sqlite().await;
    for (wanted, seen_parent, seen_state) in [(true, parent, "vendor=1"), (false, "", "")] {
        let receiver = Receiver::always(Reply::status(200)).await;
        let worker = push(&world, Endpoint::new(&receiver.url("/")).unwrap().trace(wanted)).await;
        let request = traced(JobRequest::new("welcome", Json::null()));
        let id = world.queue.enqueue_request(request).await.unwrap().job.id;
        assert_eq!(world.ends(id).await.status, Status::Succeeded);
        let seen = &receiver.seen()[0];
        let header = |name: &str| seen.headers.get(name).map_or("", |value| value.to_str().unwrap());
        assert_eq!((header("traceparent"), header("tracestate")), (seen_parent, seen_state), "{wanted}");
        worker.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_can_ask_to_be_called_again_and_that_costs_no_attempt() {
    let world = World::sqlite().await;
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    let receiver = Receiver::start(move |_| match counted.fetch_add(1, Ordering::SeqCst) {
        0 => Reply::status(202).header("steadfast-snooze-ms", "150"),
        1 => Reply::status(202).header("steadfast-snooze-ms", "0"),
        _ => Reply::status(200).body("[1]"),
    })
    .await;
    let worker = push(&world, Endpoint::new(&receiver.url("/")).unwrap()).await;
    let id = welcome(&world, "{}").await;
    let job = world.ends(id).await;
    assert_eq!((job.status, job.attempts, job.result.unwrap().as_str()), (Status::Succeeded, 1, "[1]"));
    let outcomes: Vec<_> = world.attempts(id).await.into_iter().filter_map(|attempt| attempt.outcome).collect();
    let snoozed = outcomes.iter().filter(|outcome| **outcome == AttemptOutcome::Snoozed).count();
    assert_eq!((snoozed, outcomes.len()), (2, 3), "{outcomes:?}");
    assert!(!receiver.seen()[0].headers.contains_key("webhook-signature"), "the endpoint has no secret");
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_can_end_a_job_for_good_and_every_other_failure_is_retried() {
    let world = World::sqlite().await;
    let receiver = Receiver::start(|seen| match seen.body.as_ref() {
        b"\"never\"" => Reply::status(404).header("steadfast-retry", "No").body("no such user"),
        b"\"bad\"" => Reply::status(422),
        b"\"odd\"" => Reply::status(200).header("steadfast-snooze-ms", "soon"),
        _ => Reply::status(404),
    })
    .await;
    let worker = push(&world, Endpoint::new(&receiver.url("/")).unwrap()).await;
    let ended = async |payload: &str| {
        let id = welcome(&world, payload).await;
        world.ends(id).await
    };
    let never = ended("\"never\"").await;
    assert_eq!((never.status, never.attempts), (Status::FailedPermanent, 1));
    assert!(error(&never).contains("HTTP 404") && error(&never).contains("no such user"), "{}", error(&never));
    assert_eq!(ended("\"bad\"").await.attempts, 1);
    assert_eq!(ended("\"other\"").await.attempts, 3);
    let odd = ended("\"odd\"").await;
    assert!(error(&odd).contains("steadfast-snooze-ms"), "{}", error(&odd));
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_no_json_is_kept_in_part_and_json_that_is_too_large_is_a_failure_that_says_so() {
    let world = World::sqlite().await;
    let large = format!("\"{}\"", "x".repeat(256 * 1024));
    let receiver = Receiver::start(move |seen| match seen.body.as_ref() {
        b"1" => Reply::status(200).header("content-type", "text/html").body("<p>done"),
        b"2" => Reply::status(204),
        b"3" => Reply::status(200).header("content-type", "application/json").body(large.clone()),
        b"4" => Reply::status(200).header("content-type", "text/plain").body(large.clone()),
        b"5" => {
            Reply::status(200).header("content-type", "application/json").body(large[1..256 * 1024].to_owned() + "\"")
        }
        b"6" => {
            Reply::status(200).header("content-type", "application/json").header("content-encoding", "gzip").body("zzz")
        }
        _ => Reply::status(200)
            .header("content-type", "application/json")
            .body(large[..256 * 1024 - 1].to_owned() + "\""),
    })
    .await;
    let worker = push(&world, Endpoint::new(&receiver.url("/")).unwrap()).await;
    let ended = async |payload: &str| {
        let id = welcome(&world, payload).await;
        world.ends(id).await
    };
    let result = |job: &JobRecord| job.result.as_ref().unwrap().decode::<Value>().unwrap();
    let html = result(&ended("1").await);
    assert_eq!((&html["status"], &html["response"]["excerpt"]), (&json!(200), &json!("<p>done")));
    assert_eq!(result(&ended("2").await)["status"], 204);
    let too_large = ended("3").await;
    assert_eq!((too_large.status, too_large.attempts), (Status::FailedPermanent, 1));
    assert!(error(&too_large).contains("262144 bytes"), "{}", error(&too_large));
    assert_eq!(result(&ended("4").await)["response"]["truncated"], true);
    assert_eq!(ended("5").await.status, Status::Succeeded, "not JSON at all, and within the limit");
    assert_eq!(result(&ended("6").await)["response"]["excerpt"], "(gzip, 3 bytes)");
    assert_eq!(ended("7").await.result.unwrap().as_str().len(), 256 * 1024, "exactly as large as it may be");
    worker.stop().await;
}

/// A worker for `http_request` with the endpoint `app`.
async fn http_requests(
    world: &World,
    targets: HttpTargets,
    guarded: Outbound,
    app: Endpoint,
) -> (HttpRequests, Running) {
    let retry = RetryPolicy::fixed([Duration::from_millis(10)]);
    world.declare_with::<HttpRequest>(|defaults| defaults.retry(retry).max_attempts(2)).await;
    let directory = Arc::new(Directory::new().with_endpoint("app", app).unwrap());
    let requests = HttpRequests::new(targets, guarded, trusted(), HostGate::new(), directory);
    let running = requests.clone();
    let worker = world.worker(HttpRequest::KIND, move |payload: Json, context| {
        let requests = running.clone();
        async move { requests.run(payload.decode()?, &context).await }
    });
    (requests, Running::start(worker))
}

#[tokio::test(flavor = "multi_thread")]
async fn an_http_request_calls_a_path_below_its_endpoint() {
    let world = World::sqlite().await;
    let receiver = Receiver::start(|seen| {
        Reply::status(200).body(json!({"method": seen.method.as_str(), "path": seen.path}).to_string())
    })
    .await;
    let app = Endpoint::new(&receiver.url("/api/v1")).unwrap().secret(SECRET).unwrap();
    let app = app.header("authorization", "Bearer of-the-operator").unwrap();
    let (requests, worker) = http_requests(&world, HttpTargets::Endpoints, strictly_guarded(), app).await;
    let mut put = HttpRequest::to_endpoint("app").body(json!({"n": 1}));
    put.path = Some("/users/7?full=1".into());
    put.method = Some(RequestMethod::Put);
    put.headers = Some(BTreeMap::from([("x-shop".to_owned(), "7".to_owned())]));
    let id = world.enqueue(put).await;
    let job = world.ends(id).await;
    let result: Value = job.result.unwrap().decode().unwrap();
    assert_eq!(result, json!({"method": "PUT", "path": "/api/v1/users/7?full=1"}));
    let seen = &receiver.seen()[0];
    assert_eq!([seen.header("x-shop"), seen.header("authorization")], ["7", "Bearer of-the-operator"]);
    assert_eq!(seen.header("steadfast-kind"), "http_request");
    standardwebhooks::Webhook::new(SECRET).unwrap().verify(&seen.body, &seen.headers).unwrap();
    let id = world.enqueue(HttpRequest::to_endpoint("app")).await;
    let result: Value = world.ends(id).await.result.unwrap().decode().unwrap();
    assert_eq!(result["method"], "GET");
    let refused = |change: &dyn Fn(&mut HttpRequest)| {
        let mut request = HttpRequest::to_endpoint("app");
        change(&mut request);
        requests.check(&request).unwrap_err()
    };
    for path in ["users", "/../admin", "/a/%2e%2E/b", "/a\\..\\b", "//..", "/a b", "/a#b", "/a\r\nb"] {
        assert!(refused(&|request| request.path = Some(path.into())).starts_with("path: "), "{path}");
    }
    assert!(
        refused(&|request| (request.method, request.body) =
            (Some(RequestMethod::Get), HttpRequest::to_url("x").body(json!(1)).body))
        .contains("GET")
    );
    let authorization = BTreeMap::from([("Authorization".to_owned(), "mine".to_owned())]);
    assert!(refused(&|request| request.headers = Some(authorization.clone())).contains("set by the endpoint"));
    let signature = BTreeMap::from([("webhook-signature".to_owned(), "v1,x".to_owned())]);
    assert!(refused(&|request| request.headers = Some(signature.clone())).contains("leave it out"));
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s38_an_http_request_goes_to_a_callers_url_only_where_that_is_set_and_then_through_the_guard() {
    let world = World::sqlite().await;
    let receiver = Receiver::always(Reply::status(200).body("\"inside\"")).await;
    let app = || Endpoint::new(&receiver.url("/")).unwrap();
    let by_url = || HttpRequest::to_url(receiver.url_as("inside.test", "/"));
    let (closed, worker) = http_requests(&world, HttpTargets::default(), guarded(), app()).await;
    let refused = closed.check(&by_url()).unwrap_err();
    assert!(refused.contains("named endpoints only"), "{refused}");
    let id = world.enqueue(by_url()).await;
    let job = world.ends(id).await;
    assert_eq!((job.status, job.attempts), (Status::FailedPermanent, 1), "stored under other settings");
    worker.stop().await;
    let (open, worker) = http_requests(&world, HttpTargets::Any, strictly_guarded(), app()).await;
    open.check(&by_url()).unwrap();
    assert!(open.check(&HttpRequest::to_url(receiver.url("/"))).is_err(), "a literal is judged at the door");
    let id = world.enqueue(by_url()).await;
    let job = world.ends(id).await;
    assert_eq!((job.status, job.attempts), (Status::FailedPermanent, 1), "{}", error(&job));
    assert!(receiver.seen().is_empty());
    worker.stop().await;
    let (_, worker) = http_requests(&world, HttpTargets::Any, guarded(), app()).await;
    let id = world.enqueue(by_url()).await;
    assert_eq!(world.ends(id).await.result.unwrap().as_str(), "\"inside\"");
    assert!(!receiver.seen()[0].headers.contains_key("steadfast-queue"), "strangers are told nothing of the queue");
    worker.stop().await;
}
