//! What the verbs of [`JobStore`](super::JobStore) for producers and operators take and answer. One request struct per
//! verb, with a constructor for what it always needs and setters for the rest.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Actor;
use crate::job::limits::{BATCH_MAX, PAGE_MAX};
use crate::job::{JobId, JobRecord, Kind, QueueName, Status};

/// Answer of enqueue.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Enqueued {
    /// `false`: the idempotency key was known, and `job` is the one it belongs to.
    pub created: bool,
    /// The job as stored.
    pub job: JobRecord,
}

/// What a known idempotency key belongs to.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "the common variant is the large one")]
#[non_exhaustive]
pub enum Known {
    /// The job that is asked for: enqueueing it again answers with this one.
    Same(JobRecord),
    /// A job of another kind or with another payload: enqueueing is refused.
    Other(JobId),
}

/// Jobs to be stopped.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Cancel {
    /// The jobs.
    pub ids: Vec<JobId>,
    /// On whose behalf.
    pub by: Option<Actor>,
}

impl Cancel {
    /// These jobs.
    pub fn new(ids: impl IntoIterator<Item = JobId>) -> Self {
        Self { ids: ids.into_iter().collect(), by: None }
    }

    /// On behalf of somebody.
    pub fn by(mut self, actor: Option<Actor>) -> Self {
        self.by = actor;
        self
    }
}

/// Answer of cancel, for one job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cancelled {
    /// It will not run.
    Now,
    /// It is running; its worker will be told.
    Requested,
    /// It had already ended like this.
    AlreadyFinished(Status),
    /// There is no such job.
    NotFound,
}

/// Jobs to be put back into the queue.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Redrive {
    /// The jobs.
    pub ids: Vec<JobId>,
    /// On whose behalf.
    pub by: Option<Actor>,
}

impl Redrive {
    /// These jobs.
    pub fn new(ids: impl IntoIterator<Item = JobId>) -> Self {
        Self { ids: ids.into_iter().collect(), by: None }
    }

    /// On behalf of somebody.
    pub fn by(mut self, actor: Option<Actor>) -> Self {
        self.by = actor;
        self
    }
}

/// Answer of redrive, for one job.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "the common variant is the large one")]
#[non_exhaustive]
pub enum Redriven {
    /// Back in the queue.
    Queued(JobRecord),
    /// Only a job that failed or was cancelled can be redriven; this one is elsewhere.
    NotDead(Status),
    /// There is no such job.
    NotFound,
}

/// Finished jobs to be removed.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Delete {
    /// The jobs.
    pub ids: Vec<JobId>,
    /// On whose behalf.
    pub by: Option<Actor>,
}

impl Delete {
    /// These jobs.
    pub fn new(ids: impl IntoIterator<Item = JobId>) -> Self {
        Self { ids: ids.into_iter().collect(), by: None }
    }

    /// On behalf of somebody.
    pub fn by(mut self, actor: Option<Actor>) -> Self {
        self.by = actor;
        self
    }
}

/// Answer of delete, for one job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Deleted {
    /// Gone.
    Gone,
    /// Only finished jobs can be deleted.
    NotFinished(Status),
    /// There is no such job.
    NotFound,
}

/// How long finished jobs are kept.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Prune {
    /// After their success.
    pub keep_succeeded: Duration,
    /// After their cancellation.
    pub keep_cancelled: Duration,
    /// After their failure.
    pub keep_failed: Duration,
    /// Look at jobs after this one; `None`: from the oldest.
    pub after: Option<JobId>,
    /// Look at no more than this many in one step.
    pub limit: usize,
}

impl Prune {
    /// Finished jobs are kept for this long, whatever their end was; one step looks at 1,000 jobs, from the oldest.
    pub fn keeping(time: Duration) -> Self {
        Self { keep_succeeded: time, keep_cancelled: time, keep_failed: time, after: None, limit: BATCH_MAX }
    }

    /// How long jobs that succeeded are kept.
    pub fn succeeded(mut self, time: Duration) -> Self {
        self.keep_succeeded = time;
        self
    }

    /// How long cancelled jobs are kept.
    pub fn cancelled(mut self, time: Duration) -> Self {
        self.keep_cancelled = time;
        self
    }

    /// How long jobs that failed for good are kept.
    pub fn failed(mut self, time: Duration) -> Self {
        self.keep_failed = time;
        self
    }

    /// Goes on behind this job; see [`Pruned::next`].
    pub fn after(mut self, job: impl Into<Option<JobId>>) -> Self {
        self.after = job.into();
        self
    }

    /// Looks at no more than this many jobs in one step.
    pub fn limit(mut self, jobs: usize) -> Self {
        self.limit = jobs;
        self
    }
}

/// Answer of prune.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pruned {
    /// How many are gone.
    pub deleted: usize,
    /// Where to go on; `None`: everything old enough has been looked at.
    pub next: Option<JobId>,
}

/// Which jobs to list.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct List {
    /// Only in this status.
    pub status: Option<Status>,
    /// Only of this kind.
    pub kind: Option<Kind>,
    /// Only in this queue.
    pub queue: Option<QueueName>,
    /// Only jobs older than this one: where the page before ended.
    pub before: Option<JobId>,
    /// Leave out this many first.
    pub offset: usize,
    /// At most this many.
    pub limit: usize,
}

impl Default for List {
    /// All jobs, from the newest, a page of 200.
    fn default() -> Self {
        Self { status: None, kind: None, queue: None, before: None, offset: 0, limit: PAGE_MAX }
    }
}

impl List {
    /// All jobs, from the newest, a page of 200.
    pub fn new() -> Self {
        Self::default()
    }

    /// Only in this status.
    pub fn status(mut self, status: impl Into<Option<Status>>) -> Self {
        self.status = status.into();
        self
    }

    /// Only of this kind.
    pub fn kind(mut self, kind: impl Into<Option<Kind>>) -> Self {
        self.kind = kind.into();
        self
    }

    /// Only in this queue.
    pub fn queue(mut self, queue: impl Into<Option<QueueName>>) -> Self {
        self.queue = queue.into();
        self
    }

    /// Goes on where the page before ended; see [`Page::next`].
    pub fn before(mut self, job: impl Into<Option<JobId>>) -> Self {
        self.before = job.into();
        self
    }

    /// Leaves out this many first.
    pub fn offset(mut self, jobs: usize) -> Self {
        self.offset = jobs;
        self
    }

    /// At most this many.
    pub fn limit(mut self, jobs: usize) -> Self {
        self.limit = jobs;
        self
    }
}

/// One page of a listing.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Page {
    /// Newest first.
    pub jobs: Vec<JobRecord>,
    /// Where the next page begins. A page can be short, even empty, and have a next: the store had looked at as many
    /// rows as it may in one go without finding more that match.
    pub next: Option<JobId>,
}

/// Jobs per status.
pub type Counts = BTreeMap<Status, u64>;

/// Answer of stats.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Every queue that has jobs or was paused.
    pub queues: BTreeMap<QueueName, QueueStats>,
}

/// One queue.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueStats {
    /// Nothing of it is claimed.
    pub paused: bool,
    /// Jobs per status; statuses without any are left out.
    pub counts: Counts,
    /// How long the longest-waiting due job has been due.
    pub oldest_ready: Option<Duration>,
}
