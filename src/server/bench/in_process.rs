//! The shapes that need one process and only the library: `drain`, `enqueue`, and `life`, which is both at the same time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use anyhow::{Context, Result};
use clap::Args;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::Common;
use super::noop_jobs::{Behaviour, Executions, NoOp, check_succeeded, declare, preload, work_off, worker};
use super::run::Measure;
use super::statistics::Percentiles;
use super::stopwatch::{Fixture, Round};
use crate::job::JobRequest;
use crate::queue::Queue;
use crate::worker::WorkerSettings;

/// Jobs are preloaded by the thousand, then one worker with default settings finishes them all.
#[derive(Debug, Args)]
pub(super) struct Drain {
    #[command(flatten)]
    pub(super) common: Common,
    /// Jobs to be finished
    #[arg(long, value_name = "N", default_value_t = 200_000, value_parser = clap::value_parser!(u64).range(1..))]
    jobs: u64,
    /// Jobs that are in the table before, already finished
    #[arg(long, value_name = "N", default_value_t = 0)]
    finished: u64,
    /// Jobs that are in the table besides, waiting their turn
    #[arg(long, value_name = "N", default_value_t = 0)]
    waiting: u64,
    /// Every job fails once, is retried at once, and then succeeds; executions are counted
    #[arg(long)]
    fails_once: bool,
    /// Jobs at the same time; left out: the worker's default
    #[arg(long, value_name = "N")]
    concurrency: Option<usize>,
}

/// Runs so many executions of the jobs that wait. The clock stops when the last outcome is recorded.
pub async fn measure_drain(fixture: &Fixture, wanted: u64, concurrency: Option<usize>) -> Result<Round> {
    let executions = Executions::of(wanted);
    let worker = worker(fixture.open().await?, executions.clone(), concurrency);
    let _line = fixture.progress.line("draining", executions.executed.clone(), wanted);
    let stopwatch = fixture.start().await?;
    let executed = work_off(worker, &executions).await?;
    stopwatch.stop(executed).await
}

impl Measure for Drain {
    const NAME: &'static str = "drain";

    fn settings(&self) -> Vec<(&'static str, Value)> {
        vec![
            ("jobs", json!(self.jobs)),
            ("finished_before", json!(self.finished)),
            ("waiting_besides", json!(self.waiting)),
            ("fails_once", json!(self.fails_once)),
            ("concurrency", concurrency(self.concurrency)),
            ("worker_processes", json!(1)),
        ]
    }

    fn counts(&self) -> &'static str {
        "executions"
    }

    async fn round(&self, _: usize, _: &[Round], fixture: &Fixture) -> Result<Round> {
        if self.finished > 0 {
            preload(fixture, &fixture.open().await?, Behaviour::Succeeds, self.finished).await?;
            measure_drain(fixture, self.finished, self.concurrency).await?;
        }
        let behaviour = if self.fails_once { Behaviour::FailsOnce } else { Behaviour::Succeeds };
        preload(fixture, &fixture.open().await?, behaviour, self.jobs + self.waiting).await?;
        fixture.tidy().await?;
        let round = measure_drain(fixture, self.jobs * behaviour.executions(), self.concurrency).await?;
        // With others waiting besides, a first failure of one of those is as good as a second run of one of ours.
        if !(self.fails_once && self.waiting > 0) {
            check_succeeded(&fixture.open().await?, self.finished + self.jobs).await?;
        }
        Ok(round)
    }
}

/// Producers put jobs in through the library and wait for each answer. Nobody works on them.
#[derive(Debug, Args)]
pub(super) struct Enqueue {
    #[command(flatten)]
    pub(super) common: Common,
    /// Jobs to put in
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..))]
    jobs: u64,
    /// Producers at the same time
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u64).range(1..))]
    producers: u64,
    /// Jobs per call, up to 1,000
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1000))]
    batch: u64,
}

/// So many producers put `jobs` jobs in, `batch` per call.
pub async fn measure_enqueue(fixture: &Fixture, jobs: u64, producers: u64, batch: u64) -> Result<Round> {
    let queue = fixture.open().await?;
    declare(&queue, Behaviour::Succeeds).await?;
    let stopwatch = fixture.start().await?;
    let producers = Producers::start(&queue, producers, jobs, batch);
    let _line = fixture.progress.line("enqueueing", producers.stored.clone(), jobs);
    let calls = producers.calls().await?;
    let mut round = stopwatch.stop(jobs).await?;
    round.latencies.extend(Percentiles::of_nanos(calls).map(|calls| ("call → answer", calls)));
    Ok(round)
}

impl Measure for Enqueue {
    const NAME: &'static str = "enqueue";

    fn settings(&self) -> Vec<(&'static str, Value)> {
        vec![("jobs", json!(self.jobs)), ("producers", json!(self.producers)), ("jobs_per_call", json!(self.batch))]
    }

    async fn round(&self, _: usize, _: &[Round], fixture: &Fixture) -> Result<Round> {
        measure_enqueue(fixture, self.jobs, self.producers, self.batch).await
    }
}

/// Callers enqueue one by one while a worker with default settings finishes the same jobs. The clock stops when the last
/// outcome is recorded.
#[derive(Debug, Args)]
pub(super) struct Life {
    #[command(flatten)]
    pub(super) common: Common,
    /// Jobs in all
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..))]
    jobs: u64,
    /// Producers at the same time, one job per call
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..))]
    producers: u64,
    /// Jobs at the same time; left out: the worker's default
    #[arg(long, value_name = "N")]
    concurrency: Option<usize>,
}

impl Measure for Life {
    const NAME: &'static str = "life";

    fn settings(&self) -> Vec<(&'static str, Value)> {
        vec![
            ("jobs", json!(self.jobs)),
            ("producers", json!(self.producers)),
            ("jobs_per_call", json!(1)),
            ("concurrency", concurrency(self.concurrency)),
        ]
    }

    async fn round(&self, _: usize, _: &[Round], fixture: &Fixture) -> Result<Round> {
        let queue = fixture.open().await?;
        declare(&queue, Behaviour::Succeeds).await?;
        let executions = Executions::of(self.jobs);
        let worker = worker(queue.clone(), executions.clone(), self.concurrency);
        let _line = fixture.progress.line("living", executions.executed.clone(), self.jobs);
        let stopwatch = fixture.start().await?;
        let producers = Producers::start(&queue, self.producers, self.jobs, 1);
        let (calls, executed) = tokio::try_join!(producers.calls(), work_off(worker, &executions))?;
        let mut round = stopwatch.stop(executed).await?;
        round.latencies.extend(Percentiles::of_nanos(calls).map(|calls| ("call → answer", calls)));
        check_succeeded(&queue, self.jobs).await?;
        Ok(round)
    }
}

/// As it is reported.
fn concurrency(given: Option<usize>) -> Value {
    json!(given.unwrap_or(WorkerSettings::default().concurrency))
}

/// Producers at work, each a task. Dropping it ends them.
pub(super) struct Producers {
    running: JoinSet<Result<Vec<u64>>>,
    stored: Arc<AtomicU64>,
}

impl Producers {
    /// Starts producers that together put `jobs` jobs in, `batch` per call.
    pub(super) fn start(queue: &Queue, producers: u64, jobs: u64, batch: u64) -> Self {
        let (next, stored) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let mut running = JoinSet::new();
        for _ in 0..producers {
            running.spawn(produce(queue.clone(), next.clone(), stored.clone(), jobs, batch));
        }
        Self { running, stored }
    }

    /// How long each call took, in nanoseconds, once all are done.
    pub(super) async fn calls(mut self) -> Result<Vec<u64>> {
        let mut calls = Vec::new();
        while let Some(ended) = self.running.join_next().await {
            calls.extend(ended.context("a producer was interrupted")??);
        }
        Ok(calls)
    }
}

async fn produce(
    queue: Queue,
    next: Arc<AtomicU64>,
    stored: Arc<AtomicU64>,
    jobs: u64,
    batch: u64,
) -> Result<Vec<u64>> {
    let mut nanos = Vec::new();
    loop {
        let first = next.fetch_add(batch, Ordering::Relaxed);
        if first >= jobs {
            return Ok(nanos);
        }
        let last = jobs.min(first + batch);
        let called = Instant::now();
        if batch == 1 {
            queue.enqueue(NoOp::new(first)).await?;
        } else {
            let requests: Result<Vec<_>, _> = (first..last).map(|seq| JobRequest::of(&NoOp::new(seq))).collect();
            queue.enqueue_requests(requests?).await?;
        }
        nanos.push(called.elapsed().as_nanos() as u64);
        stored.fetch_add(last - first, Ordering::Relaxed);
    }
}
