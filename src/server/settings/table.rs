//! The table: every setting, named once. Flags, variables, TOML keys, `steadfast config`, the checks at start and the
//! table in `docs/operations.md` all come from here.

use super::form::Form;

/// One setting.
#[derive(Debug, Clone, Copy)]
pub(in crate::server) struct Setting {
    /// Its TOML key; with `-` for `_`, its flag.
    pub(in crate::server) key: &'static str,
    pub(in crate::server) variable: &'static str,
    /// As it would be written; `None`: unset.
    pub(in crate::server) default: Option<&'static str>,
    pub(in crate::server) form: Form,
    pub(in crate::server) reach: Reach,
    pub(in crate::server) doc: &'static str,
}

/// Where a setting may be given, besides its variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::server) enum Reach {
    /// As a flag and in the file.
    Everywhere,
    /// In the file, never as a flag: every user of a machine can read the arguments of its programs.
    NoFlag,
    /// As a flag, not in the file: it is needed to find the file.
    NoFile,
}

impl Setting {
    /// `--lease-ms`, without the dashes.
    pub(in crate::server) fn flag(&self) -> Option<String> {
        (self.reach != Reach::NoFlag).then(|| self.key.replace('_', "-"))
    }

    pub(in crate::server) fn in_file(&self) -> bool {
        self.reach != Reach::NoFile
    }
}

const fn setting(
    key: &'static str,
    variable: &'static str,
    default: Option<&'static str>,
    form: Form,
    doc: &'static str,
) -> Setting {
    Setting { key, variable, default, form, reach: Reach::Everywhere, doc }
}

/// 1 s to 1 h, as for leases over HTTP.
const LEASE: Form = Form::Millis { min: 1_000, max: 3_600_000 };
/// 10 ms: below that, polling would be all a database does. 10 min: above it, nobody would know that it still runs.
const INTERVAL: Form = Form::Millis { min: 10, max: 600_000 };

/// 0: at once. 30 days: beyond that, nobody would call it a retry.
const RETRY_WAIT: Form = Form::Millis { min: 0, max: 2_592_000_000 };

/// All of them, in the order in which they are shown.
pub(in crate::server) const SETTINGS: &[Setting] = &[
    Setting {
        reach: Reach::NoFile,
        ..setting(
            "config",
            "STEADFAST_CONFIG",
            None,
            Form::Path,
            "the TOML file; steadfast.toml where the program starts, if there is one",
        )
    },
    setting("database_url", "DATABASE_URL", Some("sqlite://steadfast.db"), Form::DatabaseUrl, "where jobs live"),
    setting(
        "database_url_file",
        "DATABASE_URL_FILE",
        None,
        Form::Path,
        "a file that holds the URL, for one with a password",
    ),
    setting(
        "database_schema",
        "STEADFAST_DATABASE_SCHEMA",
        Some("public"),
        Form::Text,
        "PostgreSQL: the schema that holds the tables",
    ),
    setting(
        "allow_unsafe_server_settings",
        "STEADFAST_ALLOW_UNSAFE_SERVER_SETTINGS",
        Some("false"),
        Form::Switch,
        "PostgreSQL: run although the server can lose what it acknowledged (fsync=off and the like)",
    ),
    setting(
        "api_bind_addr",
        "API_BIND_ADDR",
        Some("127.0.0.1:8080"),
        Form::Address,
        "where the API listens; beyond the loopback only with a token",
    ),
    setting(
        "api_hosts",
        "STEADFAST_API_HOSTS",
        None,
        Form::Names,
        "names the Host header may give besides localhost, while there is no token",
    ),
    setting(
        "max_connections",
        "STEADFAST_MAX_CONNECTIONS",
        Some("4096"),
        Form::Whole { min: 1, max: 100_000 },
        "connections to the API at one time",
    ),
    setting(
        "max_connections_per_address",
        "STEADFAST_MAX_CONNECTIONS_PER_ADDRESS",
        None,
        Form::Whole { min: 1, max: 100_000 },
        "connections from one address at one time; unset: three quarters of max_connections; behind a proxy all come from one, so set it to max_connections there",
    ),
    setting(
        "max_enqueues_in_flight",
        "STEADFAST_MAX_ENQUEUES_IN_FLIGHT",
        Some("4096"),
        Form::Whole { min: 1, max: 100_000 },
        "enqueues at one time; beyond: 429",
    ),
    setting(
        "max_queue_depth",
        "STEADFAST_MAX_QUEUE_DEPTH",
        None,
        Form::Whole { min: 1, max: 1_000_000_000_000 },
        "waiting jobs in one queue; beyond: 429",
    ),
    setting(
        "max_payload_bytes",
        "STEADFAST_MAX_PAYLOAD_BYTES",
        Some("262144"),
        Form::Whole { min: 2, max: 262_144 },
        "largest payload, in bytes of JSON",
    ),
    setting(
        "allow_undeclared_kinds",
        "STEADFAST_ALLOW_UNDECLARED_KINDS",
        Some("false"),
        Form::Switch,
        "take jobs of kinds that nobody declared",
    ),
    Setting {
        reach: Reach::NoFlag,
        ..setting(
            "admin_token",
            "STEADFAST_ADMIN_TOKEN",
            None,
            Form::Token,
            "the first token: it may do everything; others are made with it",
        )
    },
    setting("admin_token_file", "STEADFAST_ADMIN_TOKEN_FILE", None, Form::Path, "a file that holds the first token"),
    setting(
        "worker_concurrency",
        "WORKER_CONCURRENCY",
        None,
        Form::Concurrency { max: 10_000 },
        "jobs at the same time in one process",
    ),
    setting(
        "worker_queues",
        "STEADFAST_WORKER_QUEUES",
        None,
        Form::Names,
        "take jobs from these queues only; unset: from every queue",
    ),
    setting(
        "worker_metrics_bind_addr",
        "WORKER_METRICS_BIND_ADDR",
        Some("127.0.0.1:9091"),
        Form::AddressOrOff,
        "where the worker role shows /metrics, /livez and /readyz",
    ),
    setting(
        "executor",
        "STEADFAST_EXECUTOR",
        Some("builtin"),
        Form::OneOf(&["builtin", "simulated", "none"]),
        "what runs the built-in kinds: builtin is simulated for now, which does none of the real work; none leaves all jobs to workers over HTTP",
    ),
    setting(
        "lease_ms",
        "STEADFAST_LEASE_MS",
        Some("30000"),
        LEASE,
        "how long a job of a dead worker stays with it, also over HTTP where the worker does not say; heartbeats come at a third",
    ),
    setting(
        "reap_interval_ms",
        "STEADFAST_REAP_INTERVAL_MS",
        Some("5000"),
        INTERVAL,
        "how often expired leases are looked for",
    ),
    setting("poll_ms", "STEADFAST_POLL_MS", Some("500"), INTERVAL, "first wait for work when no wake comes"),
    setting("poll_max_ms", "STEADFAST_POLL_MAX_MS", Some("2000"), INTERVAL, "longest wait for work when no wake comes"),
    setting(
        "shutdown_grace_ms",
        "STEADFAST_SHUTDOWN_GRACE_MS",
        Some("30000"),
        Form::Millis { min: 0, max: 3_600_000 },
        "how long running jobs may go on after the signal to stop; requests get at most 5 s of it",
    ),
    setting(
        "retention_succeeded",
        "STEADFAST_RETENTION_SUCCEEDED",
        Some("7d"),
        Form::Span,
        "how long succeeded jobs are kept",
    ),
    setting(
        "retention_cancelled",
        "STEADFAST_RETENTION_CANCELLED",
        Some("7d"),
        Form::Span,
        "how long cancelled jobs are kept",
    ),
    setting(
        "retention_failed",
        "STEADFAST_RETENTION_FAILED",
        Some("90d"),
        Form::Span,
        "how long dead letters are kept",
    ),
    setting(
        "default_max_attempts",
        "STEADFAST_DEFAULT_MAX_ATTEMPTS",
        Some("3"),
        Form::Whole { min: 1, max: 10_000 },
        "attempts of a job for which neither its caller nor its kind says how many",
    ),
    setting(
        "default_retry_base_ms",
        "STEADFAST_DEFAULT_RETRY_BASE_MS",
        Some("1000"),
        RETRY_WAIT,
        "shortest wait before a retry, unless the kind says; of several processes, the one that records the failure decides",
    ),
    setting(
        "default_retry_cap_ms",
        "STEADFAST_DEFAULT_RETRY_CAP_MS",
        Some("60000"),
        RETRY_WAIT,
        "longest wait before a retry, unless the kind says; the longest wait so far triples with every attempt up to it",
    ),
    setting("log", "RUST_LOG", Some("info"), Form::LogFilter, "what is logged"),
    setting("log_format", "RUST_LOG_FORMAT", Some("pretty"), Form::OneOf(&["pretty", "json"]), "how it is logged"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_settings_share_a_key_or_a_variable() {
        let mut names: Vec<_> = SETTINGS.iter().flat_map(|setting| [setting.key, setting.variable]).collect();
        names.sort_unstable();
        let all = names.len();
        names.dedup();
        assert_eq!(names.len(), all);
    }

    #[test]
    fn every_default_is_one_of_the_allowed_values() {
        for setting in SETTINGS {
            if let Some(default) = setting.default {
                assert!(setting.form.check(default).is_ok(), "{}", setting.key);
            }
        }
    }

    #[test]
    fn no_secret_can_be_given_on_the_command_line() {
        for setting in SETTINGS.iter().filter(|setting| matches!(setting.form, Form::Token)) {
            assert_eq!(setting.flag(), None, "{}", setting.key);
        }
    }
}
