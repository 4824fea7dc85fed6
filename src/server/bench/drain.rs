//! drain: jobs are preloaded by the thousand, then one worker with default settings finishes them all. The clock stops
//! when the last outcome is recorded.

use anyhow::Result;
use clap::Args;
use serde_json::{Value, json};

use super::Common;
use super::noop::{Flavour, Tally, check_succeeded, preload, work_off, worker};
use super::run::Measure;
use super::stage::{Round, Stage};
use crate::worker::WorkerSettings;

/// How to drain.
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

impl Drain {
    fn flavour(&self) -> Flavour {
        if self.fails_once { Flavour::FailsOnce } else { Flavour::Succeeds }
    }

    async fn work_off(&self, stage: &Stage, executions: u64) -> Result<Round> {
        let tally = Tally::of(executions);
        let queue = stage.open().await?;
        let worker = worker(queue, tally.clone(), self.concurrency);
        let _line = stage.progress.line("draining", tally.executed.clone(), executions);
        let watch = stage.start().await?;
        let executed = work_off(worker, &tally).await?;
        watch.stop(executed).await
    }
}

impl Measure for Drain {
    const NAME: &'static str = "drain";

    fn settings(&self) -> Vec<(&'static str, Value)> {
        vec![
            ("jobs", json!(self.jobs)),
            ("finished_before", json!(self.finished)),
            ("waiting_besides", json!(self.waiting)),
            ("fails_once", json!(self.fails_once)),
            ("concurrency", json!(self.concurrency.unwrap_or(WorkerSettings::default().concurrency))),
            ("worker_processes", json!(1)),
        ]
    }

    fn counts(&self) -> &'static str {
        "executions"
    }

    async fn round(&self, _: usize, _: &[Round], stage: &Stage) -> Result<Round> {
        if self.finished > 0 {
            preload(stage, &stage.open().await?, Flavour::Succeeds, self.finished).await?;
            self.work_off(stage, self.finished).await?;
        }
        preload(stage, &stage.open().await?, self.flavour(), self.jobs + self.waiting).await?;
        stage.tidy().await?;
        let round = self.work_off(stage, self.jobs * self.flavour().executions()).await?;
        // With others waiting besides, a first failure of one of those is as good as a second run of one of ours.
        if !(self.fails_once && self.waiting > 0) {
            check_succeeded(&stage.open().await?, self.finished + self.jobs).await?;
        }
        Ok(round)
    }
}
