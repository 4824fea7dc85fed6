//! The HTTP client: one connection kept open, no redirects (a token must not travel to where it was not meant for). What
//! goes wrong is a [`RequestError`].

use std::time::Duration;

use anyhow::Result;
use serde_json::Value;
use ureq::http::{Method, Request, Uri};

use super::Target;
use super::request_error::no_answer;
pub(in crate::server) use super::request_error::{ErrorResponse, RequestError};
use crate::server::exit::{Exit, ExitError};
use crate::server::settings::read_secret_file;

/// 64 MiB: the answer to a batch repeats its payloads.
const ANSWER_MAX_BYTES: u64 = 64 * 1024 * 1024;
/// 5 s to reach a server; longer is not there.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// 70 s: the server itself gives up after 60.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(70);

/// A server to talk to.
pub(in crate::server) struct Client {
    agent: ureq::Agent,
    base: String,
    token: Option<BearerToken>,
}

/// A token and where it came from.
struct BearerToken {
    text: String,
    variable: &'static str,
}

/// An answer with a 2xx.
pub(in crate::server) struct Answer {
    pub(super) status: u16,
    pub(in crate::server) json: Value,
    /// The cursor of the next page, if there is one.
    pub(super) next: Option<String>,
}

impl Client {
    pub(in crate::server) fn new(target: &Target) -> Result<Self> {
        let usage = |message: String| ExitError::new(Exit::Usage, message);
        let base = target.url().trim_end_matches('/').to_owned();
        let uri: Uri = base.parse().map_err(|_| usage(format!("--url {base:?} is not a URL")))?;
        if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
            let way_out = "put a token into STEADFAST_TOKEN or STEADFAST_TOKEN_FILE";
            return Err(usage(format!("--url with a user or password in it is not allowed; {way_out}")).into());
        }
        let (Some("http" | "https"), Some(host)) = (uri.scheme_str(), uri.host()) else {
            return Err(usage(format!("--url {base:?} is not allowed; use http://HOST:PORT or https://HOST")).into());
        };
        let mut config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .timeout_global(Some(REQUEST_TIMEOUT))
            .user_agent(concat!("steadfast/", env!("CARGO_PKG_VERSION")));
        if matches!(host, "localhost" | "127.0.0.1" | "[::1]") {
            // A proxy cannot reach this machine's own loopback.
            config = config.proxy(None);
        }
        Ok(Self { agent: config.build().new_agent(), base, token: token()? })
    }

    pub(in crate::server) fn get(&self, path: &str) -> Result<Answer, RequestError> {
        self.send(Method::GET, path, None)
    }

    /// All pages of a list.
    pub(super) fn get_list(&self, path: &str) -> Result<Vec<Value>, RequestError> {
        let mut items = Vec::new();
        self.follow(path, |page| {
            items.extend(page.as_array().into_iter().flatten().cloned());
            true
        })?;
        Ok(items)
    }

    /// Page after page, as long as `take` wants more; whether there are pages that it has not seen.
    pub(super) fn follow(&self, path: &str, mut take: impl FnMut(Value) -> bool) -> Result<bool, RequestError> {
        let separator = if path.contains('?') { '&' } else { '?' };
        let mut cursor = None;
        loop {
            let page = match &cursor {
                Some(cursor) => self.get(&format!("{path}{separator}cursor={cursor}"))?,
                None => self.get(path)?,
            };
            let wants_more = take(page.json);
            // A server that answers with the same page again has no more.
            if page.next.is_none() || page.next == cursor {
                return Ok(false);
            }
            if !wants_more {
                return Ok(true);
            }
            cursor = page.next;
        }
    }

    pub(in crate::server) fn post(&self, path: &str, body: Option<&Value>) -> Result<Answer, RequestError> {
        self.send(Method::POST, path, body.map(Value::to_string))
    }

    /// JSON text as it is.
    pub(super) fn post_text(&self, path: &str, body: String) -> Result<Answer, RequestError> {
        self.send(Method::POST, path, Some(body))
    }

    pub(super) fn patch(&self, path: &str, body: &Value) -> Result<Answer, RequestError> {
        self.send(Method::PATCH, path, Some(body.to_string()))
    }

    pub(in crate::server) fn put(&self, path: &str, body: &Value) -> Result<Answer, RequestError> {
        self.send(Method::PUT, path, Some(body.to_string()))
    }

    /// JSON text as it is; with a revision, only if what is there still has it.
    pub(super) fn put_text(&self, path: &str, body: String, if_revision: Option<u64>) -> Result<Answer, RequestError> {
        let condition = if_revision.map(|revision| format!("\"{revision}\""));
        self.send_if(condition, Method::PUT, path, Some(body))
    }

    pub(super) fn delete(&self, path: &str) -> Result<Answer, RequestError> {
        self.send(Method::DELETE, path, None)
    }

    fn send(&self, method: Method, path: &str, body: Option<String>) -> Result<Answer, RequestError> {
        self.send_if(None, method, path, body)
    }

    /// `condition`: the header `If-Match`.
    fn send_if(
        &self,
        condition: Option<String>,
        method: Method,
        path: &str,
        body: Option<String>,
    ) -> Result<Answer, RequestError> {
        let mut request = Request::builder().method(method).uri(format!("{}{path}", self.base));
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {}", token.text));
        }
        if let Some(condition) = condition {
            request = request.header("if-match", condition);
        }
        if body.is_some() {
            request = request.header("content-type", "application/json");
        }
        let unreachable = |error: ureq::Error| RequestError::Unreachable(no_answer(&self.base, &error));
        let unsendable = |error| RequestError::Unreachable(format!("the request cannot be sent: {error}"));
        let mut response = match body {
            Some(body) => self.agent.run(request.body(body).map_err(unsendable)?),
            None => self.agent.run(request.body(()).map_err(unsendable)?),
        }
        .map_err(unreachable)?;
        let status = response.status().as_u16();
        let header = |name: &str| response.headers().get(name)?.to_str().ok().map(str::to_owned);
        let (next, retry_after) = (header("link").as_deref().and_then(next_cursor), header("retry-after"));
        let text = response.body_mut().with_config().limit(ANSWER_MAX_BYTES).read_to_string().map_err(unreachable)?;
        let json = serde_json::from_str(&text).unwrap_or(Value::Null);
        if (200..300).contains(&status) {
            return Ok(Answer { status, json, next });
        }
        let mut problem = ErrorResponse::new(status, &json, retry_after);
        if status == 401 {
            problem.detail = self.unknown_token();
        }
        Err(RequestError::Refused(problem))
    }

    /// No token and a wrong one are two mistakes.
    fn unknown_token(&self) -> String {
        match &self.token {
            None => "the server needs a token and none was sent; set STEADFAST_TOKEN or STEADFAST_TOKEN_FILE".into(),
            Some(token) => format!(
                "the server does not accept the token of {}: it is mistyped, revoked, or of another server",
                token.variable
            ),
        }
    }
}

/// From `</jobs?limit=50&cursor=…>; rel="next"`.
fn next_cursor(link: &str) -> Option<String> {
    let (_, rest) = link.split_once("cursor=")?;
    let cursor = rest.split(['&', '>', ';', '"', ' ']).next().unwrap_or_default();
    (!cursor.is_empty()).then(|| cursor.to_owned())
}

fn token() -> Result<Option<BearerToken>> {
    let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    let usage = |message: String| ExitError::new(Exit::Usage, message);
    match (variable("STEADFAST_TOKEN"), variable("STEADFAST_TOKEN_FILE")) {
        (Some(_), Some(_)) => {
            Err(usage("STEADFAST_TOKEN and STEADFAST_TOKEN_FILE exclude each other: unset one".into()).into())
        }
        (None, Some(path)) => {
            let token = read_secret_file(std::path::Path::new(&path))
                .map_err(|problem| usage(format!("STEADFAST_TOKEN_FILE {path:?} {problem}")))?;
            Ok(Some(BearerToken { text: token.trim().to_owned(), variable: "STEADFAST_TOKEN_FILE" }))
        }
        (token, None) => Ok(token.map(|text| BearerToken { text, variable: "STEADFAST_TOKEN" })),
    }
}
