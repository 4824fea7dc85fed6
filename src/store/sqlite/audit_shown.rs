//! Acts and settings as the audit shows them. PostgreSQL builds the same in SQL: `AUDITED_JOBS` and `…_JSON` in its `audit`; the
//! conformance suite compares them.

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::job::{GroupSettings, JobId, KindDefinition, QueueSettings, Rate, Status};
use crate::store::audit_entry::{AuditEntry, NAMED_MAX};
use crate::store::{Actor, TokenRecord};

/// 4 KiB: a schema that is longer is told by its length and its hash.
const SCHEMA_MAX_BYTES: usize = 4096;

/// What an operator's verb did to jobs, one by one.
#[derive(Debug, Default)]
pub(super) struct JobActs(Vec<(JobId, JobAct)>);

/// What became of one job.
#[derive(Debug, Clone, Copy)]
pub(super) struct JobAct {
    pub(super) was: Status,
    /// Its status, or what was asked of it; `None`: it is gone.
    pub(super) is_now: Option<&'static str>,
}

impl JobActs {
    pub(super) fn add(&mut self, id: JobId, act: Option<JobAct>) {
        self.0.extend(act.map(|act| (id, act)));
    }

    /// `None` if nothing was done.
    pub(super) fn entry(mut self, action: &'static str, by: Option<&Actor>) -> Option<AuditEntry> {
        self.0.sort_unstable_by_key(|(id, _)| *id.as_uuid());
        let ids: Vec<String> = self.0.iter().take(NAMED_MAX).map(|(id, _)| id.to_string()).collect();
        if let [id] = &ids[..] {
            return Some(self.told(AuditEntry::new(action, format!("job:{id}"), by)));
        }
        let entry = AuditEntry::new(action, "jobs".to_owned(), by).detail(json!({"ids": ids}));
        (!self.0.is_empty()).then(|| self.told(entry))
    }

    fn told(&self, entry: AuditEntry) -> AuditEntry {
        let before = counted(self.0.iter().map(|(_, act)| act.was.as_str()));
        let after = counted(self.0.iter().filter_map(|(_, act)| act.is_now));
        entry.before(before).after(after).count(self.0.len())
    }
}

fn counted<'a>(words: impl Iterator<Item = &'a str>) -> Option<Value> {
    let mut counts = Map::new();
    for word in words {
        let n = counts.get(word).and_then(Value::as_u64).unwrap_or(0);
        counts.insert(word.to_owned(), (n + 1).into());
    }
    (!counts.is_empty()).then_some(Value::Object(counts))
}

/// An object without what is null.
fn set(fields: Value) -> Value {
    match fields {
        Value::Object(fields) => Value::Object(fields.into_iter().filter(|(_, value)| !value.is_null()).collect()),
        other => other,
    }
}

fn rate(rate: Option<Rate>) -> Option<Value> {
    rate.map(|rate| json!({"limit": rate.limit, "per_ms": rate.per_ms, "burst": rate.burst}))
}

/// A kind's declaration. Schema, retry and hidden parts are text in the table, and here as well: the audit unfolds it for readers.
pub(super) fn shown_kind(definition: &KindDefinition) -> Value {
    let KindDefinition { schema, defaults, concurrency, hidden, .. } = definition;
    let schema = schema.as_ref().map(|schema| shown_schema(schema.to_string()));
    let hidden = Some(hidden).filter(|hidden| !hidden.is_empty()).map(|hidden| json!(hidden).to_string());
    set(json!({
        "schema": schema,
        "queue": defaults.queue.as_ref().map(|queue| queue.as_str()),
        "priority": defaults.priority,
        "max_attempts": defaults.max_attempts,
        "timeout_ms": defaults.timeout_ms,
        "retry": defaults.retry.as_ref().and_then(|retry| serde_json::to_string(retry).ok()),
        "concurrency": concurrency,
        "rate": rate(definition.rate),
        "hidden": hidden,
    }))
}

fn shown_schema(text: String) -> String {
    if text.len() <= SCHEMA_MAX_BYTES {
        return text;
    }
    let hash: String = Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{} bytes, sha256 {hash}", text.len())
}

/// A queue's limits.
pub(super) fn shown_queue(settings: &QueueSettings) -> Value {
    let groups = settings.groups.map(|groups| {
        set(json!({"concurrency": groups.concurrency, "rate": rate(groups.rate), "order": groups.order.as_str()}))
    });
    set(json!({"concurrency": settings.concurrency, "rate": rate(settings.rate), "groups": groups}))
}

/// A group's settings.
pub(super) fn shown_group(settings: &GroupSettings) -> Value {
    let GroupSettings { concurrency, weight, paused, .. } = settings;
    set(json!({"concurrency": concurrency, "rate": rate(settings.rate), "weight": weight, "paused": paused}))
}

/// A token, without the hash of its secret.
pub(super) fn shown_token(token: &TokenRecord) -> Value {
    let scopes: Vec<&str> = token.scopes.iter().map(|scope| scope.as_str()).collect();
    json!({"name": token.name, "scopes": scopes})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_schema_is_told_by_its_length_and_hash() {
        let schema = json!({"description": "s".repeat(SCHEMA_MAX_BYTES)});
        let long = KindDefinition::any(crate::job::Kind::new("k").unwrap()).schema(schema);
        let shown = shown_kind(&long)["schema"].as_str().unwrap().to_owned();
        assert!(shown.starts_with("4114 bytes, sha256 ") && shown.len() < 100, "{shown}");
    }

    #[test]
    fn a_batch_is_one_entry_with_its_first_ids() {
        let mut acts = JobActs::default();
        for n in 0..25 {
            let is_now = if n == 0 { "cancel_requested" } else { "cancelled" };
            let was = if n == 0 { Status::Running } else { Status::Queued };
            acts.add(JobId::from(uuid::Uuid::from_u128(n)), Some(JobAct { was, is_now: Some(is_now) }));
        }
        let entry = acts.entry("cancel", None).unwrap();
        assert_eq!((entry.target.as_str(), entry.count, entry.by.token_name.as_str()), ("jobs", 25, "library"));
        let parsed = |text: &Option<String>| serde_json::from_str::<Value>(text.as_deref().unwrap()).unwrap();
        assert_eq!(parsed(&entry.before), json!({"running": 1, "queued": 24}));
        assert_eq!(parsed(&entry.after), json!({"cancel_requested": 1, "cancelled": 24}));
        assert_eq!(parsed(&entry.detail)["ids"].as_array().unwrap().len(), NAMED_MAX);
        assert!(JobActs::default().entry("cancel", None).is_none());
    }
}
