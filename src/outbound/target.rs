//! What a URL must be to be called. It is parsed here and nowhere else: from here on there are parts, no text that
//! somebody else could read differently.
//!
//! Never looks a name up and judges no address: that is for `connect.rs` and `judge.rs`.

use std::fmt;
use std::net::IpAddr;

use http::Uri;
use http::uri::Scheme;
use url::{Host, Url};

/// 2,048 bytes: what browsers and servers commonly take.
const URL_MAX: usize = 2048;
/// Of a name (RFC 1035), and of a label in it.
const NAME_MAX: usize = 253;
const LABEL_MAX: usize = 63;

/// Why a text is not a URL that can be called.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the url {0}")]
pub struct NotATarget(&'static str);

/// A URL of http or https, in parts.
#[derive(Clone, PartialEq, Eq)]
pub struct Target {
    host: String,
    ip: Option<IpAddr>,
    port: u16,
    uri: Uri,
}

impl Target {
    /// Reads a URL. Refused are, among others, userinfo, characters that parsers disagree about, and other schemes.
    pub fn parse(text: &str) -> Result<Self, NotATarget> {
        if text.len() > URL_MAX {
            return Err(NotATarget("is longer than 2048 bytes"));
        }
        // The standard drops tabs and newlines and reads `\` as `/`; others do not.
        if text.bytes().any(|byte| byte < 0x21 || byte == 0x7f || byte == b'\\') {
            return Err(NotATarget("has a space, a control character or a backslash"));
        }
        // The standard also takes `http:example.org` and `http:///example.org`.
        let after_scheme = scheme_of(text).ok_or(NotATarget("does not begin with http:// or https://"))?;
        let authority = after_scheme.split(['/', '?', '#']).next().unwrap_or_default();
        if authority.is_empty() {
            return Err(NotATarget("has no host"));
        }
        if authority.contains('@') {
            return Err(NotATarget("has a user or a password in it; give credentials in a header"));
        }
        let url = Url::parse(text).map_err(|_| NotATarget("cannot be read as one"))?;
        Self::of(&url)
    }

    fn of(url: &Url) -> Result<Self, NotATarget> {
        let scheme = match url.scheme() {
            "http" => Scheme::HTTP,
            "https" => Scheme::HTTPS,
            _ => return Err(NotATarget("does not begin with http:// or https://")),
        };
        if !url.username().is_empty() || url.password().is_some() {
            return Err(NotATarget("has a user or a password in it; give credentials in a header"));
        }
        let (host, ip) = match url.host().ok_or(NotATarget("has no host"))? {
            Host::Ipv4(ip) => (ip.to_string(), Some(IpAddr::V4(ip))),
            Host::Ipv6(ip) => (ip.to_string(), Some(IpAddr::V6(ip))),
            Host::Domain(name) => (name_of(name)?.to_owned(), None),
        };
        let port = url.port_or_known_default().ok_or(NotATarget("has no port"))?;
        let path_and_query = match url.query() {
            Some(query) => format!("{}?{query}", url.path()),
            None => url.path().to_owned(),
        };
        let uri = Uri::builder()
            .scheme(scheme.clone())
            .authority(authority(&host, ip, scheme == Scheme::HTTPS, port))
            .path_and_query(path_and_query)
            .build()
            .map_err(|_| NotATarget("has characters in it that HTTP cannot carry"))?;
        Ok(Self { host, ip, port, uri })
    }

    /// The name, or the address without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The address, if the URL has one for a name.
    pub fn ip(&self) -> Option<IpAddr> {
        self.ip
    }

    /// The port, that of the scheme unless given.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Whether the connection is encrypted.
    pub fn is_https(&self) -> bool {
        self.uri.scheme() == Some(&Scheme::HTTPS)
    }

    /// What the header `Host` says: the host, in brackets if it is an IPv6 address, and the port if it is not the
    /// scheme's.
    pub fn authority(&self) -> String {
        authority(&self.host, self.ip, self.is_https(), self.port)
    }

    /// The path, without the query.
    pub fn path(&self) -> &str {
        self.uri.path()
    }

    /// This place, with `path` (`/orders/7?full=1`) behind its own path. It cannot lead out of it: `..` is refused. A
    /// query of its own stays in front of that of `path`.
    pub fn with_path(&self, path: &str) -> Result<Self, NotATarget> {
        if !path.starts_with('/') {
            return Err(NotATarget("is given a path that does not begin with /"));
        }
        if path.contains('#') {
            return Err(NotATarget("is given a path with a fragment in it"));
        }
        let (path, query) = path.split_once('?').map_or((path, None), |(path, query)| (path, Some(query)));
        if path.split('/').any(is_dot_segment) {
            return Err(NotATarget("is given a path with . or .. in it"));
        }
        let queries: Vec<_> = self.uri.query().into_iter().chain(query).filter(|query| !query.is_empty()).collect();
        let scheme = if self.is_https() { "https" } else { "http" };
        let mut text = format!("{scheme}://{}{}{path}", self.authority(), self.path().trim_end_matches('/'));
        if !queries.is_empty() {
            text.push('?');
            text.push_str(&queries.join("&"));
        }
        let joined = Self::parse(&text)?;
        let leads_elsewhere = joined.is_https() != self.is_https() || joined.authority() != self.authority();
        if leads_elsewhere { Err(NotATarget("is given a path that leads elsewhere")) } else { Ok(joined) }
    }

    /// For hyper: what the connector sees of it is the scheme and the authority.
    pub(super) fn uri(&self) -> &Uri {
        &self.uri
    }
}

/// Without the query: that is where keys are.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_https() { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority(), self.path())
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Target({self})")
    }
}

fn scheme_of(text: &str) -> Option<&str> {
    ["http://", "https://"].into_iter().find_map(|scheme| {
        let (start, rest) = text.split_at_checked(scheme.len())?;
        start.eq_ignore_ascii_case(scheme).then_some(rest)
    })
}

/// A name as it is looked up: without the dot that may end it, so that one name has one spelling.
fn name_of(name: &str) -> Result<&str, NotATarget> {
    let name = name.strip_suffix('.').unwrap_or(name);
    if name.len() > NAME_MAX || name.split('.').any(|label| label.len() > LABEL_MAX) {
        return Err(NotATarget("has a host name that is too long"));
    }
    if name.split('.').any(str::is_empty) {
        return Err(NotATarget("has a host name with nothing between two dots"));
    }
    let is_of_a_name = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_.".contains(&byte);
    if !name.bytes().all(is_of_a_name) {
        return Err(NotATarget("has characters in its host that no name has"));
    }
    Ok(name)
}

fn authority(host: &str, ip: Option<IpAddr>, https: bool, port: u16) -> String {
    let default_port = if https { 443 } else { 80 };
    let host = if matches!(ip, Some(IpAddr::V6(_))) { format!("[{host}]") } else { host.to_owned() };
    if port == default_port { host } else { format!("{host}:{port}") }
}

/// `.` and `..`, also as `%2e`.
fn is_dot_segment(segment: &str) -> bool {
    let plain = segment.to_ascii_lowercase().replace("%2e", ".");
    plain == "." || plain == ".."
}
