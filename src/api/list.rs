//! Listing jobs: newest first, page by page. The cursor says where a page ended, so that the next one costs the same
//! however far it is; `offset` is for the first few pages only.

use axum::extract::{Query, State};
use axum::http::header::LINK;
use axum::http::{HeaderValue, StatusCode, Uri};
use axum::response::Response;
use serde::Deserialize;
use utoipa::IntoParams;
use uuid::Uuid;

use super::extract;
use super::limits::{LIST_STEP, OFFSET_MAX, PAGE_MAX_BYTES};
use super::memory_budget::MemoryShare;
use super::problem::{Problem, shortened};
use super::response_memory::{charge_page, with_memory};
use super::state::{Api, ApiState, run_to_completion};
use super::wire;
use crate::job::limits::{PAGE_DEFAULT, PAGE_MAX};
use crate::job::{JobId, Kind, QueueName, Status};
use crate::store::{List, Page};

/// What to list, as it stands in the query.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ListQuery {
    /// Only in this status.
    #[param(value_type = Option<wire::StatusName>)]
    status: Option<String>,
    /// Only of this kind.
    #[param(pattern = "^[a-z0-9_.:-]{1,64}$")]
    kind: Option<String>,
    /// Only in this queue.
    #[param(pattern = "^[a-z0-9_.:-]{1,64}$")]
    queue: Option<String>,
    /// Jobs on a page: 50 by default, held within 1 to 200.
    #[param(value_type = Option<i64>)]
    limit: Option<String>,
    /// Leave out this many first, at most 10,000. Excludes `cursor`.
    #[param(value_type = Option<i64>, maximum = 10000)]
    offset: Option<String>,
    /// Where the page before ended, as its `Link` says.
    cursor: Option<String>,
}

/// List jobs, newest first
#[utoipa::path(
    get, path = "/jobs", tag = "jobs", operation_id = "list_jobs",
    params(ListQuery),
    responses((status = 200, description = "a page of jobs; it can be short, even empty, and have a next",
        body = Vec<wire::JobView>,
        headers(("Link" = Option<String>, description = "`<…>; rel=\"next\"`: the next page, if there is one")))),
)]
pub(super) async fn list_jobs(State(api): State<Api>, uri: Uri) -> Result<Response, Problem> {
    let Query(query) = Query::<ListQuery>::try_from_uri(&uri)
        .map_err(|error| Problem::malformed(format!("the query cannot be read: {}", shortened(&error.body_text()))))?;
    let list = query.list()?;
    let asked = list.clone();
    let permit = api.response_memory.page_permit().await?;
    let read = run_to_completion(&api, |api| async move {
        let page = read_page(&api, asked).await;
        (page, permit)
    });
    // Held until the page is written out: records and text are in memory together.
    let (page, _permit) = read.await?;
    let ReadPage { jobs, next, bytes, memory } = page?;
    // The weight is an estimate; an answer that outgrew its buffer would be copied into one twice as large.
    let slack = 512 * jobs.len();
    let mut response = with_memory(extract::write(StatusCode::OK, &jobs, bytes + slack), memory);
    if let Some(next) = next {
        let link = HeaderValue::from_str(&link(&list, next)).expect("names and ids are valid in a header");
        response.headers_mut().insert(LINK, link);
    }
    Ok(response)
}

/// A page in memory, with memory for its text.
struct ReadPage {
    jobs: Vec<wire::JobView>,
    next: Option<JobId>,
    /// About how long its text is.
    bytes: usize,
    memory: MemoryShare,
}

/// Reads in steps, so that no more is in memory than a page may have and one step. What does not fit a page begins the
/// next one.
async fn read_page(api: &ApiState, list: List) -> Result<ReadPage, Problem> {
    let mut page = ReadPage { jobs: Vec::new(), next: None, bytes: 0, memory: api.response_memory.for_reads() };
    let mut step = list.clone();
    loop {
        step.limit = (list.limit - page.jobs.len()).min(LIST_STEP);
        let Page { jobs, next } = api.queue.list(step.clone()).await?;
        let is_short = jobs.len() < step.limit;
        for job in jobs {
            let job = wire::JobView::shown(job, &api.queue).await;
            let weight = job.weight();
            if page.bytes + weight > PAGE_MAX_BYTES
                && let Some(last) = page.jobs.last()
            {
                page.next = Some(last.id());
                return Ok(page);
            }
            page.bytes += weight;
            page.jobs.push(job);
            charge_page(&mut page.memory, page.bytes)?;
        }
        page.next = next;
        if is_short || next.is_none() || page.jobs.len() >= list.limit {
            return Ok(page);
        }
        (step.before, step.offset) = (next, 0);
    }
}

impl ListQuery {
    fn list(&self) -> Result<List, Problem> {
        if self.cursor.is_some() && self.offset.is_some() {
            return Err(Problem::malformed("cursor and offset exclude each other: send one of them"));
        }
        let offset = number("offset", self.offset.as_deref())?.unwrap_or(0).max(0);
        if offset > OFFSET_MAX as i64 {
            return Err(Problem::malformed(format!("offset is at most {OFFSET_MAX}: follow the Link header instead")));
        }
        let limit = number("limit", self.limit.as_deref())?.unwrap_or(PAGE_DEFAULT as i64);
        let not_a_name = |error: crate::job::NotAName| Problem::malformed(error.to_string());
        Ok(List {
            status: self.status.as_deref().map(status).transpose()?,
            kind: self.kind.as_deref().map(Kind::new).transpose().map_err(not_a_name)?,
            queue: self.queue.as_deref().map(QueueName::new).transpose().map_err(not_a_name)?,
            before: self.cursor.as_deref().map(cursor).transpose()?,
            offset: offset as usize,
            limit: limit.clamp(1, PAGE_MAX as i64) as usize,
        })
    }
}

fn status(text: &str) -> Result<Status, Problem> {
    text.parse::<Status>().map_err(|error| Problem::malformed(error.to_string()))
}

/// A whole number of any length.
pub(super) fn number(field: &str, text: Option<&str>) -> Result<Option<i64>, Problem> {
    let Some(text) = text else { return Ok(None) };
    let digits = text.strip_prefix('-').unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(Problem::malformed(format!("{field} {} is not a whole number", shortened(text))));
    }
    let beyond = if text.starts_with('-') { i64::MIN } else { i64::MAX };
    Ok(Some(text.parse().unwrap_or(beyond)))
}

fn cursor(text: &str) -> Result<JobId, Problem> {
    let invalid = || Problem::malformed("cursor is not one of ours: take it from the Link header");
    // Exactly the form that we give out.
    let plain = text.len() == 32 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if !plain {
        return Err(invalid());
    }
    text.parse::<Uuid>().map(JobId::from).map_err(|_| invalid())
}

/// Names and ids need no escaping.
fn link(list: &List, next: JobId) -> String {
    let mut query = format!("limit={}&cursor={}", list.limit, next.as_uuid().simple());
    let filters = [
        ("status", list.status.map(|status| status.to_string())),
        ("kind", list.kind.as_ref().map(ToString::to_string)),
        ("queue", list.queue.as_ref().map(ToString::to_string)),
    ];
    for (name, value) in filters {
        if let Some(value) = value {
            query.push_str(&format!("&{name}={value}"));
        }
    }
    format!("</jobs?{query}>; rel=\"next\"")
}
