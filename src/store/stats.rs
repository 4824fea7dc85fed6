//! Request and answer of [`stats`](super::JobStore::stats): counts per queue, a page at a time, and over all queues.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::job::limits::QUEUES_PAGE_DEFAULT;
use crate::job::{QueueName, Status};

/// Number of jobs per status.
pub type Counts = BTreeMap<Status, u64>;

/// Request of [`stats`](super::JobStore::stats): which queues, and the page.
///
/// ```
/// use steadfast::store::StatsRequest;
///
/// let first = StatsRequest::new().limit(50);
/// # let _ = first;
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct StatsRequest {
    /// Only these queues; `None`: every queue.
    pub only: Option<Vec<QueueName>>,
    /// Only queues behind this one, by name: the cursor, from [`Stats::next`].
    pub after: Option<QueueName>,
    /// At most this many queues. With 0 the answer has only what is over all queues.
    pub limit: usize,
    /// Whether to look up how long the oldest due job of each queue has waited.
    pub ages: bool,
}

impl Default for StatsRequest {
    /// Every queue, by name, a page of 200.
    fn default() -> Self {
        Self { only: None, after: None, limit: QUEUES_PAGE_DEFAULT, ages: true }
    }
}

impl StatsRequest {
    /// Every queue, by name, a page of 200.
    pub fn new() -> Self {
        Self::default()
    }

    /// Only these queues. Costs as much as they do, however many others there are.
    pub fn of(queues: impl IntoIterator<Item = QueueName>) -> Self {
        let only: Vec<_> = queues.into_iter().collect();
        Self { limit: only.len(), only: Some(only), ..Self::default() }
    }

    /// Continues at a cursor; see [`Stats::next`].
    pub fn after(mut self, queue: impl Into<Option<QueueName>>) -> Self {
        self.after = queue.into();
        self
    }

    /// Answers with at most this many queues.
    pub fn limit(mut self, queues: usize) -> Self {
        self.limit = queues;
        self
    }

    /// Leaves out [`QueueStats::oldest_ready`]: the counts alone are cheaper.
    pub fn without_ages(mut self) -> Self {
        self.ages = false;
        self
    }
}

/// Answer of [`stats`](super::JobStore::stats): one page of queues, and what is over all of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// The page: queues that have jobs or are paused.
    pub queues: BTreeMap<QueueName, QueueStats>,
    /// Number of jobs per status over all queues that were asked for, on whichever page.
    pub totals: Counts,
    /// The cursor of the next page; `None`: this is the last. A page can be short, even empty, and have a next one: a call
    /// reads a bounded number of rows, also of queues that are gone.
    pub next: Option<QueueName>,
}

/// Counts and state of one queue.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueStats {
    /// Whether it is paused: none of its jobs is claimed.
    pub paused: bool,
    /// Number of jobs per status; statuses without jobs are left out.
    pub counts: Counts,
    /// How long the oldest due job has waited. Of a strict group only the first unfinished job counts, if it waits.
    /// Of a page with more than 10,000 lanes (queue, kind and priority), only the first lanes of each queue are looked
    /// at.
    pub oldest_ready: Option<Duration>,
}
