//! The overview: what there is now, how fast it goes, and what is wrong.

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::OperationView;
use super::queue::{QueueView, StatusCounts};
use crate::job::problems::{Problem, Subject};

/// Everything but the time, which changes when nothing else does.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Pulse)]
pub(in crate::api) struct PulseView {
    /// The version of the server.
    pub(in crate::api) version: &'static str,
    /// Names the dashboard's files; null: not known.
    #[schema(required)]
    pub(in crate::api) assets: Option<String>,
    /// `sqlite`, `postgres` or `other`.
    #[schema(example = "sqlite")]
    pub(in crate::api) store: &'static str,
    /// As `GET /readyz`. If it is not, the rest is of the last moment at which it was.
    pub(in crate::api) ready: bool,
    /// Over all queues.
    pub(in crate::api) totals: StatusCounts,
    pub(in crate::api) rates: FlowRates,
    /// How long the longest-waiting due job of all queues shown has been due; null if none is.
    #[schema(required)]
    pub(in crate::api) oldest_ready_ms: Option<u64>,
    /// The first 200 queues, by name.
    pub(in crate::api) queues: Vec<PulseQueue>,
    /// There are more queues than these.
    pub(in crate::api) more_queues: bool,
    pub(in crate::api) workers: WorkerCounts,
    /// The first 20 problems, the worst first; see `GET /problems`.
    pub(in crate::api) problems: Vec<ProblemView>,
    /// How many more there are.
    pub(in crate::api) more_problems: usize,
    /// Operations that are running or paused, at most 20.
    pub(in crate::api) operations: Vec<OperationView>,
    /// The newest entry of the audit; null: there is none.
    #[schema(required)]
    pub(in crate::api) audit_seq: Option<i64>,
}

/// For the document only: the time stands first in it.
#[derive(ToSchema)]
#[schema(as = Overview)]
#[expect(dead_code, reason = "the shape, for the OpenAPI document")]
pub(in crate::api) struct PulseShape {
    /// The store's time.
    at: Timestamp,
    #[schema(inline)]
    #[serde(flatten)]
    rest: PulseView,
}

/// How fast jobs come and go, over the last minute.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, ToSchema)]
pub(in crate::api) struct FlowRates {
    /// Over how long.
    #[schema(example = 60000)]
    pub(in crate::api) over_ms: u64,
    /// Jobs accepted per second.
    pub(in crate::api) enqueued_per_s: f64,
    /// Attempts started per second.
    pub(in crate::api) started_per_s: f64,
    /// Jobs that reached their end per second.
    pub(in crate::api) finished_per_s: f64,
    /// Attempts that failed per second.
    pub(in crate::api) failed_per_s: f64,
}

/// How many jobs are due.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = DueCount)]
pub(in crate::api) struct DueView {
    /// How many were counted.
    pub(in crate::api) n: u64,
    /// There may be more.
    pub(in crate::api) at_least: bool,
}

/// Workers that ask for jobs of a queue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, ToSchema)]
pub(in crate::api) struct QueueWorkers {
    /// How many are live.
    pub(in crate::api) live: u64,
    /// How many jobs they run at the same time, in all queues.
    pub(in crate::api) slots: u64,
    /// Leases that they hold, in all queues.
    pub(in crate::api) busy: u64,
}

/// What is going on in a queue.
#[derive(Debug, Default, Serialize, ToSchema)]
pub(in crate::api) struct QueueActivity {
    pub(in crate::api) due: DueView,
    pub(in crate::api) rates: FlowRates,
    /// Since when it is paused; null: it is not, or that is not known.
    #[schema(required)]
    pub(in crate::api) paused_at: Option<Timestamp>,
    /// The name of the token that paused it.
    #[schema(required)]
    pub(in crate::api) paused_by: Option<String>,
    /// 95 of 100 attempts of the last 5 minutes were started within this time from when they were due; null: none was started.
    #[schema(required)]
    pub(in crate::api) wait_p95_ms: Option<f64>,
    /// When nothing will be due any more, if it goes on like this; 0: nothing is. null: it grows, is paused, or that cannot be
    /// told.
    #[schema(required)]
    pub(in crate::api) drained_in_ms: Option<u64>,
    pub(in crate::api) workers: QueueWorkers,
}

/// One queue, and what is going on in it.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ListedQueue)]
pub(in crate::api) struct ListedQueue {
    #[serde(flatten)]
    pub(in crate::api) queue: QueueView,
    #[serde(flatten)]
    pub(in crate::api) activity: QueueActivity,
}

/// One queue of the overview.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::api) struct PulseQueue {
    #[serde(flatten)]
    pub(in crate::api) queue: ListedQueue,
    /// Jobs that reached their end, minute by minute, the last 30; the newest is not over.
    pub(in crate::api) spark: Vec<u64>,
}

/// Workers by state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, ToSchema)]
pub(in crate::api) struct WorkerCounts {
    pub(in crate::api) live: u64,
    pub(in crate::api) deaf: u64,
    pub(in crate::api) draining: u64,
    /// Within a day.
    pub(in crate::api) gone: u64,
    /// How many jobs those that are not gone run at the same time.
    pub(in crate::api) slots: u64,
    /// Leases that they hold.
    pub(in crate::api) busy: u64,
}

/// Something that is wrong.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ProblemSeen)]
pub(in crate::api) struct ProblemView {
    /// The same for as long as it is the same problem.
    #[schema(example = "no_worker:images/resize_image")]
    key: String,
    /// What kind of problem it is; docs/operations.md lists them.
    #[schema(example = "no_worker")]
    code: &'static str,
    /// `red`: jobs do not run. `amber`: somebody should look. `note`: worth knowing.
    #[schema(example = "red", pattern = "^(red|amber|note)$")]
    pub(in crate::api) severity: &'static str,
    subject: SubjectView,
    /// Since when; null: not known.
    #[schema(required)]
    since: Option<Timestamp>,
    /// A sentence with its numbers.
    says: String,
    /// Where the dashboard shows more.
    #[schema(example = "/ui/workers")]
    see: String,
    /// What is usually done about it.
    #[serde(rename = "do")]
    remedies: Vec<RemedyView>,
    /// It is known, and is to be left aside until then.
    #[schema(required)]
    snoozed_until: Option<Timestamp>,
}

/// What a problem is about; only what applies.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ProblemSubject)]
struct SubjectView {
    #[serde(skip_serializing_if = "Option::is_none")]
    queue: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    worker: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    schedule: Option<String>,
    /// A fingerprint.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    /// The scope of a limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    job: Option<String>,
}

/// A call of this API.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Remedy)]
struct RemedyView {
    #[schema(example = "pause images")]
    says: String,
    #[schema(example = "POST")]
    method: &'static str,
    #[schema(example = "/queues/images/pause")]
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    body: Option<Value>,
}

impl From<Problem> for ProblemView {
    fn from(problem: Problem) -> Self {
        let Subject { queue, kind, worker, schedule, error, limit, job } = problem.subject;
        let remedies = problem.remedies.into_iter();
        Self {
            key: problem.key,
            code: problem.code.as_str(),
            severity: problem.severity.as_str(),
            subject: SubjectView { queue, kind, worker, schedule, error, limit, job },
            since: problem.since,
            says: problem.says,
            see: problem.see,
            remedies: remedies
                .map(|call| RemedyView { says: call.says, method: call.method, path: call.path, body: call.body })
                .collect(),
            snoozed_until: problem.snoozed_until,
        }
    }
}

/// What is going on with a kind.
#[derive(Debug, Default, Serialize, ToSchema)]
pub(in crate::api) struct KindActivity {
    /// Jobs in all queues.
    pub(in crate::api) counts: StatusCounts,
    pub(in crate::api) rates: FlowRates,
    /// Half of the attempts of the last hour ended within this time; null: none did.
    #[schema(required)]
    pub(in crate::api) run_p50_ms: Option<f64>,
    /// 95 of 100.
    #[schema(required)]
    pub(in crate::api) run_p95_ms: Option<f64>,
    /// The share of attempts of the last hour that failed, 0 to 1; null: none ended.
    #[schema(required)]
    pub(in crate::api) failed_ratio: Option<f64>,
    /// Live workers that ask for it.
    pub(in crate::api) workers: u64,
}

/// A declared kind, and what is going on with it.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ListedKind)]
pub(in crate::api) struct ListedKind {
    #[serde(flatten)]
    pub(in crate::api) kind: super::KindView,
    #[serde(flatten)]
    pub(in crate::api) activity: KindActivity,
}
