//! Series: statistics by minute and hour. See [`SeriesStore`].
//!
//! Written by each process for itself, apart from the jobs: what a crash takes is lost. Nothing here decides about jobs.

use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;

use super::StoreError;
use super::sealed::Sealed;
use crate::job::limits::{SERIES_HOURS_KEPT, SERIES_MINUTES_KEPT};
use crate::job::{Kind, QueueName, SeriesCounts, SeriesStep};

/// Verbs on series.
#[async_trait]
pub trait SeriesStore: Sealed {
    /// Records what a process has counted so far in these minutes. A row that is there already is replaced, so that a call
    /// that is repeated counts once.
    async fn write_series(&self, rows: Vec<SeriesRow>) -> Result<(), StoreError>;

    /// Reads rows of a span of time, oldest first, of every process apart. By hours, what is not rolled up yet comes as minutes.
    /// At most 200,000 rows, the newest.
    async fn series(&self, read: ReadSeries) -> Result<SeriesRead, StoreError>;

    /// Adds the minutes of the next hour up that has ended, and deletes what was kept long enough, a bounded number; answers
    /// whether there may be more to do.
    async fn prune_series(&self, prune: PruneSeries) -> Result<bool, StoreError>;
}

/// What one process counted in one minute; or all of them in one hour.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SeriesRow {
    /// When the minute or hour began.
    pub at: Timestamp,
    /// Of this queue; `None`: of all.
    pub queue: Option<QueueName>,
    /// Of this kind; `None`: of all.
    pub kind: Option<Kind>,
    /// Which process; 0: all of them.
    pub process: i64,
    /// What happened.
    pub counts: SeriesCounts,
}

impl SeriesRow {
    /// What `process` counted in the minute that began at `at`, over all queues and kinds.
    pub fn new(at: Timestamp, process: i64, counts: SeriesCounts) -> Self {
        Self { at, queue: None, kind: None, process, counts }
    }

    /// Only of this queue.
    pub fn queue(mut self, queue: impl Into<Option<QueueName>>) -> Self {
        self.queue = queue.into();
        self
    }

    /// Only of this kind.
    pub fn kind(mut self, kind: impl Into<Option<Kind>>) -> Self {
        self.kind = kind.into();
        self
    }

    /// Its queue as stored.
    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    pub(crate) fn stored_queue(&self) -> &str {
        self.queue.as_ref().map_or(ALL, QueueName::as_str)
    }

    /// Its kind as stored.
    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    pub(crate) fn stored_kind(&self) -> &str {
        self.kind.as_ref().map_or(ALL, Kind::as_str)
    }

    /// From columns of a row; a name that is none stands for all.
    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    pub(crate) fn stored(at: Timestamp, queue: &str, kind: &str, process: i64, counts: SeriesCounts) -> Self {
        Self { at, queue: QueueName::new(queue).ok(), kind: Kind::new(kind).ok(), process, counts }
    }
}

/// Stands for all queues or all kinds in a row: no name is like it.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) const ALL: &str = "*";

/// 200,000 rows are read in one call: a second or so, and some hundred megabytes of a process's memory at most.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) const SERIES_ROWS_MAX: usize = 200_000;

/// Which rows are read.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum SeriesOf {
    /// Over all queues and kinds.
    Total,
    /// Of one queue, over all kinds.
    Queue(QueueName),
    /// Of one kind, over all queues.
    Kind(Kind),
    /// Of one kind in one queue.
    KindInQueue(Kind, QueueName),
    /// Of each queue, over all kinds.
    EachQueue,
    /// Of each kind, over all queues.
    EachKind,
}

impl SeriesOf {
    /// Whether a row is meant.
    pub fn includes(&self, queue: Option<&QueueName>, kind: Option<&Kind>) -> bool {
        match self {
            Self::Total => queue.is_none() && kind.is_none(),
            Self::Queue(asked) => queue == Some(asked) && kind.is_none(),
            Self::Kind(asked) => queue.is_none() && kind == Some(asked),
            Self::KindInQueue(asked, of) => queue == Some(of) && kind == Some(asked),
            Self::EachQueue => queue.is_some() && kind.is_none(),
            Self::EachKind => queue.is_none() && kind.is_some(),
        }
    }

    /// Queue and kind as stored, where they are known; `None`: each.
    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    pub(crate) fn stored(&self) -> (Option<&str>, Option<&str>) {
        match self {
            Self::Total => (Some(ALL), Some(ALL)),
            Self::Queue(queue) => (Some(queue.as_str()), Some(ALL)),
            Self::Kind(kind) => (Some(ALL), Some(kind.as_str())),
            Self::KindInQueue(kind, queue) => (Some(queue.as_str()), Some(kind.as_str())),
            Self::EachQueue => (None, Some(ALL)),
            Self::EachKind => (Some(ALL), None),
        }
    }
}

/// Request of [`series`](SeriesStore::series).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReadSeries {
    /// Which rows.
    pub of: SeriesOf,
    /// By minutes or by hours.
    pub step: SeriesStep,
    /// From this time on …
    pub from: Timestamp,
    /// … and before this one; `None`: up to now.
    pub to: Option<Timestamp>,
}

impl ReadSeries {
    /// By minutes, from this time on.
    pub fn new(of: SeriesOf, from: Timestamp) -> Self {
        Self { of, step: SeriesStep::Minute, from, to: None }
    }

    /// By minutes or by hours.
    pub fn step(mut self, step: SeriesStep) -> Self {
        self.step = step;
        self
    }

    /// Only before this time.
    pub fn to(mut self, time: impl Into<Option<Timestamp>>) -> Self {
        self.to = time.into();
        self
    }
}

/// Answer of [`series`](SeriesStore::series).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SeriesRead {
    /// Oldest first.
    pub rows: Vec<SeriesRow>,
    /// The store's time.
    pub now: Timestamp,
}

/// Request of [`prune_series`](SeriesStore::prune_series).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct PruneSeries {
    /// How long minutes are kept.
    pub keep_minutes: Duration,
    /// How long hours are kept.
    pub keep_hours: Duration,
    /// At most this many rows are deleted.
    pub limit: usize,
}

impl PruneSeries {
    /// Keeps minutes for 48 hours and hours for 90 days; deletes at most `limit` rows.
    pub fn up_to(limit: usize) -> Self {
        Self { keep_minutes: SERIES_MINUTES_KEPT, keep_hours: SERIES_HOURS_KEPT, limit }
    }
}

/// Which hour is added up next: the one of the oldest minute that is in none yet, if it has ended long enough ago for every
/// process to have written what it counted.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) fn next_hour(oldest_minute: Option<Timestamp>, now: Timestamp) -> Option<(Timestamp, Timestamp)> {
    /// 10 min: sixty writes of 10 s.
    const SETTLED: jiff::SignedDuration = jiff::SignedDuration::from_mins(10);
    let from = SeriesStep::Hour.start_of(oldest_minute?);
    let to = from + jiff::SignedDuration::from_hours(1);
    (to + SETTLED <= now).then_some((from, to))
}

/// Minutes of all processes, added up for each queue and kind.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) fn added_up_to_hour(hour: Timestamp, minutes: Vec<SeriesRow>) -> Vec<SeriesRow> {
    let mut hours: std::collections::BTreeMap<(Option<QueueName>, Option<Kind>), SeriesCounts> = Default::default();
    for minute in minutes {
        hours.entry((minute.queue, minute.kind)).or_default().add(&minute.counts);
    }
    hours.into_iter().map(|((queue, kind), counts)| SeriesRow { at: hour, queue, kind, process: 0, counts }).collect()
}
