//! The declaration of a kind: the schema of its payload and the defaults of its jobs.

use super::{Kind, QueueName, RetryPolicy};

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
}

impl KindDefinition {
    /// A kind that accepts any payload and has no defaults of its own.
    pub fn any(kind: Kind) -> Self {
        Self { kind, schema: None, defaults: KindDefaults::default() }
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
