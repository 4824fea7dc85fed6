//! Declared kinds.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::{Integer, RateDeclaration, RateView};
use crate::job::{KindDefinition, RetryPolicy};

/// What is declared about a kind. Everything is optional; `{}` takes any payload.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"schema": {"type": "object", "required": ["user"]}, "max_attempts": 5}))]
pub(in crate::api) struct KindDeclaration {
    /// JSON Schema of the payload. References point into the schema itself; patterns have no look-around and no back-references; one
    /// that is too expensive to check is refused.
    #[schema(value_type = Option<Object>)]
    pub(in crate::api) schema: Option<Value>,
    /// Where its jobs wait, unless they say otherwise.
    #[schema(pattern = "^[a-z0-9_.:-]{1,64}$")]
    pub(in crate::api) queue: Option<String>,
    /// Higher runs first.
    #[schema(value_type = Option<i64>, minimum = -100, maximum = 100)]
    pub(in crate::api) priority: Option<Integer>,
    /// How many starts may count.
    #[schema(value_type = Option<i64>, minimum = 1, maximum = 10000)]
    pub(in crate::api) max_attempts: Option<Integer>,
    /// Deadline of one attempt.
    #[schema(value_type = Option<i64>, minimum = 1)]
    pub(in crate::api) timeout_ms: Option<Integer>,
    /// Waits between attempts.
    pub(in crate::api) retry: Option<RetryDeclaration>,
    /// Live leases of the kind, in all queues and processes together.
    #[schema(value_type = Option<i64>, minimum = 1, maximum = 1000000)]
    pub(in crate::api) concurrency: Option<Integer>,
    /// Starts of the kind, in all queues and processes together.
    pub(in crate::api) rate: Option<RateDeclaration>,
    /// JSON pointers to parts of the payload that readers are shown as `(secret)`; workers get the whole.
    #[schema(max_items = 64, example = json!(["/card/number"]))]
    pub(in crate::api) hidden: Option<Vec<String>>,
}

/// A window that grows (`base_ms`, `cap_ms`, `factor`), or a list of waits (`delays_ms`, `jitter`).
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::api) struct RetryDeclaration {
    /// Shortest wait; 1,000 by default.
    #[schema(value_type = Option<i64>, minimum = 0)]
    pub(in crate::api) base_ms: Option<Integer>,
    /// Longest wait; 60,000 by default.
    #[schema(value_type = Option<i64>, minimum = 0)]
    pub(in crate::api) cap_ms: Option<Integer>,
    /// Growth per attempt; 3 by default.
    #[schema(minimum = 1)]
    pub(in crate::api) factor: Option<f64>,
    /// These waits, the last one repeated; exactly, without `jitter`.
    #[schema(value_type = Option<Vec<i64>>, min_items = 1, max_items = 1000)]
    pub(in crate::api) delays_ms: Option<Vec<Integer>>,
    /// Spreads `delays_ms`: 0.2 is 20 % shorter to 20 % longer. 0 by default.
    #[schema(minimum = 0, maximum = 1)]
    pub(in crate::api) jitter: Option<f64>,
}

/// A declared kind.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Kind)]
pub(in crate::api) struct KindView {
    #[schema(example = "welcome")]
    kind: String,
    /// Always declared, not to be changed.
    built_in: bool,
    /// JSON Schema of the payload; null takes anything.
    schema: Option<Value>,
    #[schema(required)]
    queue: Option<String>,
    #[schema(required)]
    priority: Option<i16>,
    #[schema(required)]
    max_attempts: Option<u32>,
    #[schema(required)]
    timeout_ms: Option<u64>,
    #[schema(required)]
    retry: Option<RetryView>,
    /// Live leases that are allowed; null: no limit.
    #[schema(required)]
    concurrency: Option<u32>,
    /// Starts that are allowed; null: no limit.
    #[schema(required)]
    rate: Option<RateView>,
    /// JSON pointers to parts of the payload that readers are not shown.
    hidden: Vec<String>,
}

/// Waits between attempts.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
#[schema(as = Retry)]
pub(in crate::api) enum RetryView {
    /// Drawn from a window that grows.
    Spread { base_ms: u64, cap_ms: u64, factor: f64 },
    /// These, the last one repeated; exactly, without a jitter.
    Fixed {
        delays_ms: Vec<u64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        jitter: Option<f64>,
    },
}

impl From<RetryPolicy> for RetryView {
    fn from(policy: RetryPolicy) -> Self {
        match policy {
            RetryPolicy::Spread { base_ms, cap_ms, factor } => Self::Spread { base_ms, cap_ms, factor },
            RetryPolicy::Fixed { delays_ms, jitter } => {
                Self::Fixed { delays_ms, jitter: (jitter != 0.0).then_some(jitter) }
            }
        }
    }
}

impl KindView {
    pub(in crate::api) fn new(definition: KindDefinition, built_in: bool) -> Self {
        let defaults = definition.defaults;
        Self {
            kind: definition.kind.to_string(),
            built_in,
            schema: definition.schema,
            queue: defaults.queue.map(|queue| queue.to_string()),
            priority: defaults.priority,
            max_attempts: defaults.max_attempts,
            timeout_ms: defaults.timeout_ms,
            retry: defaults.retry.map(RetryView::from),
            concurrency: definition.concurrency,
            rate: definition.rate.map(RateView::from),
            hidden: definition.hidden,
        }
    }
}
