//! Groups of errors, coming and going.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::{Integer, duration};
use crate::api::problem::Problem;
use crate::job::limits::{ERROR_QUEUES_SHOWN_MAX, SNOOZE_MAX, SNOOZE_NOTE_MAX_CHARS};
use crate::store::{ErrorQueue, ErrorRecord, SnoozeEnd, Snoozed};

/// Dead letters of one kind with one cause.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ErrorGroup)]
pub(in crate::api) struct ErrorView {
    /// Names the group.
    #[schema(pattern = "^[0-9a-f]{16}$", example = "9f3c0d6a1b2e4f58")]
    fingerprint: String,
    /// The kind of its jobs.
    kind: String,
    /// How their last attempt ended: `failed`, `timed_out` or `lease_expired`.
    #[schema(example = "failed")]
    outcome: &'static str,
    /// The error with `*` for what differs from one to the next, or the name that the worker gave it.
    #[schema(example = "http 503 after * s")]
    title: String,
    /// Dead letters there are now; with `queue`, in that queue.
    dead: u64,
    /// Dead letters there were in all.
    seen_total: u64,
    /// When the first of them died.
    first_seen: Timestamp,
    /// When the newest of them died.
    last_seen: Timestamp,
    /// By queue, those with the most dead letters first; at most 20.
    #[schema(max_items = 20)]
    queues: Vec<ErrorQueueView>,
    /// The newest of them.
    #[schema(required)]
    sample: Option<SampleView>,
    /// Set while it is snoozed.
    #[schema(required)]
    snoozed: Option<SnoozedView>,
}

/// What a group has in one queue.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ErrorQueue)]
struct ErrorQueueView {
    queue: String,
    /// Dead letters there are now.
    dead: u64,
    /// Dead letters there were in all.
    seen_total: u64,
}

/// One dead letter of a group.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ErrorSample)]
struct SampleView {
    /// The job, which may be gone or redriven by now.
    job_id: Uuid,
    /// Its error, in the answer about one group, if it is still dead.
    #[schema(required)]
    error: Option<String>,
}

/// Who wants to hear nothing of a group, until when, and why.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Snoozed)]
struct SnoozedView {
    until: Timestamp,
    #[schema(required)]
    note: Option<String>,
    /// The name of the token that was used.
    #[schema(required)]
    by: Option<String>,
    at: Timestamp,
}

impl From<ErrorQueue> for ErrorQueueView {
    fn from(ErrorQueue { queue, dead, total, .. }: ErrorQueue) -> Self {
        Self { queue: queue.to_string(), dead, seen_total: total }
    }
}

impl From<Snoozed> for SnoozedView {
    fn from(Snoozed { until, note, by, at, .. }: Snoozed) -> Self {
        Self { until, note, by, at }
    }
}

impl ErrorView {
    /// `sample_error`: the error of the sample, if it was read.
    pub(in crate::api) fn new(group: ErrorRecord, sample_error: Option<String>) -> Self {
        let sample = |id: crate::job::JobId| SampleView { job_id: *id.as_uuid(), error: sample_error };
        Self {
            fingerprint: group.fingerprint.to_string(),
            kind: group.kind.to_string(),
            outcome: group.outcome.as_str(),
            title: group.title,
            dead: group.dead,
            seen_total: group.total,
            first_seen: group.first_seen,
            last_seen: group.last_seen,
            queues: group.queues.into_iter().take(ERROR_QUEUES_SHOWN_MAX).map(ErrorQueueView::from).collect(),
            sample: group.sample_job.map(sample),
            snoozed: group.snoozed.map(SnoozedView::from),
        }
    }
}

/// For how long to hear nothing of a group, and why. One of `until` and `for_ms`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewSnooze, example = json!({"for_ms": 14400000, "note": "the provider is down, ticket 4711"}))]
pub(in crate::api) struct SnoozeDeclaration {
    /// Until this time, at most a year from now.
    until: Option<Timestamp>,
    /// For so long from now, at most a year.
    #[schema(value_type = Option<i64>, minimum = 1, maximum = 31536000000_i64)]
    for_ms: Option<Integer>,
    /// Why, for the next operator.
    #[schema(max_length = 500)]
    note: Option<String>,
}

impl SnoozeDeclaration {
    pub(in crate::api) fn read(self, now: Timestamp) -> Result<(SnoozeEnd, Option<String>), Problem> {
        let after = duration("for_ms", self.for_ms, Duration::from_millis(1)..=SNOOZE_MAX)?;
        let end = match (self.until, after) {
            (None, Some(after)) => SnoozeEnd::After(after),
            (Some(until), None) if until <= now => {
                return Err(Problem::invalid("until has passed: use a time to come"));
            }
            (Some(until), None) if until.duration_since(now).unsigned_abs() > SNOOZE_MAX => {
                return Err(Problem::invalid("until is more than a year from now: use an earlier time"));
            }
            (Some(until), None) => SnoozeEnd::At(until),
            _ => return Err(Problem::invalid("send one of until and for_ms")),
        };
        let note = self.note.filter(|note| !note.trim().is_empty());
        if note.as_ref().is_some_and(|note| note.chars().nth(SNOOZE_NOTE_MAX_CHARS).is_some()) {
            return Err(Problem::invalid("note is longer than 500 characters"));
        }
        if note.as_ref().is_some_and(|note| note.contains('\0')) {
            return Err(Problem::invalid("note contains NUL: leave it out"));
        }
        Ok((end, note))
    }
}
