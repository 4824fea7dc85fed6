//! `steadfast jobs`.

use std::time::Duration;

use anyhow::Result;
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::args;
use super::chosen_jobs::{ChosenJobs, canary};
use super::format::{age, attempts, moment, note, text, took};
use super::job_list::JobList;
use super::operate::Operate;
use super::table::Table;
use super::watch::{Show, Watch};
use super::why::why;
use super::{Client, Target};
use crate::server::exit::Exit;
use crate::server::stdio::{escaped, print_json, print_line};

/// The order in which a person wants to read them.
const FIELDS: [&str; 27] = [
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
    "error_group",
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
    /// Show jobs, newest first; if only queued or retrying ones are asked for, the next to run first
    List(Box<JobList>),
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
    /// Stop jobs: at once if they wait; if they run, their handlers are told
    Cancel(Box<ChosenJobs>),
    /// Put failed or cancelled jobs back into the queue, as if new
    Redrive(Box<Redrive>),
    /// Remove finished jobs for good
    Delete(Box<ChosenJobs>),
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
struct Redrive {
    #[command(flatten)]
    jobs: ChosenJobs,
    /// Redrive so many first, and the others only if enough of them succeed, like 5:4
    #[arg(long, value_name = "FIRST:NEED", value_parser = canary, conflicts_with = "ids")]
    canary: Option<(u32, u32)>,
}

impl Jobs {
    pub(super) fn run(self) -> Result<Exit> {
        let client = Client::new(&self.target)?;
        let json = self.target.json;
        match self.command {
            Command::List(jobs) => list(&client, &jobs, json),
            Command::Show { id } => show(&client, &id, json),
            Command::Why { id } => why(&client, &format!("/jobs/{id}/explain"), &format!("job {id}"), json),
            Command::Cancel(jobs) if jobs.ids.is_empty() => operate(&client, "cancel", &jobs, None, json),
            Command::Cancel(jobs) => each(&jobs.ids, |id| {
                let answer = client.post(&format!("/jobs/{id}/cancel"), None)?;
                let said = if answer.status == 202 { "is asked to stop" } else { "is cancelled" };
                Ok(if json { escaped(&answer.json.to_string()) } else { format!("{id} {said}") })
            }),
            Command::Redrive(redrive) if redrive.jobs.ids.is_empty() => {
                operate(&client, "redrive", &redrive.jobs, redrive.canary, json)
            }
            Command::Redrive(redrive) => each(&redrive.jobs.ids, |id| {
                let job = client.post(&format!("/jobs/{id}/redrive"), None)?.json;
                Ok(if json { escaped(&job.to_string()) } else { format!("{id} is queued again") })
            }),
            Command::Delete(jobs) if jobs.ids.is_empty() => operate(&client, "delete", &jobs, None, json),
            Command::Delete(jobs) => each(&jobs.ids, |id| {
                client.delete(&format!("/jobs/{id}"))?;
                Ok(if json { json!({"id": id, "deleted": true}).to_string() } else { format!("{id} is deleted") })
            }),
            Command::Wait { ids, timeout } => Watch { ids, timeout, show: Show::Ends, json }.run(&client),
            Command::Watch { ids, timeout } => Watch { ids, timeout, show: Show::Changes, json }.run(&client),
        }
    }
}

/// All that are meant, by an operation.
fn operate(
    client: &Client,
    action: &'static str,
    jobs: &ChosenJobs,
    canary: Option<(u32, u32)>,
    json: bool,
) -> Result<Exit> {
    let mut options = jobs.options();
    if let Some((first, need)) = canary {
        options.insert("canary".into(), json!({"first": first, "need": need}));
    }
    Operate { action, filter: jobs.filter()?, options, yes: jobs.yes, json }.run(client)
}

/// One after the other; the first that cannot be done ends it.
fn each(ids: &[String], act: impl Fn(&str) -> Result<String>) -> Result<Exit> {
    for id in ids {
        print_line(&act(id)?);
    }
    Ok(Exit::Ok)
}

fn list(client: &Client, list: &JobList, as_json: bool) -> Result<Exit> {
    let jobs = list.pages(client)?;
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
