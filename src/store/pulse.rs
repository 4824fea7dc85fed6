//! What an overview shows beside counts and workers: what is due, what is paused, and how the storage is. See [`PulseStore`].
//!
//! Nothing here is on a job's way, and everything is bounded however many jobs there are.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;

use super::sealed::Sealed;
use super::{Counts, StoreError};
use crate::job::{Kind, QueueName};

/// Verbs for overviews.
#[async_trait]
pub trait PulseStore: Sealed {
    /// Reads what is due by queue and kind, which queues are paused, and how the storage is. Looks at 10,000 lanes and counts
    /// 10,000 jobs of a lane, 50,000 or so in all.
    async fn pulse(&self) -> Result<PulseFacts, StoreError>;

    /// Counts jobs per kind and status, over all queues, of the first 2,000 kinds by name. The counts are kept with every
    /// change; no rows are counted.
    async fn kind_counts(&self) -> Result<BTreeMap<Kind, Counts>, StoreError>;
}

/// Answer of [`pulse`](PulseStore::pulse).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PulseFacts {
    /// The store's time.
    pub now: Timestamp,
    /// What is due, by queue and kind; also of queues that are paused.
    pub due: Vec<DueJobs>,
    /// The queues that are paused, the first 1,000.
    pub paused: BTreeMap<QueueName, PausedQueue>,
    /// The newest entry of the audit.
    pub audit_seq: Option<i64>,
    /// SQLite: how long the write-ahead log is, in bytes.
    pub log_bytes: Option<u64>,
    /// PostgreSQL: how long the oldest transaction has been open that keeps deleted rows from being removed, of those that can be
    /// seen.
    pub oldest_transaction: Option<Duration>,
}

impl PulseFacts {
    /// Nothing is due, nothing is paused.
    pub fn new(now: Timestamp) -> Self {
        let (due, paused) = (Vec::new(), BTreeMap::new());
        Self { now, due, paused, audit_seq: None, log_bytes: None, oldest_transaction: None }
    }
}

/// Who paused a queue, and when, as far as the audit knows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PausedQueue {
    /// When.
    pub at: Option<Timestamp>,
    /// The name of the token.
    pub by: Option<String>,
}

impl PausedQueue {
    /// Paused then, by a token of this name.
    pub fn new(at: impl Into<Option<Timestamp>>, by: impl Into<Option<String>>) -> Self {
        Self { at: at.into(), by: by.into() }
    }
}

/// Jobs of one kind in one queue that are due.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DueJobs {
    /// The queue.
    pub queue: QueueName,
    /// The kind.
    pub kind: Kind,
    /// How many were counted. Of a group of strict order, only the first unfinished job can be due.
    pub n: u64,
    /// There may be more.
    pub at_least: bool,
    /// Since when the oldest has been due.
    pub since: Timestamp,
}

impl DueJobs {
    /// These.
    pub fn new(queue: QueueName, kind: Kind, n: u64, since: Timestamp) -> Self {
        Self { queue, kind, n, at_least: false, since }
    }
}

/// 10,000 jobs of a lane are counted, …
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) const DUE_OF_LANE_MAX: u64 = 10_000;
/// … and 50,000 in all, some tens of milliseconds.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) const DUE_MAX: u64 = 50_000;
/// 10,000 lanes are looked at.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) const DUE_LANES_MAX: usize = 10_000;
/// 1,000 paused queues are shown.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) const PAUSED_MAX: usize = 1_000;
/// 2,000 kinds: twice as many as can be declared.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) const KIND_COUNTS_MAX: usize = 2_000;

/// Lanes of one queue and kind, added up.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) fn due_by_kind(lanes: impl IntoIterator<Item = DueJobs>) -> Vec<DueJobs> {
    let mut due: BTreeMap<(QueueName, Kind), DueJobs> = BTreeMap::new();
    for lane in lanes {
        match due.entry((lane.queue.clone(), lane.kind.clone())) {
            std::collections::btree_map::Entry::Vacant(place) => drop(place.insert(lane)),
            std::collections::btree_map::Entry::Occupied(mut place) => {
                let sum = place.get_mut();
                sum.n += lane.n;
                sum.at_least |= lane.at_least;
                sum.since = sum.since.min(lane.since);
            }
        }
    }
    due.into_values().collect()
}
