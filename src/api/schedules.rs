//! Schedules: declared, looked at, paused, run. What they do when they are due is done by
//! [`queue`](crate::queue) and the ticker of every worker.

use axum::extract::{Query, State};
use axum::http::header::{ETAG, IF_MATCH, LINK, LOCATION};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use jiff::Timestamp;
use serde::Deserialize;
use utoipa::IntoParams;

use super::extract::{self, JsonBody, JsonResponse, OperatorQueue, PathText, ok};
use super::limits::{LIST_STEP, PAGE_MAX_BYTES};
use super::list_query::number;
use super::memory_budget::MemoryShare;
use super::problem::{Problem, shortened};
use super::response_memory::{charge_page, with_memory};
use super::state::{Api, ApiState, run_to_completion};
use super::wire::{self, ScheduleDeclaration, ScheduleView, TickView, within};
use crate::job::limits::{PAGE_DEFAULT, PREVIEW_MAX, SCHEDULES_PAGE_MAX, TICKS_KEPT};
use crate::job::{Kind, ScheduleName, ScheduleSource, ScheduleSpec, ScheduleState};
use crate::queue::{EnqueueError, ScheduleError, Viewer};
use crate::store::{ListSchedules, ListTicks};

const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// 10 runs in a preview that does not say how many.
const PREVIEW_DEFAULT: i64 = 10;

/// Which schedules, as it stands in the query.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ScheduleQuery {
    /// Only in this state.
    #[param(value_type = Option<wire::ScheduleStateName>)]
    state: Option<String>,
    /// Only with jobs of this kind.
    #[param(pattern = "^[a-z0-9_.:-]{1,64}$")]
    kind: Option<String>,
    /// Schedules on a page: 50 by default, held within 1 to 200.
    #[param(value_type = Option<i64>)]
    limit: Option<String>,
    /// Where the page before ended, as its `Link` says.
    cursor: Option<String>,
}

/// List schedules, by name
#[utoipa::path(
    get, path = "/schedules", tag = "schedules", operation_id = "list_schedules",
    params(ScheduleQuery),
    responses((status = 200, description = "a page of schedules; it can be short and have a next", body = Vec<ScheduleView>,
        headers(("Link" = Option<String>, description = "`<…>; rel=\"next\"`: the next page, if there is one")))),
)]
pub(super) async fn list_schedules(State(api): State<Api>, viewer: Viewer, uri: Uri) -> Result<Response, Problem> {
    let Query(query) = Query::<ScheduleQuery>::try_from_uri(&uri).map_err(|error| unreadable(&error.body_text()))?;
    let list = query.list()?;
    let asked = list.clone();
    let permit = api.response_memory.page_permit().await?;
    let read = run_to_completion(&api, |api| async move { (read_page(&api, &viewer, asked).await, permit) });
    // Held until the page is written out: records and text are in memory together.
    let (page, _permit) = read.await?;
    let SchedulesRead { schedules, next, bytes, memory } = page?;
    let mut response = with_memory(extract::write(StatusCode::OK, &schedules, bytes), memory);
    if let Some(next) = next {
        let link = HeaderValue::from_str(&link(&list, &next)).expect("names are valid in a header");
        response.headers_mut().insert(LINK, link);
    }
    Ok(response)
}

/// A page in memory, with memory for its text.
struct SchedulesRead {
    schedules: Vec<ScheduleView>,
    next: Option<String>,
    bytes: usize,
    memory: MemoryShare,
}

/// Reads in steps, so that no more is in memory than a page may have and one step. What does not fit a page begins the
/// next one.
async fn read_page(api: &ApiState, viewer: &Viewer, list: ListSchedules) -> Result<SchedulesRead, Problem> {
    let memory = api.response_memory.for_reads();
    let mut page = SchedulesRead { schedules: Vec::new(), next: None, bytes: 0, memory };
    let mut step = list.clone();
    loop {
        step.limit = (list.limit - page.schedules.len()).min(LIST_STEP);
        let read = api.queue.schedules(step.clone()).await?;
        for schedule in read.schedules {
            let schedule = ScheduleView::shown(schedule, viewer).await;
            let weight = schedule.weight();
            if page.bytes + weight > PAGE_MAX_BYTES
                && let Some(last) = page.schedules.last()
            {
                page.next = Some(last.name().to_owned());
                return Ok(page);
            }
            page.bytes += weight;
            page.schedules.push(schedule);
            charge_page(&mut page.memory, page.bytes)?;
        }
        page.next = read.next.as_ref().map(ToString::to_string);
        if read.next.is_none() || page.schedules.len() >= list.limit {
            return Ok(page);
        }
        step.after = read.next;
    }
}

impl ScheduleQuery {
    fn list(&self) -> Result<ListSchedules, Problem> {
        let limit = number("limit", self.limit.as_deref())?.unwrap_or(PAGE_DEFAULT as i64);
        let state = self.state.as_deref().map(str::parse::<ScheduleState>).transpose();
        let kind = self.kind.as_deref().map(Kind::new).transpose();
        let cursor = self.cursor.as_deref().map(ScheduleName::new).transpose();
        Ok(ListSchedules::new()
            .state(state.map_err(|error| Problem::malformed(error.to_string()))?)
            .kind(kind.map_err(|error| Problem::malformed(error.to_string()))?)
            .after(cursor.map_err(|_| Problem::malformed("cursor is not one of ours: take it from the Link header"))?)
            .limit(limit.clamp(1, SCHEDULES_PAGE_MAX as i64) as usize))
    }
}

/// Names need no escaping.
fn link(list: &ListSchedules, next: &str) -> String {
    let mut query = format!("limit={}&cursor={next}", list.limit);
    if let Some(state) = list.state {
        query.push_str(&format!("&state={state}"));
    }
    if let Some(kind) = &list.kind {
        query.push_str(&format!("&kind={kind}"));
    }
    format!("</schedules?{query}>; rel=\"next\"")
}

fn unreadable(why: &str) -> Problem {
    Problem::malformed(format!("the query cannot be read: {}", shortened(why)))
}

/// Look at a schedule
#[utoipa::path(
    get, path = "/schedules/{name}", tag = "schedules", operation_id = "get_schedule",
    params(("name" = String, Path, pattern = "^[a-z0-9_.:-]{1,64}$")),
    responses(
        (status = 200, description = "the schedule", body = ScheduleView,
            headers(("ETag" = String, description = "its revision"))),
        (status = 404),
    ),
)]
pub(super) async fn get_schedule(
    State(api): State<Api>,
    viewer: Viewer,
    PathText(name): PathText,
) -> Result<Response, Problem> {
    let name = named(name)?;
    let asked = name.clone();
    let found = run_to_completion(&api, |api| async move { api.queue.schedule_record(asked).await }).await??;
    let schedule = found.ok_or_else(|| Problem::not_found("schedule", name))?;
    Ok(with_etag(StatusCode::OK, ScheduleView::shown(schedule, &viewer).await))
}

/// Create a schedule, or change it
///
/// Each tick enqueues one job, however many processes run. What is left out has its default: a schedule is replaced as a
/// whole, only `paused` stays as it is. It fires from its first tick after now.
#[utoipa::path(
    put, path = "/schedules/{name}", tag = "schedules", operation_id = "put_schedule",
    params(
        ("name" = String, Path, pattern = "^[a-z0-9_.:-]{1,64}$"),
        ("If-Match" = Option<String>, Header, pattern = "^\"[0-9]{1,18}\"$",
            description = "the revision that is to be changed, as the `ETag` says; with another it is 412"),
    ),
    request_body = ScheduleDeclaration,
    responses(
        (status = 201, description = "created", body = ScheduleView, headers(("ETag" = String, description = "its revision"))),
        (status = 200, description = "changed, or as it was", body = ScheduleView,
            headers(("ETag" = String, description = "its revision"))),
        (status = 409), (status = 412), (status = 413), (status = 415), (status = 422), (status = 429),
    ),
)]
pub(super) async fn put_schedule(
    State(api): State<Api>,
    OperatorQueue(queue): OperatorQueue,
    viewer: Viewer,
    PathText(name): PathText,
    headers: HeaderMap,
    body: JsonBody<ScheduleDeclaration>,
) -> Result<Response, Problem> {
    let name = ScheduleName::new(&name)?;
    let revision = expected_revision(&headers)?;
    let request = body.value.into_request().map_err(EnqueueError::from)?;
    let memory = body.memory;
    let put = run_to_completion(&api, |_| async move {
        let _held = memory;
        queue.put_schedule(name, request, ScheduleSource::Api, revision).await
    });
    let put = put.await??;
    let status = if put.created { StatusCode::CREATED } else { StatusCode::OK };
    Ok(with_etag(status, ScheduleView::shown(put.schedule, &viewer).await))
}

/// Delete a schedule
///
/// Its jobs stay.
#[utoipa::path(
    delete, path = "/schedules/{name}", tag = "schedules", operation_id = "delete_schedule",
    params(("name" = String, Path, pattern = "^[a-z0-9_.:-]{1,64}$")),
    responses((status = 204, description = "gone"), (status = 404), (status = 409)),
)]
pub(super) async fn delete_schedule(
    State(api): State<Api>,
    OperatorQueue(queue): OperatorQueue,
    PathText(name): PathText,
) -> Result<StatusCode, Problem> {
    let name = named(name)?;
    run_to_completion(&api, |_| async move { queue.delete_schedule(name, ScheduleSource::Api).await }).await??;
    Ok(StatusCode::NO_CONTENT)
}

/// Stop a schedule from firing
///
/// Ticks that fall into the pause are not missed.
#[utoipa::path(
    post, path = "/schedules/{name}/pause", tag = "schedules", operation_id = "pause_schedule",
    params(("name" = String, Path, pattern = "^[a-z0-9_.:-]{1,64}$")),
    responses((status = 200, description = "paused", body = ScheduleView), (status = 404)),
)]
pub(super) async fn pause_schedule(
    State(api): State<Api>,
    OperatorQueue(queue): OperatorQueue,
    viewer: Viewer,
    PathText(name): PathText,
) -> Result<JsonResponse<ScheduleView>, Problem> {
    let name = named(name)?;
    let paused = name.clone();
    let found = run_to_completion(&api, |_| async move { queue.pause_schedule(paused).await }).await??;
    let schedule = found.ok_or_else(|| Problem::not_found("schedule", name))?;
    Ok(ok(ScheduleView::shown(schedule, &viewer).await))
}

/// Let a schedule fire again, from its next tick on
#[utoipa::path(
    post, path = "/schedules/{name}/resume", tag = "schedules", operation_id = "resume_schedule",
    params(("name" = String, Path, pattern = "^[a-z0-9_.:-]{1,64}$")),
    responses((status = 200, description = "it fires", body = ScheduleView), (status = 404)),
)]
pub(super) async fn resume_schedule(
    State(api): State<Api>,
    OperatorQueue(queue): OperatorQueue,
    viewer: Viewer,
    PathText(name): PathText,
) -> Result<JsonResponse<ScheduleView>, Problem> {
    let name = named(name)?;
    let resumed = name.clone();
    let found = run_to_completion(&api, |_| async move { queue.resume_schedule(resumed).await }).await??;
    let schedule = found.ok_or_else(|| Problem::not_found("schedule", name))?;
    Ok(ok(ScheduleView::shown(schedule, &viewer).await))
}

/// Enqueue a job of a schedule now
///
/// Whatever is unfinished. With `tick`, it is that tick's job: a tick has one, however often it is asked for.
#[utoipa::path(
    post, path = "/schedules/{name}/run", tag = "schedules", operation_id = "run_schedule",
    params(("name" = String, Path, pattern = "^[a-z0-9_.:-]{1,64}$")),
    request_body = Option<wire::RunRequest>,
    responses(
        (status = 201, description = "enqueued", body = wire::JobView,
            headers(("Location" = String, description = "the job's own address"))),
        (status = 200, description = "the tick had its job; this is it", body = wire::JobView,
            headers(("Idempotent-Replayed" = String, description = "`true`"), ("Location" = String))),
        (status = 404), (status = 409), (status = 412), (status = 413), (status = 415), (status = 422), (status = 429),
    ),
)]
pub(super) async fn run_schedule(
    State(api): State<Api>,
    OperatorQueue(queue): OperatorQueue,
    viewer: Viewer,
    PathText(name): PathText,
    body: Option<JsonBody<wire::RunRequest>>,
) -> Result<Response, Problem> {
    let name = named(name)?;
    let tick = body.and_then(|body| body.value.tick);
    let ran = run_to_completion(&api, |_| async move { queue.run_schedule(name, tick).await }).await??;
    let location = HeaderValue::from_str(&format!("/jobs/{}", ran.job.id)).expect("a UUID is a valid header");
    let (headers, job) = ([(LOCATION, location)], wire::JobView::shown(ran.job, &viewer).await);
    if ran.created {
        return Ok((headers, JsonResponse(StatusCode::CREATED, job)).into_response());
    }
    Ok((headers, [(REPLAYED, HeaderValue::from_static("true"))], ok(job)).into_response())
}

/// How many ticks, as it stands in the query.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct TickQuery {
    /// 100 by default, held within 1 to 100.
    #[param(value_type = Option<i64>)]
    limit: Option<String>,
}

/// Look at what became of a schedule's ticks, newest first
///
/// The newest 100 are kept.
#[utoipa::path(
    get, path = "/schedules/{name}/ticks", tag = "schedules", operation_id = "get_ticks",
    params(("name" = String, Path, pattern = "^[a-z0-9_.:-]{1,64}$"), TickQuery),
    responses((status = 200, description = "its ticks", body = Vec<TickView>), (status = 404)),
)]
pub(super) async fn get_ticks(
    State(api): State<Api>,
    PathText(name): PathText,
    uri: Uri,
) -> Result<JsonResponse<Vec<TickView>>, Problem> {
    let Query(query) = Query::<TickQuery>::try_from_uri(&uri).map_err(|error| unreadable(&error.body_text()))?;
    let limit = number("limit", query.limit.as_deref())?.unwrap_or(TICKS_KEPT as i64);
    let name = named(name)?;
    let list = ListTicks::new(name.clone()).limit(limit.clamp(1, TICKS_KEPT as i64) as usize);
    let ticks = run_to_completion(&api, |api| async move { api.queue.schedule_ticks(list).await }).await??;
    let ticks = ticks.ok_or_else(|| Problem::not_found("schedule", name))?;
    Ok(ok(ticks.into_iter().map(TickView::from).collect()))
}

/// Show when a pattern or an interval fires, with a note at each change of the clocks
///
/// Nothing is stored.
#[utoipa::path(
    post, path = "/schedules/preview", tag = "schedules", operation_id = "preview_schedule",
    request_body = wire::PreviewRequest,
    responses(
        (status = 200, description = "the runs to come", body = wire::Preview),
        (status = 413), (status = 415), (status = 422),
    ),
)]
pub(super) async fn preview_schedule(
    body: JsonBody<wire::PreviewRequest>,
) -> Result<JsonResponse<wire::Preview>, Problem> {
    let count = within("count", body.value.count, 1..=PREVIEW_MAX as i64)?.unwrap_or(PREVIEW_DEFAULT) as usize;
    let now = Timestamp::now();
    let spec = ScheduleSpec::new(body.value.into_request(), now).map_err(ScheduleError::from)?;
    let runs = spec.preview(now, count).into_iter().map(wire::RunView::from).collect();
    let tz = spec.request().tz.clone().unwrap_or_else(|| "UTC".to_owned());
    Ok(ok(wire::Preview { describe: spec.describe(), tz, runs }))
}

/// What cannot be a schedule's name is not one.
fn named(name: String) -> Result<ScheduleName, Problem> {
    ScheduleName::new(&name).map_err(|_| Problem::not_found("schedule", name))
}

fn with_etag(status: StatusCode, schedule: ScheduleView) -> Response {
    let etag = format!("\"{}\"", schedule.revision());
    let etag = HeaderValue::from_str(&etag).expect("a number in quotes is a valid header");
    ([(ETAG, etag)], JsonResponse(status, schedule)).into_response()
}

/// The revision of `If-Match`.
fn expected_revision(headers: &HeaderMap) -> Result<Option<u64>, Problem> {
    let mut given = headers.get_all(IF_MATCH).iter();
    let Some(first) = given.next() else { return Ok(None) };
    let text = first.to_str().unwrap_or_default().trim();
    let quoted = text.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
    let digits = quoted.filter(|text| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()));
    match (digits.and_then(|digits| digits.parse().ok()), given.next()) {
        (Some(revision), None) => Ok(Some(revision)),
        _ => Err(Problem::malformed("the header If-Match is one revision in quotes, as the ETag says: \"7\"")),
    }
}
