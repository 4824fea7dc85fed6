//! `steadfast audit`.

use anyhow::Result;
use clap::Args;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use super::format::{age, text};
use super::table::Table;
use super::{Client, Target};
use crate::job::limits::PAGE_MAX;
use crate::server::exit::Exit;
use crate::server::stdio::{escaped, print_json, print_line};

/// Show what operators did, newest first
#[derive(Debug, Args)]
pub(in crate::server) struct Audit {
    #[command(flatten)]
    pub(super) target: Target,
    /// Only this action, like redrive or put_kind
    #[arg(long)]
    action: Option<String>,
    /// Only by the token with this id or name
    #[arg(long)]
    token: Option<String>,
    /// Only what was done to this, like queue:mail or job:ID
    #[arg(long = "target", value_name = "TARGET")]
    done_to: Option<String>,
    /// Only at this time or later, like 2026-11-18T00:00:00Z
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Only before this time
    #[arg(long, value_name = "TIME")]
    before: Option<String>,
    /// Show at most this many
    #[arg(long, default_value_t = 50)]
    limit: usize,
}

impl Audit {
    pub(super) fn run(self) -> Result<Exit> {
        let client = Client::new(&self.target)?;
        let mut entries = Vec::new();
        client.follow(&self.path(), |page| {
            entries.extend(page.as_array().into_iter().flatten().cloned());
            entries.len() < self.limit
        })?;
        entries.truncate(self.limit);
        if self.target.json {
            print_json(&Value::from(entries));
        } else if entries.is_empty() {
            print_line("nothing");
        } else {
            table(&entries).print();
        }
        Ok(Exit::Ok)
    }

    fn path(&self) -> String {
        let mut path = format!("/audit?limit={}", self.limit.clamp(1, PAGE_MAX));
        let given = [
            ("action", &self.action),
            ("token", &self.token),
            ("target", &self.done_to),
            ("since", &self.since),
            ("before", &self.before),
        ];
        for (name, value) in given {
            if let Some(value) = value {
                path.push_str(&format!("&{name}={}", utf8_percent_encode(value, NON_ALPHANUMERIC)));
            }
        }
        path
    }
}

fn table(entries: &[Value]) -> Table {
    let header = ["AGE", "BY", "ACTION", "TARGET", "N", "CHANGE", "FROM"];
    let mut table = Table::new(&header, &[1, 3, 5]).dropping(&[6, 5]);
    for entry in entries {
        let named = |field| text(entry, field);
        table.row([
            age(entry, "at"),
            named("token_name"),
            named("action"),
            named("target"),
            named("count"),
            change(entry),
            named("remote"),
        ]);
    }
    table
}

/// What is different now: of settings, only those that are.
fn change(entry: &Value) -> String {
    let (before, after) = (entry.get("before"), entry.get("after"));
    let differing = |one: Option<&Value>, other: Option<&Value>| {
        let fields = one.and_then(Value::as_object)?;
        let differs = |name: &String, value: &Value| other.and_then(|other| other.get(name)) != Some(value);
        let shown = fields.iter().filter(|(name, value)| differs(name, value));
        Some(shown.map(|(name, value)| format!("{name} {}", brief(value))).collect::<Vec<_>>().join(", "))
    };
    match (differing(before, after), differing(after, before)) {
        (None, None) => String::new(),
        (None, Some(after)) => escaped(&after),
        (Some(before), None) => escaped(&format!("was {before}")),
        (Some(before), Some(after)) => escaped(&format!("{before} → {after}")),
    }
}

fn brief(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_is_different_is_shown() {
        let of = |before: Value, after: Value| change(&json!({"before": before, "after": after}));
        assert_eq!(of(json!({"failed_permanent": 3}), json!({"queued": 3})), "failed_permanent 3 → queued 3");
        assert_eq!(of(json!({"a": 1, "b": 2}), json!({"a": 1, "b": 3})), "b 2 → b 3");
        assert_eq!(of(Value::Null, json!({"name": "ci"})), "name ci");
        assert_eq!(of(json!({"name": "ci\u{1b}"}), Value::Null), "was name ci\\u001b");
        assert_eq!(of(Value::Null, Value::Null), "");
    }
}
