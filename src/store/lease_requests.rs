//! What the verbs of [`JobStore`](super::JobStore) for who runs jobs take and answer: claim, extend, settle, reap.

use std::time::Duration;

use crate::job::limits::PAYLOAD_MAX_BYTES;
use crate::job::{AttemptOutcome, JobId, Kind, Lease, LeaseKey, Outcome, Progress, QueueName, Status, WorkerId};

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
