//! Why a request has no answer with a 2xx, in one line with the way out. The server's way out names routes; a person at
//! the command line is told the command instead.

use std::time::Duration;

use serde_json::Value;

use crate::server::exit::{Exit, ExitError};

/// Why there is no such answer.
#[derive(Debug)]
pub(in crate::server) enum RequestError {
    /// Nobody answered; whether the request was carried out is not known. In words that name the way out.
    Unreachable(String),
    /// The server said no.
    Refused(ErrorResponse),
}

/// What a refusal says.
#[derive(Debug)]
pub(in crate::server) struct ErrorResponse {
    pub(super) status: u16,
    pub(super) detail: String,
    /// The items of a batch that are at fault, by index.
    pub(super) errors: Vec<(usize, String)>,
    pub(super) retry_after: Option<Duration>,
}

/// Why there is no answer, and what to do about it.
pub(super) fn no_answer(base: &str, error: &ureq::Error) -> String {
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

impl ErrorResponse {
    pub(super) fn new(status: u16, json: &Value, retry_after: Option<String>) -> Self {
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

impl From<RequestError> for anyhow::Error {
    fn from(error: RequestError) -> Self {
        match error {
            RequestError::Unreachable(message) => ExitError::new(Exit::Unreachable, message).into(),
            RequestError::Refused(problem) => {
                let exit = match problem.status {
                    401 | 403 => Exit::Denied,
                    404 => Exit::NotFound,
                    _ => Exit::Failed,
                };
                ExitError::new(exit, problem.detail).into()
            }
        }
    }
}

/// `declare it with PUT /kinds/welcome` → `declare it with steadfast kinds put welcome`.
fn in_commands(detail: &str) -> String {
    let mut words = detail.split(' ').peekable();
    let mut said = Vec::new();
    while let Some(word) = words.next() {
        match words.peek().and_then(|path| command(word, path)) {
            Some(command) => {
                said.push(command);
                words.next();
            }
            None => said.push(word.to_owned()),
        }
    }
    said.join(" ")
}

/// The command for a method and a path; what follows the path, like a comma, stays.
fn command(method: &str, path: &str) -> Option<String> {
    let route = path.trim_end_matches([',', ';', ')', '.', ':']);
    let rest = &path[route.len()..];
    let parts: Vec<&str> = route.strip_prefix('/')?.split('/').collect();
    let command = match (method, &parts[..]) {
        ("PUT", ["kinds", kind]) => format!("kinds put {kind}"),
        ("DELETE", ["kinds", kind]) => format!("kinds delete {kind}"),
        ("GET", ["jobs", id]) => format!("jobs show {id}"),
        ("DELETE", ["jobs", id]) => format!("jobs delete {id}"),
        ("POST", ["jobs", id, verb @ ("cancel" | "redrive")]) => format!("jobs {verb} {id}"),
        ("POST", ["queues", queue, verb @ ("pause" | "resume")]) => format!("queues {verb} {queue}"),
        ("PUT", ["schedules", name]) => format!("schedules put {name}"),
        ("POST", ["schedules", name, verb @ ("pause" | "resume" | "run")]) => format!("schedules {verb} {name}"),
        ("POST", ["tokens"]) => "tokens create".to_owned(),
        ("DELETE", ["tokens", id]) => format!("tokens revoke {id}"),
        ("GET", [what @ ("kinds" | "queues" | "schedules" | "stats")]) => (*what).to_owned(),
        _ => return None,
    };
    Some(format!("steadfast {command}{rest}"))
}

#[cfg(test)]
mod tests {
    use super::in_commands;

    #[test]
    fn a_hint_names_the_command_and_leaves_everything_else() {
        assert_eq!(
            in_commands("kind \"a\" is not declared; declare it with PUT /kinds/a, or by registering its handler"),
            "kind \"a\" is not declared; declare it with steadfast kinds put a, or by registering its handler"
        );
        assert_eq!(in_commands("see POST /jobs/1/redrive."), "see steadfast jobs redrive 1.");
        for as_it_is in ["", "GET", "PUT it down", "POST /leases", "a  b /x"] {
            assert_eq!(in_commands(as_it_is), as_it_is);
        }
    }
}
