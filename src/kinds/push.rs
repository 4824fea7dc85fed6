//! Kinds whose jobs are calls to an endpoint, and `http_request`: a service is called when a job is due, instead of running a
//! worker of its own.
//!
//! 2xx is success, and a JSON answer is the job's result; every other answer means what it means for a webhook. The service may
//! say more in headers of its answer: `steadfast-retry: no` ends the job, `steadfast-snooze-ms` with a 2xx asks to be called
//! again. A pushed kind exists only in the settings file; `http_request` reaches named endpoints only, unless the settings open
//! it to callers' URLs, which then go through the guard.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue};

use super::endpoint::{Directory, Endpoint};
use super::webhook::call::{Call, Called};
use super::webhook::excerpt::{EXCERPT_DEFAULT_BYTES, Excerpt, hide};
use super::webhook::outcome::{FINAL_STATUSES, Meaning};
use super::webhook::request::{add_headers, add_trace, destination, standard_headers, webhook_headers};
use super::webhook::{Delivered, headers, now};
use super::{HttpRequest, RequestMethod};
use crate::job::Json;
use crate::job::limits::RESULT_MAX_BYTES;
use crate::outbound::{Answer, HostGate, Outbound, Request, Target, expect_kind};
use crate::queue::Job;
use crate::worker::{Completion, Context, JobError};

/// 15 min: longer work should not hang on one connection, which proxies and load balancers cut.
const TIMEOUT_MAX: Duration = Duration::from_secs(15 * 60);
/// 100 ms: a service that asks for 0 would be called in a hot loop.
const SNOOZE_MIN: Duration = Duration::from_millis(100);

/// What all pushed kinds are counted as: their names are for the settings file to choose.
const PUSH: &str = "push";

const RETRY: &str = "steadfast-retry";
const SNOOZE: &str = "steadfast-snooze-ms";

/// A kind whose jobs are POSTed to one endpoint: the body is the payload. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Push {
    endpoint: Arc<Endpoint>,
    caller: Caller,
}

impl Push {
    /// Calls this endpoint through `trusted`.
    pub fn new(endpoint: Arc<Endpoint>, trusted: Outbound, gate: HostGate) -> Self {
        expect_kind(PUSH);
        Self { endpoint, caller: Caller { outbound: trusted, gate } }
    }

    /// Calls the endpoint once.
    pub async fn run<S>(&self, payload: Json, context: &Context<S>) -> Result<Completion, JobError> {
        let mut request = Request::new(http::Method::POST, self.endpoint.target.clone()).kind(PUSH);
        request.headers = standard_headers();
        request.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        add_headers(&mut request.headers, HeaderMap::new(), Some(&self.endpoint)).map_err(JobError::permanent)?;
        request.body = Bytes::copy_from_slice(payload.as_str().as_bytes());
        self.caller.call(request, Some(&self.endpoint), context).await
    }
}

/// Where `http_request` may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum HttpTargets {
    /// To named endpoints only.
    #[default]
    Endpoints,
    /// Also to callers' URLs, through the guard. Answers become results, so callers can read what the guard lets through.
    Any,
}

/// Runs `http_request`. Cheap to clone.
#[derive(Debug, Clone)]
pub struct HttpRequests {
    targets: HttpTargets,
    guarded: Caller,
    trusted: Caller,
    directory: Arc<Directory>,
}

impl HttpRequests {
    /// Callers' URLs, where `targets` allows them, go through `guarded`, named endpoints through `trusted`.
    pub fn new(
        targets: HttpTargets,
        guarded: Outbound,
        trusted: Outbound,
        gate: HostGate,
        directory: Arc<Directory>,
    ) -> Self {
        expect_kind(HttpRequest::KIND);
        let guarded = Caller { outbound: guarded, gate: gate.clone() };
        Self { targets, guarded, trusted: Caller { outbound: trusted, gate }, directory }
    }

    /// What the door checks of a payload beyond its schema; it looks up no name.
    pub fn check(&self, job: &HttpRequest) -> Result<(), String> {
        self.request(job).map(drop)
    }

    /// Calls once.
    pub async fn run<S>(&self, job: HttpRequest, context: &Context<S>) -> Result<Completion, JobError> {
        let (request, endpoint) = self.request(&job).map_err(JobError::permanent)?;
        drop(job);
        let caller = if endpoint.is_some() { &self.trusted } else { &self.guarded };
        caller.call(request, endpoint.as_deref(), context).await
    }

    fn request(&self, job: &HttpRequest) -> Result<(Request, Option<Arc<Endpoint>>), String> {
        if job.url.is_some() && self.targets == HttpTargets::Endpoints {
            return Err("url: on this server http_request calls named endpoints only: give an endpoint".into());
        }
        let policy = self.guarded.outbound.policy();
        let (target, endpoint) = destination(job.url.as_deref(), job.endpoint.as_deref(), &self.directory, policy)?;
        let target = with_path(target, job.path.as_deref(), endpoint.is_some())?;
        let method = match (job.method, &job.body) {
            (Some(RequestMethod::Get), Some(_)) => return Err("body: a GET has none".into()),
            (Some(RequestMethod::Get), None) | (None, None) => http::Method::GET,
            (Some(RequestMethod::Post), _) | (None, Some(_)) => http::Method::POST,
            (Some(RequestMethod::Put), _) => http::Method::PUT,
            (Some(RequestMethod::Patch), _) => http::Method::PATCH,
            (Some(RequestMethod::Delete), _) => http::Method::DELETE,
        };
        let mut request = Request::new(method, target).kind(HttpRequest::KIND);
        request.headers = standard_headers();
        if let Some(body) = &job.body {
            request.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            request.body = Bytes::copy_from_slice(body.get().as_bytes());
        }
        add_headers(&mut request.headers, headers::of_caller(job.headers.as_ref())?, endpoint.as_deref())?;
        Ok((request, endpoint))
    }
}

fn with_path(target: Target, path: Option<&str>, of_endpoint: bool) -> Result<Target, String> {
    match path {
        None => Ok(target),
        Some(_) if !of_endpoint => Err("path: only with an endpoint: put it into the url".into()),
        Some(path) => target.with_path(path).map_err(|error| format!("path: {error}")),
    }
}

/// One way out, with the gate in front of it.
#[derive(Clone)]
struct Caller {
    outbound: Outbound,
    gate: HostGate,
}

impl std::fmt::Debug for Caller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Caller").finish_non_exhaustive()
    }
}

impl Caller {
    async fn call<S>(
        &self,
        mut request: Request,
        endpoint: Option<&Endpoint>,
        context: &Context<S>,
    ) -> Result<Completion, JobError> {
        let call = Call {
            outbound: &self.outbound,
            gate: &self.gate,
            max_in_flight: endpoint.and_then(|endpoint| endpoint.max_in_flight),
            timeout: endpoint.and_then(|endpoint| endpoint.timeout).unwrap_or(TIMEOUT_MAX).min(TIMEOUT_MAX),
            body_max: RESULT_MAX_BYTES,
            final_statuses: &FINAL_STATUSES,
        };
        let target = request.target.clone();
        let signed = || {
            if let Some(endpoint) = endpoint {
                request.headers.extend(job_headers(context));
                add_trace(&mut request.headers, endpoint, context);
                if !endpoint.keys.is_empty() {
                    let id = context.job_id().to_string();
                    request.headers.extend(webhook_headers(&endpoint.keys, &id, now(), &request.body));
                }
            }
            request
        };
        match call.place(&target, signed, context).await? {
            Called::NotYet(delay) => Ok(Completion::Snooze(delay)),
            Called::Answered(answer, meaning) => {
                let hidden = endpoint.map(Endpoint::header_values).unwrap_or_default();
                completion(&answer, meaning, &hidden)
            }
        }
    }
}

/// What the service is told about the job.
fn job_headers<S>(context: &Context<S>) -> HeaderMap {
    let told = [
        ("steadfast-job-id", context.job_id().to_string()),
        ("steadfast-kind", context.kind().to_string()),
        ("steadfast-queue", context.queue_name().to_string()),
        ("steadfast-attempt", context.attempt().to_string()),
        ("steadfast-max-attempts", context.max_attempts().to_string()),
    ];
    // Names of kinds and queues are plain ASCII.
    let typed = |(name, value): (&'static str, String)| {
        Some((HeaderName::from_static(name), HeaderValue::from_str(&value).ok()?))
    };
    told.into_iter().filter_map(typed).collect()
}

fn completion(answer: &Answer, meaning: Meaning, hidden: &[&str]) -> Result<Completion, JobError> {
    let excerpt = || Excerpt::new(&answer.headers, &answer.body, answer.truncated, EXCERPT_DEFAULT_BYTES, hidden);
    let header = |name| answer.headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok()).map(str::trim);
    if meaning != Meaning::Delivered {
        return Err(match header(RETRY) {
            Some(retry) if retry.eq_ignore_ascii_case("no") => Meaning::Final.failure(answer, Some(&excerpt())),
            _ => meaning.failure(answer, Some(&excerpt())),
        });
    }
    if let Some(ms) = header(SNOOZE) {
        let delay = ms.parse().map(Duration::from_millis);
        let delay =
            delay.map_err(|_| JobError::new(format!("the service answered {SNOOZE} without a number of ms")))?;
        return Ok(Completion::Snooze(delay.max(SNOOZE_MIN)));
    }
    match json(answer, hidden) {
        Some(result) => Ok(result.into()),
        None if answer.truncated && is_plain_json(&answer.headers) => Err(cut_result(answer)),
        None => Ok(Completion::result(&Delivered::new(answer, Some(excerpt())))?),
    }
}

/// The whole answer as JSON, whatever its content type says: many services do not set one.
fn json(answer: &Answer, hidden: &[&str]) -> Option<Json> {
    let text = std::str::from_utf8(&answer.body).ok().filter(|_| !answer.truncated)?;
    Json::parse(hide(text.to_owned(), hidden, false)).ok()
}

/// The service said that it did its work, but not all of what came of it is here.
fn cut_result(answer: &Answer) -> JobError {
    let status = answer.status.as_u16();
    match answer.body.len() < RESULT_MAX_BYTES {
        true => JobError::new(format!("HTTP {status}, but the answer broke off within its JSON")),
        false => JobError::permanent(format!(
            "HTTP {status}: the service did its work, but its JSON has more than {RESULT_MAX_BYTES} bytes: answer with less"
        )),
    }
}

fn is_plain_json(headers: &HeaderMap) -> bool {
    let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let media = content_type.split(';').next().unwrap_or_default();
    media.trim().ends_with("json") && !headers.contains_key(CONTENT_ENCODING)
}
