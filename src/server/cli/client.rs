//! The HTTP client: one connection kept open, no redirects (a token must not travel to where it was not meant for), and
//! every refusal turned into one line with an exit code.

use std::time::Duration;

use anyhow::Result;
use serde_json::Value;
use ureq::http::{Method, Request, Uri};

use super::Target;
use crate::server::exit::{Exit, Failure};
use crate::server::settings::read_secret_file;

/// 64 MiB: the answer to a batch repeats its payloads.
const ANSWER_MAX_BYTES: u64 = 64 * 1024 * 1024;
/// 5 s to reach a server; longer is not there.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// 70 s: the server itself gives up after 60.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(70);

/// A server to talk to.
pub(super) struct Client {
    agent: ureq::Agent,
    base: String,
    token: Option<String>,
}

/// An answer with a 2xx.
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) json: Value,
    /// The cursor of the next page, if there is one.
    pub(super) next: Option<String>,
}

/// Why there is no such answer.
#[derive(Debug)]
pub(super) enum Trouble {
    /// Nobody answered; whether the request was carried out is not known.
    Unreachable(String),
    /// The server said no.
    Refused(Problem),
}

/// What a refusal says.
#[derive(Debug)]
pub(super) struct Problem {
    pub(super) status: u16,
    pub(super) detail: String,
    /// The items of a batch that are at fault, by index.
    pub(super) errors: Vec<(usize, String)>,
    pub(super) retry_after: Option<Duration>,
}

impl Client {
    pub(super) fn new(target: &Target) -> Result<Self> {
        let usage = |message: String| Failure::new(Exit::Usage, message);
        let base = target.url.trim_end_matches('/').to_owned();
        let uri: Uri = base.parse().map_err(|_| usage(format!("--url {base:?} is not a URL")))?;
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

    pub(super) fn get(&self, path: &str) -> Result<Answer, Trouble> {
        self.send(Method::GET, path, None)
    }

    pub(super) fn post(&self, path: &str, body: Option<&Value>) -> Result<Answer, Trouble> {
        self.send(Method::POST, path, body.map(Value::to_string))
    }

    /// JSON text as it is.
    pub(super) fn post_text(&self, path: &str, body: String) -> Result<Answer, Trouble> {
        self.send(Method::POST, path, Some(body))
    }

    pub(super) fn put(&self, path: &str, body: &Value) -> Result<Answer, Trouble> {
        self.send(Method::PUT, path, Some(body.to_string()))
    }

    pub(super) fn delete(&self, path: &str) -> Result<Answer, Trouble> {
        self.send(Method::DELETE, path, None)
    }

    fn send(&self, method: Method, path: &str, body: Option<String>) -> Result<Answer, Trouble> {
        let mut request = Request::builder().method(method).uri(format!("{}{path}", self.base));
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        if body.is_some() {
            request = request.header("content-type", "application/json");
        }
        let unreachable = |error: ureq::Error| Trouble::Unreachable(format!("no answer from {}: {error}", self.base));
        let unsendable = |error| Trouble::Unreachable(format!("the request cannot be sent: {error}"));
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
        Err(Trouble::Refused(Problem::new(status, &json, retry_after)))
    }
}

/// From `</jobs?limit=50&cursor=…>; rel="next"`.
fn next_cursor(link: &str) -> Option<String> {
    let (_, rest) = link.split_once("cursor=")?;
    let cursor: String = rest.chars().take_while(char::is_ascii_alphanumeric).collect();
    (!cursor.is_empty()).then_some(cursor)
}

fn token() -> Result<Option<String>> {
    let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    let usage = |message: String| Failure::new(Exit::Usage, message);
    match (variable("STEADFAST_TOKEN"), variable("STEADFAST_TOKEN_FILE")) {
        (Some(_), Some(_)) => {
            Err(usage("STEADFAST_TOKEN and STEADFAST_TOKEN_FILE exclude each other: unset one".into()).into())
        }
        (None, Some(path)) => {
            let token = read_secret_file(std::path::Path::new(&path))
                .map_err(|problem| usage(format!("STEADFAST_TOKEN_FILE {path:?} {problem}")))?;
            Ok(Some(token.trim().to_owned()))
        }
        (token, None) => Ok(token),
    }
}

impl Problem {
    fn new(status: u16, json: &Value, retry_after: Option<String>) -> Self {
        let text = |field: &str| json.get(field).and_then(Value::as_str);
        let said = text("detail").filter(|detail| !detail.is_empty()).or_else(|| text("title"));
        let mut detail = said.unwrap_or("the answer is not one of a Steadfast server; check --url").to_owned();
        if let Some(id) = text("request_id").filter(|_| status >= 500) {
            detail.push_str(&format!(" (request {id})"));
        }
        let errors = json.get("errors").and_then(Value::as_array).into_iter().flatten().filter_map(|item| {
            let index = usize::try_from(item.get("index")?.as_u64()?).ok()?;
            Some((index, item.get("detail")?.as_str()?.to_owned()))
        });
        let retry_after = retry_after.and_then(|seconds| seconds.parse().ok()).map(Duration::from_secs);
        Self { status, detail, errors: errors.collect(), retry_after }
    }
}

impl From<Trouble> for anyhow::Error {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Unreachable(message) => {
                let message = format!("{message}; is the server running? (--url or STEADFAST_URL says which)");
                Failure::new(Exit::Unreachable, message).into()
            }
            Trouble::Refused(problem) => {
                let (exit, hint) = match problem.status {
                    401 => (Exit::Denied, "; set STEADFAST_TOKEN or STEADFAST_TOKEN_FILE"),
                    403 => (Exit::Denied, ""),
                    404 => (Exit::NotFound, ""),
                    _ => (Exit::Failed, ""),
                };
                Failure::new(exit, format!("{}{hint}", problem.detail)).into()
            }
        }
    }
}
