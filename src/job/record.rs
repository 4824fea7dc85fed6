//! A job as the store knows it.

use jiff::Timestamp;

use super::{JobId, Json, Kind, Progress, QueueName, Status, WorkerId};

/// Everything there is to see of one job.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct JobRecord {
    /// Its identity.
    pub id: JobId,
    /// Which handler runs it.
    pub kind: Kind,
    /// The lane it waits in.
    pub queue: QueueName,
    /// What the handler is given.
    pub payload: Json,
    /// Where it stands.
    pub status: Status,
    /// Higher runs first.
    pub priority: i16,
    /// Starts that count.
    pub attempts: u32,
    /// How many may count.
    pub max_attempts: u32,
    /// Earliest (next) start.
    pub run_at: Timestamp,
    /// Deadline of one attempt, counted from its start.
    pub timeout_ms: Option<u64>,
    /// Enqueueing with the same key again answers with this job.
    pub idempotency_key: Option<String>,
    /// Somebody asked for it to stop.
    pub cancel_requested: bool,
    /// Who runs it; only while it runs.
    pub locked_by: Option<WorkerId>,
    /// Since when; only while it runs.
    pub locked_at: Option<Timestamp>,
    /// Until when without a heartbeat; only while it runs.
    pub lease_expires_at: Option<Timestamp>,
    /// The newest error; kept after a later success.
    pub last_error: Option<String>,
    /// What the handler returned.
    pub result: Option<Json>,
    /// How far the handler says it is.
    pub progress: Option<Progress>,
    /// When it was accepted.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
    /// Start of the newest attempt.
    pub started_at: Option<Timestamp>,
    /// When it reached its end.
    pub finished_at: Option<Timestamp>,
}
