//! `steadfast kinds`.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};

use super::args;
use super::format::text;
use super::limits::{LimitOptions, rate};
use super::table::Table;
use super::{Client, Target};
use crate::server::exit::{Exit, ExitError};
use crate::server::stdio::{print_json, print_line};

/// Look at kinds, declare and forget them
#[derive(Debug, Args)]
pub(in crate::server) struct Kinds {
    #[command(flatten)]
    pub(super) target: Target,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show all kinds (the default)
    List,
    /// Declare a kind, or change what is given of its declaration
    Put(Box<Declaration>),
    /// Take no more jobs of a kind; those there are go on
    Delete {
        /// The name of the kind
        #[arg(value_parser = args::name)]
        kind: String,
    },
}

#[derive(Debug, Args)]
struct Declaration {
    /// The name of the kind
    #[arg(value_parser = args::name)]
    kind: String,
    /// A file with the JSON Schema of its payloads
    #[arg(long, value_name = "FILE")]
    schema: Option<PathBuf>,
    /// The queue of its jobs, unless they say otherwise
    #[arg(long, value_parser = args::name)]
    queue: Option<String>,
    /// From -100 to 100; higher runs first
    #[arg(long, allow_negative_numbers = true)]
    priority: Option<i64>,
    /// How often a job is tried before it becomes a dead letter
    #[arg(long)]
    max_attempts: Option<u64>,
    /// How long one attempt may take, like 90s
    #[arg(long, value_name = "TIME", value_parser = args::duration)]
    timeout: Option<Duration>,
    /// The retry policy, like '{"base_ms":1000,"cap_ms":60000,"factor":3}'
    #[arg(long, value_name = "JSON", value_parser = args::json)]
    retry: Option<String>,
    #[command(flatten)]
    limits: LimitOptions,
    /// JSON pointers to parts of its payloads that readers are not shown, with commas between them
    #[arg(long, value_name = "POINTERS", value_delimiter = ',')]
    hidden: Option<Vec<String>>,
    /// Forget what is not given, instead of leaving it as it is
    #[arg(long)]
    replace: bool,
}

impl Kinds {
    pub(super) fn run(self) -> Result<Exit> {
        let client = Client::new(&self.target)?;
        match self.command.unwrap_or(Command::List) {
            Command::List => list(&client, self.target.json),
            Command::Put(declaration) => put(&client, *declaration, self.target.json),
            Command::Delete { kind } => {
                client.delete(&format!("/kinds/{kind}"))?;
                if !self.target.json {
                    print_line(&format!("kind {kind} is forgotten: no new jobs of it are taken"));
                }
                Ok(Exit::Ok)
            }
        }
    }
}

fn list(client: &Client, json: bool) -> Result<Exit> {
    let kinds = client.get("/kinds")?.json;
    if json {
        print_json(&kinds);
        return Ok(Exit::Ok);
    }
    let mut table = Table::new(
        &["KIND", "BUILT IN", "SCHEMA", "QUEUE", "PRIORITY", "MAX ATTEMPTS", "TIMEOUT MS", "LIMIT", "RATE"],
        &[0, 3],
    )
    .dropping(&[4, 1, 2, 8, 7]);
    for kind in kinds.as_array().into_iter().flatten() {
        let yes = |yes: bool| if yes { "yes" } else { "no" }.to_owned();
        let has_schema = kind.get("schema").is_some_and(|schema| !schema.is_null());
        let built_in = kind.get("built_in").and_then(Value::as_bool).unwrap_or(false);
        let defaults = ["queue", "priority", "max_attempts", "timeout_ms"].map(|field| text(kind, field));
        let limits = [text(kind, "concurrency"), rate(kind)];
        table.row([text(kind, "kind"), yes(built_in), yes(has_schema)].into_iter().chain(defaults).chain(limits));
    }
    table.print();
    Ok(Exit::Ok)
}

fn put(client: &Client, given: Declaration, as_json: bool) -> Result<Exit> {
    // The API replaces a declaration as a whole. Who changes the same kind between our look and our change loses
    // theirs, as with two editors of one file; declarations are rarely changed, and by few.
    let mut body = if given.replace { Map::new() } else { declared(client, &given.kind)? };
    if let Some(path) = &given.schema {
        let usage = |why: String| ExitError::new(Exit::Usage, format!("--schema {}: {why}", path.display()));
        let schema = std::fs::read_to_string(path).map_err(|error| usage(error.to_string()))?;
        body.insert("schema".into(), serde_json::from_str(&schema).map_err(|error| usage(error.to_string()))?);
    }
    let retry = given.retry.as_deref().map(serde_json::from_str::<Value>).transpose().context("--retry")?;
    for (field, value) in [
        ("queue", given.queue.map(Value::from)),
        ("priority", given.priority.map(Value::from)),
        ("max_attempts", given.max_attempts.map(Value::from)),
        ("timeout_ms", given.timeout.map(|timeout| json!(timeout.as_millis() as u64))),
        ("retry", retry),
        ("hidden", given.hidden.map(Value::from)),
    ] {
        if let Some(value) = value {
            body.insert(field.into(), value);
        }
    }
    given.limits.apply(&mut body);
    let kind = given.kind;
    let answer = client.put(&format!("/kinds/{kind}"), &Value::Object(body))?;
    let verb = if answer.status == 201 { "declared" } else { "changed" };
    if as_json {
        print_json(&answer.json)
    } else {
        print_line(&format!("kind {kind} is {verb}"))
    }
    Ok(Exit::Ok)
}

/// What is declared of a kind. The list says more of it, and may say more still.
const DECLARED: [&str; 9] =
    ["schema", "queue", "priority", "max_attempts", "timeout_ms", "retry", "concurrency", "rate", "hidden"];

/// What there is of a declaration, as it would be sent.
fn declared(client: &Client, kind: &str) -> Result<Map<String, Value>> {
    let known = client.get_list("/kinds")?.into_iter().find(|known| text(known, "kind") == kind);
    let Some(Value::Object(mut declared)) = known else { return Ok(Map::new()) };
    declared.retain(|field, value| DECLARED.contains(&&**field) && !value.is_null());
    Ok(declared)
}
