//! The server's own settings: the database, the API, workers, leases, retention, logs.

use super::rows;
use crate::server::settings::forms::{
    AddressOrOff, Choice, Concurrency, DatabaseUrl, FilePath, LogFilter, Millis, Names, Number, ON_OFF, SWITCH,
    SocketAddress, Span, Text, TokenText, WebAddress,
};
use crate::server::settings::kind_forms::BuiltInNames;
use crate::server::settings::setting::{Optional, Required, optional, required};
use crate::server::settings::typed::{Executor, LogFormat};

/// 1 s to 1 h, as for leases over HTTP.
const LEASE: &Millis = &Millis { min: 1_000, max: 3_600_000 };
/// 10 ms: below that, polling would be all a database does. 10 min: above it, nobody would know that it still runs.
const INTERVAL: &Millis = &Millis { min: 10, max: 600_000 };
/// 0: at once. 30 days: beyond that, nobody would call it a retry.
const RETRY_WAIT: &Millis = &Millis { min: 0, max: 2_592_000_000 };

const EXECUTORS: &Choice<Executor> =
    &Choice(&[("builtin", Executor::BuiltIn), ("simulated", Executor::Simulated), ("none", Executor::None)]);
const LOG_FORMATS: &Choice<LogFormat> = &Choice(&[("pretty", LogFormat::Pretty), ("json", LogFormat::Json)]);

rows! {
    CONFIG: Optional<FilePath> = optional(
        "config",
        "STEADFAST_CONFIG",
        &FilePath,
        "the TOML file; steadfast.toml where the program starts, if there is one",
    ).never_in_the_file();
    DATABASE_URL: Required<DatabaseUrl> = required(
        "database_url",
        "DATABASE_URL",
        "sqlite://steadfast.db",
        &DatabaseUrl,
        "where jobs live",
    );
    DATABASE_URL_FILE: Optional<FilePath> = optional(
        "database_url_file",
        "DATABASE_URL_FILE",
        &FilePath,
        "a file that holds the URL, for one with a password",
    );
    DATABASE_SCHEMA: Required<Text> = required(
        "database_schema",
        "STEADFAST_DATABASE_SCHEMA",
        "public",
        &Text,
        "PostgreSQL: the schema that holds the tables",
    );
    ALLOW_UNSAFE_SERVER_SETTINGS: Required<Choice<bool>> = required(
        "allow_unsafe_server_settings",
        "STEADFAST_ALLOW_UNSAFE_SERVER_SETTINGS",
        "false",
        SWITCH,
        "PostgreSQL: run although the server can lose what it acknowledged (fsync=off and the like)",
    );
    API_BIND_ADDR: Required<SocketAddress> = required(
        "api_bind_addr",
        "API_BIND_ADDR",
        "127.0.0.1:8080",
        &SocketAddress,
        "where the API listens; beyond the loopback only with a token",
    );
    API_HOSTS: Optional<Names> = optional(
        "api_hosts",
        "STEADFAST_API_HOSTS",
        &Names,
        "names the Host header may give besides localhost, while there is no token",
    );
    PUBLIC_URL: Optional<WebAddress> = optional(
        "public_url",
        "STEADFAST_PUBLIC_URL",
        &WebAddress,
        "where browsers reach the API, through a proxy or not; behind https the cookie of a session is for https only",
    );
    MAX_CONNECTIONS: Required<Number<usize>> = required(
        "max_connections",
        "STEADFAST_MAX_CONNECTIONS",
        "4096",
        &Number { min: 1, max: 100_000 },
        "connections to the API at one time",
    );
    MAX_CONNECTIONS_PER_ADDRESS: Optional<Number<usize>> = optional(
        "max_connections_per_address",
        "STEADFAST_MAX_CONNECTIONS_PER_ADDRESS",
        &Number { min: 1, max: 100_000 },
        "connections from one address at one time; unset: three quarters of max_connections; behind a proxy all come from one, so set it to max_connections there",
    );
    MAX_ENQUEUES_IN_FLIGHT: Required<Number<usize>> = required(
        "max_enqueues_in_flight",
        "STEADFAST_MAX_ENQUEUES_IN_FLIGHT",
        "4096",
        &Number { min: 1, max: 100_000 },
        "enqueues at one time; beyond: 429",
    );
    MAX_QUEUE_DEPTH: Optional<Number<u64>> = optional(
        "max_queue_depth",
        "STEADFAST_MAX_QUEUE_DEPTH",
        &Number { min: 1, max: 1_000_000_000_000 },
        "waiting jobs in one queue; beyond: 429",
    );
    MAX_DEPTH: Optional<Number<u64>> = optional(
        "max_depth",
        "STEADFAST_MAX_DEPTH",
        &Number { min: 1, max: 1_000_000_000_000 },
        "waiting jobs in all queues together; beyond: 429",
    );
    MAX_QUEUES: Required<Number<u64>> = required(
        "max_queues",
        "STEADFAST_MAX_QUEUES",
        "10000",
        &Number { min: 1, max: 1_000_000 },
        "queues that have jobs or are paused; one more: 429",
    );
    MAX_PAYLOAD_BYTES: Required<Number<usize>> = required(
        "max_payload_bytes",
        "STEADFAST_MAX_PAYLOAD_BYTES",
        "262144",
        &Number { min: 2, max: 262_144 },
        "largest payload, in bytes of JSON",
    );
    ALLOW_UNDECLARED_KINDS: Required<Choice<bool>> = required(
        "allow_undeclared_kinds",
        "STEADFAST_ALLOW_UNDECLARED_KINDS",
        "false",
        SWITCH,
        "take jobs of kinds that nobody declared",
    );
    HIDE_PAYLOADS: Required<Choice<bool>> = required(
        "hide_payloads",
        "STEADFAST_HIDE_PAYLOADS",
        "false",
        SWITCH,
        "show payloads and results over the API only to tokens with the scope admin",
    );
    DASHBOARD: Required<Choice<bool>> = required(
        "dashboard",
        "STEADFAST_DASHBOARD",
        "on",
        ON_OFF,
        "serve the dashboard below /ui/",
    ).needs(("dashboard", cfg!(feature = "dashboard")));
    ADMIN_TOKEN: Optional<TokenText> = optional(
        "admin_token",
        "STEADFAST_ADMIN_TOKEN",
        &TokenText,
        "the first token: it may do everything; others are made with it",
    ).never_a_flag();
    ADMIN_TOKEN_FILE: Optional<FilePath> = optional(
        "admin_token_file",
        "STEADFAST_ADMIN_TOKEN_FILE",
        &FilePath,
        "a file that holds the first token",
    );
    WORKER_CONCURRENCY: Optional<Concurrency> = optional(
        "worker_concurrency",
        "WORKER_CONCURRENCY",
        &Concurrency { max: 10_000 },
        "jobs at the same time in one process",
    );
    WORKER_QUEUES: Optional<Names> = optional(
        "worker_queues",
        "STEADFAST_WORKER_QUEUES",
        &Names,
        "take jobs from these queues only; unset: from every queue",
    );
    WORKER_METRICS_BIND_ADDR: Required<AddressOrOff> = required(
        "worker_metrics_bind_addr",
        "WORKER_METRICS_BIND_ADDR",
        "127.0.0.1:9091",
        &AddressOrOff,
        "where the worker role shows /metrics, /livez and /readyz",
    );
    EXECUTOR: Required<Choice<Executor>> = required(
        "executor",
        "STEADFAST_EXECUTOR",
        "builtin",
        EXECUTORS,
        "what runs the built-in kinds: builtin does the real work; simulated, for demos and tests, sleeps and sometimes fails; none leaves all jobs to workers over HTTP",
    );
    BUILTIN_KINDS: Optional<BuiltInNames> = optional(
        "builtin_kinds",
        "STEADFAST_BUILTIN_KINDS",
        &BuiltInNames { none: true },
        "the built-in kinds that exist; unset: all; the names of the others are free",
    );
    EXTERNAL_KINDS: Optional<BuiltInNames> = optional(
        "external_kinds",
        "STEADFAST_EXTERNAL_KINDS",
        &BuiltInNames { none: false },
        "built-in kinds whose jobs are accepted here and run by other workers",
    );
    SYNC_SCHEDULES: Required<Choice<bool>> = required(
        "sync_schedules",
        "STEADFAST_SYNC_SCHEDULES",
        "false",
        SWITCH,
        "make the schedules of the settings file those of the database at the start of api and worker, too; serve and migrate always do",
    );
    LEASE_MS: Required<Millis> = required(
        "lease_ms",
        "STEADFAST_LEASE_MS",
        "30000",
        LEASE,
        "how long a job of a dead worker stays with it, also over HTTP where the worker does not say; heartbeats come at a third",
    );
    REAP_INTERVAL_MS: Required<Millis> = required(
        "reap_interval_ms",
        "STEADFAST_REAP_INTERVAL_MS",
        "5000",
        INTERVAL,
        "how often expired leases are looked for",
    );
    POLL_MS: Required<Millis> = required(
        "poll_ms",
        "STEADFAST_POLL_MS",
        "500",
        INTERVAL,
        "first wait for work when no wake comes",
    );
    POLL_MAX_MS: Required<Millis> = required(
        "poll_max_ms",
        "STEADFAST_POLL_MAX_MS",
        "2000",
        INTERVAL,
        "longest wait for work when no wake comes",
    );
    SHUTDOWN_GRACE_MS: Required<Millis> = required(
        "shutdown_grace_ms",
        "STEADFAST_SHUTDOWN_GRACE_MS",
        "30000",
        &Millis { min: 0, max: 3_600_000 },
        "how long running jobs may go on after the signal to stop; requests get at most 5 s of it",
    );
    RETENTION_SUCCEEDED: Required<Span> = required(
        "retention_succeeded",
        "STEADFAST_RETENTION_SUCCEEDED",
        "7d",
        &Span,
        "how long succeeded jobs are kept",
    );
    RETENTION_CANCELLED: Required<Span> = required(
        "retention_cancelled",
        "STEADFAST_RETENTION_CANCELLED",
        "7d",
        &Span,
        "how long cancelled jobs are kept",
    );
    RETENTION_FAILED: Required<Span> = required(
        "retention_failed",
        "STEADFAST_RETENTION_FAILED",
        "90d",
        &Span,
        "how long dead letters are kept",
    );
    RETENTION_AUDIT: Required<Span> = required(
        "retention_audit",
        "STEADFAST_RETENTION_AUDIT",
        "400d",
        &Span,
        "how long it is kept what operators did",
    );
    DEFAULT_MAX_ATTEMPTS: Required<Number<u32>> = required(
        "default_max_attempts",
        "STEADFAST_DEFAULT_MAX_ATTEMPTS",
        "3",
        &Number { min: 1, max: 10_000 },
        "attempts of a job for which neither its caller nor its kind says how many",
    );
    DEFAULT_RETRY_BASE_MS: Required<Millis> = required(
        "default_retry_base_ms",
        "STEADFAST_DEFAULT_RETRY_BASE_MS",
        "1000",
        RETRY_WAIT,
        "shortest wait before a retry, unless the kind says; of several processes, the one that records the failure decides",
    );
    DEFAULT_RETRY_CAP_MS: Required<Millis> = required(
        "default_retry_cap_ms",
        "STEADFAST_DEFAULT_RETRY_CAP_MS",
        "60000",
        RETRY_WAIT,
        "longest wait before a retry, unless the kind says; the longest wait so far triples with every attempt up to it",
    );
    LOG: Required<LogFilter> = required(
        "log",
        "RUST_LOG",
        "info",
        &LogFilter,
        "what is logged",
    );
    LOG_FORMAT: Required<Choice<LogFormat>> = required(
        "log_format",
        "RUST_LOG_FORMAT",
        "pretty",
        LOG_FORMATS,
        "how it is logged",
    );
}
