//! Limits of queues and of their groups: set, looked at, put back.

use axum::extract::{Query, State};
use axum::http::header::LINK;
use axum::http::{HeaderValue, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use jiff::Timestamp;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use utoipa::IntoParams;

use super::extract::{JsonBody, JsonResponse, OperatorQueue, PathText, PathTexts, ok};
use super::list_query::number;
use super::problem::{Problem, shortened};
use super::queues::named;
use super::state::{Api, run_to_completion};
use super::stats::current as stats;
use super::wire::{
    GroupSettingsDeclaration, GroupSettingsView, LimitView, QueueSettingsDeclaration, QueueSettingsView, QueueView,
};
use crate::job::limits::PAGE_MAX;
use crate::job::{GroupKey, LimitScope, QueueName};
use crate::store::{LimitsRequest, QueueLimits, QueueStats, StatsRequest};

/// Set the limits of a queue and of its groups
///
/// All of them: what is left out is no longer limited. A new limit counts what runs already; a lower one stops nothing. The
/// queue need not have jobs yet.
#[utoipa::path(
    put, path = "/queues/{queue}", tag = "queues", operation_id = "set_queue",
    params(("queue" = String, Path, pattern = "^[a-z0-9_.:-]{1,64}$")),
    request_body = QueueSettingsDeclaration,
    responses(
        (status = 201, description = "set; it had no settings before", body = QueueSettingsView),
        (status = 200, description = "changed", body = QueueSettingsView),
        (status = 413), (status = 415), (status = 422), (status = 429),
    ),
)]
pub(super) async fn set_queue(
    State(api): State<Api>,
    OperatorQueue(queue): OperatorQueue,
    PathText(name): PathText,
    body: JsonBody<QueueSettingsDeclaration>,
) -> Result<JsonResponse<QueueSettingsView>, Problem> {
    let (name, settings) = (QueueName::new(&name)?, body.value.settings()?);
    let limited = name.clone();
    let is_new = run_to_completion(&api, |_| async move { queue.limit(limited, settings).await }).await??;
    let (queue, limits) = read(&api, &name).await?;
    Ok(JsonResponse(status(is_new), view(&name, queue, limits)))
}

/// Look at a queue with its limits, and how much of them is used
#[utoipa::path(
    get, path = "/queues/{queue}", tag = "queues", operation_id = "get_queue",
    params(("queue" = String, Path, pattern = "^[a-z0-9_.:-]{1,64}$")),
    responses((status = 200, description = "the queue", body = QueueSettingsView), (status = 404)),
)]
pub(super) async fn get_queue(
    State(api): State<Api>,
    PathText(name): PathText,
) -> Result<JsonResponse<QueueSettingsView>, Problem> {
    let name = named(name)?;
    let (queue, limits) = known(&api, &name).await?;
    Ok(ok(view(&name, queue, limits)))
}

/// Which page, as it stands in the query.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct LimitsPageQuery {
    /// Groups on a page: 200 by default, held within 1 to 200.
    #[param(value_type = Option<i64>)]
    limit: Option<String>,
    /// Where the page before ended, as its `Link` says.
    cursor: Option<String>,
}

/// List how much of a queue's limits is used
///
/// The queue's own limit first, then its groups by key: those that have running jobs, a rate in use or settings of their
/// own.
#[utoipa::path(
    get, path = "/queues/{queue}/limits", tag = "queues", operation_id = "list_limits",
    params(("queue" = String, Path, pattern = "^[a-z0-9_.:-]{1,64}$"), LimitsPageQuery),
    responses(
        (status = 200, description = "a page of limits", body = Vec<LimitView>,
            headers(("Link" = Option<String>, description = "`<…>; rel=\"next\"`: the next page, if there is one"))),
        (status = 404),
    ),
)]
pub(super) async fn list_limits(
    State(api): State<Api>,
    PathText(name): PathText,
    uri: Uri,
) -> Result<Response, Problem> {
    let name = named(name)?;
    let Query(query) = Query::<LimitsPageQuery>::try_from_uri(&uri)
        .map_err(|error| Problem::malformed(format!("the query cannot be read: {}", shortened(&error.body_text()))))?;
    let limit = number("limit", query.limit.as_deref())?.unwrap_or(PAGE_MAX as i64).clamp(1, PAGE_MAX as i64) as usize;
    let invalid = |_| Problem::malformed("cursor is not one of ours: take it from the Link header");
    let after = query.cursor.map(GroupKey::new).transpose().map_err(invalid)?;
    known(&api, &name).await?;
    let request = LimitsRequest::new(name.clone()).after(after).limit(limit);
    let page = run_to_completion(&api, |api| async move { api.queue.limits(request).await }).await??;
    let now = Timestamp::now();
    let items: Vec<_> = page.items.into_iter().map(|item| LimitView::new(item, now)).collect();
    let mut response = ok(items).into_response();
    if let Some(next) = page.next {
        let cursor = utf8_percent_encode(next.as_str(), NON_ALPHANUMERIC);
        let link = format!("</queues/{name}/limits?limit={limit}&cursor={cursor}>; rel=\"next\"");
        let link = HeaderValue::from_str(&link).expect("names and percent-encoded text are valid in a header");
        response.headers_mut().insert(LINK, link);
    }
    Ok(response)
}

/// Set what holds for one group of a queue
///
/// Instead of what holds for each. The group is percent-encoded in the path; it need not have jobs yet.
#[utoipa::path(
    put, path = "/queues/{queue}/groups/{group}", tag = "queues", operation_id = "set_group",
    params(
        ("queue" = String, Path, pattern = "^[a-z0-9_.:-]{1,64}$"),
        ("group" = String, Path, min_length = 1, max_length = 255),
    ),
    request_body = GroupSettingsDeclaration,
    responses(
        (status = 201, description = "set; it had no settings of its own before", body = GroupSettingsView),
        (status = 200, description = "changed", body = GroupSettingsView),
        (status = 413), (status = 415), (status = 422), (status = 429),
    ),
)]
pub(super) async fn set_group(
    State(api): State<Api>,
    OperatorQueue(queue): OperatorQueue,
    PathTexts((name, group)): PathTexts<(String, String)>,
    body: JsonBody<GroupSettingsDeclaration>,
) -> Result<JsonResponse<GroupSettingsView>, Problem> {
    let (name, group, settings) = (QueueName::new(&name)?, GroupKey::new(&group)?, body.value.settings()?);
    let is_new = run_to_completion(&api, |_| async move { queue.limit_group(name, group, settings).await }).await??;
    Ok(JsonResponse(status(is_new), settings.into()))
}

/// Put a group back to what holds for each
#[utoipa::path(
    delete, path = "/queues/{queue}/groups/{group}", tag = "queues", operation_id = "reset_group",
    params(
        ("queue" = String, Path, pattern = "^[a-z0-9_.:-]{1,64}$"),
        ("group" = String, Path, min_length = 1, max_length = 255),
    ),
    responses((status = 204, description = "it has no settings of its own any more"), (status = 404)),
)]
pub(super) async fn reset_group(
    State(api): State<Api>,
    OperatorQueue(queue): OperatorQueue,
    PathTexts((name, group)): PathTexts<(String, String)>,
) -> Result<StatusCode, Problem> {
    let none = || Problem::not_found("group with settings of its own,", &group);
    let (name, key) = (named(name)?, GroupKey::new(&group).map_err(|_| none())?);
    match run_to_completion(&api, |_| async move { queue.unlimit_group(name, key).await }).await?? {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(none()),
    }
}

fn status(is_new: bool) -> StatusCode {
    if is_new { StatusCode::CREATED } else { StatusCode::OK }
}

fn view(name: &QueueName, queue: Option<QueueStats>, limits: QueueLimits) -> QueueSettingsView {
    let queue = QueueView::new(name, &queue.unwrap_or_default());
    QueueSettingsView::new(queue, limits, Timestamp::now())
}

async fn read(api: &Api, name: &QueueName) -> Result<(Option<QueueStats>, QueueLimits), Problem> {
    let mut stats = stats(api, StatsRequest::of([name.clone()])).await?;
    let asked = name.clone();
    let limits = run_to_completion(api, |api| async move { api.queue.queue_limits(asked).await }).await??;
    Ok((stats.queues.remove(name), limits))
}

/// A queue that has jobs, is paused, or has settings or groups with settings; any other name is 404.
pub(super) async fn known(api: &Api, name: &QueueName) -> Result<(Option<QueueStats>, QueueLimits), Problem> {
    let (queue, limits) = read(api, name).await?;
    if queue.is_none() && limits.settings.is_none() {
        let request = LimitsRequest::new(name.clone()).limit(1);
        let page = run_to_completion(api, |api| async move { api.queue.limits(request).await }).await??;
        if !page.items.iter().any(|item| item.limit.scope == LimitScope::Group) {
            return Err(Problem::not_found("queue", name));
        }
    }
    Ok((queue, limits))
}
