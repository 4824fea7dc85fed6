//! `steadfast schedules put`: a schedule from arguments, sent as a whole.

use std::collections::BTreeMap;
use std::io::Read;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use jiff::Timestamp;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::{args, next_run, told};
use crate::server::cli::Client;
use crate::server::exit::{Exit, ExitError};

/// Create a schedule, or replace it
#[derive(Debug, Args)]
pub(super) struct Put {
    /// The name of the schedule
    #[arg(value_parser = args::name)]
    name: String,
    /// A pattern: minute, hour, day, month, weekday, like '30 2 * * *'; or @daily and the like
    #[arg(long, value_name = "PATTERN", required_unless_present = "every", conflicts_with = "every")]
    cron: Option<String>,
    /// An interval instead, like 15m
    #[arg(long, value_name = "TIME", value_parser = args::duration)]
    every: Option<Duration>,
    /// The time zone of the pattern, like Europe/Berlin; UTC unless given
    #[arg(long, value_name = "ZONE")]
    tz: Option<String>,
    /// The kind of its jobs
    #[arg(long, value_parser = args::name)]
    kind: String,
    /// Their payload, as JSON or @FILE (@- is stdin), with placeholders like {{tick}}; {} unless given
    #[arg(long, value_name = "JSON")]
    payload: Option<String>,
    /// Their queue, instead of the kind's own
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
    /// What a tick does while a job of the schedule is unfinished [default: skip]
    #[arg(long, value_parser = ["allow", "skip", "queue_one", "cancel"])]
    overlap: Option<String>,
    /// What becomes of ticks that nobody was there for [default: one]
    #[arg(long, value_parser = ["skip", "one", "all"])]
    catch_up: Option<String>,
    /// How many missed ticks --catch-up all makes up for [default: 100]
    #[arg(long)]
    catch_up_max: Option<u64>,
    /// How old a missed tick may be to be made up for [default: 1d]
    #[arg(long, value_name = "TIME", value_parser = args::duration)]
    catch_up_window: Option<Duration>,
    /// Spread the starts of jobs over this time, like 5m
    #[arg(long, value_name = "TIME", value_parser = args::duration)]
    jitter: Option<Duration>,
    /// What intervals are counted from, like 2030-01-01T00:00:00Z
    #[arg(long, value_name = "INSTANT", value_parser = args::instant, requires = "every")]
    anchor_at: Option<Timestamp>,
    /// No tick before then, like 2030-01-01T00:00:00Z
    #[arg(long, value_name = "INSTANT", value_parser = args::instant)]
    start_at: Option<Timestamp>,
    /// No tick after then
    #[arg(long, value_name = "INSTANT", value_parser = args::instant)]
    end_at: Option<Timestamp>,
    /// Put it paused; --paused=false resumes it. Left out, an existing schedule stays as it is
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    paused: Option<bool>,
    /// Only if this is still its revision, as `schedules show` prints it
    #[arg(long, value_name = "NUMBER")]
    if_revision: Option<u64>,
}

type Fields = BTreeMap<&'static str, Box<RawValue>>;

impl Put {
    pub(super) fn run(self, client: &Client, json: bool) -> Result<Exit> {
        let path = format!("/schedules/{}", self.name);
        let answer = client.put_text(&path, serde_json::to_string(&self.fields()?)?, self.if_revision)?;
        let verb = if answer.status == 201 { "is created" } else { "is as given" };
        let state = answer.json.get("state").and_then(Value::as_str);
        let next = if state == Some("paused") { "paused".into() } else { next_run(&answer.json) };
        told(&answer.json, json, &format!("schedule {} {verb}, {next}", self.name))
    }

    /// The body of the API.
    fn fields(&self) -> Result<Fields> {
        let ms = |time: Duration| json!(time.as_millis() as u64);
        let at = |at: Timestamp| Value::from(at.to_string());
        let mut job = given([
            ("kind", Some(Value::from(&*self.kind))),
            ("queue", self.queue.as_deref().map(Value::from)),
            ("priority", self.priority.map(Value::from)),
            ("max_attempts", self.max_attempts.map(Value::from)),
            ("timeout_ms", self.timeout.map(ms)),
        ])?;
        // As text: numbers of any length stay what they are.
        job.insert("payload", RawValue::from_string(payload(self.payload.as_deref())?)?);
        let mut fields = given([
            ("cron", self.cron.as_deref().map(Value::from)),
            ("every_ms", self.every.map(ms)),
            ("tz", self.tz.as_deref().map(Value::from)),
            ("overlap", self.overlap.as_deref().map(Value::from)),
            ("catch_up", self.catch_up.as_deref().map(Value::from)),
            ("catch_up_max", self.catch_up_max.map(Value::from)),
            ("catch_up_window_ms", self.catch_up_window.map(ms)),
            ("jitter_ms", self.jitter.map(ms)),
            ("anchor_at", self.anchor_at.map(at)),
            ("start_at", self.start_at.map(at)),
            ("end_at", self.end_at.map(at)),
            ("paused", self.paused.map(Value::from)),
        ])?;
        fields.insert("job", RawValue::from_string(serde_json::to_string(&job)?)?);
        Ok(fields)
    }
}

fn given<const N: usize>(fields: [(&'static str, Option<Value>); N]) -> Result<Fields> {
    let given = fields.into_iter().filter_map(|(name, value)| Some((name, value?)));
    given.map(|(name, value)| Ok((name, RawValue::from_string(value.to_string())?))).collect()
}

fn payload(given: Option<&str>) -> Result<String> {
    let usage = |why: String| ExitError::new(Exit::Usage, format!("--payload: {why}"));
    let Some(given) = given else { return Ok("{}".into()) };
    let text = match given.strip_prefix('@') {
        Some("-") => {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).map_err(|error| usage(error.to_string()))?;
            text
        }
        Some(path) => std::fs::read_to_string(path).map_err(|error| usage(format!("{path}: {error}")))?,
        None => given.to_owned(),
    };
    Ok(args::json(text.trim()).map_err(|why| usage(format!("not JSON: {why}; @FILE reads it from a file")))?)
}
