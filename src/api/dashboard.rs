//! The dashboard's pages: a shell that holds no data, and what it is made of. The page does everything else through the API.
//!
//! It never looks at who is calling and reads nothing from the store. Links in the shell are relative to the request's depth,
//! so that any path prefix of a proxy works without a setting. The files are in `ui/`, [`dashboard_files`](super::dashboard_files)
//! brings them into the program.

use axum::extract::{Path, Request};
use axum::http::header::{ACCEPT, ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, LOCATION, VARY};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use utoipa_axum::router::OpenApiRouter;

use super::dashboard_files;
use super::page_headers::{STRICT_CSP, add_page_headers};
use super::problem::{Code, Problem};
use super::state::Api;

/// The path says which version it is.
const FOREVER: &str = "public, max-age=31536000, immutable";

/// Not in the OpenAPI document: these are pages, not API.
pub(super) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .route("/", get(root))
        .route("/ui", get(without_slash))
        .route("/ui/", get(shell))
        .route("/ui/{*path}", get(shell))
        .route("/ui/_/{hash}/{*file}", get(asset))
}

/// Whether a route of this file is meant, all of which are public: they hold no data.
pub(super) fn is_page(route: &str) -> bool {
    matches!(route, "/" | "/ui" | "/ui/" | "/ui/{*path}" | "/ui/_/{hash}/{*file}")
}

/// Browsers are led to the dashboard; programs asked for something that is not there.
async fn root(headers: HeaderMap) -> Result<Response, Problem> {
    let accepts_pages = |value: &HeaderValue| value.to_str().is_ok_and(|accept| accept.contains("text/html"));
    if headers.get_all(ACCEPT).iter().any(accepts_pages) {
        return Ok((StatusCode::SEE_OTHER, [(LOCATION, "ui/"), (VARY, "accept")]).into_response());
    }
    Err(Problem::new(Code::NoSuchRoute, "see /docs for the routes there are"))
}

async fn without_slash() -> Response {
    (StatusCode::PERMANENT_REDIRECT, [(LOCATION, "ui/")]).into_response()
}

async fn shell(uri: Uri) -> Response {
    let files = dashboard_files::current();
    let assets = format!("{}_/{}/", "../".repeat(depth(uri.path())), files.hash);
    let mut response = files.shell(&assets, uri.path().ends_with("/ui/")).into_response();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    add_page_headers(headers, STRICT_CSP);
    response
}

/// How many levels below `/ui/` a page is. Of the path as it was sent: an encoded slash is none.
fn depth(path: &str) -> usize {
    path.split_once("/ui/").map_or(0, |(_, below)| below.matches('/').count())
}

async fn asset(Path((hash, name)): Path<(String, String)>, request: Request) -> Result<Response, Problem> {
    let not_found = || Problem::not_found("file", &name);
    let files = dashboard_files::with_hash(&hash).ok_or_else(not_found)?;
    let file = files.get(&name).ok_or_else(not_found)?;
    let takes_gzip = request
        .headers()
        .get(ACCEPT_ENCODING)
        .and_then(|value| value.to_str().ok())
        .is_some_and(|codings| codings.split(',').any(|coding| coding.trim().split(';').next() == Some("gzip")));
    let mut response = if takes_gzip { file.gzip() } else { file.bytes() }.into_response();
    let headers = response.headers_mut();
    if takes_gzip {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    headers.insert(VARY, HeaderValue::from_static("accept-encoding"));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(file.content_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static(FOREVER));
    add_page_headers(headers, STRICT_CSP);
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_climb_as_many_levels_as_the_page_is_deep() {
        for (path, levels) in [("/ui/", 0), ("/ui/jobs", 0), ("/ui/jobs/", 1), ("/ui/jobs/1", 1), ("/ui/a/b/c", 2)] {
            assert_eq!(depth(path), levels, "{path}");
        }
        assert_eq!(depth("/ui/queues/a%2Fb"), 1, "an encoded slash is part of a name");
        assert_eq!(depth("/ui/ui/ui/x"), 2);
    }
}
