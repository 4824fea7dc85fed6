//! Jobs per queue and status, summed over kinds: what `stats` answers from, so that it costs the same however many kinds
//! there are.
//!
//! The file has the counts by kind and queue. They are summed once, when it is opened; from then on every commit adds what
//! it moved. Nothing is decided here, and without it the sums are read from the file with the same result, only slower.
//! After every commit they are exactly what the file has; debug builds check that.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rusqlite::Connection;

use super::counts::{PerStatus, add};
use crate::job::{QueueName, Status};
use crate::store::{Counts, QueueStats};

// The columns in the order of `Status::ALL`; a test in `counts` holds them to it.
pub(super) const SUMS: &str = "
-- stats: the counts of every queue, over all kinds
SELECT queue, sum(queued), sum(running), sum(retrying), sum(succeeded), sum(failed_permanent), sum(cancelled)
FROM counts GROUP BY queue";

/// The counts of every queue.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct QueueCounts {
    /// By the name in the rows, which need not be valid.
    queues: BTreeMap<Arc<str>, PerStatus>,
    totals: PerStatus,
}

impl QueueCounts {
    fn read(connection: &Connection) -> rusqlite::Result<Self> {
        let mut counts = Self::default();
        let mut statement = connection.prepare(SUMS)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let mut n = PerStatus::default();
            for (index, n) in n.iter_mut().enumerate() {
                *n = row.get(index + 1)?;
            }
            counts.add(&row.get(0)?, &n);
        }
        Ok(counts)
    }

    fn add(&mut self, queue: &Arc<str>, by: &PerStatus) {
        add(&mut self.totals, by);
        let known = self.queues.entry(queue.clone()).or_default();
        add(known, by);
        if *known == PerStatus::default() {
            self.queues.remove(queue);
        }
    }

    /// The queues behind this name that have jobs, by name.
    pub(super) fn behind(&self, after: &str) -> impl Iterator<Item = (QueueName, QueueStats)> {
        let queues = self.queues.range::<str, _>((Bound::Excluded(after), Bound::Unbounded));
        queues.filter_map(|(name, n)| {
            let counts = positive(n);
            if counts.is_empty() {
                return None;
            }
            Some((QueueName::new(name).ok()?, QueueStats { counts, ..QueueStats::default() }))
        })
    }

    /// The counts of one queue.
    pub(super) fn of(&self, queue: &QueueName) -> Counts {
        self.queues.get(queue.as_str()).map(positive).unwrap_or_default()
    }

    /// The counts over all queues.
    pub(super) fn totals(&self) -> Counts {
        positive(&self.totals)
    }
}

fn positive(n: &PerStatus) -> Counts {
    Status::ALL.into_iter().zip(n).filter(|(_, n)| **n > 0).map(|(status, n)| (status, *n as u64)).collect()
}

/// The writer adds, readers read. `None`: the file could not be read when it was opened.
#[derive(Debug, Clone)]
pub(super) struct SharedCounts(Arc<Mutex<Option<QueueCounts>>>);

impl SharedCounts {
    /// Before anything is written through this connection.
    pub(super) fn read(connection: &Connection) -> Self {
        let read = QueueCounts::read(connection);
        if let Err(error) = &read {
            tracing::error!(%error, "cannot read the counts of jobs; every look at them tries again");
        }
        Self(Arc::new(Mutex::new(read.ok())))
    }

    /// Answers from the counts as of the last commit.
    pub(super) fn with<T>(
        &self,
        connection: &Connection,
        answer: impl FnOnce(&QueueCounts) -> T,
    ) -> rusqlite::Result<T> {
        if let Some(counts) = &*self.lock() {
            return Ok(answer(counts));
        }
        Ok(answer(&QueueCounts::read(connection)?))
    }

    /// What a commit has moved, one entry for each kind and queue.
    pub(super) fn add<'m>(&self, moved: impl IntoIterator<Item = (&'m Arc<str>, &'m PerStatus)>) {
        if let Some(counts) = &mut *self.lock() {
            moved.into_iter().for_each(|(queue, by)| counts.add(queue, by));
        }
    }

    /// In debug builds, after a commit: it is exactly what the file has.
    pub(super) fn debug_check(&self, connection: &Connection) {
        if !cfg!(debug_assertions) {
            return;
        }
        // What cannot be read now says nothing about the sums.
        if let Some(known) = self.lock().as_ref().filter(|known| known.queues.len() <= CHECKED_MAX)
            && let Ok(in_file) = QueueCounts::read(connection)
        {
            assert_eq!(*known, in_file, "known, and in the file");
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<QueueCounts>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// 64 queues: debug builds check up to so many after every commit.
const CHECKED_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_whose_jobs_are_gone_is_forgotten_and_the_totals_follow() {
        let (mut counts, queue) = (QueueCounts::default(), Arc::from("mail"));
        counts.add(&queue, &[2, 0, 0, 0, 0, 0]);
        counts.add(&queue, &[-2, 1, 0, 0, 0, 1]);
        assert_eq!(counts.totals(), Counts::from([(Status::Running, 1), (Status::Cancelled, 1)]));
        counts.add(&queue, &[0, -1, 0, 0, 0, -1]);
        assert_eq!(counts, QueueCounts::default());
    }
}
