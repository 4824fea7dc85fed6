//! Jobs and attempts, coming and going.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;
use uuid::Uuid;

use super::unique::{UniqueSubmission, UniqueView};
use super::{Integer, Nul, check_json};
use crate::job::{AttemptRecord, JobRecord, JobRequest, Json, NotJson, Progress, TraceContext, Unique};
use crate::queue::Viewer;
use crate::store::Enqueued;

/// A job to be enqueued. Only `kind` and `payload` must be said.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewJob, example = json!({"kind": "welcome", "payload": {"user": 42}, "idempotency_key": "welcome-42"}))]
pub(in crate::api) struct JobSubmission {
    /// Which handler runs it. Must be declared.
    #[schema(pattern = "^[a-z0-9_.:-]{1,64}$")]
    kind: String,
    /// What the handler is given; at most 256 KiB.
    #[schema(value_type = Value)]
    payload: Box<RawValue>,
    /// The queue; the kind's default, else `default`.
    #[schema(pattern = "^[a-z0-9_.:-]{1,64}$")]
    queue: Option<String>,
    /// Higher runs first.
    #[schema(value_type = Option<i64>, minimum = -100, maximum = 100)]
    priority: Option<Integer>,
    /// How many starts may count.
    #[schema(value_type = Option<i64>, minimum = 1, maximum = 10000)]
    max_attempts: Option<Integer>,
    /// Earliest start; excludes `delay_ms`. A time in the past means now.
    run_at: Option<Timestamp>,
    /// Earliest start, from now; excludes `run_at`.
    #[schema(value_type = Option<i64>, minimum = 0)]
    delay_ms: Option<Integer>,
    /// Deadline of one attempt.
    #[schema(value_type = Option<i64>, minimum = 1)]
    timeout_ms: Option<Integer>,
    /// The same key again, with the same kind and payload, answers with the job it was first used for; with others it
    /// is refused. The header `Idempotency-Key` wins over it. No control characters.
    #[schema(min_length = 1, max_length = 255)]
    idempotency_key: Option<String>,
    /// Which group of its queue it belongs to: a tenant, a customer, a resource. No control characters.
    #[schema(min_length = 1, max_length = 255, example = "acme")]
    group_key: Option<String>,
    /// How much of a rate it uses; 1 by default.
    #[schema(value_type = Option<i64>, minimum = 1, maximum = 1000000)]
    cost: Option<Integer>,
    /// Not started by then: it is cancelled. Excludes `start_within_ms`.
    start_by: Option<Timestamp>,
    /// Not started within this time from now: it is cancelled. Excludes `start_by`.
    #[schema(value_type = Option<i64>, minimum = 1)]
    start_within_ms: Option<Integer>,
    /// At most one job of its kind with its key waits, is unfinished, or is enqueued within a time.
    unique: Option<UniqueSubmission>,
    /// The hook that is told of its end, whatever that hook's filter is. Must exist.
    #[schema(pattern = "^[a-z0-9_.:-]{1,64}$", example = "billing")]
    notify: Option<String>,
    /// The trace that it is enqueued in, by W3C Trace Context; wins over the header `traceparent`. Ignored if it is not valid.
    #[schema(max_length = 55, example = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")]
    traceparent: Option<String>,
    /// Beside `traceparent`.
    #[schema(max_length = 512)]
    tracestate: Option<String>,
}

impl JobSubmission {
    /// Whether one of its strings has the character NUL in it.
    pub(in crate::api) fn has_nul(&self) -> bool {
        let unique = self.unique.as_ref().map(UniqueSubmission::key);
        let keys = [self.idempotency_key.as_ref(), self.group_key.as_ref(), unique];
        let others = [self.notify.as_ref(), self.traceparent.as_ref(), self.tracestate.as_ref()];
        let texts = [Some(&self.kind), self.queue.as_ref()].into_iter().chain(keys).chain(others);
        texts.flatten().any(|text| text.contains('\0'))
            || check_json(self.payload.get().as_bytes()).is_ok_and(|nul| nul == Nul::Present)
    }

    /// `key` and `trace` are what the headers said, if they said something; a trace of its own wins.
    pub(in crate::api) fn into_request(
        self,
        key: Option<String>,
        trace: Option<TraceContext>,
    ) -> Result<JobRequest, NotJson> {
        let number = |value: Option<Integer>| value.map(|Integer(number)| number);
        Ok(JobRequest {
            kind: self.kind,
            payload: Json::of(&self.payload)?,
            queue: self.queue,
            priority: number(self.priority),
            max_attempts: number(self.max_attempts),
            run_at: self.run_at,
            delay_ms: number(self.delay_ms),
            timeout_ms: number(self.timeout_ms),
            idempotency_key: key.or(self.idempotency_key),
            group_key: self.group_key,
            cost: number(self.cost),
            start_by: self.start_by,
            start_within_ms: number(self.start_within_ms),
            unique: self.unique.map(Unique::from),
            notify: self.notify,
            trace: match self.traceparent {
                Some(parent) => TraceContext::parse(&parent, self.tracestate.as_deref()),
                None => trace,
            },
        })
    }
}

/// Up to 1,000 jobs, stored together or not at all.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewJobs)]
pub(in crate::api) struct JobBatch {
    /// The jobs.
    #[schema(min_items = 1, max_items = 1000)]
    pub(in crate::api) jobs: Vec<JobSubmission>,
}

/// Where a job stands.
#[derive(ToSchema)]
#[schema(as = Status, rename_all = "snake_case")]
#[expect(dead_code, reason = "the names, for the OpenAPI document")]
pub(in crate::api) enum StatusName {
    Queued,
    Running,
    Retrying,
    Succeeded,
    FailedPermanent,
    Cancelled,
}

/// A job.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Job)]
pub(in crate::api) struct JobView {
    /// A UUID v7; treat it as opaque.
    id: Uuid,
    /// Which handler runs it.
    #[schema(example = "welcome")]
    kind: String,
    /// The queue it waits in.
    #[schema(example = "default")]
    queue: String,
    /// What the handler is given. Secrets that a built-in kind takes are shown as `(secret)`, except in a lease.
    #[schema(value_type = Value)]
    payload: Json,
    #[schema(value_type = StatusName)]
    status: &'static str,
    /// Higher runs first.
    priority: i16,
    /// Starts that count.
    attempts: u32,
    /// How many may count.
    max_attempts: u32,
    /// Earliest (next) start.
    run_at: Timestamp,
    /// Deadline of one attempt.
    #[schema(required)]
    timeout_ms: Option<u64>,
    /// Enqueueing with the same key again answers with this job.
    #[schema(required)]
    idempotency_key: Option<String>,
    /// Which group of its queue it belongs to.
    #[schema(required)]
    group_key: Option<String>,
    /// How much of a rate it uses; null counts as 1.
    #[schema(required)]
    cost: Option<u32>,
    /// It is cancelled if it has not started by then. A redrive clears it.
    #[schema(required)]
    start_by: Option<Timestamp>,
    /// How it was enqueued as unique.
    #[schema(required)]
    unique: Option<UniqueView>,
    /// The hook that its producer wants to be told of its end.
    #[schema(required)]
    notify: Option<String>,
    /// The trace that it was enqueued in.
    #[schema(required)]
    trace: Option<TraceView>,
    /// Cancellation was requested.
    cancel_requested: bool,
    /// Who runs it; only while it runs.
    #[schema(required)]
    locked_by: Option<String>,
    /// Since when; only while it runs.
    #[schema(required)]
    locked_at: Option<Timestamp>,
    /// Until when without a heartbeat; only while it runs.
    #[schema(required)]
    lease_expires_at: Option<Timestamp>,
    /// The newest error; kept after a later success.
    #[schema(required)]
    last_error: Option<String>,
    /// The group of the error that ended it (`GET /errors/{fingerprint}`); only of dead letters that failed.
    #[schema(required, pattern = "^[0-9a-f]{16}$")]
    error_group: Option<String>,
    /// What the handler returned.
    #[schema(value_type = Value)]
    result: Option<Json>,
    #[schema(required)]
    progress: Option<ProgressView>,
    /// When it was accepted.
    created_at: Timestamp,
    /// When it last changed.
    updated_at: Timestamp,
    /// Start of the newest attempt.
    #[schema(required)]
    started_at: Option<Timestamp>,
    /// When it reached its end.
    #[schema(required)]
    finished_at: Option<Timestamp>,
}

/// Where a job comes from, by W3C Trace Context.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Trace)]
pub(in crate::api) struct TraceView {
    /// As a header of this name.
    #[schema(example = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")]
    traceparent: String,
    /// As a header of this name.
    #[schema(required)]
    tracestate: Option<String>,
}

impl From<&TraceContext> for TraceView {
    fn from(trace: &TraceContext) -> Self {
        Self { traceparent: trace.traceparent().to_owned(), tracestate: trace.tracestate().map(str::to_owned) }
    }
}

/// How far the handler says it is.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Progress)]
pub(super) struct ProgressView {
    /// 0 to 100.
    #[schema(required, maximum = 100)]
    percent: Option<u8>,
    /// A line for a person.
    #[schema(required)]
    message: Option<String>,
}

impl From<&Progress> for ProgressView {
    fn from(progress: &Progress) -> Self {
        Self { percent: progress.percent(), message: progress.message().map(str::to_owned) }
    }
}

impl JobView {
    /// About how many bytes it takes on the wire.
    pub(in crate::api) fn weight(&self) -> usize {
        let json = |json: Option<&Json>| json.map_or(0, |json| json.as_str().len());
        512 + json(Some(&self.payload)) + json(self.result.as_ref()) + self.last_error.as_ref().map_or(0, String::len)
    }
}

impl JobView {
    /// For a reader.
    pub(in crate::api) async fn shown(job: JobRecord, viewer: &Viewer) -> Self {
        Self::whole(viewer.shown(job).await)
    }

    /// For the worker that is to run it, or as it was shown.
    pub(in crate::api) fn whole(job: JobRecord) -> Self {
        Self {
            id: *job.id.as_uuid(),
            kind: job.kind.to_string(),
            queue: job.queue.to_string(),
            payload: job.payload,
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
            trace: job.trace.as_ref().map(TraceView::from),
            cancel_requested: job.cancel_requested,
            locked_by: job.locked_by.map(|worker| worker.to_string()),
            locked_at: job.locked_at,
            lease_expires_at: job.lease_expires_at,
            last_error: job.last_error,
            error_group: job.error_group.map(|group| group.to_string()),
            result: job.result,
            progress: job.progress.as_ref().map(ProgressView::from),
            created_at: job.created_at,
            updated_at: job.updated_at,
            started_at: job.started_at,
            finished_at: job.finished_at,
        }
    }
}

/// What became of each job of a batch, in the order sent.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::api) struct BatchResults {
    pub(in crate::api) results: Vec<BatchResult>,
}

/// One job of a batch.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::api) struct BatchResult {
    /// `false`: the idempotency key or the unique key was known, and this is the job it belongs to.
    created: bool,
    /// Only there if `true`: the unique key was known, and the job it belongs to has taken payload, priority and start of
    /// the one sent.
    #[serde(skip_serializing_if = "is_false")]
    #[schema(required = false)]
    replaced: bool,
    /// Without the scope `read`, of a job that was known only what `KnownJob` says.
    job: BatchJob,
}

impl BatchResult {
    pub(in crate::api) async fn new(enqueued: Enqueued, may_read: bool, viewer: &Viewer) -> Self {
        let Enqueued { created, replaced, job, .. } = enqueued;
        let job = match created || may_read {
            // Who has just sent a payload may see it.
            true if created => BatchJob::Job(JobView::shown(job, &viewer.queue().viewer()).await),
            true => BatchJob::Job(JobView::shown(job, viewer).await),
            false => BatchJob::Known(KnownJob::new(&job, replaced)),
        };
        Self { created, replaced, job }
    }
}

/// A job of a batch, as far as the caller may see it.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
#[expect(clippy::large_enum_variant, reason = "the common variant is the large one")]
enum BatchJob {
    Job(JobView),
    Known(KnownJob),
}

/// A job that was there before, as far as the caller may see it.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
#[expect(clippy::large_enum_variant, reason = "the common variant is the large one")]
pub(in crate::api) enum EnqueueReplay {
    Job(ReplayedJob),
    Known(KnownJob),
}

impl EnqueueReplay {
    pub(in crate::api) async fn of(enqueued: Enqueued, may_read: bool, viewer: &Viewer) -> Self {
        let Enqueued { job, replaced, .. } = enqueued;
        match may_read {
            true => Self::Job(ReplayedJob { job: JobView::shown(job, viewer).await, replaced }),
            false => Self::Known(KnownJob::new(&job, replaced)),
        }
    }
}

/// A job that was there before.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::api) struct ReplayedJob {
    #[serde(flatten)]
    job: JobView,
    /// Only there if `true`: its unique key was that of the job sent, of which it has taken payload, priority and start.
    #[serde(skip_serializing_if = "is_false")]
    #[schema(required = false)]
    replaced: bool,
}

/// What a caller without the scope `read` is told of a job that it did not just create.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::api) struct KnownJob {
    id: Uuid,
    #[schema(value_type = StatusName)]
    status: &'static str,
    /// Always `false`.
    created: bool,
    /// Only there if `true`: it has taken payload, priority and start of the job sent.
    #[serde(skip_serializing_if = "is_false")]
    #[schema(required = false)]
    replaced: bool,
}

impl KnownJob {
    fn new(job: &JobRecord, replaced: bool) -> Self {
        Self { id: *job.id.as_uuid(), status: job.status.as_str(), created: false, replaced }
    }
}

fn is_false(value: &bool) -> bool {
    !value
}

/// `cancelled`: it will not run. `pending`: it is running, and its worker will be told.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::api) struct CancelAnswer {
    #[schema(example = "cancelled", pattern = "^(cancelled|pending)$")]
    pub(in crate::api) status: &'static str,
}

/// How an attempt ended.
#[derive(ToSchema)]
#[schema(as = AttemptOutcome, rename_all = "snake_case")]
#[expect(dead_code, reason = "the names, for the OpenAPI document")]
pub(in crate::api) enum OutcomeName {
    Succeeded,
    Failed,
    TimedOut,
    LeaseExpired,
    Released,
    Snoozed,
    Cancelled,
}

/// One start of a job.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Attempt)]
pub(in crate::api) struct AttemptView {
    /// Which attempt; numbers can repeat after a release, snooze or redrive.
    attempt: u32,
    /// Who ran it.
    worker: String,
    /// When it was claimed.
    started_at: Timestamp,
    /// When it ended; null while it runs.
    #[schema(required)]
    ended_at: Option<Timestamp>,
    /// How it ended; null while it runs.
    #[schema(required, value_type = Option<OutcomeName>)]
    outcome: Option<&'static str>,
    /// What went wrong, if something did.
    #[schema(required)]
    error: Option<String>,
}

impl From<AttemptRecord> for AttemptView {
    fn from(attempt: AttemptRecord) -> Self {
        Self {
            attempt: attempt.attempt,
            worker: attempt.worker.to_string(),
            started_at: attempt.started_at,
            ended_at: attempt.ended_at,
            outcome: attempt.outcome.map(|outcome| outcome.as_str()),
            error: attempt.error,
        }
    }
}
