//! The jobs that are measured: they do nothing, so that all there is to measure is the queue. Ordinary kinds, put in and
//! run through the public library like anybody's.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use super::stage::Stage;
use crate::job::{JobRequest, KindDefaults, RetryPolicy, Status};
use crate::queue::{Job, Queue};
use crate::worker::{Context, JobError, Worker};

/// 73 characters: with the number around 100 bytes of JSON, as in other queues' benchmarks.
const TEXT: &str = "nothing is done with this text; it is here to weigh what a small job does";

/// 1,000 jobs a call, the most one call takes.
pub(super) const PRELOAD_BATCH: usize = crate::job::limits::BATCH_MAX;

/// 60 s without a finished job: something is stuck, and figures will not come.
const STUCK_AFTER: Duration = Duration::from_secs(60);

/// Succeeds at once.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(super) struct NoOp {
    pub(super) text: String,
    pub(super) seq: u64,
}

impl NoOp {
    pub(super) fn new(seq: u64) -> Self {
        Self { text: TEXT.into(), seq }
    }
}

impl Job for NoOp {
    const KIND: &'static str = "bench_noop";
}

/// Fails once, then succeeds at once.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(super) struct FailsOnce {
    text: String,
    seq: u64,
}

impl Job for FailsOnce {
    const KIND: &'static str = "bench_fails_once";

    /// Without a wait: what is measured is the cost of a failure, not the length of a backoff.
    fn defaults() -> KindDefaults {
        KindDefaults { retry: Some(RetryPolicy::Fixed { delays_ms: vec![0] }), ..KindDefaults::default() }
    }
}

/// Which of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flavour {
    Succeeds,
    FailsOnce,
}

impl Flavour {
    /// Starts of one job.
    pub(super) fn executions(self) -> u64 {
        match self {
            Self::Succeeds => 1,
            Self::FailsOnce => 2,
        }
    }

    fn request(self, seq: u64) -> Result<JobRequest> {
        Ok(match self {
            Self::Succeeds => JobRequest::of(&NoOp::new(seq))?,
            Self::FailsOnce => JobRequest::of(&FailsOnce { text: TEXT.into(), seq })?,
        })
    }
}

/// Handlers that have run, and who waits for them.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) executed: Arc<AtomicU64>,
    wanted: AtomicU64,
    reached: Notify,
}

impl Tally {
    pub(super) fn of(wanted: u64) -> Arc<Self> {
        Arc::new(Self { wanted: AtomicU64::new(wanted), ..Self::default() })
    }

    fn count(&self) {
        if self.executed.fetch_add(1, Ordering::Relaxed) + 1 == self.wanted.load(Ordering::Relaxed) {
            self.reached.notify_one();
        }
    }

    /// Completes when all wanted have run, or when it looks as if they never would.
    async fn all(&self) {
        let (mut before, mut idle) = (0, Duration::ZERO);
        while idle < STUCK_AFTER {
            const LOOK: Duration = Duration::from_secs(1);
            if tokio::time::timeout(LOOK, self.reached.notified()).await.is_ok() {
                return;
            }
            let now = self.executed.load(Ordering::Relaxed);
            idle = if now == before { idle + LOOK } else { Duration::ZERO };
            before = now;
        }
    }
}

/// Declares the kind, so that nobody does so while the clock runs.
pub(super) async fn declare(queue: &Queue, flavour: Flavour) -> Result<()> {
    match flavour {
        Flavour::Succeeds => queue.declare::<NoOp>().await?,
        Flavour::FailsOnce => queue.declare::<FailsOnce>().await?,
    }
    Ok(())
}

/// Puts jobs in by the thousand.
pub(super) async fn preload(stage: &Stage, queue: &Queue, flavour: Flavour, jobs: u64) -> Result<()> {
    declare(queue, flavour).await?;
    let done = Arc::new(AtomicU64::new(0));
    let _line = stage.progress.line("preloading", done.clone(), jobs);
    for first in (0..jobs).step_by(PRELOAD_BATCH) {
        let batch: Result<Vec<_>> =
            (first..jobs.min(first + PRELOAD_BATCH as u64)).map(|seq| flavour.request(seq)).collect();
        let stored = queue.enqueue_requests(batch?).await.context("cannot preload jobs")?.len();
        done.fetch_add(stored as u64, Ordering::Relaxed);
    }
    Ok(())
}

/// A worker with default settings that runs both flavours and counts.
pub(super) fn worker(queue: Queue, tally: Arc<Tally>, concurrency: Option<usize>) -> Worker<Arc<Tally>> {
    let worker = Worker::new(queue)
        .with_state(tally)
        .handle(|_: NoOp, context: Context<Arc<Tally>>| {
            context.state().count();
            std::future::ready(Ok::<_, JobError>(()))
        })
        .handle(|_: FailsOnce, context: Context<Arc<Tally>>| {
            context.state().count();
            let first = context.attempt() == 1;
            std::future::ready(if first { Err(JobError::new("fails the first time")) } else { Ok(()) })
        });
    match concurrency {
        Some(jobs) => worker.concurrency(jobs),
        None => worker,
    }
}

/// Runs until the tally is full and every outcome is recorded.
pub(super) async fn work_off(worker: Worker<Arc<Tally>>, tally: &Tally) -> Result<u64> {
    worker.run_until(tally.all()).await?;
    let (executed, wanted) = (tally.executed.load(Ordering::Relaxed), tally.wanted.load(Ordering::Relaxed));
    if executed < wanted {
        bail!("only {executed} of {wanted} jobs ran, then none for {} s", STUCK_AFTER.as_secs());
    }
    Ok(executed)
}

/// Jobs that are on record as succeeded.
pub(super) async fn succeeded(queue: &Queue) -> Result<u64> {
    let stats = queue.stats().await?;
    Ok(stats.queues.values().filter_map(|queue| queue.counts.get(&Status::Succeeded)).sum())
}

/// A figure counts only if the jobs are really done.
pub(super) async fn check_succeeded(queue: &Queue, wanted: u64) -> Result<()> {
    let found = succeeded(queue).await?;
    if found < wanted {
        bail!("{found} jobs are on record as succeeded, not {wanted}: this round does not count");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_weighs_what_those_of_other_benchmarks_do() {
        assert_eq!(TEXT.len(), 73);
        let payload = Flavour::Succeeds.request(123_456).unwrap().payload;
        assert!((95..=105).contains(&payload.as_str().len()), "{}", payload.as_str());
    }
}
