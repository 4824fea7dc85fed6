//! `steadfast enqueue`: one job, or many from JSON lines ([`bulk`]).

use std::io::Read;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::args;
use super::bulk::{self, Bulk};
use super::format::text;
use super::watch::{Show, Watch};
use super::{Client, Target};
use crate::server::exit::{Exit, ExitError};
use crate::server::stdio::{print_json, print_line, print_stderr};

/// Put one job in, or many from JSON lines
#[derive(Debug, Args)]
pub(in crate::server) struct Enqueue {
    #[command(flatten)]
    pub(super) target: Target,
    /// The kind of the job. With --lines: each line is a payload; without it, each line is a whole job
    #[arg(value_parser = args::name, required_unless_present = "lines")]
    kind: Option<String>,
    /// The payload, as JSON; {} unless given
    #[arg(value_parser = args::json, conflicts_with_all = ["file", "lines"])]
    payload: Option<String>,
    /// Read the payload from a file; - is stdin
    #[arg(long, value_name = "FILE", conflicts_with = "lines")]
    file: Option<String>,
    /// Read many jobs from a file of JSON lines; - is stdin
    #[arg(long, value_name = "FILE", conflicts_with_all = ["key", "wait"])]
    lines: Option<String>,
    /// With --lines: what idempotency keys begin with. The same lines with the same prefix again enqueue nothing twice
    #[arg(long, value_name = "TEXT", requires = "lines", value_parser = bulk::key_prefix)]
    key_prefix: Option<String>,
    /// With --lines: how long to wait for a server that is away
    #[arg(long, value_name = "TIME", default_value = "5m", requires = "lines", value_parser = args::duration)]
    outage_timeout: Duration,
    #[command(flatten)]
    options: Options,
    /// Idempotency key: the same key again answers with the job there is
    #[arg(long)]
    key: Option<String>,
    /// Wait until the job is finished; exit 1 if it failed. Its id is printed first: with --json on stderr
    #[arg(long)]
    wait: bool,
}

/// What may be said about a job.
#[derive(Debug, Args)]
struct Options {
    /// Instead of the kind's own, or `default`
    #[arg(long, value_parser = args::name)]
    queue: Option<String>,
    /// From -100 to 100; higher runs first
    #[arg(long, allow_negative_numbers = true)]
    priority: Option<i64>,
    /// How often it is tried before it becomes a dead letter
    #[arg(long)]
    max_attempts: Option<u64>,
    /// Start it no earlier than after this time, like 90s
    #[arg(long, value_name = "TIME", value_parser = args::duration, conflicts_with = "run_at")]
    delay: Option<Duration>,
    /// Start it no earlier than then, like 2030-01-01T00:00:00Z
    #[arg(long, value_name = "INSTANT", value_parser = args::instant)]
    run_at: Option<jiff::Timestamp>,
    /// How long one attempt may take, like 90s
    #[arg(long, value_name = "TIME", value_parser = args::duration)]
    timeout: Option<Duration>,
    /// The group of its queue that it belongs to: a tenant, a customer
    #[arg(long)]
    group: Option<String>,
    /// How much of a rate it uses; 1 unless given
    #[arg(long, value_name = "N")]
    cost: Option<u64>,
    /// Cancel it if it has not started after this time, like 10m
    #[arg(long, value_name = "TIME", value_parser = args::duration, conflicts_with = "start_by")]
    start_within: Option<Duration>,
    /// Cancel it if it has not started by then, like 2030-01-01T00:00:00Z
    #[arg(long, value_name = "INSTANT", value_parser = args::instant)]
    start_by: Option<jiff::Timestamp>,
    /// The hook that is told of its end, whatever that hook's filter is
    #[arg(long, value_name = "HOOK", value_parser = args::name)]
    notify: Option<String>,
    #[command(flatten)]
    unique: UniqueOptions,
}

/// How a job is unique.
#[derive(Debug, Args)]
struct UniqueOptions {
    /// Unique key: while a job of the kind with this key waits, another is not stored
    #[arg(long, value_name = "KEY")]
    unique: Option<String>,
    /// How long a job has its unique key: while it is waiting, or unfinished
    #[arg(long, requires = "unique", value_parser = ["waiting", "unfinished"])]
    unique_while: Option<String>,
    /// The job has its unique key for this long, whatever becomes of it
    #[arg(long, value_name = "TIME", requires = "unique", value_parser = args::duration)]
    unique_for: Option<Duration>,
    /// Replace payload, priority and start of a waiting job with the unique key
    #[arg(long, requires = "unique", conflicts_with = "unique_for")]
    unique_replace: bool,
    /// With --unique-replace: put the start off to this long after the first enqueue at most
    #[arg(long, value_name = "TIME", requires = "unique_replace", value_parser = args::duration)]
    max_wait: Option<Duration>,
}

impl UniqueOptions {
    fn field(&self) -> Option<Value> {
        let mut unique = Map::from_iter([("key".to_owned(), Value::from(self.unique.clone()?))]);
        let ms = |time: Duration| json!(time.as_millis() as u64);
        let given = [
            ("while", self.unique_while.clone().map(Value::from)),
            ("on_conflict", self.unique_replace.then(|| json!("replace"))),
            ("for_ms", self.unique_for.map(ms)),
            ("max_wait_ms", self.max_wait.map(ms)),
        ];
        unique.extend(given.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))));
        Some(unique.into())
    }
}

impl Options {
    /// The fields of the API.
    fn fields(&self) -> Map<String, Value> {
        let ms = |time: Duration| json!(time.as_millis() as u64);
        let given = [
            ("queue", self.queue.clone().map(Value::from)),
            ("priority", self.priority.map(Value::from)),
            ("max_attempts", self.max_attempts.map(Value::from)),
            ("delay_ms", self.delay.map(ms)),
            ("run_at", self.run_at.map(|at| Value::from(at.to_string()))),
            ("timeout_ms", self.timeout.map(ms)),
            ("group_key", self.group.clone().map(Value::from)),
            ("cost", self.cost.map(Value::from)),
            ("start_within_ms", self.start_within.map(ms)),
            ("start_by", self.start_by.map(|at| Value::from(at.to_string()))),
            ("notify", self.notify.clone().map(Value::from)),
            ("unique", self.unique.field()),
        ];
        given.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
    }
}

impl Enqueue {
    pub(super) fn run(self) -> Result<Exit> {
        let client = Client::new(&self.target)?;
        let fields = self.options.fields();
        if let Some(source) = self.lines {
            let prefix = self.key_prefix.unwrap_or_else(bulk::random_prefix);
            let bulk =
                Bulk { kind: self.kind, fields, prefix, outage_timeout: self.outage_timeout, json: self.target.json };
            return bulk.run(&client, &source);
        }
        let payload = match (self.payload, self.file) {
            (Some(payload), _) => payload,
            (None, Some(file)) => read_payload(&file)?,
            (None, None) => "{}".into(),
        };
        // As text: numbers of any length stay what they are.
        let mut body = std::collections::BTreeMap::<String, Box<RawValue>>::new();
        body.insert("payload".into(), RawValue::from_string(payload)?);
        let key = self.key.clone().map(|key| ("idempotency_key".to_owned(), Value::from(key)));
        let kind = [("kind".to_owned(), Value::from(self.kind))];
        for (name, value) in fields.into_iter().chain(kind).chain(key) {
            body.insert(name, RawValue::from_string(value.to_string())?);
        }
        let answer = client.post_text("/jobs", serde_json::to_string(&body)?)?;
        let id = text(&answer.json, "id");
        let known = match answer.status {
            200 => known_because(&answer.json, self.key.as_deref()),
            _ => "",
        };
        let line = format!("{id} {}{known}", text(&answer.json, "status"));
        if self.wait {
            // Before anything can go wrong with the waiting: who has the id can look again.
            if self.target.json {
                print_stderr(&line)
            } else {
                print_line(&line)
            }
            return Watch { ids: vec![id], timeout: None, show: Show::Ends, json: self.target.json }.run(&client);
        }
        if self.target.json {
            print_json(&answer.json)
        } else {
            print_line(&line)
        }
        Ok(Exit::Ok)
    }
}

/// Which key it was; a token that may not read is not told.
fn known_because(job: &Value, key: Option<&str>) -> &'static str {
    let held = job.get("idempotency_key").map(Value::as_str);
    match held {
        _ if job.get("replaced") == Some(&Value::Bool(true)) => {
            " (it waited with the same unique key and was replaced)"
        }
        Some(held) if key.is_some() && held == key => " (its idempotency key was known)",
        Some(_) => " (a job with its unique key was there)",
        None => " (its key was known)",
    }
}

fn read_payload(file: &str) -> Result<String> {
    let mut payload = String::new();
    let read = match file {
        "-" => std::io::stdin().read_to_string(&mut payload),
        path => std::fs::File::open(path).and_then(|mut file| file.read_to_string(&mut payload)),
    };
    let usage = |why: String| ExitError::new(Exit::Usage, format!("--file {file}: {why}"));
    read.map_err(|error| usage(error.to_string()))?;
    Ok(args::json(payload.trim()).map_err(|why| usage(format!("not JSON: {why}")))?)
}
