//! `steadfast workers`.

use anyhow::Result;
use clap::{Args, Subcommand};
use serde_json::Value;

use super::args;
use super::format::{cut, terminal_width, text, took};
use super::table::Table;
use super::{Client, Target};
use crate::server::exit::Exit;
use crate::server::stdio::{print_json, print_line};

/// 1,000 workers are shown; the API has the rest.
const WORKERS_SHOWN: usize = 1000;

/// Look at workers, drain them and let them go on
#[derive(Debug, Args)]
pub(in crate::server) struct Workers {
    #[command(flatten)]
    pub(super) target: Target,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show all workers that were seen within a day (the default)
    List,
    /// Show one worker and the jobs that it holds
    Show {
        /// The name of the worker
        #[arg(value_parser = args::name)]
        worker: String,
    },
    /// Let a worker finish what it has and start no more
    Drain {
        /// The name of the worker
        #[arg(value_parser = args::name)]
        worker: String,
    },
    /// Let a worker that was drained go on
    Undrain {
        /// The name of the worker
        #[arg(value_parser = args::name)]
        worker: String,
    },
}

impl Workers {
    pub(super) fn run(self) -> Result<Exit> {
        let client = Client::new(&self.target)?;
        let json = self.target.json;
        match self.command.unwrap_or(Command::List) {
            Command::List => list(&client, json),
            Command::Show { worker } => show(&client, &worker, json),
            Command::Drain { worker } => tell(&client, &worker, "drain", json),
            Command::Undrain { worker } => tell(&client, &worker, "undrain", json),
        }
    }
}

fn list(client: &Client, json: bool) -> Result<Exit> {
    let mut workers = Vec::new();
    let has_more = client.follow("/workers", |page| {
        workers.extend(page.as_array().into_iter().flatten().cloned());
        workers.len() < WORKERS_SHOWN
    })?;
    if json {
        print_json(&Value::from(workers));
        return Ok(Exit::Ok);
    }
    if workers.is_empty() {
        print_line("no worker was seen within a day");
        return Ok(Exit::Ok);
    }
    let mut table = Table::new(
        &["WORKER", "STATE", "BUSY", "FETCHED", "SEEN", "KINDS", "QUEUES", "HOST", "VERSION"],
        &[0, 5, 6, 7],
    )
    .dropping(&[8, 7, 6]);
    for worker in &workers {
        table.row([
            text(worker, "worker"),
            text(worker, "state"),
            busy(worker),
            took(worker, "last_fetch_at", "as_of"),
            took(worker, "last_seen_at", "as_of"),
            names(worker, "kinds"),
            names(worker, "queues"),
            text(worker, "host"),
            text(worker, "version"),
        ]);
    }
    table.print();
    if has_more {
        print_line(&format!("(the first {WORKERS_SHOWN}; GET /workers has all)"));
    }
    Ok(Exit::Ok)
}

fn show(client: &Client, worker: &str, json: bool) -> Result<Exit> {
    let found = client.get(&format!("/workers/{worker}"))?.json;
    if json {
        print_json(&found);
        return Ok(Exit::Ok);
    }
    print_line(&format!("{worker} is {}, busy {}", text(&found, "state"), busy(&found)));
    let process = [("language", ""), ("version", ""), ("host", "on "), ("pid", "pid "), ("token", "token ")];
    let process: Vec<String> = process
        .iter()
        .map(|(field, before)| (before, text(&found, field)))
        .filter(|(_, text)| text != "–")
        .map(|(before, text)| format!("{before}{text}"))
        .collect();
    let lines = [
        format!("  process  {}", [vec![text(&found, "source")], process].concat().join(" ")),
        format!("  started  {}", ago(&found, "started_at")),
        format!("  fetched  {}", ago(&found, "last_fetch_at")),
        format!("  beat     {}", ago(&found, "last_beat_at")),
        format!("  kinds    {}", names(&found, "kinds")),
        format!("  queues   {}", names(&found, "queues")),
    ];
    let width = terminal_width().unwrap_or(usize::MAX);
    lines.iter().for_each(|line| print_line(&cut(line, width)));
    let jobs = found.get("jobs").and_then(Value::as_array).cloned().unwrap_or_default();
    if jobs.is_empty() {
        return Ok(Exit::Ok);
    }
    let mut table = Table::new(&["JOB", "KIND", "QUEUE", "ATTEMPT", "RUNS FOR"], &[1, 2]).dropping(&[3, 2]);
    for mut job in jobs {
        job["as_of"] = found["as_of"].clone();
        let fields = ["job_id", "kind", "queue", "attempt"].map(|field| text(&job, field));
        table.row(fields.into_iter().chain([took(&job, "started_at", "as_of")]));
    }
    table.print();
    Ok(Exit::Ok)
}

fn tell(client: &Client, worker: &str, verb: &str, json: bool) -> Result<Exit> {
    let answer = client.post(&format!("/workers/{worker}/{verb}"), None)?.json;
    if json {
        print_json(&answer);
        return Ok(Exit::Ok);
    }
    let busy = answer.get("busy").and_then(Value::as_u64).unwrap_or_default();
    print_line(&match verb {
        "drain" => {
            let jobs = if busy == 1 { "1 job".to_owned() } else { format!("{busy} jobs") };
            format!("worker {worker} is told to drain: it finishes {jobs} and starts no more")
        }
        _ => format!("worker {worker} is told to go on"),
    });
    Ok(Exit::Ok)
}

/// `3/16`, or only the first if it is not known how many it can run.
fn busy(worker: &Value) -> String {
    let number = |field| worker.get(field).and_then(Value::as_u64);
    let busy = number("busy").unwrap_or_default();
    number("concurrency").map_or(busy.to_string(), |slots| format!("{busy}/{slots}"))
}

fn names(worker: &Value, field: &str) -> String {
    let Some(names) = worker.get(field).and_then(Value::as_array) else { return "all".to_owned() };
    let names: Vec<&str> = names.iter().filter_map(Value::as_str).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(",") }
}

/// How long before it was read, by the store's clock.
fn ago(worker: &Value, field: &str) -> String {
    let ago = took(worker, field, "as_of");
    if ago == "–" { ago } else { format!("{ago} ago") }
}
