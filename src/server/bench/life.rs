//! life: the whole life of jobs in one process. Callers enqueue one by one while a worker with default settings takes
//! the same jobs off again. The clock stops when the last outcome is recorded.

use anyhow::Result;
use clap::Args;
use serde_json::{Value, json};

use super::Common;
use super::enqueue::Producers;
use super::figures::Percentiles;
use super::noop::{Flavour, Tally, check_succeeded, declare, work_off, worker};
use super::run::Measure;
use super::stage::{Round, Stage};
use crate::worker::WorkerSettings;

/// How to live.
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
            ("concurrency", json!(self.concurrency.unwrap_or(WorkerSettings::default().concurrency))),
        ]
    }

    async fn round(&self, _: usize, _: &[Round], stage: &Stage) -> Result<Round> {
        let queue = stage.open().await?;
        declare(&queue, Flavour::Succeeds).await?;
        let tally = Tally::of(self.jobs);
        let worker = worker(queue.clone(), tally.clone(), self.concurrency);
        let _line = stage.progress.line("living", tally.executed.clone(), self.jobs);
        let watch = stage.start().await?;
        let producers = Producers::start(&queue, self.producers, self.jobs, 1);
        let (calls, executed) = tokio::try_join!(producers.calls(), work_off(worker, &tally))?;
        let mut round = watch.stop(executed).await?;
        round.latencies.extend(Percentiles::of_nanos(calls).map(|calls| ("call → answer", calls)));
        check_succeeded(&queue, self.jobs).await?;
        Ok(round)
    }
}
