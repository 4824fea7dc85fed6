//! What is declared about a kind: the shape of its payload and the defaults of its jobs.

use super::{Kind, QueueName, RetryPolicy};

/// A declared kind. Kinds are declared so that a typo is refused at the door instead of waiting for ever.
#[derive(Debug, Clone, PartialEq)]
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
}

/// Defaults for the jobs of one kind.
#[derive(Debug, Clone, Default, PartialEq)]
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
