//! Groups of errors: dead letters by cause, and which causes are known.

use axum::extract::{Query, State};
use axum::http::header::LINK;
use axum::http::{HeaderValue, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use jiff::Timestamp;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use utoipa::IntoParams;

use super::extract::{JsonBody, JsonResponse, OperatorQueue, PathText, ok};
use super::list_query::number;
use super::problem::{Problem, shortened};
use super::state::{Api, run_to_completion};
use super::wire::{ErrorView, SnoozeDeclaration};
use crate::job::limits::{PAGE_DEFAULT, PAGE_MAX};
use crate::job::{Fingerprint, Kind, QueueName};
use crate::store::ListErrors;

/// Which groups, as it stands in the query.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ErrorsQuery {
    /// Only of this kind.
    #[param(pattern = "^[a-z0-9_.:-]{1,64}$")]
    kind: Option<String>,
    /// Only those seen in this queue; they are counted in it only.
    #[param(pattern = "^[a-z0-9_.:-]{1,64}$")]
    queue: Option<String>,
    /// Only those seen at or after this time.
    #[param(value_type = Option<Timestamp>)]
    since: Option<String>,
    /// `true`: only those that have dead letters now; `false`: only those that have none.
    #[param(value_type = Option<bool>)]
    dead: Option<String>,
    /// `true`: only those that are snoozed; `false`: only those that are not.
    #[param(value_type = Option<bool>)]
    snoozed: Option<String>,
    /// Groups on a page: 50 by default, held within 1 to 200.
    #[param(value_type = Option<i64>)]
    limit: Option<String>,
    /// Where the page before ended, as its `Link` says.
    cursor: Option<String>,
}

/// List the causes of dead letters, those seen last first
///
/// Dead letters of one kind whose errors differ in ids, numbers, times and the like only are one group.
#[utoipa::path(
    get, path = "/errors", tag = "errors", operation_id = "list_errors",
    params(ErrorsQuery),
    responses((status = 200, description = "a page of groups", body = Vec<ErrorView>,
        headers(("Link" = Option<String>, description = "`<…>; rel=\"next\"`: the next page, if there is one")))),
)]
pub(super) async fn list_errors(State(api): State<Api>, uri: Uri) -> Result<Response, Problem> {
    let Query(query) = Query::<ErrorsQuery>::try_from_uri(&uri)
        .map_err(|error| Problem::malformed(format!("the query cannot be read: {}", shortened(&error.body_text()))))?;
    let list = query.list()?;
    let asked = list.clone();
    let page = run_to_completion(&api, |api| async move { api.queue.errors(asked).await }).await??;
    let groups: Vec<_> = page.groups.into_iter().map(|group| ErrorView::new(group, None)).collect();
    let mut response = ok(groups).into_response();
    if let Some(next) = page.next {
        let link = query.link(list.limit, &next.to_string());
        let link = HeaderValue::from_str(&link).expect("percent-encoded text is valid in a header");
        response.headers_mut().insert(LINK, link);
    }
    Ok(response)
}

impl ErrorsQuery {
    fn list(&self) -> Result<ListErrors, Problem> {
        let not_a_name = |error: crate::job::NotAName| Problem::malformed(error.to_string());
        let since = self.since.as_deref().map(|text| {
            let parsed = text.parse::<Timestamp>();
            parsed.map_err(|_| Problem::malformed("since is not a time: use one like 2030-01-01T09:00:00Z"))
        });
        let invalid = |_| Problem::malformed("cursor is not one of ours: take it from the Link header");
        let limit = number("limit", self.limit.as_deref())?.unwrap_or(PAGE_DEFAULT as i64).clamp(1, PAGE_MAX as i64);
        Ok(ListErrors::new()
            .kind(self.kind.as_deref().map(Kind::new).transpose().map_err(not_a_name)?)
            .queue(self.queue.as_deref().map(QueueName::new).transpose().map_err(not_a_name)?)
            .since(since.transpose()?)
            .dead(yes_or_no("dead", self.dead.as_deref())?)
            .snoozed(yes_or_no("snoozed", self.snoozed.as_deref())?)
            .after(self.cursor.as_deref().map(str::parse).transpose().map_err(invalid)?)
            .limit(limit as usize))
    }

    fn link(&self, limit: usize, next: &str) -> String {
        let mut link = format!("</errors?limit={limit}&cursor={next}");
        let filters = [
            ("kind", &self.kind),
            ("queue", &self.queue),
            ("since", &self.since),
            ("dead", &self.dead),
            ("snoozed", &self.snoozed),
        ];
        for (name, value) in filters {
            if let Some(value) = value {
                link.push_str(&format!("&{name}={}", utf8_percent_encode(value, NON_ALPHANUMERIC)));
            }
        }
        link + ">; rel=\"next\""
    }
}

fn yes_or_no(field: &str, text: Option<&str>) -> Result<Option<bool>, Problem> {
    text.map(str::parse).transpose().map_err(|_| Problem::malformed(format!("{field} is neither true nor false")))
}

/// Look at one group of errors, with an error of it in full
#[utoipa::path(
    get, path = "/errors/{fingerprint}", tag = "errors", operation_id = "get_error",
    params(("fingerprint" = String, Path, pattern = "^[0-9a-f]{16}$")),
    responses((status = 200, description = "the group", body = ErrorView), (status = 404)),
)]
pub(super) async fn get_error(
    State(api): State<Api>,
    PathText(text): PathText,
) -> Result<JsonResponse<ErrorView>, Problem> {
    let fingerprint = named(&text)?;
    let read = run_to_completion(&api, |api| async move {
        let Some(group) = api.queue.error_group(fingerprint).await? else { return Ok(None) };
        let sample = match group.sample_job {
            Some(id) => api.queue.get(id).await?,
            None => None,
        };
        let sample = sample.filter(|job| job.error_group == Some(fingerprint));
        Ok::<_, crate::store::StoreError>(Some((group, sample.and_then(|job| job.last_error))))
    });
    match read.await?? {
        Some((group, error)) => Ok(ok(ErrorView::new(group, error))),
        None => Err(none(&text)),
    }
}

/// Snooze a group of errors
///
/// Until a time, or for so long. Its dead letters are counted as before, and nothing is kept from running; it says that the
/// cause is known. Sent again, it replaces what was said.
#[utoipa::path(
    put, path = "/errors/{fingerprint}/snooze", tag = "errors", operation_id = "snooze_error",
    params(("fingerprint" = String, Path, pattern = "^[0-9a-f]{16}$")),
    request_body = SnoozeDeclaration,
    responses((status = 200, description = "snoozed", body = ErrorView), (status = 404), (status = 413), (status = 415),
        (status = 422)),
)]
pub(super) async fn snooze_error(
    State(api): State<Api>,
    OperatorQueue(queue): OperatorQueue,
    PathText(text): PathText,
    body: JsonBody<SnoozeDeclaration>,
) -> Result<JsonResponse<ErrorView>, Problem> {
    let fingerprint = named(&text)?;
    let (end, note) = body.value.read(Timestamp::now())?;
    let snooze = run_to_completion(&api, |_| async move { queue.snooze_errors(fingerprint, end, note).await });
    match snooze.await?? {
        Some(group) => Ok(ok(ErrorView::new(group, None))),
        None => Err(none(&text)),
    }
}

/// End the snooze of a group of errors
#[utoipa::path(
    delete, path = "/errors/{fingerprint}/snooze", tag = "errors", operation_id = "unsnooze_error",
    params(("fingerprint" = String, Path, pattern = "^[0-9a-f]{16}$")),
    responses((status = 204, description = "it is not snoozed any more"), (status = 404)),
)]
pub(super) async fn unsnooze_error(
    State(api): State<Api>,
    OperatorQueue(queue): OperatorQueue,
    PathText(text): PathText,
) -> Result<StatusCode, Problem> {
    let fingerprint = named(&text)?;
    match run_to_completion(&api, |_| async move { queue.unsnooze_errors(fingerprint).await }).await?? {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(Problem::not_found("snoozed group of errors", &text)),
    }
}

/// What is no fingerprint names no group.
fn named(text: &str) -> Result<Fingerprint, Problem> {
    text.parse().map_err(|_| none(text))
}

fn none(text: &str) -> Problem {
    Problem::not_found("group of errors", text)
}
