//! The façade people embed: open a queue, put jobs in, look at them, cancel and redrive them.
//!
//! It checks what comes in at the door (names, limits, the kind's schema) and hands it to a [`Store`]. It runs nothing:
//! that is the worker's part. It keeps no jobs either; what it remembers (declared kinds) only saves a look-up.

mod accept;
mod check_pool;
mod depth;
mod enqueue;
mod error;
mod meter;
mod metered_json;
mod open;
mod payload_check;
#[cfg(test)]
mod payload_check_cases;
mod registry;
mod schema_budget;
mod similar_names;

use std::sync::Arc;

use tokio::sync::broadcast;

pub use depth::QueueFull;
pub use enqueue::{Enqueue, Job};
pub use error::{BatchError, EnqueueError, KindError};
pub use open::QueueBuilder;

use self::depth::DepthLimit;
use self::open::{Home, Parts};
use self::registry::KindRegistry;
use crate::job::limits::PAGE_MAX;
use crate::job::{AttemptRecord, JobId, JobRecord, JobRequest, Json, Kind, KindDefinition, Limits, NewJob, QueueName};
use crate::store::{
    Cancelled, Deleted, Enqueued, List, OpenError, Page, Redriven, Stats, Store, StoreError, StoreErrorKind, Wake,
};

/// 1,024 cancels that a worker of this process has not looked at yet; beyond that it hears of them by heartbeat.
const CANCELS_REMEMBERED: usize = 1024;

/// A job queue. Cheap to clone; all clones are the same queue.
#[derive(Debug, Clone)]
pub struct Queue(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    store: Arc<dyn Store>,
    wake: Wake,
    kinds: KindRegistry,
    limits: Limits,
    depth: DepthLimit,
    #[cfg_attr(not(any(feature = "postgres", feature = "sqlite")), expect(dead_code, reason = "only stores have one"))]
    home: Home,
    cancels: broadcast::Sender<JobId>,
}

impl Queue {
    /// Opens `sqlite://FILE` (made and migrated if need be) or `postgres://…` (which must have been migrated).
    pub async fn open(url: &str) -> Result<Self, OpenError> {
        Self::builder(url).open().await
    }

    /// Opens with other settings than the usual ones.
    pub fn builder(url: &str) -> QueueBuilder {
        QueueBuilder::new(url)
    }

    /// A queue over a store of your own making. `wake` should ring when jobs become ready.
    pub fn over(store: Arc<dyn Store>, wake: Wake) -> Self {
        let parts = Parts { store, wake, home: Home::Elsewhere };
        Self::assemble(parts, Limits::default(), None, KindRegistry::default())
    }

    fn assemble(parts: Parts, limits: Limits, max_queue_depth: Option<u64>, kinds: KindRegistry) -> Self {
        let Parts { store, wake, home } = parts;
        let (depth, cancels) = (DepthLimit::new(max_queue_depth), broadcast::Sender::new(CANCELS_REMEMBERED));
        Self(Arc::new(Inner { store, wake, kinds, limits, depth, home, cancels }))
    }

    /// Puts a typed job in: add options, then `.await` it. Its kind is declared on first use.
    pub fn enqueue<J: Job>(&self, job: J) -> Enqueue<'_, J> {
        Enqueue::new(self, job)
    }

    /// Puts up to 1,000 typed jobs in, all or none. Their kind is declared on first use.
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

    /// Puts a job of any declared kind in.
    pub async fn enqueue_request(&self, request: JobRequest) -> Result<Enqueued, EnqueueError> {
        let mut stored = self.accept(vec![request]).await?;
        stored.pop().ok_or_else(|| accept::no_answer().into())
    }

    /// Puts up to 1,000 jobs of any declared kinds in, all or none.
    pub async fn enqueue_requests(&self, requests: Vec<JobRequest>) -> Result<Vec<Enqueued>, BatchError> {
        self.accept(requests).await
    }

    /// Checks a request without storing it: for storing it by other means. To enqueue within a transaction of your own,
    /// see [`Enqueue::within`].
    pub async fn prepare(&self, request: JobRequest) -> Result<NewJob, EnqueueError> {
        self.checked(request).await
    }

    /// One job.
    pub async fn get(&self, id: JobId) -> Result<Option<JobRecord>, StoreError> {
        Ok(self.0.store.get(vec![id]).await?.pop().flatten())
    }

    /// Jobs, newest first; at most 200 a page.
    pub async fn list(&self, list: List) -> Result<Page, StoreError> {
        self.0.store.list(List { limit: list.limit.clamp(1, PAGE_MAX), ..list }).await
    }

    /// A job's attempts, oldest first; `None` if there is no such job.
    pub async fn attempts(&self, id: JobId) -> Result<Option<Vec<AttemptRecord>>, StoreError> {
        self.0.store.attempts(id).await
    }

    /// Stops a job: at once if it waits; if it runs, its handler is told.
    pub async fn cancel(&self, id: JobId) -> Result<Cancelled, StoreError> {
        let cancelled = only(self.0.store.cancel(vec![id]).await?)?;
        if cancelled == Cancelled::Requested {
            // Nobody listening is fine: its worker is elsewhere and hears of it by heartbeat.
            let _ = self.0.cancels.send(id);
        }
        Ok(cancelled)
    }

    /// Puts a failed or cancelled job back into the queue, as if new.
    pub async fn redrive(&self, id: JobId) -> Result<Redriven, StoreError> {
        only(self.0.store.redrive(vec![id]).await?)
    }

    /// Removes a finished job for good.
    pub async fn delete(&self, id: JobId) -> Result<Deleted, StoreError> {
        only(self.0.store.delete(vec![id]).await?)
    }

    /// Jobs of this queue are not started until it is resumed.
    pub async fn pause(&self, queue: QueueName) -> Result<(), StoreError> {
        self.0.store.pause(queue).await
    }

    /// Ends a pause.
    pub async fn resume(&self, queue: QueueName) -> Result<(), StoreError> {
        self.0.store.resume(queue).await
    }

    /// Jobs per queue and status.
    pub async fn stats(&self) -> Result<Stats, StoreError> {
        self.0.store.stats().await
    }

    /// Declares the kind of a typed job: its schema comes from the type.
    pub async fn declare<J: Job>(&self) -> Result<(), KindError> {
        self.put_kind(KindDefinition::of::<J>()?).await.map(|_| ())
    }

    /// Declares a kind or changes its declaration; `true` if it is new.
    pub async fn put_kind(&self, definition: KindDefinition) -> Result<bool, KindError> {
        self.0.kinds.put(&*self.0.store, definition).await
    }

    /// Forgets a kind; its jobs go on. `false` if it was not declared.
    pub async fn delete_kind(&self, kind: &Kind) -> Result<bool, KindError> {
        self.0.kinds.delete(&*self.0.store, kind).await
    }

    /// Every declared kind, by name, built-in ones included.
    pub async fn kinds(&self) -> Result<Vec<KindDefinition>, StoreError> {
        self.0.kinds.all(&*self.0.store).await
    }

    /// Whether a kind is built in: always declared, not to be changed.
    pub fn is_built_in(&self, kind: &Kind) -> bool {
        self.0.kinds.is_built_in(kind)
    }

    /// The store underneath, for who works on leases.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.0.store
    }

    /// Rings when there may be work.
    pub fn wake(&self) -> &Wake {
        &self.0.wake
    }

    /// Ids of running jobs that were asked to stop through this process.
    pub fn cancels(&self) -> broadcast::Receiver<JobId> {
        self.0.cancels.subscribe()
    }
}

/// The one answer to a batch of one.
fn only<T>(answers: Vec<Result<T, StoreError>>) -> Result<T, StoreError> {
    answers.into_iter().next().unwrap_or_else(|| Err(StoreError::new(StoreErrorKind::Internal, "answer")))
}

impl JobRequest {
    /// A request for a typed job.
    pub fn of<J: Job>(job: &J) -> Result<Self, crate::job::NotJson> {
        Ok(Self::new(J::KIND, Json::of(job)?))
    }
}
