//! The audit: what operators did, for operators to read. No route writes or deletes it.

use axum::extract::{Query, State};
use axum::http::header::LINK;
use axum::http::{HeaderValue, Uri};
use axum::response::{IntoResponse, Response};
use jiff::Timestamp;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use utoipa::IntoParams;

use super::extract::ok;
use super::list_query::number;
use super::problem::{Problem, shortened};
use super::state::{Api, run_to_completion};
use super::wire::AuditView;
use crate::job::limits::{PAGE_DEFAULT, PAGE_MAX};
use crate::store::{AuditCursor, ListAudit};

/// 512 characters: longer than any target, name or action is.
const FILTER_MAX_CHARS: usize = 512;

/// Which entries, as it stands in the query.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct AuditQuery {
    /// Only this action.
    #[param(example = "redrive")]
    action: Option<String>,
    /// Only by the token with this id or name.
    token: Option<String>,
    /// Only what was done to this.
    #[param(example = "queue:mail")]
    target: Option<String>,
    /// Only at this time or later.
    #[param(value_type = Option<String>, format = DateTime)]
    since: Option<String>,
    /// Only before this time.
    #[param(value_type = Option<String>, format = DateTime)]
    before: Option<String>,
    /// Entries on a page: 50 by default, held within 1 to 200.
    #[param(value_type = Option<i64>)]
    limit: Option<String>,
    /// Where the page before ended, as its `Link` says.
    cursor: Option<String>,
}

/// List what operators did, newest first
///
/// Every act of an operator is recorded in its own transaction: there is never one without the other. Nothing changes or
/// deletes an entry but its retention.
#[utoipa::path(
    get, path = "/audit", tag = "audit", operation_id = "list_audit",
    params(AuditQuery),
    responses((status = 200, description = "a page of entries; it can be short, even empty, and have a next",
        body = Vec<AuditView>,
        headers(("Link" = Option<String>, description = "`<…>; rel=\"next\"`: the next page, if there is one")))),
)]
pub(super) async fn list_audit(State(api): State<Api>, uri: Uri) -> Result<Response, Problem> {
    let Query(query) = Query::<AuditQuery>::try_from_uri(&uri)
        .map_err(|error| Problem::malformed(format!("the query cannot be read: {}", shortened(&error.body_text()))))?;
    let list = query.list()?;
    let limit = list.limit;
    // Held until the page is written out: entries and text are in memory together.
    let permit = api.response_memory.page_permit().await?;
    let read = run_to_completion(&api, |api| async move { (api.queue.audit(list).await, permit) });
    let (page, _permit) = read.await?;
    let page = page?;
    let entries: Vec<AuditView> = page.records.into_iter().map(AuditView::from).collect();
    let mut response = ok(entries).into_response();
    if let Some(next) = page.next {
        let link = HeaderValue::from_str(&query.link(limit, next)).expect("percent-encoded text is valid in a header");
        response.headers_mut().insert(LINK, link);
    }
    Ok(response)
}

impl AuditQuery {
    fn list(&self) -> Result<ListAudit, Problem> {
        for (name, value) in [("action", &self.action), ("token", &self.token), ("target", &self.target)] {
            let is_too_long = |text: &String| text.chars().nth(FILTER_MAX_CHARS).is_some() || text.contains('\0');
            if value.as_ref().is_some_and(is_too_long) {
                return Err(Problem::malformed(format!("{name} is longer than any there is, or not text")));
            }
        }
        let limit = number("limit", self.limit.as_deref())?.unwrap_or(PAGE_DEFAULT as i64);
        let cursor = self.cursor.as_deref().map(str::parse::<AuditCursor>).transpose();
        let mut list = ListAudit::new()
            .since(time("since", self.since.as_deref())?)
            .before(time("before", self.before.as_deref())?)
            .after(cursor.map_err(|_| Problem::malformed("cursor is not one of ours: take it from the Link header"))?)
            .limit(limit.clamp(1, PAGE_MAX as i64) as usize);
        (list.action, list.token, list.target) = (self.action.clone(), self.token.clone(), self.target.clone());
        Ok(list)
    }

    fn link(&self, limit: usize, next: AuditCursor) -> String {
        let mut query = format!("limit={limit}&cursor={next}");
        let given = [
            ("action", &self.action),
            ("token", &self.token),
            ("target", &self.target),
            ("since", &self.since),
            ("before", &self.before),
        ];
        for (name, value) in given {
            if let Some(value) = value {
                query.push_str(&format!("&{name}={}", utf8_percent_encode(value, NON_ALPHANUMERIC)));
            }
        }
        format!("</audit?{query}>; rel=\"next\"")
    }
}

fn time(name: &str, text: Option<&str>) -> Result<Option<Timestamp>, Problem> {
    let read = |text: &str| {
        let wrong = |_| Problem::malformed(format!("{name} {} is not a time of RFC 3339", shortened(text)));
        text.parse::<Timestamp>().map_err(wrong)
    };
    text.map(read).transpose()
}
