//! Requests and answers of the verbs of [`JobStore`](super::JobStore) for producers and operators. A request has a
//! constructor for what is required and setters for the rest.

use std::time::Duration;

use super::Actor;
use super::actor::operator_request;
use crate::job::limits::BATCH_MAX;
use crate::job::{JobId, JobRecord, Status};

/// Answer of [`enqueue`](super::JobStore::enqueue), for one job.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Enqueued {
    /// `false`: the idempotency key or the unique key is that of `job`, which was enqueued before.
    pub created: bool,
    /// The unique key is that of `job`, which waits and has taken the payload, priority and start of this one.
    pub replaced: bool,
    /// The job as stored.
    pub job: JobRecord,
}

impl Enqueued {
    /// A job that was stored, or one that was there.
    pub(crate) fn new(created: bool, job: JobRecord) -> Self {
        Self { created, replaced: false, job }
    }

    /// A waiting job that has taken the payload of another.
    #[cfg(any(feature = "sqlite", feature = "postgres"))]
    pub(crate) fn replaced(job: JobRecord) -> Self {
        Self { created: false, replaced: true, job }
    }
}

/// The job that has an idempotency key already: the answer of [`known`](super::JobStore::known), for one job.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "the common variant is the large one")]
#[non_exhaustive]
pub enum Known {
    /// A job of the same kind and payload: enqueueing answers with it.
    Same(JobRecord),
    /// A job of another kind or with another payload: enqueueing is refused.
    Other(JobId),
}

operator_request! {
    /// Request of [`cancel`](super::JobStore::cancel).
    Cancel {
        /// The jobs' ids.
        ids: Vec<JobId>
    }
    /// Cancels these jobs.
    new(ids: impl IntoIterator<Item = JobId>) -> ids.into_iter().collect();
}

/// Answer of [`cancel`](super::JobStore::cancel), for one job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cancelled {
    /// It waited, and is cancelled.
    Now,
    /// It is running; its handler will be told to stop.
    Requested,
    /// It had finished already, with this status.
    AlreadyFinished(Status),
    /// There is no such job.
    NotFound,
}

operator_request! {
    /// Request of [`redrive`](super::JobStore::redrive).
    Redrive {
        /// The jobs' ids.
        ids: Vec<JobId>
    }
    /// Redrives these jobs.
    new(ids: impl IntoIterator<Item = JobId>) -> ids.into_iter().collect();
}

/// Answer of [`redrive`](super::JobStore::redrive), for one job.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "the common variant is the large one")]
#[non_exhaustive]
pub enum Redriven {
    /// It is back in the queue.
    Queued(JobRecord),
    /// It has this status; only jobs that failed permanently or were cancelled can be redriven.
    NotDead(Status),
    /// There is no such job.
    NotFound,
}

operator_request! {
    /// Request of [`delete`](super::JobStore::delete).
    Delete {
        /// The jobs' ids.
        ids: Vec<JobId>
    }
    /// Deletes these jobs.
    new(ids: impl IntoIterator<Item = JobId>) -> ids.into_iter().collect();
}

/// Answer of [`delete`](super::JobStore::delete), for one job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Deleted {
    /// It is deleted.
    Gone,
    /// It has this status; only finished jobs can be deleted.
    NotFinished(Status),
    /// There is no such job.
    NotFound,
}

/// Request of [`prune`](super::JobStore::prune): how long finished jobs are kept.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Prune {
    /// How long succeeded jobs are kept.
    pub keep_succeeded: Duration,
    /// How long cancelled jobs are kept.
    pub keep_cancelled: Duration,
    /// How long permanently failed jobs are kept.
    pub keep_failed: Duration,
    /// Start behind this job; `None`: at the oldest.
    pub after: Option<JobId>,
    /// Scan at most this many jobs.
    pub limit: usize,
}

impl Prune {
    /// Keeps finished jobs of every status this long; scans 1,000 jobs, from the oldest.
    pub fn keeping(time: Duration) -> Self {
        Self { keep_succeeded: time, keep_cancelled: time, keep_failed: time, after: None, limit: BATCH_MAX }
    }

    /// Sets how long succeeded jobs are kept.
    pub fn succeeded(mut self, time: Duration) -> Self {
        self.keep_succeeded = time;
        self
    }

    /// Sets how long cancelled jobs are kept.
    pub fn cancelled(mut self, time: Duration) -> Self {
        self.keep_cancelled = time;
        self
    }

    /// Sets how long permanently failed jobs are kept.
    pub fn failed(mut self, time: Duration) -> Self {
        self.keep_failed = time;
        self
    }

    /// Starts behind this job; see [`Pruned::next`].
    pub fn after(mut self, job: impl Into<Option<JobId>>) -> Self {
        self.after = job.into();
        self
    }

    /// Scans at most this many jobs.
    pub fn limit(mut self, jobs: usize) -> Self {
        self.limit = jobs;
        self
    }
}

/// Answer of [`prune`](super::JobStore::prune).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pruned {
    /// How many jobs were deleted.
    pub deleted: usize,
    /// Where to continue; `None`: every job that is old enough has been scanned.
    pub next: Option<JobId>,
}
