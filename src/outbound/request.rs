//! What is asked, and within which limits.

use std::time::Duration;

use bytes::Bytes;
use http::header::{
    ACCEPT_ENCODING, CONNECTION, CONTENT_LENGTH, EXPECT, HOST, HeaderName, TE, TRAILER, TRANSFER_ENCODING,
};
use http::header::{UPGRADE, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method};
use http_body_util::Full;

use super::error::{Class, OutboundError};
use super::target::Target;

/// Said unless the caller says otherwise.
const OUR_NAME: &str = concat!("Steadfast/", env!("CARGO_PKG_VERSION_MAJOR"), ".", env!("CARGO_PKG_VERSION_MINOR"));

/// Those that say where a request goes and where it ends: a caller's would be a second opinion.
const SET_BY_US: [HeaderName; 10] = [
    HOST,
    CONTENT_LENGTH,
    TRANSFER_ENCODING,
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    TE,
    TRAILER,
    UPGRADE,
    EXPECT,
];

/// One request.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Request {
    /// The method; `CONNECT` is refused.
    pub method: Method,
    /// Where to.
    pub target: Target,
    /// The caller's headers. `Host`, `Content-Length`, `Accept-Encoding` and those about the connection are replaced.
    pub headers: HeaderMap,
    /// The body; sent as it is.
    pub body: Bytes,
    /// Which kind of job it is counted for.
    pub kind: &'static str,
}

impl Request {
    /// Without headers and without a body.
    pub fn new(method: Method, target: Target) -> Self {
        Self { method, target, headers: HeaderMap::new(), body: Bytes::new(), kind: "other" }
    }

    /// With these headers.
    pub fn headers(mut self, headers: HeaderMap) -> Self {
        self.headers = headers;
        self
    }

    /// With this body.
    pub fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }

    /// Counted for this kind in `outbound_requests_total{kind}`.
    pub fn kind(mut self, kind: &'static str) -> Self {
        self.kind = kind;
        self
    }

    /// As it goes to hyper.
    pub(super) fn into_message(self) -> Result<http::Request<Full<Bytes>>, OutboundError> {
        let unsendable = |text: &'static str| OutboundError::new(Class::NotATarget, text);
        if self.method == Method::CONNECT {
            return Err(unsendable("the method CONNECT is not one that can be sent"));
        }
        let mut headers = self.headers;
        for name in SET_BY_US {
            headers.remove(name);
        }
        let host = HeaderValue::try_from(self.target.authority())
            .map_err(|_| unsendable("the url has a host that no header can carry"))?;
        headers.insert(HOST, host);
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        headers.entry(USER_AGENT).or_insert(HeaderValue::from_static(OUR_NAME));
        // hyper says nothing of an empty body; a POST without a length is refused by some (411).
        if !self.body.is_empty() || [Method::POST, Method::PUT, Method::PATCH].contains(&self.method) {
            headers.insert(CONTENT_LENGTH, HeaderValue::from(self.body.len()));
        }
        let mut message = http::Request::new(Full::new(self.body));
        *message.method_mut() = self.method;
        *message.uri_mut() = self.target.uri().clone();
        *message.headers_mut() = headers;
        Ok(message)
    }
}

/// How much of the answer's body is of use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Keep {
    /// All of it: a longer one is an error, and so is an encoded one.
    Whole,
    /// The beginning, to be shown: that much is read, and the connection is closed. What goes wrong after the status
    /// shortens the excerpt and is no error: the status has said what became of the request.
    Excerpt,
}

/// What one call may take.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Limits {
    /// From the start to the last byte of the answer.
    pub total: Duration,
    /// From the connection to the answer's head.
    pub first_byte: Duration,
    /// Bytes of the body that are kept.
    pub body_max: usize,
    /// What becomes of a longer body.
    pub keep: Keep,
}

impl Limits {
    /// 1 MiB: what an answer in JSON may be; who reads images says more, who reads excerpts less.
    const BODY_MAX: usize = 1 << 20;

    /// This long in all, and a whole body of at most 1 MiB.
    pub fn new(total: Duration) -> Self {
        Self { total, first_byte: total, body_max: Self::BODY_MAX, keep: Keep::Whole }
    }

    /// Sets how long the answer's head may take.
    pub fn first_byte(mut self, first_byte: Duration) -> Self {
        self.first_byte = first_byte;
        self
    }

    /// Sets how much of the body is kept.
    pub fn body_max(mut self, body_max: usize) -> Self {
        self.body_max = body_max;
        self
    }

    /// Sets what becomes of a longer body.
    pub fn keep(mut self, keep: Keep) -> Self {
        self.keep = keep;
        self
    }
}
