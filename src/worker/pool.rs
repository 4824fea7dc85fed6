//! The slots of a worker, and the buffer of claimed jobs in front of them. Each slot runs one job at a time. Whatever a
//! handler does (fail, panic, hang, ignore its cancellation), only its job fails; the slot goes on.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinError;
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument;

use super::context::{Attempt, Context, StopReason};
use super::handler::{Completion, JobError};
use super::held::HeldLeases;
use super::running_worker::{Registered, RunningWorker};
use crate::job::{AttemptOutcome, ErrorText, Kind, Lease, LeaseToken, Outcome};

/// 10 s: a handler that was told to stop and still runs is reported as stuck.
const STUCK_AFTER: Duration = Duration::from_secs(10);

/// A claimed job, waiting for a slot.
pub(super) struct ClaimedJob {
    pub(super) lease: Lease,
    pub(super) attempt: Arc<Attempt>,
    /// Taken before the claim was sent, so a deadline counted from here is never late.
    pub(super) claimed: Instant,
    pub(super) permit: Option<OwnedSemaphorePermit>,
}

/// Claimed jobs, in order, between the dispatcher and the slots.
#[derive(Default)]
pub(super) struct Buffer {
    jobs: Mutex<VecDeque<ClaimedJob>>,
    /// One permit per job, so that slots wait for jobs in turn. Bounded by what the dispatcher claims.
    ready: EmptySemaphore,
    idle_slots: AtomicUsize,
    pub(super) room: Notify,
}

/// A semaphore that starts without permits.
struct EmptySemaphore(Semaphore);

impl Default for EmptySemaphore {
    fn default() -> Self {
        Self(Semaphore::new(0))
    }
}

impl Buffer {
    pub(super) fn idle_slots(&self) -> usize {
        self.idle_slots.load(Ordering::Relaxed)
    }

    /// Idle slots for which no job waits.
    pub(super) fn free_slots(&self) -> usize {
        self.idle_slots().saturating_sub(self.len())
    }

    pub(super) fn len(&self) -> usize {
        self.lock().len()
    }

    pub(super) fn put(&self, jobs: Vec<ClaimedJob>) {
        let count = jobs.len();
        self.lock().extend(jobs);
        self.ready.0.add_permits(count);
    }

    /// The next job; `None` once closed.
    async fn next(&self) -> Option<ClaimedJob> {
        self.ready.0.acquire().await.ok()?.forget();
        self.lock().pop_front()
    }

    /// The oldest job, if `unwanted` selects it; never one that a slot is about to take.
    pub(super) fn take_oldest_if(&self, unwanted: impl FnOnce(&ClaimedJob) -> bool) -> Option<ClaimedJob> {
        self.ready.0.try_acquire().ok()?.forget();
        let mut jobs = self.lock();
        if jobs.front().is_some_and(unwanted) {
            return jobs.pop_front();
        }
        self.ready.0.add_permits(1);
        None
    }

    /// Closes the buffer to the slots; the remaining jobs are the caller's.
    pub(super) fn close(&self) -> Vec<ClaimedJob> {
        self.ready.0.close();
        self.lock().drain(..).collect()
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<ClaimedJob>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts a slot as idle until dropped.
struct Idle<'a>(&'a AtomicUsize);

impl<'a> Idle<'a> {
    fn count(slots: &'a AtomicUsize) -> Self {
        slots.fetch_add(1, Ordering::Relaxed);
        Self(slots)
    }
}

impl Drop for Idle<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<S> RunningWorker<S> {
    /// The next job for a slot; `None` when the dispatcher has stopped and the buffer is empty.
    pub(super) async fn next_job(&self) -> Option<ClaimedJob> {
        let _idle = Idle::count(&self.buffer.idle_slots);
        if self.room() > 0 {
            self.buffer.room.notify_one();
        }
        self.buffer.next().await
    }

    /// How many more jobs to claim: the idle slots and the prefetch, less what is buffered. 0 until it is worth a round
    /// trip, unless a slot is starving.
    pub(super) fn room(&self) -> usize {
        let (idle, buffered) = (self.buffer.idle_slots(), self.buffer.len());
        let prefetch = self.pace.prefetch(self.settings.concurrency);
        let room = (idle + prefetch).saturating_sub(buffered);
        let starving = idle > buffered;
        if starving || room > prefetch / 4 { room } else { 0 }
    }
}

/// One slot: takes jobs until there are no more.
pub(super) async fn run_slot<S: Send + Sync + 'static>(shared: Arc<RunningWorker<S>>) {
    while let Some(job) = shared.next_job().await {
        run_job(&shared, job).await;
    }
}

async fn run_job<S: Send + Sync + 'static>(shared: &Arc<RunningWorker<S>>, job: ClaimedJob) {
    let ClaimedJob { lease, attempt, claimed, permit } = job;
    let job = lease.job();
    let Some(known) = shared.handlers.get(&job.kind) else {
        // Cannot happen: only kinds with a handler are claimed. Another worker may have one.
        shared.outcomes.report(&attempt, Outcome::Released).await;
        return;
    };
    if let Some(reason) = attempt.stop_reason() {
        // Told to stop while it waited for a slot: not started at all.
        return end_unstarted(shared, &attempt, reason).await;
    }
    let unwound = RemoveOnUnwind { held: &shared.held, token: Some(attempt.lease.token) };
    let started = Instant::now();
    metrics::counter!("worker_jobs_started_total", "kind" => job.kind.to_string()).increment(1);
    let deadline = deadline(claimed, job.timeout_ms, known);
    if let Some(deadline) = deadline {
        attempt.set_deadline(deadline);
    }
    let handler = start_handler(shared, known, &attempt, job.payload.clone());
    let (outcome, still_running) = run_to_its_end(shared, handler, &attempt, deadline).await;
    record_metrics(&job.kind, outcome.recorded_as(), started.elapsed());
    shared.pace.finished(started.elapsed());
    shared.outcomes.report(&attempt, outcome).await;
    unwound.disarm();
    if let Some(handler) = still_running {
        wait_until_it_ends(shared, handler, &attempt).await;
    }
    drop(permit);
}

async fn end_unstarted<S>(shared: &RunningWorker<S>, attempt: &Attempt, reason: StopReason) {
    let outcome = match reason {
        // It may be another worker's by now: nothing to report.
        StopReason::LeaseLost => return,
        StopReason::Cancelled => Outcome::Cancelled,
        StopReason::ShuttingDown | StopReason::TimedOut => Outcome::Released,
    };
    shared.outcomes.report(attempt, outcome).await;
}

/// If the slot itself panics, its lease must expire instead of being extended for ever.
struct RemoveOnUnwind<'a> {
    held: &'a HeldLeases,
    token: Option<LeaseToken>,
}

impl RemoveOnUnwind<'_> {
    /// The settler has the outcome, and removes the lease.
    fn disarm(mut self) {
        self.token = None;
    }
}

impl Drop for RemoveOnUnwind<'_> {
    fn drop(&mut self) {
        if let Some(token) = self.token {
            self.held.remove(token);
        }
    }
}

fn deadline<S>(claimed: Instant, timeout_ms: Option<u64>, known: &Registered<S>) -> Option<Instant> {
    let of_job = timeout_ms.map(Duration::from_millis);
    of_job.into_iter().chain(known.timeout).min().and_then(|timeout| claimed.checked_add(timeout))
}

type HandlerTask = AbortOnDropHandle<Result<Completion, JobError>>;

/// On a task of its own: a panic ends only the task, and a blocked thread does not block the slot's timers.
fn start_handler<S: Send + Sync + 'static>(
    shared: &Arc<RunningWorker<S>>,
    known: &Registered<S>,
    attempt: &Arc<Attempt>,
    payload: crate::job::Json,
) -> HandlerTask {
    let context = Context::new(attempt.clone(), shared);
    let handler = known.handler.clone();
    let span = tracing::info_span!(
        "job", job_id = %attempt.lease.job_id, kind = %attempt.kind, attempt = attempt.number, worker_id = %shared.worker,
        trace_id = tracing::field::Empty
    );
    if let Some(trace) = &attempt.trace {
        span.record("trace_id", trace.trace_id());
    }
    AbortOnDropHandle::new(tokio::spawn(async move { handler.start(payload, context).await }.instrument(span)))
}

/// Waits for the handler, its deadline, or the end of the grace period. A handler in the answer still runs.
async fn run_to_its_end<S>(
    shared: &RunningWorker<S>,
    mut handler: HandlerTask,
    attempt: &Attempt,
    deadline: Option<Instant>,
) -> (Outcome, Option<HandlerTask>) {
    let timed_out = async {
        match deadline {
            Some(deadline) => tokio::time::sleep_until(deadline.into()).await,
            None => std::future::pending().await,
        }
    };
    let stuck = report_stuck_handler(attempt);
    tokio::pin!(timed_out, stuck);
    tokio::select! {
        biased;
        ended = &mut handler => (outcome_of(ended, attempt.stop_reason()), None),
        () = &mut timed_out => {
            attempt.stop(StopReason::TimedOut);
            handler.abort();
            let error = ErrorText::new("timed out: the attempt ran past its deadline and was stopped");
            (Outcome::TimedOut(error), Some(handler))
        }
        () = shared.release_now.cancelled() => (Outcome::Released, None),
        never = &mut stuck => match never {},
    }
}

/// After its deadline an attempt is recorded as timed out, but its thread may be blocked: the slot stays occupied.
async fn wait_until_it_ends<S>(shared: &RunningWorker<S>, mut handler: HandlerTask, attempt: &Attempt) {
    let stuck = report_stuck_handler(attempt);
    tokio::pin!(stuck);
    tokio::select! {
        biased;
        _ = &mut handler => {}
        () = shared.release_now.cancelled() => {}
        never = &mut stuck => match never {},
    }
}

/// Logs once that a handler was told to stop and did not; counts it as stuck until dropped.
async fn report_stuck_handler(attempt: &Attempt) -> std::convert::Infallible {
    attempt.stopped().await;
    tokio::time::sleep(STUCK_AFTER).await;
    let _counted = StuckSlot::count();
    tracing::warn!(
        job_id = %attempt.lease.job_id, kind = %attempt.kind, attempt = attempt.number, reason = ?attempt.stop_reason(),
        "a handler was told to stop and has not: its slot is stuck"
    );
    std::future::pending().await
}

struct StuckSlot;

impl StuckSlot {
    fn count() -> Self {
        metrics::gauge!("worker_slots_stuck").increment(1.0);
        Self
    }
}

impl Drop for StuckSlot {
    fn drop(&mut self) {
        metrics::gauge!("worker_slots_stuck").decrement(1.0);
    }
}

fn outcome_of(ended: Result<Result<Completion, JobError>, JoinError>, told: Option<StopReason>) -> Outcome {
    match (ended, told) {
        (Ok(Ok(Completion::Done(result))), _) => Outcome::succeeded(result),
        (Ok(Ok(Completion::Snooze(wait))), _) => Outcome::snoozed(wait),
        // It stopped because it was told to.
        (Ok(Err(_)), Some(StopReason::Cancelled)) => Outcome::Cancelled,
        (Ok(Err(_)), Some(StopReason::ShuttingDown)) => Outcome::Released,
        (Ok(Err(error)), _) => error.into_outcome(),
        (Err(error), _) => match error.try_into_panic() {
            Ok(panic) => Outcome::failed(format!("the handler panicked: {}", panic_text(&*panic))),
            Err(_) => Outcome::Released,
        },
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("(no message)")
}

fn record_metrics(kind: &Kind, outcome: AttemptOutcome, took: Duration) {
    let labels = [("kind", kind.to_string()), ("outcome", outcome.to_string())];
    metrics::counter!("worker_jobs_completed_total", &labels).increment(1);
    metrics::histogram!("worker_job_duration_seconds", &labels).record(took);
}
