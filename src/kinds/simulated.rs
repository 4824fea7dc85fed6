//! The simulated executor of the built-in kinds, for demos and tests.
//!
//! A job is a list of steps, each a sleep and a chance to fail that depends on job id, attempt and step alone: the same job
//! behaves the same every time. Between two steps it checks whether it should stop. It never does I/O.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use super::{HttpRequest, ResizeImage, SendEmail, SummarizeText, WebhookDelivery};
use crate::job::{JobId, Json};
use crate::queue::Job;
use crate::worker::{Completion, Context, HandlerOptions, JobError, StopReason, Worker};

/// 1 s: whoever watches a demo should see the retry; some of the real kinds wait for hours.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// One step of a simulated job.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Step {
    /// What it simulates.
    pub name: &'static str,
    /// How long it takes.
    pub takes: Duration,
    /// The probability of a failure, 0 to 1.
    pub fails: f64,
}

const fn step(name: &'static str, takes_ms: u64, fails: f64) -> Step {
    Step { name, takes: Duration::from_millis(takes_ms), fails }
}

/// The steps of a built-in kind; empty for any other.
pub fn steps(kind: &str) -> &'static [Step] {
    const WEBHOOK: &[Step] = &[step("connect", 20, 0.02), step("send", 60, 0.05)];
    const REQUEST: &[Step] = &[step("connect", 20, 0.02), step("send", 40, 0.02), step("read", 30, 0.03)];
    const EMAIL: &[Step] = &[step("connect", 30, 0.02), step("authenticate", 20, 0.01), step("send", 50, 0.05)];
    const IMAGE: &[Step] = &[step("download", 80, 0.05), step("resize", 120, 0.01), step("store", 40, 0.02)];
    const SUMMARY: &[Step] = &[step("read", 20, 0.0), step("summarize", 150, 0.03)];
    match kind {
        WebhookDelivery::KIND => WEBHOOK,
        HttpRequest::KIND => REQUEST,
        SendEmail::KIND => EMAIL,
        ResizeImage::KIND => IMAGE,
        SummarizeText::KIND => SUMMARY,
        _ => &[],
    }
}

/// A number in `[0, 1)` that depends on its arguments only.
fn draw(job: JobId, attempt: u32, step: usize) -> f64 {
    let mut hasher = DefaultHasher::new();
    (job.as_uuid().as_bytes(), attempt, step).hash(&mut hasher);
    // The upper 53 bits: as many as an f64 holds exactly.
    (hasher.finish() >> 11) as f64 / (1u64 << 53) as f64
}

/// Registers simulated handlers for all built-in kinds.
pub fn register<S: Send + Sync + 'static>(worker: Worker<S>) -> Worker<S> {
    super::NAMES.into_iter().fold(worker, register_kind)
}

/// Registers a simulated handler for a kind. One that is not built in has no steps: its jobs succeed at once.
pub fn register_kind<S: Send + Sync + 'static>(worker: Worker<S>, kind: &str) -> Worker<S> {
    let name: Arc<str> = kind.into();
    worker.handle_raw(kind, HandlerOptions::new(), move |_: Json, context| simulate(name.clone(), context))
}

async fn simulate<S: Send + Sync + 'static>(kind: Arc<str>, context: Context<S>) -> Result<Completion, JobError> {
    let steps = steps(&kind);
    tracing::info!(%kind, job_id = %context.job_id(), "simulated: nothing is done for this job");
    for (index, step) in steps.iter().enumerate() {
        // At shutdown it goes on, as it is done soon; for every other reason it stops here.
        match context.stop_reason() {
            None | Some(StopReason::ShuttingDown) => {}
            Some(reason) => {
                return Err(JobError::new(format!("simulated {kind}: stopped before {}: {reason:?}", step.name)));
            }
        }
        tokio::time::sleep(step.takes).await;
        if draw(context.job_id(), context.attempt(), index) < step.fails {
            let error = JobError::new(format!("simulated {kind}: {} failed, as it sometimes does", step.name));
            return Err(error.retry_after(RETRY_AFTER));
        }
        let percent = (index + 1) * 100 / steps.len();
        context.progress(u8::try_from(percent).ok(), Some(step.name));
    }
    Ok(json!({ "simulated": true, "kind": &*kind, "steps": steps.len() }).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_job_attempt_and_step_always_draw_the_same() {
        let job = JobId::new();
        assert_eq!(draw(job, 1, 0).to_bits(), draw(job, 1, 0).to_bits());
        assert_ne!(draw(job, 1, 0).to_bits(), draw(job, 2, 0).to_bits());
        assert_ne!(draw(job, 1, 0).to_bits(), draw(job, 1, 1).to_bits());
    }

    #[test]
    fn draws_are_spread_evenly() {
        let below_half = (0..10_000).filter(|_| draw(JobId::new(), 1, 0) < 0.5).count();
        assert!((4_500..5_500).contains(&below_half), "{below_half}");
    }

    #[test]
    fn every_built_in_kind_has_steps() {
        for definition in crate::kinds::definitions().unwrap() {
            assert!(!steps(definition.kind.as_str()).is_empty(), "{}", definition.kind);
        }
    }
}
