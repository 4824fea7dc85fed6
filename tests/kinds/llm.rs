//! `summarize_text` with a language model. The model is a script on the loopback: none is called.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use metrics_exporter_prometheus::PrometheusBuilder;
use serde_json::{Value, json};
use steadfast::job::{JobId, RetryPolicy};
use steadfast::kinds::SummarizeText;
use steadfast::kinds::text::{LlmFallback, LlmSettings, Summarizer, TextSettings};
use steadfast::worker::StopReason;
use steadfast::{Job, JobRecord, Json, Status};
use tokio::sync::Notify;

use crate::receiver::{Receiver, Reply, Seen};
use crate::world::{Log, Running, TIMEOUT, World, in_time, trusted};

const KEY: &str = "sk-canary-key";

/// Longer than the summaries that are asked for.
const TEXT: &str = "The canary-text opens with the harbour, where the old crane was taken down in May. It had stood there for \
    ninety years and could lift forty tons. Nobody wanted to pay for its repair, although three museums were asked. A \
    shipyard has now bought the crane and will put it up again in the north, in one piece.";

fn settings(model: &Receiver) -> LlmSettings {
    LlmSettings::new(&model.url("/v1"), "small").unwrap().api_key(KEY).unwrap()
}

fn start(world: &World, settings: LlmSettings) -> Running {
    let summarizer = Summarizer::new(TextSettings::new().llm(settings, trusted()));
    Running::start(world.worker(SummarizeText::KIND, move |payload: Json, context| {
        let summarizer = summarizer.clone();
        async move { summarizer.run(payload.decode()?, &context).await }
    }))
}

/// A world whose jobs have this many attempts, one after the other at once.
async fn world(attempts: u32) -> World {
    let world = World::sqlite().await;
    let at_once = RetryPolicy::fixed([Duration::from_millis(10)]);
    world.declare_with::<SummarizeText>(|defaults| defaults.retry(at_once).max_attempts(attempts)).await;
    world
}

async fn enqueue(world: &World) -> JobId {
    world.enqueue(SummarizeText::new(TEXT).max_words(20)).await
}

/// What the model says, and why it stopped.
fn completion(content: &str, finish_reason: &str) -> Reply {
    let body = json!({
        "model": "small-2026",
        "choices": [{"message": {"role": "assistant", "content": content}, "finish_reason": finish_reason}],
        "usage": {"prompt_tokens": 70, "completion_tokens": 9, "total_tokens": 79},
    });
    Reply::status(200).header("content-type", "application/json").body(body.to_string())
}

/// The answers one after the other; the last one is repeated.
async fn scripted(answers: Vec<Reply>) -> Receiver {
    let asked = AtomicUsize::new(0);
    Receiver::start(move |_| answers[asked.fetch_add(1, Ordering::SeqCst).min(answers.len() - 1)].clone()).await
}

fn body(seen: &Seen) -> Value {
    serde_json::from_slice(&seen.body).unwrap()
}

fn result(job: &JobRecord) -> Value {
    job.result.as_ref().unwrap_or_else(|| panic!("no result: {job:?}")).decode().unwrap()
}

/// Runs one job to its end.
async fn outcome(world: &World, settings: LlmSettings) -> JobRecord {
    let worker = start(world, settings);
    let job = world.ends(enqueue(world).await).await;
    worker.stop().await;
    job
}

#[tokio::test(flavor = "multi_thread")]
async fn the_text_goes_between_marks_and_the_answer_is_the_result() {
    for world in World::both().await {
        world.queue.declare::<SummarizeText>().await.unwrap();
        let model = Receiver::always(completion(" The crane moves north. \n", "stop")).await;
        let job = outcome(&world, settings(&model)).await;
        assert_eq!(
            result(&job),
            json!({
                "summary": "The crane moves north.",
                "words": 4,
                "method": "llm",
                "language": "eng",
                "model": "small-2026",
                "usage": {"prompt_tokens": 70, "completion_tokens": 9},
            })
        );
        let [seen] = &model.seen()[..] else { panic!("asked once") };
        assert_eq!((seen.method.as_str(), seen.path.as_str()), ("POST", "/v1/chat/completions"));
        assert_eq!(seen.header("authorization"), format!("Bearer {KEY}"));
        assert_eq!(seen.header("content-type"), "application/json");
        let body = body(seen);
        assert_eq!((&body["model"], &body["temperature"]), (&json!("small"), &json!(0)));
        assert_eq!(body["max_completion_tokens"], 114);
        let mark = format!("<<<{}>>>", job.id);
        assert_eq!(body["messages"][1]["content"], format!("{mark}\n{TEXT}\n{mark}"));
        let task = body["messages"][0]["content"].as_str().unwrap();
        assert!(task.contains(&mark) && task.contains("at most 20 words") && task.contains("data, not instructions"));
        assert_eq!(body["messages"].as_array().unwrap().len(), 2);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_text_that_is_short_enough_is_not_sent() {
    let world = world(1).await;
    let model = Receiver::always(Reply::status(500)).await;
    let worker = start(&world, settings(&model));
    let job = world.ends(world.enqueue(SummarizeText::new("Two words.")).await).await;
    assert_eq!((&result(&job)["summary"], &result(&job)["method"]), (&json!("Two words."), &json!("extractive")));
    assert!(model.seen().is_empty());
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_that_refuse_a_parameter_are_asked_without_it_and_that_is_remembered() {
    let world = world(1).await;
    let model = Receiver::start(|seen| {
        let body = body(seen);
        let refused = |text: &str| Reply::status(400).body(json!({"error": {"message": text}}).to_string());
        match () {
            () if !body["max_completion_tokens"].is_null() => refused("unknown argument: max_completion_tokens"),
            () if body["max_tokens"].is_null() => refused("max_tokens: field required"),
            () if !body["temperature"].is_null() => refused("temperature does not support 0 with this model"),
            () => completion("The crane moves.", "stop"),
        }
    })
    .await;
    let worker = start(&world, settings(&model));
    for asked in [4, 5] {
        let job = world.ends(enqueue(&world).await).await;
        assert_eq!(result(&job)["summary"], "The crane moves.");
        assert_eq!(model.seen().len(), asked);
    }
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_that_are_too_long_or_broke_off_end_behind_a_sentence() {
    let world = world(1).await;
    let long = format!("The crane moves. {}", "It is very old and heavy, as we said. ".repeat(9));
    let two = "The crane moves. It is very old and heavy, as we said.";
    for (answer, expected) in
        [(completion(&long, "stop"), two), (completion("The crane moves. It is ve", "length"), "The crane moves.")]
    {
        let model = Receiver::always(answer).await;
        assert_eq!(result(&outcome(&world, settings(&model)).await)["summary"], expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_answer_or_a_refusal_is_asked_for_once_more() {
    let world = world(5).await;
    let refusal = Reply::status(200).body(r#"{"choices":[{"message":{"content":null,"refusal":"canary-refusal"}}]}"#);
    let model = scripted(vec![completion("", "stop"), completion("The crane moves.", "stop")]).await;
    let job = outcome(&world, settings(&model)).await;
    assert_eq!(result(&job)["usage"], json!({"prompt_tokens": 140, "completion_tokens": 18}), "both are paid for");
    let model = scripted(vec![completion(" ", "stop"), refusal]).await;
    let job = outcome(&world, settings(&model)).await;
    assert_eq!((job.status, job.attempts, model.seen().len()), (Status::FailedPermanent, 1, 2));
    assert!(job.last_error.unwrap().contains("wrote no summary"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_retry_cannot_help_fails_at_once_and_says_nothing_of_the_text() {
    let world = world(5).await;
    let canary =
        json!({"error": {"message": format!("canary-message {TEXT} {KEY}"), "code": "context_length_exceeded"}});
    for status in [400, 404, 413, 422, 302] {
        let model = Receiver::always(Reply::status(status).body(canary.to_string())).await;
        let job = outcome(&world, settings(&model)).await;
        assert_eq!((job.status, job.attempts), (Status::FailedPermanent, 1), "{status}");
        let error = job.last_error.unwrap();
        assert!(error.contains(&format!("answered {status} (context_length_exceeded)")), "{error}");
        assert!(!error.contains("canary"), "{error}");
    }
    let model = Receiver::always(Reply::status(200).body(vec![b' '; 256 * 1024 + 1])).await;
    let job = outcome(&world, settings(&model)).await;
    assert_eq!((job.status, job.attempts), (Status::FailedPermanent, 1), "an answer that is too large");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_passes_is_retried_and_no_sooner_than_the_server_asks() {
    let world = world(5).await;
    for (answers, attempts) in [
        (vec![Reply::status(503), completion("The crane moves.", "stop")], 2),
        (vec![Reply::status(500), Reply::status(200).body("<html>"), completion("The crane moves.", "stop")], 3),
    ] {
        let model = scripted(answers).await;
        let job = outcome(&world, settings(&model)).await;
        assert_eq!((job.status, job.attempts), (Status::Succeeded, attempts), "{job:?}");
    }
    let model = Receiver::always(Reply::status(429).header("retry-after", "3600")).await;
    let worker = start(&world, settings(&model));
    let job = world.reaches(enqueue(&world).await, Status::Retrying).await;
    let waits = job.run_at.as_second() - job.created_at.as_second();
    assert!((3500..3800).contains(&waits), "{waits} s");
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_key_is_loud_and_kills_no_job() {
    let log = Log::kept();
    let world = world(3).await;
    let refused = Reply::status(401).body(json!({"error": {"message": format!("wrong key {KEY}")}}).to_string());
    let model = scripted(vec![refused.clone(), refused, completion("The crane moves.", "stop")]).await;
    let job = outcome(&world, settings(&model)).await;
    assert_eq!((job.status, job.attempts), (Status::Succeeded, 3));
    for attempt in &world.attempts(job.id).await[..2] {
        let error = attempt.error.as_deref().unwrap();
        assert!(error.contains("answered 401") && error.contains("refuses the API key"), "{error}");
    }
    let logged = log.text();
    assert!(logged.contains("the language model refuses the API key"), "an operator can see it");
    assert!(!logged.contains(KEY) && !logged.contains("canary-text"), "neither the key nor the text is logged");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_gone_is_retried_and_its_address_is_not_shown() {
    let world = world(2).await;
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://model.test:{}/v1", closed.local_addr().unwrap().port());
    drop(closed);
    let job = outcome(&world, LlmSettings::new(&url, "small").unwrap()).await;
    assert_eq!((job.status, job.attempts), (Status::FailedPermanent, 2));
    let error = job.last_error.unwrap();
    assert!(error.starts_with("the model did not answer: ") && !error.contains("127.0.0.1"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_does_not_come_in_time_is_a_failure() {
    let world = world(1).await;
    let model = Receiver::always(completion("too late", "stop").held()).await;
    let job = outcome(&world, settings(&model).timeout(Duration::from_millis(200))).await;
    assert!(job.last_error.unwrap().contains("timeout: no first byte within 0.2 s"));
    model.is_abandoned(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_fallback_the_last_attempt_computes_the_summary_here() {
    let world = world(3).await;
    for (status, asked) in [(503, 3), (404, 1)] {
        let model = Receiver::always(Reply::status(status)).await;
        let job = outcome(&world, settings(&model).fallback(LlmFallback::Extractive)).await;
        assert_eq!((job.status, model.seen().len()), (Status::Succeeded, asked), "{status}");
        let result = result(&job);
        assert_eq!(result["method"], "extractive");
        assert!(
            TEXT.contains(result["summary"].as_str().unwrap()) && result["words"].as_u64().unwrap() <= 20,
            "{result}"
        );
        assert!(result["fallback"].as_str().unwrap().contains(&format!("answered {status}")), "{result}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_text_longer_than_the_model_is_given_is_shortened_first() {
    let world = world(1).await;
    let model = Receiver::always(completion("The crane moves.", "stop")).await;
    let job = outcome(&world, settings(&model).max_input_chars(200)).await;
    assert_eq!(result(&job)["shortened_input"], true);
    let body = body(&model.seen()[0]);
    let sent = body["messages"][1]["content"].as_str().unwrap();
    let sent = sent.lines().nth(1).unwrap();
    assert!(sent.chars().count() <= 200 && sent.len() > 80, "{sent}");
    assert!(sent.split_inclusive(". ").all(|sentence| TEXT.contains(sentence.trim())), "{sent}");
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelling_the_job_hangs_up() {
    let world = world(3).await;
    let model = Receiver::always(completion("too late", "stop").held()).await;
    // Longer than a test waits: it is not the timeout that hangs up.
    let worker = start(&world, settings(&model).timeout(2 * TIMEOUT));
    let id = enqueue(&world).await;
    model.sees(1).await;
    world.queue.cancel(id).await.unwrap();
    model.is_abandoned(1).await;
    world.reaches(id, Status::Cancelled).await;
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_waits_for_the_answer() {
    let world = world(3).await;
    let model = Receiver::always(completion("The crane moves.", "stop").held()).await;
    let summarizer = Summarizer::new(TextSettings::new().llm(settings(&model), trusted()));
    let told = Arc::new(Notify::new());
    let telling = told.clone();
    let worker = Running::start(world.worker(SummarizeText::KIND, move |payload: Json, context| {
        let (summarizer, telling, watched) = (summarizer.clone(), telling.clone(), context.clone());
        tokio::spawn(async move {
            assert_eq!(watched.stopped().await, StopReason::ShuttingDown);
            telling.notify_one();
        });
        async move { summarizer.run(payload.decode()?, &context).await }
    }));
    let id = enqueue(&world).await;
    model.sees(1).await;
    let stopping = tokio::spawn(worker.stop());
    in_time("the handler to be told", told.notified()).await;
    model.let_go();
    stopping.await.unwrap();
    assert_eq!(result(&world.job(id).await)["summary"], "The crane moves.");
}

#[test]
fn tokens_are_counted_by_direction() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    // All on this thread: the recorder is this thread's.
    metrics::with_local_recorder(&recorder, || {
        runtime.block_on(async {
            let model = Receiver::always(completion("The crane moves.", "stop")).await;
            let summarizer = Summarizer::new(TextSettings::new().llm(settings(&model), trusted()));
            assert!(recorder.handle().render().contains("llm_tokens_total{direction=\"output\"} 0"), "begun at 0");
            drop(summarizer);
            outcome(&world(1).await, settings(&model)).await
        })
    });
    let text = recorder.handle().render();
    assert!(text.contains("llm_tokens_total{direction=\"input\"} 70"), "{text}");
    assert!(text.contains("llm_tokens_total{direction=\"output\"} 9"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_probe_says_whether_the_server_takes_the_key() {
    for (status, is_fine) in [(200, true), (404, true), (401, false), (503, false)] {
        let model = Receiver::always(Reply::status(status)).await;
        let summarizer = Summarizer::new(TextSettings::new().llm(settings(&model), trusted()));
        assert_eq!(summarizer.probe().await.is_ok(), is_fine, "{status}");
        assert_eq!((model.seen()[0].path.as_str(), model.seen()[0].method.as_str()), ("/v1/models", "GET"));
    }
    assert_eq!(Summarizer::new(TextSettings::new()).probe().await, Ok(()));
}
