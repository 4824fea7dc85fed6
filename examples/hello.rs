//! The smallest program: one file, one job, one handler.
//!
//! `cargo run --example hello`

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use steadfast::{Context, Job, Queue, Worker};

#[derive(Serialize, Deserialize, JsonSchema)]
struct Welcome {
    user: u64,
}

impl Job for Welcome {
    const KIND: &'static str = "welcome";
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    let queue = Queue::open(&format!("sqlite://{}", directory.path().join("jobs.db").display())).await?;
    let accepted = queue.enqueue(Welcome { user: 42 }).idempotency_key("welcome-42").await?;
    println!("accepted job {}", accepted.job.id);

    let (done, greeted) = tokio::sync::mpsc::channel(1);
    Worker::new(queue.clone())
        .with_state(done)
        .handle(|job: Welcome, context: Context<tokio::sync::mpsc::Sender<()>>| async move {
            println!("welcome, user {}", job.user);
            context.state().send(()).await?;
            Ok(())
        })
        .run_until(first(greeted))
        .await?;

    let job = queue.get(accepted.job.id).await?.expect("it was accepted, so it is there");
    println!("the job is {} after {} attempt", job.status, job.attempts);
    Ok(())
}

/// Here the program ends after its one job; usually this is `steadfast::worker::shutdown_signal()`.
async fn first(mut greeted: tokio::sync::mpsc::Receiver<()>) {
    greeted.recv().await;
}
