//! The declaration of a kind: the schema of its payload and the defaults of its jobs.

use super::limits::{HIDDEN_MAX, HIDDEN_MAX_CHARS};
use super::queue_settings::{check_concurrency, check_rate};
use super::{Kind, QueueName, Rate, Refusal, RetryPolicy};

/// The declaration of a kind. A job of an undeclared kind is refused when it is enqueued, so that a typo does not wait
/// for a handler for ever.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct KindDefinition {
    /// The kind's name.
    pub kind: Kind,
    /// JSON Schema of the payload; `None` accepts any JSON.
    pub schema: Option<serde_json::Value>,
    /// Used where a request leaves an option open.
    pub defaults: KindDefaults,
    /// Live leases of the kind, in all queues and processes together.
    pub concurrency: Option<u32>,
    /// Starts of the kind, in all queues and processes together.
    pub rate: Option<Rate>,
    /// JSON pointers to parts of the payload that readers are not to be shown.
    pub hidden: Vec<String>,
}

impl KindDefinition {
    /// A kind that accepts any payload and has no defaults of its own.
    pub fn any(kind: Kind) -> Self {
        let defaults = KindDefaults::default();
        Self { kind, schema: None, defaults, concurrency: None, rate: None, hidden: Vec::new() }
    }

    /// Sets the JSON Schema that payloads are validated against.
    pub fn schema(mut self, schema: serde_json::Value) -> Self {
        self.schema = Some(schema);
        self
    }

    /// Sets the defaults, used where a request leaves an option open.
    pub fn defaults(mut self, defaults: KindDefaults) -> Self {
        self.defaults = defaults;
        self
    }

    /// Sets how many leases of the kind live at once.
    pub fn concurrency(mut self, leases: impl Into<Option<u32>>) -> Self {
        self.concurrency = leases.into();
        self
    }

    /// Sets how many jobs of the kind start in a period.
    pub fn rate(mut self, rate: impl Into<Option<Rate>>) -> Self {
        self.rate = rate.into();
        self
    }

    /// Sets the JSON pointers to what readers are not to be shown.
    pub fn hidden(mut self, pointers: Vec<String>) -> Self {
        self.hidden = pointers;
        self
    }

    /// Whether it has limits or hidden parts.
    pub fn has_limits(&self) -> bool {
        self.concurrency.is_some() || self.rate.is_some() || !self.hidden.is_empty()
    }

    /// Whether its limits and pointers are within their ranges.
    pub fn check_limits(&self) -> Result<(), Refusal> {
        check_concurrency("concurrency", self.concurrency)?;
        check_rate(self.rate)?;
        let refused = |reason| Err(Refusal::Value { field: "hidden", reason });
        if self.hidden.len() > HIDDEN_MAX {
            return refused(format!("has {} pointers: use at most {HIDDEN_MAX}", self.hidden.len()));
        }
        let is_pointer = |text: &String| text.starts_with('/') && text.chars().nth(HIDDEN_MAX_CHARS).is_none();
        match self.hidden.iter().find(|text| !is_pointer(text)) {
            Some(text) => {
                let text: String = text.chars().take(64).collect();
                refused(format!("{text:?} is no JSON pointer: begin with \"/\", at most {HIDDEN_MAX_CHARS} characters"))
            }
            None => Ok(()),
        }
    }
}

/// Defaults for the jobs of one kind. What is `None` falls back to the default of the process.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct KindDefaults {
    /// The queue, instead of `default`.
    pub queue: Option<QueueName>,
    /// The priority, instead of 0.
    pub priority: Option<i16>,
    /// How many attempts may count, instead of 3 or what the process was set to.
    pub max_attempts: Option<u32>,
    /// Timeout of one attempt, instead of none.
    pub timeout_ms: Option<u64>,
    /// The retry policy, instead of 1 s to 60 s, tripling, or what the process that records the failure was set to.
    pub retry: Option<RetryPolicy>,
}

impl KindDefaults {
    /// Sets the default queue.
    pub fn queue(mut self, queue: QueueName) -> Self {
        self.queue = Some(queue);
        self
    }

    /// Sets the default priority, −100 to 100; higher runs first.
    pub fn priority(mut self, priority: i16) -> Self {
        self.priority = Some(priority);
        self
    }

    /// Sets how many attempts may count.
    pub fn max_attempts(mut self, max_attempts: u32) -> Self {
        self.max_attempts = Some(max_attempts);
        self
    }

    /// Sets the timeout of one attempt.
    pub fn timeout_ms(mut self, timeout_ms: u64) -> Self {
        self.timeout_ms = Some(timeout_ms);
        self
    }

    /// Sets the retry policy.
    pub fn retry(mut self, retry: RetryPolicy) -> Self {
        self.retry = Some(retry);
        self
    }
}
