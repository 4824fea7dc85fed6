//! Runs jobs. Handlers are ordinary async functions; crashes, cancels, timeouts and shutdowns are this module's business.
//!
//! The way of a job through it: `dispatcher` claims → `pool` runs the handler → `settler` records the outcome,
//! while `heartbeat` keeps the lease and `reaper` ends attempts that nobody keeps. Nothing here decides what becomes
//! of a job (that is [`decide`](crate::job::decide())) or whether a lease is valid (that is the store).

mod backoff;
mod context;
mod dispatcher;
mod handler;
mod heartbeat;
mod held;
mod pool;
mod prefetch;
mod pruner;
mod reaper;
mod run;
mod runtime;
mod settings;
mod settler;
mod shutdown;
mod supervise;
mod upkeep;

use std::collections::HashMap;
use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;

pub use context::{Context, StopReason};
pub use handler::{Completion, Handler, JobError};
pub use settings::{Retention, WorkerSettings};
pub use shutdown::shutdown_signal;
pub use supervise::WorkerHealth;
pub use upkeep::run_housekeeping;

use self::handler::{AnyHandler, RawFn, TypedFn, TypedStruct};
use self::runtime::Registered;
use crate::job::{Json, Kind, KindDefinition, WorkerId};
use crate::planted::{Bug, planted};
use crate::queue::{Job, KindError, Queue};

/// Why a worker ended other than by being asked to.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkerError {
    /// A kind could not be declared.
    #[error(transparent)]
    Kind(#[from] KindError),
    /// There is nothing to run.
    #[error("no handler is registered: add one with Worker::handle before running")]
    NoHandlers,
    /// One of its loops kept dying.
    #[error("the worker's {name} loop keeps dying: {why}")]
    LoopDied {
        /// Which.
        name: &'static str,
        /// Of what, the last time.
        why: String,
    },
    /// One of its threads could not be started.
    #[error("cannot start a thread of the worker: {0}")]
    Thread(#[from] std::io::Error),
}

/// What may be said about one handler.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct HandlerOptions {
    concurrency: Option<usize>,
    timeout: Option<Duration>,
}

impl HandlerOptions {
    /// Nothing special.
    pub fn new() -> Self {
        Self::default()
    }

    /// At most this many jobs of the kind at the same time in this process.
    pub fn concurrency(mut self, jobs: usize) -> Self {
        self.concurrency = Some(jobs.max(1));
        self
    }

    /// No attempt takes longer, whatever the job says.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }
}

/// Runs the jobs of the kinds it has handlers for. See the [crate's front page](crate) for a whole program.
pub struct Worker<S = ()> {
    queue: Queue,
    id: WorkerId,
    settings: WorkerSettings,
    /// What was said by [`Worker::concurrency`]; it stands whatever the settings say, given before or after it.
    concurrency: Option<usize>,
    handlers: HashMap<Kind, Registered<S>>,
    state: Arc<S>,
    health: WorkerHealth,
    mistakes: Vec<KindError>,
}

impl Worker<()> {
    /// A worker with the usual settings and no handlers yet.
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
            mistakes: Vec::new(),
        }
    }

    /// Shares `state` with every handler that is registered after it (see [`Context::state`]). Those that were registered
    /// before stay, and know of no state.
    pub fn with_state<S: Send + Sync + 'static>(self, state: S) -> Worker<S> {
        Worker {
            queue: self.queue,
            id: self.id,
            settings: self.settings,
            concurrency: self.concurrency,
            handlers: self.handlers.into_iter().map(|(kind, known)| (kind, known.with_any_state())).collect(),
            state: Arc::new(state),
            health: self.health,
            mistakes: self.mistakes,
        }
    }
}

impl<S: Send + Sync + 'static> Worker<S> {
    /// Runs jobs of type `J` with an async function.
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

    /// Runs jobs of type `J` with a struct.
    pub fn handler<J: Job>(self, options: HandlerOptions, handler: impl Handler<J, S>) -> Self {
        let handler = TypedStruct { handler: Arc::new(handler), job: PhantomData::<fn(J)> };
        self.register_typed::<J>(options, Arc::new(handler))
    }

    /// Runs jobs of any kind over their JSON. The kind is not declared by this: see
    /// [`Queue::put_kind`](crate::queue::Queue::put_kind).
    pub fn handle_raw<F, Fut, T>(mut self, kind: &str, options: HandlerOptions, run: F) -> Self
    where
        F: Fn(Json, Context<S>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<T, JobError>> + Send + 'static,
        T: Into<Completion> + 'static,
    {
        match Kind::new(kind) {
            Ok(kind) => self.register(kind, None, options, Arc::new(RawFn(run))),
            Err(error) => self.mistakes.push(error.into()),
        }
        self
    }

    fn register_typed<J: Job>(mut self, options: HandlerOptions, handler: Arc<dyn AnyHandler<S>>) -> Self {
        match KindDefinition::of::<J>() {
            Ok(definition) => self.register(definition.kind.clone(), Some(definition), options, handler),
            Err(error) => self.mistakes.push(error),
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

    /// Jobs at the same time; 4 × cores unless set. Wins over [`WorkerSettings::concurrency`], in whichever order the two
    /// are given.
    pub fn concurrency(mut self, jobs: usize) -> Self {
        self.concurrency = Some(jobs);
        self
    }

    /// Everything else that can be set.
    pub fn settings(mut self, settings: WorkerSettings) -> Self {
        self.settings = settings;
        self
    }

    /// Signs leases with this name instead of a random one. It must not be shared with another process.
    pub fn id(mut self, id: WorkerId) -> Self {
        self.id = id;
        self
    }

    /// Whether its loops are well; stays valid while it runs.
    pub fn health(&self) -> WorkerHealth {
        self.health.clone()
    }

    /// Runs until `shutdown` completes, then lets running jobs finish within the grace period, releases the rest and
    /// records every outcome.
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
