//! The cookie that holds a session: its name, its attributes, and how it is found among those of a request.

use std::time::Duration;

use axum::http::header::COOKIE;
use axum::http::{HeaderMap, HeaderValue};

use super::public_url::PublicUrl;

/// 16 KiB of cookies are looked at: browsers send 4 KiB each, and other programs of the host may have some.
const COOKIES_MAX_BYTES: usize = 16 * 1024;
/// 128 bytes: ours have 81.
const VALUE_MAX_BYTES: usize = 128;

/// How the cookie is written, by the address under which browsers reach the server.
#[derive(Debug, Clone)]
pub(super) struct SessionCookie {
    name: &'static str,
    path: String,
    secure: bool,
}

impl SessionCookie {
    /// With the prefix `__Host-` browsers hold a cookie to be `Secure`, of this host and of its root; so it needs https, and
    /// is not for a server below a path.
    pub(super) fn of(public: Option<&PublicUrl>) -> Self {
        let secure = public.is_some_and(PublicUrl::is_https);
        let path = public.map_or("", PublicUrl::path);
        let name = if secure && path.is_empty() { "__Host-steadfast" } else { "steadfast" };
        Self { name, path: if path.is_empty() { "/".to_owned() } else { path.to_owned() }, secure }
    }

    /// The session's token, if the request holds exactly one and it could be one. Two of the same name are none: one of
    /// them is not ours, and nothing tells which.
    pub(super) fn read<'h>(&self, headers: &'h HeaderMap) -> Option<&'h str> {
        let given: usize = headers.get_all(COOKIE).iter().map(HeaderValue::len).sum();
        if given > COOKIES_MAX_BYTES {
            return None;
        }
        let cookies = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
        let pairs = cookies.flat_map(|cookies| cookies.split(';')).filter_map(|pair| pair.trim().split_once('='));
        let mut ours = pairs.filter(|(name, _)| *name == self.name).map(|(_, value)| value);
        let (Some(value), None) = (ours.next(), ours.next()) else { return None };
        let of_a_token = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'.';
        (!value.is_empty() && value.len() <= VALUE_MAX_BYTES && value.bytes().all(of_a_token)).then_some(value)
    }

    /// `Set-Cookie` for a session that ends after so long at the latest.
    pub(super) fn set(&self, token: &str, ends_in: Duration) -> HeaderValue {
        self.header(token, ends_in.as_secs())
    }

    /// `Set-Cookie` by which a browser forgets it.
    pub(super) fn clear(&self) -> HeaderValue {
        self.header("", 0)
    }

    fn header(&self, value: &str, max_age_s: u64) -> HeaderValue {
        let Self { name, path, secure } = self;
        let secure = if *secure { "; Secure" } else { "" };
        let text = format!("{name}={value}; Path={path}; Max-Age={max_age_s}; HttpOnly; SameSite=Strict{secure}");
        let mut header = HeaderValue::from_str(&text).expect("tokens, names and paths are printable");
        header.set_sensitive(true);
        header
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cookie(public: Option<&str>) -> SessionCookie {
        SessionCookie::of(public.map(|url| url.parse().unwrap()).as_ref())
    }

    #[test]
    fn its_attributes_follow_the_public_address() {
        let set = |public| cookie(public).set("a.b", Duration::from_secs(60)).to_str().unwrap().to_owned();
        let plain = "steadfast=a.b; Path=/; Max-Age=60; HttpOnly; SameSite=Strict";
        assert_eq!(set(None), plain);
        assert_eq!(set(Some("http://jobs.example.com")), plain);
        assert_eq!(set(Some("https://jobs.example.com")), format!("__Host-{plain}; Secure"));
        let below = "steadfast=a.b; Path=/x/jobs; Max-Age=60; HttpOnly; SameSite=Strict";
        assert_eq!(set(Some("http://example.com/x/jobs/")), below);
        assert_eq!(set(Some("https://example.com/x/jobs")), format!("{below}; Secure"));
        let cleared = "steadfast=; Path=/; Max-Age=0; HttpOnly; SameSite=Strict";
        assert_eq!(cookie(None).clear(), cleared);
    }

    #[test]
    fn only_one_well_formed_cookie_counts() {
        let headers = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(COOKIE, HeaderValue::from_bytes(value.as_bytes()).unwrap());
            }
            headers
        };
        let plain = cookie(None);
        for good in
            [&["steadfast=a.b"][..], &["x=1; steadfast=a.b;y=2"], &["x=1", "steadfast=a.b"], &["a; steadfast=a.b"]]
        {
            assert_eq!(plain.read(&headers(good)), Some("a.b"), "{good:?}");
        }
        let (long, many) =
            (format!("steadfast={}", "x".repeat(129)), format!("steadfast=a.b; x={}", "x".repeat(17_000)));
        for bad in [
            &[][..],
            &[""],
            &["steadfast"],
            &["steadfast="],
            &["Steadfast=a.b"],
            &["xsteadfast=a.b"],
            &["__Host-steadfast=a.b"],
            &["steadfast=\"a.b\""],
            &["steadfast=a=b"],
            &["steadfast=a b"],
            &["steadfast=ä.b"],
            &["steadfast=a.b; steadfast=a.b"],
            &["steadfast=a.b", "steadfast=c.d"],
            &[&long],
            &[&many],
        ] {
            assert_eq!(plain.read(&headers(bad)), None, "{bad:?}");
        }
        let https = cookie(Some("https://jobs.example.com"));
        assert_eq!(https.read(&headers(&["steadfast=a.b"])), None, "not the one that anybody on the host can set");
    }
}
