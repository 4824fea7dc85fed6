//! What is known of a job or a queue that waits, read in one snapshot: what a claim looks at, for [`explain`](super::explain) to
//! put into words.

use jiff::Timestamp;

use super::{JobId, JobRecord, QueueName, Rate};

/// What a limit is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum LimitScope {
    /// A queue.
    Queue,
    /// A kind, in all queues.
    Kind,
    /// A group of a queue.
    Group,
}

impl LimitScope {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Queue => "queue",
            Self::Kind => "kind",
            Self::Group => "group",
        }
    }
}

/// One limit and how much of it is used.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct LimitFact {
    /// What it is about.
    pub scope: LimitScope,
    /// The queue, the kind, or the group.
    pub name: String,
    /// Live leases that are allowed.
    pub concurrency: Option<u32>,
    /// Live leases that count.
    pub running: u32,
    /// Starts that are allowed.
    pub rate: Option<Rate>,
    /// When the rate next allows a start (of the job asked about, else of one of cost 1); `None`: now, or no rate.
    pub next_at: Option<Timestamp>,
}

impl LimitFact {
    /// A limit of which nothing is used.
    pub fn new(scope: LimitScope, name: impl Into<String>) -> Self {
        Self { scope, name: name.into(), concurrency: None, running: 0, rate: None, next_at: None }
    }

    /// Whether as many leases live as are allowed.
    pub fn is_full(&self) -> bool {
        self.concurrency.is_some_and(|limit| self.running >= limit)
    }
}

/// How many jobs come before this one in its lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Ahead {
    /// How many were counted.
    pub n: u64,
    /// There may be more: counting stops at 1,000.
    pub at_least: bool,
}

impl Ahead {
    /// This many.
    pub fn new(n: u64, at_least: bool) -> Self {
        Self { n, at_least }
    }
}

/// Workers that ask for jobs like this one, as far as they are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkerFacts {
    /// Workers seen lately that ask for the kind.
    pub for_kind: u64,
    /// Workers seen lately that ask for the queue.
    pub for_queue: u64,
    /// Free slots among them.
    pub idle_slots: u64,
}

impl WorkerFacts {
    /// These workers.
    pub fn new(for_kind: u64, for_queue: u64, idle_slots: u64) -> Self {
        Self { for_kind, for_queue, idle_slots }
    }
}

/// What is known of a job, read in one snapshot: the answer of the verb `explain`.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct JobFacts {
    /// The store's time.
    pub now: Timestamp,
    /// The job.
    pub job: JobRecord,
    /// Its queue is paused.
    pub queue_paused: bool,
    /// Its group is paused.
    pub group_paused: bool,
    /// The limits that bind it, with a name each.
    pub limits: Vec<LimitFact>,
    /// The unfinished job of its strict group that comes before it.
    pub behind: Option<JobId>,
    /// Jobs that come before it in its lane.
    pub ahead: Ahead,
    /// Workers; `None`: not known.
    pub workers: Option<WorkerFacts>,
}

impl JobFacts {
    /// A job that nothing is known to hold.
    pub fn new(job: JobRecord, now: Timestamp) -> Self {
        let (limits, ahead) = (Vec::new(), Ahead::default());
        Self { now, job, queue_paused: false, group_paused: false, limits, behind: None, ahead, workers: None }
    }
}

/// What is known of a queue, read in one snapshot: the answer of the verb `explain_queue`.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct QueueFacts {
    /// The store's time.
    pub now: Timestamp,
    /// The queue.
    pub queue: QueueName,
    /// It is paused.
    pub paused: bool,
    /// Its own limit, if it has one.
    pub limit: Option<LimitFact>,
    /// Jobs in it by status: queued and retrying, running.
    pub waiting: u64,
    /// Jobs that run.
    pub running: u64,
    /// Since when its oldest due job has been due; `None`: none is.
    pub oldest_ready: Option<Timestamp>,
    /// Workers; `None`: not known.
    pub workers: Option<WorkerFacts>,
}

impl QueueFacts {
    /// A queue without jobs.
    pub fn new(queue: QueueName, now: Timestamp) -> Self {
        Self { now, queue, paused: false, limit: None, waiting: 0, running: 0, oldest_ready: None, workers: None }
    }
}
