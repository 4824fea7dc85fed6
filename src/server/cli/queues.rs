//! `steadfast queues`.

use anyhow::Result;
use clap::{Args, Subcommand};
use serde_json::Value;

use super::args;
use super::ask::confirm;
use super::format::text;
use super::limits::{self, Groups, SetQueue};
use super::stats::{QUEUES_SHOWN, count_cells, note_cut, waiting};
use super::table::Table;
use super::why::why;
use super::{Client, Target};
use crate::job::limits::QUEUES_PAGE_MAX;
use crate::server::exit::{Exit, ExitError};
use crate::server::settings::closest;
use crate::server::stdio::{print_json, print_line};

/// Look at queues, limit, pause and resume them
#[derive(Debug, Args)]
pub(in crate::server) struct Queues {
    #[command(flatten)]
    pub(super) target: Target,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show all queues (the default)
    List {
        /// Show at most this many, by name
        #[arg(long, default_value_t = QUEUES_SHOWN)]
        limit: usize,
    },
    /// Start no more jobs of a queue; running ones go on
    Pause {
        /// The name of the queue. One that has no jobs is perhaps a typo: on a terminal you are asked, elsewhere it is
        /// refused
        #[arg(value_parser = args::name)]
        queue: String,
        /// Also pause a queue that has no jobs yet
        #[arg(long)]
        yes: bool,
    },
    /// End a pause
    Resume {
        /// The name of the queue
        #[arg(value_parser = args::name)]
        queue: String,
    },
    /// Set limits of a queue and of its groups, or change what is given of them
    Set(SetQueue),
    /// Show one queue with its limits
    Show {
        /// The name of the queue
        #[arg(value_parser = args::name)]
        queue: String,
    },
    /// Show how much of the limits of a queue and its groups is used
    Limits {
        /// The name of the queue
        #[arg(value_parser = args::name)]
        queue: String,
    },
    /// Show the groups of a queue, or set one of them otherwise than the others
    Groups(Groups),
    /// Say whether jobs of a queue start, and if not, why
    Why {
        /// The name of the queue
        #[arg(value_parser = args::name)]
        queue: String,
    },
}

impl Queues {
    pub(super) fn run(self) -> Result<Exit> {
        let client = Client::new(&self.target)?;
        let json = self.target.json;
        match self.command.unwrap_or(Command::List { limit: QUEUES_SHOWN }) {
            Command::List { limit } => list(&client, limit, json),
            Command::Pause { queue, yes } => {
                if !yes {
                    confirm_unknown_queue(&client, &queue)?;
                }
                change(&client, &queue, "pause", "is paused: running jobs go on, no more are started", json)
            }
            Command::Resume { queue } => change(&client, &queue, "resume", "is running", json),
            Command::Set(set) => set.run(&client, &self.target),
            Command::Show { queue } => limits::show(&client, &queue, json),
            Command::Limits { queue } => limits::list(&client, &queue, false, json),
            Command::Groups(groups) => groups.run(&client, &self.target),
            Command::Why { queue } => {
                why(&client, &format!("/queues/{queue}/explain"), &format!("queue {queue}"), json)
            }
        }
    }
}

fn change(client: &Client, queue: &str, verb: &str, said: &str, json: bool) -> Result<Exit> {
    let answer = client.post(&format!("/queues/{queue}/{verb}"), None)?.json;
    if json {
        print_json(&answer)
    } else {
        print_line(&format!("queue {queue} {said}"))
    }
    Ok(Exit::Ok)
}

/// Asks before a queue without jobs is paused: its name may be a typo, and the one that was meant would go on.
fn confirm_unknown_queue(client: &Client, queue: &str) -> Result<()> {
    let known: Vec<String> = client
        .get_list(&format!("/queues?limit={QUEUES_PAGE_MAX}"))?
        .iter()
        .map(|known| text(known, "queue"))
        .collect();
    if known.iter().any(|known| known == queue) {
        return Ok(());
    }
    let meant = closest(queue, known.iter().map(String::as_str)).map(|meant| format!(" (did you mean {meant}?)"));
    let unknown = format!("there are no jobs in a queue {queue}{}", meant.unwrap_or_default());
    match confirm(&format!("{unknown}. Pause it all the same?")) {
        Some(true) => Ok(()),
        Some(false) => Err(ExitError::new(Exit::Failed, "nothing was paused").into()),
        None => Err(ExitError::new(Exit::NotFound, format!("{unknown}; --yes pauses it all the same")).into()),
    }
}

fn list(client: &Client, limit: usize, json: bool) -> Result<Exit> {
    let mut queues = Vec::new();
    let has_more = client.follow(&format!("/queues?limit={}", limit.min(QUEUES_PAGE_MAX)), |page| {
        queues.extend(page.as_array().into_iter().flatten().cloned());
        queues.len() < limit
    })?;
    if has_more || queues.len() > limit {
        note_cut(limit);
    }
    queues.truncate(limit);
    if json {
        print_json(&Value::from(queues));
        return Ok(Exit::Ok);
    }
    let mut table = Table::new(
        &["QUEUE", "STATE", "QUEUED", "RUNNING", "RETRYING", "SUCCEEDED", "FAILED", "CANCELLED", "OLDEST"],
        &[0],
    )
    .dropping(&[7, 5, 8]);
    for queue in &queues {
        let paused = queue.get("paused").and_then(Value::as_bool).unwrap_or(false);
        let mut cells = vec![text(queue, "queue"), if paused { "paused" } else { "open" }.to_owned()];
        cells.extend(count_cells(queue.get("counts")));
        cells.push(waiting(queue));
        table.row(cells);
    }
    table.print();
    Ok(Exit::Ok)
}
