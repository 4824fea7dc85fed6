//! What kinds need that call other servers: which addresses they may call, whose certificates they believe, the endpoints
//! and secrets of the settings file. There are two clients, and no way from one to the other: one for URLs that callers
//! give, one for those of the settings.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::kinds::HttpRequest;
use crate::kinds::endpoint::{Directory, Endpoint, NamedSecret};
use crate::outbound::{HostGate, Network, NoRoots, Outbound, Policy, Roots};
use crate::queue::Job;
use crate::server::settings::{OutboundSettings, RequestTargets, Settings, SettingsError, hosts};
use crate::worker::WorkerSettings;

/// 5 s to look up where the database is: it has just been connected to.
const DATABASE_LOOKUP_MAX: Duration = Duration::from_secs(5);

/// The parts of both clients. Cheap to clone.
#[derive(Clone)]
pub(super) struct Calls {
    pub(super) policy: Policy,
    roots: Roots,
    pub(super) directory: Arc<Directory>,
    pub(super) gate: HostGate,
}

/// Both clients.
pub(super) struct Clients {
    /// For URLs that callers give.
    pub(super) guarded: Outbound,
    /// For URLs of the settings.
    pub(super) trusted: Outbound,
}

impl Calls {
    /// `None` on a system without certificates, unless the settings name something that needs them.
    pub(super) fn new(settings: &Settings) -> Result<Option<Self>, SettingsError> {
        let outbound = &settings.built_in.outbound;
        let policy = policy(outbound)?;
        let directory = Arc::new(directory(settings)?);
        let roots = match Roots::native(outbound.ca_file.as_deref()) {
            Ok(roots) => roots,
            Err(NoRoots::System) if settings.declarations.endpoints.is_empty() && settings.built_in.llm.is_none() => {
                return Ok(None);
            }
            Err(error @ NoRoots::System) => return Err(SettingsError(error.to_string())),
            Err(error) => return Err(SettingsError(format!("setting outbound_ca_file: {error}"))),
        };
        if let Some(allowed) = policy.describe() {
            tracing::info!("callers' URLs may lead to {allowed} (outbound_allow)");
        }
        Ok(Some(Self { policy, roots, directory, gate: HostGate::with_in_flight_max(per_host(settings)) }))
    }

    /// Where callers' URLs may lead, for whoever starts the process.
    pub(super) fn described(&self, settings: &Settings) -> Vec<String> {
        let Some(allowed) = self.policy.describe() else { return vec!["public addresses only".into()] };
        let mut lines = vec![format!("public addresses, and {allowed} (STEADFAST_OUTBOUND_ALLOW)")];
        if settings.built_in.request_targets == RequestTargets::Any && settings.built_in.has(HttpRequest::KIND) {
            lines.push("whoever may enqueue can read what is there (STEADFAST_HTTP_REQUEST_TARGETS=any)".into());
        }
        lines
    }

    /// The clients; `listeners` are this process's own.
    pub(super) async fn clients(&self, settings: &Settings, listeners: &[SocketAddr]) -> Clients {
        let never = listeners.iter().copied().chain(database(&settings.database_url).await);
        let policy = self.policy.clone().never(never);
        Clients {
            guarded: Outbound::guarded(policy, Network::system(), self.roots.clone()),
            trusted: Outbound::trusted(Network::system(), self.roots.clone()),
        }
    }
}

/// How many calls a host may have at one time: as set, but never more than half of the slots. A host that answers nobody
/// would otherwise have them all.
pub(super) fn per_host(settings: &Settings) -> usize {
    let slots = settings.worker_concurrency.unwrap_or_else(|| WorkerSettings::default().concurrency);
    settings.built_in.outbound.per_host.min((slots / 2).max(1))
}

/// What a system without certificates needs.
pub(super) fn no_roots() -> String {
    NoRoots::System.to_string()
}

fn policy(outbound: &OutboundSettings) -> Result<Policy, SettingsError> {
    let wrong = |key: &'static str| move |error| SettingsError(format!("setting {key}: {error}"));
    Policy::default()
        .ports(&outbound.ports.join(","))
        .map_err(wrong("outbound_ports"))?
        .allow(&outbound.allow.join(","))
        .map_err(wrong("outbound_allow"))?
        .deny(&outbound.deny.join(","))
        .map_err(wrong("outbound_deny"))?
        .nat64(&outbound.nat64.join(","))
        .map_err(wrong("outbound_nat64"))
}

fn directory(settings: &Settings) -> Result<Directory, SettingsError> {
    let mut directory = Directory::new();
    for table in &settings.declarations.endpoints {
        let made = || {
            let mut endpoint = Endpoint::new(&table.url)?;
            for secret in &table.secrets {
                endpoint = endpoint.secret(secret.reveal())?;
            }
            for (name, value) in &table.headers {
                endpoint = endpoint.header(name, value.reveal())?;
            }
            endpoint = table.timeout.into_iter().fold(endpoint, Endpoint::timeout).trace(table.trace);
            Ok(table.max_in_flight.into_iter().fold(endpoint, Endpoint::max_in_flight))
        };
        let wrong = |error| in_table("endpoints", &table.name, &error);
        let endpoint = made().map_err(wrong)?;
        directory = directory.with_endpoint(&table.name, endpoint).map_err(wrong)?;
    }
    for table in &settings.declarations.secrets {
        let wrong = |error| in_table("secrets", &table.name, &error);
        let secret = NamedSecret::new(table.value.reveal(), table.hosts.iter().map(|host| &**host)).map_err(wrong)?;
        directory = directory.with_secret(&table.name, secret).map_err(wrong)?;
    }
    Ok(directory)
}

fn in_table(tables: &str, name: &str, problem: &dyn std::fmt::Display) -> SettingsError {
    SettingsError(format!("the settings file: [{tables}.{name}]: {problem}"))
}

/// Where the database is. What cannot be looked up now is left out: then no call leads there by that name, either.
async fn database(url: &str) -> Vec<SocketAddr> {
    let mut found = Vec::new();
    for (host, port) in hosts(url) {
        let lookup = tokio::net::lookup_host((&*host, port));
        if let Ok(Ok(addresses)) = tokio::time::timeout(DATABASE_LOOKUP_MAX, lookup).await {
            found.extend(addresses);
        }
    }
    found
}
