//! The query of `GET /jobs`, and the list it asks for. A value that cannot be read is 400, one that is out of range 422; both
//! name it and say what is allowed.

use axum::extract::Query;
use axum::http::Uri;
use serde::Deserialize;
use utoipa::IntoParams;

use super::job_filter::{job_filter, sized};
use super::limits::{OFFSET_MAX, PAGE_MAX_BYTES, TEXT_MAX_CHARS};
use super::problem::{Code, Problem, shortened};
use super::wire::{self, FilterText};
use crate::job::Status;
use crate::job::limits::{PAGE_DEFAULT, PAGE_MAX};
use crate::store::{Cursor, JobFilter, List, Order};

/// What to list, as it stands in the query.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ListQuery {
    /// Only in these statuses, separated by commas. Only `queued` and `retrying`: next to run first.
    #[param(value_type = Option<wire::StatusName>)]
    status: Option<String>,
    /// Only of these kinds, at most 50, separated by commas.
    #[param(pattern = "^[a-z0-9_.:-]{1,64}(,[a-z0-9_.:-]{1,64})*$")]
    kind: Option<String>,
    /// Only in these queues, at most 50, separated by commas.
    #[param(pattern = "^[a-z0-9_.:-]{1,64}(,[a-z0-9_.:-]{1,64})*$")]
    queue: Option<String>,
    /// Only what runs on this worker.
    #[param(pattern = "^[a-z0-9_.:-]{1,64}$")]
    worker: Option<String>,
    /// Only of this group of their queue.
    #[param(min_length = 1, max_length = 255)]
    group: Option<String>,
    /// Only dead letters with this fingerprint of their error.
    #[param(pattern = "^[0-9a-f]{16}$")]
    error: Option<String>,
    /// Only the job with this idempotency key.
    #[param(min_length = 1, max_length = 255)]
    key: Option<String>,
    /// Only created then or later, by the milliseconds in their ids.
    #[param(value_type = Option<Timestamp>)]
    created_after: Option<String>,
    /// Only created before that.
    #[param(value_type = Option<Timestamp>)]
    created_before: Option<String>,
    /// Only finished then or later.
    #[param(value_type = Option<Timestamp>)]
    finished_after: Option<String>,
    /// Only finished before that.
    #[param(value_type = Option<Timestamp>)]
    finished_before: Option<String>,
    /// Only with this text in the JSON of the payload or in the last error, as they are shown. One call looks at 5,000 jobs,
    /// 16 MiB or for 250 ms, and `Link` goes on from there. Excludes `offset`.
    #[param(min_length = 1, max_length = 200)]
    text: Option<String>,
    /// `newest` or `oldest` first, or the `next` to run, which is for waiting jobs only.
    #[param(pattern = "^(newest|oldest|next)$")]
    order: Option<String>,
    /// `full`, which is the default, or `summary`: without payload and result.
    #[param(pattern = "^(summary|full)$")]
    view: Option<String>,
    /// Jobs on a page: 50 by default, held within 1 to 200.
    #[param(value_type = Option<i64>)]
    limit: Option<String>,
    /// Leave out this many first, at most 10,000. Excludes `cursor`.
    #[param(value_type = Option<i64>, maximum = 10000)]
    offset: Option<String>,
    /// Where the page before ended, as its `Link` says.
    cursor: Option<String>,
}

/// A query that was understood.
#[derive(Debug)]
pub(super) struct ListRequest {
    pub(super) list: List,
    pub(super) text: Option<String>,
    pub(super) is_summary: bool,
}

impl ListRequest {
    pub(super) fn parse(uri: &Uri) -> Result<Self, Problem> {
        let Query(query) = Query::<ListQuery>::try_from_uri(uri).map_err(|error| {
            Problem::malformed(format!("the query cannot be read: {}", shortened(&error.body_text())))
        })?;
        query.request()
    }
}

impl ListQuery {
    fn request(self) -> Result<ListRequest, Problem> {
        if self.cursor.is_some() && self.offset.is_some() {
            return Err(Problem::malformed("cursor and offset exclude each other: send one of them"));
        }
        if self.text.is_some() && self.offset.is_some() {
            return Err(Problem::malformed("text and offset exclude each other: follow the Link header instead"));
        }
        let offset = number("offset", self.offset.as_deref())?.unwrap_or(0).max(0);
        if offset > OFFSET_MAX as i64 {
            return Err(Problem::malformed(format!("offset is at most {OFFSET_MAX}: follow the Link header instead")));
        }
        let limit = number("limit", self.limit.as_deref())?.unwrap_or(PAGE_DEFAULT as i64);
        let list = List::new()
            .filter(self.filter()?)
            .order(self.order.as_deref().map(order).transpose()?)
            .cursor(self.cursor.as_deref().map(cursor).transpose()?)
            .offset(offset as usize)
            .limit(limit.clamp(1, PAGE_MAX as i64) as usize)
            .max_bytes(PAGE_MAX_BYTES);
        check_order(&list)?;
        list.check_cursor().map_err(|_| foreign_cursor())?;
        let is_summary = match self.view.as_deref() {
            None | Some("full") => false,
            Some("summary") => true,
            Some(other) => return Err(not_one_of("view", other, "summary, full")),
        };
        let text = self.text.map(|text| sized("text", text, TEXT_MAX_CHARS)).transpose()?;
        Ok(ListRequest { list, text, is_summary })
    }

    fn filter(&self) -> Result<JobFilter, Problem> {
        let text = FilterText {
            status: self.status.clone(),
            kind: self.kind.clone(),
            queue: self.queue.clone(),
            worker: self.worker.clone(),
            group: self.group.clone(),
            error: self.error.clone(),
            key: self.key.clone(),
            created_after: self.created_after.clone(),
            created_before: self.created_before.clone(),
            finished_after: self.finished_after.clone(),
            finished_before: self.finished_before.clone(),
        };
        job_filter(&text, Problem::malformed)
    }
}

fn out_of_range(detail: String) -> Problem {
    Problem::new(Code::InvalidValue, detail)
}

fn not_one_of(field: &str, given: &str, allowed: &str) -> Problem {
    Problem::malformed(format!("{field} {} is not one of {allowed}", shortened(given)))
}

fn order(text: &str) -> Result<Order, Problem> {
    match text {
        "newest" => Ok(Order::Newest),
        "oldest" => Ok(Order::Oldest),
        "next" => Ok(Order::Next),
        other => Err(not_one_of("order", other, "newest, oldest, next")),
    }
}

fn check_order(list: &List) -> Result<(), Problem> {
    let runs_or_ran = |status: &&Status| !matches!(status, Status::Queued | Status::Retrying);
    match list.filter.statuses.iter().find(runs_or_ran) {
        Some(status) if list.order == Some(Order::Next) => Err(out_of_range(format!(
            "order next is for jobs that wait, and status {status} does not: ask for queued, retrying, or leave status out"
        ))),
        _ => Ok(()),
    }
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

fn cursor(text: &str) -> Result<Cursor, Problem> {
    text.parse().map_err(|_| foreign_cursor())
}

fn foreign_cursor() -> Problem {
    Problem::malformed("cursor is not one of ours: take it from the Link header, with the rest of its query")
}
