//! Who works on it: producers and workers over HTTP, which sleep instead of doing anything. One worker beats and never
//! asks for jobs; nobody asks for thumbnails.

use std::thread;
use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};

use super::scenes::enqueue;
use crate::server::cli::Target;
use crate::server::cli::client::Client;

/// What a worker is like: its name, what it takes, how long a job takes it and how many of a hundred attempts fail.
struct Worker {
    name: &'static str,
    kinds: &'static [&'static str],
    slots: usize,
    job_ms: u64,
    fails_percent: u32,
    error: &'static str,
}

const WORKERS: [Worker; 4] = [
    Worker {
        name: "mx-1",
        kinds: &["welcome", "digest"],
        slots: 16,
        job_ms: 400,
        fails_percent: 2,
        error: "smtp 421 too many connections",
    },
    Worker {
        name: "mx-2",
        kinds: &["welcome", "digest"],
        slots: 16,
        job_ms: 500,
        fails_percent: 3,
        error: "smtp 421 too many connections",
    },
    Worker {
        name: "books-1",
        kinds: &["invoice", "report"],
        slots: 8,
        job_ms: 1_500,
        fails_percent: 1,
        error: "ledger is locked by period 11",
    },
    Worker {
        name: "crm-1",
        kinds: &["sync_contact", "search_index"],
        slots: 8,
        job_ms: 900,
        fails_percent: 35,
        error: "crm answered 503 after 900 ms",
    },
];

/// Kind and jobs a second, in the long run.
const ARRIVALS: [(&str, f64); 5] =
    [("welcome", 12.0), ("digest", 2.0), ("invoice", 3.0), ("sync_contact", 2.0), ("search_index", 0.5)];

/// 8: a worker settles and asks again that often per job.
const STEPS_PER_JOB: u64 = 8;

const PAUSE: Duration = Duration::from_secs(1);

/// Starts them all, and goes on producing until the process ends or the server is gone.
pub(super) fn work(target: &Target) -> Result<()> {
    for worker in &WORKERS {
        let client = client_of(target)?;
        thread::spawn(move || run(&client, worker));
    }
    let client = client_of(target)?;
    thread::spawn(move || beat_only(&client));
    let client = client_of(target)?;
    loop {
        for (kind, per_second) in ARRIVALS {
            // Rounded at random, so that the mean is right.
            let count = (per_second * fastrand::f64() * 2.0 + fastrand::f64()) as usize;
            if count > 0 {
                enqueue(&client, kind, count)?;
            }
        }
        thread::sleep(PAUSE);
    }
}

fn client_of(target: &Target) -> Result<Client> {
    Client::new(&Target { url: target.url.clone(), json: false })
}

/// Takes jobs, holds each for about its time, and settles it. Ends when the server does.
fn run(client: &Client, worker: &Worker) {
    let mut held: Vec<(Value, u64)> = Vec::new();
    loop {
        if step(client, worker, &mut held).is_err() {
            return;
        }
        thread::sleep(Duration::from_millis(worker.job_ms / STEPS_PER_JOB));
    }
}

fn step(client: &Client, worker: &Worker, held: &mut Vec<(Value, u64)>) -> Result<()> {
    let free = worker.slots - held.len();
    if free > 0 {
        let info = json!({ "host": worker.name, "language": "demo", "version": env!("CARGO_PKG_VERSION"), "concurrency": worker.slots });
        let ask =
            json!({ "worker": worker.name, "kinds": worker.kinds, "max": free, "lease_ms": 30_000, "info": info });
        let leases = client.post("/leases", Some(&ask))?.json;
        let steps = || fastrand::u64(STEPS_PER_JOB / 2..STEPS_PER_JOB * 2);
        held.extend(leases["leases"].as_array().into_iter().flatten().map(|lease| (lease.clone(), steps())));
    }
    held.iter_mut().for_each(|(_, left)| *left = left.saturating_sub(1));
    let done = held.extract_if(.., |(_, left)| *left == 0).map(|(lease, _)| outcome(worker, &lease));
    let done: Vec<_> = done.collect();
    if !done.is_empty() {
        client.post("/leases/settle", Some(&json!({ "worker": worker.name, "outcomes": done })))?;
    }
    let beats: Vec<_> = held.iter().map(|(lease, left)| beat(lease, *left)).collect();
    if !beats.is_empty() {
        client.post("/leases/heartbeat", Some(&json!({ "worker": worker.name, "leases": beats })))?;
    }
    Ok(())
}

fn outcome(worker: &Worker, lease: &Value) -> Value {
    let mut outcome = json!({ "job_id": lease["job"]["id"], "lease_token": lease["lease_token"] });
    if fastrand::u32(..100) < worker.fails_percent {
        outcome["outcome"] = json!("failed");
        outcome["error"] = json!(worker.error);
    } else {
        outcome["outcome"] = json!("succeeded");
        outcome["result"] = json!({ "ok": true });
    }
    outcome
}

fn beat(lease: &Value, left: u64) -> Value {
    let percent = 100 - (left * 100 / (STEPS_PER_JOB * 2)).min(100);
    json!({ "job_id": lease["job"]["id"], "lease_token": lease["lease_token"], "progress": { "percent": percent } })
}

/// Holds one job for ever and never asks for another, although it has slots to spare.
fn beat_only(client: &Client) {
    let ask = json!({ "worker": "crm-2", "kinds": ["sync_contact"], "max": 1, "lease_ms": 60_000,
        "info": { "host": "crm-2", "language": "demo", "concurrency": 8 } });
    let Ok(leased) = client.post("/leases", Some(&ask)) else { return };
    let held: Vec<_> = leased.json["leases"].as_array().into_iter().flatten().map(|lease| beat(lease, 4)).collect();
    while client.post("/leases/heartbeat", Some(&json!({ "worker": "crm-2", "leases": held }))).is_ok() {
        thread::sleep(PAUSE * 5);
    }
}
