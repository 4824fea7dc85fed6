//! Jobs in a list, short: without payload and result.

use jiff::Timestamp;
use serde::Serialize;
use utoipa::ToSchema;
use uuid::Uuid;

use super::job::{JobView, ProgressView, StatusName};
use super::unique::UniqueView;
use crate::job::JobRecord;

/// 200 characters: a line or two.
const PREVIEW_MAX_CHARS: usize = 200;

/// A job of a list: whole, or with `view=summary` short.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
pub(in crate::api) enum ListedJob {
    Job(JobView),
    Summary(JobSummary),
}

impl ListedJob {
    /// About how many bytes it takes on the wire.
    pub(in crate::api) fn weight(&self) -> usize {
        match self {
            Self::Job(job) => job.weight(),
            Self::Summary(job) => 512 + job.payload_preview.len() + job.last_error.as_ref().map_or(0, String::len),
        }
    }
}

/// A job without payload and result. Its other fields are those of `Job`.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::api) struct JobSummary {
    id: Uuid,
    kind: String,
    queue: String,
    /// The first 200 characters of the JSON of the payload, without what its kind hides.
    #[schema(max_length = 200)]
    payload_preview: String,
    /// How long the JSON of the payload is.
    payload_bytes: usize,
    #[schema(value_type = StatusName)]
    status: &'static str,
    priority: i16,
    attempts: u32,
    max_attempts: u32,
    run_at: Timestamp,
    #[schema(required)]
    timeout_ms: Option<u64>,
    #[schema(required)]
    idempotency_key: Option<String>,
    #[schema(required)]
    group_key: Option<String>,
    #[schema(required)]
    cost: Option<u32>,
    #[schema(required)]
    start_by: Option<Timestamp>,
    #[schema(required)]
    unique: Option<UniqueView>,
    #[schema(required)]
    notify: Option<String>,
    cancel_requested: bool,
    #[schema(required)]
    locked_by: Option<String>,
    #[schema(required)]
    locked_at: Option<Timestamp>,
    #[schema(required)]
    lease_expires_at: Option<Timestamp>,
    #[schema(required)]
    last_error: Option<String>,
    /// The group of the error that it failed of permanently.
    #[schema(required)]
    error_group: Option<String>,
    #[schema(required)]
    progress: Option<ProgressView>,
    created_at: Timestamp,
    updated_at: Timestamp,
    #[schema(required)]
    started_at: Option<Timestamp>,
    #[schema(required)]
    finished_at: Option<Timestamp>,
}

impl From<JobRecord> for JobSummary {
    /// Of a job as its reader sees it.
    fn from(job: JobRecord) -> Self {
        let payload = job.payload.as_str();
        Self {
            id: *job.id.as_uuid(),
            kind: job.kind.to_string(),
            queue: job.queue.to_string(),
            payload_preview: payload.chars().take(PREVIEW_MAX_CHARS).collect(),
            payload_bytes: payload.len(),
            status: job.status.as_str(),
            priority: job.priority,
            attempts: job.attempts,
            max_attempts: job.max_attempts,
            run_at: job.run_at,
            timeout_ms: job.timeout_ms,
            idempotency_key: job.idempotency_key,
            group_key: job.group_key.map(|group| group.to_string()),
            cost: job.cost,
            start_by: job.start_by,
            unique: job.unique.map(UniqueView::from),
            notify: job.notify.map(|hook| hook.to_string()),
            cancel_requested: job.cancel_requested,
            locked_by: job.locked_by.map(|worker| worker.to_string()),
            locked_at: job.locked_at,
            lease_expires_at: job.lease_expires_at,
            last_error: job.last_error,
            error_group: job.error_group.map(|group| group.to_string()),
            progress: job.progress.as_ref().map(ProgressView::from),
            created_at: job.created_at,
            updated_at: job.updated_at,
            started_at: job.started_at,
            finished_at: job.finished_at,
        }
    }
}
