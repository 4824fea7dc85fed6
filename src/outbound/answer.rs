//! What came back: status, headers, and as much of the body as was asked for.
//!
//! Nothing is decompressed, so what arrives is what is counted: there is no bomb.

use std::time::Duration;

use http::header::{CONTENT_ENCODING, CONTENT_LENGTH};
use http::{HeaderMap, StatusCode};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use tokio::time::{Instant, timeout_at};

use super::error::{Class, OutboundError, Stage, TimeoutOf};
use super::request::{Keep, Limits};

/// 32: longer names of encodings are not names.
const ENCODING_SHOWN_MAX: usize = 32;

/// An answer, whatever its status.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Answer {
    /// Its status; a redirect is an answer like any other.
    pub status: StatusCode,
    /// All of its headers: at most 100, 64 KiB together.
    pub headers: HeaderMap,
    /// The body, or its beginning. In place of the excerpt of an encoded one: `(gzip, 812 bytes)`.
    pub body: Vec<u8>,
    /// Whether there was more.
    pub truncated: bool,
    /// From the call to the last byte read.
    pub took: Duration,
}

/// The clocks of one call.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clocks {
    pub(super) started: Instant,
    pub(super) between_frames: Duration,
}

impl Answer {
    /// Reads the body within the limits.
    pub(super) async fn read(
        response: http::Response<Incoming>,
        limits: &Limits,
        clocks: Clocks,
    ) -> Result<Self, OutboundError> {
        let (head, body) = response.into_parts();
        if head.status == StatusCode::SWITCHING_PROTOCOLS {
            return Err(OutboundError::new(
                Class::Protocol,
                "protocol: the server switched to another protocol unasked",
            ));
        }
        let (body, truncated) = match encoding(&head.headers) {
            Some(encoding) if limits.keep == Keep::Whole && !body.is_end_stream() => {
                let text = format!("protocol: the answer is encoded ({encoding}) although identity was asked for");
                return Err(OutboundError::new(Class::Protocol, text));
            }
            Some(encoding) if !body.is_end_stream() => (described(&encoding, &head.headers), true),
            _ => read_body(body, limits, clocks).await?,
        };
        Ok(Self { status: head.status, headers: head.headers, body, truncated, took: clocks.started.elapsed() })
    }
}

async fn read_body(mut body: Incoming, limits: &Limits, clocks: Clocks) -> Result<(Vec<u8>, bool), OutboundError> {
    if limits.keep == Keep::Whole && body.size_hint().lower() > u64::try_from(limits.body_max).unwrap_or(u64::MAX) {
        return Err(too_large(limits));
    }
    let total = clocks.started + limits.total;
    let mut kept = Vec::new();
    loop {
        let until = total.min(Instant::now() + clocks.between_frames);
        let failure = match timeout_at(until, body.frame()).await {
            Ok(None) => return Ok((kept, false)),
            Ok(Some(Ok(frame))) => {
                // Trailers are passed over.
                let Ok(data) = frame.into_data() else { continue };
                let room = limits.body_max - kept.len();
                kept.extend_from_slice(&data[..room.min(data.len())]);
                if data.len() <= room {
                    continue;
                }
                too_large(limits)
            }
            Ok(Some(Err(_))) => OutboundError::new(Class::Protocol, "protocol: the answer broke off in its body"),
            Err(_) if until == total => OutboundError::timeout(Stage::Body, limits.total, TimeoutOf::Call),
            Err(_) => OutboundError::timeout(Stage::Body, clocks.between_frames, TimeoutOf::Stage),
        };
        return match limits.keep {
            Keep::Whole => Err(failure),
            Keep::Excerpt => Ok((kept, true)),
        };
    }
}

fn too_large(limits: &Limits) -> OutboundError {
    OutboundError::new(Class::TooLarge, format!("too large: the answer is longer than {} bytes", limits.body_max))
}

/// The encoding of the body, if it has one; of its name only what can be shown.
fn encoding(headers: &HeaderMap) -> Option<String> {
    let names: Vec<_> = headers.get_all(CONTENT_ENCODING).iter().map(|name| name.as_bytes()).collect();
    let is_identity = |name: &&[u8]| name.is_empty() || name.eq_ignore_ascii_case(b"identity");
    if names.iter().all(is_identity) {
        return None;
    }
    let shown = names.join(&b","[..]);
    let shown = shown.iter().map(|byte| char::from(*byte)).filter(|c| c.is_ascii_alphanumeric() || ",-".contains(*c));
    Some(shown.take(ENCODING_SHOWN_MAX).collect())
}

/// `(gzip, 812 bytes)`; nothing of it is read.
fn described(encoding: &str, headers: &HeaderMap) -> Vec<u8> {
    let length = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    match length {
        Some(length) => format!("({encoding}, {length} bytes)"),
        None => format!("({encoding})"),
    }
    .into_bytes()
}
