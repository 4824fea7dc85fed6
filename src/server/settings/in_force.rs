//! The values in force, as the types that the roles take.

use std::net::SocketAddr;
use std::time::Duration;

use super::form::span;
use super::resolve::{Resolved, SettingsError, Source};
use crate::job::{KindDefinition, QueueName, RetryPolicy};

/// What runs the built-in kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::server) enum Executor {
    /// Pretends to, for demos and tests.
    Simulated,
    /// Nothing in this process.
    None,
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::server) enum LogFormat {
    Pretty,
    Json,
}

/// Everything the roles need to know. Not `Debug`: it holds secrets.
pub(in crate::server) struct Settings {
    pub(in crate::server) database_url: String,
    pub(in crate::server) database_schema: String,
    pub(in crate::server) allow_unsafe_server_settings: bool,
    pub(in crate::server) api_bind_addr: SocketAddr,
    pub(in crate::server) api_hosts: Vec<String>,
    pub(in crate::server) max_connections: usize,
    /// `None`: three quarters of them.
    pub(in crate::server) max_connections_per_address: Option<usize>,
    pub(in crate::server) max_enqueues_in_flight: usize,
    pub(in crate::server) max_queue_depth: Option<u64>,
    pub(in crate::server) max_payload_bytes: usize,
    pub(in crate::server) allow_undeclared_kinds: bool,
    pub(in crate::server) admin_token: Option<String>,
    /// `None`: 4 × cores.
    pub(in crate::server) worker_concurrency: Option<usize>,
    pub(in crate::server) worker_queues: Option<Vec<QueueName>>,
    /// `None`: off.
    pub(in crate::server) worker_metrics_bind_addr: Option<SocketAddr>,
    /// Nobody asked for that address: another port will do.
    pub(in crate::server) worker_metrics_port_is_free_choice: bool,
    pub(in crate::server) executor: Executor,
    pub(in crate::server) lease: Duration,
    pub(in crate::server) reap_interval: Duration,
    pub(in crate::server) poll_min: Duration,
    pub(in crate::server) poll_max: Duration,
    pub(in crate::server) shutdown_grace: Duration,
    pub(in crate::server) retention_succeeded: Duration,
    pub(in crate::server) retention_cancelled: Duration,
    pub(in crate::server) retention_failed: Duration,
    pub(in crate::server) default_max_attempts: u32,
    pub(in crate::server) default_retry: RetryPolicy,
    pub(in crate::server) log: String,
    pub(in crate::server) log_format: LogFormat,
    /// Declared in the file.
    pub(in crate::server) kinds: Vec<KindDefinition>,
    /// Variables that look like settings and are none, each with the one that was perhaps meant.
    pub(in crate::server) strays: Vec<(String, Option<&'static str>)>,
}

impl Settings {
    pub(in crate::server) fn new(resolved: Resolved) -> Result<Self, SettingsError> {
        let values = Values(&resolved);
        let settings = Self {
            database_url: values.text("database_url"),
            database_schema: values.text("database_schema"),
            allow_unsafe_server_settings: values.text("allow_unsafe_server_settings") == "true",
            api_bind_addr: values.parsed("api_bind_addr").expect("it has a default"),
            api_hosts: values.names("api_hosts").unwrap_or_default(),
            max_connections: values.parsed("max_connections").expect("it has a default"),
            max_connections_per_address: values.parsed("max_connections_per_address"),
            max_enqueues_in_flight: values.parsed("max_enqueues_in_flight").expect("it has a default"),
            max_queue_depth: values.parsed("max_queue_depth"),
            max_payload_bytes: values.parsed("max_payload_bytes").expect("it has a default"),
            allow_undeclared_kinds: values.text("allow_undeclared_kinds") == "true",
            admin_token: values.given("admin_token").map(str::to_owned),
            worker_concurrency: values.parsed("worker_concurrency"),
            worker_queues: values.queues("worker_queues"),
            worker_metrics_bind_addr: values.text("worker_metrics_bind_addr").parse().ok(),
            worker_metrics_port_is_free_choice: resolved.get("worker_metrics_bind_addr").source == Source::Default,
            executor: if values.text("executor") == "none" { Executor::None } else { Executor::Simulated },
            lease: values.millis("lease_ms"),
            reap_interval: values.millis("reap_interval_ms"),
            poll_min: values.millis("poll_ms"),
            poll_max: values.millis("poll_max_ms"),
            shutdown_grace: values.millis("shutdown_grace_ms"),
            retention_succeeded: values.span("retention_succeeded"),
            retention_cancelled: values.span("retention_cancelled"),
            retention_failed: values.span("retention_failed"),
            default_max_attempts: values.parsed("default_max_attempts").expect("it has a default"),
            default_retry: RetryPolicy::spread(
                values.millis("default_retry_base_ms"),
                values.millis("default_retry_cap_ms"),
            ),
            log: values.text("log"),
            log_format: if values.text("log_format") == "json" { LogFormat::Json } else { LogFormat::Pretty },
            kinds: resolved.kinds.clone(),
            strays: resolved.strays.clone(),
        };
        for (least, most) in [("poll_ms", "poll_max_ms"), ("default_retry_base_ms", "default_retry_cap_ms")] {
            if values.millis(least) > values.millis(most) {
                let message = format!(
                    "setting {least}: {} (from {}) is above {most}, {} (from {}); use at most that",
                    values.text(least),
                    resolved.get(least).source,
                    values.text(most),
                    resolved.get(most).source
                );
                return Err(SettingsError(message));
            }
        }
        Ok(settings)
    }
}

/// Reads values that their forms have checked.
struct Values<'a>(&'a Resolved);

impl Values<'_> {
    fn given(&self, key: &str) -> Option<&str> {
        self.0.get(key).text.as_deref()
    }

    fn text(&self, key: &str) -> String {
        self.given(key).expect("it has a default").to_owned()
    }

    fn parsed<T: std::str::FromStr>(&self, key: &str) -> Option<T> {
        self.given(key).map(|text| text.parse().ok().expect("its form has checked it"))
    }

    fn millis(&self, key: &str) -> Duration {
        Duration::from_millis(self.parsed(key).expect("it has a default"))
    }

    fn span(&self, key: &str) -> Duration {
        span(&self.text(key)).expect("its form has checked it")
    }

    fn names(&self, key: &str) -> Option<Vec<String>> {
        self.given(key).map(|text| text.split(',').map(|name| name.trim().to_owned()).collect())
    }

    fn queues(&self, key: &str) -> Option<Vec<QueueName>> {
        let names = self.names(key)?;
        Some(names.iter().map(|name| QueueName::new(name).expect("its form has checked it")).collect())
    }
}
