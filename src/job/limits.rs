//! Every limit on a job, in one place, each with its reason.

use std::time::Duration;

/// 64: long enough for `team.service:verb`, short enough for an index entry and a metric label.
pub const NAME_MAX_BYTES: usize = 64;

/// 256 KiB: a payload describes work, it does not carry it; larger things belong in a blob store.
pub const PAYLOAD_MAX_BYTES: usize = 256 * 1024;

/// 256 KiB, as for payloads. A larger result is recorded as a failure that says so.
pub const RESULT_MAX_BYTES: usize = 256 * 1024;

/// 16 KiB: a long stack trace. Longer error text is cut.
pub const ERROR_MAX_BYTES: usize = 16 * 1024;

/// 1 KiB: one line for a person to read.
pub const PROGRESS_MESSAGE_MAX_BYTES: usize = 1024;

/// 255 characters: fits a UUID, a hash or a URL path.
pub const IDEMPOTENCY_KEY_MAX_CHARS: usize = 255;

/// 255 characters, as for idempotency keys.
pub const GROUP_KEY_MAX_CHARS: usize = 255;
/// 1,000,000: as much as the largest rate allows in its period.
pub const COST_MAX: u32 = 1_000_000;

/// 1,000,000 live leases: more than a database keeps alive with heartbeats.
pub const CONCURRENCY_MAX: u32 = 1_000_000;
/// 1,000,000 starts in a rate's period.
pub const RATE_LIMIT_MAX: u32 = 1_000_000;
/// 1 day: what is spread over longer is a schedule.
pub const RATE_PER_MAX: Duration = Duration::from_secs(24 * 3600);
/// 10,000 starts at once: ten full batches.
pub const RATE_BURST_MAX: u32 = 10_000;
/// 100 turns for one of another group.
pub const WEIGHT_MAX: u32 = 100;
/// 10,000 queues, and as many groups, with settings of their own.
pub const SETTINGS_MAX: usize = 10_000;
/// 64 parts of a payload that a kind hides.
pub const HIDDEN_MAX: usize = 64;
/// 255 characters in the JSON pointer to one of them.
pub const HIDDEN_MAX_CHARS: usize = 255;

/// Lowest priority.
pub const PRIORITY_MIN: i16 = -100;
/// Highest priority; runs first.
pub const PRIORITY_MAX: i16 = 100;

/// 3: survives a dropped connection and a restart, does not hammer a service that is down.
pub const MAX_ATTEMPTS_DEFAULT: u32 = 3;
/// 10,000: about a week at the longest default backoff; far from any integer's end.
pub const MAX_ATTEMPTS_MAX: u32 = 10_000;

/// 30 days: longer work should be cut into jobs.
pub const TIMEOUT_MAX: Duration = Duration::from_secs(30 * 24 * 3600);

/// 5 years: anything later is a unit mistake (seconds taken for milliseconds and the like).
pub const SCHEDULE_HORIZON: Duration = Duration::from_secs(5 * 365 * 24 * 3600);

/// 1 s: below that, ordinary pauses of a machine look like crashes.
pub const LEASE_MIN: Duration = Duration::from_secs(1);
/// 1 h: a crashed worker's job waits at most this long. Longer jobs send heartbeats.
pub const LEASE_MAX: Duration = Duration::from_secs(3600);
/// 30 s: three missed heartbeats of 10 s.
pub const LEASE_DEFAULT: Duration = Duration::from_secs(30);

/// 1,000 items in one call of any batch verb: about what one commit handles in a few milliseconds.
pub const BATCH_MAX: usize = 1000;

/// 1,000 attempts are shown, the newest: a job that snoozes every second has many more.
pub const ATTEMPTS_SHOWN_MAX: usize = 1000;

/// 200 jobs on one page of a listing.
pub const PAGE_MAX: usize = 200;
/// 50 jobs on one page unless asked otherwise.
pub const PAGE_DEFAULT: usize = 50;

/// 1,000 queues on one page: with its counts about 200 KB of JSON.
pub const QUEUES_PAGE_MAX: usize = 1000;
/// 200 queues on one page unless asked otherwise: more than most servers have.
pub const QUEUES_PAGE_DEFAULT: usize = 200;

/// 10,000 queues in one store, unless the operator says otherwise: one per tenant of a large service. Counts are a few rows
/// per queue, so that adding all of them up stays a matter of milliseconds.
pub const QUEUES_MAX_DEFAULT: u64 = 10_000;
/// 1,000 declared kinds: every process keeps all of them in memory, with their schemas.
pub const KINDS_MAX: usize = 1000;
/// 1,000 API tokens: every process keeps all of them in memory.
pub const TOKENS_MAX: usize = 1000;

/// Prefixes of idempotency keys for jobs that Steadfast itself enqueues: the key of a caller cannot be one of them.
pub const RESERVED_KEY_PREFIXES: [&str; 3] = ["schedule:", "flow:", "hook:"];

/// The limits an operator may change.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Largest accepted payload, in bytes of JSON text.
    pub payload_max_bytes: usize,
    /// Attempts of a job for which neither the caller nor its kind says how many.
    pub max_attempts_default: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { payload_max_bytes: PAYLOAD_MAX_BYTES, max_attempts_default: MAX_ATTEMPTS_DEFAULT }
    }
}
