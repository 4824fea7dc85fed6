//! `steadfast stats`.

use anyhow::Result;
use clap::Args;
use serde_json::{Map, Value};

use super::table::Table;
use super::{Client, Target};
use crate::job::limits::QUEUES_PAGE_MAX;
use crate::server::exit::Exit;
use crate::server::stdio::{escaped, print_json, print_line, print_stderr};

/// In the order of a job's life.
pub(super) const STATUSES: [&str; 6] = ["queued", "running", "retrying", "succeeded", "failed_permanent", "cancelled"];

/// 10,000 queues: as many as a server takes unless it is told otherwise.
pub(super) const QUEUES_SHOWN: usize = 10_000;

/// Show how many jobs there are, and how fast they come and go
#[derive(Debug, Args)]
pub(in crate::server) struct Stats {
    #[command(flatten)]
    pub(super) target: Target,
    /// Show at most this many queues, by name; the totals are over all
    #[arg(long, default_value_t = QUEUES_SHOWN)]
    limit: usize,
}

impl Stats {
    pub(super) fn run(self) -> Result<Exit> {
        let (stats, is_cut) = self.pages(&Client::new(&self.target)?)?;
        if is_cut {
            note_cut(self.limit);
        }
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

    /// The first page with the queues of the others added to it, and whether there are more.
    fn pages(&self, client: &Client) -> Result<(Value, bool)> {
        let limit = self.limit;
        let mut all = Value::Null;
        let is_cut = client.follow(&format!("/stats?limit={}", limit.min(QUEUES_PAGE_MAX)), |mut page| {
            if all.is_null() {
                all = page;
            } else if let (Some(all), Some(queues)) =
                (all.get_mut("queues").and_then(Value::as_object_mut), page.get_mut("queues"))
            {
                all.append(queues.as_object_mut().unwrap_or(&mut Map::new()));
            }
            count(&all) < limit
        })?;
        let is_cut = is_cut || count(&all) > limit;
        if let Some(queues) = all.get_mut("queues").and_then(Value::as_object_mut) {
            *queues = std::mem::take(queues).into_iter().take(limit).collect();
        }
        Ok((all, is_cut))
    }
}

fn count(stats: &Value) -> usize {
    stats.get("queues").and_then(Value::as_object).map_or(0, Map::len)
}

/// Said on stderr, so that what is on stdout stays what it is.
pub(super) fn note_cut(limit: usize) {
    print_stderr(&format!("there are more queues: only the first {limit} are shown, by name; --limit shows more"));
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
