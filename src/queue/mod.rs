//! The façade of the library: open a queue, enqueue jobs, read, cancel and redrive them.
//!
//! [`Queue`] validates requests (names, limits, the kind's schema) and hands them to a [`Store`]; the HTTP API and the
//! worker go through it, too. It runs no jobs (that is [`Worker`](crate::Worker)) and keeps none in memory; what it caches
//! (declared kinds, counts) only saves look-ups.
//!
//! In the source, `accept` validates and enqueues, `operators` has cancel, redrive and the like, `leases` is for workers.

mod accept;
mod admission;
mod audit;
mod built_in;
mod cancels;
mod check_pool;
mod enqueue;
mod error;
mod errors;
mod hidden;
mod hooks;
mod leases;
mod limits;
mod meter;
mod metered_json;
mod open;
mod operations;
mod operators;
mod payload_check;
#[cfg(test)]
mod payload_check_cases;
mod pulse;
mod registry;
mod schedule;
mod schedules;
mod schema_budget;
mod series;
mod series_minute;
mod sessions;
mod similar_names;
mod viewer;
mod workers;

use std::sync::Arc;

pub use admission::LimitReached;
pub use built_in::{BuiltInKind, PayloadRule};
pub use cancels::CancelListener;
pub use enqueue::{Enqueue, Job};
pub use error::{BatchError, EnqueueError, KindError, LimitError, PauseError, TokenError};
pub use hidden::SecretTest;
pub use hooks::HookError;
pub use open::QueueBuilder;
pub use operations::{OperationError, OperationRequest, PreviewedOperation};
pub use schedule::{Schedule, ScheduleWithJob};
pub use schedules::{PutScheduleAnswer, ScheduleError, TickPass};
pub use viewer::Viewer;

use self::admission::{Admission, AdmissionLimits};
use self::cancels::Cancels;
use self::hooks::HookRegistry;
use self::open::{Backend, OpenedStore};
use self::registry::KindRegistry;
use self::schedules::ScheduleChanges;
use self::series::SeriesRecorder;
use crate::job::limits::{PAGE_MAX, QUEUES_PAGE_MAX};
use crate::job::{AttemptRecord, JobId, JobRecord, JobRequest, Json, Kind, KindDefinition, Limits, NewJob};
use crate::store::{Actor, Enqueued, List, OpenError, Page, Stats, StatsRequest, Store, StoreError, Wake};

/// A job queue on SQLite or PostgreSQL. Cheap to clone; all clones are the same queue.
///
/// ```
/// # #[cfg(feature = "sqlite")]
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// # let directory = tempfile::tempdir()?;
/// # let url = format!("sqlite://{}", directory.path().join("jobs.db").display());
/// use schemars::JsonSchema;
/// use serde::{Deserialize, Serialize};
/// use steadfast::{Job, Queue, Status, store::List};
///
/// #[derive(Serialize, Deserialize, JsonSchema)]
/// struct Welcome { user: u64 }
/// impl Job for Welcome { const KIND: &'static str = "welcome"; }
///
/// let queue = Queue::open(&url).await?;
/// let enqueued = queue.enqueue(Welcome { user: 42 }).priority(10).await?;
/// assert!(enqueued.created);
///
/// let job = queue.get(enqueued.job.id).await?.ok_or("no such job")?;
/// assert_eq!(job.status, Status::Queued);
///
/// queue.cancel(job.id).await?;
/// let cancelled = queue.list(List::new().status(Status::Cancelled)).await?;
/// assert_eq!(cancelled.jobs.len(), 1);
/// # Ok(())
/// # })
/// # }
/// # #[cfg(not(feature = "sqlite"))]
/// # fn main() {}
/// ```
#[derive(Debug, Clone)]
pub struct Queue {
    inner: Arc<Inner>,
    /// On whose behalf operators' calls are made; see [`Queue::by`].
    by: Option<Arc<Actor>>,
}

#[derive(Debug)]
struct Inner {
    store: Arc<dyn Store>,
    wake: Wake,
    kinds: KindRegistry,
    hooks: HookRegistry,
    limits: Limits,
    admission: Admission,
    backend: Backend,
    cancels: Cancels,
    schedule_changes: ScheduleChanges,
    /// Of this process: what workers are told.
    worker_changes: Wake,
    operation_changes: Wake,
    series: SeriesRecorder,
}

/// Opening, enqueueing and reading.
impl Queue {
    /// Opens `sqlite://FILE`, which is created and migrated if needed, or `postgres://…`, which must be migrated already
    /// (`steadfast migrate`, or [`QueueBuilder::migrate`]).
    pub async fn open(url: &str) -> Result<Self, OpenError> {
        Self::builder(url).open().await
    }

    /// Settings for a queue at `url`, to be opened with [`QueueBuilder::open`].
    pub fn builder(url: &str) -> QueueBuilder {
        QueueBuilder::new(url)
    }

    /// A queue over a store that is open already, for instance one that is [`Wrapped`](crate::store::Wrapped). `wake` is the
    /// store's own.
    pub fn over(store: Arc<dyn Store>, wake: Wake) -> Self {
        let opened = OpenedStore { store, wake, backend: Backend::Other };
        Self::assemble(opened, Limits::default(), AdmissionLimits::default(), KindRegistry::default())
    }

    fn assemble(opened: OpenedStore, limits: Limits, admission: AdmissionLimits, kinds: KindRegistry) -> Self {
        let OpenedStore { store, wake, backend } = opened;
        let (admission, cancels) = (Admission::new(admission), Cancels::default());
        let (schedule_changes, worker_changes) = (ScheduleChanges::default(), Wake::default());
        let operation_changes = Wake::default();
        let inner = Inner {
            store,
            wake,
            kinds,
            hooks: HookRegistry::default(),
            limits,
            admission,
            backend,
            cancels,
            schedule_changes,
            worker_changes,
            operation_changes,
            series: SeriesRecorder::default(),
        };
        Self { inner: Arc::new(inner), by: None }
    }

    /// Enqueues a typed job: add options, then `.await`. Its kind is declared on first use.
    pub fn enqueue<J: Job>(&self, job: J) -> Enqueue<'_, J> {
        Enqueue::new(self, job)
    }

    /// Enqueues up to 1,000 typed jobs, all or none. Their kind is declared on first use.
    pub async fn enqueue_many<J: Job>(&self, jobs: impl IntoIterator<Item = J>) -> Result<Vec<Enqueued>, BatchError> {
        let requests = jobs.into_iter().map(|job| JobRequest::of(&job)).collect::<Result<Vec<_>, _>>()?;
        let is_undeclared = |error: &EnqueueError| matches!(error, EnqueueError::UnknownKind { .. });
        match self.accept(requests.clone()).await {
            Err(BatchError::Refused(items)) if items.iter().any(|(_, error)| is_undeclared(error)) => {
                self.declare::<J>().await?;
                self.accept(requests).await
            }
            other => other,
        }
    }

    /// Enqueues a job of any declared kind.
    pub async fn enqueue_request(&self, request: JobRequest) -> Result<Enqueued, EnqueueError> {
        let mut stored = self.accept(vec![request]).await?;
        stored.pop().ok_or_else(|| accept::no_answer().into())
    }

    /// Enqueues up to 1,000 jobs of any declared kinds, all or none.
    pub async fn enqueue_requests(&self, requests: Vec<JobRequest>) -> Result<Vec<Enqueued>, BatchError> {
        self.accept(requests).await
    }

    /// Validates a request without storing it. To enqueue within a transaction of your own, see [`Enqueue::within`].
    pub async fn prepare(&self, request: JobRequest) -> Result<NewJob, EnqueueError> {
        self.checked(request).await
    }

    /// Reads one job; `None` if there is no such job.
    pub async fn get(&self, id: JobId) -> Result<Option<JobRecord>, StoreError> {
        Ok(self.inner.store.get(vec![id]).await?.pop().flatten())
    }

    /// Lists jobs, at most 200 a page: those that only wait in the order in which they will run, others newest first, or as
    /// asked for.
    pub async fn list(&self, list: List) -> Result<Page, StoreError> {
        self.inner.store.list(List { limit: list.limit.clamp(1, PAGE_MAX), ..list }).await
    }

    /// Reads a job's attempts, oldest first; `None` if there is no such job.
    pub async fn attempts(&self, id: JobId) -> Result<Option<Vec<AttemptRecord>>, StoreError> {
        self.inner.store.attempts(id).await
    }

    /// Counts jobs per queue and status, at most 1,000 queues a page, and over all queues.
    pub async fn stats(&self, request: StatsRequest) -> Result<Stats, StoreError> {
        self.inner.store.stats(StatsRequest { limit: request.limit.min(QUEUES_PAGE_MAX), ..request }).await
    }

    /// Reads every declared kind, by name, built-in ones included.
    pub async fn kinds(&self) -> Result<Vec<KindDefinition>, StoreError> {
        self.inner.kinds.all(&*self.inner.store).await
    }

    /// Whether a kind is built in: always declared, and cannot be changed.
    pub fn is_built_in(&self, kind: &Kind) -> bool {
        self.inner.kinds.is_built_in(kind)
    }

    /// The job as readers may see it: without the parts of its payload that its kind hides; without all of it if that
    /// cannot be found out. [`get`](Self::get) and [`list`](Self::list) answer with the whole.
    pub async fn shown(&self, job: JobRecord) -> JobRecord {
        let payload = self.shown_payload(&job.kind, &job.payload).await;
        JobRecord { payload, ..job }
    }

    /// A payload of this kind as readers may see it; nothing of it if what the kind hides cannot be found out.
    pub async fn shown_payload(&self, kind: &Kind, payload: &Json) -> Json {
        match self.inner.kinds.hidden_parts(&*self.inner.store, kind).await {
            Ok(kind) => match kind.as_deref().map(registry::CachedKind::hidden_parts) {
                None | Some([]) => payload.clone(),
                Some(hidden) => hidden::shown(payload, hidden),
            },
            Err(_) => hidden::nothing_shown(),
        }
    }

    /// Declares the kind of a typed job, with the schema of its type. Limits that the kind has stay as they are.
    pub async fn declare<J: Job>(&self) -> Result<(), KindError> {
        let definition = KindDefinition::of::<J>()?;
        self.inner.kinds.put(&*self.inner.store, definition, self.actor(), true).await.map(|_| ())
    }

    /// Checks in one round trip that the store answers and takes writes.
    pub async fn ping(&self) -> Result<(), StoreError> {
        self.inner.store.ping().await
    }

    /// The underlying store, for tools and tests that need its verbs directly: in batches, and without the validation and
    /// limits of this façade.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.inner.store
    }
}

impl JobRequest {
    /// A request for a typed job, with every option left to the kind's defaults.
    pub fn of<J: Job>(job: &J) -> Result<Self, crate::job::NotJson> {
        Ok(Self::new(J::KIND, Json::of(job)?))
    }
}
