//! What a role prints when it is ready: its address, its store, its kinds, how to use it, how to stop it.

use std::fmt::Display;
#[cfg(all(feature = "api", feature = "worker"))]
use std::net::SocketAddr;

use super::crew::{KindState, State};
#[cfg(all(feature = "api", feature = "worker"))]
use crate::server::cli::{DEFAULT_URL, reachable};
use crate::server::settings::{Executor, Settings, without_password};

/// What every role says that runs or accepts simulated jobs.
const SIMULATED: &str = "SIMULATED: built-in kinds sleep and sometimes fail; nothing is sent anywhere";

/// For roles of a fleet: one line that a program can read too.
pub(super) fn one_line(role: &str, address: impl Display, settings: &Settings) -> String {
    let store = without_password(&settings.database_url);
    let caution = if settings.executor == Executor::Simulated { format!(" ({SIMULATED})") } else { String::new() };
    format!("steadfast {role} {} ready at http://{address} on {store}{caution}", env!("CARGO_PKG_VERSION"))
        .replace("at http://no port", "without a port")
}

/// What cannot be run here and why, in one line; `None` if all can.
pub(super) fn missing(states: &[KindState]) -> Option<String> {
    let missing = states.iter().filter_map(|kind| match &kind.state {
        State::Missing(needs) => Some(format!("{} ({needs})", kind.kind)),
        _ => None,
    });
    let missing: Vec<_> = missing.collect();
    (!missing.is_empty()).then(|| missing.join(", "))
}

/// What the banner tells.
#[cfg(all(feature = "api", feature = "worker"))]
pub(super) struct Facts<'a> {
    pub(super) address: SocketAddr,
    /// Whether there is no token.
    pub(super) open: bool,
    /// The kinds that are declared, built in or not.
    pub(super) declared: Vec<String>,
    pub(super) crew: &'a super::crew::Crew<'a>,
    pub(super) settings: &'a Settings,
}

#[cfg(all(feature = "api", feature = "worker"))]
pub(super) fn banner(facts: &Facts) -> String {
    let settings = facts.settings;
    let workers = if facts.crew.runs_anything() {
        let usual = || crate::worker::WorkerSettings::default().concurrency;
        format!("{} jobs at the same time", settings.worker_concurrency.unwrap_or_else(usual))
    } else {
        "none in this process: lease jobs over HTTP".into()
    };
    let url = reachable(facts.address);
    // The token itself is not ours to print; its variable is the one that the command line reads.
    let bearer = "-H \"authorization: Bearer $STEADFAST_TOKEN\"";
    let has_dashboard = cfg!(feature = "dashboard") && settings.dashboard;
    let (access, docs, header) = if facts.open {
        ("open to every program on this machine", format!("{url}/docs"), String::new())
    } else if has_dashboard {
        ("needs a token", format!("{url}/docs, after a login to the dashboard"), format!(" {bearer}"))
    } else {
        // A browser cannot send a token, so /docs does not open in one.
        let document = format!("docs/api.md; curl -s {bearer} {url}/api-docs/openapi.json");
        ("needs a token", document, format!(" {bearer}"))
    };
    let pages = if has_dashboard { format!("  Dashboard {url}/ui/\n") } else { String::new() };
    format!(
        r#"steadfast {version} is ready

  API       http://{address}  ({access})
{pages}  Docs      {docs}
  Store     {store}
  Workers   {workers}
{kinds}
{first_job}
Watch jobs with `steadfast jobs list{target}`. Stop with Ctrl-C: running jobs are finished first.
"#,
        version = env!("CARGO_PKG_VERSION"),
        address = facts.address,
        store = without_password(&settings.database_url),
        kinds = kinds(facts),
        first_job = first_job(facts, &url, &header),
        target = if url == DEFAULT_URL { String::new() } else { format!(" --url {url}") },
    )
}

/// A command that works, if there is a kind for it.
#[cfg(all(feature = "api", feature = "worker"))]
fn first_job(facts: &Facts, url: &str, header: &str) -> String {
    let token = if facts.open {
        ""
    } else {
        "\n  export STEADFAST_TOKEN=…   # or STEADFAST_TOKEN_FILE; the commands read it, too"
    };
    if facts.declared.iter().all(|kind| kind != "summarize_text") {
        return format!("Declare a kind and lease its jobs: docs/api.md.\n{token}\n").replace("\n\n", "\n");
    }
    format!(
        r#"Enqueue a first job:
{token}
  curl -s {url}/jobs{header} -H 'content-type: application/json' \
    -d '{{"kind":"summarize_text","payload":{{"text":"It works. The rest is up to you.","max_words":3}}}}'
"#
    )
}

/// Kinds, one a line, with what they need; and where their calls may lead.
#[cfg(all(feature = "api", feature = "worker"))]
fn kinds(facts: &Facts) -> String {
    /// 8 names: the others are what `steadfast kinds` is for.
    const NAMED_MAX: usize = 8;
    let states = facts.crew.states();
    let width = states.iter().map(|kind| kind.kind.len()).max().unwrap_or_default();
    let mut lines: Vec<String> =
        states.iter().map(|kind| format!("{:width$}  {}", kind.kind, kind.state.shown())).collect();
    let is_other = |kind: &&String| states.iter().all(|known| known.kind != **kind);
    let others: Vec<_> = facts.declared.iter().filter(is_other).map(String::as_str).collect();
    if !others.is_empty() {
        let named = others[..others.len().min(NAMED_MAX)].join(", ");
        let more = others.len().saturating_sub(NAMED_MAX);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        lines.push(format!("{named}{more}: run by workers over HTTP"));
    }
    if facts.settings.executor == Executor::Simulated {
        lines.push(SIMULATED.into());
    }
    if lines.is_empty() {
        lines.push("none yet".into());
    }
    let mut text = String::new();
    for (index, line) in lines.iter().enumerate() {
        let label = if index == 0 { "Kinds" } else { "" };
        text.push_str(&format!("  {label:<10}{line}\n"));
    }
    for line in facts.crew.outbound_lines() {
        text.push_str(&format!("  {:<10}{line}\n", "Outbound"));
    }
    text
}
