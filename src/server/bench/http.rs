//! `http`: many keep-alive connections against a real server process. Single jobs are compared with `GET /livez`, which
//! costs the same HTTP and no database; with `--protocol` clients lease and settle jobs as workers in another language do.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::Args;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::Common;
use super::noop_jobs::{Behaviour, NoOp, preload};
use super::run::Measure;
use super::server_process::{KeepAliveConnection, ServerProcess, request};
use super::statistics::Percentiles;
use super::stopwatch::{Fixture, Round};
use crate::queue::Job;

/// What is requested, and over how many connections.
#[derive(Debug, Args)]
pub(super) struct Http {
    #[command(flatten)]
    pub(super) common: Common,
    /// Jobs to put in, or to drain with --protocol
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..))]
    jobs: u64,
    /// Connections at the same time; left out: 64, or 4 with --protocol
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    connections: Option<u64>,
    /// Jobs per request, up to 1,000; more than one goes to POST /jobs/batch
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1000))]
    batch: u64,
    /// Preload the jobs, then drain them with the worker protocol: lease, settle
    #[arg(long, conflicts_with = "batch")]
    protocol: bool,
    /// Jobs per lease and settle request
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..=1000), requires = "protocol")]
    lease_max: u64,
}

/// A load that is sent over and over.
struct Load {
    request: Arc<[u8]>,
    requests: u64,
    connections: u64,
}

impl Load {
    /// Sends it; answers how long each request took.
    async fn send(self, server: &ServerProcess, done: Arc<AtomicU64>) -> Result<Vec<u64>> {
        let mut clients = JoinSet::new();
        let next = Arc::new(AtomicU64::new(0));
        for _ in 0..self.connections {
            let mut connection = KeepAliveConnection::open(server.address).await?;
            let (request, next, done) = (self.request.clone(), next.clone(), done.clone());
            clients.spawn(async move {
                let mut nanos = Vec::new();
                while next.fetch_add(1, Ordering::Relaxed) < self.requests {
                    let sent = Instant::now();
                    connection.ask(&request).await?;
                    nanos.push(sent.elapsed().as_nanos() as u64);
                    done.fetch_add(1, Ordering::Relaxed);
                }
                anyhow::Ok(nanos)
            });
        }
        let mut nanos = Vec::new();
        while let Some(ended) = clients.join_next().await {
            nanos.extend(ended.context("a client was interrupted")??);
        }
        Ok(nanos)
    }
}

/// The job as it goes over the wire.
fn job() -> Result<Value> {
    Ok(json!({"kind": NoOp::KIND, "payload": serde_json::to_value(NoOp::new(1))?}))
}

/// Puts jobs in over HTTP, `batch` a request.
async fn post(
    server: &ServerProcess,
    jobs: u64,
    batch: u64,
    connections: u64,
    done: Arc<AtomicU64>,
) -> Result<Vec<u64>> {
    let request = if batch == 1 {
        request("POST", "/jobs", &job()?.to_string())
    } else {
        request("POST", "/jobs/batch", &json!({"jobs": vec![job()?; batch as usize]}).to_string())
    };
    Load { request: request.into(), requests: jobs.div_ceil(batch), connections }.send(server, done).await
}

impl Http {
    fn connections(&self) -> u64 {
        self.connections.unwrap_or(if self.protocol { 4 } else { 64 })
    }
}

impl Measure for Http {
    const NAME: &'static str = "http";

    fn settings(&self) -> Vec<(&'static str, Value)> {
        let per_request = if self.protocol { self.lease_max } else { self.batch };
        vec![
            ("jobs", json!(self.jobs)),
            ("connections", json!(self.connections())),
            ("jobs_per_request", json!(per_request)),
            ("server", json!("steadfast api, a process of its own with default settings")),
        ]
    }

    fn counts(&self) -> &'static str {
        if self.protocol || self.batch > 1 { "jobs" } else { "requests" }
    }

    fn cases(&self) -> Vec<String> {
        match (self.protocol, self.batch) {
            (true, _) => vec!["POST /leases, /leases/settle".into()],
            (false, 1) => vec!["GET /livez".into(), "POST /jobs".into()],
            (false, _) => vec!["POST /jobs/batch".into()],
        }
    }

    async fn round(&self, case: usize, _: &[Round], fixture: &Fixture) -> Result<Round> {
        if self.protocol {
            preload(fixture, &fixture.open().await?, Behaviour::Succeeds, self.jobs).await?;
            fixture.tidy().await?;
        }
        let server = ServerProcess::start(&fixture.location, &fixture.directory).await?;
        let done = Arc::new(AtomicU64::new(0));
        let _line = fixture.progress.line(&self.cases()[case], done.clone(), self.jobs.div_ceil(self.batch));
        let (stopwatch, server_before) = (fixture.start().await?, server.cpu_seconds());
        let (nanos, operations) = match (self.protocol, self.batch, case) {
            (true, ..) => {
                let leased = drain(&server, self.connections(), self.lease_max, self.jobs, done).await?;
                (Vec::new(), leased)
            }
            (false, 1, 0) => {
                let request = request("GET", "/livez", "").into();
                let load = Load { request, requests: self.jobs, connections: self.connections() };
                (load.send(&server, done).await?, self.jobs)
            }
            (false, batch, _) => {
                let nanos = post(&server, self.jobs, batch, self.connections(), done).await?;
                (nanos, self.jobs.div_ceil(batch) * batch)
            }
        };
        let server_cpu_s = server_before.zip(server.cpu_seconds()).map(|(before, now)| now - before);
        let mut round = stopwatch.stop(operations).await?;
        round.child_cpu_s = server_cpu_s;
        round.latencies.extend(Percentiles::of_nanos(nanos).map(|nanos| ("request → answer", nanos)));
        Ok(round)
    }
}

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
    job: LeasedJob<'a>,
}

#[derive(Debug, Deserialize)]
struct LeasedJob<'a> {
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
async fn drain(server: &ServerProcess, clients: u64, max: u64, jobs: u64, done: Arc<AtomicU64>) -> Result<u64> {
    let mut running = JoinSet::new();
    for number in 0..clients {
        let mut connection = KeepAliveConnection::open(server.address).await?;
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
