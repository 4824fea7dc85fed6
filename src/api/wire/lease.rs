//! The worker protocol: leases, heartbeats and settles. Durations, never instants.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;
use uuid::Uuid;

use super::{Integer, JobView, WorkerInfoReport};

/// Which jobs a worker wants.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"worker": "host-1", "queues": ["default"], "max": 10, "lease_ms": 30000, "wait_ms": 0}))]
pub(in crate::api) struct LeaseRequest {
    /// Who is asking; a name of its own for every process.
    #[schema(pattern = "^[a-z0-9_.:-]{1,64}$")]
    pub(in crate::api) worker: String,
    /// From these queues; omitted: from every queue that is not paused.
    #[schema(min_items = 1, max_items = 1000)]
    pub(in crate::api) queues: Option<Vec<String>>,
    /// Of these kinds; omitted: of every kind.
    #[schema(min_items = 1, max_items = 1000)]
    pub(in crate::api) kinds: Option<Vec<String>>,
    /// At most this many; 1 by default.
    #[schema(value_type = Option<i64>, minimum = 1, maximum = 1000)]
    pub(in crate::api) max: Option<Integer>,
    /// How long a lease lasts without a heartbeat; what the server is set to (`STEADFAST_LEASE_MS`) by default.
    #[schema(value_type = Option<i64>, minimum = 1000, maximum = 3600000)]
    pub(in crate::api) lease_ms: Option<Integer>,
    /// How long to wait for a job if there is none; 0 by default.
    #[schema(value_type = Option<i64>, minimum = 0, maximum = 30000)]
    pub(in crate::api) wait_ms: Option<Integer>,
    /// What operators see of this worker. May be sent with every request, or with the first.
    pub(in crate::api) info: Option<WorkerInfoReport>,
}

/// What was leased; empty if there was nothing in time.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::api) struct Leases {
    pub(in crate::api) leases: Vec<LeaseView>,
}

/// The right to run one job for a while.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Lease)]
pub(in crate::api) struct LeaseView {
    /// Shown with every heartbeat and settle. Opaque, and a secret.
    pub(in crate::api) lease_token: String,
    /// How long it lasts without a heartbeat.
    pub(in crate::api) lease_ms: u64,
    /// Which attempt this is.
    pub(in crate::api) attempt: u32,
    pub(in crate::api) job: JobView,
}

/// Leases to be extended.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::api) struct Heartbeat {
    /// Who holds them.
    #[schema(pattern = "^[a-z0-9_.:-]{1,64}$")]
    pub(in crate::api) worker: String,
    /// The leases.
    #[schema(max_items = 1000)]
    pub(in crate::api) leases: Vec<BeatReport>,
    /// From now for this long; omitted: as long as each was claimed for.
    #[schema(value_type = Option<i64>, minimum = 1000, maximum = 3600000)]
    pub(in crate::api) lease_ms: Option<Integer>,
}

/// One lease's heartbeat.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Beat)]
pub(in crate::api) struct BeatReport {
    /// The job.
    pub(in crate::api) job_id: Uuid,
    /// Its lease's token.
    pub(in crate::api) lease_token: String,
    /// How far it is.
    pub(in crate::api) progress: Option<ProgressReport>,
}

/// A percentage, a message, or both.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::api) struct ProgressReport {
    /// 0 to 100.
    #[schema(value_type = Option<i64>, minimum = 0, maximum = 100)]
    pub(in crate::api) percent: Option<Integer>,
    /// A line for a person; cut at 1 KiB.
    pub(in crate::api) message: Option<String>,
}

/// What the worker should do.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::api) struct HeartbeatAnswer {
    /// `run`, or `drain`: finish what you have. An operator wants the worker to stop, or this server is going away.
    #[schema(example = "run", pattern = "^(run|drain)$")]
    pub(in crate::api) worker: &'static str,
    /// In the order sent.
    pub(in crate::api) leases: Vec<BeatView>,
}

/// One lease.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = BeatAnswer)]
pub(in crate::api) struct BeatView {
    pub(in crate::api) job_id: Uuid,
    /// `ok`: go on. `cancel`: stop the work, then settle. `lost`: it is not yours any more.
    #[schema(example = "ok", pattern = "^(ok|cancel|lost)$")]
    pub(in crate::api) status: &'static str,
}

/// How attempts went.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::api) struct Settlement {
    /// Who ran them.
    #[schema(pattern = "^[a-z0-9_.:-]{1,64}$")]
    pub(in crate::api) worker: String,
    /// One for each.
    #[schema(max_items = 1000)]
    pub(in crate::api) outcomes: Vec<OutcomeReport>,
}

/// How one attempt went.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::api) struct OutcomeReport {
    /// The job.
    pub(in crate::api) job_id: Uuid,
    /// Its lease's token.
    pub(in crate::api) lease_token: String,
    pub(in crate::api) outcome: ReportedOutcome,
    /// With `succeeded`: what the job produced; at most 256 KiB.
    #[schema(value_type = Value)]
    pub(in crate::api) result: Option<Box<RawValue>>,
    /// With `failed`: what went wrong; cut at 16 KiB.
    pub(in crate::api) error: Option<String>,
    /// With `failed`: groups dead letters by this name of the cause, like `smtp-451`, instead of by the text of the error.
    #[schema(min_length = 1, max_length = 64)]
    pub(in crate::api) error_group: Option<String>,
    /// With `failed`: trying again cannot help.
    pub(in crate::api) permanent: Option<bool>,
    /// With `failed`: try again after exactly this long.
    #[schema(value_type = Option<i64>, minimum = 0)]
    pub(in crate::api) retry_after_ms: Option<Integer>,
    /// With `snoozed`: start again after this long.
    #[schema(value_type = Option<i64>, minimum = 0)]
    pub(in crate::api) delay_ms: Option<Integer>,
}

/// What a worker can report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = Outcome)]
pub(in crate::api) enum ReportedOutcome {
    /// The work is done.
    Succeeded,
    /// The work failed.
    Failed,
    /// It stopped because cancellation was requested.
    Cancelled,
    /// Not finished and not at fault: back to the queue at once.
    Released,
    /// Not now: start again after `delay_ms`.
    Snoozed,
}

/// What became of each, in the order sent.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::api) struct SettlementAnswer {
    pub(in crate::api) outcomes: Vec<SettledView>,
}

/// One attempt.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Settled)]
pub(in crate::api) struct SettledView {
    pub(in crate::api) job_id: Uuid,
    /// `recorded`: it counts. `lost`: the lease was not yours any more, nothing was changed.
    #[schema(example = "recorded", pattern = "^(recorded|lost)$")]
    pub(in crate::api) status: &'static str,
}
