//! `[endpoints.NAME]`: places that jobs may call although they are not public, and how calls are signed; and
//! `[secrets.NAME]`: keys for URLs that callers give, each bound to hosts.

use std::time::Duration;

use serde::Deserialize;

use super::values::{Literal, SecretText, ValueReader};
use super::{only, typed};
use crate::job::Kind;

/// One endpoint.
#[derive(Debug)]
pub(in crate::server) struct EndpointTable {
    pub(in crate::server) name: String,
    pub(in crate::server) url: String,
    pub(in crate::server) secrets: Vec<SecretText>,
    pub(in crate::server) headers: Vec<(String, SecretText)>,
    pub(in crate::server) timeout: Option<Duration>,
    pub(in crate::server) max_in_flight: Option<usize>,
    pub(in crate::server) trace: bool,
}

/// One secret, for URLs of these hosts.
#[derive(Debug)]
pub(in crate::server) struct SecretTable {
    pub(in crate::server) name: String,
    pub(in crate::server) value: SecretText,
    pub(in crate::server) hosts: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct EndpointKeys {
    url: String,
    #[serde(default)]
    secrets: Vec<String>,
    #[serde(default)]
    headers: toml::Table,
    timeout_ms: Option<u64>,
    max_in_flight: Option<usize>,
    #[serde(default)]
    trace: bool,
}

#[derive(Debug, Deserialize)]
struct SecretKeys {
    value: String,
    hosts: Vec<String>,
}

pub(super) fn endpoint(name: &str, table: toml::Table, reader: &ValueReader<'_>) -> Result<EndpointTable, String> {
    only(&table, &["url", "secrets", "headers", "timeout_ms", "max_in_flight", "trace"])?;
    let keys: EndpointKeys = typed(table)?;
    let secret = |text: &String| reader.value(text, Literal::Secret);
    if keys.timeout_ms == Some(0) || keys.max_in_flight == Some(0) {
        return Err("timeout_ms and max_in_flight must be at least 1".into());
    }
    Ok(EndpointTable {
        name: checked(name)?,
        // The address itself may be one, in a query.
        url: reader
            .value(&keys.url, Literal::Harmless)
            .map_err(|problem| format!("url: {problem}"))?
            .reveal()
            .to_owned(),
        secrets: keys
            .secrets
            .iter()
            .map(secret)
            .collect::<Result<_, _>>()
            .map_err(|problem| format!("secrets: {problem}"))?,
        headers: reader.values(&keys.headers).map_err(|problem| format!("headers: {problem}"))?,
        timeout: keys.timeout_ms.map(Duration::from_millis),
        max_in_flight: keys.max_in_flight,
        trace: keys.trace,
    })
}

pub(super) fn secret(name: &str, table: toml::Table, reader: &ValueReader<'_>) -> Result<SecretTable, String> {
    only(&table, &["value", "hosts"])?;
    let keys: SecretKeys = typed(table)?;
    if keys.hosts.is_empty() {
        return Err("hosts: name at least one, or everybody who may enqueue could have anything signed".into());
    }
    let value = reader.value(&keys.value, Literal::Secret).map_err(|problem| format!("value: {problem}"))?;
    Ok(SecretTable { name: checked(name)?, value, hosts: keys.hosts })
}

/// Names are made of what names of kinds are made of.
fn checked(name: &str) -> Result<String, String> {
    Kind::new(name).map(|name| name.to_string()).map_err(|error| error.to_string())
}
