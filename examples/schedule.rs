//! A job that comes back: a schedule enqueues one each second, and a handler runs three of them.
//!
//! `cargo run --example schedule`

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use steadfast::{Context, Job, Queue, Worker};

#[derive(Serialize, Deserialize, JsonSchema)]
struct Report {
    /// Which tick it is for: `{{tick}}` is filled in when the job is enqueued.
    at: String,
}

impl Job for Report {
    const KIND: &'static str = "report";
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    let queue = Queue::open(&format!("sqlite://{}", directory.path().join("jobs.db").display())).await?;
    // Usually `.cron("30 2 * * *").tz("Europe/Berlin")`.
    let at = "{{tick}}".to_owned();
    let put = queue.schedule("reports").every(Duration::from_secs(1)).job(Report { at }).await?;
    println!("schedule {} fires next at {:?}", put.schedule.name, put.schedule.next_at);

    let (done, mut reported) = tokio::sync::mpsc::channel(3);
    Worker::new(queue.clone())
        .with_state(done)
        .handle(|job: Report, context: Context<tokio::sync::mpsc::Sender<()>>| async move {
            println!("the report of {}", job.at);
            context.state().send(()).await?;
            Ok(())
        })
        .run_until(async move {
            for _ in 0..3 {
                reported.recv().await;
            }
        })
        .await?;
    Ok(())
}
