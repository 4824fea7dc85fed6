//! Statistics by minute, hour or day, as columns.

use jiff::Timestamp;
use serde::Serialize;
use utoipa::ToSchema;

use crate::job::SeriesCounts;

/// Columns of equal length: every step of the span is there.
#[derive(Debug, Default, Serialize, ToSchema)]
#[schema(as = Series)]
pub(in crate::api) struct SeriesView {
    /// When the first step began.
    pub(in crate::api) from: Timestamp,
    /// When the last step ends.
    pub(in crate::api) to: Timestamp,
    /// `minute`, `hour` or `day`.
    #[schema(example = "minute")]
    pub(in crate::api) step: &'static str,
    pub(in crate::api) step_ms: u64,
    #[schema(required)]
    pub(in crate::api) queue: Option<String>,
    #[schema(required)]
    pub(in crate::api) kind: Option<String>,
    /// The store's time.
    pub(in crate::api) as_of: Timestamp,
    /// When each step began.
    pub(in crate::api) t: Vec<Timestamp>,
    /// Jobs accepted.
    pub(in crate::api) enqueued: Vec<u64>,
    /// Attempts started.
    pub(in crate::api) started: Vec<u64>,
    /// Attempts that succeeded.
    pub(in crate::api) succeeded: Vec<u64>,
    /// Attempts that failed.
    pub(in crate::api) failed: Vec<u64>,
    /// Jobs that failed permanently.
    pub(in crate::api) dead: Vec<u64>,
    /// From when jobs were due to their start, half of them; null: none was started. Right to about a fifth.
    pub(in crate::api) wait_p50_ms: Vec<Option<f64>>,
    pub(in crate::api) wait_p95_ms: Vec<Option<f64>>,
    /// From the claim of an attempt to its end.
    pub(in crate::api) run_p50_ms: Vec<Option<f64>>,
    pub(in crate::api) run_p95_ms: Vec<Option<f64>>,
}

impl SeriesView {
    /// Adds a step.
    pub(in crate::api) fn push(&mut self, at: Timestamp, counts: &SeriesCounts) {
        self.t.push(at);
        self.enqueued.push(counts.enqueued);
        self.started.push(counts.started);
        self.succeeded.push(counts.succeeded);
        self.failed.push(counts.failed);
        self.dead.push(counts.dead);
        self.wait_p50_ms.push(counts.wait.percentile_ms(0.5));
        self.wait_p95_ms.push(counts.wait.percentile_ms(0.95));
        self.run_p50_ms.push(counts.run.percentile_ms(0.5));
        self.run_p95_ms.push(counts.run.percentile_ms(0.95));
    }
}
