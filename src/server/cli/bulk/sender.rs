//! Sends batches until they are accepted: waits for a server that is away, takes bad lines out, and never gives up on a
//! batch halfway. Every line has an idempotency key, so sending one again is harmless.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::Value;

use super::progress_bar::ProgressBar;
use crate::server::cli::client::{Client, ErrorResponse, RequestError};

/// 100 ms at first, doubling …
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// … up to 2 s: a restart is noticed soon enough, and a server that comes up is not stormed.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// A line on its way.
#[derive(Debug, Clone)]
pub(super) struct Item {
    pub(super) number: u64,
    pub(super) job: String,
}

/// What became of lines.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) created: u64,
    /// Their keys were known: they had been accepted before.
    pub(super) known: u64,
    pub(super) bad: Vec<Bad>,
}

/// A line that is not accepted, and why.
pub(super) type Bad = (u64, String);

pub(super) struct Sender<'a> {
    pub(super) client: &'a Client,
    /// How long to wait for a server that takes nothing.
    pub(super) outage_timeout: Duration,
}

impl Sender<'_> {
    /// Returns when every line of the batch was accepted or found to be bad; `tally` is told which, as far as it came.
    pub(super) fn send(&self, items: Vec<Item>, tally: &mut Tally, progress: &mut ProgressBar) -> Result<()> {
        // Halves of a batch that was refused as a whole.
        let mut batches = vec![items];
        while let Some(mut batch) = batches.pop() {
            if batch.is_empty() {
                continue;
            }
            match self.send_with_retries(&batch, progress)? {
                Ok(answer) => tally.count(&answer),
                Err(problem) if !problem.errors.is_empty() => {
                    let mut index = 0;
                    let mut errors = problem.errors.into_iter().peekable();
                    batch.retain(|item| {
                        let bad = errors.next_if(|(at, _)| *at == index);
                        index += 1;
                        let fine = bad.is_none();
                        tally.bad.extend(bad.map(|(_, why)| (item.number, why)));
                        fine
                    });
                    batches.push(batch);
                }
                Err(problem) if batch.len() == 1 => tally.bad.push((batch[0].number, problem.detail)),
                Err(_) => {
                    let second = batch.split_off(batch.len() / 2);
                    batches.extend([second, batch]);
                }
            }
        }
        Ok(())
    }

    /// The answer, or a refusal that is the batch's own fault.
    fn send_with_retries(&self, batch: &[Item], progress: &mut ProgressBar) -> Result<Result<Value, ErrorResponse>> {
        let jobs: Vec<&str> = batch.iter().map(|item| item.job.as_str()).collect();
        let body = format!("{{\"jobs\":[{}]}}", jobs.join(","));
        let (started, mut pause) = (Instant::now(), FIRST_PAUSE);
        loop {
            let error = match self.client.post_text("/jobs/batch", body.clone()) {
                Ok(answer) => return Ok(Ok(answer.json)),
                Err(RequestError::Refused(problem)) if matches!(problem.status, 400 | 413 | 422) => {
                    return Ok(Err(problem));
                }
                Err(error) => error,
            };
            let after = match &error {
                RequestError::Unreachable(_) => None,
                RequestError::Refused(problem) if problem.status == 429 || problem.status >= 500 => problem.retry_after,
                RequestError::Refused(_) => return Err(error.into()),
            };
            if started.elapsed() >= self.outage_timeout {
                return Err(error.into());
            }
            progress.waiting();
            sleep(after.unwrap_or(pause).min(LONGEST_PAUSE));
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}

impl Tally {
    fn count(&mut self, answer: &Value) {
        for result in answer.get("results").and_then(Value::as_array).into_iter().flatten() {
            match result.get("created").and_then(Value::as_bool) {
                Some(false) => self.known += 1,
                _ => self.created += 1,
            }
        }
    }
}
