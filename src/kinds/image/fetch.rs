//! Fetches a source through the guarded client, following at most three redirects.
//!
//! The client itself follows none: each is parsed, judged and called here like a caller's URL, and none leads from https
//! to http (S18). No header of a caller is sent, and no cookie.

use std::time::Duration;

use http::header::{ACCEPT, HeaderMap, HeaderValue, LOCATION};
use http::{Method, StatusCode};
use tokio::time::Instant;
use url::Url;

use crate::kinds::ResizeImage;
use crate::outbound::{
    Answer, Class, Entry, HostGate, HostHealth, Keep, Limits, Outbound, OutboundError, Request, Target, retry_after,
};
use crate::queue::Job;
use crate::worker::JobError;

/// 3: from http to https, to `www`, to the place of the file.
const REDIRECTS_MAX: usize = 3;

/// 60 s for all of it: 20 MiB at 3 Mbit/s; and half of it for a first byte.
const TOTAL: Duration = Duration::from_secs(60);
const FIRST_BYTE: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(super) struct Fetcher {
    pub(super) guarded: Outbound,
    pub(super) gate: HostGate,
    pub(super) max_bytes: usize,
}

#[derive(Debug)]
pub(super) enum Fetched {
    File(Vec<u8>),
    /// The host is busy with us: come back after this.
    Later(Duration),
}

/// What became of one call.
enum Hop {
    File(Vec<u8>),
    Redirect(Url),
    Later(Duration),
}

impl Fetcher {
    pub(super) async fn fetch(&self, source_url: &str) -> Result<Fetched, JobError> {
        let deadline = Instant::now() + TOTAL;
        let mut target =
            Target::parse(source_url).map_err(|error| JobError::permanent(format!("source_url: {error}")))?;
        // Only to read where relative redirects lead; what is called is the target.
        let mut place = Url::parse(source_url).map_err(|_| JobError::permanent("source_url: cannot be read"))?;
        for redirects in 0..=REDIRECTS_MAX {
            match self.hop(&target, &place, deadline, redirects).await? {
                Hop::File(bytes) => return Ok(Fetched::File(bytes)),
                Hop::Later(wait) => return Ok(Fetched::Later(wait)),
                Hop::Redirect(next) => {
                    let next_target = Target::parse(next.as_str())
                        .map_err(|error| JobError::permanent(format!("{}: {error}", after(redirects + 1))))?;
                    if target.is_https() && !next_target.is_https() {
                        return Err(JobError::permanent(format!(
                            "{}: it leads from https to http and is not followed",
                            after(redirects + 1)
                        )));
                    }
                    (target, place) = (next_target, next);
                }
            }
        }
        Err(JobError::permanent(format!("the source redirects more than {REDIRECTS_MAX} times")))
    }

    async fn hop(&self, target: &Target, place: &Url, deadline: Instant, redirects: usize) -> Result<Hop, JobError> {
        let permit = match self.gate.enter(target, None) {
            Entry::Go(permit) => permit,
            Entry::Later(wait) => return Ok(Hop::Later(wait)),
            Entry::Tripped { next_probe, .. } => {
                let text =
                    format!("not tried: the host of the source is failing; next try in {} s", next_probe.as_secs());
                return Err(JobError::new(text).retry_no_sooner_than(next_probe));
            }
        };
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("image/jpeg, image/png, image/webp, image/gif"));
        let request = Request::new(Method::GET, target.clone()).headers(headers).kind(ResizeImage::KIND);
        let total = deadline.saturating_duration_since(Instant::now());
        let limits = Limits::new(total).first_byte(total.min(FIRST_BYTE)).body_max(self.max_bytes).keep(Keep::Whole);
        match self.guarded.send(request, limits).await {
            Ok(answer) => {
                permit.ended(health(answer.status));
                meaning(answer, place, redirects)
            }
            Err(error) => {
                if matches!(error.class(), Class::Dns | Class::Connect | Class::Tls | Class::Timeout(_)) {
                    permit.ended(HostHealth::Ill);
                }
                Err(failed(&error, redirects))
            }
        }
    }
}

fn health(status: StatusCode) -> HostHealth {
    if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS { HostHealth::Ill } else { HostHealth::Well }
}

/// In front of an error, so that it is understood which host is meant.
fn after(redirects: usize) -> String {
    if redirects == 0 { "the source".into() } else { format!("the source, redirect {redirects}") }
}

fn failed(error: &OutboundError, redirects: usize) -> JobError {
    let text = format!("{}: {error}", after(redirects));
    if error.is_permanent() { JobError::permanent(text) } else { JobError::new(text) }
}

/// What an answer means for the job.
fn meaning(answer: Answer, place: &Url, redirects: usize) -> Result<Hop, JobError> {
    let said = format!("{} answered {}", after(redirects), answer.status.as_u16());
    match answer.status.as_u16() {
        200 | 203 => Ok(Hop::File(answer.body)),
        301 | 302 | 303 | 307 | 308 => {
            let next = answer.headers.get(LOCATION).and_then(|location| redirected(place, location));
            next.map(Hop::Redirect).ok_or_else(|| JobError::permanent(format!("{said} without a place to go on")))
        }
        // Nothing is there, or the same request will be refused again.
        400 | 404..=406 | 410 | 411 | 413..=415 | 422 | 431 | 451 | 501 | 505 => Err(JobError::permanent(said)),
        _ => {
            let error = JobError::new(said);
            Err(match retry_after(&answer.headers) {
                Some(wait) => error.retry_no_sooner_than(wait),
                None => error,
            })
        }
    }
}

/// Where a redirect leads. Characters that parsers disagree about are refused before anything is joined.
fn redirected(place: &Url, location: &HeaderValue) -> Option<Url> {
    let location = std::str::from_utf8(location.as_bytes()).ok()?;
    if location.bytes().any(|byte| byte < 0x21 || byte == 0x7f || byte == b'\\') {
        return None;
    }
    place.join(location).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_redirects_lead_from_where_they_were_found() {
        let place = Url::parse("https://a.test/x/y?z#f").unwrap();
        let next = |location: &[u8]| {
            redirected(&place, &HeaderValue::from_bytes(location).unwrap()).map(|url| url.as_str().to_owned())
        };
        assert_eq!(next(b"z.png").as_deref(), Some("https://a.test/x/z.png"));
        assert_eq!(next(b"/z.png").as_deref(), Some("https://a.test/z.png"));
        assert_eq!(next(b"//b.test/z").as_deref(), Some("https://b.test/z"));
        assert_eq!(next(b"http://b.test/").as_deref(), Some("http://b.test/"));
        assert_eq!(next("/ä".as_bytes()).as_deref(), Some("https://a.test/%C3%A4"));
        for refused in [&b"\\\\b.test/"[..], b"/a b", b"/a\tb", b"http://[", b"/\xff"] {
            assert_eq!(next(refused), None, "{refused:?}");
        }
    }
}
