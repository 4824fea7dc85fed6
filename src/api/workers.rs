//! Workers: who is there, what each holds, and telling them to drain. How workers over HTTP are heard of is in
//! [`worker_registry`](super::worker_registry).

use axum::extract::{Query, State};
use axum::http::header::LINK;
use axum::http::{HeaderValue, StatusCode, Uri};
use axum::response::Response;
use serde::Deserialize;
use utoipa::IntoParams;

use super::extract::{self, JsonResponse, OperatorQueue, PathText, ok};
use super::list_query::number;
use super::problem::{Problem, shortened};
use super::response_memory::{charge_page, with_memory};
use super::state::{Api, run_to_completion};
use super::wire::{WorkerDetailView, WorkerView};
use super::worker_registry;
use crate::job::limits::WORKERS_PAGE_MAX;
use crate::job::{Told, WorkerId};
use crate::queue::Queue;
use crate::store::ListWorkers;

/// Which page, as it stands in the query.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct WorkerQuery {
    /// Workers on a page: 200 by default, held within 1 to 200.
    #[param(value_type = Option<i64>)]
    limit: Option<String>,
    /// Where the page before ended, as its `Link` says.
    cursor: Option<String>,
}

impl WorkerQuery {
    fn list(&self) -> Result<ListWorkers, Problem> {
        let limit = number("limit", self.limit.as_deref())?.unwrap_or(WORKERS_PAGE_MAX as i64);
        let invalid = |_| Problem::malformed("cursor is not one of ours: take it from the Link header");
        let after = self.cursor.as_deref().map(WorkerId::new).transpose().map_err(invalid)?;
        Ok(ListWorkers::new().after(after).limit(limit.clamp(1, WORKERS_PAGE_MAX as i64) as usize))
    }
}

/// List workers, by name
///
/// Those that were seen within a day. What they did is recorded every 10 s.
#[utoipa::path(
    get, path = "/workers", tag = "workers", operation_id = "list_workers",
    params(WorkerQuery),
    responses((status = 200, description = "a page of workers", body = Vec<WorkerView>,
        headers(("Link" = Option<String>, description = "`<…>; rel=\"next\"`: the next page, if there is one")))),
)]
pub(super) async fn list_workers(State(api): State<Api>, uri: Uri) -> Result<Response, Problem> {
    let Query(query) = Query::<WorkerQuery>::try_from_uri(&uri)
        .map_err(|error| Problem::malformed(format!("the query cannot be read: {}", shortened(&error.body_text()))))?;
    let list = query.list()?;
    let limit = list.limit;
    let permit = api.response_memory.page_permit().await?;
    let read = run_to_completion(&api, |api| async move { (api.queue.workers(list).await, permit) });
    // Held until the page is written out: records and text are in memory together.
    let (page, _permit) = read.await?;
    let page = page?;
    let workers: Vec<WorkerView> = page.workers.into_iter().map(WorkerView::from).collect();
    let bytes = workers.iter().map(WorkerView::weight).sum();
    let mut memory = api.response_memory.for_reads();
    charge_page(&mut memory, bytes)?;
    let mut response = with_memory(extract::write(StatusCode::OK, &workers, bytes), memory);
    if let Some(next) = page.next {
        let link = format!("</workers?limit={limit}&cursor={next}>; rel=\"next\"");
        response.headers_mut().insert(LINK, HeaderValue::from_str(&link).expect("names are valid in a header"));
    }
    Ok(response)
}

/// Look at a worker and the jobs that it holds
#[utoipa::path(
    get, path = "/workers/{worker}", tag = "workers", operation_id = "get_worker",
    params(("worker" = String, Path, pattern = "^[a-z0-9_.:-]{1,64}$")),
    responses((status = 200, description = "the worker", body = WorkerDetailView), (status = 404)),
)]
pub(super) async fn get_worker(
    State(api): State<Api>,
    PathText(name): PathText,
) -> Result<JsonResponse<WorkerDetailView>, Problem> {
    let name = named(name)?;
    let asked = name.clone();
    let found = run_to_completion(&api, |api| async move { api.queue.worker(asked).await }).await??;
    Ok(ok(found.ok_or_else(|| Problem::not_found("worker", name))?.into()))
}

/// Tell a worker to finish what it has and to start no more
///
/// It learns of it within 10 s: over HTTP with its next heartbeat, and it is given no more leases. It holds until
/// `undrain`, or until another process comes under the same name.
#[utoipa::path(
    post, path = "/workers/{worker}/drain", tag = "workers", operation_id = "drain_worker",
    params(("worker" = String, Path, pattern = "^[a-z0-9_.:-]{1,64}$")),
    responses((status = 200, description = "it is told", body = WorkerDetailView), (status = 404)),
)]
pub(super) async fn drain_worker(
    State(api): State<Api>,
    OperatorQueue(queue): OperatorQueue,
    PathText(name): PathText,
) -> Result<JsonResponse<WorkerDetailView>, Problem> {
    tell(&api, queue, named(name)?, Told::Drain).await
}

/// Tell a worker to go on
#[utoipa::path(
    post, path = "/workers/{worker}/undrain", tag = "workers", operation_id = "undrain_worker",
    params(("worker" = String, Path, pattern = "^[a-z0-9_.:-]{1,64}$")),
    responses((status = 200, description = "it is told", body = WorkerDetailView), (status = 404)),
)]
pub(super) async fn undrain_worker(
    State(api): State<Api>,
    OperatorQueue(queue): OperatorQueue,
    PathText(name): PathText,
) -> Result<JsonResponse<WorkerDetailView>, Problem> {
    tell(&api, queue, named(name)?, Told::Run).await
}

async fn tell(api: &Api, queue: Queue, name: WorkerId, told: Told) -> Result<JsonResponse<WorkerDetailView>, Problem> {
    let worker = name.clone();
    let telling = run_to_completion(api, |api| async move {
        // One that this process has just met is not recorded yet.
        worker_registry::write_changed(&api).await;
        let known = match told {
            Told::Drain => queue.drain_worker(worker.clone()).await?,
            _ => queue.undrain_worker(worker.clone()).await?,
        };
        if known {
            api.workers.tell(&worker, told);
        }
        queue.worker(worker).await
    });
    let found = telling.await??;
    Ok(ok(found.ok_or_else(|| Problem::not_found("worker", name))?.into()))
}

fn named(name: String) -> Result<WorkerId, Problem> {
    // What is no name is the name of no worker.
    WorkerId::new(&name).map_err(|_| Problem::not_found("worker", name))
}
