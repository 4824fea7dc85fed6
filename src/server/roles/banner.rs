//! The first thing a person sees: where it is, what it does, how to use it, how to stop it.

use std::fmt::Display;
#[cfg(all(feature = "api", feature = "worker"))]
use std::net::SocketAddr;

use crate::server::settings::without_password;
#[cfg(all(feature = "api", feature = "worker"))]
use crate::server::settings::{Executor, Settings};

/// For roles of a fleet: one line that a program can read too.
pub(super) fn one_line(role: &str, address: impl Display, database_url: &str) -> String {
    let store = without_password(database_url);
    format!("steadfast {role} {} ready at http://{address} on {store}", env!("CARGO_PKG_VERSION"))
        .replace("at http://no port", "without a port")
}

/// What the banner tells.
#[cfg(all(feature = "api", feature = "worker"))]
pub(super) struct Facts<'a> {
    pub(super) address: SocketAddr,
    /// Whether there is no token.
    pub(super) open: bool,
    pub(super) kinds: Vec<String>,
    pub(super) settings: &'a Settings,
}

#[cfg(all(feature = "api", feature = "worker"))]
pub(super) fn banner(facts: &Facts) -> String {
    let url = format!("http://{}", facts.address);
    let (access, header) = if facts.open {
        ("open to every program on this machine", "")
    } else {
        ("needs a token", " -H \"authorization: Bearer $TOKEN\"")
    };
    let settings = facts.settings;
    let (workers, caution) = match settings.executor {
        Executor::Simulated => {
            let jobs = match settings.worker_concurrency {
                Some(jobs) => jobs.to_string(),
                None => crate::worker::WorkerSettings::default().concurrency.to_string(),
            };
            let caution = "\n            SIMULATED: built-in kinds sleep and sometimes fail; nothing is sent anywhere";
            (format!("{jobs} jobs at the same time"), caution)
        }
        Executor::None => ("none in this process: lease jobs over HTTP".into(), ""),
    };
    format!(
        r#"steadfast {version} is ready

  API       {url}  ({access})
  Docs      {url}/docs
  Store     {store}
  Workers   {workers}
  Kinds     {kinds}{caution}

Enqueue a first job:

  curl -s {url}/jobs{header} -H 'content-type: application/json' \
    -d '{{"kind":"send_email","payload":{{"to":"you@example.org","subject":"Hello","body":"It works."}}}}'

Watch it with `steadfast jobs list`. Stop with Ctrl-C: running jobs are finished first.
"#,
        version = env!("CARGO_PKG_VERSION"),
        store = without_password(&settings.database_url),
        kinds = facts.kinds.join(", "),
    )
}
