//! One job: get it, cancel it, redrive it, delete it.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

use super::extract::{JsonResponse, OperatorQueue, PathId, ok};
use super::problem::{Code, Problem};
use super::state::{Api, run_to_completion};
use super::wire;
use crate::queue::Viewer;
use crate::store::{Cancelled, Deleted, Redriven};

/// Look at a job
#[utoipa::path(
    get, path = "/jobs/{id}", tag = "jobs", operation_id = "get_job",
    params(("id" = uuid::Uuid, Path)),
    responses((status = 200, description = "the job", body = wire::JobView), (status = 404)),
)]
pub(super) async fn get_job(
    State(api): State<Api>,
    viewer: Viewer,
    PathId(id): PathId,
) -> Result<JsonResponse<wire::JobView>, Problem> {
    let job = run_to_completion(&api, |api| async move { api.queue.get(id).await })
        .await??
        .ok_or_else(|| Problem::not_found("job", id))?;
    Ok(ok(wire::JobView::shown(job, &viewer).await))
}

/// Look at a job's attempts, oldest first
///
/// The newest 1,000 of them.
#[utoipa::path(
    get, path = "/jobs/{id}/attempts", tag = "jobs", operation_id = "get_attempts",
    params(("id" = uuid::Uuid, Path)),
    responses((status = 200, description = "its starts, the newest 1,000 of them", body = Vec<wire::AttemptView>), (status = 404)),
)]
pub(super) async fn get_attempts(State(api): State<Api>, PathId(id): PathId) -> Result<Response, Problem> {
    // A thousand errors of 16 KiB: as much as a page.
    let permit = api.response_memory.page_permit().await?;
    let (attempts, _permit) =
        run_to_completion(&api, |api| async move { (api.queue.attempts(id).await, permit) }).await?;
    let attempts = attempts?.ok_or_else(|| Problem::not_found("job", id))?;
    let attempts: Vec<_> = attempts.into_iter().map(wire::AttemptView::from).collect();
    Ok(ok(attempts).into_response())
}

/// Cancel a job
///
/// At once if it waits. If it runs, its worker is told with its next heartbeat.
#[utoipa::path(
    post, path = "/jobs/{id}/cancel", tag = "jobs", operation_id = "cancel_job",
    params(("id" = uuid::Uuid, Path)),
    responses(
        (status = 200, description = "it will not run", body = wire::CancelAnswer),
        (status = 202, description = "it is running; its worker will be told", body = wire::CancelAnswer),
        (status = 404), (status = 409),
    ),
)]
pub(super) async fn cancel_job(
    State(api): State<Api>,
    OperatorQueue(queue): OperatorQueue,
    PathId(id): PathId,
) -> Result<JsonResponse<wire::CancelAnswer>, Problem> {
    match run_to_completion(&api, |_| async move { queue.cancel(id).await }).await?? {
        Cancelled::Now => Ok(ok(wire::CancelAnswer { status: "cancelled" })),
        Cancelled::Requested => Ok(JsonResponse(StatusCode::ACCEPTED, wire::CancelAnswer { status: "pending" })),
        Cancelled::AlreadyFinished(status) => {
            Err(Problem::new(Code::AlreadyFinished, format!("job {id} is {status} already")))
        }
        Cancelled::NotFound => Err(Problem::not_found("job", id)),
    }
}

/// Put a failed or cancelled job back into the queue
#[utoipa::path(
    post, path = "/jobs/{id}/redrive", tag = "jobs", operation_id = "redrive_job",
    params(("id" = uuid::Uuid, Path)),
    responses((status = 200, description = "queued again, as if new", body = wire::JobView), (status = 404), (status = 409)),
)]
pub(super) async fn redrive_job(
    State(api): State<Api>,
    OperatorQueue(queue): OperatorQueue,
    viewer: Viewer,
    PathId(id): PathId,
) -> Result<JsonResponse<wire::JobView>, Problem> {
    match run_to_completion(&api, |_| async move { queue.redrive(id).await }).await?? {
        Redriven::Queued(job) => Ok(ok(wire::JobView::shown(job, &viewer).await)),
        Redriven::NotDead(status) => Err(Problem::new(
            Code::NotDead,
            format!("job {id} is {status}: only failed and cancelled jobs are redriven"),
        )),
        Redriven::NotFound => Err(Problem::not_found("job", id)),
    }
}

/// Remove a finished job for good
#[utoipa::path(
    delete, path = "/jobs/{id}", tag = "jobs", operation_id = "delete_job",
    params(("id" = uuid::Uuid, Path)),
    responses((status = 204, description = "gone"), (status = 404), (status = 409)),
)]
pub(super) async fn delete_job(
    State(api): State<Api>,
    OperatorQueue(queue): OperatorQueue,
    PathId(id): PathId,
) -> Result<StatusCode, Problem> {
    match run_to_completion(&api, |_| async move { queue.delete(id).await }).await?? {
        Deleted::Gone => Ok(StatusCode::NO_CONTENT),
        Deleted::NotFinished(status) => {
            Err(Problem::new(Code::NotFinished, format!("job {id} is {status}: cancel it first, or let it finish")))
        }
        Deleted::NotFound => Err(Problem::not_found("job", id)),
    }
}
