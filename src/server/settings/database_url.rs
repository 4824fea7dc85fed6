//! What of a database URL may be shown: who, where and which parameters, never a password.
//!
//! A URL is taken apart as the driver does; whatever could be read in two ways is hidden in both.

use crate::server::stdio::escaped;

/// Parameters whose values may be shown. Any other may hold a secret (`sslpassword`, or one that is still to be
/// invented), under any spelling of its name (`passw%6frd`).
const SHOWN_PARAMETERS: [&str; 20] = [
    "application_name",
    "channel_binding",
    "connect_timeout",
    "dbname",
    "host",
    "hostaddr",
    "keepalives",
    "keepalives_idle",
    "keepalives_interval",
    "keepalives_retries",
    "load_balance_hosts",
    "port",
    "replication",
    "sslcert",
    "sslmode",
    "sslnegotiation",
    "sslrootcert",
    "target_session_attrs",
    "tcp_user_timeout",
    "user",
];

/// What names of secrets have in them.
const SECRET_NAMES: [&str; 6] = ["pass", "pwd", "secret", "token", "key", "credential"];

/// Whether it holds a secret.
pub(in crate::server) fn holds_password(url: &str) -> bool {
    match Parts::of(url) {
        Parts::File(_) => false,
        Parts::Unclear { .. } => true,
        Parts::Server { password, query, .. } => {
            let secret = |pair: &str| {
                let name = decoded(pair.split('=').next().unwrap_or_default()).to_ascii_lowercase();
                SECRET_NAMES.iter().any(|part| name.contains(part))
            };
            password || query.is_some_and(|query| query.split('&').any(secret))
        }
    }
}

/// The URL with `…` in place of its password, and of all that is not known to be harmless.
pub(in crate::server) fn without_password(url: &str) -> String {
    let shown = match Parts::of(url) {
        Parts::File(url) => url.to_owned(),
        Parts::Unclear { scheme, user } => format!("{scheme}://{user}:…@…"),
        Parts::Server { scheme, user, password, address, query } => {
            let login = match (user, password) {
                (Some(user), true) => format!("{user}:…@"),
                (Some(user), false) => format!("{user}@"),
                (None, _) => String::new(),
            };
            let query =
                query.map(|query| format!("?{}", query.split('&').map(parameter).collect::<Vec<_>>().join("&")));
            format!("{scheme}://{login}{address}{}", query.unwrap_or_default())
        }
    };
    escaped(&shown)
}

/// The file of a SQLite database.
pub(in crate::server) fn sqlite_path(url: &str) -> Option<&std::path::Path> {
    let path = url.strip_prefix("sqlite://").or_else(|| url.strip_prefix("sqlite:"))?;
    Some(std::path::Path::new(path))
}

/// Hosts and ports of a database server, as far as the URL can be read in one way; none for a file or a local socket.
pub(in crate::server) fn hosts(url: &str) -> Vec<(String, u16)> {
    /// PostgreSQL's.
    const USUAL_PORT: u16 = 5432;
    let Parts::Server { address, query, .. } = Parts::of(url) else { return Vec::new() };
    let parameter = |wanted: &str| {
        let pairs = query.into_iter().flat_map(|query| query.split('&')).filter_map(|pair| pair.split_once('='));
        let mut found = pairs.filter(|(name, _)| decoded(name) == wanted).map(|(_, value)| decoded(value));
        found.next_back().unwrap_or_default()
    };
    let listed = address.split('/').next().unwrap_or_default().split(',').filter(|host| !host.is_empty());
    let mut found: Vec<(String, u16)> = listed
        .map(|host| match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((ip, port)) => (ip.to_owned(), port.trim_start_matches(':').parse().unwrap_or(USUAL_PORT)),
            None => {
                let (name, port) = host.split_once(':').unwrap_or((host, ""));
                (decoded(name), port.parse().unwrap_or(USUAL_PORT))
            }
        })
        .collect();
    let port = parameter("port").split(',').next().and_then(|port| port.parse().ok()).unwrap_or(USUAL_PORT);
    for also in ["host", "hostaddr"].map(parameter) {
        found.extend(also.split(',').filter(|host| !host.is_empty()).map(|host| (host.to_owned(), port)));
    }
    // A path is a socket of this machine, which no URL of a caller can lead to.
    found.retain(|(host, _)| !host.starts_with('/'));
    found
}

enum Parts<'a> {
    /// A file may be called anything, and its URL holds no secret.
    File(&'a str),
    Server {
        scheme: &'a str,
        user: Option<&'a str>,
        password: bool,
        address: &'a str,
        query: Option<&'a str>,
    },
    /// Where its password ends cannot be told.
    Unclear {
        scheme: &'a str,
        user: &'a str,
    },
}

impl<'a> Parts<'a> {
    fn of(url: &'a str) -> Self {
        let Some((scheme, rest)) = url.split_once("://") else { return Self::File(url) };
        if scheme == "sqlite" {
            return Self::File(url);
        }
        let user = rest.split([':', '@', '/', '?']).next().unwrap_or_default();
        let authority = rest.split(['/', '?']).next().unwrap_or_default();
        let unclear = Self::Unclear { scheme, user };
        // A password may hold `/`, `?`, `#` and `@` although it should not. Then there is a second `@`, or none before
        // the path.
        let (login, address) = match rest.matches('@').count() {
            0 => (None, rest),
            1 if authority.contains('@') => match rest.split_once('@') {
                Some((login, address)) => (Some(login), address),
                None => return unclear,
            },
            _ => return unclear,
        };
        let (address, query) =
            address.split_once('?').map_or((address, None), |(address, query)| (address, Some(query)));
        if !is_address(address) {
            return unclear;
        }
        let password = login.is_some_and(|login| login.contains(':'));
        Self::Server { scheme, user: login.map(|_| user), password, address, query }
    }
}

/// `host:5432,host/database`. What stands after a colon and is no port may be a password that lost its `@`.
fn is_address(address: &str) -> bool {
    let (hosts, path) = address.split_once('/').unwrap_or((address, ""));
    let is_host = |host: &str| match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((_, port)) => port.is_empty() || is_port(port.strip_prefix(':')),
        None => host.split_once(':').is_none_or(|(_, port)| is_port(Some(port))),
    };
    hosts.split(',').all(is_host) && is_plain(path)
}

fn is_port(text: Option<&str>) -> bool {
    text.is_some_and(|text| text.bytes().all(|byte| byte.is_ascii_digit()))
}

fn is_plain(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"%+,-./:_~".contains(&byte))
}

fn parameter(pair: &str) -> String {
    match pair.split_once('=') {
        Some((name, value)) if SHOWN_PARAMETERS.contains(&&*decoded(name)) && is_plain(value) => pair.to_owned(),
        Some((name, _)) if is_plain(name) => format!("{name}=…"),
        _ => "…".to_owned(),
    }
}

/// `%41` → `A`; what is not an escape stays as it is.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let hex = tail.get(..2).filter(|_| *first == b'%').and_then(|hex| std::str::from_utf8(hex).ok());
        let escaped = hex.and_then(|hex| u8::from_str_radix(hex, 16).ok());
        bytes.push(escaped.unwrap_or(*first));
        rest = if escaped.is_some() { &tail[2..] } else { tail };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_not_shown() {
        for (url, shown) in [
            ("postgres://me:hunter2@host/db", "postgres://me:…@host/db"),
            ("postgres://me:hunter2@host:5432,[::1]:5433/db", "postgres://me:…@host:5432,[::1]:5433/db"),
            ("postgres://me:p@ss/word@host/db", "postgres://me:…@…"),
            ("postgres://me:p/ss@host/db?sslmode=require", "postgres://me:…@…"),
            ("postgres://me:p?ss@host/db?sslmode=require", "postgres://me:…@…"),
            ("postgres://me:p?a=ss@host", "postgres://me:…@…"),
            ("postgres://me:hunter2/db", "postgres://me:…@…"),
            ("postgres://me@host/db?password=hunter@2", "postgres://me:…@…"),
            (
                "postgres://me@host/db?password=hunter2&sslmode=require",
                "postgres://me@host/db?password=…&sslmode=require",
            ),
            ("postgres://me@host/db?passw%6frd=hunter2", "postgres://me@host/db?passw%6frd=…"),
            ("postgres://me@host/db?sslpassword=hunter2", "postgres://me@host/db?sslpassword=…"),
            ("postgres://me@host/db?PASSWORD=hunter2&hunter2", "postgres://me@host/db?PASSWORD=…&…"),
            ("postgres://me@host/db?sslmode=require#hunter2", "postgres://me@host/db?sslmode=…"),
            (
                "postgres://me@host/db?sslmode=verify-full&sslrootcert=/a/b.pem",
                "postgres://me@host/db?sslmode=verify-full&sslrootcert=/a/b.pem",
            ),
            ("postgres://me@host/db", "postgres://me@host/db"),
            ("postgres:///db?host=/var/run/postgresql", "postgres:///db?host=/var/run/postgresql"),
            ("sqlite://a:b@c.db", "sqlite://a:b@c.db"),
        ] {
            assert_eq!(without_password(url), shown);
            assert_eq!(
                holds_password(url),
                shown.contains(":…") || url.contains("ass") || url.contains("ASS"),
                "{url}"
            );
        }
    }

    #[test]
    fn hosts_of_a_database_are_found_wherever_the_url_names_them() {
        let found = |url: &str| hosts(url).into_iter().map(|(host, port)| format!("{host} {port}")).collect::<Vec<_>>();
        assert_eq!(found("postgres://me:pw@db.internal/jobs"), ["db.internal 5432"]);
        assert_eq!(found("postgres://me@db:5433,[::1]:5434/jobs"), ["db 5433", "::1 5434"]);
        assert_eq!(found("postgres:///jobs?host=db&port=5435"), ["db 5435"]);
        assert_eq!(found("postgres://me@db/jobs?hostaddr=10.0.0.7"), ["db 5432", "10.0.0.7 5432"]);
        assert!(found("postgres:///jobs?host=/var/run/postgresql").is_empty());
        assert!(found("sqlite://steadfast.db").is_empty());
    }

    #[test]
    fn a_parameter_that_is_only_not_known_is_no_password() {
        assert!(!holds_password("postgres://me@host/db?options=-c%20geqo%3Doff"));
        assert_eq!(
            without_password("postgres://me@host/db?options=-c%20geqo%3Doff"),
            "postgres://me@host/db?options=…"
        );
    }
}
