//! What a transaction moves in the counts by kind and queue: collected while it is open, written before it commits. The sums
//! over kinds are in `queue_counts`.

use std::collections::HashMap;
use std::sync::Arc;

use rusqlite::{Connection, params};

use super::lanes::Lane;
use crate::job::Status;

/// How many jobs, or how many more, in the order of [`Status::ALL`].
pub(super) type PerStatus = [i64; Status::ALL.len()];

const ADD: &str = "
-- counts: what a transaction moved of one kind in one queue
INSERT INTO counts (kind, queue, queued, running, retrying, succeeded, failed_permanent, cancelled)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
ON CONFLICT (kind, queue) DO UPDATE SET
    queued = queued + excluded.queued, running = running + excluded.running, retrying = retrying + excluded.retrying,
    succeeded = succeeded + excluded.succeeded, failed_permanent = failed_permanent + excluded.failed_permanent,
    cancelled = cancelled + excluded.cancelled";

const FORGET_EMPTY: &str = "
-- counts: of a kind and queue that have no jobs any more, or names that come and go would leave rows for ever
DELETE FROM counts
WHERE kind = ?1 AND queue = ?2 AND queued = 0 AND running = 0 AND retrying = 0 AND succeeded = 0
  AND failed_permanent = 0 AND cancelled = 0";

/// Whose jobs are counted together.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct CountKey {
    pub(super) kind: Arc<str>,
    pub(super) queue: Arc<str>,
}

impl CountKey {
    fn is_of(&self, lane: &Lane) -> bool {
        self.kind == lane.kind && self.queue == lane.queue
    }
}

/// How many more jobs there are, of each kind and queue that changed.
pub(super) type MovedCounts = HashMap<CountKey, PerStatus>;

/// What an open transaction has moved so far.
#[derive(Debug, Clone, Default)]
pub(super) struct Moved {
    /// Apart from the others: most jobs move right behind one of the same kind and queue, and finding the place by its hash
    /// was 1.5 % of a drain.
    newest: Option<(CountKey, PerStatus)>,
    others: MovedCounts,
}

impl Moved {
    pub(super) fn add(&mut self, lane: &Lane, from: Option<Status>, to: Option<Status>, count: i64) {
        if self.newest.as_ref().is_none_or(|(key, _)| !key.is_of(lane)) {
            self.put_newest_aside();
        }
        let key = || CountKey { kind: lane.kind.clone(), queue: lane.queue.clone() };
        let (_, moved) = self.newest.get_or_insert_with(|| (key(), PerStatus::default()));
        if let Some(from) = from {
            moved[from as usize] -= count;
        }
        if let Some(to) = to {
            moved[to as usize] += count;
        }
    }

    fn put_newest_aside(&mut self) {
        if let Some((key, by)) = self.newest.take() {
            add(self.others.entry(key).or_default(), &by);
        }
    }

    /// Writes it, a row for each kind and queue.
    pub(super) fn write(mut self, connection: &Connection) -> rusqlite::Result<MovedCounts> {
        self.put_newest_aside();
        let mut moved = self.others;
        moved.retain(|_, by| *by != PerStatus::default());
        let mut statement = connection.prepare_cached(ADD)?;
        for (CountKey { kind, queue }, by) in &moved {
            let [queued, running, retrying, succeeded, failed_permanent, cancelled] = by;
            statement.execute(params![
                kind,
                queue,
                queued,
                running,
                retrying,
                succeeded,
                failed_permanent,
                cancelled
            ])?;
            // Only a job that is deleted can have been the last one.
            if by.iter().sum::<i64>() < 0 {
                connection.prepare_cached(FORGET_EMPTY)?.execute(params![kind, queue])?;
            }
        }
        Ok(moved)
    }
}

pub(super) fn add(n: &mut PerStatus, by: &PerStatus) {
    n.iter_mut().zip(by).for_each(|(n, by)| *n += by);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::sqlite::queue_counts::SUMS;

    #[test]
    fn every_statement_names_the_statuses_in_the_order_in_which_they_are_counted() {
        for statement in [ADD, SUMS] {
            let places = Status::ALL.map(|status| statement.find(status.as_str()));
            assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{places:?} in {statement}");
        }
    }
}
