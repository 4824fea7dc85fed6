//! What a handler knows about its attempt, and how it is told to stop.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::running_worker::RunningWorker;
use crate::job::{JobId, Kind, Lease, LeaseKey, Progress, QueueName, TraceContext, WorkerId};
use crate::queue::Queue;

/// Why a handler should stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StopReason {
    /// Cancellation of the job was requested.
    Cancelled,
    /// The lease was lost: another worker may be running the job. The outcome of this attempt is refused.
    LeaseLost,
    /// The attempt ran past its deadline.
    TimedOut,
    /// The process shuts down: finish within the grace period, or stop and the job goes back to the queue without costing
    /// an attempt.
    ShuttingDown,
}

/// Passed to every handler: the attempt, the shared state, progress and the signal to stop. Cheap to clone.
#[derive(Debug)]
pub struct Context<S = ()> {
    attempt: Arc<Attempt>,
    queue: Queue,
    worker: WorkerId,
    state: Arc<S>,
    outliving_tasks: TaskTracker,
}

impl<S> Clone for Context<S> {
    fn clone(&self) -> Self {
        Self {
            attempt: self.attempt.clone(),
            queue: self.queue.clone(),
            worker: self.worker.clone(),
            state: self.state.clone(),
            outliving_tasks: self.outliving_tasks.clone(),
        }
    }
}

impl<S> Context<S> {
    pub(super) fn new(attempt: Arc<Attempt>, worker: &RunningWorker<S>) -> Self {
        Self {
            attempt,
            queue: worker.queue.clone(),
            worker: worker.worker.clone(),
            state: worker.state.clone(),
            outliving_tasks: worker.outliving_tasks.clone(),
        }
    }

    /// The same for a handler that was registered before there was any state.
    pub(super) fn without_state(self) -> Context {
        let Self { attempt, queue, worker, outliving_tasks, .. } = self;
        Context { attempt, queue, worker, state: Arc::new(()), outliving_tasks }
    }

    /// The trace that the job was enqueued in, to go on with.
    pub fn trace(&self) -> Option<&TraceContext> {
        self.attempt.trace.as_ref()
    }

    /// The job's id, the same for all attempts: use it as an idempotency key for side effects.
    pub fn job_id(&self) -> JobId {
        self.attempt.lease.job_id
    }

    /// The number of this attempt, from 1.
    pub fn attempt(&self) -> u32 {
        self.attempt.number
    }

    /// How many attempts may count; the attempt with this number is the last.
    pub fn max_attempts(&self) -> u32 {
        self.attempt.max_attempts
    }

    /// The job's kind.
    pub fn kind(&self) -> &Kind {
        &self.attempt.kind
    }

    /// The name of the queue that the job waited in.
    pub fn queue_name(&self) -> &QueueName {
        &self.attempt.queue_name
    }

    /// The id of this worker, as recorded with its leases.
    pub fn worker_id(&self) -> &WorkerId {
        &self.worker
    }

    /// When the attempt is stopped as timed out, if the job or its handler has a timeout. A handler that waits for others
    /// ends its own waits a little before, so that the error says what it waited for.
    pub fn deadline(&self) -> Option<Instant> {
        self.attempt.deadline.get().copied()
    }

    /// The state given to [`Worker::with_state`](super::Worker::with_state).
    pub fn state(&self) -> &S {
        &self.state
    }

    /// The queue, to enqueue further jobs.
    pub fn queue(&self) -> &Queue {
        &self.queue
    }

    /// Reports progress, stored within about a second. Only the newest report is kept.
    pub fn progress(&self, percent: impl Into<Option<u8>>, message: Option<&str>) {
        self.attempt.report(Progress::new(percent.into(), message));
    }

    /// Returns the reason when the handler should stop. For `tokio::select!`.
    pub async fn stopped(&self) -> StopReason {
        self.attempt.stop.cancelled().await;
        self.stop_reason().unwrap_or(StopReason::ShuttingDown)
    }

    /// For tasks that end what a handler began, also when its future is dropped (after its deadline, or at the end of the
    /// grace period). A worker that shuts down waits a few seconds for them.
    pub(crate) fn outliving_tasks(&self) -> &TaskTracker {
        &self.outliving_tasks
    }

    /// The reason to stop, if there is one. For handlers that poll between two steps.
    pub fn stop_reason(&self) -> Option<StopReason> {
        self.attempt.stop_reason()
    }
}

/// An attempt of this process, shared by its handler, the pool and the heartbeat.
#[derive(Debug)]
pub(super) struct Attempt {
    pub(super) lease: LeaseKey,
    pub(super) kind: Kind,
    queue_name: QueueName,
    pub(super) number: u32,
    max_attempts: u32,
    pub(super) trace: Option<TraceContext>,
    deadline: OnceLock<Instant>,
    stop: CancellationToken,
    reason: OnceLock<StopReason>,
    progress: Mutex<Option<Progress>>,
    progress_reported: Arc<tokio::sync::Notify>,
    handed_over: AtomicBool,
}

impl Attempt {
    pub(super) fn new(lease: &Lease, progress_reported: Arc<tokio::sync::Notify>) -> Self {
        let job = lease.job();
        Self {
            lease: lease.key(),
            kind: job.kind.clone(),
            queue_name: job.queue.clone(),
            number: job.attempts,
            max_attempts: job.max_attempts,
            trace: job.trace.clone(),
            deadline: OnceLock::new(),
            stop: CancellationToken::new(),
            reason: OnceLock::new(),
            progress: Mutex::default(),
            progress_reported,
            handed_over: AtomicBool::new(false),
        }
    }

    /// Marks that the settler has its outcome; the answer to the settle says whether the lease was still valid.
    pub(super) fn hand_over(&self) {
        self.handed_over.store(true, Ordering::SeqCst);
    }

    pub(super) fn is_handed_over(&self) -> bool {
        self.handed_over.load(Ordering::SeqCst)
    }

    /// Set once, before the handler starts.
    pub(super) fn set_deadline(&self, deadline: Instant) {
        let _ = self.deadline.set(deadline);
    }

    /// Tells the handler to stop. The first reason is kept.
    pub(super) fn stop(&self, reason: StopReason) {
        let _ = self.reason.set(reason);
        self.stop.cancel();
    }

    pub(super) fn stop_reason(&self) -> Option<StopReason> {
        self.reason.get().copied()
    }

    pub(super) async fn stopped(&self) {
        self.stop.cancelled().await;
    }

    fn report(&self, progress: Progress) {
        *self.progress() = Some(progress);
        self.progress_reported.notify_one();
    }

    pub(super) fn has_progress(&self) -> bool {
        self.progress().is_some()
    }

    /// Progress reported since the last call.
    pub(super) fn take_progress(&self) -> Option<Progress> {
        self.progress().take()
    }

    /// Keeps progress that could not be sent, unless newer was reported meanwhile.
    pub(super) fn put_back_progress(&self, progress: Progress) {
        self.progress().get_or_insert(progress);
    }

    fn progress(&self) -> MutexGuard<'_, Option<Progress>> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
