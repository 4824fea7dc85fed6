//! Commands for a running server, over HTTP: what a person or a script would otherwise do with curl.
//!
//! People get tables that fit the terminal, scripts get `--json` and exit codes ([`exit`](super::exit)). Nothing here
//! touches a database: what a token may not do, its holder cannot do here either.

mod ask;
mod bulk;
mod client;
mod enqueue;
mod follow;
mod jobs;
mod kinds;
mod lines;
mod progress;
mod queues;
mod sender;
mod stats;
pub(super) mod table;
mod tokens;
mod words;

use anyhow::Result;
use clap::{Args, Subcommand};

use self::client::Client;
use super::exit::Exit;

/// The commands.
#[derive(Debug, Subcommand)]
pub(super) enum Operate {
    /// Put one job in, or many from JSON lines
    Enqueue(enqueue::Enqueue),
    /// Look at jobs, wait for them, cancel, redrive and delete them
    Jobs(jobs::Jobs),
    /// Look at queues, pause and resume them
    Queues(queues::Queues),
    /// Look at kinds, declare and forget them
    Kinds(kinds::Kinds),
    /// Make, list and revoke API tokens
    Tokens(tokens::Tokens),
    /// Show how many jobs there are, and how fast they come and go
    Stats(stats::Stats),
}

/// Which server, and how to answer.
#[derive(Debug, Args)]
struct Target {
    /// The server. A token for it comes from STEADFAST_TOKEN or STEADFAST_TOKEN_FILE
    #[arg(long, env = "STEADFAST_URL", default_value = "http://127.0.0.1:8080", global = true)]
    url: String,
    /// Answer in JSON, as the API does
    #[arg(long, global = true)]
    json: bool,
}

pub(super) fn run(command: Operate) -> Result<Exit> {
    match command {
        Operate::Enqueue(command) => command.run(),
        Operate::Jobs(command) => command.run(),
        Operate::Queues(command) => command.run(),
        Operate::Kinds(command) => command.run(),
        Operate::Tokens(command) => command.run(),
        Operate::Stats(command) => command.run(),
    }
}
