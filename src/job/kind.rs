//! What is declared about a kind: the shape of its payload and the defaults of its jobs.

use super::{Kind, QueueName, RetryPolicy};

/// A declared kind. Kinds are declared so that a typo is refused at the door instead of waiting for ever.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct KindDefinition {
    /// Its name.
    pub kind: Kind,
    /// JSON Schema of the payload; `None` takes any JSON.
    pub schema: Option<serde_json::Value>,
    /// What its jobs get where the caller says nothing.
    pub defaults: KindDefaults,
}

impl KindDefinition {
    /// A kind that takes any payload and has no defaults of its own.
    pub fn any(kind: Kind) -> Self {
        Self { kind, schema: None, defaults: KindDefaults::default() }
    }

    /// Payloads must fit this JSON Schema.
    pub fn schema(mut self, schema: serde_json::Value) -> Self {
        self.schema = Some(schema);
        self
    }

    /// What its jobs get where the caller says nothing.
    pub fn defaults(mut self, defaults: KindDefaults) -> Self {
        self.defaults = defaults;
        self
    }
}

/// Defaults for the jobs of one kind.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct KindDefaults {
    /// Instead of `default`.
    pub queue: Option<QueueName>,
    /// Instead of 0.
    pub priority: Option<i16>,
    /// Instead of 3, or what the process was set to.
    pub max_attempts: Option<u32>,
    /// Instead of none.
    pub timeout_ms: Option<u64>,
    /// Instead of 1 s to 60 s, tripling, or what the process that records the failure was set to.
    pub retry: Option<RetryPolicy>,
}

impl KindDefaults {
    /// In this queue.
    pub fn queue(mut self, queue: QueueName) -> Self {
        self.queue = Some(queue);
        self
    }

    /// With this priority.
    pub fn priority(mut self, priority: i16) -> Self {
        self.priority = Some(priority);
        self
    }

    /// With this many attempts.
    pub fn max_attempts(mut self, max_attempts: u32) -> Self {
        self.max_attempts = Some(max_attempts);
        self
    }

    /// No attempt takes longer than this.
    pub fn timeout_ms(mut self, timeout_ms: u64) -> Self {
        self.timeout_ms = Some(timeout_ms);
        self
    }

    /// Retried like this.
    pub fn retry(mut self, retry: RetryPolicy) -> Self {
        self.retry = Some(retry);
        self
    }
}
