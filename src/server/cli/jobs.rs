//! `steadfast jobs`.

use std::time::Duration;

use anyhow::Result;
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::args;
use super::format::{age, attempts, moment, note, text, took};
use super::stats::STATUSES;
use super::table::Table;
use super::watch::{Show, Watch};
use super::why::why;
use super::{Client, Target};
use crate::server::exit::Exit;
use crate::server::stdio::{escaped, print_json, print_line};

/// 200 jobs on a page, as the API allows.
const PAGE_MAX: usize = 200;

/// The order in which a person wants to read them.
const FIELDS: [&str; 26] = [
    "id",
    "kind",
    "queue",
    "status",
    "attempts",
    "max_attempts",
    "priority",
    "payload",
    "result",
    "last_error",
    "progress",
    "run_at",
    "created_at",
    "started_at",
    "finished_at",
    "updated_at",
    "timeout_ms",
    "idempotency_key",
    "group_key",
    "cost",
    "start_by",
    "unique",
    "cancel_requested",
    "locked_by",
    "locked_at",
    "lease_expires_at",
];

/// Look at jobs, wait for them, cancel, redrive and delete them
#[derive(Debug, Args)]
pub(in crate::server) struct Jobs {
    #[command(flatten)]
    pub(super) target: Target,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show jobs, newest first
    List(Filter),
    /// Show one job with its attempts
    Show {
        /// The job's id, as `enqueue` and `jobs list` print it
        #[arg(value_parser = args::job_id)]
        id: String,
    },
    /// Say why a job is not running
    Why {
        /// The job's id, as `enqueue` and `jobs list` print it
        #[arg(value_parser = args::job_id)]
        id: String,
    },
    /// Stop a job: at once if it waits; if it runs, its handler is told
    Cancel(Ids),
    /// Put a failed or cancelled job back into the queue, as if new
    Redrive(Ids),
    /// Remove a finished job for good
    Delete(Ids),
    /// Wait until jobs are finished; exit 1 if one of them did not succeed
    Wait {
        /// Ids of jobs, as `enqueue` and `jobs list` print them
        #[arg(value_name = "ID", required = true, value_parser = args::job_id)]
        ids: Vec<String>,
        /// Give up after this time, like 90s, with exit 6
        #[arg(long, value_name = "TIME", value_parser = args::duration)]
        timeout: Option<Duration>,
    },
    /// Print a line for every change of these jobs, or of all; ends when these are finished
    Watch {
        /// Ids of jobs; none: all jobs, until you stop it
        #[arg(value_name = "ID", value_parser = args::job_id)]
        ids: Vec<String>,
        /// Give up after this time, like 90s, with exit 6
        #[arg(long, value_name = "TIME", value_parser = args::duration)]
        timeout: Option<Duration>,
    },
}

#[derive(Debug, Args)]
struct Filter {
    /// Only with this status
    #[arg(long, value_parser = STATUSES)]
    status: Option<String>,
    /// Only of this kind
    #[arg(long, value_parser = args::name)]
    kind: Option<String>,
    /// Only in this queue
    #[arg(long, value_parser = args::name)]
    queue: Option<String>,
    /// At most this many
    #[arg(long, default_value_t = 20)]
    limit: usize,
}

#[derive(Debug, Args)]
struct Ids {
    /// Ids of jobs, as `enqueue` and `jobs list` print them
    #[arg(value_name = "ID", required = true, value_parser = args::job_id)]
    ids: Vec<String>,
}

impl Jobs {
    pub(super) fn run(self) -> Result<Exit> {
        let client = Client::new(&self.target)?;
        let json = self.target.json;
        match self.command {
            Command::List(filter) => list(&client, &filter, json),
            Command::Show { id } => show(&client, &id, json),
            Command::Why { id } => why(&client, &format!("/jobs/{id}/explain"), &format!("job {id}"), json),
            Command::Cancel(Ids { ids }) => each(&ids, |id| {
                let answer = client.post(&format!("/jobs/{id}/cancel"), None)?;
                let said = if answer.status == 202 { "is asked to stop" } else { "is cancelled" };
                Ok(if json { escaped(&answer.json.to_string()) } else { format!("{id} {said}") })
            }),
            Command::Redrive(Ids { ids }) => each(&ids, |id| {
                let job = client.post(&format!("/jobs/{id}/redrive"), None)?.json;
                Ok(if json { escaped(&job.to_string()) } else { format!("{id} is queued again") })
            }),
            Command::Delete(Ids { ids }) => each(&ids, |id| {
                client.delete(&format!("/jobs/{id}"))?;
                Ok(if json { json!({"id": id, "deleted": true}).to_string() } else { format!("{id} is deleted") })
            }),
            Command::Wait { ids, timeout } => Watch { ids, timeout, show: Show::Ends, json }.run(&client),
            Command::Watch { ids, timeout } => Watch { ids, timeout, show: Show::Changes, json }.run(&client),
        }
    }
}

/// One after the other; the first that cannot be done ends it.
fn each(ids: &[String], act: impl Fn(&str) -> Result<String>) -> Result<Exit> {
    for id in ids {
        print_line(&act(id)?);
    }
    Ok(Exit::Ok)
}

fn list(client: &Client, filter: &Filter, as_json: bool) -> Result<Exit> {
    let jobs = pages(client, filter)?;
    if as_json {
        print_json(&Value::from(jobs));
        return Ok(Exit::Ok);
    }
    if jobs.is_empty() {
        print_line("no jobs");
        return Ok(Exit::Ok);
    }
    let mut table =
        Table::new(&["ID", "KIND", "QUEUE", "STATUS", "TRIES", "AGE", "NOTE"], &[1, 2, 6]).dropping(&[2, 5]);
    for job in &jobs {
        let age = age(job, "created_at");
        let names = ["id", "kind", "queue", "status"].map(|field| text(job, field));
        table.row(names.into_iter().chain([attempts(job), age, note(job)]));
    }
    table.print();
    Ok(Exit::Ok)
}

/// Follows the pages until there are enough or no more.
fn pages(client: &Client, filter: &Filter) -> Result<Vec<Value>> {
    let mut jobs = Vec::new();
    let mut cursor = None;
    while jobs.len() < filter.limit {
        let mut path = format!("/jobs?limit={}", (filter.limit - jobs.len()).min(PAGE_MAX));
        let wanted =
            [("status", &filter.status), ("kind", &filter.kind), ("queue", &filter.queue), ("cursor", &cursor)];
        for (name, value) in wanted {
            if let Some(value) = value {
                path.push_str(&format!("&{name}={value}"));
            }
        }
        let page = client.get(&path)?;
        jobs.extend(page.json.as_array().into_iter().flatten().cloned());
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    Ok(jobs)
}

fn show(client: &Client, id: &str, as_json: bool) -> Result<Exit> {
    let mut job = client.get(&format!("/jobs/{id}"))?.json;
    let history = client.get(&format!("/jobs/{id}/attempts"))?.json;
    if as_json {
        if let Some(fields) = job.as_object_mut() {
            fields.insert("history".into(), history);
        }
        print_json(&job);
        return Ok(Exit::Ok);
    }
    let fields = job.as_object().cloned().unwrap_or_default();
    // Fields of a newer server come last.
    let others = fields.keys().map(String::as_str).filter(|field| !FIELDS.contains(field));
    for field in FIELDS.into_iter().chain(others) {
        if fields.get(field).is_some_and(|value| !value.is_null()) {
            print_line(&format!("{:16}  {}", escaped(field), text(&job, field)));
        }
    }
    let attempts = history.as_array().map(Vec::as_slice).unwrap_or_default();
    if !attempts.is_empty() {
        print_line("");
        let mut table = Table::new(&["TRY", "WORKER", "STARTED", "TOOK", "OUTCOME", "ERROR"], &[1, 5]).dropping(&[1]);
        for attempt in attempts {
            let took = took(attempt, "started_at", "ended_at");
            let [number, worker, outcome, error] =
                ["attempt", "worker", "outcome", "error"].map(|field| text(attempt, field));
            table.row([number, worker, moment(attempt, "started_at"), took, outcome, error]);
        }
        table.print();
    }
    Ok(Exit::Ok)
}
