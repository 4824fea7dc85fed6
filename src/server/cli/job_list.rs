//! Which jobs `steadfast jobs list` shows, and reading them page by page.

use anyhow::Result;
use clap::Args;
use jiff::Timestamp;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use super::Client;
use super::args;
use super::stats::STATUSES;

/// 200 jobs on a page, as the API allows.
const PAGE_MAX: usize = 200;

#[derive(Debug, Args)]
pub(super) struct JobList {
    /// Only with one of these statuses, with commas between them
    #[arg(long, value_delimiter = ',', value_parser = STATUSES)]
    status: Vec<String>,
    /// Only of one of these kinds, with commas between them
    #[arg(long, value_delimiter = ',', value_parser = args::name)]
    kind: Vec<String>,
    /// Only in one of these queues, with commas between them
    #[arg(long, value_delimiter = ',', value_parser = args::name)]
    queue: Vec<String>,
    /// Only what runs on this worker
    #[arg(long, value_parser = args::name)]
    worker: Option<String>,
    /// Only of this group of their queue
    #[arg(long)]
    group: Option<String>,
    /// Only dead letters with this fingerprint of their error
    #[arg(long, value_name = "FINGERPRINT")]
    error: Option<String>,
    /// Only the job with this idempotency key
    #[arg(long)]
    key: Option<String>,
    /// Only created then or later, like 2030-01-01T09:00:00Z
    #[arg(long, value_name = "TIME", value_parser = args::moment)]
    created_after: Option<Timestamp>,
    /// Only created before that
    #[arg(long, value_name = "TIME", value_parser = args::moment)]
    created_before: Option<Timestamp>,
    /// Only finished then or later
    #[arg(long, value_name = "TIME", value_parser = args::moment)]
    finished_after: Option<Timestamp>,
    /// Only finished before that
    #[arg(long, value_name = "TIME", value_parser = args::moment)]
    finished_before: Option<Timestamp>,
    /// Only with this text in the JSON of their payload or in their last error
    #[arg(long)]
    text: Option<String>,
    /// Newest or oldest first, or the next to run
    #[arg(long, value_parser = ["newest", "oldest", "next"])]
    order: Option<String>,
    /// With --json: the beginnings of payloads only, and no results
    #[arg(long)]
    summary: bool,
    /// At most this many
    #[arg(long, default_value_t = 20)]
    limit: usize,
}

impl JobList {
    /// Follows the pages until there are enough or no more.
    pub(super) fn pages(&self, client: &Client) -> Result<Vec<Value>> {
        let (mut jobs, mut cursor) = (Vec::new(), None);
        while jobs.len() < self.limit {
            let page = client.get(&self.path((self.limit - jobs.len()).min(PAGE_MAX), cursor.as_deref()))?;
            jobs.extend(page.json.as_array().into_iter().flatten().cloned());
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        Ok(jobs)
    }

    fn path(&self, limit: usize, cursor: Option<&str>) -> String {
        let names = |names: &[String]| Some(names.join(",")).filter(|names| !names.is_empty());
        let time = |time: Option<Timestamp>| time.map(|time| time.to_string());
        let asked = [
            ("status", names(&self.status)),
            ("kind", names(&self.kind)),
            ("queue", names(&self.queue)),
            ("worker", self.worker.clone()),
            ("group", self.group.clone()),
            ("error", self.error.clone()),
            ("key", self.key.clone()),
            ("created_after", time(self.created_after)),
            ("created_before", time(self.created_before)),
            ("finished_after", time(self.finished_after)),
            ("finished_before", time(self.finished_before)),
            ("text", self.text.clone()),
            ("order", self.order.clone()),
            ("view", self.summary.then(|| "summary".to_owned())),
            ("cursor", cursor.map(str::to_owned)),
        ];
        let mut path = format!("/jobs?limit={limit}");
        for (name, value) in asked {
            if let Some(value) = value {
                path.push_str(&format!("&{name}={}", utf8_percent_encode(&value, NON_ALPHANUMERIC)));
            }
        }
        path
    }
}
