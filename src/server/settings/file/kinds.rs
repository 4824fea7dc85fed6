//! `[kinds.NAME]`: a kind to be declared, as by `PUT /kinds/NAME`; other defaults for a built-in kind; and, with `push`, a
//! kind whose jobs are calls to an endpoint.

use serde::Deserialize;

use super::queues::RateKeys;
use super::{only, typed};
use crate::job::{Kind, KindDefaults, KindDefinition, QueueName, Rate, RetryPolicy};

/// One of them.
#[derive(Debug)]
pub(in crate::server) struct DeclaredKind {
    pub(in crate::server) definition: KindDefinition,
    /// The endpoint that its jobs are sent to.
    pub(in crate::server) push: Option<String>,
}

/// What every table that declares a kind may say about it.
#[derive(Debug, Deserialize)]
pub(super) struct KindKeys {
    schema: Option<serde_json::Value>,
    queue: Option<String>,
    priority: Option<i16>,
    max_attempts: Option<u32>,
    timeout_ms: Option<u64>,
    retry: Option<RetryPolicy>,
    /// Of all processes together. In a command's table the key is of one process.
    pub(super) concurrency: Option<u32>,
    rate: Option<RateKeys>,
    hidden: Option<Vec<String>>,
    push: Option<String>,
}

impl KindKeys {
    pub(super) const NAMES: [&str; 8] =
        ["schema", "queue", "priority", "max_attempts", "timeout_ms", "retry", "rate", "hidden"];

    pub(super) fn definition(self, name: &str) -> Result<KindDefinition, String> {
        let queue = self.queue.map(QueueName::new).transpose().map_err(|error| error.to_string())?;
        let kind = Kind::new(name).map_err(|error| error.to_string())?;
        let definition = KindDefinition {
            schema: self.schema,
            defaults: KindDefaults {
                queue,
                priority: self.priority,
                max_attempts: self.max_attempts,
                timeout_ms: self.timeout_ms,
                retry: self.retry,
            },
            ..KindDefinition::any(kind)
                .concurrency(self.concurrency)
                .rate(self.rate.map(Rate::from))
                .hidden(self.hidden.unwrap_or_default())
        };
        definition.check_limits().map_err(|error| error.to_string())?;
        Ok(definition)
    }
}

pub(super) fn kind(name: &str, table: toml::Table) -> Result<DeclaredKind, String> {
    only(&table, &[&KindKeys::NAMES[..], &["concurrency", "push"]].concat())?;
    let keys: KindKeys = typed(table)?;
    let push = keys.push.clone();
    Ok(DeclaredKind { definition: keys.definition(name)?, push })
}
