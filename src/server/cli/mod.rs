//! Commands for a running server, over HTTP: what a person or a script would otherwise do with curl.
//!
//! People get tables that fit the terminal, scripts get `--json` and exit codes ([`exit`](super::exit)). Nothing here
//! touches a database: what a token may not do, its holder cannot do here either.

mod args;
mod ask;
mod audit;
mod bulk;
mod chosen_jobs;
pub(super) mod client;
mod enqueue;
mod errors;
mod format;
mod health;
mod hooks;
mod job_list;
mod jobs;
mod kinds;
mod limits;
mod operate;
mod operations;
mod queues;
mod request_error;
mod schedules;
mod stats;
pub(super) mod table;
mod tokens;
mod top;
mod watch;
mod why;
mod workers;

use anyhow::Result;
use clap::{Args, Subcommand};

use self::client::Client;
#[cfg(all(feature = "api", feature = "worker"))]
pub(super) use self::health::reachable;
use super::exit::Exit;

/// The commands.
#[derive(Debug, Subcommand)]
pub(super) enum ClientCommand {
    /// Put one job in, or many from JSON lines
    Enqueue(Box<enqueue::Enqueue>),
    /// Look at jobs, wait for them, cancel, redrive and delete them
    Jobs(jobs::Jobs),
    /// Look at queues, limit, pause and resume them
    Queues(queues::Queues),
    /// Look at kinds, declare and forget them
    Kinds(kinds::Kinds),
    /// Look at schedules, put, pause, run and delete them
    Schedules(schedules::Schedules),
    /// Look at dead letters by cause, and snooze the causes that are known
    Errors(errors::Errors),
    /// Look at workers, drain them and let them go on
    Workers(workers::Workers),
    /// Look at operations on many jobs, pause, resume and stop them
    Operations(operations::Operations),
    /// Look at hooks, put, pause, resume and delete them
    Hooks(hooks::Hooks),
    /// Make, list and revoke API tokens
    Tokens(tokens::Tokens),
    /// Show what operators did
    Audit(audit::Audit),
    /// Show how many jobs there are, and how fast they come and go
    Stats(stats::Stats),
    /// Ask a process whether it is ready: exit 0 if it is, 1 and the reason if not
    Health(health::Health),
    /// Watch everything at once: what is wrong, queues, workers and operations
    Top(top::Top),
}

/// Where a server is unless said otherwise; also where `serve` listens then.
pub(super) const DEFAULT_URL: &str = "http://127.0.0.1:8080";

/// Which server, and how to answer. May stand before the command or anywhere after it.
#[derive(Debug, Default, Args)]
pub(super) struct Target {
    /// The server to talk to; the token for it comes from STEADFAST_TOKEN or STEADFAST_TOKEN_FILE [STEADFAST_URL,
    /// default http://127.0.0.1:8080]
    #[arg(long, value_name = "URL", global = true)]
    pub(super) url: Option<String>,
    /// Answer in JSON, as the API does
    #[arg(long, global = true)]
    pub(super) json: bool,
}

impl Target {
    fn url(&self) -> String {
        self.given_url().unwrap_or_else(|| DEFAULT_URL.to_owned())
    }

    fn given_url(&self) -> Option<String> {
        let variable = || std::env::var("STEADFAST_URL").ok().filter(|url| !url.is_empty());
        self.url.clone().or_else(variable)
    }
}

impl ClientCommand {
    fn target(&mut self) -> &mut Target {
        match self {
            Self::Enqueue(command) => &mut command.target,
            Self::Jobs(command) => &mut command.target,
            Self::Queues(command) => &mut command.target,
            Self::Kinds(command) => &mut command.target,
            Self::Schedules(command) => &mut command.target,
            Self::Errors(command) => &mut command.target,
            Self::Workers(command) => &mut command.target,
            Self::Operations(command) => &mut command.target,
            Self::Hooks(command) => &mut command.target,
            Self::Tokens(command) => &mut command.target,
            Self::Audit(command) => &mut command.target,
            Self::Stats(command) => &mut command.target,
            Self::Health(command) => &mut command.target,
            Self::Top(command) => &mut command.target,
        }
    }
}

/// `before`: what was given before the command; what stands after it wins.
pub(super) fn run(mut command: ClientCommand, before: Target) -> Result<Exit> {
    let target = command.target();
    target.url = target.url.take().or(before.url);
    target.json |= before.json;
    match command {
        ClientCommand::Enqueue(command) => command.run(),
        ClientCommand::Jobs(command) => command.run(),
        ClientCommand::Queues(command) => command.run(),
        ClientCommand::Kinds(command) => command.run(),
        ClientCommand::Schedules(command) => command.run(),
        ClientCommand::Errors(command) => command.run(),
        ClientCommand::Workers(command) => command.run(),
        ClientCommand::Operations(command) => command.run(),
        ClientCommand::Hooks(command) => command.run(),
        ClientCommand::Tokens(command) => command.run(),
        ClientCommand::Audit(command) => command.run(),
        ClientCommand::Stats(command) => command.run(),
        ClientCommand::Health(command) => command.run(),
        ClientCommand::Top(command) => command.run(),
    }
}
