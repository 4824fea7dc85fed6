//! list: which jobs, in which order, from where on, and the page that answers it.

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::JobFilter;
use super::waiting_place::WaitingPlace;
use crate::job::limits::PAGE_MAX;
use crate::job::{JobId, JobRecord, Kind, QueueName, Status};

const WAITING: [Status; 2] = [Status::Queued, Status::Retrying];
#[cfg(any(feature = "postgres", feature = "sqlite"))]
const DEAD: [Status; 2] = [Status::FailedPermanent, Status::Cancelled];

/// In which order jobs are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Order {
    /// By id, the newest first.
    Newest,
    /// By id, the oldest first.
    Oldest,
    /// Only waiting jobs, in the order in which they will run: first those that are due, by priority, `run_at` and id;
    /// then the others, by `run_at`, priority and id; at last those that wait behind another of their strict group, group
    /// by group in the order of their enqueues. With more than 10,000 lanes (queue, kind, priority, group) that holds
    /// within each 10,000 of them.
    Next,
}

/// Request of [`list`](super::JobStore::list): a filter and the page.
///
/// ```
/// use steadfast::{Status, store::List};
///
/// let dead_letters = List::new().status(Status::FailedPermanent).limit(50);
/// # let _ = dead_letters;
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct List {
    /// Only these jobs.
    pub filter: JobFilter,
    /// `None`: [`Order::Next`] if only waiting jobs are asked for, else [`Order::Newest`].
    pub order: Option<Order>,
    /// Behind this place, from [`Page::next`] of a list with the same filter and order.
    pub cursor: Option<Cursor>,
    /// Skip this many matching jobs.
    pub offset: usize,
    /// At most this many jobs.
    pub limit: usize,
    /// At most this many bytes of payloads, results and errors, but one job at least.
    pub max_bytes: usize,
}

impl Default for List {
    /// All jobs, from the newest, a page of 200.
    fn default() -> Self {
        let filter = JobFilter::default();
        Self { filter, order: None, cursor: None, offset: 0, limit: PAGE_MAX, max_bytes: usize::MAX }
    }
}

impl List {
    /// All jobs, from the newest, a page of 200.
    pub fn new() -> Self {
        Self::default()
    }

    /// Lists only these jobs.
    pub fn filter(mut self, filter: JobFilter) -> Self {
        self.filter = filter;
        self
    }

    /// Lists only jobs of this status.
    pub fn status(mut self, status: impl Into<Option<Status>>) -> Self {
        self.filter.statuses = status.into().into_iter().collect();
        self
    }

    /// Lists only jobs of this kind.
    pub fn kind(mut self, kind: impl Into<Option<Kind>>) -> Self {
        self.filter.kinds = kind.into().into_iter().collect();
        self
    }

    /// Lists only jobs of this queue.
    pub fn queue(mut self, queue: impl Into<Option<QueueName>>) -> Self {
        self.filter.queues = queue.into().into_iter().collect();
        self
    }

    /// Lists in this order.
    pub fn order(mut self, order: impl Into<Option<Order>>) -> Self {
        self.order = order.into();
        self
    }

    /// Continues at a cursor; see [`Page::next`].
    pub fn cursor(mut self, cursor: impl Into<Option<Cursor>>) -> Self {
        self.cursor = cursor.into();
        self
    }

    /// Skips this many matching jobs.
    pub fn offset(mut self, jobs: usize) -> Self {
        self.offset = jobs;
        self
    }

    /// Lists at most this many jobs.
    pub fn limit(mut self, jobs: usize) -> Self {
        self.limit = jobs;
        self
    }

    /// Lists at most this many bytes of payloads, results and errors, but one job at least.
    pub fn max_bytes(mut self, bytes: usize) -> Self {
        self.max_bytes = bytes;
        self
    }

    /// The order that it comes to.
    pub fn resolved_order(&self) -> Order {
        let is_waiting = self.filter.only(&WAITING) && self.filter.error.is_none() && self.filter.worker.is_none();
        self.order.unwrap_or(if is_waiting { Order::Next } else { Order::Newest })
    }

    /// Whether the cursor is one of a list in this order.
    pub fn check_cursor(&self) -> Result<(), NotACursor> {
        let is_waiting = matches!(self.cursor, Some(Cursor(Place::Waiting(_))));
        match self.cursor.is_none() || is_waiting == (self.resolved_order() == Order::Next) {
            true => Ok(()),
            false => Err(NotACursor),
        }
    }

    /// Where to look.
    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    pub(crate) fn source(&self) -> Source {
        let filter = &self.filter;
        match self.resolved_order() {
            _ if filter.key.is_some() => Source::Key,
            Order::Next => Source::Waiting,
            _ if filter.error.is_some() => Source::ErrorGroup,
            _ if filter.worker.is_some() || filter.only(&[Status::Running]) => Source::Running,
            _ if filter.only(&DEAD) => Source::Dead,
            _ => Source::All,
        }
    }

    /// With what its order implies said: jobs in [`Order::Next`] wait. `None`: no job can match.
    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    pub(crate) fn explicit(mut self) -> Option<Self> {
        let statuses = &mut self.filter.statuses;
        if self.order == Some(Order::Next) {
            if statuses.is_empty() {
                *statuses = WAITING.to_vec();
            }
            statuses.retain(|status| WAITING.contains(status));
            return (!statuses.is_empty()).then_some(self);
        }
        Some(self)
    }
}

/// Where to look. What is rare has an index of its own; the rest is found by walking along the ids.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// Every job by id.
    All,
    /// `failed_permanent` and `cancelled`, by id.
    Dead,
    /// Those with the fingerprint of an error.
    ErrorGroup,
    /// The one with an idempotency key.
    Key,
    /// `running`: never more than the workers hold.
    Running,
    /// `queued` and `retrying`, next to run first.
    Waiting,
}

/// Answer of [`list`](super::JobStore::list): one page.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Page {
    /// In the order asked for.
    pub jobs: Vec<JobRecord>,
    /// The cursor of the next page. A page can be short, even empty, and have a next one: a call scans a bounded number of
    /// rows.
    pub next: Option<Cursor>,
    /// How many jobs were scanned.
    pub looked: usize,
    /// When the last of them was created; in [`Order::Next`] its `run_at`.
    pub looked_to: Option<Timestamp>,
}

impl Page {
    /// Nothing was looked at.
    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    pub(crate) fn empty() -> Self {
        Self { jobs: Vec::new(), next: None, looked: 0, looked_to: None }
    }
}

/// Where a page ended. Opaque: as text it can be given away and taken back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor(pub(crate) Place);

/// Behind what a page goes on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Place {
    /// A job, in the order of ids.
    Id(Uuid),
    /// A row of the file, in the order of enqueues.
    #[serde(rename = "r")]
    Row(i64),
    /// A place among the waiting jobs.
    #[serde(rename = "w")]
    Waiting(Box<WaitingPlace>),
}

impl From<JobId> for Cursor {
    /// Behind this job, in the order of ids.
    fn from(id: JobId) -> Self {
        Self(Place::Id(*id.as_uuid()))
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Place::Id(id) => write!(f, "{}", id.simple()),
            other => {
                let text = serde_json::to_vec(other).map_err(|_| fmt::Error)?;
                f.write_str("c")?;
                text.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }
    }
}

/// A text that is no [`Cursor`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("cursor is not one of ours: take it from the page before")]
pub struct NotACursor;

impl FromStr for Cursor {
    type Err = NotACursor;

    /// Exactly the form that is given out.
    fn from_str(text: &str) -> Result<Self, NotACursor> {
        if !text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
            return Err(NotACursor);
        }
        // An odd number of digits is one with the letter in front.
        let place = match text.strip_prefix('c').filter(|_| text.len() % 2 == 1) {
            Some(hex) => {
                let digits = hex.as_bytes().chunks(2);
                let byte =
                    |pair: &[u8]| std::str::from_utf8(pair).ok().and_then(|pair| u8::from_str_radix(pair, 16).ok());
                let bytes: Option<Vec<u8>> = digits.map(byte).collect();
                serde_json::from_slice(&bytes.ok_or(NotACursor)?).map_err(|_| NotACursor)?
            }
            None if text.len() == 32 => Place::Id(text.parse().map_err(|_| NotACursor)?),
            None => return Err(NotACursor),
        };
        Ok(Self(place))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::waiting_place::{LaneName, WaitingStage};

    #[test]
    fn a_cursor_is_the_same_there_and_back_and_nothing_else_is_one() {
        let lane = LaneName::Fair { queue: "q".into(), kind: "k".into(), priority: -3, group: "Größe \"1\"".into() };
        let stages = [
            WaitingStage::Due(None),
            WaitingStage::Later(Some((i64::MAX, -100, Uuid::max()))),
            WaitingStage::Behind(Some(("q".into(), "g".into(), 7))),
        ];
        let waiting = stages.map(|stage| {
            let place = WaitingPlace { as_of: 5, stage, from: Some(lane.clone()), to: None };
            Cursor(Place::Waiting(Box::new(place)))
        });
        for cursor in waiting.into_iter().chain([Cursor(Place::Row(9)), JobId::new().into()]) {
            assert_eq!(cursor.to_string().parse(), Ok(cursor));
        }
        for bad in ["", "c", "zz", "c7b", "c7b7d0", "0123", "CAFE", "\u{1F600}", &"a".repeat(33)] {
            assert_eq!(bad.parse::<Cursor>(), Err(NotACursor), "{bad}");
        }
    }

    #[test]
    fn waiting_jobs_are_listed_in_the_order_in_which_they_will_run_unless_another_is_asked_for() {
        assert_eq!(List::new().resolved_order(), Order::Newest);
        assert_eq!(List::new().status(Status::Queued).resolved_order(), Order::Next);
        let all = JobFilter::new().statuses(Status::ALL);
        assert_eq!(List::new().filter(all).resolved_order(), Order::Newest);
        assert_eq!(List::new().status(Status::Retrying).order(Order::Oldest).resolved_order(), Order::Oldest);
    }
}
