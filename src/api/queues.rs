//! Queues: which there are, and whether their jobs are started.

use std::collections::HashMap;

use axum::extract::State;
use axum::http::Uri;
use axum::response::{IntoResponse, Response};
use jiff::SignedDuration;

use super::extract::{JsonResponse, OperatorQueue, PathText, ok};
use super::problem::Problem;
use super::pulse::{Crew, Flow, activity, due_by_queue};
use super::queue_pages::{self, QueuePage};
use super::state::{Api, run_to_completion};
use super::stats::current as stats;
use super::wire::{ListedQueue, QueueView};
use crate::job::QueueName;
use crate::store::{ReadSeries, SeriesOf, Stats, StatsRequest, StoreError};

/// List queues, by name
///
/// Every queue that has jobs or is paused.
#[utoipa::path(
    get, path = "/queues", tag = "queues", operation_id = "list_queues",
    params(QueuePage),
    responses((status = 200, description = "a page of queues", body = Vec<ListedQueue>,
        headers(("Link" = Option<String>, description = "`<…>; rel=\"next\"`: the next page, if there is one")))),
)]
pub(super) async fn list_queues(State(api): State<Api>, uri: Uri) -> Result<Response, Problem> {
    let page = queue_pages::asked(&uri)?;
    let limit = page.limit;
    let stats = stats(&api, page).await?;
    let queues = listed(&api, &stats).await?;
    Ok((queue_pages::link("/queues", limit, &stats), ok(queues)).into_response())
}

/// With what is going on in each of them.
async fn listed(api: &Api, stats: &Stats) -> Result<Vec<ListedQueue>, Problem> {
    let read = run_to_completion(api, |api| async move {
        let (facts, workers) = (api.queue.pulse().await?, api.queue.all_workers().await?);
        let from = facts.now - SignedDuration::from_mins(6);
        let series = api.queue.series(ReadSeries::new(SeriesOf::EachQueue, from)).await?;
        Ok::<_, StoreError>((facts, workers, series.rows))
    });
    let (facts, workers, rows) = read.await??;
    let mut flows: HashMap<QueueName, Flow> = HashMap::new();
    for row in rows {
        if let Some(queue) = row.queue.clone() {
            flows.entry(queue).or_default().put(row);
        }
    }
    let (crew, due, nothing) = (Crew::of(&workers), due_by_queue(&facts.due), Flow::default());
    let queues = stats.queues.iter().map(|(name, queue)| {
        let (due, flow) = (due.get(name).copied().unwrap_or_default(), flows.get(name).unwrap_or(&nothing));
        ListedQueue { queue: QueueView::new(name, queue), activity: activity(name, queue, due, &facts, flow, &crew) }
    });
    Ok(queues.collect())
}

/// Stop starting jobs of a queue
///
/// Running jobs go on. The queue need not have jobs yet.
#[utoipa::path(
    post, path = "/queues/{queue}/pause", tag = "queues", operation_id = "pause_queue",
    params(("queue" = String, Path, pattern = "^[a-z0-9_.:-]{1,64}$")),
    responses((status = 200, description = "paused", body = QueueView), (status = 404), (status = 429)),
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
    if stats(&api, StatsRequest::of([name.clone()]).without_ages()).await?.queues.is_empty() {
        return Err(Problem::not_found("queue", name));
    }
    let resumed = name.clone();
    run_to_completion(&api, |_| async move { queue.resume(resumed).await }).await??;
    show(&api, &name).await
}

/// What cannot be a queue's name is not one.
pub(super) fn named(name: String) -> Result<QueueName, Problem> {
    QueueName::new(&name).map_err(|_| Problem::not_found("queue", name))
}

/// As it is now; a queue without jobs that was just resumed is empty.
async fn show(api: &Api, name: &QueueName) -> Result<JsonResponse<QueueView>, Problem> {
    let mut stats = stats(api, StatsRequest::of([name.clone()])).await?;
    Ok(ok(QueueView::new(name, &stats.queues.remove(name).unwrap_or_default())))
}
