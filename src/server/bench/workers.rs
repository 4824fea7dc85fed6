//! workers: the same backlog, drained by one, two and four worker processes that together run as many jobs at the same
//! time. Shows whether they get in each other's way.

use anyhow::Result;
use clap::Args;
use serde_json::{Value, json};

use super::Common;
use super::child::WorkerProcess;
use super::latency::until_succeeded;
use super::noop::{Flavour, preload};
use super::run::Measure;
use super::stage::{Round, Stage};
use crate::worker::WorkerSettings;

/// How to share.
#[derive(Debug, Args)]
pub(super) struct Workers {
    #[command(flatten)]
    pub(super) common: Common,
    /// Jobs to be finished
    #[arg(long, value_name = "N", default_value_t = 200_000, value_parser = clap::value_parser!(u64).range(1..))]
    jobs: u64,
    /// Numbers of processes to compare
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_values_t = [1, 2, 4], value_parser = clap::value_parser!(u64).range(1..=64))]
    processes: Vec<u64>,
    /// Jobs at the same time in all processes together; left out: one worker's default
    #[arg(long, value_name = "N")]
    concurrency: Option<usize>,
}

impl Workers {
    fn concurrency(&self) -> usize {
        self.concurrency.unwrap_or(WorkerSettings::default().concurrency)
    }
}

impl Measure for Workers {
    const NAME: &'static str = "workers";
    const NEEDS_POSTGRES: bool = true;

    fn settings(&self) -> Vec<(&'static str, Value)> {
        vec![("jobs", json!(self.jobs)), ("concurrency_in_all", json!(self.concurrency()))]
    }

    fn cases(&self) -> Vec<String> {
        self.processes
            .iter()
            .map(|number| format!("{number} process{}", if *number == 1 { "" } else { "es" }))
            .collect()
    }

    async fn round(&self, case: usize, _: &[Round], stage: &Stage) -> Result<Round> {
        preload(stage, &stage.open().await?, Flavour::Succeeds, self.jobs).await?;
        stage.tidy().await?;
        let each = self.concurrency().div_ceil(self.processes[case] as usize);
        let mut processes = Vec::new();
        for _ in 0..self.processes[case] {
            processes.push(WorkerProcess::start(&stage.place, Some(each), false).await?);
        }
        let queue = stage.open().await?;
        let cpu_seconds =
            |processes: &[WorkerProcess]| processes.iter().map(WorkerProcess::cpu_seconds).sum::<Option<f64>>();
        let (watch, before) = (stage.start().await?, cpu_seconds(&processes));
        for process in &mut processes {
            process.go()?;
        }
        until_succeeded(&queue, self.jobs).await?;
        let child_cpu_s = before.zip(cpu_seconds(&processes)).map(|(before, now)| now - before);
        let mut round = watch.stop(self.jobs).await?;
        round.child_cpu_s = child_cpu_s;
        for process in processes {
            process.stop(None).await?;
        }
        Ok(round)
    }
}
