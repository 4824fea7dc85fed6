//! The jobs that are measured. They do nothing, so that only the queue is measured, and are ordinary kinds, enqueued and
//! run through the public library.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use super::stopwatch::Fixture;
use crate::job::{JobRequest, KindDefaults, RetryPolicy, Status};
use crate::queue::{Job, Queue};
use crate::store::StatsRequest;
use crate::worker::{Context, JobError, Worker};

/// 73 characters: with the number around 100 bytes of JSON, as in other queues' benchmarks.
const TEXT: &str = "nothing is done with this text; it is here to weigh what a small job does";

/// 1,000 jobs a call, the most one call takes.
const PRELOAD_BATCH: usize = crate::job::limits::BATCH_MAX;

/// 60 s without a finished job: something is stuck, and there will be no result.
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
        KindDefaults { retry: Some(RetryPolicy::fixed([Duration::ZERO])), ..KindDefaults::default() }
    }
}

/// What the handler of a job does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Behaviour {
    Succeeds,
    FailsOnce,
}

impl Behaviour {
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

/// Counts executions of handlers, and wakes whoever waits for so many.
#[derive(Debug, Default)]
pub(super) struct Executions {
    pub(super) executed: Arc<AtomicU64>,
    wanted: AtomicU64,
    reached: Notify,
}

impl Executions {
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
pub async fn declare(queue: &Queue, behaviour: Behaviour) -> Result<()> {
    match behaviour {
        Behaviour::Succeeds => queue.declare::<NoOp>().await?,
        Behaviour::FailsOnce => queue.declare::<FailsOnce>().await?,
    }
    Ok(())
}

/// Puts jobs in by the thousand.
pub async fn preload(fixture: &Fixture, queue: &Queue, behaviour: Behaviour, jobs: u64) -> Result<()> {
    declare(queue, behaviour).await?;
    let done = Arc::new(AtomicU64::new(0));
    let _line = fixture.progress.line("preloading", done.clone(), jobs);
    for first in (0..jobs).step_by(PRELOAD_BATCH) {
        let batch: Result<Vec<_>> =
            (first..jobs.min(first + PRELOAD_BATCH as u64)).map(|seq| behaviour.request(seq)).collect();
        let stored = queue.enqueue_requests(batch?).await.context("cannot preload jobs")?.len();
        done.fetch_add(stored as u64, Ordering::Relaxed);
    }
    Ok(())
}

/// A worker with default settings that runs both flavours and counts.
pub(super) fn worker(queue: Queue, executions: Arc<Executions>, concurrency: Option<usize>) -> Worker<Arc<Executions>> {
    let worker = Worker::new(queue)
        .with_state(executions)
        .handle(|_: NoOp, context: Context<Arc<Executions>>| {
            context.state().count();
            std::future::ready(Ok::<_, JobError>(()))
        })
        .handle(|_: FailsOnce, context: Context<Arc<Executions>>| {
            context.state().count();
            let first = context.attempt() == 1;
            std::future::ready(if first { Err(JobError::new("fails the first time")) } else { Ok(()) })
        });
    match concurrency {
        Some(jobs) => worker.concurrency(jobs),
        None => worker,
    }
}

/// Runs until all wanted executions are done and every outcome is recorded.
pub(super) async fn work_off(worker: Worker<Arc<Executions>>, executions: &Executions) -> Result<u64> {
    worker.run_until(executions.all()).await?;
    let (executed, wanted) = (executions.executed.load(Ordering::Relaxed), executions.wanted.load(Ordering::Relaxed));
    if executed < wanted {
        bail!("only {executed} of {wanted} jobs ran, then none for {} s", STUCK_AFTER.as_secs());
    }
    Ok(executed)
}

/// Jobs that are on record as succeeded.
async fn succeeded(queue: &Queue) -> Result<u64> {
    let stats = queue.stats(StatsRequest::new().limit(0)).await?;
    Ok(stats.totals.get(&Status::Succeeded).copied().unwrap_or(0))
}

/// Waits until so many jobs are on record as succeeded.
pub(super) async fn until_succeeded(queue: &Queue, wanted: u64) -> Result<()> {
    let (mut seen, mut moved) = (0, Instant::now());
    while seen < wanted {
        tokio::time::sleep(Duration::from_millis(20)).await;
        let now = succeeded(queue).await?;
        if now > seen {
            (seen, moved) = (now, Instant::now());
        } else if moved.elapsed() > STUCK_AFTER {
            bail!("{seen} of {wanted} jobs are on record as succeeded, and no more for {} s", STUCK_AFTER.as_secs());
        }
    }
    Ok(())
}

/// A result counts only if the jobs are really done.
pub async fn check_succeeded(queue: &Queue, wanted: u64) -> Result<()> {
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
        let payload = Behaviour::Succeeds.request(123_456).unwrap().payload;
        assert!((95..=105).contains(&payload.as_str().len()), "{}", payload.as_str());
    }
}
