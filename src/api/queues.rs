//! Queues: which there are, and whether their jobs are started.

use axum::extract::State;

use super::extract::{JsonResponse, OperatorQueue, PathText, ok};
use super::problem::Problem;
use super::state::{Api, run_to_completion};
use super::stats::current as stats;
use super::wire::QueueView;
use crate::job::QueueName;

/// List queues
///
/// Every queue that has jobs or is paused.
#[utoipa::path(
    get, path = "/queues", tag = "queues", operation_id = "list_queues",
    responses((status = 200, description = "by name", body = Vec<QueueView>)),
)]
pub(super) async fn list_queues(State(api): State<Api>) -> Result<JsonResponse<Vec<QueueView>>, Problem> {
    let stats = stats(&api).await?;
    Ok(ok(stats.queues.iter().map(|(name, queue)| QueueView::new(name, queue)).collect()))
}

/// Stop starting jobs of a queue
///
/// Running jobs go on. The queue need not have jobs yet.
#[utoipa::path(
    post, path = "/queues/{queue}/pause", tag = "queues", operation_id = "pause_queue",
    params(("queue" = String, Path, pattern = "^[a-z0-9_.:-]{1,64}$")),
    responses((status = 200, description = "paused", body = QueueView), (status = 404)),
)]
pub(super) async fn pause_queue(
    State(api): State<Api>,
    OperatorQueue(queue): OperatorQueue,
    PathText(name): PathText,
) -> Result<JsonResponse<QueueView>, Problem> {
    let name = named(name)?;
    let paused = name.clone();
    run_to_completion(&api, |_| async move { queue.pause(paused).await }).await??;
    show(&api, &name).await
}

/// Start jobs of a queue again
#[utoipa::path(
    post, path = "/queues/{queue}/resume", tag = "queues", operation_id = "resume_queue",
    params(("queue" = String, Path, pattern = "^[a-z0-9_.:-]{1,64}$")),
    responses((status = 200, description = "running", body = QueueView), (status = 404)),
)]
pub(super) async fn resume_queue(
    State(api): State<Api>,
    OperatorQueue(queue): OperatorQueue,
    PathText(name): PathText,
) -> Result<JsonResponse<QueueView>, Problem> {
    let name = named(name)?;
    if !stats(&api).await?.queues.contains_key(&name) {
        return Err(Problem::not_found("queue", name));
    }
    let resumed = name.clone();
    run_to_completion(&api, |_| async move { queue.resume(resumed).await }).await??;
    show(&api, &name).await
}

/// What cannot be a queue's name is not one.
fn named(name: String) -> Result<QueueName, Problem> {
    QueueName::new(&name).map_err(|_| Problem::not_found("queue", name))
}

/// As it is now; a queue without jobs that was just resumed is empty.
async fn show(api: &Api, name: &QueueName) -> Result<JsonResponse<QueueView>, Problem> {
    let mut stats = stats(api).await?;
    Ok(ok(QueueView::new(name, &stats.queues.remove(name).unwrap_or_default())))
}
