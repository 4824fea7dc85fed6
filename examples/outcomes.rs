//! What a caller can say about a job, what a handler can answer, and what becomes of the job: a result, a retry, a snooze,
//! a dead letter, a time-out.
//!
//! `cargo run --example outcomes` takes a second or two and leaves nothing behind.

use std::time::{Duration, Instant};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use steadfast::job::{KindDefaults, RetryPolicy};
use steadfast::worker::{Completion, HandlerOptions, JobError};
use steadfast::{Context, Job, JobId, Queue, Worker};

/// After the start of the program.
const BANK_OPENS: Duration = Duration::from_millis(500);

/// The type is the kind: its JSON schema is derived, and a payload that does not fit is refused when it is enqueued.
#[derive(Serialize, Deserialize, JsonSchema)]
struct Payment {
    card: String,
    cents: u64,
}

impl Job for Payment {
    const KIND: &'static str = "payment";

    /// For callers that say nothing else: three attempts, 200 ms apart.
    fn defaults() -> KindDefaults {
        KindDefaults::default().max_attempts(3).retry(RetryPolicy::fixed([Duration::from_millis(200)]))
    }
}

/// The state that handlers share is the time when the program was started.
async fn charge(job: Payment, context: Context<Instant>) -> Result<Completion, JobError> {
    println!("attempt {} of {}: card {}", context.attempt(), context.max_attempts(), job.card);
    match job.card.as_str() {
        // Any error is retried by the policy of the kind …
        "flaky" if context.attempt() == 1 => Err("the bank hung up")?,
        // … or when the handler says. `?` makes a `JobError` of every error type.
        "busy" if context.attempt() == 1 => Err(JobError::new("come back").retry_after(Duration::from_millis(500))),
        // Trying again cannot help: a dead letter at once, which a person may redrive.
        "stolen" => Err(JobError::permanent("this card was reported stolen")),
        // Not now, and nothing went wrong: no attempt is counted.
        "not yet" if context.state().elapsed() < BANK_OPENS => Ok(Completion::Snooze(Duration::from_millis(300))),
        // Longer than the caller allows; the handler is stopped.
        "slow" => {
            tokio::time::sleep(Duration::from_secs(3600)).await;
            Ok(().into())
        }
        // Done, with a result that is kept with the job.
        _ => Ok(Completion::result(&serde_json::json!({ "charged_cents": job.cents }))?),
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    let queue = Queue::open(&format!("sqlite://{}", directory.path().join("jobs.db").display())).await?;
    let payment = |card: &str| Payment { card: card.to_owned(), cents: 1_999 };

    // Everything but the job itself is optional.
    let ids = [
        queue.enqueue(payment("good")).idempotency_key("order-17").await?.job.id,
        queue.enqueue(payment("flaky")).priority(10).await?.job.id,
        queue.enqueue(payment("busy")).queue("cards").await?.job.id,
        queue.enqueue(payment("stolen")).delay(Duration::from_millis(100)).await?.job.id,
        queue.enqueue(payment("not yet")).await?.job.id,
        queue.enqueue(payment("slow")).timeout(Duration::from_millis(200)).max_attempts(1).await?.job.id,
    ];
    // The same key again: the caller gets the job there is.
    let again = queue.enqueue(payment("good")).idempotency_key("order-17").await?;
    assert!(again.job.id == ids[0] && !again.created);

    let watched = queue.clone();
    Worker::new(queue.clone())
        .with_state(Instant::now())
        .concurrency(16)
        .handle_with(HandlerOptions::new().concurrency(4), charge)
        // Usually `steadfast::worker::shutdown_signal()`.
        .run_until(async move { while !all_finished(&watched, &ids).await {} })
        .await?;

    for id in ids {
        let job = queue.get(id).await?.expect("it was accepted, so it is there");
        let said = job.result.as_ref().map(|result| result.as_str()).or(job.last_error.as_deref());
        println!(
            "{:45} {} after {} attempt(s): {}",
            job.payload.as_str(),
            job.status,
            job.attempts,
            said.unwrap_or("–")
        );
    }
    Ok(())
}

async fn all_finished(queue: &Queue, ids: &[JobId]) -> bool {
    tokio::time::sleep(Duration::from_millis(50)).await;
    for id in ids {
        match queue.get(*id).await {
            Ok(Some(job)) if job.finished_at.is_some() => {}
            _ => return false,
        }
    }
    true
}
