//! What happens to all jobs, known or not: new ones, however many came since the last look; old ones that are started
//! now; and those seen before, until they have ended. Every look is bounded.

use std::collections::BTreeMap;

use serde_json::Value;

use super::Client;
use super::client::Trouble;
use super::follow::Seen;
use super::words::text;

/// 200 jobs on a page, as the API allows.
const PAGE: usize = 200;
/// 50 pages: 10,000 new jobs between two looks; of more, the oldest are found when they are started.
const PAGES_MAX: usize = 50;
/// 100 jobs that no page shows are asked for one by one; if there are more, the others come at the next look.
const CHECKED_MAX: usize = 100;

/// Where the last look ended.
#[derive(Debug, Default)]
pub(super) struct AllJobs {
    /// The newest job so far. Ids sort by time.
    newest: Option<String>,
    /// The last one that was asked for by its id.
    checked: Option<String>,
}

impl AllJobs {
    /// Jobs that may have changed, the oldest first. What needs no more looks is forgotten.
    pub(super) fn look(&mut self, client: &Client, seen: &mut BTreeMap<String, Seen>) -> Result<Vec<Value>, Trouble> {
        let mut found = BTreeMap::new();
        self.new_ones(client, &mut found)?;
        for status in ["running", "retrying"] {
            add(client.get(&format!("/jobs?limit={PAGE}&status={status}"))?.json, &mut found);
        }
        self.unfinished_ones(client, seen, &mut found)?;
        // One that is started again is found as one that nobody knew.
        seen.retain(|id, seen| seen.finished.is_none() || found.contains_key(id));
        self.newest = self.newest.take().max(found.keys().next_back().cloned());
        Ok(found.into_values().collect())
    }

    /// Pages, back to where the last look began; the first time, one.
    fn new_ones(&self, client: &Client, found: &mut BTreeMap<String, Value>) -> Result<(), Trouble> {
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
        seen: &mut BTreeMap<String, Seen>,
        found: &mut BTreeMap<String, Value>,
    ) -> Result<(), Trouble> {
        let is_open = |(id, seen): &(&String, &Seen)| seen.finished.is_none() && !found.contains_key(*id);
        let open: Vec<String> = seen.iter().filter(is_open).map(|(id, _)| id.clone()).collect();
        let turn = open.partition_point(|id| Some(id) <= self.checked.as_ref());
        for id in open[turn..].iter().chain(&open[..turn]).take(CHECKED_MAX) {
            match client.get(&format!("/jobs/{id}")) {
                Ok(answer) => _ = found.insert(id.clone(), answer.json),
                // It was deleted.
                Err(Trouble::Refused(problem)) if problem.status == 404 => _ = seen.remove(id),
                Err(trouble) => return Err(trouble),
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
