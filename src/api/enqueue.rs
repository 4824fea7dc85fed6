//! Putting jobs in. The work is handed to a task that finishes even if the caller hangs up, so that nothing is left half
//! done; concurrent requests share commits in the store.

use axum::Extension;
use axum::extract::State;
use axum::http::header::LOCATION;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use tokio::sync::OwnedSemaphorePermit;

use super::access::{Access, Caller};
use super::extract::{JsonBody, JsonResponse, ok};
use super::middleware::trace_context;
use super::problem::{Code, Problem};
use super::state::{Api, ApiState, run_to_completion};
use super::wire;
use crate::queue::{EnqueueError, Viewer};
use crate::store::Scope;

const IDEMPOTENCY_KEY: &str = "idempotency-key";
const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// Enqueue a job
///
/// A 2xx means that the job is on stable storage. Send a key to be able to try again without fear of doubling it.
#[utoipa::path(
    post, path = "/jobs", tag = "jobs", operation_id = "enqueue",
    params(("Idempotency-Key" = Option<String>, Header, description = "wins over `idempotency_key` in the body",
        min_length = 1, max_length = 255)),
    request_body = wire::JobSubmission,
    responses(
        (status = 201, description = "accepted", body = wire::JobView,
            headers(("Location" = String, description = "the job's own address"))),
        (status = 200, description = "the idempotency key or the unique key was seen before; this is its job, unchanged \
            unless it says `replaced`. Without the scope `read` only what `KnownJob` says",
            body = wire::EnqueueReplay,
            headers(("Idempotent-Replayed" = Option<String>, description = "`true`, if it was the idempotency key"),
                ("Location" = String))),
        (status = 413), (status = 415), (status = 422), (status = 429),
    )
)]
pub(super) async fn enqueue(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    viewer: Viewer,
    headers: HeaderMap,
    body: JsonBody<wire::JobSubmission>,
) -> Result<Response, Problem> {
    let key = idempotency_key(&headers)?;
    let request = body.value.into_request(key, trace_context(&headers)).map_err(EnqueueError::from)?;
    let key = request.idempotency_key.clone();
    let permit = enqueue_permit(&api)?;
    let enqueued = run_to_completion(&api, |api| async move {
        let _held = (permit, body.memory);
        api.queue.enqueue_request(request).await
    });
    let enqueued = enqueued.await??;
    let location = HeaderValue::from_str(&format!("/jobs/{}", enqueued.job.id)).expect("a UUID is a valid header");
    let headers = [(LOCATION, location)];
    if enqueued.created {
        // Who has just sent a payload may see it.
        let job = wire::JobView::shown(enqueued.job, &api.queue.viewer()).await;
        return Ok((headers, JsonResponse(StatusCode::CREATED, job)).into_response());
    }
    let is_replay = key.is_some() && key == enqueued.job.idempotency_key;
    let replay = wire::EnqueueReplay::of(enqueued, caller.may(Access::Scope(Scope::Read)), &viewer).await;
    let mut response = (headers, ok(replay)).into_response();
    if is_replay {
        response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
    }
    Ok(response)
}

/// Enqueue up to 1,000 jobs
///
/// All of them are stored in one transaction, or none is.
#[utoipa::path(
    post, path = "/jobs/batch", tag = "jobs", operation_id = "enqueue_batch",
    request_body = wire::JobBatch,
    responses(
        (status = 200, description = "one result per job, in the order sent", body = wire::BatchResults),
        (status = 413), (status = 415), (status = 422), (status = 429),
    )
)]
pub(super) async fn enqueue_batch(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    viewer: Viewer,
    headers: HeaderMap,
    body: JsonBody<wire::JobBatch>,
) -> Result<JsonResponse<wire::BatchResults>, Problem> {
    let trace = trace_context(&headers);
    let requests = body.value.jobs.into_iter().map(|job| job.into_request(None, trace.clone()));
    let requests = requests.collect::<Result<Vec<_>, _>>();
    let requests = requests.map_err(EnqueueError::from)?;
    let permit = enqueue_permit(&api)?;
    let enqueued = run_to_completion(&api, |api| async move {
        let _held = (permit, body.memory);
        api.queue.enqueue_requests(requests).await
    });
    let may_read = caller.may(Access::Scope(Scope::Read));
    let enqueued = enqueued.await??;
    let mut results = Vec::with_capacity(enqueued.len());
    for one in enqueued {
        results.push(wire::BatchResult::new(one, may_read, &viewer).await);
    }
    Ok(ok(wire::BatchResults { results }))
}

/// One of the permits for enqueues in flight.
fn enqueue_permit(api: &ApiState) -> Result<OwnedSemaphorePermit, Problem> {
    let permit = api.enqueues.clone().try_acquire_owned();
    permit.map_err(|_| Problem::new(Code::TooManyRequests, "too many enqueues are in flight; try again shortly"))
}

fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let mut keys = headers.get_all(IDEMPOTENCY_KEY).iter();
    match (keys.next(), keys.next()) {
        (None, _) => Ok(None),
        (Some(key), None) => match std::str::from_utf8(key.as_bytes()) {
            Ok(key) => Ok(Some(key.to_owned())),
            Err(_) => Err(Problem::malformed("the header Idempotency-Key is not UTF-8")),
        },
        (Some(_), Some(_)) => Err(Problem::malformed("the header Idempotency-Key is there twice")),
    }
}
