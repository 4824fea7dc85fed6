//! What the rules are told: one moment of a store, and what was counted before it.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::job::{Fingerprint, JobId, Kind, QueueName, ScheduleName, WorkerAsks, WorkerId, WorkerState};

/// One moment. What is not known is empty.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Snapshot {
    /// The store's time.
    pub now: Timestamp,
    /// Why the server is not ready; empty: it is.
    pub not_ready: Vec<String>,
    /// By how much the clock of this machine is ahead of the store's.
    pub clock_ahead: SignedDuration,
    /// The storage.
    pub storage: StorageFacts,
    /// Queues that have jobs or are paused.
    pub queues: BTreeMap<QueueName, QueueFlow>,
    /// Leases that expired within ten minutes, and outcomes that came too late.
    pub lost_in_10_min: u64,
    /// What is due, by queue and kind.
    pub due: Vec<DueFacts>,
    /// Workers that were seen within a day.
    pub workers: Vec<WorkerSight>,
    /// Causes of dead letters that were seen within an hour.
    pub errors: Vec<ErrorFacts>,
    /// Attempts that have run for long.
    pub running: Vec<RunningFacts>,
    /// Schedules.
    pub schedules: Vec<ScheduleFacts>,
    /// Limits that are used up.
    pub full_limits: Vec<FullLimit>,
}

impl Snapshot {
    /// Nothing there, and nothing wrong.
    pub fn new(now: Timestamp) -> Self {
        Self {
            now,
            not_ready: Vec::new(),
            clock_ahead: SignedDuration::ZERO,
            storage: StorageFacts::default(),
            queues: BTreeMap::new(),
            lost_in_10_min: 0,
            due: Vec::new(),
            workers: Vec::new(),
            errors: Vec::new(),
            running: Vec::new(),
            schedules: Vec::new(),
            full_limits: Vec::new(),
        }
    }
}

/// How the storage is.
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct StorageFacts {
    /// SQLite: the length of the write-ahead log.
    pub log_bytes: Option<u64>,
    /// PostgreSQL: how long the oldest transaction has been open.
    pub oldest_transaction: Option<Duration>,
}

/// One queue, and what went through it.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct QueueFlow {
    /// It is paused.
    pub paused: bool,
    /// Since when.
    pub paused_at: Option<Timestamp>,
    /// By whom.
    pub paused_by: Option<String>,
    /// Dead letters in it.
    pub dead: u64,
    /// Jobs that run.
    pub running: u64,
    /// Attempts started within the last minute, or two.
    pub started_lately: u64,
    /// Jobs enqueued within five minutes.
    pub in_5_min: u64,
    /// Jobs that reached their end within five minutes.
    pub out_5_min: u64,
    /// How long jobs of the last day waited, those that waited longest but for a twentieth.
    pub wait_p95_ms: Option<f64>,
    /// Jobs that failed permanently within an hour.
    pub dead_in_hour: u64,
}

/// Jobs of one kind in one queue that are due.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct DueFacts {
    /// The queue.
    pub queue: QueueName,
    /// The kind.
    pub kind: Kind,
    /// How many were counted.
    pub n: u64,
    /// There may be more.
    pub at_least: bool,
    /// Since when the oldest has been due.
    pub since: Timestamp,
}

impl DueFacts {
    /// So many, the oldest of them since then.
    pub fn new(queue: QueueName, kind: Kind, n: u64, since: Timestamp) -> Self {
        Self { queue, kind, n, at_least: false, since }
    }
}

/// One worker.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct WorkerSight {
    /// Its name.
    pub worker: WorkerId,
    /// How it is.
    pub state: WorkerState,
    /// It said that it stops.
    pub stopped: bool,
    /// Which jobs it asks for.
    pub asks: WorkerAsks,
    /// When it was last heard of.
    pub seen_at: Timestamp,
    /// When it last asked for jobs.
    pub last_fetch_at: Option<Timestamp>,
    /// How many jobs it runs at the same time.
    pub slots: u32,
    /// Leases that it holds.
    pub busy: u32,
}

impl WorkerSight {
    /// A live worker that asks for everything.
    pub fn new(worker: WorkerId, seen_at: Timestamp) -> Self {
        let (state, asks) = (WorkerState::Live, WorkerAsks::default());
        Self { worker, state, stopped: false, asks, seen_at, last_fetch_at: None, slots: 1, busy: 0 }
    }

    /// Whether it takes jobs: neither draining nor gone.
    pub(super) fn takes_jobs(&self) -> bool {
        matches!(self.state, WorkerState::Live | WorkerState::Deaf)
    }
}

/// One cause of dead letters.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ErrorFacts {
    /// Names it.
    pub fingerprint: Fingerprint,
    /// The kind.
    pub kind: Kind,
    /// Its pattern.
    pub title: String,
    /// Dead letters there are now.
    pub dead: u64,
    /// Dead letters there were in all.
    pub total: u64,
    /// When it was first seen.
    pub first_seen: Timestamp,
    /// Dead letters within ten minutes, as far as that is known.
    pub in_10_min: Option<u64>,
    /// It is snoozed until then.
    pub snoozed_until: Option<Timestamp>,
}

impl ErrorFacts {
    /// A cause that was first seen then.
    pub fn new(fingerprint: Fingerprint, kind: Kind, first_seen: Timestamp) -> Self {
        let (title, in_10_min, snoozed_until) = (String::new(), None, None);
        Self { fingerprint, kind, title, dead: 0, total: 0, first_seen, in_10_min, snoozed_until }
    }
}

/// An attempt that has run for long.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RunningFacts {
    /// The job.
    pub job: JobId,
    /// Its kind.
    pub kind: Kind,
    /// When it was started.
    pub started_at: Timestamp,
    /// Its handler has reported progress: when, is not known.
    pub reports_progress: bool,
    /// How long attempts of its kind run, all but a hundredth.
    pub usual_p99_ms: Option<f64>,
    /// Of how many that is known.
    pub samples: u64,
}

impl RunningFacts {
    /// An attempt of whose kind nothing is known.
    pub fn new(job: JobId, kind: Kind, started_at: Timestamp) -> Self {
        Self { job, kind, started_at, reports_progress: false, usual_p99_ms: None, samples: 0 }
    }
}

/// One schedule.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ScheduleFacts {
    /// Its name.
    pub name: ScheduleName,
    /// Its next tick, unless it is paused.
    pub next_at: Option<Timestamp>,
    /// Its last three jobs all failed permanently.
    pub last_three_dead: bool,
}

impl ScheduleFacts {
    /// A schedule with its next tick.
    pub fn new(name: ScheduleName, next_at: Option<Timestamp>, last_three_dead: bool) -> Self {
        Self { name, next_at, last_three_dead }
    }
}

/// A limit that is used up.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct FullLimit {
    /// The queue.
    pub queue: QueueName,
    /// Live leases that are allowed.
    pub limit: u32,
    /// Jobs that are due.
    pub waiting: u64,
    /// Since when it has been seen used up.
    pub since: Timestamp,
}

impl FullLimit {
    /// So many at a time, used up since then.
    pub fn new(queue: QueueName, limit: u32, waiting: u64, since: Timestamp) -> Self {
        Self { queue, limit, waiting, since }
    }
}
