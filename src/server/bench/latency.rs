//! latency: jobs arrive by the clock at an idle worker; how long until each is started, counted from when it was due. On
//! PostgreSQL the worker is a process of its own, so that it hears of a job only through the database.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::Args;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::Common;
use super::arrivals::{Ledger, arrive, now_nanos};
use super::child::WorkerProcess;
use super::enqueue::Producers;
use super::noop::{Flavour, NoOp, declare, succeeded};
use super::run::Measure;
use super::stage::{Round, Stage};
use crate::queue::Queue;
use crate::worker::{Context, JobError, Worker, WorkerError};

/// 60 s for the last job to be started and recorded: by then it is lost or the machine is.
const PATIENCE: Duration = Duration::from_secs(60);

/// 64 callers, one job per call, find out how much there is to be had.
const CEILING_PRODUCERS: u64 = 64;

/// 2 s of arrivals before those that count …
const WARM_UP_JOBS: u64 = 40;
const WARM_UP_PER_S: f64 = 20.0;
/// … with numbers that no ledger has a place for.
const FIRST_IGNORED: u64 = u64::MAX / 2;

/// Shares of the ceiling at which a sweep measures, in percent.
const SHARES: [u32; 3] = [25, 50, 75];

/// How to arrive.
#[derive(Debug, Args)]
pub(super) struct Latency {
    #[command(flatten)]
    pub(super) common: Common,
    /// Jobs a second
    #[arg(long, value_name = "N", default_value_t = 20.0, value_parser = positive, conflicts_with = "sweep")]
    rate: f64,
    /// How long jobs arrive
    #[arg(long, value_name = "SECONDS", default_value_t = 15.0, value_parser = positive)]
    seconds: f64,
    /// Measure at 25, 50 and 75 % of the highest rate that this machine sustains, which is measured first
    #[arg(long)]
    sweep: bool,
}

fn positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if number > 0.0 && number.is_finite() => Ok(number),
        _ => Err("use a number above 0".into()),
    }
}

/// The worker that picks jobs up, wherever it is.
pub(super) enum Picker {
    Here { stop: oneshot::Sender<()>, working: JoinHandle<Result<(), WorkerError>> },
    Elsewhere(WorkerProcess),
}

impl Picker {
    pub(super) async fn start(stage: &Stage, queue: &Queue, ledger: &Ledger) -> Result<Self> {
        if stage.place.sqlite_file.is_none() {
            let mut process = WorkerProcess::start(&stage.place, None, true).await?;
            process.go()?;
            return Ok(Self::Elsewhere(process));
        }
        let worker =
            Worker::new(queue.clone()).with_state(ledger.clone()).handle(|job: NoOp, context: Context<Ledger>| {
                context.state().started(job.seq, now_nanos());
                std::future::ready(Ok::<_, JobError>(()))
            });
        let (stop, stopped) = oneshot::channel();
        // A sender that is gone means the same.
        let working = tokio::spawn(worker.run_until(async { stopped.await.unwrap_or_default() }));
        Ok(Self::Here { stop, working })
    }

    pub(super) fn cpu_seconds(&self) -> Option<f64> {
        match self {
            Self::Here { .. } => None,
            Self::Elsewhere(process) => process.cpu_seconds(),
        }
    }

    pub(super) async fn stop(self, ledger: &Ledger) -> Result<()> {
        match self {
            Self::Here { stop, working } => {
                // One that has ended by itself says why below.
                let _ = stop.send(());
                Ok(working.await??)
            }
            Self::Elsewhere(process) => process.stop(Some(ledger)).await,
        }
    }
}

/// Sends some jobs that do not count, until the worker is connected, has listened, and every path was taken once.
pub(super) async fn warm_up(queue: &Queue) -> Result<u64> {
    let ignored = Ledger::of(WARM_UP_JOBS);
    arrive(queue, &ignored, WARM_UP_JOBS, WARM_UP_PER_S, FIRST_IGNORED, Arc::default()).await?;
    until_succeeded(queue, WARM_UP_JOBS).await?;
    Ok(WARM_UP_JOBS)
}

/// Waits until so many jobs are on record as succeeded.
pub(super) async fn until_succeeded(queue: &Queue, wanted: u64) -> Result<()> {
    let (mut seen, mut moved) = (0, Instant::now());
    while seen < wanted {
        tokio::time::sleep(Duration::from_millis(20)).await;
        let now = succeeded(queue).await?;
        if now > seen {
            (seen, moved) = (now, Instant::now());
        } else if moved.elapsed() > PATIENCE {
            bail!("{seen} of {wanted} jobs are on record as succeeded, and no more for {} s", PATIENCE.as_secs());
        }
    }
    Ok(())
}

impl Latency {
    async fn ceiling(&self, stage: &Stage) -> Result<Round> {
        // Enough for some seconds on a fast machine.
        const JOBS: u64 = 50_000;
        let queue = stage.open().await?;
        declare(&queue, Flavour::Succeeds).await?;
        let ledger = Ledger::of(0);
        let picker = Picker::start(stage, &queue, &ledger).await?;
        let watch = stage.start().await?;
        Producers::start(&queue, CEILING_PRODUCERS, JOBS, 1).calls().await?;
        until_succeeded(&queue, JOBS).await?;
        let round = watch.stop(JOBS).await?;
        picker.stop(&ledger).await?;
        Ok(round)
    }

    async fn at_rate(&self, stage: &Stage, per_s: f64) -> Result<Round> {
        let jobs = (per_s * self.seconds).ceil() as u64;
        let queue = stage.open().await?;
        declare(&queue, Flavour::Succeeds).await?;
        let ledger = Ledger::of(jobs);
        let picker = Picker::start(stage, &queue, &ledger).await?;
        let before = warm_up(&queue).await?;
        let sent = Arc::new(AtomicU64::new(0));
        let _line = stage.progress.line("arriving", sent.clone(), jobs);
        let (watch, child_before) = (stage.start().await?, picker.cpu_seconds());
        arrive(&queue, &ledger, jobs, per_s, 0, sent).await?;
        until_succeeded(&queue, before + jobs).await?;
        let child_cpu_s = child_before.zip(picker.cpu_seconds()).map(|(before, now)| now - before);
        let mut round = watch.stop(jobs).await?;
        round.child_cpu_s = child_cpu_s;
        picker.stop(&ledger).await?;
        if ledger.lost() > 0 {
            bail!("{} jobs are on record as succeeded but were never started", ledger.lost());
        }
        round.latencies = ledger.percentiles();
        Ok(round)
    }
}

impl Measure for Latency {
    const NAME: &'static str = "latency";

    fn settings(&self) -> Vec<(&'static str, Value)> {
        let rate = if self.sweep { json!("25, 50 and 75 % of the ceiling") } else { json!(self.rate) };
        vec![
            ("offered_per_s", rate),
            ("seconds", json!(self.seconds)),
            ("jobs_per_call", json!(1)),
            ("latency_from", json!("the time each job was due, on one machine's clock")),
        ]
    }

    fn cases(&self) -> Vec<String> {
        if !self.sweep {
            return vec![format!("{}/s", self.rate)];
        }
        std::iter::once("ceiling".into()).chain(SHARES.map(|share| format!("{share} %"))).collect()
    }

    async fn round(&self, case: usize, earlier: &[Round], stage: &Stage) -> Result<Round> {
        match earlier.first() {
            None if self.sweep => self.ceiling(stage).await,
            None => self.at_rate(stage, self.rate).await,
            Some(ceiling) => self.at_rate(stage, ceiling.per_s() * f64::from(SHARES[case - 1]) / 100.0).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_a_number_above_zero() {
        assert_eq!(positive("0.5"), Ok(0.5));
        for bad in ["0", "-1", "inf", "NaN", "fast"] {
            assert!(positive(bad).is_err(), "{bad}");
        }
    }
}
