//! `steadfast stats`.

use anyhow::Result;
use clap::Args;
use serde_json::Value;

use super::table::Table;
use super::{Client, Target};
use crate::server::exit::Exit;
use crate::server::stdio::{escaped, print_json, print_line};

/// In the order of a job's life.
pub(super) const STATUSES: [&str; 6] = ["queued", "running", "retrying", "succeeded", "failed_permanent", "cancelled"];

/// Show how many jobs there are, and how fast they come and go
#[derive(Debug, Args)]
pub(in crate::server) struct Stats {
    #[command(flatten)]
    pub(super) target: Target,
}

impl Stats {
    pub(super) fn run(self) -> Result<Exit> {
        let stats = Client::new(&self.target)?.get("/stats")?.json;
        if self.target.json {
            print_json(&stats);
            return Ok(Exit::Ok);
        }
        let mut table =
            Table::new(&["QUEUE", "QUEUED", "RUNNING", "RETRYING", "SUCCEEDED", "FAILED", "CANCELLED", "OLDEST"], &[0])
                .dropping(&[6, 4, 7]);
        for (name, queue) in stats.get("queues").and_then(Value::as_object).into_iter().flatten() {
            table.row(row(name, queue.get("counts"), waiting(queue)));
        }
        table.row(row("all queues", stats.get("totals"), String::new()));
        table.print();
        let per_s = |field: &str| stats.pointer(&format!("/rates/{field}")).and_then(Value::as_f64);
        if let (Some(enqueued), Some(finished)) = (per_s("enqueued_per_s"), per_s("finished_per_s")) {
            print_line(&format!("{enqueued:.1} jobs/s in, {finished:.1} jobs/s finished, of late"));
        }
        Ok(Exit::Ok)
    }
}

fn row(name: &str, counts: Option<&Value>, waiting: String) -> Vec<String> {
    let mut cells = vec![escaped(name)];
    cells.extend(count_cells(counts));
    cells.push(waiting);
    cells
}

/// One cell per status.
pub(super) fn count_cells(counts: Option<&Value>) -> impl Iterator<Item = String> {
    let count = move |status: &str| counts.and_then(|counts| counts.get(status)).and_then(Value::as_u64).unwrap_or(0);
    STATUSES.into_iter().map(move |status| count(status).to_string())
}

/// How long the oldest due job has waited.
pub(super) fn waiting(queue: &Value) -> String {
    match queue.get("oldest_ready_ms").and_then(Value::as_u64) {
        Some(ms @ ..10_000) => format!("{ms} ms"),
        Some(ms) => format!("{} s", ms / 1_000),
        None => "–".into(),
    }
}
