//! `steadfast schedules next`: when a pattern fires. Computed here, with the zones of this program.

use std::time::Duration;

use anyhow::Result;
use clap::Args;
use jiff::Timestamp;
use serde_json::json;

use super::args;
use crate::job::limits::PREVIEW_MAX;
use crate::job::schedule::{Run, ScheduledJob};
use crate::job::{Json, ScheduleRefusal, ScheduleRequest, ScheduleSpec};
use crate::server::cli::format::terminal_width;
use crate::server::cli::table::Table;
use crate::server::exit::{Exit, ExitError};
use crate::server::stdio::{print_json, print_line};

/// Show when a pattern fires, with a note where the clocks change; needs no server
#[derive(Debug, Args)]
pub(super) struct Next {
    /// The pattern, like '30 2 * * *' or @daily
    #[arg(required_unless_present = "every", conflicts_with = "every")]
    pattern: Option<String>,
    /// An interval instead, like 15m
    #[arg(long, value_name = "TIME", value_parser = args::duration)]
    every: Option<Duration>,
    /// The time zone, like Europe/Berlin; UTC unless given
    #[arg(long, value_name = "ZONE")]
    tz: Option<String>,
    /// How many runs, up to 100
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=PREVIEW_MAX as u64))]
    count: u64,
    /// From then on instead of now, like 2030-03-30T00:00:00Z
    #[arg(long, value_name = "INSTANT", value_parser = args::instant)]
    from: Option<Timestamp>,
}

impl Next {
    pub(super) fn run(self, as_json: bool) -> Result<Exit> {
        let is_a_name = self.pattern.as_deref().is_some_and(|pattern| args::name(pattern).is_ok());
        let job = ScheduledJob::new("preview", Json::null());
        let every_ms = self.every.map(|every| i64::try_from(every.as_millis()).unwrap_or(i64::MAX));
        let mut request = ScheduleRequest::either(self.pattern, every_ms, job);
        request.tz = self.tz;
        let from = self.from.unwrap_or_else(Timestamp::now);
        let spec = ScheduleSpec::new(request, from).map_err(|refusal| usage(&refusal, is_a_name))?;
        let (runs, zone) = (spec.preview(from, self.count as usize), spec.request().tz.as_deref().unwrap_or("UTC"));
        if as_json {
            let run = |run: &Run| json!({"at": run.at.to_string(), "local": run.local, "note": run.note});
            let runs: Vec<_> = runs.iter().map(run).collect();
            print_json(&json!({"describe": spec.describe(), "tz": zone, "runs": runs}));
            return Ok(Exit::Ok);
        }
        print_line(&format!("{} ({zone})", spec.describe()));
        let mut table = Table::new(&["LOCAL", "UTC", "NOTE"], &[]);
        let mut notes = Vec::new();
        for Run { at, local, note, .. } in &runs {
            if let Some(note) = note {
                notes.push(format!("{}) {note}", notes.len() + 1));
            }
            let number = note.as_ref().map_or(String::new(), |_| format!("{})", notes.len()));
            // The zone stands above.
            let local = local.split('[').next().unwrap_or_default().replacen('T', " ", 1);
            table.row([local, at.to_string(), number]);
        }
        table.print();
        notes.iter().for_each(|note| print_line(&wrapped(note)));
        Ok(Exit::Ok)
    }
}

/// Broken between words, so that it fits the terminal.
fn wrapped(text: &str) -> String {
    let room = terminal_width().unwrap_or(usize::MAX);
    let (mut wrapped, mut taken) = (String::new(), 0);
    for word in text.split(' ') {
        let length = word.chars().count();
        match taken {
            0 => taken = length,
            _ if taken.saturating_add(length + 1) > room => {
                wrapped.push_str("\n   ");
                taken = length + 3;
            }
            _ => {
                wrapped.push(' ');
                taken += length + 1;
            }
        }
        wrapped.push_str(word);
    }
    wrapped
}

fn usage(refusal: &ScheduleRefusal, is_a_name: bool) -> ExitError {
    let hint = if is_a_name { "; `steadfast schedules show NAME` has the next runs of a schedule" } else { "" };
    ExitError::new(Exit::Usage, format!("{refusal}{hint}"))
}
