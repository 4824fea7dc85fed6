//! Pages of queues, by name: what `GET /queues` and `GET /stats` share. The cursor is the last queue of the page before.

use axum::extract::Query;
use axum::http::header::LINK;
use axum::http::{HeaderMap, HeaderValue, Uri};
use serde::Deserialize;
use utoipa::IntoParams;

use super::list_query::number;
use super::problem::{Problem, shortened};
use crate::job::QueueName;
use crate::job::limits::{QUEUES_PAGE_DEFAULT, QUEUES_PAGE_MAX};
use crate::store::{Stats, StatsRequest};

/// Which page, as it stands in the query.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct QueuePage {
    /// Queues on a page: 200 by default, held within 1 to 1,000.
    #[param(value_type = Option<i64>)]
    limit: Option<String>,
    /// Where the page before ended, as its `Link` says.
    cursor: Option<String>,
}

/// The page that a request asks for.
pub(super) fn asked(uri: &Uri) -> Result<StatsRequest, Problem> {
    let Query(query) = Query::<QueuePage>::try_from_uri(uri)
        .map_err(|error| Problem::malformed(format!("the query cannot be read: {}", shortened(&error.body_text()))))?;
    let limit = number("limit", query.limit.as_deref())?.unwrap_or(QUEUES_PAGE_DEFAULT as i64);
    let invalid = |_| Problem::malformed("cursor is not one of ours: take it from the Link header");
    let after = query.cursor.map(QueueName::new).transpose().map_err(invalid)?;
    Ok(StatsRequest::new().after(after).limit(limit.clamp(1, QUEUES_PAGE_MAX as i64) as usize))
}

/// The `Link` to the page behind this one, if there is one.
pub(super) fn link(path: &str, limit: usize, stats: &Stats) -> HeaderMap {
    let mut headers = HeaderMap::new();
    if let Some(next) = &stats.next {
        let link = format!("<{path}?limit={limit}&cursor={next}>; rel=\"next\"");
        headers.insert(LINK, HeaderValue::from_str(&link).expect("names are valid in a header"));
    }
    headers
}
