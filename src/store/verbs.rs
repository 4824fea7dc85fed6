//! What the verbs of [`JobStore`](super::JobStore) take and answer: one request struct per verb, each with a constructor
//! for what it always needs and setters for the rest.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Actor;
use crate::job::limits::{BATCH_MAX, PAGE_MAX, PAYLOAD_MAX_BYTES};
use crate::job::{
    AttemptOutcome, JobId, JobRecord, Kind, Lease, LeaseKey, Outcome, Progress, QueueName, Status, WorkerId,
};

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

/// Which jobs a worker wants.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Claim {
    /// Who is asking.
    pub worker: WorkerId,
    /// From these queues; `None`: from every queue. Paused ones are always left out.
    pub queues: Option<Vec<QueueName>>,
    /// Of these kinds; `None`: of every kind.
    pub kinds: Option<Vec<Kind>>,
    /// At most this many.
    pub max: usize,
    /// At most this many bytes of payload. The first job comes however large it is.
    pub max_bytes: usize,
    /// How long the leases last without a heartbeat.
    pub lease: Duration,
    /// Whether a power cut that loses this claim also ends the worker.
    pub fate: WorkerFate,
}

impl Claim {
    /// One job of any kind from any queue, for a worker that lives on when the store's machine dies.
    pub fn new(worker: WorkerId, lease: Duration) -> Self {
        let fate = WorkerFate::Independent;
        Self { worker, queues: None, kinds: None, max: 1, max_bytes: usize::MAX, lease, fate }
    }

    /// For another worker.
    pub fn worker(mut self, worker: WorkerId) -> Self {
        self.worker = worker;
        self
    }

    /// How long the leases last without a heartbeat.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// Only from these queues.
    pub fn queues(mut self, queues: impl Into<Option<Vec<QueueName>>>) -> Self {
        self.queues = queues.into();
        self
    }

    /// Only of these kinds.
    pub fn kinds(mut self, kinds: impl Into<Option<Vec<Kind>>>) -> Self {
        self.kinds = kinds.into();
        self
    }

    /// At most this many jobs.
    pub fn max(mut self, jobs: usize) -> Self {
        self.max = jobs;
        self
    }

    /// At most this many bytes of payload.
    pub fn max_bytes(mut self, bytes: usize) -> Self {
        self.max_bytes = bytes;
        self
    }

    /// What a power cut at the store means for the worker.
    pub fn fate(mut self, fate: WorkerFate) -> Self {
        self.fate = fate;
        self
    }

    /// Whether there may be more than these `jobs` with `bytes` of payload: as many as were asked for, or so large that
    /// another one may not have fitted in. Only a hint; asking again is what tells.
    pub(crate) fn is_full(&self, jobs: usize, bytes: impl FnOnce() -> usize) -> bool {
        jobs >= self.max || (jobs > 0 && bytes().saturating_add(PAYLOAD_MAX_BYTES) > self.max_bytes)
    }
}

/// Answer of claim.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Claimed {
    /// The jobs, best first.
    pub leases: Vec<Lease>,
    /// There may be more: worth asking again at once.
    pub more: bool,
    /// Worth asking again after this long, even if no wake comes: something is known to become startable then.
    pub look_again: Option<Duration>,
}

impl Claimed {
    /// What a claim has brought, and whether it was all there is.
    #[cfg_attr(not(any(feature = "sqlite", feature = "postgres")), expect(dead_code, reason = "only stores claim"))]
    pub(crate) fn of(claim: &Claim, leases: Vec<Lease>) -> Self {
        let bytes = || leases.iter().map(|lease| lease.job().payload.as_str().len()).sum();
        let more = claim.is_full(leases.len(), bytes);
        Self { leases, more, look_again: None }
    }
}

/// What a power cut at the store means for the worker that claims.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum WorkerFate {
    /// The worker runs on the store's own machine and dies with it: an unsynced claim may be forgotten, the job is
    /// simply still in the queue.
    Shared,
    /// The worker is elsewhere and lives on: the claim must be on stable storage before it starts.
    Independent,
}

/// Leases to be extended.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Extend {
    /// The leases.
    pub beats: Vec<Beat>,
    /// From now for this long; `None`: as long as each was claimed for.
    pub lease: Option<Duration>,
}

impl Extend {
    /// Each by as long as it was claimed for.
    pub fn new(beats: impl IntoIterator<Item = Beat>) -> Self {
        Self { beats: beats.into_iter().collect(), lease: None }
    }

    /// By this long from now.
    pub fn lease(mut self, lease: impl Into<Option<Duration>>) -> Self {
        self.lease = lease.into();
        self
    }
}

/// One lease's heartbeat.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Beat {
    /// Which lease.
    pub lease: LeaseKey,
    /// What the handler reported since the last one.
    pub progress: Option<Progress>,
}

impl Beat {
    /// Still at work.
    pub fn new(lease: LeaseKey) -> Self {
        Self { lease, progress: None }
    }

    /// And this far.
    pub fn progress(mut self, progress: impl Into<Option<Progress>>) -> Self {
        self.progress = progress.into();
        self
    }
}

/// Answer of extend, for one lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Extended {
    /// Go on.
    Ok,
    /// Go on holding it, but stop the work: cancellation was requested.
    Cancel,
    /// It is not yours any more. Nothing was changed.
    Lost,
}

/// How one attempt went.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Settle {
    /// Proof of the right to say so.
    pub lease: LeaseKey,
    /// How it went.
    pub outcome: Outcome,
}

impl Settle {
    /// The attempt with this lease went like this.
    pub fn new(lease: LeaseKey, outcome: Outcome) -> Self {
        Self { lease, outcome }
    }
}

/// Answer of settle, for one attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Settled {
    /// It is on record (now, or already was).
    Recorded,
    /// The lease had been lost, or the attempt ended otherwise. Nothing was changed.
    Lost,
}

/// How much to reap.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Reap {
    /// At most this many in one step.
    pub limit: usize,
}

impl Reap {
    /// At most this many leases in one step.
    pub fn up_to(limit: usize) -> Self {
        Self { limit }
    }
}

/// One reaped attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reaped {
    /// The job.
    pub job_id: JobId,
    /// Its kind.
    pub kind: Kind,
    /// Which attempt it was.
    pub attempt: u32,
    /// The worker that was not heard of.
    pub worker: WorkerId,
    /// Where the job is now.
    pub to: Status,
    /// What the attempt's record says.
    pub recorded: AttemptOutcome,
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
