//! `jobs wait` and `jobs watch`: polls jobs and prints what changed, line by line, so that it reads the same on a wide
//! terminal and in a pipe. Named jobs are asked for by their ids; [`AllJobs`] finds those that nobody named.

use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::Value;

use super::Client;
use super::client::RequestError;
use super::format::{attempts, colour, colours_wanted, cut, finished, note, terminal_width, text};
use crate::server::exit::{Exit, ExitError};
use crate::server::stdio::{print_json, print_line, reader_is_gone};

/// 50 ms at first: most jobs are done in a moment.
pub(super) const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// 500 ms in the long run.
pub(super) const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// 60 s for a server that was there to come back: a restart is waited for.
pub(super) const RECONNECT_TIMEOUT: Duration = Duration::from_secs(60);

/// What is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Show {
    /// Each job when it is finished.
    Ends,
    /// Every change.
    Changes,
}

/// Jobs to watch; none named: all there are.
#[derive(Debug)]
pub(super) struct Watch {
    pub(super) ids: Vec<String>,
    pub(super) timeout: Option<Duration>,
    pub(super) show: Show,
    pub(super) json: bool,
}

impl Watch {
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
                Err(error)
                    if is_transient(&error) && last_heard.is_some_and(|heard| heard.elapsed() < RECONNECT_TIMEOUT) => {}
                Err(error) => return Err(error.into()),
            }
            if reader_is_gone() {
                return Ok(Exit::Ok);
            }
            if let Some(exit) = self.ended(&seen) {
                return Ok(exit);
            }
            if self.timeout.is_some_and(|timeout| started.elapsed() >= timeout) {
                return Err(ExitError::new(Exit::TimedOut, "the time given with --timeout is over").into());
            }
            sleep(pause);
            pause = (pause * 3 / 2).min(LONGEST_PAUSE);
        }
    }

    /// Prints what is new about a job; answers whether anything was.
    fn tell(&self, job: &Value, seen: &mut BTreeMap<String, ShownJob>) -> bool {
        let now = ShownJob { line: line(job), finished: finished(job) };
        let id = text(job, "id");
        if seen.get(&id) == Some(&now) {
            return false;
        }
        if self.show == Show::Changes || now.finished.is_some() {
            if self.json {
                print_json(job);
            } else {
                print_line(&shown(job, &id, &now.line, terminal_width()));
            }
        }
        seen.insert(id, now);
        true
    }

    fn ended(&self, seen: &BTreeMap<String, ShownJob>) -> Option<Exit> {
        if self.ids.is_empty() {
            return None;
        }
        let ends: Option<Vec<bool>> = self.ids.iter().map(|id| seen.get(id)?.finished).collect();
        Some(if ends?.iter().all(|&well| well) { Exit::Ok } else { Exit::Failed })
    }
}

/// What was last seen of a job.
#[derive(Debug, PartialEq, Eq)]
struct ShownJob {
    line: String,
    /// Whether it ended, and if so whether well.
    finished: Option<bool>,
}

/// The named jobs that are not known to be finished.
fn look(client: &Client, ids: &[String], seen: &BTreeMap<String, ShownJob>) -> Result<Vec<Value>, RequestError> {
    let open = ids.iter().filter(|id| seen.get(*id).is_none_or(|seen| seen.finished.is_none()));
    open.map(|id| Ok(client.get(&format!("/jobs/{id}"))?.json)).collect()
}

fn line(job: &Value) -> String {
    format!("{}  {}", summary(job), note(job)).trim_end().to_owned()
}

/// Without the note.
fn summary(job: &Value) -> String {
    format!("{:16}  {:5}  {}", text(job, "status"), attempts(job), text(job, "kind"))
}

/// As it is printed. On a terminal it is cut to the width, and below the id if there is no room for more than a note
/// beside it; in a pipe it is one line.
fn shown(job: &Value, id: &str, line: &str, width: Option<usize>) -> String {
    let Some(width) = width else { return format!("{id}  {}", painted(job, line)) };
    let beside = width.saturating_sub(id.chars().count() + 2);
    if summary(job).chars().count() <= beside {
        return format!("{id}  {}", painted(job, &cut(line, beside)));
    }
    format!("{id}\n  {}", painted(job, &cut(line, width.saturating_sub(2))))
}

fn painted(job: &Value, line: &str) -> String {
    let paint = colour(&text(job, "status"));
    if paint.is_empty() || !colours_wanted() { line.to_owned() } else { format!("{paint}{line}\x1b[0m") }
}

/// Whether it may go well a little later.
pub(super) fn is_transient(error: &RequestError) -> bool {
    match error {
        RequestError::Unreachable(_) => true,
        RequestError::Refused(problem) => problem.status == 429 || problem.status >= 500,
    }
}

/// 200 jobs on a page, as the API allows.
const PAGE: usize = 200;
/// 50 pages: 10,000 new jobs between two looks; of more, the oldest are found when they are started.
const PAGES_MAX: usize = 50;
/// 100 jobs that no page shows are asked for one by one; if there are more, the others come at the next look.
const CHECKED_MAX: usize = 100;

/// Finds what happens to all jobs, known or not: new ones, however many came since the last look; old ones that are started
/// now; and those seen before, until they have ended. Every look is bounded.
#[derive(Debug, Default)]
struct AllJobs {
    /// The newest job so far. Ids sort by time.
    newest: Option<String>,
    /// The last one that was asked for by its id.
    checked: Option<String>,
}

impl AllJobs {
    /// Jobs that may have changed, the oldest first. What needs no more looks is forgotten.
    fn look(&mut self, client: &Client, seen: &mut BTreeMap<String, ShownJob>) -> Result<Vec<Value>, RequestError> {
        let mut found = BTreeMap::new();
        self.new_ones(client, &mut found)?;
        for status in ["running", "retrying"] {
            add(client.get(&format!("/jobs?limit={PAGE}&status={status}"))?.json, &mut found);
        }
        self.unfinished_ones(client, seen, &mut found)?;
        // One that is started again is found like a new one.
        seen.retain(|id, seen| seen.finished.is_none() || found.contains_key(id));
        self.newest = self.newest.take().max(found.keys().next_back().cloned());
        Ok(found.into_values().collect())
    }

    /// Pages, back to where the last look began; the first time, one.
    fn new_ones(&self, client: &Client, found: &mut BTreeMap<String, Value>) -> Result<(), RequestError> {
        let mut path = format!("/jobs?limit={PAGE}");
        for _ in 0..PAGES_MAX {
            let page = client.get(&path)?;
            let oldest = add(page.json, found);
            let Some(cursor) = page.next else { break };
            if self.newest.is_none() || (oldest.is_some() && oldest <= self.newest) {
                break;
            }
            path = format!("/jobs?limit={PAGE}&cursor={cursor}");
        }
        Ok(())
    }

    /// Those seen before that no page has shown.
    fn unfinished_ones(
        &mut self,
        client: &Client,
        seen: &mut BTreeMap<String, ShownJob>,
        found: &mut BTreeMap<String, Value>,
    ) -> Result<(), RequestError> {
        let is_open = |(id, seen): &(&String, &ShownJob)| seen.finished.is_none() && !found.contains_key(*id);
        let open: Vec<String> = seen.iter().filter(is_open).map(|(id, _)| id.clone()).collect();
        let turn = open.partition_point(|id| Some(id) <= self.checked.as_ref());
        for id in open[turn..].iter().chain(&open[..turn]).take(CHECKED_MAX) {
            match client.get(&format!("/jobs/{id}")) {
                Ok(answer) => _ = found.insert(id.clone(), answer.json),
                // It was deleted.
                Err(RequestError::Refused(problem)) if problem.status == 404 => _ = seen.remove(id),
                Err(error) => return Err(error),
            }
            self.checked = Some(id.clone());
        }
        Ok(())
    }
}

/// Adds a page; answers the oldest id on it.
fn add(page: Value, found: &mut BTreeMap<String, Value>) -> Option<String> {
    let Value::Array(jobs) = page else { return None };
    let mut oldest = None;
    for job in jobs {
        let id = text(&job, "id");
        if oldest.as_ref().is_none_or(|oldest| id < *oldest) {
            oldest = Some(id.clone());
        }
        found.insert(id, job);
    }
    oldest
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_change_fits_the_terminal_and_is_whole_in_a_pipe() {
        let id = "01a1e12a-7f3a-7000-8000-000000000000";
        let job = json!({"id": id, "status": "retrying", "attempts": 1, "max_attempts": 3, "kind": "summarize_text",
            "last_error": "connection refused by a host with a name that goes on for quite a while"});
        for width in [40, 60, 80, 100, 200] {
            let shown = shown(&job, id, &line(&job), Some(width)).replace("\x1b[33m", "").replace("\x1b[0m", "");
            assert!(shown.lines().all(|line| line.chars().count() <= width), "{shown}");
            assert!(shown.starts_with(id) && shown.contains("retrying"), "{shown}");
            assert_eq!(shown.lines().count(), if width < 78 { 2 } else { 1 }, "{shown}");
        }
        assert_eq!(shown(&job, id, &line(&job), None).lines().count(), 1);
        assert!(shown(&job, id, &line(&job), None).ends_with("quite a while"));
    }
}
