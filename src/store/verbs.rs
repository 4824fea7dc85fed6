//! What the verbs of [`Store`](super::Store) take and answer: one request struct per verb.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::job::limits::PAYLOAD_MAX_BYTES;
use crate::job::{AttemptOutcome, JobId, JobRecord, Kind, LeaseKey, Outcome, Progress, QueueName, Status, WorkerId};

/// Answer of enqueue.
#[derive(Debug, Clone, PartialEq)]
pub struct Enqueued {
    /// `false`: the idempotency key was known, and `job` is the one it belongs to.
    pub created: bool,
    /// The job as stored.
    pub job: JobRecord,
}

/// What a known idempotency key belongs to.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "the common variant is the large one")]
pub enum Known {
    /// The job that is asked for: enqueueing it again answers with this one.
    Same(JobRecord),
    /// A job of another kind or with another payload: enqueueing is refused.
    Other(JobId),
}

/// Which jobs a worker wants.
#[derive(Debug, Clone)]
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
    /// Whether there may be more than these `jobs` with `bytes` of payload: as many as were asked for, or so large that
    /// another one may not have fitted in. Only a hint; asking again is what tells.
    pub fn is_full(&self, jobs: usize, bytes: impl FnOnce() -> usize) -> bool {
        jobs >= self.max || (jobs > 0 && bytes().saturating_add(PAYLOAD_MAX_BYTES) > self.max_bytes)
    }
}

/// What a power cut at the store means for the worker that claims.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkerFate {
    /// The worker runs on the store's own machine and dies with it: an unsynced claim may be forgotten, the job is
    /// simply still in the queue.
    Shared,
    /// The worker is elsewhere and lives on: the claim must be on stable storage before it starts.
    Independent,
}

/// Leases to be extended.
#[derive(Debug, Clone)]
pub struct Extend {
    /// The leases.
    pub beats: Vec<Beat>,
    /// From now for this long; `None`: as long as each was claimed for.
    pub lease: Option<Duration>,
}

/// One lease's heartbeat.
#[derive(Debug, Clone)]
pub struct Beat {
    /// Which lease.
    pub lease: LeaseKey,
    /// What the handler reported since the last one.
    pub progress: Option<Progress>,
}

/// Answer of extend, for one lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
pub struct Settle {
    /// Proof of the right to say so.
    pub lease: LeaseKey,
    /// How it went.
    pub outcome: Outcome,
}

/// Answer of settle, for one attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settled {
    /// It is on record (now, or already was).
    Recorded,
    /// The lease had been lost, or the attempt ended otherwise. Nothing was changed.
    Lost,
}

/// How much to reap.
#[derive(Debug, Clone, Copy)]
pub struct Reap {
    /// At most this many in one step.
    pub limit: usize,
}

/// One reaped attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
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

/// Answer of cancel, for one job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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

/// Answer of redrive, for one job.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "the common variant is the large one")]
pub enum Redriven {
    /// Back in the queue.
    Queued(JobRecord),
    /// Only a job that failed or was cancelled can be redriven; this one is elsewhere.
    NotDead(Status),
    /// There is no such job.
    NotFound,
}

/// Answer of delete, for one job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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

/// Answer of prune.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pruned {
    /// How many are gone.
    pub deleted: usize,
    /// Where to go on; `None`: everything old enough has been looked at.
    pub next: Option<JobId>,
}

/// Which jobs to list.
#[derive(Debug, Clone, Default)]
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

/// One page of a listing.
#[derive(Debug, Clone, PartialEq)]
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
pub struct Stats {
    /// Every queue that has jobs or was paused.
    pub queues: BTreeMap<QueueName, QueueStats>,
}

/// One queue.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QueueStats {
    /// Nothing of it is claimed.
    pub paused: bool,
    /// Jobs per status; statuses without any are left out.
    pub counts: Counts,
    /// How long the longest-waiting due job has been due.
    pub oldest_ready: Option<Duration>,
}
