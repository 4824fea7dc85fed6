//! Ctrl-C while jobs run: what can finish does, the rest goes back to the queue without costing an attempt.
//!
//! `cargo run --example graceful_shutdown`, then press Ctrl-C. It stops by itself after ten seconds.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use steadfast::worker::{JobError, StopReason, WorkerSettings, shutdown_signal};
use steadfast::{Context, Job, Queue, Worker};

#[derive(Serialize, Deserialize, JsonSchema)]
struct Nap {
    seconds: u64,
}

impl Job for Nap {
    const KIND: &'static str = "nap";
}

async fn nap(job: Nap, context: Context) -> Result<(), JobError> {
    tokio::select! {
        () = tokio::time::sleep(Duration::from_secs(job.seconds)) => Ok(()),
        reason = context.stopped() => {
            if reason == StopReason::ShuttingDown && job.seconds <= 2 {
                println!("nap of {} s: nearly done, finishing", job.seconds);
                tokio::time::sleep(Duration::from_secs(job.seconds)).await;
                return Ok(());
            }
            Err(JobError::new(format!("woken up: {reason:?}")))
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    let queue = Queue::open(&format!("sqlite://{}", directory.path().join("jobs.db").display())).await?;
    let mut ids = Vec::new();
    for seconds in [1, 2, 60, 120] {
        ids.push(queue.enqueue(Nap { seconds }).await?.job.id);
    }
    println!("four naps are running; press Ctrl-C");
    Worker::new(queue.clone())
        .settings(WorkerSettings::default().shutdown_grace(Duration::from_secs(5)))
        .handle(nap)
        .run_until(async {
            tokio::select! {
                () = shutdown_signal() => {}
                () = tokio::time::sleep(Duration::from_secs(10)) => {}
            }
        })
        .await?;
    for id in ids {
        let job = queue.get(id).await?.expect("it was accepted, so it is there");
        println!("{} {} after {} counted attempts", job.payload.as_str(), job.status, job.attempts);
    }
    Ok(())
}
