//! prune: finished long enough ago → gone, a bounded number at a time, oldest first.

use std::time::Duration;

use rusqlite::params;

use super::errors::forget_errors;
use super::inbox::{Urgency, Verb};
use super::jobs::erase;
use super::lanes::Lane;
use super::marks::Marks;
use super::row::UuidBlob;
use super::transaction::Tx;
use crate::job::{JobId, Status};
use crate::store::{Prune, Pruned};

pub(super) const OLDEST: &str = "
-- prune: the oldest jobs behind the last one looked at
SELECT seq, id, status, finished_at, created_at, queue, kind, priority, group_key, marks FROM jobs WHERE id > ?1 ORDER BY id LIMIT ?2";

struct Candidate {
    seq: i64,
    id: UuidBlob,
    lane: Lane,
    marks: Marks,
    status: String,
    finished_at: Option<i64>,
    created_at: i64,
}

impl Verb for Prune {
    type Answer = Pruned;
    const NAME: &'static str = "prune";
    const URGENCY: Urgency = Urgency::Bulk;

    fn weight(&self) -> usize {
        self.limit
    }

    fn apply(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<Pruned> {
        if self.after.is_none() {
            // Once per pass.
            forget_errors(tx)?;
        }
        let after = self.after.map_or(uuid::Uuid::nil(), |id| *id.as_uuid());
        let candidates: Vec<Candidate> = tx
            .statement(OLDEST)?
            .query_map(params![UuidBlob(after), self.limit as i64], |row| {
                Ok(Candidate {
                    seq: row.get(0)?,
                    id: row.get(1)?,
                    status: row.get(2)?,
                    finished_at: row.get(3)?,
                    created_at: row.get(4)?,
                    lane: Lane::read(row, 5)?,
                    marks: Marks::read(row, 9)?,
                })
            })?
            .collect::<Result<_, _>>()?;
        // Ids follow time: behind a job that is too young to have been finished long enough, all are.
        let youngest = before(tx, self.keep_succeeded.min(self.keep_cancelled).min(self.keep_failed));
        let mut pruned = Pruned { deleted: 0, next: None };
        for job in &candidates {
            if job.created_at > youngest {
                return Ok(Pruned { next: None, ..pruned });
            }
            pruned.deleted += usize::from(prune(self, tx, job)?);
            pruned.next = Some(JobId::from(job.id.0));
        }
        if candidates.len() < self.limit {
            pruned.next = None;
        }
        Ok(pruned)
    }
}

fn prune(prune: &Prune, tx: &mut Tx<'_>, job: &Candidate) -> rusqlite::Result<bool> {
    let (Some(finished_at), Ok(status)) = (job.finished_at, job.status.parse::<Status>()) else { return Ok(false) };
    let keep = match status {
        Status::Succeeded => prune.keep_succeeded,
        Status::Cancelled => prune.keep_cancelled,
        Status::FailedPermanent => prune.keep_failed,
        Status::Queued | Status::Running | Status::Retrying => return Ok(false),
    };
    if finished_at > before(tx, keep) {
        return Ok(false);
    }
    erase(tx, job.seq, job.id, &job.lane, job.marks, status)?;
    Ok(true)
}

/// The store's time that long ago.
fn before(tx: &Tx<'_>, keep: Duration) -> i64 {
    tx.now_micros().saturating_sub(i64::try_from(keep.as_micros()).unwrap_or(i64::MAX))
}
