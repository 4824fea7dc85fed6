//! The values in force, as the types that the roles take.

use std::net::SocketAddr;
use std::time::Duration;

use super::built_in::BuiltInSettings;
use super::file::Declarations;
use super::forms::Millis;
use super::resolve::{Resolved, SettingsError, ValueSource};
use super::setting::Required;
use super::table;
use crate::job::{Kind, QueueName, RetryPolicy};

/// What runs the built-in kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::server) enum Executor {
    /// Does the real work.
    BuiltIn,
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
    /// As it was written; it is a valid one.
    pub(in crate::server) public_url: Option<String>,
    pub(in crate::server) max_connections: usize,
    /// `None`: three quarters of them.
    pub(in crate::server) max_connections_per_address: Option<usize>,
    pub(in crate::server) max_enqueues_in_flight: usize,
    pub(in crate::server) max_queue_depth: Option<u64>,
    pub(in crate::server) max_depth: Option<u64>,
    pub(in crate::server) max_queues: u64,
    pub(in crate::server) max_payload_bytes: usize,
    pub(in crate::server) allow_undeclared_kinds: bool,
    pub(in crate::server) hide_payloads: bool,
    pub(in crate::server) dashboard: bool,
    pub(in crate::server) admin_token: Option<String>,
    /// `None`: 4 × cores.
    pub(in crate::server) worker_concurrency: Option<usize>,
    pub(in crate::server) worker_queues: Option<Vec<QueueName>>,
    /// `None`: off.
    pub(in crate::server) worker_metrics_bind_addr: Option<SocketAddr>,
    /// The address is the default: another port will do.
    pub(in crate::server) worker_metrics_port_is_free_choice: bool,
    pub(in crate::server) executor: Executor,
    /// Also by the roles `api` and `worker`.
    pub(in crate::server) sync_schedules: bool,
    pub(in crate::server) lease: Duration,
    pub(in crate::server) reap_interval: Duration,
    pub(in crate::server) poll_min: Duration,
    pub(in crate::server) poll_max: Duration,
    pub(in crate::server) shutdown_grace: Duration,
    pub(in crate::server) retention_succeeded: Duration,
    pub(in crate::server) retention_cancelled: Duration,
    pub(in crate::server) retention_failed: Duration,
    pub(in crate::server) retention_audit: Duration,
    pub(in crate::server) default_max_attempts: u32,
    pub(in crate::server) default_retry: RetryPolicy,
    pub(in crate::server) log: String,
    pub(in crate::server) log_format: LogFormat,
    pub(in crate::server) built_in: BuiltInSettings,
    /// What only the file can say.
    pub(in crate::server) declarations: Declarations,
    /// Settings that were given and have no effect, each with the feature that this program was built without.
    pub(in crate::server) without_effect: Vec<(&'static str, &'static str)>,
    /// Variables that look like settings and are none, each with the one that was perhaps meant.
    pub(in crate::server) unknown_variables: Vec<(String, Option<&'static str>)>,
}

impl Settings {
    pub(in crate::server) fn new(resolved: Resolved) -> Result<Self, SettingsError> {
        in_order(&resolved, &table::POLL_MS, &table::POLL_MAX_MS)?;
        in_order(&resolved, &table::DEFAULT_RETRY_BASE_MS, &table::DEFAULT_RETRY_CAP_MS)?;
        let built_in = BuiltInSettings::new(&resolved)?;
        names_are_free(&resolved.declarations, &built_in)?;
        Ok(Self {
            database_url: resolved.get(&table::DATABASE_URL)?,
            database_schema: resolved.get(&table::DATABASE_SCHEMA)?,
            allow_unsafe_server_settings: resolved.get(&table::ALLOW_UNSAFE_SERVER_SETTINGS)?,
            api_bind_addr: resolved.get(&table::API_BIND_ADDR)?,
            api_hosts: resolved
                .get_if_set(&table::API_HOSTS)?
                .into_iter()
                .flatten()
                .map(|name| name.to_string())
                .collect(),
            public_url: resolved.get_if_set(&table::PUBLIC_URL)?,
            max_connections: resolved.get(&table::MAX_CONNECTIONS)?,
            max_connections_per_address: resolved.get_if_set(&table::MAX_CONNECTIONS_PER_ADDRESS)?,
            max_enqueues_in_flight: resolved.get(&table::MAX_ENQUEUES_IN_FLIGHT)?,
            max_queue_depth: resolved.get_if_set(&table::MAX_QUEUE_DEPTH)?,
            max_depth: resolved.get_if_set(&table::MAX_DEPTH)?,
            max_queues: resolved.get(&table::MAX_QUEUES)?,
            max_payload_bytes: resolved.get(&table::MAX_PAYLOAD_BYTES)?,
            allow_undeclared_kinds: resolved.get(&table::ALLOW_UNDECLARED_KINDS)?,
            hide_payloads: resolved.get(&table::HIDE_PAYLOADS)?,
            dashboard: resolved.get(&table::DASHBOARD)?,
            admin_token: resolved.get_if_set(&table::ADMIN_TOKEN)?,
            worker_concurrency: resolved.get_if_set(&table::WORKER_CONCURRENCY)?,
            worker_queues: resolved.get_if_set(&table::WORKER_QUEUES)?,
            worker_metrics_bind_addr: resolved.get(&table::WORKER_METRICS_BIND_ADDR)?,
            worker_metrics_port_is_free_choice: *resolved.written(&table::WORKER_METRICS_BIND_ADDR).1
                == ValueSource::Default,
            executor: resolved.get(&table::EXECUTOR)?,
            sync_schedules: resolved.get(&table::SYNC_SCHEDULES)?,
            lease: resolved.get(&table::LEASE_MS)?,
            reap_interval: resolved.get(&table::REAP_INTERVAL_MS)?,
            poll_min: resolved.get(&table::POLL_MS)?,
            poll_max: resolved.get(&table::POLL_MAX_MS)?,
            shutdown_grace: resolved.get(&table::SHUTDOWN_GRACE_MS)?,
            retention_succeeded: resolved.get(&table::RETENTION_SUCCEEDED)?,
            retention_cancelled: resolved.get(&table::RETENTION_CANCELLED)?,
            retention_failed: resolved.get(&table::RETENTION_FAILED)?,
            retention_audit: resolved.get(&table::RETENTION_AUDIT)?,
            default_max_attempts: resolved.get(&table::DEFAULT_MAX_ATTEMPTS)?,
            default_retry: RetryPolicy::spread(
                resolved.get(&table::DEFAULT_RETRY_BASE_MS)?,
                resolved.get(&table::DEFAULT_RETRY_CAP_MS)?,
            ),
            log: resolved.get(&table::LOG)?,
            log_format: resolved.get(&table::LOG_FORMAT)?,
            built_in,
            declarations: resolved.declarations,
            without_effect: resolved.without_effect,
            unknown_variables: resolved.unknown_variables,
        })
    }
}

/// Refuses a lower bound above its upper bound: each is allowed by itself.
fn in_order(resolved: &Resolved, least: &Required<Millis>, most: &Required<Millis>) -> Result<(), SettingsError> {
    if resolved.get(least)? <= resolved.get(most)? {
        return Ok(());
    }
    let ((low, low_from), (high, high_from)) = (resolved.written(least), resolved.written(most));
    let (least, most) = (least.setting.key, most.setting.key);
    Err(SettingsError(format!(
        "setting {least}: {low} (from {low_from}) is above {most}, {high} (from {high_from}); use at most that"
    )))
}

/// Refuses tables of the file that would take a built-in kind for one of their own.
fn names_are_free(declarations: &Declarations, built_in: &BuiltInSettings) -> Result<(), SettingsError> {
    let taken = |kind: &Kind| built_in.has(kind.as_str());
    let way_out = "choose another name, or leave it out of STEADFAST_BUILTIN_KINDS";
    for kind in declarations.kinds.iter().filter(|kind| taken(&kind.definition.kind)) {
        let name = &kind.definition.kind;
        let definition = &kind.definition;
        for (given, key) in [
            (definition.schema.is_some(), "schema"),
            (!definition.hidden.is_empty(), "hidden"),
            (kind.push.is_some(), "push"),
        ] {
            if given {
                let message = format!(
                    "the settings file: [kinds.{name}] is built in: its defaults can be changed, not its {key}; {way_out}"
                );
                return Err(SettingsError(message));
            }
        }
    }
    match declarations.commands.iter().map(|command| &command.definition.kind).find(|kind| taken(kind)) {
        Some(name) => Err(SettingsError(format!("the settings file: [commands.{name}] is built in; {way_out}"))),
        None => Ok(()),
    }
}
