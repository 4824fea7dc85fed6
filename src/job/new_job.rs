//! From a request to a job that can be stored: everything is validated here, once, and then carried by the type.

use std::ops::RangeInclusive;
use std::time::Duration;

use jiff::Timestamp;

use super::limits::{
    IDEMPOTENCY_KEY_MAX_CHARS, MAX_ATTEMPTS_MAX, PRIORITY_MAX, PRIORITY_MIN, RESERVED_KEY_PREFIXES, SCHEDULE_HORIZON,
    TIMEOUT_MAX,
};
use super::start_options::StartOptions;
use super::{
    GroupKey, HookName, JobId, JobRecord, JobRequest, Json, Kind, KindDefaults, Limits, NotAName, QueueName,
    RequestDigest, StartBy, Status, TraceContext, Unique, Watch,
};

/// When a new job may start. The store turns it into a time by its own clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Start {
    /// At once.
    Now,
    /// Not before this time.
    At(Timestamp),
    /// Not before this long after it was accepted.
    After(Duration),
}

/// A validated job with its id, ready to be stored.
#[derive(Debug, Clone)]
pub struct NewJob {
    id: JobId,
    kind: Kind,
    queue: QueueName,
    payload: Json,
    priority: i16,
    max_attempts: u32,
    start: Start,
    timeout_ms: Option<u64>,
    idempotency_key: Option<IdempotencyKey>,
    options: StartOptions,
    watch: Watch,
    trace: Option<TraceContext>,
}

/// An idempotency key and the digest of the request it stands for.
#[derive(Debug, Clone)]
struct IdempotencyKey {
    text: String,
    digest: RequestDigest,
}

/// Why a request is not valid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The kind or the queue is not a valid name.
    #[error(transparent)]
    Name(#[from] NotAName),
    /// A value is out of range or malformed.
    #[error("{field} {reason}")]
    #[non_exhaustive]
    Value {
        /// Which field.
        field: &'static str,
        /// What is wrong, and what is allowed.
        reason: String,
    },
    /// The payload is over the limit.
    #[error("payload is {bytes} bytes, the limit is {limit}: keep large data elsewhere and send a reference to it")]
    #[non_exhaustive]
    PayloadTooLarge {
        /// Its size.
        bytes: usize,
        /// The limit in force.
        limit: usize,
    },
}

impl NewJob {
    /// Validates a request. `now` is only used for the five-year horizon; what is due is decided by the store.
    pub fn new(request: JobRequest, defaults: &KindDefaults, limits: &Limits, now: Timestamp) -> Result<Self, Refusal> {
        if let Some(key) = &request.idempotency_key {
            refuse_reserved(key)?;
        }
        Self::with_any_key(request, defaults, limits, now)
    }

    /// As [`new`](Self::new), for jobs that this crate enqueues by itself: their keys may have a reserved prefix.
    pub(crate) fn with_any_key(
        request: JobRequest,
        defaults: &KindDefaults,
        limits: &Limits,
        now: Timestamp,
    ) -> Result<Self, Refusal> {
        let kind = Kind::new(&request.kind)?;
        let queue = match &request.queue {
            Some(name) => QueueName::new(name)?,
            None => defaults.queue.clone().unwrap_or_default(),
        };
        let bytes = request.payload.as_str().len();
        if bytes > limits.payload_max_bytes {
            return Err(Refusal::PayloadTooLarge { bytes, limit: limits.payload_max_bytes });
        }
        let priority = within("priority", request.priority, PRIORITY_MIN.into()..=PRIORITY_MAX.into())?;
        let max_attempts = within("max_attempts", request.max_attempts, 1..=MAX_ATTEMPTS_MAX.into())?;
        let timeout_ms = within("timeout_ms", request.timeout_ms, 1..=TIMEOUT_MAX.as_millis() as i64)?;
        let start = start(request.run_at, request.delay_ms, now)?;
        let options = StartOptions::of(&request, start, now)?;
        let idempotency_key = match request.idempotency_key {
            Some(text) => {
                Some(IdempotencyKey { text: checked_key(text)?, digest: RequestDigest::of(&kind, &request.payload) })
            }
            None => None,
        };
        Ok(Self {
            id: JobId::new(),
            kind,
            queue,
            start,
            payload: request.payload,
            priority: priority.map(|p| p as i16).or(defaults.priority).unwrap_or(0),
            max_attempts: max_attempts
                .map(|n| n as u32)
                .or(defaults.max_attempts)
                .unwrap_or(limits.max_attempts_default.clamp(1, MAX_ATTEMPTS_MAX)),
            timeout_ms: timeout_ms.map(|ms| ms as u64).or(defaults.timeout_ms),
            idempotency_key,
            options,
            watch: Watch::Nobody,
            trace: request.trace,
        })
    }

    /// The id it will have, unless its idempotency key is in use already.
    pub fn id(&self) -> JobId {
        self.id
    }

    /// The kind, which selects the handler.
    pub fn kind(&self) -> &Kind {
        &self.kind
    }

    /// The queue it will wait in.
    pub fn queue(&self) -> &QueueName {
        &self.queue
    }

    /// The handler's input.
    pub fn payload(&self) -> &Json {
        &self.payload
    }

    /// −100 to 100; higher runs first.
    pub fn priority(&self) -> i16 {
        self.priority
    }

    /// How many attempts may count.
    pub fn max_attempts(&self) -> u32 {
        self.max_attempts
    }

    /// When it may start.
    pub fn start(&self) -> Start {
        self.start
    }

    /// Timeout of one attempt.
    pub fn timeout_ms(&self) -> Option<u64> {
        self.timeout_ms
    }

    /// The idempotency key, if it has one.
    pub fn idempotency_key(&self) -> Option<&str> {
        self.idempotency_key.as_ref().map(|key| &*key.text)
    }

    /// The group of its queue that it belongs to, if it has one.
    pub fn group_key(&self) -> Option<&GroupKey> {
        self.options.group_key.as_ref()
    }

    /// How much of a rate it uses; `None` counts as 1.
    pub fn cost(&self) -> Option<u32> {
        self.options.cost
    }

    /// By when it must have started.
    pub fn start_by(&self) -> Option<StartBy> {
        self.options.start_by
    }

    /// How it is unique, if it is.
    pub fn unique(&self) -> Option<&Unique> {
        self.options.unique.as_ref()
    }

    /// Who hears of its end.
    pub fn watch(&self) -> &Watch {
        &self.watch
    }

    /// The same, watched. [`Queue`](crate::Queue) decides that by itself: it knows the hooks.
    pub fn watched(self, watch: Watch) -> Self {
        Self { watch, ..self }
    }

    /// The hook that its producer named.
    pub fn notify(&self) -> Option<&HookName> {
        match &self.watch {
            Watch::Hooks(named) => named.as_ref(),
            Watch::Nobody | Watch::Delivery => None,
        }
    }

    /// The trace that it is enqueued in.
    pub fn trace(&self) -> Option<&TraceContext> {
        self.trace.as_ref()
    }

    /// Whether it has neither a group nor a cost, a deadline, a unique key or a trace, and nobody watches it.
    pub fn is_plain(&self) -> bool {
        self.options.is_plain() && self.watch == Watch::Nobody && self.trace.is_none()
    }

    /// Digest of kind and payload, which its idempotency key stands for; `None` without a key.
    pub fn request_digest(&self) -> Option<RequestDigest> {
        self.idempotency_key.as_ref().map(|key| key.digest)
    }

    /// The record that a read finds once it is stored; stores answer an enqueue with it without reading.
    pub fn as_stored(&self, run_at: Timestamp, created_at: Timestamp) -> JobRecord {
        JobRecord {
            id: self.id,
            kind: self.kind.clone(),
            queue: self.queue.clone(),
            payload: self.payload.clone(),
            status: Status::Queued,
            priority: self.priority,
            attempts: 0,
            max_attempts: self.max_attempts,
            run_at,
            timeout_ms: self.timeout_ms,
            idempotency_key: self.idempotency_key.as_ref().map(|key| key.text.clone()),
            group_key: self.options.group_key.clone(),
            cost: self.options.cost,
            start_by: self.options.start_by.map(|by| by.time(created_at)),
            unique: self.options.unique.clone(),
            notify: self.notify().cloned(),
            trace: self.trace.clone(),
            cancel_requested: false,
            locked_by: None,
            locked_at: None,
            lease_expires_at: None,
            last_error: None,
            error_group: None,
            result: None,
            progress: None,
            created_at,
            updated_at: created_at,
            started_at: None,
            finished_at: None,
        }
    }
}

pub(super) fn within(
    field: &'static str,
    value: Option<i64>,
    range: RangeInclusive<i64>,
) -> Result<Option<i64>, Refusal> {
    match value {
        Some(value) if !range.contains(&value) => {
            let reason = format!("{value} is out of range: use {} to {}", range.start(), range.end());
            Err(Refusal::Value { field, reason })
        }
        other => Ok(other),
    }
}

fn start(run_at: Option<Timestamp>, delay_ms: Option<i64>, now: Timestamp) -> Result<Start, Refusal> {
    match (run_at, delay_ms) {
        (Some(_), Some(_)) => {
            Err(Refusal::Value { field: "run_at", reason: "and delay_ms exclude each other: send one of them".into() })
        }
        (Some(at), None) if at.duration_since(now).as_secs() > SCHEDULE_HORIZON.as_secs() as i64 => {
            Err(Refusal::Value { field: "run_at", reason: format!("{at} is more than five years ahead") })
        }
        (Some(at), None) => Ok(Start::At(at)),
        (None, Some(_)) => {
            let ms = within("delay_ms", delay_ms, 0..=SCHEDULE_HORIZON.as_millis() as i64)?.unwrap_or(0);
            Ok(Start::After(Duration::from_millis(ms as u64)))
        }
        (None, None) => Ok(Start::Now),
    }
}

/// With a key like that, a caller could take the place of a job that Steadfast is about to enqueue.
fn refuse_reserved(key: &str) -> Result<(), Refusal> {
    let Some(prefix) = RESERVED_KEY_PREFIXES.into_iter().find(|prefix| key.starts_with(prefix)) else {
        return Ok(());
    };
    let reason = format!("begins with {prefix:?}, which is reserved for Steadfast's own jobs: use another prefix");
    Err(Refusal::Value { field: "idempotency_key", reason })
}

fn checked_key(key: String) -> Result<String, Refusal> {
    let reason = if key.is_empty() {
        "is empty: leave it out, or send 1 to 255 characters"
    } else if key.chars().nth(IDEMPOTENCY_KEY_MAX_CHARS).is_some() {
        "is longer than 255 characters"
    } else if key.chars().any(char::is_control) {
        "contains a control character: leave it out"
    } else {
        return Ok(key);
    };
    Err(Refusal::Value { field: "idempotency_key", reason: reason.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        "2030-01-01T00:00:00Z".parse().unwrap()
    }

    fn check(change: impl FnOnce(&mut JobRequest)) -> Result<NewJob, Refusal> {
        let mut request = JobRequest::new("welcome", Json::null());
        change(&mut request);
        NewJob::new(request, &KindDefaults::default(), &Limits::default(), now())
    }

    fn refused(change: impl FnOnce(&mut JobRequest)) -> String {
        check(change).unwrap_err().to_string()
    }

    #[test]
    fn a_bare_request_gets_the_defaults() {
        let job = check(|_| ()).unwrap();
        assert_eq!((job.queue().as_str(), job.priority(), job.max_attempts()), ("default", 0, 3));
        assert_eq!((job.start(), job.timeout_ms(), job.idempotency_key()), (Start::Now, None, None));
    }

    #[test]
    fn the_kinds_defaults_apply_where_the_caller_says_nothing() {
        let defaults = KindDefaults {
            queue: Some(QueueName::new("mail").unwrap()),
            priority: Some(7),
            max_attempts: Some(9),
            timeout_ms: Some(1_000),
            retry: None,
        };
        let build = |request| NewJob::new(request, &defaults, &Limits::default(), now()).unwrap();
        let job = build(JobRequest::new("welcome", Json::null()));
        assert_eq!(
            (job.queue().as_str(), job.priority(), job.max_attempts(), job.timeout_ms()),
            ("mail", 7, 9, Some(1_000))
        );
        let said =
            JobRequest { queue: Some("q".into()), priority: Some(0), ..JobRequest::new("welcome", Json::null()) };
        assert_eq!((build(said.clone()).queue().as_str(), build(said).priority()), ("q", 0));
    }

    #[test]
    fn values_out_of_range_are_refused_by_name_with_what_is_allowed() {
        assert!(refused(|r| r.priority = Some(101)).contains("priority 101 is out of range: use -100 to 100"));
        assert!(refused(|r| r.priority = Some(i64::MIN)).contains("priority"));
        assert!(refused(|r| r.max_attempts = Some(0)).contains("max_attempts 0 is out of range: use 1 to 10000"));
        assert!(refused(|r| r.max_attempts = Some(i32::MAX.into())).contains("max_attempts"));
        assert!(refused(|r| r.timeout_ms = Some(0)).contains("timeout_ms"));
        assert!(refused(|r| r.delay_ms = Some(-1)).contains("delay_ms"));
        assert!(refused(|r| r.kind = "No Such".into()).contains("kind \"No Such\""));
        assert!(refused(|r| r.queue = Some(String::new())).contains("queue"));
    }

    #[test]
    fn schedules_beyond_five_years_and_contradictions_are_refused() {
        assert_eq!(check(|r| r.run_at = Some(now())).unwrap().start(), Start::At(now()));
        let past = "1970-01-01T00:00:00Z".parse().unwrap();
        assert_eq!(check(|r| r.run_at = Some(past)).unwrap().start(), Start::At(past));
        assert!(refused(|r| r.run_at = Some("2035-06-01T00:00:00Z".parse().unwrap())).contains("five years"));
        assert!(refused(|r| r.delay_ms = Some(i64::MAX)).contains("delay_ms"));
        assert!(refused(|r| (r.run_at, r.delay_ms) = (Some(now()), Some(1))).contains("exclude each other"));
    }

    #[test]
    fn payloads_are_measured_in_bytes_of_json() {
        let payload = |bytes: usize| Json::parse(format!("\"{}\"", "x".repeat(bytes - 2))).unwrap();
        let limit = super::super::limits::PAYLOAD_MAX_BYTES;
        assert!(check(|r| r.payload = payload(limit)).is_ok());
        assert!(refused(|r| r.payload = payload(limit + 1)).contains("262145 bytes, the limit is 262144"));
    }

    #[test]
    fn prefixes_of_our_own_keys_are_refused_by_name_and_open_to_this_crate() {
        for (key, prefix) in [("schedule:nightly@1", "schedule:"), ("flow:", "flow:"), ("hook:a:1", "hook:")] {
            let said = refused(|r| r.idempotency_key = Some(key.into()));
            assert!(said.contains(prefix) && said.contains("use another prefix"), "{said}");
            let request = JobRequest::new("welcome", Json::null()).idempotency_key(key);
            let job = NewJob::with_any_key(request, &KindDefaults::default(), &Limits::default(), now()).unwrap();
            assert_eq!(job.idempotency_key(), Some(key));
        }
        for key in ["schedules:a", "Schedule:a", "my-flow:1", "hook"] {
            assert!(check(|r| r.idempotency_key = Some(key.into())).is_ok(), "{key}");
        }
    }

    #[test]
    fn keys_have_1_to_255_characters_and_no_control_characters() {
        assert!(check(|r| r.idempotency_key = Some("é".repeat(255))).is_ok());
        assert!(refused(|r| r.idempotency_key = Some("é".repeat(256))).contains("255"));
        assert!(refused(|r| r.idempotency_key = Some(String::new())).contains("empty"));
        for bad in ["a\0", "a\nb", "\u{7f}", "\u{9b}31m"] {
            assert!(refused(|r| r.idempotency_key = Some(bad.into())).contains("control character"), "{bad:?}");
        }
    }
}
