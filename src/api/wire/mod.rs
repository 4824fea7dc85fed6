//! The JSON of the API, apart from the types of the domain: what is read and written here is a promise to other
//! people's programs. Requests refuse fields they do not know; answers may grow.
//!
//! Nothing is decided here. Shapes and ranges only: the values are checked by [`job`](crate::job) and [`queue`](crate::queue).

mod audit;
mod errors;
mod explain;
mod hook;
mod integer;
mod job;
mod job_summary;
mod kind;
mod lease;
mod limits;
mod operation;
mod pulse;
mod queue;
mod schedule;
mod series;
mod session;
mod strict_json;
mod token;
mod unique;
mod worker;

pub(super) use audit::AuditView;
pub(super) use errors::{ErrorView, SnoozeDeclaration};
pub(super) use explain::{JobExplanation, QueueExplanation};
pub(super) use hook::{HookDeclaration, HookView};
pub(super) use integer::{Integer, duration, within};
pub(super) use job::{
    AttemptView, BatchResult, BatchResults, CancelAnswer, EnqueueReplay, JobBatch, JobSubmission, JobView, StatusName,
};
pub(super) use job_summary::ListedJob;
pub(super) use kind::{KindDeclaration, KindView, RetryDeclaration};
pub(super) use lease::{
    BeatReport, BeatView, Heartbeat, HeartbeatAnswer, LeaseRequest, LeaseView, Leases, OutcomeReport, ReportedOutcome,
    SettledView, Settlement, SettlementAnswer,
};
pub(super) use limits::{
    GroupSettingsDeclaration, GroupSettingsView, LimitView, QueueSettingsDeclaration, QueueSettingsView,
    RateDeclaration, RateView, limits,
};
pub(super) use operation::{
    FilterText, OperationPatch, OperationPreview, OperationPreviewRequest, OperationStateName, OperationSubmission,
    OperationView,
};
pub(super) use pulse::{
    DueView, FlowRates, KindActivity, ListedKind, ListedQueue, ProblemView, PulseQueue, PulseShape, PulseView,
    QueueActivity, QueueWorkers, WorkerCounts,
};
pub(super) use queue::{QueueView, RatesView, StatsView, StatusCounts};
pub(super) use schedule::{
    Preview, PreviewRequest, RunRequest, RunView, ScheduleDeclaration, ScheduleStateName, ScheduleView, TickView,
};
pub(super) use series::SeriesView;
pub(super) use session::{NewSession, SessionView};
pub(super) use strict_json::{Nul, check_json};
pub(super) use token::{NewToken, TokenMade, TokenView};
pub(super) use worker::{WorkerDetailView, WorkerInfoReport, WorkerView};

use serde::Serialize;
use utoipa::ToSchema;

/// What is wrong with one item of a list.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(super) struct ItemError {
    /// Its index, counted from 0.
    #[schema(example = 3)]
    pub(super) index: usize,
    /// What is wrong.
    pub(super) detail: String,
}

/// An error, as RFC 9457 wants it.
#[derive(Serialize, ToSchema)]
#[schema(as = Problem, example = json!({
    "type": "urn:steadfast:problem:unknown_kind", "title": "nobody declared this kind", "status": 422,
    "detail": "kind \"welcom\" is not declared (did you mean welcome?)", "code": "unknown_kind",
    "request_id": "0198c0de-0000-7000-8000-000000000000"
}))]
pub(super) struct ProblemShape {
    /// Names the problem; the code as a URN.
    r#type: String,
    /// The same for every problem of this type.
    title: String,
    /// The HTTP status.
    status: u16,
    /// What happened this time, and the way out.
    detail: String,
    /// A stable word for programs.
    code: String,
    /// Find it again in the server's log.
    request_id: String,
    /// For batches: which items are at fault.
    #[serde(skip_serializing_if = "Option::is_none")]
    errors: Option<Vec<ItemError>>,
}

/// Says that all is well.
#[derive(Serialize, ToSchema)]
pub(super) struct Health {
    /// `ok`.
    #[schema(example = "ok")]
    pub(super) status: &'static str,
}
