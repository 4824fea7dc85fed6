//! `steadfast operations`.

use anyhow::Result;
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::args;
use super::format::{age, text};
use super::operate::progress;
use super::table::Table;
use super::{Client, Target};
use crate::server::exit::Exit;
use crate::server::stdio::{escaped, print_json, print_line};

/// 20 operations, unless more are asked for.
const SHOWN: usize = 20;
/// 200 operations on a page, as the API allows.
const PAGE_MAX: usize = 200;

/// The order in which a person wants to read them.
const FIELDS: [&str; 18] = [
    "id",
    "action",
    "priority",
    "to",
    "filter",
    "ids",
    "state",
    "note",
    "counts",
    "of",
    "rate",
    "max",
    "canary",
    "by",
    "reason",
    "created_at",
    "updated_at",
    "finished_at",
];

/// Look at operations on many jobs, pause, resume and stop them
#[derive(Debug, Args)]
pub(in crate::server) struct Operations {
    #[command(flatten)]
    pub(super) target: Target,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show operations, newest first (the default)
    List {
        /// Only in this state
        #[arg(long, value_parser = ["running", "paused", "finished", "stopped"])]
        state: Option<String>,
        /// At most this many
        #[arg(long, default_value_t = SHOWN)]
        limit: usize,
    },
    /// Show one operation
    Show(Id),
    /// Let an operation wait
    Pause(Id),
    /// Let an operation go on, whatever its canary says
    Resume(Id),
    /// End an operation; what is done stays done
    Stop(Id),
    /// Give an operation another rate
    Rate {
        #[command(flatten)]
        id: Id,
        /// At most so many jobs per second
        #[arg(value_name = "JOBS")]
        rate: u64,
    },
}

#[derive(Debug, Args)]
struct Id {
    /// The operation's id, as `operations` prints it
    #[arg(value_parser = args::operation_id)]
    id: String,
}

impl Operations {
    pub(super) fn run(self) -> Result<Exit> {
        let client = Client::new(&self.target)?;
        let json = self.target.json;
        match self.command.unwrap_or(Command::List { state: None, limit: SHOWN }) {
            Command::List { state, limit } => list(&client, state.as_deref(), limit, json),
            Command::Show(Id { id }) => show(&client, &id, json),
            Command::Pause(Id { id }) => act(&client, &id, "pause", json),
            Command::Resume(Id { id }) => act(&client, &id, "resume", json),
            Command::Stop(Id { id }) => act(&client, &id, "stop", json),
            Command::Rate { id: Id { id }, rate } => {
                let operation = client.patch(&format!("/operations/{id}"), &json!({"rate": rate}))?.json;
                say(&operation, json);
                Ok(Exit::Ok)
            }
        }
    }
}

fn act(client: &Client, id: &str, verb: &str, as_json: bool) -> Result<Exit> {
    say(&client.post(&format!("/operations/{id}/{verb}"), None)?.json, as_json);
    Ok(Exit::Ok)
}

fn say(operation: &Value, as_json: bool) {
    if as_json {
        return print_json(operation);
    }
    let [id, state, rate] = ["id", "state", "rate"].map(|field| text(operation, field));
    print_line(&format!("operation {id} is {state}"));
    print_line(&format!("  {} jobs done, at most {rate}/s", progress(operation)));
}

fn list(client: &Client, state: Option<&str>, limit: usize, as_json: bool) -> Result<Exit> {
    let state = state.map(|state| format!("&state={state}")).unwrap_or_default();
    let mut operations = Vec::new();
    client.follow(&format!("/operations?limit={}{state}", limit.clamp(1, PAGE_MAX)), |page| {
        operations.extend(page.as_array().into_iter().flatten().cloned());
        operations.len() < limit
    })?;
    operations.truncate(limit);
    if as_json {
        print_json(&Value::from(operations));
        return Ok(Exit::Ok);
    }
    if operations.is_empty() {
        print_line("no operations");
        return Ok(Exit::Ok);
    }
    let header = ["ID", "ACTION", "STATE", "DONE", "RATE", "BY", "AGE", "REASON"];
    let mut table = Table::new(&header, &[5, 7]).dropping(&[5, 4, 6]);
    for operation in &operations {
        let [id, action, state, by] = ["id", "action", "state", "by"].map(|field| text(operation, field));
        // What stopped it by itself is more than what somebody wanted.
        let why = operation["note"].as_str().or(operation["reason"].as_str()).map(escaped).unwrap_or_default();
        let rate = format!("{}/s", text(operation, "rate"));
        table.row([id, action, state, progress(operation), rate, by, age(operation, "created_at"), why]);
    }
    table.print();
    Ok(Exit::Ok)
}

fn show(client: &Client, id: &str, as_json: bool) -> Result<Exit> {
    let operation = client.get(&format!("/operations/{id}"))?.json;
    if as_json {
        print_json(&operation);
        return Ok(Exit::Ok);
    }
    let fields = operation.as_object().cloned().unwrap_or_default();
    // Fields of a newer server come last.
    let others = fields.keys().map(String::as_str).filter(|field| !FIELDS.contains(field));
    for field in FIELDS.into_iter().chain(others) {
        if fields.get(field).is_some_and(|value| !value.is_null()) {
            print_line(&format!("{:12}  {}", escaped(field), text(&operation, field)));
        }
    }
    Ok(Exit::Ok)
}
