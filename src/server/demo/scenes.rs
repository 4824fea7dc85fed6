//! What there is to see: queues that keep up, one nobody works for, one that is paused, one with a limit, dead letters of
//! a few causes, schedules.

use anyhow::Result;
use serde_json::{Value, json};

use crate::server::cli::client::Client;

/// Kind, queue, and what its payloads look like.
pub(super) const KINDS: [(&str, &str); 7] = [
    ("welcome", "mail"),
    ("digest", "mail"),
    ("thumbnail", "images"),
    ("invoice", "billing"),
    ("report", "reports"),
    ("sync_contact", "crm"),
    ("search_index", "default"),
];

const CUSTOMERS: [&str; 5] = ["acme", "globex", "initech", "umbrella", "hooli"];

/// Dead letters that are there from the beginning, by cause.
const DEAD: [(&str, &str, usize); 4] = [
    ("welcome", "smtp 451 4.7.1 greylisted, try again later (mx-{n}.mail.example)", 212),
    ("digest", "template \"weekly-{n}\" has no block named header", 34),
    ("sync_contact", "crm answered 409: contact {n} is being merged", 61),
    ("thumbnail", "not an image: unexpected end of file at byte {n}", 7),
];

pub(super) fn set_up(client: &Client) -> Result<()> {
    for (kind, queue) in KINDS {
        let definition = json!({ "queue": queue, "max_attempts": 3, "timeout_ms": 120_000,
            "retry": { "base_ms": 2_000, "cap_ms": 120_000, "factor": 3 } });
        client.put(&format!("/kinds/{kind}"), &definition)?;
    }
    limits(client)?;
    dead_letters(client)?;
    schedules(client)?;
    // Nobody works for images; reports wait for somebody to resume them.
    enqueue(client, "thumbnail", 118)?;
    enqueue(client, "report", 31)?;
    client.post("/queues/reports/pause", None)?;
    enqueue(client, "invoice", 240)?;
    let later = (0..40).map(|n| job("digest", n).with("delay_ms", json!(600_000 + n * 30_000)));
    client.post("/jobs/batch", Some(&json!({ "jobs": later.map(|job| job.0).collect::<Vec<_>>() })))?;
    vanished_worker(client)
}

/// Billing starts two invoices of a customer at a time, and twenty a second.
fn limits(client: &Client) -> Result<()> {
    let billing = json!({ "concurrency": 6, "rate": { "limit": 20, "per_ms": 1_000, "burst": 5 },
        "groups": { "concurrency": 2, "order": "fair" } });
    client.put("/queues/billing", &billing)?;
    client.put("/queues/billing/groups/acme", &json!({ "concurrency": 3, "weight": 2 }))?;
    Ok(())
}

fn dead_letters(client: &Client) -> Result<()> {
    for (kind, error, count) in DEAD {
        enqueue(client, kind, count)?;
        let ask = json!({ "worker": "mx-1", "kinds": [kind], "max": count, "lease_ms": 60_000,
            "info": { "host": "mx-1", "language": "demo", "concurrency": 16 } });
        let leases = client.post("/leases", Some(&ask))?.json;
        let outcomes = leases["leases"].as_array().into_iter().flatten().enumerate().map(|(n, lease)| {
            json!({ "job_id": lease["job"]["id"], "lease_token": lease["lease_token"], "outcome": "failed",
                "permanent": true, "error": error.replace("{n}", &n.to_string()) })
        });
        let outcomes: Vec<_> = outcomes.collect();
        client.post("/leases/settle", Some(&json!({ "worker": "mx-1", "outcomes": outcomes })))?;
    }
    Ok(())
}

fn schedules(client: &Client) -> Result<()> {
    let nightly = json!({ "cron": "30 2 * * *", "tz": "Europe/Berlin",
        "job": { "kind": "report", "payload": { "day": "{{tick_local}}" } } });
    let minute = json!({ "every_ms": 60_000, "job": { "kind": "search_index", "payload": { "full": false } } });
    let weekly = json!({ "cron": "0 9 * * MON", "tz": "America/New_York",
        "job": { "kind": "digest", "payload": { "of": "the week" } } });
    for (name, schedule) in [("nightly-report", nightly), ("refresh-index", minute), ("weekly-digest", weekly)] {
        client.put(&format!("/schedules/{name}"), &schedule)?;
    }
    client.post("/schedules/weekly-digest/pause", None)?;
    Ok(())
}

/// Takes a few jobs and is never heard of again: their leases expire.
fn vanished_worker(client: &Client) -> Result<()> {
    let ask = json!({ "worker": "img-7f3a", "kinds": ["thumbnail"], "max": 4, "lease_ms": 20_000,
        "info": { "host": "img-7f3a", "language": "python", "version": "3.12", "concurrency": 4 } });
    client.post("/leases", Some(&ask))?;
    Ok(())
}

/// So many jobs of a kind.
pub(super) fn enqueue(client: &Client, kind: &str, count: usize) -> Result<()> {
    let jobs: Vec<_> = (0..count as u64).map(|n| job(kind, n).0).collect();
    client.post("/jobs/batch", Some(&json!({ "jobs": jobs })))?;
    Ok(())
}

/// The body of an enqueue.
struct Job(Value);

impl Job {
    fn with(mut self, name: &str, value: Value) -> Self {
        self.0[name] = value;
        self
    }
}

fn job(kind: &str, n: u64) -> Job {
    let customer = CUSTOMERS[fastrand::usize(..CUSTOMERS.len())];
    let payload = match kind {
        "welcome" => json!({ "user": 4_000 + n, "to": format!("user{n}@{customer}.example") }),
        "thumbnail" => json!({ "source": format!("uploads/{customer}/{n}.jpg"), "width": 800, "height": 600 }),
        "invoice" => json!({ "customer": customer, "number": 20_260_000 + n, "cents": fastrand::u32(990..99_000) }),
        "sync_contact" => json!({ "contact": n, "customer": customer }),
        _ => json!({ "customer": customer, "n": n }),
    };
    let job = Job(json!({ "kind": kind, "payload": payload }));
    if kind == "invoice" { job.with("group_key", json!(customer)) } else { job }
}
