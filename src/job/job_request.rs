//! What a producer asks for: a request to enqueue a job, as it was given. Nothing of it is checked here; see
//! [`NewJob`](super::NewJob).

use jiff::Timestamp;

use super::{Json, TraceContext, Unique};

/// A request to enqueue a job of any declared kind, not validated yet. Only `kind` and `payload` are required.
///
/// For jobs that are Rust types, [`Queue::enqueue`](crate::Queue::enqueue) is shorter.
///
/// ```
/// use serde_json::json;
/// use steadfast::{JobRequest, Json};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let request = JobRequest::new("welcome", Json::of(&json!({ "user": 42 }))?)
///     .queue("mail")
///     .delay_ms(60_000)
///     .idempotency_key("welcome-42");
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct JobRequest {
    /// The kind, which selects the handler.
    pub kind: String,
    /// The handler's input.
    pub payload: Json,
    /// The queue; the kind's default, else `default`.
    pub queue: Option<String>,
    /// −100 to 100, higher runs first; the kind's default, else 0.
    pub priority: Option<i64>,
    /// How many attempts may count, at least 1; the kind's default, else 3.
    pub max_attempts: Option<i64>,
    /// Earliest start; a time in the past means now. Excludes `delay_ms`.
    pub run_at: Option<Timestamp>,
    /// Earliest start, from now. Excludes `run_at`.
    pub delay_ms: Option<i64>,
    /// Timeout of one attempt; the kind's default, else none.
    pub timeout_ms: Option<i64>,
    /// The same key again, with the same kind and payload, answers with the job it was first used for.
    pub idempotency_key: Option<String>,
    /// Which group of its queue it belongs to.
    pub group_key: Option<String>,
    /// How much of a rate it uses, 1 to 1,000,000; 1 if absent.
    pub cost: Option<i64>,
    /// Not started by then: it is cancelled. Excludes `start_within_ms`.
    pub start_by: Option<Timestamp>,
    /// Not started within this time from now: it is cancelled. Excludes `start_by`.
    pub start_within_ms: Option<i64>,
    /// At most one job with its key waits, or is unfinished.
    pub unique: Option<Unique>,
    /// The hook that is told of its end, whatever that hook's filter is.
    pub notify: Option<String>,
    /// The trace that it is enqueued in.
    pub trace: Option<TraceContext>,
}

impl JobRequest {
    /// A request with every option left to the kind's defaults.
    pub fn new(kind: impl Into<String>, payload: Json) -> Self {
        Self {
            kind: kind.into(),
            payload,
            queue: None,
            priority: None,
            max_attempts: None,
            run_at: None,
            delay_ms: None,
            timeout_ms: None,
            idempotency_key: None,
            group_key: None,
            cost: None,
            start_by: None,
            start_within_ms: None,
            unique: None,
            notify: None,
            trace: None,
        }
    }

    /// Sets the queue.
    pub fn queue(mut self, queue: impl Into<String>) -> Self {
        self.queue = Some(queue.into());
        self
    }

    /// Sets the priority, −100 to 100; higher runs first.
    pub fn priority(mut self, priority: i64) -> Self {
        self.priority = Some(priority);
        self
    }

    /// Sets how many attempts may count.
    pub fn max_attempts(mut self, attempts: i64) -> Self {
        self.max_attempts = Some(attempts);
        self
    }

    /// Sets the earliest start.
    pub fn run_at(mut self, time: Timestamp) -> Self {
        self.run_at = Some(time);
        self
    }

    /// Sets the earliest start, in milliseconds from now.
    pub fn delay_ms(mut self, ms: i64) -> Self {
        self.delay_ms = Some(ms);
        self
    }

    /// Sets the timeout of one attempt.
    pub fn timeout_ms(mut self, ms: i64) -> Self {
        self.timeout_ms = Some(ms);
        self
    }

    /// Sets the idempotency key: enqueued once, however often it is sent with this key.
    pub fn idempotency_key(mut self, key: impl Into<String>) -> Self {
        self.idempotency_key = Some(key.into());
        self
    }

    /// Sets the group of its queue that it belongs to.
    pub fn group_key(mut self, key: impl Into<String>) -> Self {
        self.group_key = Some(key.into());
        self
    }

    /// Sets how much of a rate it uses.
    pub fn cost(mut self, cost: i64) -> Self {
        self.cost = Some(cost);
        self
    }

    /// Sets the time by which it must have started.
    pub fn start_by(mut self, time: Timestamp) -> Self {
        self.start_by = Some(time);
        self
    }

    /// Sets within which time from now it must have started.
    pub fn start_within_ms(mut self, ms: i64) -> Self {
        self.start_within_ms = Some(ms);
        self
    }

    /// Makes it unique.
    pub fn unique(mut self, unique: Unique) -> Self {
        self.unique = Some(unique);
        self
    }

    /// Sets the hook that is told of its end.
    pub fn notify(mut self, hook: impl Into<String>) -> Self {
        self.notify = Some(hook.into());
        self
    }

    /// Sets the trace that it is enqueued in.
    pub fn trace(mut self, trace: Option<TraceContext>) -> Self {
        self.trace = trace;
        self
    }
}
