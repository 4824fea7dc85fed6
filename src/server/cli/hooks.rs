//! `steadfast hooks`.

use anyhow::Result;
use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};

use super::args;
use super::format::text;
use super::table::Table;
use super::{Client, Target};
use crate::server::exit::{Exit, ExitError};
use crate::server::stdio::{print_json, print_line};

/// Look at hooks, put, pause, resume and delete them
#[derive(Debug, Args)]
pub(in crate::server) struct Hooks {
    #[command(flatten)]
    pub(super) target: Target,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show all hooks (the default)
    List,
    /// Show one hook
    Get {
        /// The name of the hook
        #[arg(value_parser = args::name)]
        name: String,
    },
    /// Put a hook, or replace it
    Put(Box<Declaration>),
    /// Send no more events to a hook; they are counted
    Pause {
        /// The name of the hook
        #[arg(value_parser = args::name)]
        name: String,
    },
    /// Send events to a hook again
    Resume {
        /// The name of the hook
        #[arg(value_parser = args::name)]
        name: String,
    },
    /// Delete a hook; deliveries that wait are still made
    Delete {
        /// The name of the hook
        #[arg(value_parser = args::name)]
        name: String,
    },
}

#[derive(Debug, Args)]
struct Declaration {
    /// The name of the hook
    #[arg(value_parser = args::name)]
    name: String,
    /// Where events are sent
    #[arg(long = "to", value_name = "URL", required_unless_present = "endpoint", conflicts_with = "endpoint")]
    to: Option<String>,
    /// The name of an endpoint in the server's settings, instead of a URL
    #[arg(long, value_name = "NAME")]
    endpoint: Option<String>,
    /// A file with the key that signs (whsec_…), one to a line; - reads it from standard input
    #[arg(long, value_name = "FILE", conflicts_with = "secret_name")]
    secret_file: Option<String>,
    /// The name of a secret in the server's settings that signs
    #[arg(long, value_name = "NAME")]
    secret_name: Option<String>,
    /// Of which ends it is told, with commas between them: job.succeeded, job.failed, job.cancelled [default: all]
    #[arg(long, value_name = "EVENTS", value_delimiter = ',')]
    events: Option<Vec<String>>,
    /// Of jobs of which kinds, with commas between them [default: all]
    #[arg(long, value_name = "KINDS", value_delimiter = ',')]
    kinds: Option<Vec<String>>,
    /// Of jobs of which queues, with commas between them [default: all]
    #[arg(long, value_name = "QUEUES", value_delimiter = ',')]
    queues: Option<Vec<String>>,
    /// What is sent along, with commas between them: payload, result
    #[arg(long, value_name = "PARTS", value_delimiter = ',')]
    include: Option<Vec<String>>,
    /// Send nothing yet
    #[arg(long)]
    paused: bool,
}

impl Hooks {
    pub(super) fn run(self) -> Result<Exit> {
        let (client, json) = (Client::new(&self.target)?, self.target.json);
        match self.command.unwrap_or(Command::List) {
            Command::List => list(&client, json),
            Command::Get { name } => {
                let hook = client.get(&format!("/hooks/{name}"))?.json;
                if json {
                    print_json(&hook)
                } else {
                    show(&hook)
                }
                Ok(Exit::Ok)
            }
            Command::Put(declaration) => put(&client, *declaration, json),
            Command::Pause { name } => switch(&client, &name, "pause", "paused", json),
            Command::Resume { name } => switch(&client, &name, "resume", "active", json),
            Command::Delete { name } => {
                client.delete(&format!("/hooks/{name}"))?;
                if !json {
                    print_line(&format!("hook {name} is deleted"));
                }
                Ok(Exit::Ok)
            }
        }
    }
}

fn list(client: &Client, json: bool) -> Result<Exit> {
    let hooks = client.get("/hooks")?.json;
    if json {
        print_json(&hooks);
        return Ok(Exit::Ok);
    }
    let mut table =
        Table::new(&["HOOK", "TO", "EVENTS", "KINDS", "QUEUES", "STATE", "DEAD IN A ROW", "MISSED"], &[1, 3])
            .dropping(&[4, 3, 6]);
    for hook in hooks.as_array().into_iter().flatten() {
        let state = if hook["paused"] == true { "paused" } else { "active" };
        table.row([
            text(hook, "name"),
            target(hook),
            words(hook, "events"),
            words(hook, "kinds"),
            words(hook, "queues"),
            state.to_owned(),
            text(hook, "dead_in_a_row"),
            text(hook, "missed"),
        ]);
    }
    table.print();
    Ok(Exit::Ok)
}

fn target(hook: &Value) -> String {
    match hook["url"].as_str() {
        Some(url) => url.to_owned(),
        None => format!("endpoint {}", text(hook, "endpoint")),
    }
}

/// A list in one column; what is not said means all.
fn words(hook: &Value, field: &str) -> String {
    let Some(list) = hook[field].as_array() else { return "all".to_owned() };
    list.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(",")
}

fn show(hook: &Value) {
    for (field, value) in hook.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null()) {
        let value = match value {
            Value::Array(_) => words(hook, field),
            _ => text(hook, field),
        };
        print_line(&format!("{field:<14} {value}"));
    }
}

fn put(client: &Client, given: Declaration, as_json: bool) -> Result<Exit> {
    let secret = match (&given.secret_file, &given.secret_name) {
        (Some(file), _) => Some(read_secrets(file)?),
        (None, name) => name.clone().map(Value::from),
    };
    let mut body = Map::new();
    for (field, value) in [
        ("url", given.to.map(Value::from)),
        ("endpoint", given.endpoint.map(Value::from)),
        ("secret", secret),
        ("events", given.events.map(Value::from)),
        ("kinds", given.kinds.map(Value::from)),
        ("queues", given.queues.map(Value::from)),
        ("include", given.include.map(Value::from)),
        ("paused", given.paused.then_some(json!(true))),
    ] {
        if let Some(value) = value {
            body.insert(field.into(), value);
        }
    }
    let name = given.name;
    let answer = client.put(&format!("/hooks/{name}"), &Value::Object(body))?;
    if as_json {
        print_json(&answer.json);
    } else {
        let verb = if answer.status == 201 { "new" } else { "replaced" };
        print_line(&format!("hook {name} is {verb}: it is told of jobs that are enqueued from now on"));
    }
    Ok(Exit::Ok)
}

/// Not from the command line, where every user of the machine can read it.
fn read_secrets(file: &str) -> Result<Value> {
    let mut content = String::new();
    let read = match file {
        "-" => std::io::Read::read_to_string(&mut std::io::stdin(), &mut content),
        path => std::fs::File::open(path).and_then(|mut file| std::io::Read::read_to_string(&mut file, &mut content)),
    };
    let usage = |why: String| ExitError::new(Exit::Usage, format!("--secret-file {file}: {why}"));
    read.map_err(|error| usage(error.to_string()))?;
    let secrets: Vec<&str> = content.split_whitespace().collect();
    if secrets.is_empty() {
        return Err(usage("it is empty".into()).into());
    }
    Ok(json!(secrets))
}

fn switch(client: &Client, name: &str, verb: &str, state: &str, json: bool) -> Result<Exit> {
    let hook = client.post(&format!("/hooks/{name}/{verb}"), None)?.json;
    if json {
        print_json(&hook)
    } else {
        print_line(&format!("hook {name} is {state}"))
    }
    Ok(Exit::Ok)
}
