//! Refuses requests that another site's web page sends through a browser: cross-site request forgery, and DNS rebinding
//! (a page points its own name at 127.0.0.1, and so reaches what only this machine should).

use std::net::Ipv6Addr;

use axum::http::header::{HOST, ORIGIN};
use axum::http::{HeaderMap, Method, Uri};

use super::problem::{Code, Problem};
use super::public_url::PublicUrl;

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
pub(super) fn check_origin(
    method: &Method,
    uri: &Uri,
    headers: &HeaderMap,
    public: Option<&PublicUrl>,
) -> Result<(), Problem> {
    if method.is_safe() {
        return Ok(());
    }
    let cross_site = || Err(Problem::new(Code::CrossSite, "send it from a program, or from a page of this server"));
    if let Some(site) = headers.get("sec-fetch-site") {
        return if site == "same-origin" || site == "none" { Ok(()) } else { cross_site() };
    }
    let Some(origin) = headers.get(ORIGIN) else { return Ok(()) };
    let is_own = |origin: &str| is_configured(origin, public) || is_of_host(origin, uri, headers);
    if origin.to_str().is_ok_and(is_own) { Ok(()) } else { cross_site() }
}

/// A cookie goes with every request of a browser, whoever made it send one. So what changes something needs two proofs
/// besides: that the browser says the request is from a page of this server, and a header that no form can set.
pub(super) fn check_session(
    method: &Method,
    uri: &Uri,
    headers: &HeaderMap,
    public: Option<&PublicUrl>,
) -> Result<(), Problem> {
    if method.is_safe() {
        return Ok(());
    }
    let from_here = match only(headers, "sec-fetch-site") {
        Given::Once(site) => site == "same-origin",
        Given::Badly => false,
        Given::Never => match only(headers, ORIGIN.as_str()) {
            // Behind https a page of the same host over plain http is another site: anybody on the way may have written it.
            Given::Once(origin) => {
                let https = public.is_some_and(PublicUrl::is_https);
                is_configured(origin, public) || (!https && is_of_host(origin, uri, headers))
            }
            Given::Badly | Given::Never => false,
        },
    };
    if !from_here {
        let detail =
            "a session changes something only from a page of this server: sec-fetch-site: same-origin, or its origin";
        return Err(Problem::new(Code::CrossSite, detail));
    }
    match only(headers, SESSION_HEADER) {
        Given::Once("1") => Ok(()),
        _ => Err(Problem::new(
            Code::CrossSite,
            "a session changes something only with the header x-steadfast-session: 1",
        )),
    }
}

/// No form can set it, and a script of another origin only after asking.
const SESSION_HEADER: &str = "x-steadfast-session";

/// How a header is given.
enum Given<'h> {
    Once(&'h str),
    Never,
    /// Twice, or not as text.
    Badly,
}

fn only<'h>(headers: &'h HeaderMap, name: &str) -> Given<'h> {
    let mut given = headers.get_all(name).iter();
    match (given.next(), given.next()) {
        (None, _) => Given::Never,
        (Some(value), None) => value.to_str().map_or(Given::Badly, Given::Once),
        _ => Given::Badly,
    }
}

/// Whether an `Origin` is the configured one.
fn is_configured(origin: &str, public: Option<&PublicUrl>) -> bool {
    public.is_some_and(|public| public.is_origin(origin))
}

/// Whether an `Origin` is the host that the request itself is for.
fn is_of_host(origin: &str, uri: &Uri, headers: &HeaderMap) -> bool {
    match (origin.split_once("://"), authority(uri, headers)) {
        (Some((_, origin)), Some(here)) => origin.eq_ignore_ascii_case(&here),
        _ => false,
    }
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
        let check = |name, value| check_origin(&Method::POST, &uri, &with(name, value), None).is_ok();
        assert!(check("sec-fetch-site", "same-origin") && check("sec-fetch-site", "none"));
        assert!(!check("sec-fetch-site", "cross-site") && !check("sec-fetch-site", "same-site"));
        assert!(check("origin", "http://localhost:8080"));
        assert!(!check("origin", "http://localhost:9090") && !check("origin", "null"));
        assert!(!check("origin", "https://evil.example"));
        assert!(check("accept", "*/*"));
        assert!(check_origin(&Method::GET, &uri, &with("origin", "https://evil.example"), None).is_ok());
    }

    #[test]
    fn a_session_changes_something_only_with_both_proofs() {
        let uri = Uri::from_static("/jobs");
        let check = |given: &[(&'static str, &str)], public: Option<&str>| {
            let mut headers = with("x-steadfast-session", "1");
            for (name, value) in given {
                headers.append(*name, HeaderValue::from_str(value).unwrap());
            }
            let public = public.map(|url| url.parse().unwrap());
            check_session(&Method::POST, &uri, &headers, public.as_ref()).is_ok()
        };
        assert!(check(&[("sec-fetch-site", "same-origin")], None));
        assert!(check(&[("origin", "http://localhost:8080")], None));
        let (here, https) = (("origin", "http://localhost:8080"), Some("https://jobs.example.com"));
        for bad in [
            &[][..],
            &[("sec-fetch-site", "none")],
            &[("sec-fetch-site", "same-site")],
            &[("sec-fetch-site", "cross-site"), here],
            &[("sec-fetch-site", "same-origin"), ("sec-fetch-site", "same-origin")],
            &[("origin", "null")],
            &[("origin", "https://evil.example")],
            &[here, here],
            &[here, ("x-steadfast-session", "1")],
        ] {
            assert!(!check(bad, None), "{bad:?}");
        }
        assert!(check(&[("origin", "https://jobs.example.com")], https));
        assert!(!check(&[("origin", "http://jobs.example.com")], https) && !check(&[here], https));
        assert!(check(&[here], Some("http://jobs.example.com")));
        let mut without = with("sec-fetch-site", "same-origin");
        assert!(check_session(&Method::POST, &uri, &without, None).is_err());
        assert!(check_session(&Method::GET, &uri, &without, None).is_ok());
        without.insert("x-steadfast-session", HeaderValue::from_static("true"));
        assert!(check_session(&Method::POST, &uri, &without, None).is_err());
    }
}
