//! What the audit is told of an act, in the words of both stores: who, what, and how it was before and after.
//!
//! Never payloads, and never secrets or their hashes: what is shown of a setting is listed here.

use serde_json::{Map, Value, json};

use super::{
    Actor, AuditRecord, DeleteHook, DeleteSchedule, OperationChange, OperationRecord, PutHook, PutSchedule,
    RunSchedule, StoredSelection, SwitchHook, SyncSchedules,
};
#[cfg(feature = "sqlite")]
use super::{AuditCursor, ListAudit};
use crate::job::schedule::ScheduleRecord;
use crate::job::{HookName, HookRecord, JobId, ScheduleName};

/// 255 characters of whatever a caller calls itself.
const TEXT_MAX_CHARS: usize = 255;

/// 20 ids or names of a batch: enough to find the others by.
pub(crate) const NAMED_MAX: usize = 20;

/// What is written about one act. Each store has one function that writes it: `audit::record`.
#[derive(Debug)]
pub(crate) struct AuditEntry {
    pub(crate) by: ActorColumns,
    pub(crate) action: &'static str,
    pub(crate) target: String,
    pub(crate) before: Option<String>,
    pub(crate) after: Option<String>,
    pub(crate) count: usize,
    pub(crate) reason: Option<String>,
    pub(crate) detail: Option<String>,
}

impl AuditEntry {
    /// One thing was changed.
    pub(crate) fn new(action: &'static str, target: String, by: Option<&Actor>) -> Self {
        let by = ActorColumns::of(by);
        Self { by, action, target, before: None, after: None, count: 1, reason: None, detail: None }
    }

    /// How it was.
    pub(crate) fn before(mut self, value: Option<Value>) -> Self {
        self.before = value.map(|value| value.to_string());
        self
    }

    /// How it is.
    pub(crate) fn after(mut self, value: Option<Value>) -> Self {
        self.after = value.map(|value| value.to_string());
        self
    }

    /// How many were changed.
    pub(crate) fn count(mut self, count: usize) -> Self {
        self.count = count;
        self
    }

    /// What the operator said about it.
    pub(crate) fn reason(mut self, reason: Option<&str>) -> Self {
        self.reason = reason.map(kept);
        self
    }

    /// What else there is to know.
    pub(crate) fn detail(mut self, value: Value) -> Self {
        self.detail = Some(value.to_string());
        self
    }
}

/// That an operation has begun. Its steps are not in the audit: the operation itself tells how far it came.
pub(crate) fn begun_entry(operation: &OperationRecord, by: Option<&Actor>) -> AuditEntry {
    let mut after = shown_operation(operation);
    after["action"] = json!(operation.action.as_str());
    if let Some(argument) = operation.action.argument() {
        after["argument"] = json!(argument);
    }
    after["selection"] = json!(StoredSelection::text(&operation.selection));
    let entry = AuditEntry::new("begin_operation", format!("operation:{}", operation.id), by);
    entry.after(Some(after)).reason(operation.reason.as_deref())
}

/// That an operator has changed an operation; `None` if it was so before.
pub(crate) fn changed_entry(
    before: &OperationRecord,
    after: &OperationRecord,
    change: OperationChange,
    by: Option<&Actor>,
) -> Option<AuditEntry> {
    let action = match change {
        OperationChange::Pause => "pause_operation",
        OperationChange::Resume => "resume_operation",
        OperationChange::Stop => "stop_operation",
        OperationChange::Rate(_) => "rate_operation",
    };
    let (before, now) = (shown_operation(before), shown_operation(after));
    let entry = AuditEntry::new(action, format!("operation:{}", after.id), by);
    (before != now).then(|| entry.before(Some(before)).after(Some(now)))
}

fn shown_operation(operation: &OperationRecord) -> Value {
    json!({ "state": operation.state.as_str(), "rate": operation.rate })
}

/// Who, as it is written.
#[derive(Debug)]
pub(crate) struct ActorColumns {
    pub(crate) token_id: Option<String>,
    pub(crate) token_name: String,
    pub(crate) request_id: Option<String>,
    pub(crate) remote: Option<String>,
}

impl ActorColumns {
    /// Nobody: a program that embeds the queue.
    pub(crate) fn of(by: Option<&Actor>) -> Self {
        match by {
            None => Self { token_id: None, token_name: "library".to_owned(), request_id: None, remote: None },
            Some(actor) => Self {
                token_id: actor.token_id.as_deref().map(kept),
                token_name: kept(&actor.token_name),
                request_id: actor.request_id.as_deref().map(kept),
                remote: actor.address.map(|address| address.to_string()),
            },
        }
    }
}

/// As much of a caller's text as is kept, without what PostgreSQL cannot hold.
fn kept(text: &str) -> String {
    text.chars().filter(|c| *c != '\0').take(TEXT_MAX_CHARS).collect()
}

/// A schedule, without the payload of its jobs.
fn shown_schedule(schedule: &ScheduleRecord) -> Value {
    let spec = schedule.spec.as_ref().ok().and_then(|spec| serde_json::from_str(&spec.stored_text()).ok());
    let mut shown: Map<String, Value> = spec.unwrap_or_default();
    if let Some(Value::Object(job)) = shown.get_mut("job") {
        job.remove("payload");
    }
    shown.insert("paused".to_owned(), schedule.paused.into());
    Value::Object(shown)
}

/// What an edit made of a schedule; that its payload is another is said, not which.
fn edited_schedule(before: &ScheduleRecord, after: &ScheduleRecord) -> Value {
    let payload = |schedule: &ScheduleRecord| {
        let spec = schedule.spec.as_ref().ok()?;
        serde_json::from_str::<Value>(&spec.stored_text()).ok()?.pointer("/job/payload").cloned()
    };
    let mut shown = shown_schedule(after);
    if payload(before) != payload(after) {
        shown["payload_changed"] = true.into();
    }
    shown
}

/// The audit's name for a schedule.
fn schedule_target(name: &ScheduleName) -> String {
    format!("schedule:{name}")
}

/// A schedule was put; `before`: it is not new.
pub(crate) fn schedule_put(put: &PutSchedule, before: Option<&ScheduleRecord>, after: &ScheduleRecord) -> AuditEntry {
    let shown = before.map_or_else(|| shown_schedule(after), |before| edited_schedule(before, after));
    let entry = AuditEntry::new("put_schedule", schedule_target(&put.name), put.by.as_ref());
    entry.before(before.map(shown_schedule)).after(Some(shown))
}

/// A schedule was deleted.
pub(crate) fn schedule_deleted(delete: &DeleteSchedule, before: &ScheduleRecord) -> AuditEntry {
    let entry = AuditEntry::new("delete_schedule", schedule_target(&delete.name), delete.by.as_ref());
    entry.before(Some(shown_schedule(before)))
}

/// A schedule was paused or resumed; `None` if it was so already.
pub(crate) fn schedule_switched(
    action: &'static str,
    by: Option<&Actor>,
    (before, after): (&ScheduleRecord, &ScheduleRecord),
) -> Option<AuditEntry> {
    let paused = |schedule: &ScheduleRecord| Some(json!({"paused": schedule.paused}));
    let entry = AuditEntry::new(action, schedule_target(&after.name), by).before(paused(before)).after(paused(after));
    (before.paused != after.paused).then_some(entry)
}

/// A schedule was run.
pub(crate) fn schedule_ran(run: &RunSchedule, job: JobId) -> AuditEntry {
    let entry = AuditEntry::new("run_schedule", schedule_target(&run.name), run.by.as_ref());
    entry.detail(json!({"job_id": job.to_string(), "tick": run.tick.to_string()}))
}

/// The schedules of the settings file were made what it says; `None` if they were that already.
pub(crate) fn schedules_synced(
    sync: &SyncSchedules,
    created: &[ScheduleRecord],
    changed: &[ScheduleRecord],
    deleted: &[&str],
) -> Option<AuditEntry> {
    let count = created.len() + changed.len() + deleted.len();
    let counts = json!({"created": created.len(), "changed": changed.len(), "deleted": deleted.len()});
    let named = created.iter().chain(changed).map(|schedule| schedule.name.as_str());
    let names: Vec<&str> = named.chain(deleted.iter().copied()).take(NAMED_MAX).collect();
    let entry = AuditEntry::new("sync_schedules", "schedules".to_owned(), sync.by.as_ref());
    (count > 0).then(|| entry.after(Some(counts)).count(count).detail(json!({"names": names})))
}

/// A hook, without its secrets: whether events are signed, not with what.
fn shown_hook(hook: &HookRecord) -> Value {
    let spec = serde_json::from_str(&hook.spec.stored_text());
    let mut shown: Map<String, Value> = spec.unwrap_or_default();
    shown.retain(|_, value| !value.is_null());
    shown.insert("signed".to_owned(), (!hook.spec.secrets.is_empty()).into());
    shown.insert("paused".to_owned(), hook.paused.is_some().into());
    Value::Object(shown)
}

fn hook_target(name: &HookName) -> String {
    format!("hook:{name}")
}

/// A hook was put; `before`: it is not new. That it is signed otherwise is said, not how.
pub(crate) fn hook_put(put: &PutHook, before: Option<&HookRecord>, after: &HookRecord) -> AuditEntry {
    let mut shown = shown_hook(after);
    if before.is_some_and(|before| before.spec.secrets != after.spec.secrets) {
        shown["secret_changed"] = true.into();
    }
    let entry = AuditEntry::new("put_hook", hook_target(&put.name), put.by.as_ref());
    entry.before(before.map(shown_hook)).after(Some(shown))
}

/// A hook was deleted.
pub(crate) fn hook_deleted(delete: &DeleteHook, before: &HookRecord) -> AuditEntry {
    let entry = AuditEntry::new("delete_hook", hook_target(&delete.name), delete.by.as_ref());
    entry.before(Some(shown_hook(before)))
}

/// A hook was paused or resumed; `None` if it was so already.
pub(crate) fn hook_switched(switch: &SwitchHook, before: &HookRecord) -> Option<AuditEntry> {
    let was = before.paused.is_some();
    let paused = |paused: bool| Some(json!({ "paused": paused }));
    let action = if switch.paused { "pause_hook" } else { "resume_hook" };
    let entry = AuditEntry::new(action, hook_target(&switch.name), switch.by.as_ref());
    (was != switch.paused).then(|| entry.before(paused(was)).after(paused(switch.paused)))
}

/// What [`shown_kind`] and its counterpart in SQL keep as text, as the JSON that it is: a text that somebody has damaged by
/// hand must not keep an act from being recorded.
fn unfolded(text: String) -> Value {
    let Ok(mut value) = serde_json::from_str::<Value>(&text) else { return Value::String(text) };
    for field in ["schema", "retry", "hidden"] {
        if let Some(folded) = value.get_mut(field)
            && let Some(json) = folded.as_str().and_then(|text| serde_json::from_str(text).ok())
        {
            *folded = json;
        }
    }
    value
}

/// A row as it is read.
pub(crate) struct AuditRow {
    pub(crate) seq: i64,
    pub(crate) at: jiff::Timestamp,
    pub(crate) by: ActorColumns,
    pub(crate) action: String,
    pub(crate) target: String,
    pub(crate) before: Option<String>,
    pub(crate) after: Option<String>,
    pub(crate) count: i64,
    pub(crate) reason: Option<String>,
    pub(crate) detail: Option<String>,
}

impl AuditRow {
    #[cfg(feature = "sqlite")]
    pub(crate) fn cursor(&self) -> AuditCursor {
        AuditCursor { at: self.at, seq: self.seq }
    }

    /// By the filters that no index knows.
    #[cfg(feature = "sqlite")]
    pub(crate) fn is_asked_for(&self, list: &ListAudit) -> bool {
        let is_token = |token: &String| self.by.token_name == *token || self.by.token_id.as_ref() == Some(token);
        list.action.as_ref().is_none_or(|action| self.action == *action) && list.token.as_ref().is_none_or(is_token)
    }
}

impl From<AuditRow> for AuditRecord {
    fn from(row: AuditRow) -> Self {
        let ActorColumns { token_id, token_name, request_id, remote } = row.by;
        Self {
            seq: row.seq,
            at: row.at,
            token_id,
            token_name,
            request_id,
            remote,
            action: row.action,
            target: row.target,
            before: row.before.map(unfolded),
            after: row.after.map(unfolded),
            count: row.count.max(0).unsigned_abs(),
            reason: row.reason,
            detail: row.detail.map(unfolded),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_callers_text_is_cut_and_has_nothing_that_postgresql_cannot_hold() {
        let actor = Actor::new(format!("a\0b{}", "x".repeat(1000))).token("\0t");
        let columns = ActorColumns::of(Some(&actor));
        assert_eq!((columns.token_name.len(), columns.token_id.as_deref()), (TEXT_MAX_CHARS, Some("t")));
        assert!(columns.token_name.starts_with("abx"));
    }
}
