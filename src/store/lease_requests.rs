//! Requests and answers of the verbs of [`JobStore`](super::JobStore) for workers: claim, extend, settle, reap.

use std::time::Duration;

use crate::job::limits::PAYLOAD_MAX_BYTES;
use crate::job::{AttemptOutcome, JobId, Kind, Lease, LeaseKey, Outcome, Progress, QueueName, Status, WorkerId};

/// Request of [`claim`](super::JobStore::claim): which jobs, and how many.
///
/// ```
/// use std::time::Duration;
/// use steadfast::{job::{Kind, WorkerId}, store::Claim};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let claim = Claim::new(WorkerId::random("mailer"), Duration::from_secs(30))
///     .kinds(vec![Kind::new("welcome")?])
///     .max(10);
/// # let _ = claim;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Claim {
    /// The worker that will hold the leases.
    pub worker: WorkerId,
    /// Only jobs of these queues; `None`: of every queue. Paused queues are always left out.
    pub queues: Option<Vec<QueueName>>,
    /// Only jobs of these kinds; `None`: of every kind.
    pub kinds: Option<Vec<Kind>>,
    /// At most this many jobs.
    pub max: usize,
    /// How many of `max` are prefetch. Jobs with a limit fill only the rest: a lease in a buffer uses up a place.
    pub ahead: usize,
    /// At most this many bytes of payload in all. The first job is claimed whatever its size.
    pub max_bytes: usize,
    /// How long the leases last without a heartbeat.
    pub lease: Duration,
    /// Whether a power cut at the store ends the worker, too.
    pub fate: WorkerFate,
}

impl Claim {
    /// Claims one job of any kind from any queue, for a worker on another machine ([`WorkerFate::Independent`]).
    pub fn new(worker: WorkerId, lease: Duration) -> Self {
        let fate = WorkerFate::Independent;
        Self { worker, queues: None, kinds: None, max: 1, ahead: 0, max_bytes: usize::MAX, lease, fate }
    }

    /// Sets the worker.
    pub fn worker(mut self, worker: WorkerId) -> Self {
        self.worker = worker;
        self
    }

    /// Sets how long the leases last without a heartbeat.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// Claims only jobs of these queues.
    pub fn queues(mut self, queues: impl Into<Option<Vec<QueueName>>>) -> Self {
        self.queues = queues.into();
        self
    }

    /// Claims only jobs of these kinds.
    pub fn kinds(mut self, kinds: impl Into<Option<Vec<Kind>>>) -> Self {
        self.kinds = kinds.into();
        self
    }

    /// Claims at most this many jobs.
    pub fn max(mut self, jobs: usize) -> Self {
        self.max = jobs;
        self
    }

    /// Sets how many of the jobs are prefetch.
    pub fn ahead(mut self, jobs: usize) -> Self {
        self.ahead = jobs;
        self
    }

    /// Claims at most this many bytes of payload.
    pub fn max_bytes(mut self, bytes: usize) -> Self {
        self.max_bytes = bytes;
        self
    }

    /// Sets whether a power cut at the store ends the worker, too.
    pub fn fate(mut self, fate: WorkerFate) -> Self {
        self.fate = fate;
        self
    }

    /// Whether there may be more than these `jobs` with `bytes` of payload: as many as requested, or so large that another
    /// one may not have fitted. Only a hint.
    pub(crate) fn is_full(&self, jobs: usize, bytes: impl FnOnce() -> usize) -> bool {
        jobs >= self.max || (jobs > 0 && bytes().saturating_add(PAYLOAD_MAX_BYTES) > self.max_bytes)
    }
}

/// Answer of [`claim`](super::JobStore::claim).
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Claimed {
    /// The claimed jobs, highest priority first.
    pub leases: Vec<Lease>,
    /// There may be more jobs: claim again at once.
    pub more: bool,
    /// Claim again after this long, even without a wake: a job is known to become startable then.
    pub look_again: Option<Duration>,
    /// Jobs with a limit were left because of [`Claim::ahead`]: claim again when there is a free slot.
    pub left_ahead: bool,
}

impl Claimed {
    /// These leases, with `more` as far as it follows from the request.
    #[cfg_attr(not(any(feature = "sqlite", feature = "postgres")), expect(dead_code, reason = "only stores claim"))]
    pub(crate) fn of(claim: &Claim, leases: Vec<Lease>) -> Self {
        let bytes = || leases.iter().map(|lease| lease.job().payload.as_str().len()).sum();
        let more = claim.is_full(leases.len(), bytes);
        Self { leases, more, look_again: None, left_ahead: false }
    }
}

/// Whether a power cut at the store also ends the worker: decides whether a claim must be synced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum WorkerFate {
    /// The worker runs on the store's machine and dies with it: a claim that was not synced may be lost, and the job is
    /// still in the queue.
    Shared,
    /// The worker runs elsewhere and survives: the claim must be on stable storage before the job starts.
    Independent,
}

/// Request of [`extend`](super::JobStore::extend).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Extend {
    /// The leases, with progress.
    pub beats: Vec<Beat>,
    /// How long from now; `None`: as long as each was claimed for.
    pub lease: Option<Duration>,
}

impl Extend {
    /// Extends each lease by the time it was claimed for.
    pub fn new(beats: impl IntoIterator<Item = Beat>) -> Self {
        Self { beats: beats.into_iter().collect(), lease: None }
    }

    /// Extends each lease by this long from now.
    pub fn lease(mut self, lease: impl Into<Option<Duration>>) -> Self {
        self.lease = lease.into();
        self
    }
}

/// The heartbeat of one lease.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Beat {
    /// The lease.
    pub lease: LeaseKey,
    /// Progress that the handler reported since the last heartbeat.
    pub progress: Option<Progress>,
}

impl Beat {
    /// A heartbeat without progress.
    pub fn new(lease: LeaseKey) -> Self {
        Self { lease, progress: None }
    }

    /// Adds progress.
    pub fn progress(mut self, progress: impl Into<Option<Progress>>) -> Self {
        self.progress = progress.into();
        self
    }
}

/// Answer of [`extend`](super::JobStore::extend), for one lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Extended {
    /// The lease is extended.
    Ok,
    /// The lease is extended, but cancellation was requested: the handler should stop.
    Cancel,
    /// The lease is lost: it expired, or the attempt has ended. Nothing was changed.
    Lost,
}

/// Request of [`settle`](super::JobStore::settle), for one attempt.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Settle {
    /// The lease of the attempt.
    pub lease: LeaseKey,
    /// The outcome to be recorded.
    pub outcome: Outcome,
}

impl Settle {
    /// Records `outcome` for the attempt with this lease.
    pub fn new(lease: LeaseKey, outcome: Outcome) -> Self {
        Self { lease, outcome }
    }
}

/// Answer of [`settle`](super::JobStore::settle), for one attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Settled {
    /// The outcome is recorded, now or by an earlier call.
    Recorded,
    /// The lease is lost, or another outcome was recorded. Nothing was changed.
    Lost,
}

/// Request of [`reap`](super::JobStore::reap).
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Reap {
    /// At most this many leases.
    pub limit: usize,
}

impl Reap {
    /// Reaps at most this many leases.
    pub fn up_to(limit: usize) -> Self {
        Self { limit }
    }
}

/// Answer of [`reap`](super::JobStore::reap): one attempt whose lease had expired.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reaped {
    /// The job's id.
    pub job_id: JobId,
    /// The job's kind.
    pub kind: Kind,
    /// The number of the attempt.
    pub attempt: u32,
    /// The worker that held the lease.
    pub worker: WorkerId,
    /// The job's new status.
    pub to: Status,
    /// What the attempt's record says.
    pub recorded: AttemptOutcome,
}
