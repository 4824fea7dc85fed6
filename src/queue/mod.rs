//! The façade people embed: open a queue, put jobs in, look at them, cancel and redrive them.
//!
//! It checks what comes in (names, limits, the kind's schema) and hands it to a [`Store`]; `api` and `worker` go through it,
//! too. `accept` is the one way in, `operators` changes what is there, `leases` is for who runs jobs. It runs nothing:
//! that is the worker's part. It keeps no jobs either; what it remembers (declared kinds) only saves a look-up.

mod accept;
mod cancels;
mod check_pool;
mod depth;
mod enqueue;
mod error;
mod leases;
mod meter;
mod metered_json;
mod open;
mod operators;
mod payload_check;
#[cfg(test)]
mod payload_check_cases;
mod registry;
mod schema_budget;
mod similar_names;

use std::sync::Arc;

pub use cancels::CancelListener;
pub use depth::QueueFull;
pub use enqueue::{Enqueue, Job};
pub use error::{BatchError, EnqueueError, KindError};
pub use open::QueueBuilder;

use self::cancels::Cancels;
use self::depth::DepthLimit;
use self::open::{Home, Parts};
use self::registry::KindRegistry;
use crate::job::limits::PAGE_MAX;
use crate::job::{AttemptRecord, JobId, JobRecord, JobRequest, Json, Kind, KindDefinition, Limits, NewJob};
use crate::store::{Actor, Enqueued, List, OpenError, Page, Stats, Store, StoreError, Wake};

/// A job queue. Cheap to clone; all clones are the same queue.
#[derive(Debug, Clone)]
pub struct Queue {
    inner: Arc<Inner>,
    /// On whose behalf operators' verbs are called; see [`Queue::by`].
    by: Option<Arc<Actor>>,
}

#[derive(Debug)]
struct Inner {
    store: Arc<dyn Store>,
    wake: Wake,
    kinds: KindRegistry,
    limits: Limits,
    depth: DepthLimit,
    #[cfg_attr(not(any(feature = "postgres", feature = "sqlite")), expect(dead_code, reason = "only stores have one"))]
    home: Home,
    cancels: Cancels,
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
        let (depth, cancels) = (DepthLimit::new(max_queue_depth), Cancels::default());
        Self { inner: Arc::new(Inner { store, wake, kinds, limits, depth, home, cancels }), by: None }
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
        Ok(self.inner.store.get(vec![id]).await?.pop().flatten())
    }

    /// Jobs, newest first; at most 200 a page.
    pub async fn list(&self, list: List) -> Result<Page, StoreError> {
        self.inner.store.list(List { limit: list.limit.clamp(1, PAGE_MAX), ..list }).await
    }

    /// A job's attempts, oldest first; `None` if there is no such job.
    pub async fn attempts(&self, id: JobId) -> Result<Option<Vec<AttemptRecord>>, StoreError> {
        self.inner.store.attempts(id).await
    }

    /// Jobs per queue and status.
    pub async fn stats(&self) -> Result<Stats, StoreError> {
        self.inner.store.stats().await
    }

    /// Every declared kind, by name, built-in ones included.
    pub async fn kinds(&self) -> Result<Vec<KindDefinition>, StoreError> {
        self.inner.kinds.all(&*self.inner.store).await
    }

    /// Whether a kind is built in: always declared, not to be changed.
    pub fn is_built_in(&self, kind: &Kind) -> bool {
        self.inner.kinds.is_built_in(kind)
    }

    /// Declares the kind of a typed job: its schema comes from the type.
    pub async fn declare<J: Job>(&self) -> Result<(), KindError> {
        self.put_kind(KindDefinition::of::<J>()?).await.map(|_| ())
    }

    /// One round trip to the store, to see that it answers and takes writes.
    pub async fn ping(&self) -> Result<(), StoreError> {
        self.inner.store.ping().await
    }

    /// The store underneath, for tools and tests that need its verbs as they are: in batches, and past the checks and
    /// limits that this façade adds.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.inner.store
    }
}

impl JobRequest {
    /// A request for a typed job.
    pub fn of<J: Job>(job: &J) -> Result<Self, crate::job::NotJson> {
        Ok(Self::new(J::KIND, Json::of(job)?))
    }
}
