//! Operations: one action on many jobs, looked at before it is begun, paused, resumed, stopped. The steps are taken by the
//! operator loop of every process.

use axum::Extension;
use axum::extract::{Query, State};
use axum::http::header::{LINK, LOCATION};
use axum::http::{HeaderValue, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use utoipa::IntoParams;
use uuid::Uuid;

use super::access::{Access, Caller};
use super::extract::{self, JsonBody, JsonResponse, OperatorQueue, PathText, ok};
use super::list_query::number;
use super::operation_request::{request, target};
use super::problem::{Problem, shortened};
use super::response_memory::{charge_page, with_memory};
use super::state::{Api, run_to_completion};
use super::wire::{self, OperationPreview, OperationView};
use crate::job::limits::{PAGE_DEFAULT, PAGE_MAX};
use crate::job::{Action, OperationId, OperationState};
use crate::queue::{Queue, Viewer};
use crate::store::{ListOperations, OperationChange, Scope};

/// See what an operation would do
///
/// Changes nothing. Looks at 20,000 rows at most; with more, `exact` may be `false`.
#[utoipa::path(
    post, path = "/operations/preview", tag = "operations", operation_id = "preview_operation",
    request_body = wire::OperationPreviewRequest,
    responses((status = 200, description = "what would be changed", body = OperationPreview),
        (status = 413), (status = 415), (status = 422)),
)]
pub(super) async fn preview_operation(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    OperatorQueue(queue): OperatorQueue,
    viewer: Viewer,
    body: JsonBody<wire::OperationPreviewRequest>,
) -> Result<Response, Problem> {
    let (action, selection) = target(body.value)?;
    may(&caller, &action)?;
    let permit = api.response_memory.page_permit().await?;
    let previewed = run_to_completion(&api, |_| async move {
        let previewed = queue.preview_operation(action, selection).await;
        (previewed, permit)
    });
    // Held until the answer is written out: records and text are in memory together.
    let (previewed, _permit) = previewed.await?;
    let preview = OperationPreview::shown(previewed?, &viewer).await;
    let (bytes, mut memory) = (preview.weight(), api.response_memory.for_reads());
    charge_page(&mut memory, bytes)?;
    Ok(with_memory(extract::write(StatusCode::OK, &preview, bytes), memory))
}

/// Begin an operation
///
/// Its jobs are changed in small steps, oldest first, at its rate, by whatever processes there are; a crash repeats nothing
/// and leaves nothing out. With the `token` of a preview only what was there then is changed.
#[utoipa::path(
    post, path = "/operations", tag = "operations", operation_id = "begin_operation",
    request_body = wire::OperationSubmission,
    responses(
        (status = 202, description = "begun", body = OperationView,
            headers(("Location" = String, description = "where to look how far it is"))),
        (status = 409), (status = 413), (status = 415), (status = 422), (status = 429),
    ),
)]
pub(super) async fn begin_operation(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    OperatorQueue(queue): OperatorQueue,
    body: JsonBody<wire::OperationSubmission>,
) -> Result<Response, Problem> {
    let request = request(body.value)?;
    may(&caller, &request.action)?;
    let begun = run_to_completion(&api, |_| async move { queue.begin_operation(request).await }).await??;
    let location = HeaderValue::from_str(&format!("/operations/{}", begun.id)).expect("a UUID is valid in a header");
    let answer = JsonResponse(StatusCode::ACCEPTED, OperationView::from(begun));
    Ok(([(LOCATION, location)], answer).into_response())
}

/// What is gone is gone: who may not delete one job may not delete many.
fn may(caller: &Caller, action: &Action) -> Result<(), Problem> {
    match action {
        Action::Delete => caller.require(Access::Scope(Scope::Admin)),
        _ => Ok(()),
    }
}

/// Which operations, as it stands in the query.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct OperationQuery {
    /// Only in this state.
    #[param(value_type = Option<wire::OperationStateName>)]
    state: Option<String>,
    /// Operations on a page: 50 by default, held within 1 to 200.
    #[param(value_type = Option<i64>)]
    limit: Option<String>,
    /// Where the page before ended, as its `Link` says.
    cursor: Option<String>,
}

/// List operations, newest first
///
/// Those that ended 90 days ago are forgotten.
#[utoipa::path(
    get, path = "/operations", tag = "operations", operation_id = "list_operations",
    params(OperationQuery),
    responses((status = 200, description = "a page of operations", body = Vec<OperationView>,
        headers(("Link" = Option<String>, description = "`<…>; rel=\"next\"`: the next page, if there is one")))),
)]
pub(super) async fn list_operations(State(api): State<Api>, uri: Uri) -> Result<Response, Problem> {
    let Query(query) = Query::<OperationQuery>::try_from_uri(&uri)
        .map_err(|error| Problem::malformed(format!("the query cannot be read: {}", shortened(&error.body_text()))))?;
    let list = query.list()?;
    let asked = list.clone();
    let permit = api.response_memory.page_permit().await?;
    let read = run_to_completion(&api, |api| async move { (api.queue.operations(asked).await, permit) });
    // Held until the page is written out: records and text are in memory together.
    let (page, _permit) = read.await?;
    let page = page?;
    let operations: Vec<OperationView> = page.operations.into_iter().map(OperationView::from).collect();
    let (bytes, mut memory) = (operations.iter().map(OperationView::weight).sum(), api.response_memory.for_reads());
    charge_page(&mut memory, bytes)?;
    let mut response = with_memory(extract::write(StatusCode::OK, &operations, bytes), memory);
    if let Some(next) = page.next {
        let link = HeaderValue::from_str(&link(&list, next)).expect("names and ids are valid in a header");
        response.headers_mut().insert(LINK, link);
    }
    Ok(response)
}

impl OperationQuery {
    fn list(&self) -> Result<ListOperations, Problem> {
        let limit = number("limit", self.limit.as_deref())?.unwrap_or(PAGE_DEFAULT as i64);
        Ok(ListOperations::new()
            .state(self.state.as_deref().map(state).transpose()?)
            .before(self.cursor.as_deref().map(cursor).transpose()?)
            .limit(limit.clamp(1, PAGE_MAX as i64) as usize))
    }
}

fn state(text: &str) -> Result<OperationState, Problem> {
    OperationState::from_name(text).ok_or_else(|| {
        Problem::malformed(format!("state {} is not one of running, paused, finished, stopped", shortened(text)))
    })
}

fn cursor(text: &str) -> Result<OperationId, Problem> {
    // Exactly the form that we give out.
    let is_plain = text.len() == 32 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let id = text.parse::<Uuid>().ok().filter(|_| is_plain).map(OperationId::from);
    id.ok_or_else(|| Problem::malformed("cursor is not one of ours: take it from the Link header"))
}

/// Names and ids need no escaping.
fn link(list: &ListOperations, next: OperationId) -> String {
    let state = list.state.map(|state| format!("&state={}", state.as_str())).unwrap_or_default();
    format!("</operations?limit={}&cursor={}{state}>; rel=\"next\"", list.limit, next.as_uuid().simple())
}

/// Look at an operation
#[utoipa::path(
    get, path = "/operations/{id}", tag = "operations", operation_id = "get_operation",
    params(("id" = uuid::Uuid, Path)),
    responses((status = 200, description = "the operation", body = OperationView), (status = 404)),
)]
pub(super) async fn get_operation(
    State(api): State<Api>,
    PathText(id): PathText,
) -> Result<JsonResponse<OperationView>, Problem> {
    let id = operation_id(&id)?;
    let found = run_to_completion(&api, |api| async move { api.queue.operation(id).await }).await??;
    Ok(ok(found.ok_or_else(|| Problem::not_found("operation", id))?.into()))
}

/// Let an operation wait
///
/// A step that has begun is finished. One that is paused already stays so.
#[utoipa::path(
    post, path = "/operations/{id}/pause", tag = "operations", operation_id = "pause_operation",
    params(("id" = uuid::Uuid, Path)),
    responses((status = 200, description = "paused", body = OperationView), (status = 404), (status = 409)),
)]
pub(super) async fn pause_operation(
    State(api): State<Api>,
    OperatorQueue(queue): OperatorQueue,
    PathText(id): PathText,
) -> Result<JsonResponse<OperationView>, Problem> {
    change(&api, queue, &id, OperationChange::Pause).await
}

/// Let an operation go on
///
/// One that a bad canary has paused goes on without it.
#[utoipa::path(
    post, path = "/operations/{id}/resume", tag = "operations", operation_id = "resume_operation",
    params(("id" = uuid::Uuid, Path)),
    responses((status = 200, description = "running", body = OperationView), (status = 404), (status = 409)),
)]
pub(super) async fn resume_operation(
    State(api): State<Api>,
    OperatorQueue(queue): OperatorQueue,
    PathText(id): PathText,
) -> Result<JsonResponse<OperationView>, Problem> {
    change(&api, queue, &id, OperationChange::Resume).await
}

/// End an operation
///
/// What is done stays done; `counts` says how much that is.
#[utoipa::path(
    post, path = "/operations/{id}/stop", tag = "operations", operation_id = "stop_operation",
    params(("id" = uuid::Uuid, Path)),
    responses((status = 200, description = "stopped", body = OperationView), (status = 404), (status = 409)),
)]
pub(super) async fn stop_operation(
    State(api): State<Api>,
    OperatorQueue(queue): OperatorQueue,
    PathText(id): PathText,
) -> Result<JsonResponse<OperationView>, Problem> {
    change(&api, queue, &id, OperationChange::Stop).await
}

/// Give an operation another rate
#[utoipa::path(
    patch, path = "/operations/{id}", tag = "operations", operation_id = "change_operation",
    params(("id" = uuid::Uuid, Path)),
    request_body = wire::OperationPatch,
    responses((status = 200, description = "changed", body = OperationView),
        (status = 404), (status = 409), (status = 413), (status = 415), (status = 422)),
)]
pub(super) async fn change_operation(
    State(api): State<Api>,
    OperatorQueue(queue): OperatorQueue,
    PathText(id): PathText,
    body: JsonBody<wire::OperationPatch>,
) -> Result<JsonResponse<OperationView>, Problem> {
    // What does not fit is out of range, which is said there.
    let rate = u32::try_from(body.value.rate.0.max(0)).unwrap_or(u32::MAX);
    change(&api, queue, &id, OperationChange::Rate(rate)).await
}

async fn change(
    api: &Api,
    queue: Queue,
    id: &str,
    change: OperationChange,
) -> Result<JsonResponse<OperationView>, Problem> {
    let id = operation_id(id)?;
    let changed = run_to_completion(api, |_| async move { queue.change_operation(id, change).await }).await??;
    Ok(ok(changed.into()))
}

fn operation_id(text: &str) -> Result<OperationId, Problem> {
    text.parse().map_err(|_| Problem::malformed(format!("{} is not a UUID", shortened(text))))
}
