//! Many jobs from JSON lines: read, batch, send, and tell what became of each line.
//!
//! No line is lost and none is doubled, whatever happens to the server in between: every line has an idempotency key
//! made of the prefix, its number and its content. The same input with the same prefix again goes on where it ended.

use std::fs::File;
use std::io::{BufRead, BufReader, stdin};
use std::time::Duration;

use anyhow::Result;
use serde_json::{Map, Value, json};

use super::Client;
use super::lines::{Line, Lines};
use super::progress::Progress;
use super::sender::{Item, Sender, Tally};
use super::words::tame;
use crate::server::exit::{Exit, Failure};
use crate::server::out::say;

/// 1,000 jobs, as many as the API takes in one batch.
const BATCH_MAX_JOBS: usize = 1000;
/// 4 MiB of jobs, half of what the API takes in one body.
const BATCH_MAX_BYTES: usize = 4 * 1024 * 1024;
/// 200 characters leave room for the line's number and fingerprint in a key of 255.
const PREFIX_MAX_CHARS: usize = 200;

/// A bulk enqueue.
pub(super) struct Bulk {
    pub(super) kind: Option<String>,
    pub(super) fields: Map<String, Value>,
    pub(super) prefix: String,
    pub(super) patience: Duration,
    pub(super) json: bool,
}

/// Checks a prefix for idempotency keys.
pub(super) fn key_prefix(text: &str) -> Result<String, String> {
    let fine = (1..=PREFIX_MAX_CHARS).contains(&text.chars().count()) && !text.chars().any(char::is_control);
    if fine { Ok(text.to_owned()) } else { Err(format!("use 1 to {PREFIX_MAX_CHARS} printable characters")) }
}

/// A prefix that nobody else has.
pub(super) fn random_prefix() -> String {
    format!("bulk-{}", &uuid::Uuid::new_v4().simple().to_string()[..12])
}

impl Bulk {
    /// `source` is a path, or `-` for stdin.
    pub(super) fn run(&self, client: &Client, source: &str) -> Result<Exit> {
        let (input, bytes) = open(source)?;
        let mut lines = Lines::new(input, self.kind.clone(), &self.fields, &self.prefix);
        let mut progress = Progress::new(bytes);
        let mut sender = Sender { client, patience: self.patience, tally: Tally::default() };
        let sent = self.send_all(&mut lines, &mut sender, &mut progress);
        progress.clear();
        self.summarise(&sender.tally);
        match sent {
            Ok(()) if sender.tally.bad.is_empty() => Ok(Exit::Ok),
            Ok(()) => Ok(Exit::Failed),
            Err(error) => {
                eprintln!(
                    "Not all lines were sent. The same lines with --key-prefix {} again go on where this ended; none \
                     is enqueued twice.",
                    self.prefix
                );
                Err(error)
            }
        }
    }

    fn send_all(
        &self,
        lines: &mut Lines<Box<dyn BufRead>>,
        sender: &mut Sender,
        progress: &mut Progress,
    ) -> Result<()> {
        let (mut batch, mut batch_bytes, mut done) = (Vec::new(), 0, 0);
        loop {
            let line = lines.next()?;
            let job_bytes = line.as_ref().and_then(|line| line.job.as_ref().ok()).map_or(0, String::len);
            let full = batch.len() == BATCH_MAX_JOBS || batch_bytes + job_bytes > BATCH_MAX_BYTES;
            if (line.is_none() || full) && !batch.is_empty() {
                done += batch.len() as u64;
                let told = sender.tally.bad.len();
                sender.send(std::mem::take(&mut batch), progress)?;
                tell(&sender.tally.bad[told..], progress);
                batch_bytes = 0;
                progress.done(done, lines.bytes);
            }
            match line {
                None => return Ok(()),
                Some(Line { number, job: Ok(job) }) => {
                    batch_bytes += job.len();
                    batch.push(Item { number, job });
                }
                Some(Line { number, job: Err(why) }) => {
                    sender.tally.bad.push((number, why));
                    tell(&sender.tally.bad[sender.tally.bad.len() - 1..], progress);
                }
            }
        }
    }

    fn summarise(&self, tally: &Tally) {
        let Tally { created, known, bad } = tally;
        if self.json {
            let bad: Vec<_> = bad.iter().map(|(line, why)| json!({"line": line, "detail": why})).collect();
            say(&json!({"created": created, "known": known, "bad": bad, "key_prefix": self.prefix}).to_string());
        } else {
            say(&format!("enqueued {created}, known already {known}, bad lines {}", bad.len()));
        }
    }
}

fn tell(bad: &[(u64, String)], progress: &Progress) {
    for (number, why) in bad {
        progress.clear();
        eprintln!("line {number}: {}", tame(why));
    }
}

fn open(source: &str) -> Result<(Box<dyn BufRead>, Option<u64>)> {
    if source == "-" {
        return Ok((Box::new(stdin().lock()), None));
    }
    let cannot = |error| Failure::new(Exit::Usage, format!("--lines {source}: {error}"));
    let file = File::open(source).map_err(cannot)?;
    let metadata = file.metadata().map_err(cannot)?;
    let bytes = metadata.is_file().then_some(metadata.len());
    Ok((Box::new(BufReader::new(file)), bytes))
}
