//! A job as it is stored.

use jiff::Timestamp;

use super::{
    Fingerprint, GroupKey, HookName, JobId, Json, Kind, Progress, QueueName, Status, TraceContext, Unique, WorkerId,
};

/// One job with everything that is stored about it. [`Queue::get`](crate::Queue::get) and every listing answer with it.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct JobRecord {
    /// The job's id.
    pub id: JobId,
    /// The kind, which selects the handler.
    pub kind: Kind,
    /// The queue it waits in.
    pub queue: QueueName,
    /// The handler's input.
    pub payload: Json,
    /// The job's status.
    pub status: Status,
    /// −100 to 100; higher runs first.
    pub priority: i16,
    /// Attempts that count: starts without releases and snoozes, from 0 again after a redrive.
    pub attempts: u32,
    /// How many attempts may count.
    pub max_attempts: u32,
    /// Earliest (next) start.
    pub run_at: Timestamp,
    /// Timeout of one attempt, counted from its start.
    pub timeout_ms: Option<u64>,
    /// Enqueueing the same kind and payload with this key again answers with this job.
    pub idempotency_key: Option<String>,
    /// The group of its queue that it belongs to.
    pub group_key: Option<GroupKey>,
    /// How much of a rate it uses; `None` counts as 1.
    pub cost: Option<u32>,
    /// It is cancelled if it has not started by then. Cleared by a redrive.
    pub start_by: Option<Timestamp>,
    /// How it was enqueued as unique. Its key may be free again.
    pub unique: Option<Unique>,
    /// The hook that its producer wants to be told of its end, whatever that hook's filter is.
    pub notify: Option<HookName>,
    /// The trace that it was enqueued in.
    pub trace: Option<TraceContext>,
    /// Cancellation was requested while it ran.
    pub cancel_requested: bool,
    /// The worker that holds the lease; only while it runs.
    pub locked_by: Option<WorkerId>,
    /// When it was claimed; only while it runs.
    pub locked_at: Option<Timestamp>,
    /// When the lease expires without another heartbeat; only while it runs.
    pub lease_expires_at: Option<Timestamp>,
    /// The newest error; kept after a later success.
    pub last_error: Option<String>,
    /// The group of the error that ended it; only while it is a dead letter that failed.
    pub error_group: Option<Fingerprint>,
    /// The result that the handler returned.
    pub result: Option<Json>,
    /// The progress that the handler reported last.
    pub progress: Option<Progress>,
    /// When it was enqueued.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
    /// Start of the newest attempt.
    pub started_at: Option<Timestamp>,
    /// When it reached a terminal status.
    pub finished_at: Option<Timestamp>,
}

impl JobRecord {
    /// How long its texts are: payload, result and last error.
    pub(crate) fn text_bytes(&self) -> usize {
        let result = self.result.as_ref().map_or(0, |result| result.as_str().len());
        self.payload.as_str().len() + result + self.last_error.as_ref().map_or(0, String::len)
    }
}
