//! Operations, coming and going.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::{Integer, JobView};
use crate::job::{Canary, JobId};
use crate::queue::{PreviewedOperation, Viewer};
use crate::store::{JobFilter, OperationRecord, OperationTally, Selection};

/// What is done to every job of an operation.
#[derive(ToSchema)]
#[schema(as = OperationAction, rename_all = "snake_case")]
#[expect(dead_code, reason = "the names, for the OpenAPI document")]
pub(in crate::api) enum ActionName {
    Redrive,
    Cancel,
    Delete,
    Reprioritize,
    Move,
}

/// Where an operation stands.
#[derive(ToSchema)]
#[schema(as = OperationState, rename_all = "snake_case")]
#[expect(dead_code, reason = "the names, for the OpenAPI document")]
pub(in crate::api) enum OperationStateName {
    Running,
    Paused,
    Finished,
    Stopped,
}

/// Which jobs are meant, by the names of `GET /jobs`. What is said must all hold; at least one must be said.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
#[schema(as = JobFilter, example = json!({"status": "failed_permanent", "kind": "send_email"}))]
pub(in crate::api) struct FilterText {
    /// In these statuses, separated by commas.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::api) status: Option<String>,
    /// Of these kinds, at most 50, separated by commas.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(pattern = "^[a-z0-9_.:-]{1,64}(,[a-z0-9_.:-]{1,64})*$")]
    pub(in crate::api) kind: Option<String>,
    /// In these queues, at most 50, separated by commas.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(pattern = "^[a-z0-9_.:-]{1,64}(,[a-z0-9_.:-]{1,64})*$")]
    pub(in crate::api) queue: Option<String>,
    /// Running on this worker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::api) worker: Option<String>,
    /// Of this group of their queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 255)]
    pub(in crate::api) group: Option<String>,
    /// Dead letters with this fingerprint of their error.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(pattern = "^[0-9a-f]{16}$")]
    pub(in crate::api) error: Option<String>,
    /// With this idempotency key.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 255)]
    pub(in crate::api) key: Option<String>,
    /// Created then or later, by the milliseconds in their ids.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Timestamp>)]
    pub(in crate::api) created_after: Option<String>,
    /// Created before that.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Timestamp>)]
    pub(in crate::api) created_before: Option<String>,
    /// Finished then or later.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Timestamp>)]
    pub(in crate::api) finished_after: Option<String>,
    /// Finished before that.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Timestamp>)]
    pub(in crate::api) finished_before: Option<String>,
}

impl From<&JobFilter> for FilterText {
    fn from(filter: &JobFilter) -> Self {
        fn names<T: ToString>(names: &[T]) -> Option<String> {
            (!names.is_empty()).then(|| names.iter().map(ToString::to_string).collect::<Vec<_>>().join(","))
        }
        let time = |time: Option<Timestamp>| time.map(|time| time.to_string());
        Self {
            status: names(&filter.statuses),
            kind: names(&filter.kinds),
            queue: names(&filter.queues),
            worker: filter.worker.as_ref().map(ToString::to_string),
            group: filter.group.as_ref().map(|group| group.as_str().to_owned()),
            error: filter.error.map(|fingerprint| format!("{fingerprint:016x}")),
            key: filter.key.clone(),
            created_after: time(filter.created_after),
            created_before: time(filter.created_before),
            finished_after: time(filter.finished_after),
            finished_before: time(filter.finished_before),
        }
    }
}

/// An operation to be looked at before it is begun.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = OperationPreviewRequest,
    example = json!({"action": "redrive", "filter": {"status": "failed_permanent", "kind": "send_email"}}))]
pub(in crate::api) struct OperationPreviewRequest {
    #[schema(value_type = ActionName)]
    pub(in crate::api) action: String,
    /// Which jobs; excludes `ids`.
    pub(in crate::api) filter: Option<FilterText>,
    /// These jobs; excludes `filter`.
    #[schema(min_items = 1, max_items = 1000)]
    pub(in crate::api) ids: Option<Vec<Uuid>>,
    /// For `reprioritize`: the new priority.
    #[schema(value_type = Option<i64>, minimum = -100, maximum = 100)]
    pub(in crate::api) priority: Option<Integer>,
    /// For `move`: the new queue.
    #[schema(pattern = "^[a-z0-9_.:-]{1,64}$")]
    pub(in crate::api) to: Option<String>,
}

/// An operation to be begun.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewOperation, example = json!({"action": "redrive", "filter": {"status": "failed_permanent", "kind": "send_email"},
    "rate": 50, "canary": {"first": 5, "need": 4}, "reason": "the mail server is back"}))]
pub(in crate::api) struct OperationSubmission {
    #[schema(value_type = ActionName)]
    pub(in crate::api) action: String,
    /// Which jobs; excludes `ids`.
    pub(in crate::api) filter: Option<FilterText>,
    /// These jobs; excludes `filter`.
    #[schema(min_items = 1, max_items = 1000)]
    pub(in crate::api) ids: Option<Vec<Uuid>>,
    /// For `reprioritize`: the new priority.
    #[schema(value_type = Option<i64>, minimum = -100, maximum = 100)]
    pub(in crate::api) priority: Option<Integer>,
    /// For `move`: the new queue.
    #[schema(pattern = "^[a-z0-9_.:-]{1,64}$")]
    pub(in crate::api) to: Option<String>,
    /// Jobs per second; 100 by default.
    #[schema(value_type = Option<i64>, minimum = 1, maximum = 10000)]
    pub(in crate::api) rate: Option<Integer>,
    /// For `redrive`: some jobs are tried first.
    pub(in crate::api) canary: Option<CanaryShape>,
    /// At most so many jobs are changed.
    #[schema(value_type = Option<i64>, minimum = 1)]
    pub(in crate::api) max: Option<Integer>,
    /// Why, for who reads it later; at most 2,000 bytes.
    #[schema(max_length = 2000)]
    pub(in crate::api) reason: Option<String>,
    /// The `token` of the preview: only what was there then is changed.
    pub(in crate::api) preview: Option<String>,
}

/// Some jobs are redriven first; the others only if enough of them succeed, else the operation is paused.
#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewCanary)]
pub(in crate::api) struct CanaryShape {
    /// How many are tried first.
    #[schema(value_type = i64, minimum = 1, maximum = 100)]
    pub(in crate::api) first: Integer,
    /// How many of them must succeed.
    #[schema(value_type = i64, minimum = 1, maximum = 100)]
    pub(in crate::api) need: Integer,
}

/// What is changed in an operation that goes on.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::api) struct OperationPatch {
    /// Jobs per second.
    #[schema(value_type = i64, minimum = 1, maximum = 10000)]
    pub(in crate::api) rate: Integer,
}

/// The jobs that an operation would change.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::api) struct OperationPreview {
    /// How many match, or at least match.
    matches: u64,
    /// `false`: there may be more than `matches`.
    exact: bool,
    /// How many rows were looked at; at most 20,000.
    looked_at: u64,
    /// Of those looked at, by kind.
    by_kind: Vec<KindCount>,
    /// Of those looked at, by queue.
    by_queue: Vec<QueueCount>,
    /// The oldest of them, at most five.
    sample: Vec<JobView>,
    /// When the oldest was created.
    #[schema(required)]
    oldest: Option<Timestamp>,
    /// When the newest was created.
    #[schema(required)]
    newest: Option<Timestamp>,
    /// The store's time.
    as_of: Timestamp,
    /// For `preview` of the operation: then only what was there at `as_of` is changed.
    token: String,
}

/// How many jobs of a kind match.
#[derive(Debug, Serialize, ToSchema)]
struct KindCount {
    kind: String,
    count: u64,
}

/// How many jobs of a queue match.
#[derive(Debug, Serialize, ToSchema)]
struct QueueCount {
    queue: String,
    count: u64,
}

impl OperationPreview {
    /// Without the parts of payloads that their kinds hide.
    pub(in crate::api) async fn shown(previewed: PreviewedOperation, viewer: &Viewer) -> Self {
        let PreviewedOperation { preview, token } = previewed;
        let mut sample = Vec::with_capacity(preview.sample.len());
        for job in preview.sample {
            sample.push(JobView::shown(job, viewer).await);
        }
        Self {
            matches: preview.matches,
            exact: preview.exact,
            looked_at: preview.looked_at,
            by_kind: preview.by_kind.into_iter().map(|(kind, count)| KindCount { kind, count }).collect(),
            by_queue: preview.by_queue.into_iter().map(|(queue, count)| QueueCount { queue, count }).collect(),
            sample,
            oldest: preview.created.map(|(oldest, _)| oldest),
            newest: preview.created.map(|(_, newest)| newest),
            as_of: preview.as_of,
            token,
        }
    }

    /// About how many bytes it takes on the wire.
    pub(in crate::api) fn weight(&self) -> usize {
        let counts = 100 * (self.by_kind.len() + self.by_queue.len());
        512 + counts + self.sample.iter().map(JobView::weight).sum::<usize>()
    }
}

/// An operation.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Operation)]
pub(in crate::api) struct OperationView {
    /// A UUID v7; treat it as opaque.
    id: Uuid,
    #[schema(value_type = ActionName)]
    action: &'static str,
    /// For `reprioritize`: the new priority.
    #[schema(required)]
    priority: Option<i16>,
    /// For `move`: the new queue.
    #[schema(required)]
    to: Option<String>,
    /// Which jobs; null if they were named by `ids`.
    #[schema(required)]
    filter: Option<FilterText>,
    /// These jobs; null if there is a `filter`.
    #[schema(required)]
    ids: Option<Vec<Uuid>>,
    #[schema(value_type = OperationStateName)]
    state: &'static str,
    counts: OperationCounts,
    /// How many jobs the preview has seen.
    #[schema(required)]
    of: Option<u64>,
    /// Jobs per second.
    rate: u32,
    /// At most so many jobs are changed.
    #[schema(required)]
    max: Option<u64>,
    #[schema(required)]
    canary: Option<CanaryView>,
    /// Jobs that were created, or have finished, after this time are left alone.
    cutoff: Timestamp,
    /// The name of the token that began it.
    by: String,
    /// Why, in the words of who began it.
    #[schema(required)]
    reason: Option<String>,
    /// Why it was paused, if nobody did.
    #[schema(required)]
    note: Option<String>,
    created_at: Timestamp,
    /// When it last changed.
    updated_at: Timestamp,
    /// When it ended.
    #[schema(required)]
    finished_at: Option<Timestamp>,
    /// When its next step is due; null unless it is running.
    #[schema(required)]
    next_step_at: Option<Timestamp>,
}

/// What an operation has done so far.
#[derive(Debug, Serialize, ToSchema)]
struct OperationCounts {
    /// Rows that were looked at.
    looked_at: u64,
    /// Jobs that were changed.
    changed: u64,
    /// Jobs that matched, but were not in a status that can be changed any more.
    unchanged: u64,
    /// Jobs that the store cannot change.
    failed: u64,
}

impl From<OperationTally> for OperationCounts {
    fn from(tally: OperationTally) -> Self {
        let OperationTally { looked_at, changed, unchanged, failed } = tally;
        Self { looked_at, changed, unchanged, failed }
    }
}

/// Some jobs are redriven first.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Canary)]
struct CanaryView {
    /// How many are tried first.
    first: u32,
    /// How many of them must succeed.
    need: u32,
    /// Whether it is not waited for any more: enough have succeeded, or somebody has resumed the operation.
    passed: bool,
}

impl From<OperationRecord> for OperationView {
    fn from(operation: OperationRecord) -> Self {
        use crate::job::{Action, OperationState};
        let (filter, ids) = match &operation.selection {
            Selection::Filter(filter) => (Some(FilterText::from(filter)), None),
            Selection::Ids(ids) => (None, Some(ids.iter().map(JobId::as_uuid).copied().collect())),
        };
        let (priority, to) = match &operation.action {
            Action::Reprioritize(priority) => (Some(*priority), None),
            Action::Move(queue) => (None, Some(queue.to_string())),
            _ => (None, None),
        };
        let passed = operation.canary_passed;
        Self {
            id: *operation.id.as_uuid(),
            action: operation.action.as_str(),
            priority,
            to,
            filter,
            ids,
            state: operation.state.as_str(),
            counts: operation.tally.into(),
            of: operation.of,
            rate: operation.rate,
            max: operation.max,
            canary: operation.canary.map(|Canary { first, need, .. }| CanaryView { first, need, passed }),
            cutoff: operation.cutoff,
            by: operation.by,
            reason: operation.reason,
            note: operation.note,
            created_at: operation.created_at,
            updated_at: operation.updated_at,
            finished_at: operation.finished_at,
            next_step_at: (operation.state == OperationState::Running).then_some(operation.next_step_at),
        }
    }
}

impl OperationView {
    /// About how many bytes it takes on the wire.
    pub(in crate::api) fn weight(&self) -> usize {
        let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        let ids = self.ids.as_ref().map_or(0, |ids| 40 * ids.len());
        let filter = self.filter.as_ref().map_or(0, |filter| {
            [&filter.kind, &filter.queue, &filter.group, &filter.key].into_iter().map(text).sum::<usize>() + 300
        });
        1024 + ids + filter + text(&self.reason) + text(&self.note)
    }
}
