//! How to reach a PostgreSQL and with which timeouts. Nothing here connects; see `pool` and `open`.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use tokio_postgres::config::{Host, SslMode};

use crate::job::RetryPolicy;
use crate::store::{OpenError, RetryPolicies};

/// Where the jobs are, and how to talk to the server.
#[derive(Clone)]
#[non_exhaustive]
pub struct PostgresSettings {
    /// `postgres://user:password@host:5432/database?sslmode=verify-full`
    pub url: String,
    /// The schema that holds the tables; `public` unless said otherwise.
    pub schema: String,
    /// Connections for the verbs. One more is kept for heartbeats and one for wakes.
    pub pool_size: usize,
    /// How long to try to connect.
    pub connect_timeout: Duration,
    /// How long to wait for a free connection.
    pub wait_timeout: Duration,
    /// How long the server may work on one statement.
    pub statement_timeout: Duration,
    /// How often the connection that hears of new work is checked.
    pub listen_check_interval: Duration,
    /// Run on a server that can lose what it has acknowledged. Meant for throw-away data.
    pub allow_unsafe_server_settings: bool,
    /// How jobs are retried whose kind is stored without a policy. Of several processes, the one that records the failure
    /// decides.
    pub retry: RetryPolicies,
    /// A schema whose `now()` is used instead of the server's: for tests that hold the time, as
    /// [`ManualClock`](crate::store::ManualClock) does on SQLite.
    pub clock_schema: Option<String>,
    /// `false`: every claim looks from the beginning. For measuring what the low-water marks save.
    pub low_water_marks: bool,
}

impl PostgresSettings {
    /// Everything but the URL at its default.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            schema: "public".into(),
            // 8: one claim, two enqueues and two settles at a time by design; the others are for reads.
            pool_size: 8,
            connect_timeout: Duration::from_secs(5),
            wait_timeout: Duration::from_secs(5),
            // 10 s: a third of the default lease, so that a stalled settle still leaves time to try again.
            statement_timeout: Duration::from_secs(10),
            listen_check_interval: Duration::from_secs(10),
            allow_unsafe_server_settings: false,
            retry: RetryPolicies::default(),
            clock_schema: None,
            low_water_marks: true,
        }
    }

    /// The schema that holds the tables.
    pub fn schema(mut self, schema: impl Into<String>) -> Self {
        self.schema = schema.into();
        self
    }

    /// Connections for the verbs.
    pub fn pool_size(mut self, pool_size: usize) -> Self {
        self.pool_size = pool_size;
        self
    }

    /// How long to try to connect.
    pub fn connect_timeout(mut self, connect_timeout: Duration) -> Self {
        self.connect_timeout = connect_timeout;
        self
    }

    /// How long to wait for a free connection.
    pub fn wait_timeout(mut self, wait_timeout: Duration) -> Self {
        self.wait_timeout = wait_timeout;
        self
    }

    /// How long the server may work on one statement.
    pub fn statement_timeout(mut self, statement_timeout: Duration) -> Self {
        self.statement_timeout = statement_timeout;
        self
    }

    /// How jobs are retried whose kind does not say.
    pub fn retry_default(mut self, retry_default: RetryPolicy) -> Self {
        self.retry = self.retry.default_policy(retry_default);
        self
    }

    /// How jobs are retried whose kind is stored without a policy.
    pub fn retry(mut self, retry: RetryPolicies) -> Self {
        self.retry = retry;
        self
    }
}

impl fmt::Debug for PostgresSettings {
    /// Without the URL: it may hold a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresSettings")
            .field("schema", &self.schema)
            .field("pool_size", &self.pool_size)
            .finish_non_exhaustive()
    }
}

/// How far the server's certificate is checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verify {
    /// Not at all: protects against an eavesdropper, not against a man in the middle.
    Nothing,
    /// Signed by a root that is trusted, whatever name it bears.
    Chain(Roots),
    /// Signed by a root that is trusted, for the host that was asked for.
    ChainAndName(Roots),
}

/// The root certificates that are trusted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Roots {
    /// This machine's store of certificates.
    System,
    /// The certificates in this file.
    File(PathBuf),
}

/// A URL taken apart.
pub(super) struct Address {
    pub(super) config: tokio_postgres::Config,
    pub(super) verify: Verify,
    /// For people to read; without the password.
    pub(super) shown: String,
}

impl Address {
    pub(super) fn parse(settings: &PostgresSettings) -> Result<Self, OpenError> {
        let bad = |problem: &str, way_out: &str| OpenError::new("the PostgreSQL database", problem, way_out);
        let url = settings.url.trim();
        if !(url.starts_with("postgres://") || url.starts_with("postgresql://")) {
            return Err(bad(
                "its URL does not begin with postgres://",
                "write it as postgres://user:password@host:5432/database",
            ));
        }
        let (plain, tls) = split_tls(url).map_err(|problem| {
            bad(&problem, "use sslmode=disable, prefer, require, verify-ca or verify-full, and sslrootcert=<file>")
        })?;
        let mut config: tokio_postgres::Config = plain.parse().map_err(|error: tokio_postgres::Error| {
            bad(
                "its URL cannot be read",
                "write it as postgres://user:password@host:5432/database, with special characters percent-encoded",
            )
            .caused_by(error)
        })?;
        if config.get_hosts().is_empty() {
            return Err(bad("its URL names no host", "write it as postgres://user:password@host:5432/database"));
        }
        let shown = shown(&config);
        config.ssl_mode(tls.mode);
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(settings.connect_timeout);
        }
        if config.get_application_name().is_none() {
            config.application_name("steadfast");
        }
        config.keepalives(true).keepalives_idle(Duration::from_secs(30)).keepalives_interval(Duration::from_secs(5));
        // A peer that acknowledges nothing for this long is gone, even with data on the way.
        config.keepalives_retries(3).tcp_user_timeout(settings.statement_timeout + Duration::from_secs(10));
        Ok(Self { config, verify: tls.verify, shown })
    }
}

fn shown(config: &tokio_postgres::Config) -> String {
    let host = match config.get_hosts().first() {
        Some(Host::Tcp(host)) => host.clone(),
        #[cfg(unix)]
        Some(Host::Unix(path)) => path.display().to_string(),
        None => "?".into(),
    };
    let port = config.get_ports().first().copied().unwrap_or(5432);
    let user = config.get_user().unwrap_or("");
    let database = config.get_dbname().unwrap_or(user);
    format!("postgres://{user}@{host}:{port}/{database}")
}

struct TlsWish {
    mode: SslMode,
    verify: Verify,
}

/// Takes `sslmode` and `sslrootcert` out of the URL: the driver knows only three modes and no root file.
fn split_tls(url: &str) -> Result<(String, TlsWish), String> {
    let (base, query) = url.split_once('?').unwrap_or((url, ""));
    let (mut mode, mut root, mut rest) = (None, None, Vec::new());
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        match pair.split_once('=') {
            Some(("sslmode", value)) => mode = Some(value),
            Some(("sslrootcert", value)) => root = Some(decode(value)),
            _ => rest.push(pair),
        }
    }
    let roots = match root.as_deref() {
        None | Some("system") => Roots::System,
        Some(path) => Roots::File(path.into()),
    };
    let (mode, verify) = match mode {
        Some("disable") => (SslMode::Disable, Verify::Nothing),
        None | Some("prefer" | "allow") => (SslMode::Prefer, Verify::Nothing),
        // As libpq does: a root that was named is meant to be used.
        Some("require") if root.is_some() => (SslMode::Require, Verify::Chain(roots)),
        Some("require") => (SslMode::Require, Verify::Nothing),
        Some("verify-ca") => (SslMode::Require, Verify::Chain(roots)),
        Some("verify-full") => (SslMode::Require, Verify::ChainAndName(roots)),
        Some(other) => return Err(format!("there is no sslmode {other:?}")),
    };
    let url = if rest.is_empty() { base.to_owned() } else { format!("{base}?{}", rest.join("&")) };
    Ok((url, TlsWish { mode, verify }))
}

/// `%41` → `A`; what is not an escape stays as it is.
fn decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        let escaped = (first == b'%')
            .then(|| tail.get(..2))
            .flatten()
            .and_then(|hex| std::str::from_utf8(hex).ok())
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        bytes.push(escaped.unwrap_or(first));
        rest = if escaped.is_some() { &tail[2..] } else { tail };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verify(query: &str) -> (SslMode, Verify) {
        let address = Address::parse(&PostgresSettings::new(format!("postgres://u:p@h/db{query}"))).unwrap();
        (address.config.get_ssl_mode(), address.verify)
    }

    #[test]
    fn every_sslmode_means_what_it_means_elsewhere() {
        assert_eq!(verify(""), (SslMode::Prefer, Verify::Nothing));
        assert_eq!(verify("?sslmode=disable"), (SslMode::Disable, Verify::Nothing));
        assert_eq!(verify("?sslmode=require"), (SslMode::Require, Verify::Nothing));
        let file = Roots::File("/a b.pem".into());
        assert_eq!(verify("?sslmode=require&sslrootcert=%2Fa%20b.pem").1, Verify::Chain(file.clone()));
        assert_eq!(verify("?sslmode=verify-ca").1, Verify::Chain(Roots::System));
        assert_eq!(
            verify("?connect_timeout=3&sslmode=verify-full&sslrootcert=/a b.pem"),
            (SslMode::Require, Verify::ChainAndName(file))
        );
    }

    #[test]
    fn a_bad_url_is_refused_without_repeating_its_password() {
        for url in ["mysql://u:hunter2@h/db", "postgres://u:hunter2@h:port/db", "postgres://u:hunter2@h/db?sslmode=on"]
        {
            let error = format!("{:?}", Address::parse(&PostgresSettings::new(url)).err().unwrap());
            assert!(!error.contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn what_is_shown_has_no_password() {
        let address = Address::parse(&PostgresSettings::new("postgres://me:hunter2@db.example:6432/jobs")).unwrap();
        assert_eq!(address.shown, "postgres://me@db.example:6432/jobs");
    }
}
