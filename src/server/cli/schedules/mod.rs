//! `steadfast schedules`. [`put`] builds a schedule from arguments, [`next`] needs no server.

mod next;
mod put;

use anyhow::Result;
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::args;
use super::format::{age, moment, text};
use super::table::Table;
use super::{Client, Target};
use crate::job::limits::SCHEDULES_PAGE_MAX;
use crate::server::exit::Exit;
use crate::server::stdio::{escaped, print_json, print_line, print_stderr};

/// Look at schedules, put, pause, run and delete them
#[derive(Debug, Args)]
pub(in crate::server) struct Schedules {
    #[command(flatten)]
    pub(super) target: Target,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show schedules, by name (the default)
    List(Filter),
    /// Show one schedule with its next runs and its newest ticks
    Show(Name),
    /// Create a schedule, or replace it
    Put(Box<put::Put>),
    /// Delete a schedule; its jobs stay
    Delete(Name),
    /// Stop a schedule from firing, until it is resumed
    Pause(Name),
    /// Let a schedule fire again, from its next tick on
    Resume(Name),
    /// Enqueue a job of a schedule now, whatever is unfinished
    Run {
        #[command(flatten)]
        name: Name,
        /// The tick to make up for, like 2030-01-01T02:30:00Z; a tick has one job, however often it is asked for
        #[arg(long, value_name = "INSTANT", value_parser = args::instant)]
        tick: Option<jiff::Timestamp>,
    },
    /// Show what became of the newest ticks of a schedule
    Ticks {
        #[command(flatten)]
        name: Name,
        /// At most this many, up to 100
        #[arg(long, default_value_t = 20)]
        limit: usize,
    },
    /// Show when a pattern fires, with a note where the clocks change; needs no server
    Next(next::Next),
}

#[derive(Debug, Args)]
struct Name {
    /// The name of the schedule
    #[arg(value_parser = args::name)]
    name: String,
}

#[derive(Debug, Args)]
struct Filter {
    /// Only in this state
    #[arg(long, value_parser = ["active", "paused", "ended"])]
    state: Option<String>,
    /// Only with jobs of this kind
    #[arg(long, value_parser = args::name)]
    kind: Option<String>,
    /// At most this many, by name
    #[arg(long, default_value_t = 1_000)]
    limit: usize,
}

impl Default for Filter {
    fn default() -> Self {
        Self { state: None, kind: None, limit: 1_000 }
    }
}

impl Schedules {
    pub(super) fn run(self) -> Result<Exit> {
        let json = self.target.json;
        let command = self.command.unwrap_or_else(|| Command::List(Filter::default()));
        if let Command::Next(next) = command {
            return next.run(json);
        }
        let client = Client::new(&self.target)?;
        match command {
            Command::List(filter) => list(&client, &filter, json),
            Command::Show(Name { name }) => show(&client, &name, json),
            Command::Put(put) => put.run(&client, json),
            Command::Delete(Name { name }) => {
                client.delete(&format!("/schedules/{name}"))?;
                match json {
                    true => print_json(&json!({"name": name, "deleted": true})),
                    false => print_line(&format!("schedule {name} is deleted; its jobs stay")),
                }
                Ok(Exit::Ok)
            }
            Command::Pause(Name { name }) => {
                let paused = client.post(&format!("/schedules/{name}/pause"), None)?.json;
                told(&paused, json, &format!("schedule {name} is paused"))
            }
            Command::Resume(Name { name }) => {
                let resumed = client.post(&format!("/schedules/{name}/resume"), None)?.json;
                told(&resumed, json, &format!("schedule {name} fires again, {}", next_run(&resumed)))
            }
            Command::Run { name: Name { name }, tick } => {
                let body = tick.map(|tick| json!({"tick": tick.to_string()}));
                let answer = client.post(&format!("/schedules/{name}/run"), body.as_ref())?;
                let known = if answer.status == 200 { " (the tick had its job already)" } else { "" };
                let line = format!("{} {}{known}", text(&answer.json, "id"), text(&answer.json, "status"));
                told(&answer.json, json, &line)
            }
            Command::Ticks { name: Name { name }, limit } => {
                let ticks = client.get(&format!("/schedules/{name}/ticks?limit={limit}"))?.json;
                if json {
                    print_json(&ticks);
                } else if ticks.as_array().is_none_or(Vec::is_empty) {
                    print_line("no ticks yet");
                } else {
                    tick_table(&ticks).print();
                }
                Ok(Exit::Ok)
            }
            Command::Next(_) => unreachable!("it was run above"),
        }
    }
}

fn told(answer: &Value, json: bool, line: &str) -> Result<Exit> {
    if json {
        print_json(answer);
    } else {
        print_line(line);
    }
    Ok(Exit::Ok)
}

fn list(client: &Client, filter: &Filter, json: bool) -> Result<Exit> {
    let mut path = format!("/schedules?limit={}", filter.limit.clamp(1, SCHEDULES_PAGE_MAX));
    for (name, value) in [("state", &filter.state), ("kind", &filter.kind)] {
        if let Some(value) = value {
            path.push_str(&format!("&{name}={value}"));
        }
    }
    let mut schedules = Vec::new();
    let has_more = client.follow(&path, |page| {
        schedules.extend(page.as_array().into_iter().flatten().cloned());
        schedules.len() < filter.limit
    })?;
    if has_more || schedules.len() > filter.limit {
        let limit = filter.limit;
        print_stderr(&format!(
            "there are more schedules: only the first {limit} are shown, by name; --limit shows more"
        ));
    }
    schedules.truncate(filter.limit);
    if json {
        print_json(&Value::from(schedules));
        return Ok(Exit::Ok);
    }
    if schedules.is_empty() {
        print_line("no schedules");
        return Ok(Exit::Ok);
    }
    let header = ["NAME", "WHEN", "ZONE", "KIND", "STATE", "NEXT", "LAST", "FIRED", "NOTE"];
    let mut table = Table::new(&header, &[0, 1, 2, 3, 8]).dropping(&[6, 3, 2]);
    for schedule in &schedules {
        let fired = schedule.pointer("/counts/fired").map_or(String::new(), Value::to_string);
        let zone = schedule.get("cron").filter(|cron| cron.is_string()).map_or("–".into(), |_| text(schedule, "tz"));
        let kind = schedule.get("job").map_or_else(|| "–".into(), |job| text(job, "kind"));
        let (name, state, last) = (text(schedule, "name"), text(schedule, "state"), age(schedule, "last_tick_at"));
        let next = age(&json!({"at": schedule.pointer("/next_runs/0")}), "at");
        table.row([name, when(schedule), zone, kind, state, next, last, fired, note(schedule)]);
    }
    table.print();
    Ok(Exit::Ok)
}

/// `30 2 * * *`, or `every 15m`.
fn when(schedule: &Value) -> String {
    match (schedule.get("cron").and_then(Value::as_str), schedule.get("every_ms").and_then(Value::as_u64)) {
        (Some(cron), _) => escaped(cron),
        (None, Some(ms)) => format!("every {}", span(ms)),
        (None, None) => "–".into(),
    }
}

/// In the largest unit that it is a multiple of.
fn span(ms: u64) -> String {
    let units = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s")];
    let unit = units.into_iter().find(|(size, _)| ms.is_multiple_of(*size));
    unit.map_or_else(|| format!("{ms}ms"), |(size, unit)| format!("{}{unit}", ms / size))
}

/// What there is to say about a schedule: ticks that did not fire, why one was refused, that one waits.
fn note(schedule: &Value) -> String {
    let count = |fate: &&str| schedule.pointer(&format!("/counts/{fate}")).and_then(Value::as_u64).filter(|n| *n > 0);
    let counted = ["skipped", "missed", "refused"].iter().filter_map(|fate| Some(format!("{} {fate}", count(fate)?)));
    let waits = schedule.get("held_tick").is_some_and(|tick| !tick.is_null()).then(|| "1 waits".to_owned());
    let error = schedule.get("last_error").and_then(Value::as_str).map(escaped);
    counted.chain(waits).chain(error).collect::<Vec<_>>().join(", ")
}

fn next_run(schedule: &Value) -> String {
    match schedule.pointer("/next_runs/0").and_then(Value::as_str) {
        Some(at) => format!("next at {}", escaped(at)),
        None => "but it has no further tick".into(),
    }
}

/// The order in which a person wants to read them.
const FIELDS: [&str; 20] = [
    "name",
    "describe",
    "cron",
    "every_ms",
    "anchor_at",
    "tz",
    "state",
    "source",
    "revision",
    "job",
    "overlap",
    "catch_up",
    "jitter_ms",
    "start_at",
    "end_at",
    "counts",
    "last_tick_at",
    "last_job_id",
    "held_tick",
    "last_error",
];

fn show(client: &Client, name: &str, json: bool) -> Result<Exit> {
    let mut schedule = client.get(&format!("/schedules/{name}"))?.json;
    let ticks = client.get(&format!("/schedules/{name}/ticks?limit=10"))?.json;
    if json {
        if let Some(fields) = schedule.as_object_mut() {
            fields.insert("ticks".into(), ticks);
        }
        print_json(&schedule);
        return Ok(Exit::Ok);
    }
    for field in FIELDS {
        if schedule.get(field).is_some_and(|value| !value.is_null()) {
            print_line(&format!("{field:12}  {}", text(&schedule, field)));
        }
    }
    for (number, run) in schedule.get("next_runs").and_then(Value::as_array).into_iter().flatten().enumerate() {
        let name = if number == 0 { "next_runs" } else { "" };
        print_line(&format!("{name:12}  {}", escaped(run.as_str().unwrap_or_default())));
    }
    if ticks.as_array().is_some_and(|ticks| !ticks.is_empty()) {
        print_line("");
        tick_table(&ticks).print();
    }
    Ok(Exit::Ok)
}

fn tick_table(ticks: &Value) -> Table {
    let mut table = Table::new(&["TICK", "FATE", "JOB", "DECIDED", "REASON"], &[4]).dropping(&[3, 2]);
    for tick in ticks.as_array().into_iter().flatten() {
        let [fate, job, reason] = ["fate", "job_id", "reason"].map(|field| text(tick, field));
        table.row([moment(tick, "tick"), fate, job, moment(tick, "at"), reason]);
    }
    table
}
