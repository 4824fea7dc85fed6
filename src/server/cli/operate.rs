//! One action on many jobs: shows what would be done, asks, begins it, and follows it to its end. The server does it; who
//! stops following stops nothing.

use std::io::{IsTerminal, stderr};
use std::thread::sleep;
use std::time::Instant;

use anyhow::Result;
use serde_json::{Map, Value, json};

use super::Client;
use super::ask::{ask, confirm};
use super::format::{age, attempts, moment, note, text};
use super::table::Table;
use super::watch::{FIRST_PAUSE, LONGEST_PAUSE, RECONNECT_TIMEOUT, is_transient};
use crate::server::exit::{Exit, ExitError, on_interrupt};
use crate::server::stdio::{escaped, print_json, print_line, print_stderr, reader_is_gone, replace_line};

/// 100 jobs: of more, the number has to be typed.
const AGREED_WITH_Y_MAX: u64 = 100;
/// Five kinds, or queues, in a line.
const NAMES_SHOWN: usize = 5;
const BAR_WIDTH: u64 = 30;

/// An operation that somebody wants.
pub(super) struct Operate {
    pub(super) action: &'static str,
    pub(super) filter: Map<String, Value>,
    /// Rate, max, canary, reason.
    pub(super) options: Map<String, Value>,
    pub(super) yes: bool,
    pub(super) json: bool,
}

impl Operate {
    pub(super) fn run(self, client: &Client) -> Result<Exit> {
        let target = json!({"action": self.action, "filter": self.filter});
        let preview = client.post("/operations/preview", Some(&target))?.json;
        let matches = preview["matches"].as_u64().unwrap_or_default();
        if matches == 0 && preview["exact"] == true {
            if self.json {
                print_json(&preview)
            } else {
                print_line("no jobs match")
            }
            return Ok(Exit::Ok);
        }
        if !self.json {
            show(self.action, &preview);
        } else if !self.yes {
            print_json(&preview);
        }
        if !self.yes {
            self.ask(matches, preview["exact"] == true)?;
        }
        let mut operation = target.as_object().cloned().unwrap_or_default();
        operation.extend(self.options);
        operation.insert("preview".into(), preview["token"].clone());
        let begun = client.post("/operations", Some(&Value::from(operation)))?.json;
        follow(client, begun, self.json)
    }

    /// That a person wants it.
    fn ask(&self, matches: u64, is_exact: bool) -> Result<()> {
        let action = self.action;
        let is_large = matches > AGREED_WITH_Y_MAX || !is_exact || action == "delete";
        let agreed = match is_large {
            true => {
                let question = format!("Type {matches} to {action} them:");
                ask(&question).map(|answer| answer == matches.to_string())
            }
            false => confirm(&format!("{action} {matches} jobs?")),
        };
        match agreed {
            Some(true) => Ok(()),
            Some(false) => Err(ExitError::new(Exit::Failed, "nothing was changed").into()),
            None => {
                let said = "nothing was changed: this is not a terminal, so nobody can be asked; --yes does it unasked";
                Err(ExitError::new(Exit::Usage, said).into())
            }
        }
    }
}

/// What would be done.
fn show(action: &str, preview: &Value) {
    let at_least = if preview["exact"] == true { "" } else { "at least " };
    print_line(&format!("{action}: {at_least}{} jobs match", text(preview, "matches")));
    for (field, name) in [("by_kind", "kind"), ("by_queue", "queue")] {
        print_line(&format!("  by {name:6} {}", names(preview, field, name)));
    }
    print_line(&format!("  created   {} to {}", moment(preview, "oldest"), moment(preview, "newest")));
    print_line("");
    let mut table =
        Table::new(&["ID", "KIND", "QUEUE", "STATUS", "TRIES", "AGE", "NOTE"], &[1, 2, 6]).dropping(&[2, 5]);
    for job in preview["sample"].as_array().into_iter().flatten() {
        let cells = ["id", "kind", "queue", "status"].map(|field| text(job, field));
        table.row(cells.into_iter().chain([attempts(job), age(job, "created_at"), note(job)]));
    }
    table.print();
}

fn names(preview: &Value, field: &str, name: &str) -> String {
    let counts = preview[field].as_array().map(Vec::as_slice).unwrap_or_default();
    let shown = counts.iter().take(NAMES_SHOWN).map(|count| format!("{} {}", text(count, name), text(count, "count")));
    let mut shown: Vec<String> = shown.collect();
    if counts.len() > NAMES_SHOWN {
        shown.push("…".into());
    }
    shown.join(", ")
}

/// Until it has ended, or waits for somebody. 0 if all was done, else 1.
fn follow(client: &Client, begun: Value, as_json: bool) -> Result<Exit> {
    let id = text(&begun, "id");
    tell_when_interrupted(&id)?;
    let draws = stderr().is_terminal() && !as_json;
    let mut operation = begun;
    let mut seen = None;
    let mut pause = FIRST_PAUSE;
    let mut last_heard = Instant::now();
    loop {
        let now = (text(&operation, "state"), done(&operation));
        if seen.as_ref() != Some(&now) {
            pause = FIRST_PAUSE;
            tell(&operation, as_json, draws);
            seen = Some(now);
        }
        if let Some(exit) = end(&operation, as_json, draws) {
            return Ok(exit);
        }
        if reader_is_gone() {
            return Ok(Exit::Ok);
        }
        sleep(pause);
        pause = (pause * 3 / 2).min(LONGEST_PAUSE);
        match client.get(&format!("/operations/{id}")) {
            Ok(answer) => (operation, last_heard) = (answer.json, Instant::now()),
            Err(error) if is_transient(&error) && last_heard.elapsed() < RECONNECT_TIMEOUT => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn tell_when_interrupted(id: &str) -> Result<()> {
    let id = id.to_owned();
    let before_exit = move || {
        print_stderr("");
        print_stderr("The operation goes on. To look at it, and to stop it:");
        print_stderr(&format!("  steadfast operations show {id}"));
        print_stderr(&format!("  steadfast operations stop {id}"));
    };
    Ok(on_interrupt(before_exit)?)
}

fn tell(operation: &Value, as_json: bool, draws: bool) {
    match (as_json, draws) {
        (true, _) => print_json(operation),
        (false, true) => replace_line(&bar(operation)),
        (false, false) => {
            print_line(&format!("{}  {:8}  {}", text(operation, "id"), text(operation, "state"), progress(operation)))
        }
    }
}

/// How an operation that goes no further has ended.
fn end(operation: &Value, as_json: bool, draws: bool) -> Option<Exit> {
    let state = operation["state"].as_str().unwrap_or_default();
    let counts = &operation["counts"];
    let failed = counts["failed"].as_u64().unwrap_or_default();
    let exit = match state {
        "finished" if failed == 0 => Exit::Ok,
        "finished" | "stopped" | "paused" => Exit::Failed,
        _ => return None,
    };
    if as_json {
        return Some(exit);
    }
    if draws {
        replace_line("");
    }
    let id = text(operation, "id");
    let [changed, unchanged, failed] = ["changed", "unchanged", "failed"].map(|field| text(counts, field));
    print_line(&format!("{state}: {changed} changed, {unchanged} had changed by themselves, {failed} failed"));
    if state == "paused" {
        if let Some(note) = operation["note"].as_str() {
            print_line(&escaped(note));
        }
        print_line(&format!("To go on: steadfast operations resume {id}"));
    }
    Some(exit)
}

/// How many jobs it is done with.
fn done(operation: &Value) -> u64 {
    let counts =
        ["changed", "unchanged", "failed"].map(|field| operation["counts"][field].as_u64().unwrap_or_default());
    counts.into_iter().sum()
}

/// How many it will be done with in the end, if that is known.
fn total(operation: &Value) -> Option<u64> {
    let [of, max] = ["of", "max"].map(|field| operation[field].as_u64());
    of.map(|of| max.map_or(of, |max| of.min(max)))
}

/// `400/1204`.
pub(super) fn progress(operation: &Value) -> String {
    let done = done(operation);
    total(operation).map_or_else(|| done.to_string(), |total| format!("{done}/{total}"))
}

fn bar(operation: &Value) -> String {
    let (done, rate) = (done(operation), text(operation, "rate"));
    let bar = match total(operation) {
        Some(total) if total > 0 => {
            let full = done.min(total) * BAR_WIDTH / total;
            let bar: String = (0..BAR_WIDTH).map(|at| if at < full { '█' } else { '░' }).collect();
            format!("{bar} {:3}%  ", done.min(total) * 100 / total)
        }
        _ => String::new(),
    };
    format!("{bar}{} jobs, at most {rate}/s", progress(operation))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_counts_to_what_there_is_and_no_further_than_max() {
        let counts = json!({"changed": 40, "unchanged": 1, "failed": 1});
        assert_eq!(progress(&json!({"counts": counts, "of": 100, "max": null})), "42/100");
        assert_eq!(progress(&json!({"counts": counts, "of": 100, "max": 50})), "42/50");
        assert_eq!(progress(&json!({"counts": counts, "of": null, "max": 50})), "42");
        assert!(bar(&json!({"counts": counts, "of": 84, "rate": 5})).contains(" 50%  42/84 jobs, at most 5/s"));
    }
}
