//! The HTTP client: one connection kept open, no redirects (a token must not travel to where it was not meant for), and
//! every refusal turned into one line with an exit code.

use std::time::Duration;

use anyhow::Result;
use serde_json::Value;
use ureq::http::{Method, Request, Uri};

use super::Target;
use super::hints::in_commands;
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
    token: Option<Token>,
}

/// A token and where it came from.
struct Token {
    text: String,
    variable: &'static str,
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
    /// Nobody answered; whether the request was carried out is not known. In words that name the way out.
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

    pub(super) fn get(&self, path: &str) -> Result<Answer, Trouble> {
        self.send(Method::GET, path, None)
    }

    /// All pages of a list.
    pub(super) fn get_list(&self, path: &str) -> Result<Vec<Value>, Trouble> {
        let (mut items, mut cursor) = (Vec::new(), None);
        loop {
            let page = match &cursor {
                Some(cursor) => self.get(&format!("{path}?cursor={cursor}"))?,
                None => self.get(path)?,
            };
            items.extend(page.json.as_array().into_iter().flatten().cloned());
            // A server that answers with the same page again has no more.
            if page.next.is_none() || page.next == cursor {
                return Ok(items);
            }
            cursor = page.next;
        }
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
            request = request.header("authorization", format!("Bearer {}", token.text));
        }
        if body.is_some() {
            request = request.header("content-type", "application/json");
        }
        let unreachable = |error: ureq::Error| Trouble::Unreachable(no_answer(&self.base, &error));
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
        let mut problem = Problem::new(status, &json, retry_after);
        if status == 401 {
            problem.detail = self.unknown_token();
        }
        Err(Trouble::Refused(problem))
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

/// Why there is no answer, and what to do about it.
fn no_answer(base: &str, error: &ureq::Error) -> String {
    let said = error.to_string();
    // What a server without TLS answers is no TLS, and the other way round.
    let plain = said.contains("InvalidContentType") || said.contains("corrupt message");
    match (base.strip_prefix("https://"), base.strip_prefix("http://"), error) {
        (Some(rest), _, _) if plain => format!("the server at {base} does not speak TLS; use http://{rest}"),
        (_, Some(rest), _) if matches!(error, ureq::Error::Protocol(_)) || said.contains("Peer disconnected") => {
            format!("what is at {base} does not answer in HTTP ({said}); if it speaks TLS, use https://{rest}")
        }
        (_, _, ureq::Error::HostNotFound) => format!("no answer from {base}: there is no such host; check --url"),
        _ => format!("no answer from {base}: {said}; is the server running? (--url or STEADFAST_URL says which)"),
    }
}

/// From `</jobs?limit=50&cursor=…>; rel="next"`.
fn next_cursor(link: &str) -> Option<String> {
    let (_, rest) = link.split_once("cursor=")?;
    let cursor = rest.split(['&', '>', ';', '"', ' ']).next().unwrap_or_default();
    (!cursor.is_empty()).then(|| cursor.to_owned())
}

fn token() -> Result<Option<Token>> {
    let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    let usage = |message: String| Failure::new(Exit::Usage, message);
    match (variable("STEADFAST_TOKEN"), variable("STEADFAST_TOKEN_FILE")) {
        (Some(_), Some(_)) => {
            Err(usage("STEADFAST_TOKEN and STEADFAST_TOKEN_FILE exclude each other: unset one".into()).into())
        }
        (None, Some(path)) => {
            let token = read_secret_file(std::path::Path::new(&path))
                .map_err(|problem| usage(format!("STEADFAST_TOKEN_FILE {path:?} {problem}")))?;
            Ok(Some(Token { text: token.trim().to_owned(), variable: "STEADFAST_TOKEN_FILE" }))
        }
        (token, None) => Ok(token.map(|text| Token { text, variable: "STEADFAST_TOKEN" })),
    }
}

impl Problem {
    fn new(status: u16, json: &Value, retry_after: Option<String>) -> Self {
        let text = |field: &str| json.get(field).and_then(Value::as_str);
        let said = text("detail").filter(|detail| !detail.is_empty()).or_else(|| text("title"));
        let said = said.unwrap_or("the answer is not one of a Steadfast server; check --url");
        let mut detail = in_commands(said);
        if let Some(id) = text("request_id").filter(|_| status >= 500) {
            detail.push_str(&format!(" (request {id})"));
        }
        let errors = json.get("errors").and_then(Value::as_array).into_iter().flatten().filter_map(|item| {
            let index = usize::try_from(item.get("index")?.as_u64()?).ok()?;
            Some((index, in_commands(item.get("detail")?.as_str()?)))
        });
        let retry_after = retry_after.and_then(|seconds| seconds.parse().ok()).map(Duration::from_secs);
        Self { status, detail, errors: errors.collect(), retry_after }
    }
}

impl From<Trouble> for anyhow::Error {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Unreachable(message) => Failure::new(Exit::Unreachable, message).into(),
            Trouble::Refused(problem) => {
                let exit = match problem.status {
                    401 | 403 => Exit::Denied,
                    404 => Exit::NotFound,
                    _ => Exit::Failed,
                };
                Failure::new(exit, problem.detail).into()
            }
        }
    }
}
