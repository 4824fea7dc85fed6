//! The audit: what operators did.

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use crate::store::AuditRecord;

/// One act of an operator.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = AuditEntry, example = json!({
    "seq": 42, "at": "2026-11-18T05:21:18.722605Z", "token_id": "9f3c0de1a2b3c4d5", "token_name": "ops",
    "action": "redrive", "target": "job:0198c0de-0000-7000-8000-000000000000",
    "before": {"failed_permanent": 1}, "after": {"queued": 1}, "count": 1,
    "request_id": "0198c0de-0000-7000-8000-000000000001", "remote": "127.0.0.1", "reason": null, "detail": null
}))]
pub(in crate::api) struct AuditView {
    /// Names the entry.
    seq: i64,
    /// When, by the store's clock.
    at: Timestamp,
    /// The token's id; null without a token, and for the token of the server's settings.
    token_id: Option<String>,
    /// The token's name. `library`: a program that embeds the queue; `settings file`: the server at its start; `anyone`: a
    /// server without tokens.
    token_name: String,
    /// What was done.
    action: String,
    /// To what: `job:<id>`, `jobs`, `queue:<name>`, `group:<queue>/<key>`, `kind:<name>`, `token:<id>`, `schedule:<name>`,
    /// `schedules`.
    target: String,
    /// The settings before, or jobs by status; null: there was nothing. Never payloads or secrets.
    #[schema(value_type = Option<Object>)]
    before: Option<Value>,
    /// The same, after it; null: nothing is left.
    #[schema(value_type = Option<Object>)]
    after: Option<Value>,
    /// How many things were changed.
    count: u64,
    /// The request's id, as in its response and in the log.
    request_id: Option<String>,
    /// The client's address.
    remote: Option<String>,
    /// What the operator said about it.
    reason: Option<String>,
    /// What else there is to know: of a batch, the first 20 ids.
    #[schema(value_type = Option<Object>)]
    detail: Option<Value>,
}

impl From<AuditRecord> for AuditView {
    fn from(record: AuditRecord) -> Self {
        Self {
            seq: record.seq,
            at: record.at,
            token_id: record.token_id,
            token_name: record.token_name,
            action: record.action,
            target: record.target,
            before: record.before,
            after: record.after,
            count: record.count,
            request_id: record.request_id,
            remote: record.remote,
            reason: record.reason,
            detail: record.detail,
        }
    }
}
