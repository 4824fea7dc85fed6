//! Which dead letter is in which group of errors, and what a transaction changes in the counts of groups: collected while it
//! is open, written before it commits, one row for each group and queue. Transactions in which no job dies pay nothing.

use std::collections::HashMap;
use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension, params};

use super::lanes::Lane;
use super::row::UuidBlob;
use crate::job::limits::ERROR_GROUPS_MAX;
use crate::job::{AttemptOutcome, ErrorGroup};
use crate::planted::{Bug, planted};

const ADD: &str = "
-- errors: dead letters of one group in one queue
INSERT INTO error_groups (fingerprint, queue, kind, outcome, title, dead, total, first_seen, last_seen, sample_job)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?8, ?9)
ON CONFLICT (fingerprint, queue) DO UPDATE SET dead = dead + excluded.dead, total = total + excluded.total,
    last_seen = max(last_seen, excluded.last_seen), sample_job = excluded.sample_job";

const TAKE: &str = "
-- errors: some of one group in one queue are dead no more
UPDATE error_groups SET dead = dead + ?3 WHERE fingerprint = ?1 AND queue = ?2";

/// What an open transaction has changed so far.
#[derive(Debug, Clone, Default)]
pub(super) struct DeadGroups {
    changes: HashMap<(i64, Arc<str>), Change>,
    /// How many rows of counts there are, with those that this transaction adds; read at the first new one.
    rows: Option<usize>,
}

#[derive(Debug, Clone, Default)]
struct Change {
    dead: i64,
    total: i64,
    newest: Option<Newest>,
}

/// The newest dead letter, for what is known of its group.
#[derive(Debug, Clone)]
struct Newest {
    kind: Arc<str>,
    outcome: AttemptOutcome,
    title: String,
    job: UuidBlob,
}

impl DeadGroups {
    pub(super) fn add(
        &mut self,
        connection: &Connection,
        (seq, job): (i64, UuidBlob),
        lane: &Lane,
        group: &ErrorGroup,
    ) -> rusqlite::Result<()> {
        let other;
        let group = match self.has_room(connection, group, &lane.queue)? {
            true => group,
            false => {
                other = ErrorGroup::other(&lane.kind);
                &other
            }
        };
        let fingerprint = group.fingerprint.as_i64();
        connection
            .prepare_cached("INSERT OR REPLACE INTO dead_groups (seq, fingerprint) VALUES (?1, ?2)")?
            .execute([seq, fingerprint])?;
        let change = self.changes.entry((fingerprint, lane.queue.clone())).or_default();
        change.dead += 1;
        change.total += 1;
        let (kind, outcome, title) = (lane.kind.clone(), group.outcome, group.title.clone());
        change.newest = Some(Newest { kind, outcome, title, job });
        Ok(())
    }

    /// Whether the group is counted already in this queue, or another one may be.
    fn has_room(&mut self, connection: &Connection, group: &ErrorGroup, queue: &Arc<str>) -> rusqlite::Result<bool> {
        let fingerprint = group.fingerprint.as_i64();
        if self.changes.get(&(fingerprint, queue.clone())).is_some_and(|change| change.newest.is_some()) {
            return Ok(true);
        }
        let known = "SELECT 1 FROM error_groups WHERE fingerprint = ?1 AND queue = ?2";
        if connection.prepare_cached(known)?.exists(params![fingerprint, queue])? {
            return Ok(true);
        }
        let rows = match self.rows {
            Some(rows) => rows,
            None => connection.prepare_cached("SELECT count(*) FROM error_groups")?.query_row([], |row| row.get(0))?,
        };
        let has_room = rows < ERROR_GROUPS_MAX;
        self.rows = Some(rows + usize::from(has_room));
        Ok(has_room)
    }

    pub(super) fn remove(&mut self, connection: &Connection, seq: i64, lane: &Lane) -> rusqlite::Result<()> {
        let fingerprint: Option<i64> = connection
            .prepare_cached("DELETE FROM dead_groups WHERE seq = ?1 RETURNING fingerprint")?
            .query_row([seq], |row| row.get(0))
            .optional()?;
        if let Some(fingerprint) = fingerprint {
            let dead = i64::from(!planted(Bug::RedriveKeepsGroup));
            self.changes.entry((fingerprint, lane.queue.clone())).or_default().dead -= dead;
        }
        Ok(())
    }

    /// Writes it, a row for each group and queue.
    pub(super) fn write(self, connection: &Connection, now_micros: i64) -> rusqlite::Result<()> {
        for ((fingerprint, queue), change) in self.changes {
            match change.newest {
                Some(Newest { kind, outcome, title, job }) => connection.prepare_cached(ADD)?.execute(params![
                    fingerprint,
                    queue,
                    kind,
                    outcome.as_str(),
                    title,
                    change.dead,
                    change.total,
                    now_micros,
                    job
                ])?,
                None => connection.prepare_cached(TAKE)?.execute(params![fingerprint, queue, change.dead])?,
            };
        }
        Ok(())
    }
}
