//! What handlers are given and what they give back: path parameters, JSON bodies and JSON responses.
//!
//! A body is read within a timeout, a size and a memory budget, checked, then parsed. Whatever is wrong is refused in our
//! own words.

use axum::body::{Body, Bytes};
use axum::extract::{FromRequest, FromRequestParts, OptionalFromRequest, Path, Request};
use axum::http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use http_body_util::BodyExt;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::access::{Access, Caller};
use super::limits::{BATCH_BODY_MAX, DISCARD_MAX, SINGLE_BODY_MAX};
use super::memory_budget::{BudgetExhausted, MemoryShare};
use super::problem::{Code, Problem, shortened};
use super::state::Api;
use super::wire::{self, Nul, check_json};
use crate::job::JobId;
use crate::queue::{Queue, Viewer};
use crate::store::{Actor, Scope};

/// The queue on behalf of the caller, for routes by which operators change something: the store is told who asked.
pub(super) struct OperatorQueue(pub(super) Queue);

impl FromRequestParts<Api> for OperatorQueue {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Problem> {
        let actor = parts.extensions.get::<Actor>().cloned();
        // The middleware puts it there for every route that needs a token.
        let actor = actor.ok_or_else(|| Problem::new(Code::Internal, "the caller is not known"))?;
        Ok(Self(api.queue.by(actor)))
    }
}

/// The caller as a reader of jobs: with `hide_payloads`, only `admin` sees payloads.
impl FromRequestParts<Api> for Viewer {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Problem> {
        let is_admin = |caller: &Caller| caller.may(Access::Scope(Scope::Admin));
        let sees_all = !api.hides_payloads || parts.extensions.get::<Caller>().is_some_and(is_admin);
        let viewer = api.queue.viewer();
        Ok(if sees_all { viewer } else { viewer.without_payloads() })
    }
}

/// `{id}` of a job. Anything but a UUID is 400.
pub(super) struct PathId(pub(super) JobId);

impl FromRequestParts<Api> for PathId {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Problem> {
        let PathText(text) = PathText::from_request_parts(parts, api).await?;
        let id = text.parse().map_err(|_| Problem::malformed(format!("{} is not a UUID", shortened(&text))))?;
        Ok(Self(id))
    }
}

/// The one variable part of a path.
pub(super) struct PathText(pub(super) String);

impl FromRequestParts<Api> for PathText {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Problem> {
        let PathTexts(text) = PathTexts::from_request_parts(parts, api).await?;
        Ok(Self(text))
    }
}

/// The variable parts of a path, percent-decoded.
pub(super) struct PathTexts<T>(pub(super) T);

impl<T: DeserializeOwned + Send> FromRequestParts<Api> for PathTexts<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Problem> {
        let Path(texts) = Path::<T>::from_request_parts(parts, api)
            .await
            .map_err(|_| Problem::malformed("the path is not valid UTF-8 once decoded"))?;
        Ok(Self(texts))
    }
}

/// Something a caller may send.
pub(super) trait JsonRequest: DeserializeOwned + Send + 'static {
    /// Largest body.
    const MAX_BYTES: usize = SINGLE_BODY_MAX;
    /// Whether its strings may hold the character NUL. Payloads may not: not everyone who reads them can take it.
    const NUL_ALLOWED: bool = true;
    /// Which budget it is charged to.
    const POOL: BodyPool = BodyPool::Everybody;

    /// What to say of a NUL that is not allowed.
    fn nul(&self) -> Problem {
        Problem::new(Code::InvalidPayload, NUL)
    }
}

const NUL: &str = "a string contains the character NUL (\\u0000): leave it out";

/// The budgets that bodies are charged to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BodyPool {
    /// For producers and operators.
    Everybody,
    /// For leases, heartbeats and settles, which must get through when producers flood the server.
    Workers,
}

impl JsonRequest for wire::JobSubmission {
    const NUL_ALLOWED: bool = false;
}
impl JsonRequest for wire::JobBatch {
    const MAX_BYTES: usize = BATCH_BODY_MAX;
    const NUL_ALLOWED: bool = false;

    fn nul(&self) -> Problem {
        let at_fault = self.jobs.iter().enumerate().filter(|(_, job)| job.has_nul());
        Problem::batch(at_fault.map(|(index, _)| wire::ItemError { index, detail: NUL.into() }).collect())
    }
}
impl JsonRequest for wire::KindDeclaration {}
impl JsonRequest for wire::QueueSettingsDeclaration {}
impl JsonRequest for wire::GroupSettingsDeclaration {}
impl JsonRequest for wire::NewSession {}
impl JsonRequest for wire::NewToken {}
impl JsonRequest for wire::SnoozeDeclaration {}
impl JsonRequest for wire::HookDeclaration {
    const NUL_ALLOWED: bool = false;

    fn nul(&self) -> Problem {
        Problem::invalid(NUL)
    }
}
impl JsonRequest for wire::OperationPatch {}
impl JsonRequest for wire::OperationPreviewRequest {}
impl JsonRequest for wire::OperationSubmission {
    const NUL_ALLOWED: bool = false;

    fn nul(&self) -> Problem {
        Problem::invalid(NUL)
    }
}
impl JsonRequest for wire::RunRequest {}
impl JsonRequest for wire::PreviewRequest {}
impl JsonRequest for wire::ScheduleDeclaration {
    const NUL_ALLOWED: bool = false;
}
impl JsonRequest for wire::LeaseRequest {
    const POOL: BodyPool = BodyPool::Workers;
}
impl JsonRequest for wire::Heartbeat {
    const POOL: BodyPool = BodyPool::Workers;
}
impl JsonRequest for wire::Settlement {
    const MAX_BYTES: usize = BATCH_BODY_MAX;
    const POOL: BodyPool = BodyPool::Workers;
}

/// 1 MiB: 1 to 14 ms (ADR 8).
const PARSED_IN_PLACE_MAX_BYTES: usize = 1024 * 1024;

/// A body that was read, checked and parsed.
pub(super) struct JsonBody<T> {
    pub(super) value: T,
    /// Its share of the budget for bodies. Goes wherever the value goes, and is given back with it.
    pub(super) memory: MemoryShare,
}

impl<T: JsonRequest> FromRequest<Api> for JsonBody<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, api: &Api) -> Result<Self, Problem> {
        let (head, body) = request.into_parts();
        is_json(&head.headers)?;
        is_plain(&head.headers)?;
        if announced_bytes(&head.headers).is_some_and(|bytes| bytes > (T::MAX_BYTES + DISCARD_MAX) as u64) {
            return Err(too_large(T::MAX_BYTES));
        }
        let pool = match T::POOL {
            BodyPool::Everybody => &api.bodies,
            BodyPool::Workers => &api.worker_bodies,
        };
        let mut memory = pool.empty_share();
        let reading = read(body, T::MAX_BYTES, &mut memory);
        let bytes = timeout(api.limits.body_timeout, reading)
            .await
            .map_err(|_| Problem::new(Code::BodyTimeout, "send the whole body in time"))??;
        parsed(bytes, memory).await
    }
}

impl<T: JsonRequest> OptionalFromRequest<Api> for JsonBody<T> {
    type Rejection = Problem;

    /// `None` if there is no body at all: one that is empty and says nothing of its type.
    async fn from_request(request: Request, api: &Api) -> Result<Option<Self>, Problem> {
        if request.headers().contains_key(CONTENT_TYPE) {
            return <Self as FromRequest<Api>>::from_request(request, api).await.map(Some);
        }
        // Some clients send an empty body in chunks: only reading it tells.
        let mut body = request.into_body();
        let first = timeout(api.limits.body_timeout, body.frame()).await;
        match first.map_err(|_| Problem::new(Code::BodyTimeout, "send the whole body in time"))? {
            None => Ok(None),
            Some(_) => Err(wrong_content_type()),
        }
    }
}

/// `application/json`, whatever parameters follow it.
fn is_json(headers: &HeaderMap) -> Result<(), Problem> {
    let given = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = given.split(';').next().unwrap_or_default().trim();
    if essence.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    Err(wrong_content_type())
}

fn wrong_content_type() -> Problem {
    Problem::new(Code::WrongContentType, "send the header content-type: application/json")
}

/// Not compressed: what is read is what was sent, byte for byte.
fn is_plain(headers: &HeaderMap) -> Result<(), Problem> {
    let is_identity = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"identity");
    if headers.get_all(CONTENT_ENCODING).iter().all(is_identity) {
        return Ok(());
    }
    Err(Problem::new(Code::WrongContentEncoding, "send the body as it is, without the header content-encoding"))
}

fn announced_bytes(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

fn too_large(max: usize) -> Problem {
    Problem::new(Code::TooLarge, format!("the body is larger than the {max} bytes that this route takes"))
}

async fn read(mut body: Body, max: usize, memory: &mut MemoryShare) -> Result<Bytes, Problem> {
    let mut first = Bytes::new();
    let mut whole = Vec::new();
    let mut bytes = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| Problem::malformed("the body ended before it was complete"))?;
        let Ok(data) = frame.into_data() else { continue };
        bytes += data.len();
        if bytes > max + DISCARD_MAX {
            return Err(too_large(max));
        }
        if bytes > max {
            // Read and forgotten: closing on a client that still sends would reset the connection, and the client would
            // never see why.
            (first, whole) = (Bytes::new(), Vec::new());
            continue;
        }
        memory.grow_to(bytes).map_err(|BudgetExhausted| {
            Problem::new(Code::Overloaded, "too many large bodies at one time; try again")
        })?;
        // Most bodies come in one piece and need no copy.
        match (first.is_empty(), whole.is_empty()) {
            (true, true) => first = data,
            (false, true) => whole = [&first[..], &data[..]].concat(),
            _ => whole.extend_from_slice(&data),
        }
    }
    if bytes > max {
        return Err(too_large(max));
    }
    Ok(if whole.is_empty() { first } else { whole.into() })
}

/// Off the runtime if it would block a thread of it.
async fn parsed<T: JsonRequest>(bytes: Bytes, memory: MemoryShare) -> Result<JsonBody<T>, Problem> {
    let is_large = bytes.len() > PARSED_IN_PLACE_MAX_BYTES;
    // The share goes along: should the caller hang up, the body is there until it is parsed.
    let parsing = move || Ok(JsonBody { value: parse(&bytes)?, memory });
    if !is_large {
        return parsing();
    }
    let parsed = tokio::task::spawn_blocking(parsing).await;
    parsed.unwrap_or_else(|_| Err(Problem::new(Code::Internal, "the body cannot be parsed")))
}

fn parse<T: JsonRequest>(bytes: &[u8]) -> Result<T, Problem> {
    let malformed = |error: serde_json::Error| Problem::malformed(format!("the body is not what is expected: {error}"));
    let nul = check_json(bytes).map_err(malformed)?;
    if bytes.iter().find(|byte| !byte.is_ascii_whitespace()) != Some(&b'{') {
        return Err(Problem::malformed("the body must be a JSON object"));
    }
    let value: T = serde_json::from_slice(bytes).map_err(malformed)?;
    if nul == Nul::Present && !T::NUL_ALLOWED { Err(value.nul()) } else { Ok(value) }
}

/// A JSON response.
pub(super) struct JsonResponse<T>(pub(super) StatusCode, pub(super) T);

impl<T: Serialize> IntoResponse for JsonResponse<T> {
    fn into_response(self) -> Response {
        write(self.0, &self.1, 0)
    }
}

/// A JSON response whose text is about this long: it is written without being moved about.
pub(super) fn write(status: StatusCode, value: &impl Serialize, about_bytes: usize) -> Response {
    let mut text = Vec::with_capacity(about_bytes);
    if serde_json::to_writer(&mut text, value).is_err() {
        return Problem::new(Code::Internal, "the answer cannot be written as JSON").into_response();
    }
    (status, [(CONTENT_TYPE, HeaderValue::from_static("application/json"))], text).into_response()
}

/// 200.
pub(super) fn ok<T: Serialize>(value: T) -> JsonResponse<T> {
    JsonResponse(StatusCode::OK, value)
}
