//! Limits on the command line: `queues set`, `show`, `limits` and `groups`. The API replaces settings as a whole; the
//! commands read them first and change what is given.

use anyhow::Result;
use clap::{Args, Subcommand};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Map, Value, json};

use super::args::{self, Given};
use super::client::RequestError;
use super::format::text;
use super::table::Table;
use super::{Client, Target};
use crate::job::limits::PAGE_MAX;
use crate::server::exit::Exit;
use crate::server::stdio::{escaped, print_json, print_line};

/// `--concurrency`, `--rate` and `--burst`; `none` takes a limit away.
#[derive(Debug, Args)]
pub(super) struct LimitOptions {
    /// Jobs that run at the same time, in all processes together; none: no limit
    #[arg(long, value_name = "N", value_parser = args::limit)]
    concurrency: Option<Given<u64>>,
    /// Starts in a period, like 100/s, 20/m, 5/h or 10/250ms; none: no limit
    #[arg(long, value_name = "RATE", value_parser = args::rate)]
    rate: Option<Given<args::Rate>>,
    /// Starts of the rate that may come at once; what it allows in 100 ms unless given
    #[arg(long, value_name = "N")]
    burst: Option<u64>,
}

impl LimitOptions {
    /// Changes what is given.
    pub(super) fn apply(&self, to: &mut Map<String, Value>) {
        apply(to, self.concurrency, self.rate, self.burst);
    }
}

/// The same for each group of a queue.
#[derive(Debug, Args)]
struct GroupOptions {
    /// The same for each group of the queue
    #[arg(long, value_name = "N", value_parser = args::limit)]
    group_concurrency: Option<Given<u64>>,
    /// The same for each group of the queue
    #[arg(long, value_name = "RATE", value_parser = args::rate)]
    group_rate: Option<Given<args::Rate>>,
    /// The same for each group of the queue
    #[arg(long, value_name = "N")]
    group_burst: Option<u64>,
    /// How jobs of a group start: fair by priority and time, groups in turns; strict one at a time, in the order of their
    /// enqueues. Applies to jobs that are enqueued afterwards
    #[arg(long, value_parser = ["fair", "strict"])]
    order: Option<String>,
}

fn apply(
    to: &mut Map<String, Value>,
    concurrency: Option<Given<u64>>,
    rate: Option<Given<args::Rate>>,
    burst: Option<u64>,
) {
    match concurrency {
        Some(Given::Value(leases)) => drop(to.insert("concurrency".into(), leases.into())),
        Some(Given::None) => drop(to.remove("concurrency")),
        None => {}
    }
    match rate {
        // Without its old burst: that was of another rate.
        Some(Given::Value(rate)) => {
            to.insert("rate".into(), json!({"limit": rate.limit, "per_ms": rate.per_ms}));
        }
        Some(Given::None) => drop(to.remove("rate")),
        None => {}
    }
    if let (Some(burst), Some(Value::Object(rate))) = (burst, to.get_mut("rate")) {
        rate.insert("burst".into(), burst.into());
    }
}

/// `queues set`.
#[derive(Debug, Args)]
pub(super) struct SetQueue {
    /// The name of the queue; it need not have jobs yet
    #[arg(value_parser = args::name)]
    queue: String,
    #[command(flatten)]
    limits: LimitOptions,
    #[command(flatten)]
    groups: GroupOptions,
    /// Forget what is not given, instead of leaving it as it is
    #[arg(long)]
    replace: bool,
}

impl SetQueue {
    pub(super) fn run(self, client: &Client, target: &Target) -> Result<Exit> {
        let queue = &self.queue;
        let mut body = if self.replace { Map::new() } else { settings(client, queue)? };
        self.limits.apply(&mut body);
        let mut groups = body.remove("groups").and_then(|groups| groups.as_object().cloned()).unwrap_or_default();
        let given = &self.groups;
        apply(&mut groups, given.group_concurrency, given.group_rate, given.group_burst);
        if let Some(order) = &given.order {
            groups.insert("order".into(), order.as_str().into());
        }
        if !groups.is_empty() {
            body.insert("groups".into(), groups.into());
        }
        let answer = client.put(&format!("/queues/{queue}"), &body.into())?.json;
        if target.json {
            print_json(&answer);
        } else {
            print_line(&format!("queue {queue}: {}", in_words(&answer)));
        }
        Ok(Exit::Ok)
    }
}

/// What is set for a queue, as it would be sent.
fn settings(client: &Client, queue: &str) -> Result<Map<String, Value>> {
    let known = match client.get(&format!("/queues/{queue}")) {
        Ok(answer) => answer.json,
        Err(RequestError::Refused(problem)) if problem.status == 404 => return Ok(Map::new()),
        Err(error) => return Err(error.into()),
    };
    let mut set = Map::new();
    for field in ["concurrency", "rate", "groups"] {
        if let Some(value) = known.get(field).filter(|value| !value.is_null()) {
            set.insert(field.into(), without_nulls(value.clone()));
        }
    }
    Ok(set)
}

fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields.into_iter().filter(|(_, value)| !value.is_null());
            Value::Object(fields.map(|(name, value)| (name, without_nulls(value))).collect())
        }
        other => other,
    }
}

/// `at most 50 at the same time, 100/s; each group at most 2 at the same time, strict order`.
fn in_words(queue: &Value) -> String {
    let limits = |of: &Value| {
        let concurrency = of.get("concurrency").and_then(Value::as_u64);
        let concurrency = concurrency.map(|leases| format!("at most {leases} at the same time"));
        let rate = of.get("rate").filter(|rate| !rate.is_null()).map(|_| format!("at most {}", rate(of)));
        concurrency.into_iter().chain(rate).collect::<Vec<_>>()
    };
    let own = limits(queue);
    let mut said = if own.is_empty() { "no limits".to_owned() } else { own.join(", ") };
    if let Some(groups) = queue.get("groups").filter(|groups| !groups.is_null()) {
        let mut each = limits(groups);
        each.push(format!("{} order", text(groups, "order")));
        said.push_str(&format!("; each group {}", each.join(", ")));
    }
    said
}

/// `100/s`, `10/250ms`; a dash without a rate.
pub(super) fn rate(of: &Value) -> String {
    let field = |name: &str| of.pointer(&format!("/rate/{name}")).and_then(Value::as_u64);
    let (Some(limit), Some(per_ms)) = (field("limit"), field("per_ms")) else { return "–".into() };
    match per_ms {
        1_000 => format!("{limit}/s"),
        60_000 => format!("{limit}/m"),
        3_600_000 => format!("{limit}/h"),
        86_400_000 => format!("{limit}/d"),
        ms if ms % 1_000 == 0 => format!("{limit}/{}s", ms / 1_000),
        ms => format!("{limit}/{ms}ms"),
    }
}

/// `queues show`: a queue with its limits.
pub(super) fn show(client: &Client, queue: &str, as_json: bool) -> Result<Exit> {
    let shown = client.get(&format!("/queues/{queue}"))?.json;
    if as_json {
        print_json(&shown);
        return Ok(Exit::Ok);
    }
    let paused = shown.get("paused").and_then(Value::as_bool).unwrap_or(false);
    print_line(&format!("queue {queue}{}: {}", if paused { " (paused)" } else { "" }, in_words(&shown)));
    let counts = shown.get("counts").and_then(Value::as_object).cloned().unwrap_or_default();
    let counts = counts.iter().filter(|(_, count)| count.as_u64() != Some(0));
    let counts: Vec<_> = counts.map(|(status, count)| format!("{count} {}", escaped(status))).collect();
    print_line(&if counts.is_empty() { "no jobs".into() } else { counts.join(", ") });
    if let Some(waits) = shown.get("usage").and_then(waits_for) {
        print_line(&format!("due jobs wait: {waits}"));
    }
    Ok(Exit::Ok)
}

/// What due jobs wait for, if it is a limit.
fn waits_for(usage: &Value) -> Option<String> {
    match usage.get("waiting")?.as_str()? {
        "full" => Some(format!("{} run, which is the limit", text(usage, "running"))),
        "rate" => Some(format!("the rate allows the next start in {} ms", text(usage, "next_token_ms"))),
        other => Some(escaped(other)),
    }
}

/// `queues limits`: the queue's own, then its groups.
pub(super) fn list(client: &Client, queue: &str, only_groups: bool, as_json: bool) -> Result<Exit> {
    let mut limits = client.get_list(&format!("/queues/{queue}/limits?limit={PAGE_MAX}"))?;
    if only_groups {
        limits.retain(|limit| limit.get("scope").and_then(Value::as_str) == Some("group"));
    }
    if as_json {
        print_json(&limits.into());
        return Ok(Exit::Ok);
    }
    if limits.is_empty() {
        print_line("no group has running jobs, a rate in use or settings of its own");
        return Ok(Exit::Ok);
    }
    let header = ["NAME", "SCOPE", "RUNNING", "LIMIT", "RATE", "WEIGHT", "OWN", "WAITS FOR"];
    let mut table = Table::new(&header, &[0]).dropping(&[6, 5, 1]);
    for limit in &limits {
        let own = limit.get("own").is_some_and(|own| !own.is_null());
        let waits = match limit.get("waiting").and_then(Value::as_str) {
            None => "–".to_owned(),
            Some("full") => "a place".into(),
            Some("rate") => format!("{} ms", text(limit, "next_token_ms")),
            Some(other) => escaped(other),
        };
        let [name, scope, running, concurrency, weight] =
            ["name", "scope", "running", "concurrency", "weight"].map(|field| text(limit, field));
        let own = if own { "yes" } else { "no" }.to_owned();
        table.row([name, scope, running, concurrency, rate(limit), weight, own, waits]);
    }
    table.print();
    Ok(Exit::Ok)
}

/// `queues groups`.
#[derive(Debug, Args)]
pub(super) struct Groups {
    /// The name of the queue
    #[arg(value_parser = args::name)]
    queue: String,
    #[command(subcommand)]
    command: Option<GroupCommand>,
}

#[derive(Debug, Subcommand)]
enum GroupCommand {
    /// Set what holds for one group instead of what holds for each
    Set {
        /// The group, as jobs name it; it need not have jobs yet
        group: String,
        #[command(flatten)]
        limits: LimitOptions,
        /// How many turns it has for one of another group, 1 to 100
        #[arg(long, value_name = "N")]
        weight: Option<u64>,
        /// Start no more jobs of it; running ones go on
        #[arg(long, conflicts_with = "resume")]
        pause: bool,
        /// End its pause
        #[arg(long)]
        resume: bool,
        /// Forget what is not given, instead of leaving it as it is
        #[arg(long)]
        replace: bool,
    },
    /// Put a group back to what holds for each
    Reset {
        /// The group
        group: String,
    },
}

impl Groups {
    pub(super) fn run(self, client: &Client, target: &Target) -> Result<Exit> {
        let queue = &self.queue;
        let path = |group: &str| format!("/queues/{queue}/groups/{}", utf8_percent_encode(group, NON_ALPHANUMERIC));
        match self.command {
            None => list(client, queue, true, target.json),
            Some(GroupCommand::Reset { group }) => {
                client.delete(&path(&group))?;
                if !target.json {
                    print_line(&format!("group {} of queue {queue} is as the others", escaped(&group)));
                }
                Ok(Exit::Ok)
            }
            Some(GroupCommand::Set { group, limits, weight, pause, resume, replace }) => {
                let mut body = if replace { Map::new() } else { own_settings(client, queue, &group)? };
                limits.apply(&mut body);
                if let Some(weight) = weight {
                    body.insert("weight".into(), weight.into());
                }
                if pause || resume {
                    body.insert("paused".into(), pause.into());
                }
                let answer = client.put(&path(&group), &body.into())?.json;
                if target.json {
                    print_json(&answer);
                } else {
                    let paused = answer.get("paused").and_then(Value::as_bool).unwrap_or(false);
                    let paused = if paused { " (paused)" } else { "" };
                    print_line(&format!("group {} of queue {queue}{paused} is set", escaped(&group)));
                }
                Ok(Exit::Ok)
            }
        }
    }
}

/// What was set for a group itself, as it would be sent.
fn own_settings(client: &Client, queue: &str, group: &str) -> Result<Map<String, Value>> {
    let mut own = Map::new();
    let found = client.follow(&format!("/queues/{queue}/limits?limit={PAGE_MAX}"), |page| {
        let of_group = |limit: &&Value| {
            limit.get("scope").and_then(Value::as_str) == Some("group")
                && limit.get("name").and_then(Value::as_str) == Some(group)
        };
        let found = page.as_array().into_iter().flatten().find(of_group);
        if let Some(Value::Object(set)) = found.and_then(|limit| limit.get("own")).cloned().map(without_nulls) {
            own = set;
        }
        found.is_none()
    });
    match found {
        Ok(_) => Ok(own),
        Err(RequestError::Refused(problem)) if problem.status == 404 => Ok(own),
        Err(error) => Err(error.into()),
    }
}
