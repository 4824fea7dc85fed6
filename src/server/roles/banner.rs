//! What a role prints when it is ready: its address, its store, how to use it, how to stop it.

use std::fmt::Display;
#[cfg(all(feature = "api", feature = "worker"))]
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

#[cfg(all(feature = "api", feature = "worker"))]
use crate::server::cli::DEFAULT_URL;
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
    let url = reachable(facts.address);
    // The token itself is not ours to print; its variable is the one that the command line reads.
    let bearer = "-H \"authorization: Bearer $STEADFAST_TOKEN\"";
    let (access, docs, header) = if facts.open {
        ("open to every program on this machine", format!("{url}/docs"), String::new())
    } else {
        // A browser cannot send a token, so /docs does not open in one.
        let document = format!("docs/api.md; curl -s {bearer} {url}/api-docs/openapi.json");
        ("needs a token", document, format!(" {bearer}"))
    };
    format!(
        r#"steadfast {version} is ready

  API       http://{address}  ({access})
  Docs      {docs}
  Store     {store}
  Workers   {workers}
  Kinds     {kinds}{caution}

Enqueue a first job:
{token}
  curl -s {url}/jobs{header} -H 'content-type: application/json' \
    -d '{{"kind":"send_email","payload":{{"to":"you@example.org","subject":"Hello","body":"It works."}}}}'

Watch it with `steadfast jobs list{target}`. Stop with Ctrl-C: running jobs are finished first.
"#,
        version = env!("CARGO_PKG_VERSION"),
        address = facts.address,
        store = without_password(&settings.database_url),
        kinds = facts.kinds.join(", "),
        token = if facts.open {
            ""
        } else {
            "\n  export STEADFAST_TOKEN=…   # or STEADFAST_TOKEN_FILE; the commands read it, too"
        },
        target = if url == DEFAULT_URL { String::new() } else { format!(" --url {url}") },
    )
}

/// Where programs on this machine find it: "any address" is none to connect to.
#[cfg(all(feature = "api", feature = "worker"))]
fn reachable(mut address: SocketAddr) -> String {
    match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(ip) if ip.is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    format!("http://{address}")
}
