//! "Why is it not running?": reasons with their numbers, from the data that a claim looks at.

use axum::extract::State;

use super::extract::{JsonResponse, PathId, PathText, ok};
use super::problem::Problem;
use super::queue_settings::known;
use super::queues::named;
use super::state::{Api, run_to_completion};
use super::wire::{JobExplanation, QueueExplanation};

/// Explain why a job is not running
#[utoipa::path(
    get, path = "/jobs/{id}/explain", tag = "jobs", operation_id = "explain_job",
    params(("id" = uuid::Uuid, Path)),
    responses((status = 200, description = "every reason that applies", body = JobExplanation), (status = 404)),
)]
pub(super) async fn explain_job(
    State(api): State<Api>,
    PathId(id): PathId,
) -> Result<JsonResponse<JobExplanation>, Problem> {
    let explained = run_to_completion(&api, |api| async move { api.queue.explain(id).await }).await??;
    let explanation = explained.ok_or_else(|| Problem::not_found("job", id))?;
    Ok(ok(JobExplanation::new(id, explanation)))
}

/// Explain whether jobs of a queue start
#[utoipa::path(
    get, path = "/queues/{queue}/explain", tag = "queues", operation_id = "explain_queue",
    params(("queue" = String, Path, pattern = "^[a-z0-9_.:-]{1,64}$")),
    responses((status = 200, description = "every reason that applies", body = QueueExplanation), (status = 404)),
)]
pub(super) async fn explain_queue(
    State(api): State<Api>,
    PathText(name): PathText,
) -> Result<JsonResponse<QueueExplanation>, Problem> {
    let name = named(name)?;
    known(&api, &name).await?;
    let asked = name.clone();
    let explanation = run_to_completion(&api, |api| async move { api.queue.explain_queue(asked).await }).await??;
    Ok(ok(QueueExplanation::new(&name, explanation)))
}
