//! Workers in another language, as the server sees them: lease up to so many jobs, settle them all, again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use serde_json::json;
use tokio::task::JoinSet;

use super::served::Served;
use super::wire::{Connection, request};

/// What a client must read of an answer to `POST /leases`.
#[derive(Debug, Deserialize)]
struct Leases<'a> {
    #[serde(borrow)]
    leases: Vec<Lease<'a>>,
}

#[derive(Debug, Deserialize)]
struct Lease<'a> {
    lease_token: &'a str,
    #[serde(borrow)]
    job: Job<'a>,
}

#[derive(Debug, Deserialize)]
struct Job<'a> {
    id: &'a str,
}

/// And of an answer to `POST /leases/settle`.
#[derive(Debug, Deserialize)]
struct Settlement<'a> {
    #[serde(borrow)]
    outcomes: Vec<Settled<'a>>,
}

#[derive(Debug, Deserialize)]
struct Settled<'a> {
    status: &'a str,
}

/// Drains `jobs` jobs with so many clients; answers how many were recorded.
pub(super) async fn drain(served: &Served, clients: u64, max: u64, jobs: u64, done: Arc<AtomicU64>) -> Result<u64> {
    let mut running = JoinSet::new();
    for number in 0..clients {
        let mut connection = Connection::open(served.address).await?;
        let (worker, done) = (format!("bench-{number}"), done.clone());
        let lease = request("POST", "/leases", &json!({"worker": worker, "max": max}).to_string());
        running.spawn(async move {
            while done.load(Ordering::Relaxed) < jobs {
                let answer = connection.ask(&lease).await?;
                let leases: Leases<'_> = serde_json::from_slice(answer).context("leases cannot be read")?;
                if leases.leases.is_empty() {
                    // The others hold what is left.
                    break;
                }
                let body = settlement(&worker, &leases);
                let answer = connection.ask(&request("POST", "/leases/settle", &body)).await?;
                let settled: Settlement<'_> = serde_json::from_slice(answer).context("a settlement cannot be read")?;
                let recorded = settled.outcomes.iter().filter(|outcome| outcome.status == "recorded").count();
                done.fetch_add(recorded as u64, Ordering::Relaxed);
            }
            anyhow::Ok(())
        });
    }
    while let Some(ended) = running.join_next().await {
        ended.context("a client was interrupted")??;
    }
    match done.load(Ordering::Relaxed) {
        recorded if recorded < jobs => {
            bail!("{recorded} of {jobs} jobs were recorded; the others are nowhere to be found")
        }
        recorded => Ok(recorded),
    }
}

fn settlement(worker: &str, leases: &Leases<'_>) -> String {
    let outcome =
        |lease: &Lease<'_>| json!({"job_id": lease.job.id, "lease_token": lease.lease_token, "outcome": "succeeded"});
    json!({"worker": worker, "outcomes": leases.leases.iter().map(outcome).collect::<Vec<_>>()}).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_lease_is_settled_with_its_token() {
        let answer = r#"{"leases":[{"lease_token":"t","lease_ms":30000,"attempt":1,"job":{"id":"i","kind":"k"}}]}"#;
        let body = settlement("w", &serde_json::from_str(answer).unwrap());
        let expected = r#"{"outcomes":[{"job_id":"i","lease_token":"t","outcome":"succeeded"}],"worker":"w"}"#;
        assert_eq!(body, expected);
    }
}
