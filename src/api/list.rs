//! Listing jobs, page by page. The cursor says where a page ended, so that the next one costs the same however far it is;
//! `offset` is for the first few pages only.

use axum::extract::State;
use axum::http::header::LINK;
use axum::http::{HeaderName, HeaderValue, StatusCode, Uri};
use axum::response::Response;

use super::extract;
use super::list_query::{ListQuery, ListRequest};
use super::problem::Problem;
use super::response_memory::{charge_page, with_memory};
use super::state::{Api, run_to_completion};
use super::wire::{self, ListedJob};
use crate::job::JobRecord;
use crate::queue::Viewer;
use crate::store::{Cursor, Page};

const LOOKED: HeaderName = HeaderName::from_static("x-looked");
const LOOKED_TO: HeaderName = HeaderName::from_static("x-looked-to");

/// List jobs
///
/// Newest first; if only `queued` and `retrying` are asked for, in the order in which they will run. A page costs the same
/// however many jobs there are: it looks at a bounded number of them, and can be short and have a next one.
#[utoipa::path(
    get, path = "/jobs", tag = "jobs", operation_id = "list_jobs",
    params(ListQuery),
    responses((status = 200, description = "a page of jobs; it can be short, even empty, and have a next",
        body = Vec<wire::ListedJob>,
        headers(("Link" = Option<String>, description = "`<…>; rel=\"next\"`: the next page, if there is one"),
            ("x-looked" = u64, description = "how many jobs were looked at"),
            ("x-looked-to" = Option<String>, description = "when the last of them was created; in the order `next`, \
                its `run_at`"))),
        (status = 422)),
)]
pub(super) async fn list_jobs(State(api): State<Api>, viewer: Viewer, uri: Uri) -> Result<Response, Problem> {
    let ListRequest { list, text, is_summary } = ListRequest::parse(&uri)?;
    let limit = list.limit;
    let permit = api.response_memory.page_permit().await?;
    let read = run_to_completion(&api, |_| async move {
        let page = viewer.list(list, text.as_deref()).await;
        (page, permit)
    });
    // Held until the page is written out: records and text are in memory together.
    let (page, _permit) = read.await?;
    let Page { jobs, next, looked, looked_to, .. } = page?;
    let jobs: Vec<ListedJob> = jobs.into_iter().map(|job| listed(job, is_summary)).collect();
    let mut memory = api.response_memory.for_reads();
    let bytes = jobs.iter().map(ListedJob::weight).sum();
    charge_page(&mut memory, bytes)?;
    // The weight is an estimate; an answer that outgrew its buffer would be copied into one twice as large.
    let slack = 512 * jobs.len();
    let mut response = with_memory(extract::write(StatusCode::OK, &jobs, bytes + slack), memory);
    let headers = response.headers_mut();
    headers.insert(LOOKED, HeaderValue::from(looked));
    let to = looked_to.and_then(|time| HeaderValue::from_str(&time.to_string()).ok());
    headers.extend(to.map(|to| (LOOKED_TO, to)));
    let link = next.and_then(|next| HeaderValue::from_str(&link(&uri, limit, &next)).ok());
    headers.extend(link.map(|link| (LINK, link)));
    Ok(response)
}

fn listed(job: JobRecord, is_summary: bool) -> ListedJob {
    match is_summary {
        true => ListedJob::Summary(job.into()),
        false => ListedJob::Job(wire::JobView::whole(job)),
    }
}

/// The same query, from the cursor on.
fn link(uri: &Uri, limit: usize, next: &Cursor) -> String {
    let mut query = format!("limit={limit}&cursor={next}");
    let is_kept = |part: &&str| !["limit", "cursor", "offset"].contains(&part.split('=').next().unwrap_or_default());
    for part in uri.query().unwrap_or_default().split('&').filter(|part| !part.is_empty()).filter(is_kept) {
        query.push('&');
        query.push_str(part);
    }
    format!("</jobs?{query}>; rel=\"next\"")
}
