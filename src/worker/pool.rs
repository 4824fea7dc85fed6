//! The slots of a worker: each runs one job at a time. Whatever a handler does (fail, panic, hang, ignore its
//! cancellation), only its job fails; the slot goes on.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinError;
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument;

use super::context::{Attempt, Context, StopReason};
use super::handler::{Completion, JobError};
use super::held::HeldLeases;
use super::running_worker::{ClaimedJob, Registered, RunningWorker};
use crate::job::{AttemptOutcome, ErrorText, Kind, LeaseToken, Outcome};

/// 10 s: a handler that was told to stop and still runs is reported as stuck.
const STUCK_AFTER: Duration = Duration::from_secs(10);

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
    let handler = start_handler(shared, known, &attempt, job.payload.clone());
    let (outcome, still_running) = supervise(shared, handler, &attempt, deadline).await;
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
    let context = Context::new(attempt.clone(), shared.queue.clone(), shared.worker.clone(), shared.state.clone());
    let handler = known.handler.clone();
    let span = tracing::info_span!(
        "job", job_id = %attempt.lease.job_id, kind = %attempt.kind, attempt = attempt.number, worker_id = %shared.worker
    );
    AbortOnDropHandle::new(tokio::spawn(async move { handler.start(payload, context).await }.instrument(span)))
}

/// Waits for the handler, its deadline, or the end of the grace period. A handler in the answer still runs.
async fn supervise<S>(
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
