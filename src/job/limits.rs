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

/// 64 characters: a name that a handler gives to a group of errors.
pub const ERROR_GROUP_MAX_CHARS: usize = 64;
/// 10,000 groups of errors, each counted per queue; beyond that, errors of a kind are counted together.
pub const ERROR_GROUPS_MAX: usize = 10_000;
/// 500 characters: a few lines from one operator to the next.
pub const SNOOZE_NOTE_MAX_CHARS: usize = 500;
/// 1 year: what is to be ignored for longer is not an error.
pub const SNOOZE_MAX: Duration = Duration::from_secs(365 * 24 * 3600);
/// 20 queues of a group of errors are shown, those with the most dead letters.
pub const ERROR_QUEUES_SHOWN_MAX: usize = 20;
/// 90 days: a group of errors without dead letters is forgotten when it was last seen so long ago.
pub const ERROR_GROUP_KEPT: Duration = Duration::from_secs(90 * 24 * 3600);

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
/// 1 min: a token that ends sooner is a mistake in the unit.
pub const TOKEN_LIFETIME_MIN: Duration = Duration::from_secs(60);
/// 10 years: longer than anybody remembers what it was for.
pub const TOKEN_LIFETIME_MAX: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
/// 30 days after it has expired a token is removed: until then its holders are told that it expired.
pub const EXPIRED_TOKEN_KEPT: Duration = Duration::from_secs(30 * 24 * 3600);
/// 1 h: the last use of a token is written at most this often.
pub const TOKEN_USE_INTERVAL: Duration = Duration::from_secs(3600);
/// 100 sessions of one token, in as many browsers; one more ends the oldest.
pub const SESSIONS_MAX: usize = 100;
/// 12 h without a request end a session: a night.
pub const SESSION_IDLE: Duration = Duration::from_secs(12 * 3600);
/// 7 days end it in any case.
pub const SESSION_LIFETIME: Duration = Duration::from_secs(7 * 24 * 3600);
/// 5 min: that a session is used is written at most this often. It may end so much too early, of 12 h.
pub const SESSION_USE_INTERVAL: Duration = Duration::from_secs(300);
/// 1,000 tokens and sessions whose use is written, or that are removed, in one statement.
pub const TOKEN_BATCH_MAX: usize = 1000;

/// 10,000 workers are kept in mind, by a process and by a store: more than a database has connections for, and few enough
/// to read all of them.
pub const WORKERS_MAX: usize = 10_000;
/// 200 workers on one page of a listing.
pub const WORKERS_PAGE_MAX: usize = 200;
/// 1,000 jobs of one worker are shown.
pub const WORKER_JOBS_MAX: usize = 1000;

/// 48 h of minutes: yesterday can be compared with today.
pub const SERIES_MINUTES_KEPT: Duration = Duration::from_secs(48 * 3600);
/// 90 days of hours: a quarter.
pub const SERIES_HOURS_KEPT: Duration = Duration::from_secs(90 * 24 * 3600);
/// 100 pairs of queue and kind have series of their own in one minute and process; the others are in the totals only.
pub const SERIES_KEYS_MAX: usize = 100;
/// 1,500 points in one answer: a day of minutes, two months of hours.
pub const SERIES_POINTS_MAX: usize = 1500;

/// 100,000 schedules: an hourly one for each of many tenants; all of them on one minute take some ten seconds to fire.
pub const SCHEDULES_MAX: u64 = 100_000;
/// 200 schedules on one page of a listing.
pub const SCHEDULES_PAGE_MAX: usize = 200;
/// 100 ticks are remembered for each schedule, the newest.
pub const TICKS_KEPT: usize = 100;
/// 1 s: the shortest interval of a schedule.
pub const EVERY_MIN: Duration = Duration::from_secs(1);
/// 60 s: a tick that is found later than this is missed, and catch-up says what becomes of it.
pub const TICK_LATE: Duration = Duration::from_secs(60);
/// 100 missed ticks at most are made up for at once, unless the schedule says otherwise.
pub const CATCH_UP_DEFAULT: u32 = 100;
/// 1,000 missed ticks at most, as many jobs as fit one transaction.
pub const CATCH_UP_MAX: u32 = BATCH_MAX as u32;
/// 1 day: older missed ticks are not made up for, unless the schedule says otherwise.
pub const CATCH_UP_WINDOW_DEFAULT: Duration = Duration::from_secs(24 * 3600);
/// 1 year.
pub const CATCH_UP_WINDOW_MAX: Duration = Duration::from_secs(365 * 24 * 3600);
/// 1 day: what is spread over more is a schedule of its own.
pub const JITTER_MAX: Duration = Duration::from_secs(24 * 3600);
/// 256 bytes of cron pattern: every field fully listed fits.
pub const PATTERN_MAX_BYTES: usize = 256;
/// 100 runs in a preview.
pub const PREVIEW_MAX: usize = 100;

/// 100 hooks: each event is compared with all of them, and every process keeps them in memory.
pub const HOOKS_MAX: usize = 100;
/// 100 kinds, and as many queues, in the filter of a hook.
pub const HOOK_FILTER_MAX: usize = 100;
/// 4 secrets of a hook: two that are being exchanged, for two receivers.
pub const HOOK_SECRETS_MAX: usize = 4;
/// 2,048 bytes of URL, as for webhooks.
pub const HOOK_URL_MAX_BYTES: usize = 2048;
/// 12 attempts of a delivery: about five days by the retries of webhooks.
pub const DELIVERY_ATTEMPTS: u32 = 12;
/// 50 deliveries in a row that failed permanently pause their hook: nobody is there.
pub const HOOK_DEAD_MAX: u32 = 50;
/// 500 events become deliveries in one transaction.
pub const OUTBOX_BATCH_MAX: usize = 500;
/// 512 bytes of `tracestate`, as much as the specification asks to be passed on.
pub const TRACESTATE_MAX_BYTES: usize = 512;

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
