//! Workers: who was seen lately, what each holds, and what operators tell them. See [`WorkerStore`].
//!
//! Nothing here decides about jobs: a worker that nobody has heard of may hold leases all the same.

use std::time::Duration;

use async_trait::async_trait;

use super::sealed::Sealed;
use super::{Actor, StoreError};
use crate::job::limits::WORKERS_PAGE_MAX;
use crate::job::{Told, WorkerAsks, WorkerId, WorkerInfo, WorkerJob, WorkerRecord, WorkerSource};

/// Verbs on workers.
#[async_trait]
pub trait WorkerStore: Sealed {
    /// Records what workers did since they were last reported; answers what each is told, in the order given. At most
    /// 10,000 are kept: for a new one, the one that was not seen for the longest time goes, if it is gone; if none is, the
    /// new one is not recorded and told to run. Another process under a known name is a new worker.
    async fn report_workers(&self, reports: Vec<WorkerReport>) -> Result<Vec<Told>, StoreError>;

    /// Tells a worker to drain or to run; `false` if it is not known. It learns of it with its next report.
    async fn tell_worker(&self, tell: TellWorker) -> Result<bool, StoreError>;

    /// Reads one worker and the jobs that it holds; `None` if it is not known. Looks at 10,000 leases, and answers with
    /// 1,000 of its jobs.
    async fn worker(&self, worker: WorkerId) -> Result<Option<WorkerDetail>, StoreError>;

    /// Reads a page of workers, by name. Of what they hold, 10,000 leases are looked at.
    async fn workers(&self, list: ListWorkers) -> Result<WorkerPage, StoreError>;

    /// Deletes workers that were last seen longer ago than they are kept; answers how many.
    async fn prune_workers(&self, prune: PruneWorkers) -> Result<usize, StoreError>;
}

/// What a worker did since it was last reported, in [`report_workers`](WorkerStore::report_workers). How long ago, not when:
/// the store's clock decides.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkerReport {
    /// Its name.
    pub worker: WorkerId,
    /// Where it runs.
    pub source: WorkerSource,
    /// What tells this process from another one of the same name; `None`: not known.
    pub incarnation: Option<String>,
    /// What it says of itself; what is `None` stays as it was.
    pub info: WorkerInfo,
    /// The name of its API token; `None` stays as it was.
    pub token: Option<String>,
    /// Which jobs it asks for; counts with [`fetched`](Self::fetched) only.
    pub asks: WorkerAsks,
    /// How long ago it was first heard of; counts for a worker that is new.
    pub started: Duration,
    /// How long ago it last asked for jobs, if it did.
    pub fetched: Option<Duration>,
    /// How long ago it sent its last heartbeat, if it did.
    pub beat: Option<Duration>,
    /// How long ago it was last heard of.
    pub seen: Duration,
    /// It stops.
    pub stopped: bool,
}

impl WorkerReport {
    /// A worker that was heard of just now.
    pub fn new(worker: WorkerId, source: WorkerSource) -> Self {
        Self {
            worker,
            source,
            incarnation: None,
            info: WorkerInfo::default(),
            token: None,
            asks: WorkerAsks::default(),
            started: Duration::ZERO,
            fetched: None,
            beat: None,
            seen: Duration::ZERO,
            stopped: false,
        }
    }

    /// It has just asked for these jobs.
    pub fn fetched(mut self, asks: WorkerAsks) -> Self {
        (self.asks, self.fetched) = (asks, Some(Duration::ZERO));
        self
    }

    /// It has just sent a heartbeat.
    pub fn beat(mut self) -> Self {
        self.beat = Some(Duration::ZERO);
        self
    }

    /// Sets how many jobs it runs at the same time.
    pub fn concurrency(mut self, jobs: u32) -> Self {
        self.info.concurrency = Some(jobs);
        self
    }
}

/// Request of [`tell_worker`](WorkerStore::tell_worker).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct TellWorker {
    /// The worker.
    pub worker: WorkerId,
    /// What it is told.
    pub told: Told,
    /// On whose behalf.
    pub by: Option<Actor>,
}

impl TellWorker {
    /// Tells `worker` this.
    pub fn new(worker: WorkerId, told: Told) -> Self {
        Self { worker, told, by: None }
    }

    /// Sets on whose behalf.
    pub fn by(mut self, actor: Option<Actor>) -> Self {
        self.by = actor;
        self
    }
}

/// Answer of [`worker`](WorkerStore::worker).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkerDetail {
    /// The worker.
    pub worker: WorkerRecord,
    /// Jobs that it holds, up to 1,000.
    pub jobs: Vec<WorkerJob>,
}

/// Request of [`workers`](WorkerStore::workers): the page.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ListWorkers {
    /// Only workers behind this one: the cursor, from [`WorkerPage::next`].
    pub after: Option<WorkerId>,
    /// At most this many, up to 200.
    pub limit: usize,
}

impl Default for ListWorkers {
    fn default() -> Self {
        Self { after: None, limit: WORKERS_PAGE_MAX }
    }
}

impl ListWorkers {
    /// The first page of 200.
    pub fn new() -> Self {
        Self::default()
    }

    /// Continues at a cursor; see [`WorkerPage::next`].
    pub fn after(mut self, worker: impl Into<Option<WorkerId>>) -> Self {
        self.after = worker.into();
        self
    }

    /// Answers with at most this many.
    pub fn limit(mut self, workers: usize) -> Self {
        self.limit = workers;
        self
    }
}

/// Answer of [`workers`](WorkerStore::workers).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkerPage {
    /// By name.
    pub workers: Vec<WorkerRecord>,
    /// The cursor of the next page; `None`: this is the last.
    pub next: Option<WorkerId>,
}

/// Request of [`prune_workers`](WorkerStore::prune_workers).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct PruneWorkers {
    /// How long workers are kept after they were last seen.
    pub keep: Duration,
    /// At most this many.
    pub limit: usize,
}

impl PruneWorkers {
    /// A step of at most `limit`.
    pub fn new(keep: Duration, limit: usize) -> Self {
        Self { keep, limit }
    }
}
