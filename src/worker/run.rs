//! Starts the loops of a worker, watches them, and stops them in the order that loses nothing.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinSet;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use super::pool::Buffer;
use super::running_worker::RunningWorker;
use super::settler::Outcomes;
use super::supervise::supervise;
use super::{StopReason, Worker, WorkerError, WorkerHealth, WorkerSettings};
use super::{dispatcher, heartbeat, housekeeping, pool, presence, settler};
use crate::job::Outcome;
use crate::planted::{Bug, planted};

/// 5 s beyond the grace period to record the last outcomes; leases of what is left expire on their own.
const FLUSH_MAX: Duration = Duration::from_secs(5);

/// 2 s for the heartbeat thread to end: at most one call is in flight.
const HEARTBEAT_THREAD_END_MAX: Duration = Duration::from_secs(2);

/// 6 s for tasks that outlive their handlers: a command has 5 s to end after SIGTERM.
const OUTLIVING_TASKS_MAX: Duration = Duration::from_secs(6);

pub(super) async fn run_until<S: Send + Sync + 'static>(
    worker: Worker<S>,
    shutdown: impl Future<Output = ()>,
) -> Result<(), WorkerError> {
    let Worker { queue, id, settings, concurrency, handlers, state, health, registration_errors } = worker;
    let concurrency = concurrency.unwrap_or(settings.concurrency);
    let settings = WorkerSettings { concurrency, ..settings }.within_limits();
    if let Some(error) = registration_errors.into_iter().next() {
        return Err(error.into());
    }
    if handlers.is_empty() {
        return Err(WorkerError::NoHandlers);
    }
    for definition in handlers.values().filter_map(|known| known.definition.clone()) {
        if !queue.is_built_in(&definition.kind) {
            queue.put_kind(definition).await?;
        }
    }
    let shared = Arc::new(RunningWorker {
        queue,
        worker: id,
        settings,
        handlers,
        state,
        held: Default::default(),
        pace: Default::default(),
        presence: Default::default(),
        outcomes: Outcomes::default(),
        buffer: Buffer::default(),
        progress_reported: Arc::new(Notify::new()),
        outliving_tasks: TaskTracker::new(),
        stop_claiming: CancellationToken::new(),
        release_now: CancellationToken::new(),
        stop_heartbeats: CancellationToken::new(),
    });
    tracing::info!(worker_id = %shared.worker, concurrency = shared.settings.concurrency, "worker started");
    let mut loops = WorkerLoops::start(&shared, &health)?;
    let ended = tokio::select! {
        () = shutdown => Ok(()),
        died = loops.died() => died,
    };
    loops.wind_down(&shared).await;
    tracing::info!(worker_id = %shared.worker, "worker stopped");
    ended
}

/// The running loops, grouped by when they may stop.
struct WorkerLoops {
    /// Claims jobs.
    dispatcher: JoinSet<Result<(), WorkerError>>,
    /// Run handlers.
    slots: JoinSet<Result<(), WorkerError>>,
    /// Records outcomes.
    settler: JoinSet<Result<(), WorkerError>>,
    /// Tells handlers of cancelled jobs to stop.
    cancels: JoinSet<Result<(), WorkerError>>,
    /// Heartbeat and housekeeping; `None` once they have ended.
    heartbeat_thread: Option<oneshot::Receiver<Result<(), WorkerError>>>,
    /// If the worker is dropped instead of shut down, its threads end too, and its leases expire.
    _stop_on_drop: [DropGuard; 2],
}

impl WorkerLoops {
    fn start<S: Send + Sync + 'static>(
        shared: &Arc<RunningWorker<S>>,
        health: &WorkerHealth,
    ) -> Result<Self, WorkerError> {
        let heartbeat_thread = start_heartbeat_thread(shared.clone(), health.clone())?;
        let claim_thread = start_claim_thread(shared.stop_heartbeats.clone())?;
        let mut loops = Self {
            dispatcher: JoinSet::new(),
            slots: JoinSet::new(),
            settler: JoinSet::new(),
            cancels: JoinSet::new(),
            heartbeat_thread: Some(heartbeat_thread),
            _stop_on_drop: [shared.stop_claiming.clone().drop_guard(), shared.stop_heartbeats.clone().drop_guard()],
        };
        let this = shared.clone();
        // On a thread of its own: claimed jobs must be extended at once, while handlers may block every thread of their
        // runtime for longer than a lease; and reading a claim, megabytes at times, must not delay heartbeats.
        let dispatcher = supervise("dispatcher", health.clone(), shared.stop_claiming.clone(), move || {
            dispatcher::run(this.clone())
        });
        loops.dispatcher.spawn_on(dispatcher, &claim_thread);
        for _ in 0..shared.settings.concurrency {
            let this = shared.clone();
            loops.slots.spawn(supervise("slot", health.clone(), shared.stop_claiming.clone(), move || {
                pool::run_slot(this.clone())
            }));
        }
        let this = shared.clone();
        loops.settler.spawn(supervise("settler", health.clone(), shared.outcomes.closed.clone(), move || {
            let this = this.clone();
            async move { settler::run(this.queue.clone(), &this.outcomes, &this.held).await }
        }));
        let this = shared.clone();
        loops.cancels.spawn(supervise("cancels", health.clone(), shared.stop_heartbeats.clone(), move || {
            let this = this.clone();
            async move {
                let cancels = this.held.stop_cancelled(this.queue.cancels());
                this.stop_heartbeats.run_until_cancelled(cancels).await;
            }
        }));
        Ok(loops)
    }

    /// Completes when one of them has been given up.
    async fn died(&mut self) -> Result<(), WorkerError> {
        let one_of = |ended: Option<Result<Result<(), WorkerError>, tokio::task::JoinError>>, name| match ended {
            Some(Ok(result)) => result,
            Some(Err(error)) => Err(WorkerError::LoopDied { name, why: error.to_string() }),
            None => Ok(()),
        };
        tokio::select! {
            ended = self.dispatcher.join_next() => one_of(ended, "dispatcher"),
            ended = self.slots.join_next() => one_of(ended, "slot"),
            ended = self.settler.join_next() => one_of(ended, "settler"),
            ended = self.cancels.join_next() => one_of(ended, "cancels"),
            ended = end_of(&mut self.heartbeat_thread) => {
                self.heartbeat_thread = None;
                ended
            }
        }
    }

    /// Claims stop → running jobs finish, or are released when the grace period is over → outcomes are flushed →
    /// heartbeats stop.
    async fn wind_down<S: Send + Sync + 'static>(mut self, shared: &Arc<RunningWorker<S>>) {
        shared.stop_claiming.cancel();
        if planted(Bug::ShutdownAbandons) {
            return;
        }
        shared.held.stop_all(StopReason::ShuttingDown);
        let grace = tokio::time::sleep(shared.settings.shutdown_grace);
        tokio::pin!(grace);
        tokio::select! {
            () = async {
                while self.dispatcher.join_next().await.is_some() {}
                // In case the dispatcher died: slots would wait for jobs until the grace period is over.
                for job in shared.buffer.close() {
                    shared.outcomes.report(&job.attempt, Outcome::Released).await;
                }
                while self.slots.join_next().await.is_some() {}
            } => {}
            () = &mut grace => {
                tracing::warn!(jobs = shared.held.len(), "the grace period is over: releasing what still runs");
                shared.release_now.cancel();
            }
        }
        let flushed = tokio::time::timeout(FLUSH_MAX, async {
            while self.dispatcher.join_next().await.is_some() {}
            while self.slots.join_next().await.is_some() {}
            shared.outcomes.close();
            while self.settler.join_next().await.is_some() {}
        });
        if flushed.await.is_err() {
            tracing::error!(
                jobs = shared.held.len(),
                "could not record every outcome in time: their leases will expire"
            );
        }
        shared.stop_heartbeats.cancel();
        // Nothing of this worker may hold the queue when it returns.
        self.cancels.shutdown().await;
        if self.heartbeat_thread.is_some() {
            let _ = tokio::time::timeout(HEARTBEAT_THREAD_END_MAX, end_of(&mut self.heartbeat_thread)).await;
        }
        presence::say_goodbye(shared).await;
        shared.outliving_tasks.close();
        let _ = tokio::time::timeout(OUTLIVING_TASKS_MAX, shared.outliving_tasks.wait()).await;
    }
}

async fn end_of(thread: &mut Option<oneshot::Receiver<Result<(), WorkerError>>>) -> Result<(), WorkerError> {
    let Some(thread) = thread else { return std::future::pending().await };
    thread.await.unwrap_or_else(|_| Err(WorkerError::LoopDied { name: "heartbeat", why: "its thread ended".into() }))
}

/// A thread with a runtime for the dispatcher, until `stop`.
fn start_claim_thread(stop: CancellationToken) -> Result<Handle, WorkerError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let handle = runtime.handle().clone();
    let run = move || runtime.block_on(stop.cancelled());
    std::thread::Builder::new().name("steadfast-claims".into()).spawn(run)?;
    Ok(handle)
}

/// A thread with a runtime for heartbeat and housekeeping.
fn start_heartbeat_thread<S: Send + Sync + 'static>(
    shared: Arc<RunningWorker<S>>,
    health: WorkerHealth,
) -> Result<oneshot::Receiver<Result<(), WorkerError>>, WorkerError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (ended, thread) = oneshot::channel();
    std::thread::Builder::new().name("steadfast-heartbeat".into()).spawn(move || {
        let result = runtime.block_on(run_heartbeat_thread(shared, health));
        // Nobody receives it if the worker was dropped.
        let _ = ended.send(result);
    })?;
    Ok(thread)
}

async fn run_heartbeat_thread<S: Send + Sync + 'static>(
    shared: Arc<RunningWorker<S>>,
    health: WorkerHealth,
) -> Result<(), WorkerError> {
    let stop = shared.stop_heartbeats.clone();
    let this = shared.clone();
    let beating = supervise("heartbeat", health.clone(), stop.clone(), move || {
        let this = this.clone();
        async move {
            let beats = heartbeat::run(this.queue.clone(), &this.held, this.settings.lease, &this.progress_reported);
            this.stop_heartbeats.run_until_cancelled(beats).await;
        }
    });
    let this = shared.clone();
    let reporting = supervise("presence", health.clone(), stop.clone(), move || {
        let this = this.clone();
        async move {
            this.stop_heartbeats.run_until_cancelled(presence::run(&this)).await;
        }
    });
    let housekeeping = housekeeping::run(shared.queue.clone(), shared.settings.clone(), health, stop);
    tokio::try_join!(beating, reporting, housekeeping).map(|_| ())
}
