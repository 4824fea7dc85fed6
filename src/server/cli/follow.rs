//! Waiting for jobs and watching them. Line by line, so that it reads the same on a terminal and in a pipe.

use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::Value;

use super::Client;
use super::client::Trouble;
use super::watch::AllJobs;
use super::words::{attempts, colour, colours_wanted, finished, note, text};
use crate::server::exit::{Exit, Failure};
use crate::server::out::{reader_is_gone, say, say_json};

/// 50 ms at first: most jobs are done in a moment.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// 500 ms in the long run.
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// 60 s: a restart of the server is waited for.
const PATIENCE: Duration = Duration::from_secs(60);

/// What is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Show {
    /// Each job when it is finished.
    Ends,
    /// Every change.
    Changes,
}

/// Jobs to follow; none named: all there are.
#[derive(Debug)]
pub(super) struct Follow {
    pub(super) ids: Vec<String>,
    pub(super) timeout: Option<Duration>,
    pub(super) show: Show,
    pub(super) json: bool,
}

impl Follow {
    /// Until all named jobs are finished. 0 if all succeeded, 1 if one did not, 6 if the time was over first.
    pub(super) fn run(self, client: &Client) -> Result<Exit> {
        let started = Instant::now();
        let mut last_heard: Option<Instant> = None;
        let mut seen = BTreeMap::new();
        let mut all_jobs = AllJobs::default();
        let mut pause = FIRST_PAUSE;
        loop {
            let looked = match &self.ids[..] {
                [] => all_jobs.look(client, &mut seen),
                ids => look(client, ids, &seen),
            };
            match looked {
                Ok(jobs) => {
                    last_heard = Some(Instant::now());
                    if jobs.into_iter().filter(|job| self.tell(job, &mut seen)).count() > 0 {
                        pause = FIRST_PAUSE;
                    }
                }
                Err(trouble) if passes(&trouble) && last_heard.is_some_and(|heard| heard.elapsed() < PATIENCE) => {}
                Err(trouble) => return Err(trouble.into()),
            }
            if reader_is_gone() {
                return Ok(Exit::Ok);
            }
            if let Some(exit) = self.ended(&seen) {
                return Ok(exit);
            }
            if self.timeout.is_some_and(|timeout| started.elapsed() >= timeout) {
                return Err(Failure::new(Exit::TimedOut, "the time given with --timeout is over").into());
            }
            sleep(pause);
            pause = (pause * 3 / 2).min(LONGEST_PAUSE);
        }
    }

    /// Prints what is new about a job; answers whether anything was.
    fn tell(&self, job: &Value, seen: &mut BTreeMap<String, Seen>) -> bool {
        let now = Seen { line: line(job), finished: finished(job) };
        let id = text(job, "id");
        if seen.get(&id) == Some(&now) {
            return false;
        }
        if self.show == Show::Changes || now.finished.is_some() {
            if self.json {
                say_json(job);
            } else {
                say(&format!("{id}  {}", painted(job, &now.line)));
            }
        }
        seen.insert(id, now);
        true
    }

    fn ended(&self, seen: &BTreeMap<String, Seen>) -> Option<Exit> {
        if self.ids.is_empty() {
            return None;
        }
        let ends: Option<Vec<bool>> = self.ids.iter().map(|id| seen.get(id)?.finished).collect();
        Some(if ends?.iter().all(|&well| well) { Exit::Ok } else { Exit::Failed })
    }
}

/// What was last seen of a job.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Seen {
    line: String,
    /// Whether it ended, and if so whether well.
    pub(super) finished: Option<bool>,
}

/// The named jobs that are not known to be finished.
fn look(client: &Client, ids: &[String], seen: &BTreeMap<String, Seen>) -> Result<Vec<Value>, Trouble> {
    let open = ids.iter().filter(|id| seen.get(*id).is_none_or(|seen| seen.finished.is_none()));
    open.map(|id| Ok(client.get(&format!("/jobs/{id}"))?.json)).collect()
}

fn line(job: &Value) -> String {
    let line = format!("{:16}  {:5}  {}  {}", text(job, "status"), attempts(job), text(job, "kind"), note(job));
    line.trim_end().to_owned()
}

fn painted(job: &Value, line: &str) -> String {
    let paint = colour(&text(job, "status"));
    if paint.is_empty() || !colours_wanted() { line.to_owned() } else { format!("{paint}{line}\x1b[0m") }
}

/// Trouble that a little time may mend.
fn passes(trouble: &Trouble) -> bool {
    match trouble {
        Trouble::Unreachable(_) => true,
        Trouble::Refused(problem) => problem.status == 429 || problem.status >= 500,
    }
}
