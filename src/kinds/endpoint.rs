//! Named endpoints and secrets: where calls may go and how they are signed. They are the operator's word, from the settings
//! file, and read once at start.
//!
//! An endpoint may be anywhere, also inside the operator's network, because no caller chose its address. A secret is bound to
//! hosts: otherwise everybody who may enqueue could have any body signed, and replay it to the real receiver. Nothing here is
//! shown: neither by `Debug` nor in an error.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;

use super::webhook::headers;
use super::webhook::signature::{NotAKey, SigningKey};
use crate::outbound::Target;

/// 64 bytes for the name of an endpoint or secret, like the names of everything else.
const NAME_MAX_BYTES: usize = 64;
/// 8 keys: an old and a new one, of either algorithm, twice over.
pub(crate) const KEYS_MAX: usize = 8;
/// 64 hosts of one secret.
const HOSTS_MAX: usize = 64;

/// An entry of the directory is wrong. It quotes no secret and no value of a header.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NotAnEntry(String);

impl From<NotAKey> for NotAnEntry {
    fn from(error: NotAKey) -> Self {
        Self(error.to_string())
    }
}

/// A place that jobs may call by its name.
#[derive(Clone)]
pub struct Endpoint {
    pub(crate) target: Target,
    pub(crate) keys: Vec<SigningKey>,
    pub(crate) headers: HeaderMap,
    pub(crate) timeout: Option<Duration>,
    pub(crate) max_in_flight: Option<usize>,
    pub(crate) trace: bool,
}

impl Endpoint {
    /// An endpoint at this URL, without a secret.
    pub fn new(url: &str) -> Result<Self, NotAnEntry> {
        let target = Target::parse(url).map_err(|error| NotAnEntry(format!("url: {error}")))?;
        let headers = HeaderMap::new();
        Ok(Self { target, keys: Vec::new(), headers, timeout: None, max_in_flight: None, trace: false })
    }

    /// Signs with this key, too: `whsec_…` or `whsk_…`.
    pub fn secret(mut self, key: &str) -> Result<Self, NotAnEntry> {
        if self.keys.len() == KEYS_MAX {
            return Err(NotAnEntry(format!("secrets: at most {KEYS_MAX}")));
        }
        // Files end with a newline.
        self.keys.push(SigningKey::parse(key.trim())?);
        Ok(self)
    }

    /// Sends this header with every request. A caller cannot replace it.
    pub fn header(mut self, name: &str, value: &str) -> Result<Self, NotAnEntry> {
        let (name, value) = headers::of_operator(name, value).map_err(NotAnEntry)?;
        self.headers.insert(name, value);
        Ok(self)
    }

    /// Limits how long one call may take.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Limits how many calls are in flight in this process, instead of the limit for every host.
    pub fn max_in_flight(mut self, calls: usize) -> Self {
        self.max_in_flight = Some(calls.max(1));
        self
    }

    /// Sends the trace of a job along, as `traceparent` and `tracestate`. Off by default: these are internal ids.
    pub fn trace(mut self, trace: bool) -> Self {
        self.trace = trace;
        self
    }

    /// The values of its headers, to be hidden where the endpoint echoes them.
    pub(crate) fn header_values(&self) -> Vec<&str> {
        self.headers.values().filter_map(|value| value.to_str().ok()).collect()
    }
}

impl fmt::Debug for Endpoint {
    /// Only its place.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint").field("target", &self.target.authority()).finish_non_exhaustive()
    }
}

/// A key for callers' URLs, bound to hosts.
#[derive(Clone, Debug)]
pub struct NamedSecret {
    pub(crate) key: SigningKey,
    hosts: Vec<HostPattern>,
}

impl NamedSecret {
    /// A key, and the hosts it signs for: `hooks.example.org`, or `*.example.org` for every name below it.
    pub fn new<'a>(key: &str, hosts: impl IntoIterator<Item = &'a str>) -> Result<Self, NotAnEntry> {
        let key = SigningKey::parse(key.trim())?;
        let hosts: Vec<_> = hosts.into_iter().map(HostPattern::parse).collect::<Result<_, _>>()?;
        if hosts.is_empty() || hosts.len() > HOSTS_MAX {
            return Err(NotAnEntry(format!("hosts: name 1 to {HOSTS_MAX} hosts that the secret may sign for")));
        }
        Ok(Self { key, hosts })
    }

    pub(crate) fn signs_for(&self, target: &Target) -> bool {
        self.hosts.iter().any(|pattern| pattern.matches(target.host()))
    }
}

/// One host, or every name below one.
#[derive(Clone, Debug, PartialEq, Eq)]
enum HostPattern {
    Exactly(String),
    Below(String),
}

impl HostPattern {
    fn parse(text: &str) -> Result<Self, NotAnEntry> {
        let (below, host) = match text.strip_prefix("*.") {
            Some(parent) => (true, parent),
            None => (false, text),
        };
        let wrong = || NotAnEntry(format!("hosts: {text:?} is not a host: use hooks.example.org or *.example.org"));
        // Read as a URL is read, so that both are compared in one spelling.
        let target = Target::parse(&format!("https://{host}/")).map_err(|_| wrong())?;
        let is_only_a_host = !host.contains(['/', '?', '#', '@', '*']) && target.port() == 443 && !ends_with_port(host);
        let name = target.host().to_owned();
        let is_address = name.parse::<std::net::IpAddr>().is_ok();
        match below {
            _ if !is_only_a_host || name.is_empty() || (below && is_address) => Err(wrong()),
            true => Ok(Self::Below(format!(".{name}"))),
            false => Ok(Self::Exactly(name)),
        }
    }

    fn matches(&self, host: &str) -> bool {
        match self {
            Self::Exactly(name) => host == name,
            Self::Below(suffix) => host.len() > suffix.len() && host.ends_with(suffix),
        }
    }
}

fn ends_with_port(host: &str) -> bool {
    host.rsplit_once(':').is_some_and(|(_, port)| !port.ends_with(']'))
}

/// All endpoints and secrets, by name.
#[derive(Clone, Debug, Default)]
pub struct Directory {
    endpoints: BTreeMap<String, Arc<Endpoint>>,
    secrets: BTreeMap<String, NamedSecret>,
}

impl Directory {
    /// Without any.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an endpoint.
    pub fn with_endpoint(mut self, name: &str, endpoint: Endpoint) -> Result<Self, NotAnEntry> {
        check_name(name)?;
        self.endpoints.insert(name.to_owned(), Arc::new(endpoint));
        Ok(self)
    }

    /// Adds a secret.
    pub fn with_secret(mut self, name: &str, secret: NamedSecret) -> Result<Self, NotAnEntry> {
        check_name(name)?;
        if SigningKey::is_meant_by(name) {
            return Err(NotAnEntry("the name of a secret must not look like a secret".into()));
        }
        self.secrets.insert(name.to_owned(), secret);
        Ok(self)
    }

    /// The endpoint of this name.
    pub fn endpoint(&self, name: &str) -> Option<&Arc<Endpoint>> {
        self.endpoints.get(name)
    }

    /// The secret of this name.
    pub fn secret(&self, name: &str) -> Option<&NamedSecret> {
        self.secrets.get(name)
    }

    /// The names of all endpoints, in order.
    pub fn endpoint_names(&self) -> impl Iterator<Item = &str> {
        self.endpoints.keys().map(String::as_str)
    }

    /// The names of all secrets, in order.
    pub fn secret_names(&self) -> impl Iterator<Item = &str> {
        self.secrets.keys().map(String::as_str)
    }
}

fn check_name(name: &str) -> Result<(), NotAnEntry> {
    let plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.:-".contains(&byte));
    match plain && (1..=NAME_MAX_BYTES).contains(&name.len()) {
        true => Ok(()),
        false => Err(NotAnEntry(format!("{name:?} is not a name: use 1 to {NAME_MAX_BYTES} of A-Z a-z 0-9 _ . : -"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

    fn signs(hosts: &[&str], url: &str) -> bool {
        NamedSecret::new(KEY, hosts.iter().copied()).unwrap().signs_for(&Target::parse(url).unwrap())
    }

    #[test]
    fn s43_a_secret_signs_for_its_hosts_and_for_no_other() {
        let hosts = ["hooks.shop.example", "*.tenant.example", "192.0.2.7"];
        for good in [
            "https://hooks.shop.example/a",
            "http://HOOKS.shop.example:8080/",
            "https://a.tenant.example",
            "https://hooks.shop.example./",
            "https://a.b.tenant.example",
            "https://192.0.2.7/",
        ] {
            assert!(signs(&hosts, good), "{good}");
        }
        for bad in [
            "https://shop.example",
            "https://x.hooks.shop.example",
            "https://tenant.example",
            "https://eviltenant.example",
            "https://tenant.example.evil.example",
            "https://hooks.shop.example.evil.example",
            "https://192.0.2.70",
        ] {
            assert!(!signs(&hosts, bad), "{bad}");
        }
    }

    #[test]
    fn s43_a_secret_without_hosts_or_with_odd_ones_is_refused() {
        assert!(NamedSecret::new(KEY, []).is_err());
        for bad in [
            "",
            "*",
            "*.",
            "*.*.example",
            "a.example/",
            "a.example:443",
            "a@b.example",
            "https://a.example",
            "*.192.0.2.7",
            "a.*.example",
        ] {
            assert!(NamedSecret::new(KEY, [bad]).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn s43_names_are_plain_and_nothing_secret_is_shown() {
        let endpoint = Endpoint::new("https://crm.example/in?token=canary").unwrap();
        let endpoint = endpoint.secret(KEY).unwrap().header("authorization", "Bearer canary").unwrap();
        let directory = Directory::new().with_endpoint("crm", endpoint).unwrap();
        let directory = directory.with_secret("tenant", NamedSecret::new(KEY, ["a.example"]).unwrap()).unwrap();
        let shown = format!("{directory:?}");
        assert!(!shown.contains("canary") && !shown.contains(&KEY[6..]), "{shown}");
        for bad in ["", "a b", "ä", &"x".repeat(65)] {
            assert!(
                Directory::new().with_endpoint(bad, Endpoint::new("http://a.example").unwrap()).is_err(),
                "{bad:?}"
            );
        }
        assert!(Directory::new().with_secret(KEY, NamedSecret::new(KEY, ["a.example"]).unwrap()).is_err());
    }

    #[test]
    fn an_endpoint_that_cannot_be_called_is_refused_without_quoting_secrets() {
        assert!(Endpoint::new("ftp://a.example").is_err());
        let endpoint = || Endpoint::new("http://10.0.0.1:3000/jobs").unwrap();
        for error in [
            endpoint().secret("whsec_canary").unwrap_err(),
            endpoint().header("host", "canary").unwrap_err(),
            endpoint().header("x-a", "canary\r\n").unwrap_err(),
        ] {
            assert!(!error.to_string().contains("canary"), "{error}");
        }
    }
}
