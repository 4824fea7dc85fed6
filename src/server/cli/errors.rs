//! `errors`: dead letters by cause, and which causes are known.

use std::time::Duration;

use anyhow::Result;
use clap::{Args, Subcommand};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::format::{age, moment, text};
use super::table::Table;
use super::{Client, Target, args};
use crate::job::limits::PAGE_MAX;
use crate::server::exit::Exit;
use crate::server::stdio::{escaped, print_json, print_line};

/// `errors`.
#[derive(Debug, Args)]
pub(in crate::server) struct Errors {
    #[command(subcommand)]
    verb: Option<Verb>,
    #[command(flatten)]
    pub(super) target: Target,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// List causes of dead letters, those seen last first (what is done unless said otherwise)
    List(List),
    /// Show one cause, with an error in full
    Show {
        /// Its fingerprint, from the list
        #[arg(value_parser = args::fingerprint)]
        fingerprint: String,
    },
    /// Say that a cause is known, for a while
    Snooze(Snooze),
    /// End a snooze
    Unsnooze {
        /// Its fingerprint, from the list
        #[arg(value_parser = args::fingerprint)]
        fingerprint: String,
    },
}

#[derive(Debug, Default, Args)]
struct List {
    /// Only of this kind
    #[arg(long, value_parser = args::name)]
    kind: Option<String>,
    /// Only in this queue
    #[arg(long, value_parser = args::name)]
    queue: Option<String>,
    /// Only those seen within this long, like 24h
    #[arg(long, value_name = "DURATION", value_parser = args::duration)]
    within: Option<Duration>,
    /// Also those without dead letters, and those that are snoozed
    #[arg(long)]
    all: bool,
    /// At most this many
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    limit: u64,
}

#[derive(Debug, Args)]
struct Snooze {
    /// Its fingerprint, from the list
    #[arg(value_parser = args::fingerprint)]
    fingerprint: String,
    /// For how long, like 4h
    #[arg(long = "for", value_name = "DURATION", value_parser = args::duration, required_unless_present = "until",
          conflicts_with = "until")]
    wait: Option<Duration>,
    /// Until a time, like 2030-01-01T09:00:00Z
    #[arg(long, value_name = "TIME", value_parser = args::instant)]
    until: Option<Timestamp>,
    /// Why, for the next operator
    #[arg(long)]
    note: Option<String>,
}

impl Errors {
    pub(super) fn run(self) -> Result<Exit> {
        let client = Client::new(&self.target)?;
        let as_json = self.target.json;
        match self.verb {
            None => List { limit: 20, ..List::default() }.run(&client, as_json),
            Some(Verb::List(list)) => list.run(&client, as_json),
            Some(Verb::Show { fingerprint }) => show(&client.get(&format!("/errors/{fingerprint}"))?.json, as_json),
            Some(Verb::Snooze(snooze)) => snooze.run(&client, as_json),
            Some(Verb::Unsnooze { fingerprint }) => {
                client.delete(&format!("/errors/{fingerprint}/snooze"))?;
                if !as_json {
                    print_line(&format!("{fingerprint} is not snoozed any more"));
                }
                Ok(Exit::Ok)
            }
        }
    }
}

impl List {
    fn path(&self) -> String {
        let mut path = format!("/errors?limit={}", self.limit.min(PAGE_MAX as u64));
        for (name, value) in [("kind", &self.kind), ("queue", &self.queue)] {
            if let Some(value) = value {
                path.push_str(&format!("&{name}={value}"));
            }
        }
        if let Some(since) = self.within.and_then(|within| Timestamp::now().checked_sub(within).ok()) {
            path.push_str(&format!("&since={since}"));
        }
        if !self.all {
            path.push_str("&dead=true&snoozed=false");
        }
        path
    }

    fn run(&self, client: &Client, as_json: bool) -> Result<Exit> {
        let (mut groups, limit) = (Vec::new(), self.limit as usize);
        let more = client.follow(&self.path(), |page| {
            groups.extend(page.as_array().into_iter().flatten().cloned());
            groups.len() < limit
        })?;
        let more = more || groups.len() > limit;
        groups.truncate(limit);
        if as_json {
            print_json(&Value::from(groups));
            return Ok(Exit::Ok);
        }
        if groups.is_empty() {
            let also = if self.all { "" } else { " that are not snoozed (--all shows all causes)" };
            print_line(&format!("no dead letters{also}"));
            return Ok(Exit::Ok);
        }
        table(&groups).print();
        if more {
            print_line(&format!("(there are more than {limit}: --limit shows more)"));
        }
        Ok(Exit::Ok)
    }
}

fn table(groups: &[Value]) -> Table {
    let header = ["FINGERPRINT", "DEAD", "SEEN", "KIND", "FIRST", "LAST", "ERROR"];
    let mut table = Table::new(&header, &[3, 6]).dropping(&[4, 2]);
    for group in groups {
        let snoozed = if group.get("snoozed").is_some_and(|snoozed| !snoozed.is_null()) { "(snoozed) " } else { "" };
        let outcome = match group.get("outcome").and_then(Value::as_str) {
            None | Some("failed") => String::new(),
            Some(other) => format!("{}: ", escaped(other)),
        };
        table.row([
            text(group, "fingerprint"),
            text(group, "dead"),
            text(group, "seen_total"),
            text(group, "kind"),
            age(group, "first_seen"),
            age(group, "last_seen"),
            format!("{snoozed}{outcome}{}", text(group, "title")),
        ]);
    }
    table
}

fn show(group: &Value, as_json: bool) -> Result<Exit> {
    if as_json {
        print_json(group);
        return Ok(Exit::Ok);
    }
    print_line(&format!("{}  {}", text(group, "fingerprint"), text(group, "title")));
    print_line(&format!("kind {}, {}", text(group, "kind"), text(group, "outcome")));
    print_line(&format!("{} dead now, {} seen", text(group, "dead"), text(group, "seen_total")));
    print_line(&format!("first seen {}", moment(group, "first_seen")));
    print_line(&format!("last seen {}", moment(group, "last_seen")));
    if let Some(snoozed) = group.get("snoozed").filter(|snoozed| !snoozed.is_null()) {
        let by = snoozed.get("by").and_then(Value::as_str).map(|by| format!(" by {}", escaped(by)));
        let note = snoozed.get("note").and_then(Value::as_str).map(|note| format!(": {}", escaped(note)));
        let until = moment(snoozed, "until");
        print_line(&format!("snoozed until {until}{}{}", by.unwrap_or_default(), note.unwrap_or_default()));
    }
    if let Some(sample) = group.get("sample").filter(|sample| !sample.is_null()) {
        print_line(&format!("newest job {}", text(sample, "job_id")));
        if let Some(error) = sample.get("error").and_then(Value::as_str) {
            print_line(&format!("  {}", escaped(error)));
        }
    }
    let mut queues = Table::new(&["QUEUE", "DEAD", "SEEN"], &[0]);
    for queue in group.get("queues").and_then(Value::as_array).into_iter().flatten() {
        queues.row([text(queue, "queue"), text(queue, "dead"), text(queue, "seen_total")]);
    }
    queues.print();
    Ok(Exit::Ok)
}

impl Snooze {
    fn run(self, client: &Client, as_json: bool) -> Result<Exit> {
        let mut body = match (self.wait, self.until) {
            (Some(wait), _) => json!({"for_ms": wait.as_millis() as u64}),
            (None, until) => json!({"until": until}),
        };
        if let Some(note) = self.note {
            body["note"] = note.into();
        }
        let group = client.put(&format!("/errors/{}/snooze", self.fingerprint), &body)?.json;
        if as_json {
            print_json(&group);
        } else {
            let until = group.get("snoozed").map(|snoozed| moment(snoozed, "until")).unwrap_or_default();
            print_line(&format!("{} is snoozed until {until}", self.fingerprint));
        }
        Ok(Exit::Ok)
    }
}
