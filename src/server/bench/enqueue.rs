//! enqueue: producers put jobs in through the library and wait for each answer. Nobody works on them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use anyhow::{Context, Result};
use clap::Args;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::Common;
use super::figures::Percentiles;
use super::noop::{Flavour, NoOp, declare};
use super::run::Measure;
use super::stage::{Round, Stage};
use crate::job::JobRequest;
use crate::queue::Queue;

/// How to enqueue.
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

/// Producers on their way. Dropping it ends them.
pub(super) struct Producers {
    running: JoinSet<Result<Vec<u64>>>,
    pub(super) stored: Arc<AtomicU64>,
}

impl Producers {
    /// Starts producers that together put `jobs` jobs in, `batch` a call.
    pub(super) fn start(queue: &Queue, producers: u64, jobs: u64, batch: u64) -> Self {
        let (next, stored) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let mut running = JoinSet::new();
        for _ in 0..producers {
            running.spawn(produce(queue.clone(), next.clone(), stored.clone(), jobs, batch));
        }
        Self { running, stored }
    }

    /// How long each call took, once all are done.
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

impl Measure for Enqueue {
    const NAME: &'static str = "enqueue";

    fn settings(&self) -> Vec<(&'static str, Value)> {
        vec![("jobs", json!(self.jobs)), ("producers", json!(self.producers)), ("jobs_per_call", json!(self.batch))]
    }

    async fn round(&self, _: usize, _: &[Round], stage: &Stage) -> Result<Round> {
        let queue = stage.open().await?;
        declare(&queue, Flavour::Succeeds).await?;
        let watch = stage.start().await?;
        let producers = Producers::start(&queue, self.producers, self.jobs, self.batch);
        let _line = stage.progress.line("enqueueing", producers.stored.clone(), self.jobs);
        let calls = producers.calls().await?;
        let mut round = watch.stop(self.jobs).await?;
        round.latencies.extend(Percentiles::of_nanos(calls).map(|calls| ("call → answer", calls)));
        Ok(round)
    }
}
