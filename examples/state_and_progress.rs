//! Handlers that share state, report progress, return a result and enqueue the next job.
//!
//! `cargo run --example state_and_progress`

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use steadfast::worker::WorkerSettings;
use steadfast::{Context, Job, Queue, Status, Worker};

#[derive(Serialize, Deserialize, JsonSchema)]
struct Import {
    rows: u64,
}

impl Job for Import {
    const KIND: &'static str = "import";
}

#[derive(Serialize, Deserialize, JsonSchema)]
struct Report {
    imported: u64,
}

impl Job for Report {
    const KIND: &'static str = "report";
}

#[derive(Default)]
struct Totals {
    imported: AtomicU64,
}

async fn import(job: Import, context: Context<Totals>) -> Result<serde_json::Value, steadfast::worker::JobError> {
    for row in 1..=job.rows {
        // The real work on one row.
        tokio::time::sleep(Duration::from_millis(100)).await;
        context.state().imported.fetch_add(1, Ordering::Relaxed);
        context.progress(u8::try_from(row * 100 / job.rows).ok(), Some("importing"));
    }
    // The id of this job as the key: however often it is retried, there is one report.
    let key = format!("report-{}", context.job_id());
    context.queue().enqueue(Report { imported: job.rows }).idempotency_key(key).await?;
    Ok(serde_json::json!({ "rows": job.rows }))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    let queue = Queue::open(&format!("sqlite://{}", directory.path().join("jobs.db").display())).await?;
    let import_id = queue.enqueue(Import { rows: 25 }).await?.job.id;
    let watched = queue.clone();
    let (reported, mut report) = tokio::sync::mpsc::channel(1);
    Worker::new(queue.clone())
        .with_state(Totals::default())
        // Short leases only so that progress shows often in this example.
        .settings(WorkerSettings::default().lease(Duration::from_secs(1)))
        .handle(import)
        .handle(move |job: Report, context: Context<Totals>| {
            let reported = reported.clone();
            async move {
                let total = context.state().imported.load(Ordering::Relaxed);
                println!("report: {} rows imported, {total} in all", job.imported);
                reported.send(()).await?;
                Ok(())
            }
        })
        .run_until(async move {
            let mut every_half_second = tokio::time::interval(Duration::from_millis(500));
            loop {
                tokio::select! {
                    _ = report.recv() => return,
                    _ = every_half_second.tick() => {
                        let job = watched.get(import_id).await.ok().flatten();
                        let percent = job.and_then(|job| job.progress).and_then(|progress| progress.percent());
                        println!("import: {} %", percent.unwrap_or(0));
                    }
                }
            }
        })
        .await?;
    let job = queue.get(import_id).await?.expect("it was accepted, so it is there");
    assert_eq!(job.status, Status::Succeeded);
    println!("import: {} with result {}", job.status, job.result.expect("it returned one").as_str());
    Ok(())
}
