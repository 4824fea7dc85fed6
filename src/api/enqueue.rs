//! Putting jobs in. The work is handed to a task that finishes even if the caller hangs up, so that nothing is left half
//! done; concurrent requests share commits in the store.

use axum::extract::State;
use axum::http::header::LOCATION;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use tokio::sync::OwnedSemaphorePermit;

use super::json::{Answer, Body, ok};
use super::problem::{Code, Problem};
use super::state::{Api, Shared, to_the_end};
use super::wire;
use crate::job::limits::BATCH_MAX;
use crate::job::{JobRequest, NewJob};
use crate::planted::{Bug, planted};
use crate::queue::{BatchError, EnqueueError};
use crate::store::{Enqueued, StoreError, StoreErrorKind};

const IDEMPOTENCY_KEY: &str = "idempotency-key";
const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// Enqueue a job
///
/// A 2xx means that the job is on stable storage. Send a key to be able to try again without fear of doubling it.
#[utoipa::path(
    post, path = "/jobs", tag = "jobs", operation_id = "enqueue",
    params(("Idempotency-Key" = Option<String>, Header, description = "wins over `idempotency_key` in the body",
        min_length = 1, max_length = 255)),
    request_body = wire::NewJob,
    responses(
        (status = 201, description = "accepted", body = wire::Job,
            headers(("Location" = String, description = "the job's own address"))),
        (status = 200, description = "the key was seen before; this is its job, unchanged", body = wire::Job,
            headers(("Idempotent-Replayed" = String, description = "`true`"), ("Location" = String))),
        (status = 413), (status = 415), (status = 422), (status = 429),
    )
)]
pub(super) async fn enqueue(
    State(api): State<Api>,
    headers: HeaderMap,
    body: Body<wire::NewJob>,
) -> Result<Response, Problem> {
    let key = idempotency_key(&headers)?;
    let request = body.value.into_request(key).map_err(EnqueueError::from)?;
    let place = place(&api)?;
    let enqueued = to_the_end(&api, |api| async move {
        let _held = (place, body.room);
        let job = api.queue.prepare(request).await?;
        store(&api, vec![job]).await?.pop().ok_or_else(no_answer)
    });
    let Enqueued { created, job } = enqueued.await??;
    let location = HeaderValue::from_str(&format!("/jobs/{}", job.id)).expect("a UUID is a valid header");
    let status = if created { StatusCode::CREATED } else { StatusCode::OK };
    let mut response = ([(LOCATION, location)], Answer(status, wire::Job::from(job))).into_response();
    if !created {
        response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
    }
    *response.status_mut() = status;
    Ok(response)
}

/// Enqueue up to 1,000 jobs
///
/// All of them are stored in one transaction, or none is.
#[utoipa::path(
    post, path = "/jobs/batch", tag = "jobs", operation_id = "enqueue_batch",
    request_body = wire::NewJobs,
    responses(
        (status = 200, description = "one result per job, in the order sent", body = wire::BatchResults),
        (status = 413), (status = 415), (status = 422), (status = 429),
    )
)]
pub(super) async fn enqueue_batch(
    State(api): State<Api>,
    body: Body<wire::NewJobs>,
) -> Result<Answer<wire::BatchResults>, Problem> {
    let jobs = body.value.jobs;
    if jobs.is_empty() || jobs.len() > BATCH_MAX {
        return Err(BatchError::Size { given: jobs.len() }.into());
    }
    let requests = jobs.into_iter().map(|job| job.into_request(None)).collect::<Result<Vec<_>, _>>();
    let requests = requests.map_err(EnqueueError::from)?;
    let place = place(&api)?;
    let enqueued = to_the_end(&api, |api| async move {
        let _held = (place, body.room);
        let jobs = prepare_all(&api, requests).await?;
        store(&api, jobs).await
    });
    let results = enqueued.await??.into_iter().map(wire::BatchResult::from).collect();
    Ok(ok(wire::BatchResults { results }))
}

/// Names every item at fault.
async fn prepare_all(api: &Shared, requests: Vec<JobRequest>) -> Result<Vec<NewJob>, Problem> {
    let mut jobs = Vec::with_capacity(requests.len());
    let mut refused = Vec::new();
    for (index, request) in requests.into_iter().enumerate() {
        match api.queue.prepare(request).await {
            Ok(job) => jobs.push(job),
            Err(EnqueueError::Store(error)) => return Err(error.into()),
            Err(EnqueueError::Busy) => return Err(BatchError::Busy.into()),
            Err(error) => refused.push((index, error)),
        }
    }
    if refused.is_empty() { Ok(jobs) } else { Err(BatchError::Refused(refused).into()) }
}

async fn store(api: &Shared, jobs: Vec<NewJob>) -> Result<Vec<Enqueued>, Problem> {
    api.depth.admit(&api.queue, &jobs).await?;
    if planted(Bug::AnswerBeforeCommit) {
        let (now, store) = (jiff::Timestamp::now(), api.queue.store().clone());
        let early = jobs.iter().map(|job| Enqueued { created: true, job: job.as_stored(now, now) }).collect();
        tokio::spawn(async move { store.enqueue(jobs).await });
        return Ok(early);
    }
    Ok(api.queue.store().enqueue(jobs).await?)
}

fn no_answer() -> Problem {
    StoreError::new(StoreErrorKind::Internal, "enqueue").into()
}

/// A place among the enqueues in flight.
fn place(api: &Shared) -> Result<OwnedSemaphorePermit, Problem> {
    let place = api.enqueues.clone().try_acquire_owned();
    place.map_err(|_| Problem::new(Code::TooManyRequests, "too many enqueues are in flight; try again shortly"))
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
