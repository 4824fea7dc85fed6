//! `steadfast queues`.

use anyhow::Result;
use clap::{Args, Subcommand};
use serde_json::Value;

use super::ask;
use super::stats::{count_cells, waiting};
use super::table::Table;
use super::words::text;
use super::{Client, Target};
use crate::server::exit::Exit;
use crate::server::out::say;

/// Look at queues, pause and resume them
#[derive(Debug, Args)]
pub(in crate::server) struct Queues {
    #[command(flatten)]
    target: Target,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show all queues (the default)
    List,
    /// Start no more jobs of a queue; running ones go on
    Pause {
        #[arg(value_parser = ask::name)]
        queue: String,
    },
    /// End a pause
    Resume {
        #[arg(value_parser = ask::name)]
        queue: String,
    },
}

impl Queues {
    pub(super) fn run(self) -> Result<Exit> {
        let client = Client::new(&self.target)?;
        let (queue, verb, said) = match &self.command {
            None | Some(Command::List) => return list(&client, self.target.json),
            Some(Command::Pause { queue }) => (queue, "pause", "is paused: running jobs go on, no more are started"),
            Some(Command::Resume { queue }) => (queue, "resume", "is running"),
        };
        let answer = client.post(&format!("/queues/{queue}/{verb}"), None)?.json;
        say(&if self.target.json { answer.to_string() } else { format!("queue {queue} {said}") });
        Ok(Exit::Ok)
    }
}

fn list(client: &Client, json: bool) -> Result<Exit> {
    let queues = client.get("/queues")?.json;
    if json {
        say(&queues.to_string());
        return Ok(Exit::Ok);
    }
    let mut table = Table::new(
        &["QUEUE", "STATE", "QUEUED", "RUNNING", "RETRYING", "SUCCEEDED", "FAILED", "CANCELLED", "OLDEST READY"],
        &[0],
    );
    for queue in queues.as_array().into_iter().flatten() {
        let paused = queue.get("paused").and_then(Value::as_bool).unwrap_or(false);
        let mut cells = vec![text(queue, "queue"), if paused { "paused" } else { "open" }.to_owned()];
        cells.extend(count_cells(queue.get("counts")));
        cells.push(waiting(queue));
        table.row(cells);
    }
    table.print();
    Ok(Exit::Ok)
}
