//! The overview: what there is now, how fast it goes, and what is wrong; once, or as a stream. And what is wrong by itself.
//!
//! Start reading at `hub`, the one task that makes it; `gather` reads, `flow` computes rates, `stream` serves one reader.

mod flow;
mod gather;
mod hub;
mod stream;

use axum::extract::{FromRequestParts, State};
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, COOKIE, ETAG, IF_NONE_MATCH};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};

pub(super) use self::flow::{Crew, Flow, activity, due_by_queue};
pub(super) use self::hub::PulseHub;
use self::stream::Reader;
use super::problem::{Code, Problem};
use super::state::Api;
use super::wire::{ProblemView, PulseShape};
use super::write_timeout::StreamMark;

/// Proxies that hold responses back until they are complete must not do so with a stream.
const X_ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// Look at everything at once
///
/// Made at most once a second, and only while somebody asks. The `ETag` names what it says, `at` left out.
#[utoipa::path(
    get, path = "/pulse", tag = "overview", operation_id = "pulse",
    params(("If-None-Match" = Option<String>, Header, description = "an `ETag`: 304 if nothing but the time has changed")),
    responses(
        (status = 200, description = "the overview", body = PulseShape,
            headers(("ETag" = String, description = "names what it says"))),
        (status = 304, description = "nothing has changed"),
    ),
)]
pub(super) async fn pulse(State(api): State<Api>, headers: HeaderMap) -> Result<Response, Problem> {
    let pulse = api.pulse.current(&api).await?;
    let etag = HeaderValue::from_str(&pulse.etag).expect("hexadecimal digits are valid in a header");
    let is_known = |given: &HeaderValue| {
        given
            .to_str()
            .is_ok_and(|given| given.split(',').any(|one| matches!(one.trim(), "*") || one.trim() == pulse.etag))
    };
    if headers.get_all(IF_NONE_MATCH).iter().any(is_known) {
        return Ok((StatusCode::NOT_MODIFIED, [(ETAG, etag)]).into_response());
    }
    let json = HeaderValue::from_static("application/json");
    Ok(([(CONTENT_TYPE, json), (ETAG, etag)], pulse.document.clone()).into_response())
}

/// Follow everything
///
/// Server-sent events: `pulse` with the document of `GET /pulse`, whenever it changes, once a second at most; `end` when the server
/// ends the stream. 256 streams at one time, then 503: ask `GET /pulse` from time to time instead.
#[utoipa::path(
    get, path = "/pulse/stream", tag = "overview", operation_id = "pulse_stream",
    responses((status = 200, description = "events until one side hangs up", body = String, content_type = "text/event-stream")),
)]
pub(super) async fn pulse_stream(
    State(api): State<Api>,
    Mark(mark): Mark,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let Ok(permit) = api.pulse.streams.clone().try_acquire_owned() else {
        let detail = "too many streams are open; ask GET /pulse from time to time instead";
        return Err(Problem::new(Code::Overloaded, detail));
    };
    let mut kept = HeaderMap::new();
    for name in [AUTHORIZATION, COOKIE] {
        headers.get_all(&name).iter().for_each(|value| _ = kept.append(name.clone(), value.clone()));
    }
    let watching = api.pulse.watch(&api);
    let body = Reader { api, headers: kept, mark, _permit: permit }.begin(watching);
    let events = HeaderValue::from_static("text/event-stream");
    let headers = [(CONTENT_TYPE, events), (X_ACCEL_BUFFERING, HeaderValue::from_static("no"))];
    Ok((headers, body).into_response())
}

/// What is wrong
///
/// The worst first; empty if nothing is. Each with a sentence, and the call that is usually made about it.
#[utoipa::path(
    get, path = "/problems", tag = "overview", operation_id = "problems",
    responses((status = 200, description = "what is wrong", body = Vec<ProblemView>)),
)]
pub(super) async fn problems(State(api): State<Api>) -> Result<Response, Problem> {
    let pulse = api.pulse.current(&api).await?;
    Ok(([(CONTENT_TYPE, HeaderValue::from_static("application/json"))], pulse.problems.clone()).into_response())
}

/// The mark of the connection, if it is one of ours: in a router that is nested elsewhere there is none.
pub(super) struct Mark(Option<StreamMark>);

impl<S: Sync> FromRequestParts<S> for Mark {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(head: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        Ok(Self(head.extensions.get::<StreamMark>().cloned()))
    }
}
