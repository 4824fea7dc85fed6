//! The jobs that `jobs redrive`, `jobs cancel` and `jobs delete` are about: named by their ids, or by what they are.

use anyhow::Result;
use clap::Args;
use serde_json::{Map, Value, json};

use super::args;
use crate::server::exit::{Exit, ExitError};

/// Ids, or a filter and how fast.
#[derive(Debug, Args)]
pub(super) struct ChosenJobs {
    /// Ids of jobs, as `enqueue` and `jobs list` print them; or say with options which jobs are meant
    #[arg(value_name = "ID", value_parser = args::job_id)]
    pub(super) ids: Vec<String>,
    /// Jobs in these statuses, separated by commas
    #[arg(long, conflicts_with = "ids")]
    status: Option<String>,
    /// Jobs of these kinds, separated by commas
    #[arg(long, conflicts_with = "ids")]
    kind: Option<String>,
    /// Jobs in these queues, separated by commas
    #[arg(long, conflicts_with = "ids")]
    queue: Option<String>,
    /// Jobs that run on this worker
    #[arg(long, conflicts_with = "ids")]
    worker: Option<String>,
    /// Jobs of this group of their queue
    #[arg(long, conflicts_with = "ids")]
    group: Option<String>,
    /// Dead letters with this fingerprint of their error, 16 digits of 0-9a-f
    #[arg(long, conflicts_with = "ids")]
    error: Option<String>,
    /// The job with this idempotency key
    #[arg(long, conflicts_with = "ids")]
    key: Option<String>,
    /// Jobs created at this time or later, like 2030-01-31T12:00:00Z
    #[arg(long, value_name = "TIME", conflicts_with = "ids")]
    created_after: Option<String>,
    /// Jobs created before this time
    #[arg(long, value_name = "TIME", conflicts_with = "ids")]
    created_before: Option<String>,
    /// Jobs finished at this time or later
    #[arg(long, value_name = "TIME", conflicts_with = "ids")]
    finished_after: Option<String>,
    /// Jobs finished before this time
    #[arg(long, value_name = "TIME", conflicts_with = "ids")]
    finished_before: Option<String>,
    /// At most so many jobs per second [default: 100]
    #[arg(long, value_name = "JOBS", conflicts_with = "ids")]
    rate: Option<u64>,
    /// Stop after so many jobs
    #[arg(long, value_name = "JOBS", conflicts_with = "ids")]
    max: Option<u64>,
    /// Why, for who reads it later
    #[arg(long, value_name = "TEXT", conflicts_with = "ids")]
    reason: Option<String>,
    /// Do not ask
    #[arg(long, conflicts_with = "ids")]
    pub(super) yes: bool,
}

impl ChosenJobs {
    /// The filter, as the API takes it.
    pub(super) fn filter(&self) -> Result<Map<String, Value>> {
        let fields = [
            ("status", &self.status),
            ("kind", &self.kind),
            ("queue", &self.queue),
            ("worker", &self.worker),
            ("group", &self.group),
            ("error", &self.error),
            ("key", &self.key),
            ("created_after", &self.created_after),
            ("created_before", &self.created_before),
            ("finished_after", &self.finished_after),
            ("finished_before", &self.finished_before),
        ];
        let given = fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), json!(value.as_ref()?))));
        let filter: Map<String, Value> = given.collect();
        if filter.is_empty() {
            let said = "say which jobs: name their ids, or what they are, like --kind send_email --queue default";
            return Err(ExitError::new(Exit::Usage, said).into());
        }
        Ok(filter)
    }

    /// How it is carried out, as the API takes it.
    pub(super) fn options(&self) -> Map<String, Value> {
        let numbers = [("rate", self.rate), ("max", self.max)];
        let numbers = numbers.into_iter().filter_map(|(name, number)| Some((name.to_owned(), json!(number?))));
        let reason = self.reason.iter().map(|reason| ("reason".to_owned(), json!(reason)));
        numbers.chain(reason).collect()
    }
}

/// `5:4`: so many first, and so many of them must succeed.
pub(super) fn canary(text: &str) -> Result<(u32, u32), String> {
    let parts = text.split_once(':').and_then(|(first, need)| Some((first.parse().ok()?, need.parse().ok()?)));
    parts.ok_or_else(|| "use two numbers, like 5:4: five jobs first, and four of them must succeed".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_canary_is_two_numbers() {
        assert_eq!(canary("5:4"), Ok((5, 4)));
        for bad in ["", "5", "5:", ":4", "a:b", "5:4:3", "-5:4"] {
            assert!(canary(bad).is_err(), "{bad}");
        }
    }
}
