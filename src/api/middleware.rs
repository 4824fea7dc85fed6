//! The one middleware around the whole router. In order: the request gets its id and its span; an unknown `Host`, a page of
//! another site or a caller without the right is refused; the rest is handled within its timeout; what is left of the body
//! is discarded; every response gets its headers and is charged to its memory budget, every error gets its body; then it
//! is counted and logged.
//!
//! Nothing of a request but its method, its route's template and its id is ever logged.

use std::future::{Future, poll_fn};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Poll;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::{MatchedPath, Request, State};
use axum::http::header::{CACHE_CONTROL, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, EXPECT, X_CONTENT_TYPE_OPTIONS};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tracing::Instrument;

use super::access::{Access, Caller, required_access};
use super::auth::Credential;
use super::cross_site::{check_host, check_origin, check_session};
use super::limits::{IN_RESERVE_BODY_TIMEOUT, REFUSED_BODY_TIMEOUT};
use super::problem::{Code, Problem};
use super::state::{Api, ApiState};
use super::unread_body::{KeepAlive, track};
use super::urgent_runtime::is_urgent;
use crate::job::TraceContext;

pub(super) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Where a request came from.
#[derive(Debug, Clone, Copy)]
pub(super) struct PeerAddress(pub(super) SocketAddr);

impl PeerAddress {
    /// What is counted as one address: an IPv6 host has a whole /64 to itself.
    pub(super) fn network(self) -> IpAddr {
        match self.0.ip().to_canonical() {
            IpAddr::V6(ip) => IpAddr::from(Ipv6Addr::from(u128::from(ip) & !u128::from(u64::MAX))),
            ip => ip,
        }
    }
}

/// The request's id, for handlers of public routes; others have it in their [`Actor`](crate::store::Actor).
#[derive(Debug, Clone)]
pub(super) struct RequestId(pub(super) String);

/// Marks the request of a connection beyond the limit: only probes and workers are served, and nobody waits.
#[derive(Debug, Clone, Copy)]
pub(super) struct InReserve;

/// The trace of the request. What is not valid is ignored: a producer's tracing must not keep its jobs out.
pub(super) fn trace_context(headers: &HeaderMap) -> Option<TraceContext> {
    let mut parents = headers.get_all("traceparent").iter();
    let (Some(parent), None) = (parents.next(), parents.next()) else { return None };
    // The specification has several headers read as one list.
    let states: Vec<&str> = headers.get_all("tracestate").iter().filter_map(|state| state.to_str().ok()).collect();
    TraceContext::parse(parent.to_str().ok()?, (!states.is_empty()).then(|| states.join(",")).as_deref())
}

pub(super) async fn handle(State(api): State<Api>, request: Request, next: Next) -> Response {
    let started = Instant::now();
    let id = request_id(request.headers());
    let (verb, method) = (request.method().clone(), method_label(request.method()));
    let route = request.extensions().get::<MatchedPath>().cloned();
    let route_label = route.as_ref().map_or("unmatched", |route| route.as_str());
    let trace_id = tracing::field::Empty;
    let span = tracing::info_span!("request", request_id = %id, method, route = route_label, trace_id);
    if let Some(trace) = trace_context(request.headers()) {
        span.record("trace_id", trace.trace_id());
    }
    let in_reserve = request.extensions().get::<InReserve>().is_some();
    let waits_for_continue = request.headers().contains_key(EXPECT);
    let (head, body) = request.into_parts();
    let (body, unread) = track(body);
    let request = Request::from_parts(head, body);
    let mut response = run_handler(&api, request, next, route.as_ref(), &id).instrument(span.clone()).await;
    write_problem(&mut response, &id);
    // Before anything else is waited for: it is in memory.
    let mut response = match api.response_memory.charge(&verb, route.as_ref(), response).await {
        Ok(response) => response,
        Err(refusal) => {
            let mut response = refusal.into_response();
            write_problem(&mut response, &id);
            response
        }
    };
    add_headers(&mut response, &id);
    let longest = if in_reserve { IN_RESERVE_BODY_TIMEOUT } else { REFUSED_BODY_TIMEOUT };
    let keep_alive = match unread {
        Some(unread) => unread.discard(waits_for_continue, longest).await,
        None => KeepAlive::Keep,
    };
    if keep_alive == KeepAlive::Close || in_reserve {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    let status = response.status().as_u16();
    super::metrics::request(route_label, method, status, started.elapsed());
    span.in_scope(|| log(status, started.elapsed()));
    response
}

/// Within its time, and without a panic reaching anybody else.
async fn run_handler(
    api: &ApiState,
    request: Request,
    next: Next,
    route: Option<&MatchedPath>,
    request_id: &str,
) -> Response {
    let is_safe = request.method().is_safe();
    let handled = async {
        let (mut head, body) = request.into_parts();
        match authorize(api, &mut head, route, request_id).await {
            Ok(()) => next.run(Request::from_parts(head, body)).await,
            Err(response) => response,
        }
    };
    match tokio::time::timeout(api.limits.request_timeout, catch_panic(handled)).await {
        Ok(Some(response)) => response,
        // The panic hook has logged what happened.
        Ok(None) => Problem::new(Code::Internal, "the server's log says more under this request_id").into_response(),
        Err(_) if is_safe => Problem::new(Code::RequestTimeout, "the server took too long; try again").into_response(),
        // What was begun goes on without its caller.
        Err(_) => Problem::new(
            Code::OutcomeUnknown,
            "the server took too long and may still do it; try again, and an enqueue with the same idempotency key",
        )
        .into_response(),
    }
}

/// Lets the caller in, or says why not. Handlers find out who it is by the request's extensions: a [`Caller`], and an
/// [`Actor`](crate::store::Actor) for [`OperatorQueue`](super::extract::OperatorQueue).
async fn authorize(
    api: &ApiState,
    head: &mut Parts,
    route: Option<&MatchedPath>,
    request_id: &str,
) -> Result<(), Response> {
    let in_reserve = head.extensions.get::<InReserve>().is_some();
    if in_reserve && !route.is_some_and(|route| is_urgent(route.as_str())) {
        return Err(Problem::new(Code::Overloaded, "too many connections; try again shortly").into_response());
    }
    let access = required_access(&head.method, route.map(MatchedPath::as_str));
    let public_url = api.public_url.as_ref();
    check_origin(&head.method, &head.uri, &head.headers, public_url).map_err(IntoResponse::into_response)?;
    if access == Access::Public {
        head.extensions.insert(RequestId(request_id.to_owned()));
        return Ok(());
    }
    let peer = head.extensions.get::<PeerAddress>().copied();
    let caller = verify(api, peer, in_reserve, api.authenticator.credential(&head.headers)).await?;
    if matches!(caller, Caller::Anyone) {
        check_host(&head.uri, &head.headers, &api.hosts).map_err(IntoResponse::into_response)?;
    }
    if caller.is_session() {
        check_session(&head.method, &head.uri, &head.headers, public_url).map_err(IntoResponse::into_response)?;
    }
    caller.require(access).map_err(IntoResponse::into_response)?;
    head.extensions.insert(caller.actor(request_id, peer));
    head.extensions.insert(caller);
    Ok(())
}

/// Who is calling, unless the address has tried too many tokens.
pub(super) async fn verify(
    api: &ApiState,
    peer: Option<PeerAddress>,
    in_reserve: bool,
    credential: Credential<'_>,
) -> Result<Caller, Response> {
    let Some(peer) = peer else {
        // Embedded in another server, which knows who connects; it has to throttle.
        return api.authenticator.verify(credential).await.map_err(IntoResponse::into_response);
    };
    let Some(attempt) = api.throttle.begin(peer.network(), credential.secret()) else {
        let detail = "this address has sent too many invalid tokens and this one was not looked at; try again later";
        return Err(closing(Problem::new(Code::TooManyFailures, detail)));
    };
    match api.authenticator.verify(credential).await {
        Ok(caller) => {
            attempt.succeeded();
            Ok(caller)
        }
        Err(problem) if matches!(problem.code(), Code::Unauthorized | Code::TokenExpired) => {
            match attempt.refused(in_reserve).await {
                KeepAlive::Keep => Err(problem.into_response()),
                KeepAlive::Close => Err(closing(problem)),
            }
        }
        Err(problem) => Err(problem.into_response()),
    }
}

fn closing(problem: Problem) -> Response {
    let mut response = problem.into_response();
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

/// `None` if it panicked: that ends one request and nothing else.
async fn catch_panic<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut future = Box::pin(future);
    poll_fn(move |context| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))) {
        Ok(poll) => poll.map(Some),
        Err(_) => Poll::Ready(None),
    })
    .await
}

/// The caller's own id if it is sane, else a new one.
fn request_id(headers: &HeaderMap) -> String {
    let given = headers.get(&REQUEST_ID).and_then(|value| value.to_str().ok());
    let sane = |id: &&str| {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
        (1..=128).contains(&id.len()) && id.bytes().all(allowed)
    };
    given.filter(sane).map_or_else(|| uuid::Uuid::now_v7().to_string(), str::to_owned)
}

/// Bounded: anybody can make up methods.
fn method_label(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::DELETE => "DELETE",
        Method::HEAD => "HEAD",
        Method::OPTIONS => "OPTIONS",
        Method::PATCH => "PATCH",
        _ => "OTHER",
    }
}

fn write_problem(response: &mut Response, id: &str) {
    let problem = match response.extensions_mut().remove::<Problem>() {
        Some(problem) => problem,
        None if response.status().is_client_error() || response.status().is_server_error() => {
            Problem::for_status(response.status())
        }
        None => return,
    };
    *response.body_mut() = Body::from(problem.body(id));
    let headers = response.headers_mut();
    headers.remove(CONTENT_LENGTH);
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    headers.extend(problem.headers());
}

fn add_headers(response: &mut Response, id: &str) {
    let headers = response.headers_mut();
    if let Ok(id) = HeaderValue::from_str(id) {
        headers.insert(REQUEST_ID, id);
    }
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    // Jobs change, and secrets must not lie around in caches.
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
}

/// The access log. What went well is at debug: at full speed it would cost more than the requests.
fn log(status: u16, took: Duration) {
    let took_ms = took_ms(took);
    match status {
        // Refusals that pass by themselves come in floods; whoever met the cause has said so.
        503 => tracing::debug!(target: "steadfast::access", status, took_ms, "answered"),
        500.. => tracing::warn!(target: "steadfast::access", status, took_ms, "answered"),
        400..500 => tracing::info!(target: "steadfast::access", status, took_ms, "answered"),
        _ => tracing::debug!(target: "steadfast::access", status, took_ms, "answered"),
    }
}

/// To the microsecond: what a clock says beyond that is noise, and hard to read.
fn took_ms(took: Duration) -> f64 {
    took.as_micros() as f64 / 1_000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_in_the_log_have_three_decimals() {
        assert_eq!(took_ms(Duration::from_nanos(363_758)).to_string(), "0.363");
        assert_eq!(took_ms(Duration::from_micros(1_234_567)).to_string(), "1234.567");
        for micros in 0..100_000 {
            let shown = took_ms(Duration::from_micros(micros)).to_string();
            assert!(shown.split_once('.').is_none_or(|(_, decimals)| decimals.len() <= 3), "{shown}");
        }
    }

    #[test]
    fn hosts_of_one_ipv6_network_count_as_one_address() {
        let network = |address: &str| PeerAddress(address.parse().unwrap()).network();
        assert_eq!(network("[2001:db8:1:2:3:4:5:6]:1"), network("[2001:db8:1:2:ffff::1]:2"));
        assert_ne!(network("[2001:db8:1:2::1]:1"), network("[2001:db8:1:3::1]:1"));
        assert_ne!(network("10.0.0.1:1"), network("10.0.0.2:1"));
        assert_eq!(network("[::ffff:10.0.0.1]:1"), network("10.0.0.1:2"));
    }

    #[test]
    fn a_sane_request_id_is_kept_and_another_one_replaced() {
        let id = |given: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(REQUEST_ID, HeaderValue::from_str(given).unwrap());
            request_id(&headers)
        };
        assert_eq!(id("trace-1:a_b.C"), "trace-1:a_b.C");
        for bad in ["", "has space", "<script>", &"x".repeat(129)] {
            assert_ne!(id(bad), bad);
        }
        assert!(!request_id(&HeaderMap::new()).is_empty());
    }
}
