//! Where browsers reach the server: behind a proxy only the operator knows.

use std::str::FromStr;

use axum::http::Uri;

/// 512 characters: longer is no address that a person set up.
const MAX_CHARS: usize = 512;

/// The URL under which browsers reach the server: `https://jobs.example.com`, or with a path if a proxy serves it below one.
/// It decides what the cookie of a session looks like, and which `Origin` is the server's own.
///
/// ```
/// use steadfast::api::PublicUrl;
///
/// let url: PublicUrl = "https://tools.example.com/jobs/".parse()?;
/// assert_eq!(url.to_string(), "https://tools.example.com/jobs");
/// assert!("tools.example.com".parse::<PublicUrl>().is_err());
/// # Ok::<(), steadfast::api::NotAPublicUrl>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicUrl {
    /// As a browser writes it: lowercase, without the usual port.
    origin: String,
    /// Without the slash at its end; empty for the root.
    path: String,
}

/// The text is not the URL of a server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not the address of a server: use http:// or https://, a host, and perhaps a port and a path")]
pub struct NotAPublicUrl;

impl FromStr for PublicUrl {
    type Err = NotAPublicUrl;

    fn from_str(text: &str) -> Result<Self, NotAPublicUrl> {
        if text.len() > MAX_CHARS || text.contains(['?', '#', '@']) {
            return Err(NotAPublicUrl);
        }
        let uri: Uri = text.parse().map_err(|_| NotAPublicUrl)?;
        let scheme = uri.scheme_str().filter(|scheme| ["http", "https"].contains(scheme)).ok_or(NotAPublicUrl)?;
        let host = uri.host().filter(|host| !host.is_empty()).ok_or(NotAPublicUrl)?.to_ascii_lowercase();
        let usual = if scheme == "https" { 443 } else { 80 };
        let given = uri.port_u16();
        // A port that is none, or beyond what there are, is not among the parts.
        let authority = given.map_or_else(|| host.clone(), |port| format!("{host}:{port}"));
        if !uri.authority().is_some_and(|text| text.as_str().eq_ignore_ascii_case(&authority)) {
            return Err(NotAPublicUrl);
        }
        let port = given.filter(|port| *port != usual).map(|port| format!(":{port}"));
        let path = uri.path().trim_end_matches('/');
        // What may stand in the attribute of a cookie, and nothing that a browser would normalise.
        let of_a_path = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte);
        if !path.bytes().all(of_a_path)
            || path.contains("//")
            || path.split('/').any(|part| part == "." || part == "..")
        {
            return Err(NotAPublicUrl);
        }
        Ok(Self { origin: format!("{scheme}://{host}{}", port.unwrap_or_default()), path: path.to_owned() })
    }
}

impl std::fmt::Display for PublicUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{}", self.origin, self.path)
    }
}

impl PublicUrl {
    pub(super) fn is_https(&self) -> bool {
        self.origin.starts_with("https:")
    }

    /// Empty for the root.
    pub(super) fn path(&self) -> &str {
        &self.path
    }

    /// Whether a browser that shows a page of this server says this of itself.
    pub(super) fn is_origin(&self, origin: &str) -> bool {
        self.origin.eq_ignore_ascii_case(origin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_written_as_browsers_write_it() {
        for (given, written) in [
            ("https://Jobs.Example.com", "https://jobs.example.com"),
            ("https://jobs.example.com:443/", "https://jobs.example.com"),
            ("http://jobs.example.com:80", "http://jobs.example.com"),
            ("http://10.0.0.1:8080/a/b/", "http://10.0.0.1:8080/a/b"),
            ("https://[2001:db8::1]:8443", "https://[2001:db8::1]:8443"),
        ] {
            assert_eq!(given.parse::<PublicUrl>().unwrap().to_string(), written);
        }
        let url: PublicUrl = "https://jobs.example.com/x".parse().unwrap();
        assert!(url.is_https() && url.path() == "/x");
        assert!(url.is_origin("https://JOBS.example.com") && !url.is_origin("http://jobs.example.com"));
    }

    #[test]
    fn what_is_no_address_of_a_server_is_refused() {
        let long = format!("https://a/{}", "x".repeat(600));
        for bad in [
            "",
            "jobs.example.com",
            "/jobs",
            "ftp://a",
            "https://",
            "https://a:",
            "https://a:99999",
            "https://u@a",
            "https://a/?q",
            "https://a/#f",
            "https://a/x;y",
            "https://a/x y",
            "https://a//x",
            "https://a/../x",
            "https://a/%2e",
            &long,
        ] {
            assert_eq!(bad.parse::<PublicUrl>(), Err(NotAPublicUrl), "{bad}");
        }
    }
}
