//! `steadfast health`: whether a process is ready, as an exit code. For `HEALTHCHECK` and the like: an image needs no curl.
//!
//! It asks `/readyz`, which is public, so it never reads a token. It exits with 0 or 1 only: to container runtimes
//! the other codes are reserved or undefined.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use serde_json::Value;

use super::request_error::no_answer;
use super::{Target, args};
use crate::server::exit::{Exit, ExitError};
use crate::server::settings::{Inputs, Resolved, Settings};
use crate::server::stdio::{print_json, print_line};

/// 64 KiB: the answer names what is wrong, a line for each check.
const ANSWER_MAX_BYTES: u64 = 64 * 1024;

/// Ask a process on this machine, or the one at --url, whether it is ready: exit 0 if it is, 1 and the reason if not
#[derive(Debug, Args)]
pub(in crate::server) struct Health {
    #[command(flatten)]
    pub(super) target: Target,
    /// Ask the worker role, at WORKER_METRICS_BIND_ADDR, instead of the API at API_BIND_ADDR
    #[arg(long)]
    worker: bool,
    /// How long the answer may take, like 3s or 500ms
    #[arg(long, value_name = "TIME", value_parser = args::duration, default_value = "3s")]
    timeout: Duration,
}

impl Health {
    pub(super) fn run(self) -> Result<Exit> {
        // One exit code for every failure: callers restart the process or take it out of rotation, whatever the reason.
        let answer = self.ask().map_err(|error| ExitError::new(Exit::Failed, format!("{error:#}")))?;
        if self.target.json {
            print_json(&answer);
        } else {
            print_line("ready");
        }
        Ok(Exit::Ok)
    }

    fn ask(&self) -> Result<Value> {
        let base = self.base()?;
        // No proxy: it would answer for a process that is not there.
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .proxy(None)
            .timeout_global(Some(self.timeout))
            .user_agent(concat!("steadfast/", env!("CARGO_PKG_VERSION")));
        let no_answer = |error: ureq::Error| anyhow::anyhow!(no_answer(&base, &error));
        let mut response =
            config.build().new_agent().get(format!("{base}/readyz").as_str()).call().map_err(no_answer)?;
        let status = response.status().as_u16();
        let text = response.body_mut().with_config().limit(ANSWER_MAX_BYTES).read_to_string().map_err(no_answer)?;
        let json: Value = serde_json::from_str(&text).unwrap_or_default();
        let said = |field: &str| json.get(field).and_then(Value::as_str);
        match status {
            200 if said("status") == Some("ok") => Ok(json),
            200 => anyhow::bail!("what answers at {base} is not a Steadfast server"),
            _ => anyhow::bail!("not ready ({status}): {}", said("detail").unwrap_or("without a reason")),
        }
    }

    /// Where to ask: `--url`, else `STEADFAST_URL`, else where the settings of this environment have the role listen.
    fn base(&self) -> Result<String> {
        // STEADFAST_URL names an API, never a worker.
        let given = if self.worker { self.target.url.clone() } else { self.target.given_url() };
        if let Some(url) = given {
            return Ok(url.trim_end_matches('/').to_owned());
        }
        let inputs = Inputs {
            flags: Default::default(),
            variables: std::env::vars_os().collect(),
            directory: std::env::current_dir().context("the start directory cannot be used")?,
        };
        let settings = Settings::new(Resolved::new(&inputs)?)?;
        let (variable, address) = if self.worker {
            ("WORKER_METRICS_BIND_ADDR", settings.worker_metrics_bind_addr)
        } else {
            ("API_BIND_ADDR", Some(settings.api_bind_addr))
        };
        match address {
            Some(address) if address.port() != 0 => Ok(reachable(address)),
            Some(_) => anyhow::bail!("the port of {variable} is chosen at start: name the server with --url"),
            None => anyhow::bail!("{variable} is off: nothing can be asked"),
        }
    }
}

/// The URL at which a process that listens at this address is reached from its own machine.
pub(in crate::server) fn reachable(mut address: SocketAddr) -> String {
    match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(ip) if ip.is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    format!("http://{address}")
}
