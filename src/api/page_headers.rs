//! What every HTML page, and what it is made of, says to the browser (SECURITY.md S54). `nosniff` is added to all answers by the
//! middleware.

use axum::http::header::{CONTENT_SECURITY_POLICY, REFERRER_POLICY};
use axum::http::{HeaderMap, HeaderName, HeaderValue};

/// Nothing inline, nothing from elsewhere. Swagger UI's icons are data URLs in its style sheet.
macro_rules! from_here_only {
    () => {
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; \
         connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    };
}

/// For Swagger UI, which makes HTML of strings.
pub(super) const CSP: &str = from_here_only!();

/// For pages of our own: no string becomes HTML but by the one policy of `ui/core/html.js`, over static templates.
#[cfg(feature = "dashboard")]
pub(super) const STRICT_CSP: &str =
    concat!(from_here_only!(), "; require-trusted-types-for 'script'; trusted-types steadfast");

pub(super) fn add_page_headers(headers: &mut HeaderMap, csp: &'static str) {
    for (name, value) in [
        (CONTENT_SECURITY_POLICY, csp),
        (REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        (HeaderName::from_static("permissions-policy"), "camera=(), geolocation=(), microphone=(), payment=(), usb=()"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
}
