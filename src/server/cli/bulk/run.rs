//! Reads lines, sends them in batches, and tells what became of each.

use std::fs::File;
use std::io::{BufRead, BufReader, stdin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Result;
use serde_json::{Map, Value, json};

use super::json_lines::{JsonLine, JsonLines};
use super::progress_bar::ProgressBar;
use super::sender::{Bad, Item, Sender, Tally};
use crate::server::cli::Client;
use crate::server::exit::{Exit, ExitError, on_interrupt};
use crate::server::stdio::{escaped, print_json, print_line, print_stderr};

/// 1,000 jobs, as many as the API takes in one batch.
const BATCH_MAX_JOBS: usize = 1000;
/// 4 MiB of jobs, half of what the API takes in one body.
const BATCH_MAX_BYTES: usize = 4 * 1024 * 1024;
/// 200 characters leave room for the line's number and fingerprint in a key of 255.
const PREFIX_MAX_CHARS: usize = 200;

/// A bulk enqueue.
#[derive(Clone)]
pub(in crate::server::cli) struct Bulk {
    pub(in crate::server::cli) kind: Option<String>,
    pub(in crate::server::cli) fields: Map<String, Value>,
    pub(in crate::server::cli) prefix: String,
    pub(in crate::server::cli) outage_timeout: Duration,
    pub(in crate::server::cli) json: bool,
}

/// Checks a prefix for idempotency keys.
pub(in crate::server::cli) fn key_prefix(text: &str) -> Result<String, String> {
    let fine = (1..=PREFIX_MAX_CHARS).contains(&text.chars().count()) && !text.chars().any(char::is_control);
    if fine { Ok(text.to_owned()) } else { Err(format!("use 1 to {PREFIX_MAX_CHARS} printable characters")) }
}

/// A prefix that nobody else has.
pub(in crate::server::cli) fn random_prefix() -> String {
    format!("bulk-{}", &uuid::Uuid::new_v4().simple().to_string()[..12])
}

/// How far it came.
#[derive(Default)]
struct Done {
    tally: Tally,
    lines: u64,
    /// All lines up to this one are accepted or bad.
    through: u64,
}

/// Lines that are sent, and answered for, together.
#[derive(Default)]
struct LineBatch {
    items: Vec<Item>,
    bytes: usize,
    /// Those that were bad before they were sent.
    bad: Vec<Bad>,
    last: u64,
}

impl LineBatch {
    fn has_room_for(&self, line: &JsonLine) -> bool {
        let bytes = line.job.as_ref().map_or(0, String::len);
        self.items.len() + self.bad.len() < BATCH_MAX_JOBS && (self.bytes + bytes <= BATCH_MAX_BYTES || self.bytes == 0)
    }

    fn add(&mut self, line: JsonLine) {
        self.last = line.number;
        match line.job {
            Ok(job) => {
                self.bytes += job.len();
                self.items.push(Item { number: line.number, job });
            }
            Err(why) => self.bad.push((line.number, why)),
        }
    }
}

impl Bulk {
    /// `source` is a path, or `-` for stdin.
    pub(in crate::server::cli) fn run(&self, client: &Client, source: &str) -> Result<Exit> {
        let (input, bytes) = open(source)?;
        let mut lines = JsonLines::new(input, self.kind.clone(), &self.fields, &self.prefix);
        let mut progress = ProgressBar::new(bytes);
        let done = Arc::new(Mutex::new(Done::default()));
        self.tell_when_interrupted(&done)?;
        let sender = Sender { client, outage_timeout: self.outage_timeout };
        let sent = send_all(&mut lines, &sender, &mut progress, &done);
        progress.clear();
        let done = locked(&done);
        self.summarise(&done);
        match sent {
            Ok(()) if done.tally.bad.is_empty() => Ok(Exit::Ok),
            Ok(()) => Ok(Exit::Failed),
            Err(error) => {
                self.tell_how_to_go_on(&done);
                Err(error)
            }
        }
    }

    fn tell_when_interrupted(&self, done: &Arc<Mutex<Done>>) -> Result<()> {
        let (bulk, done) = (self.clone(), done.clone());
        let before_exit = move || {
            let done = locked(&done);
            ProgressBar::new(None).clear();
            bulk.summarise(&done);
            bulk.tell_how_to_go_on(&done);
        };
        Ok(on_interrupt(before_exit)?)
    }

    fn tell_how_to_go_on(&self, done: &Done) {
        print_stderr(&format!("Not all lines were sent: only those up to line {} are answered for.", done.through));
        print_stderr("To go on, with the same input (no line is enqueued twice):");
        print_stderr(&format!("  {}", escaped(&command_again(std::env::args(), &self.prefix))));
    }

    fn summarise(&self, done: &Done) {
        let Done { tally: Tally { created, known, bad }, through, .. } = done;
        if self.json {
            let bad: Vec<_> = bad.iter().map(|(line, why)| json!({"line": line, "detail": why})).collect();
            let prefix = &self.prefix;
            print_json(
                &json!({"created": created, "known": known, "bad": bad, "key_prefix": prefix, "through_line": through}),
            );
        } else {
            print_line(&format!("enqueued {created}, known already {known}, bad lines {}", bad.len()));
        }
    }
}

fn send_all(
    lines: &mut JsonLines<Box<dyn BufRead>>,
    sender: &Sender,
    progress: &mut ProgressBar,
    done: &Mutex<Done>,
) -> Result<()> {
    let mut batch = LineBatch::default();
    loop {
        let line = lines.next()?;
        if !line.as_ref().is_some_and(|line| batch.has_room_for(line)) {
            let LineBatch { items, bad, last, .. } = std::mem::take(&mut batch);
            let mut tally = Tally { bad, ..Tally::default() };
            let lines_sent = (items.len() + tally.bad.len()) as u64;
            let sent = sender.send(items, &mut tally, progress);
            tally.bad.sort_unstable();
            tell(&tally.bad, progress);
            // All at once: who is interrupted now is told one thing or the other.
            let mut done = locked(done);
            done.tally.created += tally.created;
            done.tally.known += tally.known;
            done.tally.bad.extend(tally.bad);
            sent?;
            done.lines += lines_sent;
            done.through = done.through.max(last);
            progress.done(done.lines, lines.bytes);
        }
        match line {
            None => return Ok(()),
            Some(line) => batch.add(line),
        }
    }
}

fn tell(bad: &[Bad], progress: &ProgressBar) {
    for (number, why) in bad {
        progress.clear();
        print_stderr(&format!("line {number}: {}", escaped(why)));
    }
}

fn locked(done: &Mutex<Done>) -> MutexGuard<'_, Done> {
    done.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What was typed, with the prefix, for a shell.
fn command_again(arguments: impl Iterator<Item = String>, prefix: &str) -> String {
    let mut words: Vec<String> = std::iter::once("steadfast".to_owned()).chain(arguments.skip(1)).collect();
    if !words.iter().any(|word| word == "--key-prefix" || word.starts_with("--key-prefix=")) {
        words.extend(["--key-prefix".to_owned(), prefix.to_owned()]);
    }
    let plain = |word: &str| {
        !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_./:=,@+".contains(&byte))
    };
    let quoted = |word: &String| if plain(word) { word.clone() } else { format!("'{}'", word.replace('\'', "'\\''")) };
    words.iter().map(quoted).collect::<Vec<_>>().join(" ")
}

fn open(source: &str) -> Result<(Box<dyn BufRead>, Option<u64>)> {
    if source == "-" {
        return Ok((Box::new(stdin().lock()), None));
    }
    let cannot = |error| ExitError::new(Exit::Usage, format!("--lines {source}: {error}"));
    let file = File::open(source).map_err(cannot)?;
    let metadata = file.metadata().map_err(cannot)?;
    let bytes = metadata.is_file().then_some(metadata.len());
    Ok((Box::new(BufReader::new(file)), bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_to_go_on_is_the_one_that_was_typed_with_its_prefix() {
        let again = |typed: &[&str]| command_again(typed.iter().map(|word| (*word).to_owned()), "bulk-1");
        assert_eq!(
            again(&["/bin/steadfast", "enqueue", "a", "--lines", "it's.jsonl"]),
            r"steadfast enqueue a --lines 'it'\''s.jsonl' --key-prefix bulk-1"
        );
        let given = again(&["steadfast", "enqueue", "--lines", "-", "--key-prefix", "mine"]);
        assert_eq!(given, "steadfast enqueue --lines - --key-prefix mine");
    }
}
