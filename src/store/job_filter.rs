//! Which jobs are meant: the filter of lists, and of everything else that takes jobs by what they are.

use jiff::Timestamp;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
use uuid::Uuid;

use crate::job::{GroupKey, Kind, QueueName, Status, WorkerId};

/// Which jobs are meant. Empty lists and `None` leave a job as it is; what is said must all hold.
///
/// ```
/// use steadfast::{Status, store::JobFilter};
///
/// let dead_letters = JobFilter::new().statuses([Status::FailedPermanent, Status::Cancelled]);
/// # let _ = dead_letters;
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct JobFilter {
    /// In one of these statuses.
    pub statuses: Vec<Status>,
    /// Of one of these kinds.
    pub kinds: Vec<Kind>,
    /// In one of these queues.
    pub queues: Vec<QueueName>,
    /// Running on this worker.
    pub worker: Option<WorkerId>,
    /// In this group of their queue.
    pub group: Option<GroupKey>,
    /// Ended by an error with this fingerprint.
    pub error: Option<i64>,
    /// With this idempotency key.
    pub key: Option<String>,
    /// Created then or later, by the millisecond in the job's id: the clock of the process that accepted it.
    pub created_after: Option<Timestamp>,
    /// Created before that, by the same clock.
    pub created_before: Option<Timestamp>,
    /// Finished then or later.
    pub finished_after: Option<Timestamp>,
    /// Finished before that.
    pub finished_before: Option<Timestamp>,
}

impl JobFilter {
    /// Every job.
    pub fn new() -> Self {
        Self::default()
    }

    /// In one of these statuses.
    pub fn statuses(mut self, statuses: impl IntoIterator<Item = Status>) -> Self {
        self.statuses = statuses.into_iter().collect();
        self
    }

    /// Of one of these kinds.
    pub fn kinds(mut self, kinds: impl IntoIterator<Item = Kind>) -> Self {
        self.kinds = kinds.into_iter().collect();
        self
    }

    /// In one of these queues.
    pub fn queues(mut self, queues: impl IntoIterator<Item = QueueName>) -> Self {
        self.queues = queues.into_iter().collect();
        self
    }

    /// Running on this worker.
    pub fn worker(mut self, worker: impl Into<Option<WorkerId>>) -> Self {
        self.worker = worker.into();
        self
    }

    /// In this group of their queue.
    pub fn group(mut self, group: impl Into<Option<GroupKey>>) -> Self {
        self.group = group.into();
        self
    }

    /// Ended by an error with this fingerprint.
    pub fn error(mut self, fingerprint: impl Into<Option<i64>>) -> Self {
        self.error = fingerprint.into();
        self
    }

    /// With this idempotency key.
    pub fn key(mut self, key: impl Into<Option<String>>) -> Self {
        self.key = key.into();
        self
    }

    /// Created then or later.
    pub fn created_after(mut self, time: impl Into<Option<Timestamp>>) -> Self {
        self.created_after = time.into();
        self
    }

    /// Created before that.
    pub fn created_before(mut self, time: impl Into<Option<Timestamp>>) -> Self {
        self.created_before = time.into();
        self
    }

    /// Finished then or later.
    pub fn finished_after(mut self, time: impl Into<Option<Timestamp>>) -> Self {
        self.finished_after = time.into();
        self
    }

    /// Finished before that.
    pub fn finished_before(mut self, time: impl Into<Option<Timestamp>>) -> Self {
        self.finished_before = time.into();
        self
    }

    /// Whether statuses are named and all of them are among these.
    pub(crate) fn only(&self, statuses: &[Status]) -> bool {
        !self.statuses.is_empty() && self.statuses.iter().all(|status| statuses.contains(status))
    }

    /// Whether nothing but the time of creation is asked for: then every row of a range of ids matches.
    #[cfg(feature = "postgres")]
    pub(crate) fn is_a_range(&self) -> bool {
        let range = Self { created_after: self.created_after, created_before: self.created_before, ..Self::default() };
        *self == range
    }

    /// The ids it allows: from the first on, up to the second.
    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    pub(crate) fn ids(&self) -> (Uuid, Uuid) {
        (self.created_after.map_or(Uuid::nil(), first_id), self.created_before.map_or(Uuid::max(), first_id))
    }
}

/// Below every id of this millisecond and later ones, above all earlier ones. A part of a millisecond counts as the next.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
fn first_id(time: Timestamp) -> Uuid {
    // 48 bits: until the year 10889.
    let ms = time.as_microsecond().max(0).unsigned_abs().div_ceil(1000).min((1 << 48) - 1);
    Uuid::from_u128(u128::from(ms) << 80)
}

#[cfg(all(test, any(feature = "postgres", feature = "sqlite")))]
mod tests {
    use super::*;

    #[test]
    fn ids_are_within_the_millisecond_that_they_were_made_in() {
        let at = |us: i64| Timestamp::from_microsecond(us).unwrap();
        let id = Uuid::from_u128((1_000_u128 << 80) | (7 << 76) | (1 << 63));
        let matches = |after: i64, before: i64| {
            let (first, end) = JobFilter::new().created_after(at(after)).created_before(at(before)).ids();
            first <= id && id < end
        };
        assert!(matches(1_000_000, 1_000_001) && matches(999_001, 1_001_000));
        assert!(!matches(1_000_001, 2_000_000) && !matches(0, 1_000_000));
        assert_eq!(JobFilter::new().created_after(at(-5)).ids(), (Uuid::nil(), Uuid::max()));
    }
}
