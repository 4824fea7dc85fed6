//! Refuses requests that another site's web page sends through a browser: cross-site request forgery, and DNS rebinding
//! (a page points its own name at 127.0.0.1, and so reaches what only this machine should).

use std::net::Ipv6Addr;

use axum::http::header::{HOST, ORIGIN};
use axum::http::{HeaderMap, Method, Uri};

use super::problem::{Code, Problem};

/// While the server is open, `Host` must be a name of this machine or one of `allowed` (lowercase).
pub(super) fn check_host(uri: &Uri, headers: &HeaderMap, allowed: &[String]) -> Result<(), Problem> {
    let refusal = || {
        let detail = "without tokens only localhost, 127.0.0.1, [::1] and configured names are answered";
        Problem::new(Code::ForeignHost, detail)
    };
    let authority = authority(uri, headers).ok_or_else(refusal)?;
    let host = host_of(&authority).ok_or_else(refusal)?;
    let own = ["localhost", "127.0.0.1", "[::1]"].contains(&host);
    let named = || allowed.iter().any(|name| name == host || *name == authority);
    if own || named() { Ok(()) } else { Err(refusal()) }
}

/// Methods that change something are refused if a browser says that a page of another site sent them. Programs that are
/// no browsers send neither header.
pub(super) fn check_origin(method: &Method, uri: &Uri, headers: &HeaderMap) -> Result<(), Problem> {
    if method.is_safe() {
        return Ok(());
    }
    let cross_site = || Err(Problem::new(Code::CrossSite, "send it from a program, or from a page of this server"));
    if let Some(site) = headers.get("sec-fetch-site") {
        return if site == "same-origin" || site == "none" { Ok(()) } else { cross_site() };
    }
    let Some(origin) = headers.get(ORIGIN) else { return Ok(()) };
    let origin = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
    let same = match (origin, authority(uri, headers)) {
        (Some((_, origin)), Some(here)) => origin.eq_ignore_ascii_case(&here),
        _ => false,
    };
    if same { Ok(()) } else { cross_site() }
}

/// Which server the caller means, in lowercase; `None` if it does not say, or says it twice.
fn authority(uri: &Uri, headers: &HeaderMap) -> Option<String> {
    if let Some(authority) = uri.authority() {
        return Some(authority.as_str().to_ascii_lowercase());
    }
    let mut hosts = headers.get_all(HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else { return None };
    Some(host.to_str().ok()?.to_ascii_lowercase())
}

/// The host of `host` or `host:port`, and of nothing that only looks like it: no user, no second port, nothing behind
/// the brackets of an IPv6 address.
fn host_of(authority: &str) -> Option<&str> {
    let host_bytes = match authority.strip_prefix('[') {
        Some(rest) => {
            let (ip, _) = rest.split_once(']')?;
            ip.parse::<Ipv6Addr>().ok()?;
            ip.len() + 2
        }
        None => {
            let name = authority.split(':').next().filter(|name| !name.is_empty())?;
            let of_a_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
            name.bytes().all(of_a_name).then_some(name.len())?
        }
    };
    let (host, rest) = authority.split_at(host_bytes);
    let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok();
    (rest.is_empty() || rest.strip_prefix(':').is_some_and(is_port)).then_some(host)
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn with(name: &'static str, value: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(HOST, HeaderValue::from_static("localhost:8080"));
        headers.insert(name, HeaderValue::from_str(value).unwrap());
        headers
    }

    #[test]
    fn only_names_of_this_machine_and_configured_ones_are_answered() {
        let uri = Uri::from_static("/jobs");
        let allowed = vec!["queue.internal".to_owned()];
        for host in ["localhost", "LOCALHOST:8080", "127.0.0.1:1", "[::1]:8080", "queue.internal", "queue.internal:80"]
        {
            assert!(check_host(&uri, &with("host", host), &allowed).is_ok(), "{host}");
        }
        for host in
            ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "", "127.0.0.2", "a@localhost:x"]
        {
            assert!(check_host(&uri, &with("host", host), &allowed).is_err(), "{host}");
        }
        for almost in [
            "[::1]evil",
            "[::1]evil:80",
            "[::1].evil.example",
            "[::1]:x",
            "[::1]:",
            "[::1",
            "::1",
            "[]",
            "[::1]:80:80",
            "localhost:80:80",
            "localhost:x",
            "localhost:",
            "localhost:+80",
            "localhost:65536",
            "localhost:80@evil",
            "evil@localhost",
            "localhost/",
            "localhost?",
            "local host",
            ":80",
            "localhost%00",
            "queue.internal:80:80",
        ] {
            assert!(check_host(&uri, &with("host", almost), &allowed).is_err(), "{almost}");
        }
        assert!(check_host(&uri, &HeaderMap::new(), &allowed).is_err());
        assert!(check_host(&Uri::from_static("http://evil.example/jobs"), &with("host", "localhost"), &[]).is_err());
    }

    #[test]
    fn a_page_of_another_site_changes_nothing() {
        let uri = Uri::from_static("/jobs");
        let check = |name, value| check_origin(&Method::POST, &uri, &with(name, value)).is_ok();
        assert!(check("sec-fetch-site", "same-origin") && check("sec-fetch-site", "none"));
        assert!(!check("sec-fetch-site", "cross-site") && !check("sec-fetch-site", "same-site"));
        assert!(check("origin", "http://localhost:8080"));
        assert!(!check("origin", "http://localhost:9090") && !check("origin", "null"));
        assert!(!check("origin", "https://evil.example"));
        assert!(check("accept", "*/*"));
        assert!(check_origin(&Method::GET, &uri, &with("origin", "https://evil.example")).is_ok());
    }
}
