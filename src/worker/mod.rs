//! Runs jobs. Handlers are ordinary async functions; this module takes care of leases, cancellation, timeouts, panics and
//! shutdown. Start at [`Worker`].
//!
//! In the source, a job goes from `dispatcher`, which claims it, to `pool`, which runs the handler, to `settler`, which
//! records the outcome, while `heartbeat` extends its lease; `reaper` ends attempts whose lease expired. `presence` tells
//! operators that the worker is there. The worker never
//! decides what a job's next status is (that is [`decide`](crate::job::decide())) or whether a lease is valid (that is the
//! store).

mod backoff;
mod context;
mod dispatcher;
mod handler;
mod heartbeat;
mod held;
mod housekeeping;
mod operator;
mod outbox;
mod pool;
mod prefetch;
mod presence;
mod pruner;
mod reaper;
mod run;
mod running_worker;
mod settings;
mod settler;
mod shutdown;
mod supervise;
mod ticker;

use std::collections::HashMap;
use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;

pub use context::{Context, StopReason};
pub use handler::{Completion, Handler, JobError};
pub use housekeeping::run_housekeeping;
#[cfg(feature = "server")]
pub(crate) use presence::host_name;
pub use settings::{Retention, WorkerSettings};
pub use shutdown::shutdown_signal;
pub use supervise::WorkerHealth;

use self::handler::{AnyHandler, RawFn, TypedFn, TypedStruct};
use self::running_worker::Registered;
use crate::job::{Json, Kind, KindDefinition, WorkerId};
use crate::planted::{Bug, planted};
use crate::queue::{Job, KindError, Queue};

/// Why a worker could not start, or ended by itself.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkerError {
    /// A kind could not be declared.
    #[error(transparent)]
    Kind(#[from] KindError),
    /// No handler is registered.
    #[error("no handler is registered: add one with Worker::handle before running")]
    NoHandlers,
    /// One of its loops kept dying and was given up.
    #[error("the worker's {name} loop keeps dying: {why}")]
    #[non_exhaustive]
    LoopDied {
        /// The name of the loop.
        name: &'static str,
        /// Why it died the last time.
        why: String,
    },
    /// One of its threads could not be started.
    #[error("cannot start a thread of the worker: {0}")]
    Thread(#[from] std::io::Error),
}

/// Options of one handler: a concurrency limit and a timeout.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct HandlerOptions {
    concurrency: Option<usize>,
    timeout: Option<Duration>,
}

impl HandlerOptions {
    /// No limit and no timeout.
    pub fn new() -> Self {
        Self::default()
    }

    /// Limits how many jobs of the kind run at the same time in this process.
    pub fn concurrency(mut self, jobs: usize) -> Self {
        self.concurrency = Some(jobs.max(1));
        self
    }

    /// Limits the time of an attempt. The job's own timeout applies, too, if it is shorter.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }
}

/// Runs the jobs of the kinds it has handlers for, until it is told to stop.
///
/// ```no_run
/// use schemars::JsonSchema;
/// use serde::{Deserialize, Serialize};
/// use steadfast::worker::{HandlerOptions, JobError, shutdown_signal};
/// use steadfast::{Context, Job, Queue, Worker};
///
/// #[derive(Serialize, Deserialize, JsonSchema)]
/// struct Welcome { user: u64 }
/// impl Job for Welcome { const KIND: &'static str = "welcome"; }
///
/// struct Mailer;
///
/// async fn welcome(job: Welcome, context: Context<Mailer>) -> Result<(), JobError> {
///     if job.user == 0 {
///         return Err(JobError::permanent("there is no user 0")); // any other error is retried
///     }
///     let _mailer: &Mailer = context.state();
///     context.progress(50, Some("rendered"));
///     Ok(())
/// }
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let queue = Queue::open("sqlite://jobs.db").await?;
/// Worker::new(queue)
///     .with_state(Mailer)
///     .handle_with(HandlerOptions::new().concurrency(4), welcome)
///     .run_until(shutdown_signal())
///     .await?;
/// # Ok(())
/// # }
/// ```
pub struct Worker<S = ()> {
    queue: Queue,
    id: WorkerId,
    settings: WorkerSettings,
    /// Set by [`Worker::concurrency`]; overrides the settings, whichever is given first.
    concurrency: Option<usize>,
    handlers: HashMap<Kind, Registered<S>>,
    state: Arc<S>,
    health: WorkerHealth,
    registration_errors: Vec<KindError>,
}

impl Worker<()> {
    /// A worker with default settings and no handlers.
    pub fn new(queue: Queue) -> Self {
        Self {
            queue,
            id: WorkerId::new("worker")
                .ok()
                .filter(|_| planted(Bug::WorkerByName))
                .unwrap_or_else(|| WorkerId::random("worker")),
            settings: WorkerSettings::default(),
            concurrency: None,
            handlers: HashMap::new(),
            state: Arc::new(()),
            health: WorkerHealth::default(),
            registration_errors: Vec::new(),
        }
    }

    /// Shares `state` with every handler that is registered after this (see [`Context::state`]). Handlers that were
    /// registered before have none.
    pub fn with_state<S: Send + Sync + 'static>(self, state: S) -> Worker<S> {
        Worker {
            queue: self.queue,
            id: self.id,
            settings: self.settings,
            concurrency: self.concurrency,
            handlers: self.handlers.into_iter().map(|(kind, known)| (kind, known.with_any_state())).collect(),
            state: Arc::new(state),
            health: self.health,
            registration_errors: self.registration_errors,
        }
    }
}

impl<S: Send + Sync + 'static> Worker<S> {
    /// Registers an async function as the handler of jobs of type `J`.
    pub fn handle<J, F, Fut, T>(self, run: F) -> Self
    where
        J: Job,
        F: Fn(J, Context<S>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<T, JobError>> + Send + 'static,
        T: Into<Completion> + 'static,
    {
        self.handle_with(HandlerOptions::new(), run)
    }

    /// As [`handle`](Self::handle), with options.
    pub fn handle_with<J, F, Fut, T>(self, options: HandlerOptions, run: F) -> Self
    where
        J: Job,
        F: Fn(J, Context<S>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<T, JobError>> + Send + 'static,
        T: Into<Completion> + 'static,
    {
        self.register_typed::<J>(options, Arc::new(TypedFn { run, job: PhantomData::<fn(J)> }))
    }

    /// Registers a [`Handler`] for jobs of type `J`.
    pub fn handler<J: Job>(self, options: HandlerOptions, handler: impl Handler<J, S>) -> Self {
        let handler = TypedStruct { handler: Arc::new(handler), job: PhantomData::<fn(J)> };
        self.register_typed::<J>(options, Arc::new(handler))
    }

    /// Registers a handler that takes the payload as JSON. Its kind is not declared by this: see
    /// [`Queue::put_kind`](crate::queue::Queue::put_kind).
    pub fn handle_raw<F, Fut, T>(mut self, kind: &str, options: HandlerOptions, run: F) -> Self
    where
        F: Fn(Json, Context<S>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<T, JobError>> + Send + 'static,
        T: Into<Completion> + 'static,
    {
        match Kind::new(kind) {
            Ok(kind) => self.register(kind, None, options, Arc::new(RawFn(run))),
            Err(error) => self.registration_errors.push(error.into()),
        }
        self
    }

    fn register_typed<J: Job>(mut self, options: HandlerOptions, handler: Arc<dyn AnyHandler<S>>) -> Self {
        match KindDefinition::of::<J>() {
            Ok(definition) => self.register(definition.kind.clone(), Some(definition), options, handler),
            Err(error) => self.registration_errors.push(error),
        }
        self
    }

    fn register(
        &mut self,
        kind: Kind,
        definition: Option<KindDefinition>,
        options: HandlerOptions,
        handler: Arc<dyn AnyHandler<S>>,
    ) {
        let limit = options.concurrency.map(|jobs| Arc::new(Semaphore::new(jobs)));
        self.handlers.insert(kind, Registered { handler, definition, timeout: options.timeout, limit });
    }

    /// Sets how many jobs run at the same time; 4 × cores by default. Overrides [`WorkerSettings::concurrency`], whichever is
    /// given first.
    pub fn concurrency(mut self, jobs: usize) -> Self {
        self.concurrency = Some(jobs);
        self
    }

    /// Sets leases, polling, shutdown and retention.
    pub fn settings(mut self, settings: WorkerSettings) -> Self {
        self.settings = settings;
        self
    }

    /// Sets the id recorded with leases, instead of a random one. It must not be shared with another process.
    pub fn id(mut self, id: WorkerId) -> Self {
        self.id = id;
        self
    }

    /// The health of its loops; take it before `run_until`, which consumes the worker.
    pub fn health(&self) -> WorkerHealth {
        self.health.clone()
    }

    /// Runs jobs until `shutdown` completes. Then running jobs may finish within the grace period, the rest are released
    /// without costing an attempt, and every outcome is recorded.
    pub async fn run_until(self, shutdown: impl Future<Output = ()>) -> Result<(), WorkerError> {
        run::run_until(self, shutdown).await
    }
}

impl<S> std::fmt::Debug for Worker<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Worker")
            .field("id", &self.id)
            .field("kinds", &self.handlers.keys())
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}
