//! `latency`: jobs arrive by the clock at an idle worker; how long until each is started, counted from when it was due. On
//! PostgreSQL the worker is a process of its own, so that it hears of a job only through the database.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use anyhow::{Result, bail};
use clap::Args;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::Common;
use super::arrivals::{JobTimes, arrive, now_nanos};
use super::in_process::Producers;
use super::noop_jobs::{Behaviour, NoOp, declare, until_succeeded};
use super::run::Measure;
use super::stopwatch::{Fixture, Round};
use super::workers::WorkerProcess;
use crate::queue::Queue;
use crate::worker::{Context, JobError, Worker, WorkerError};

/// 64 callers, one job per call, find out how much there is to be had.
const CEILING_PRODUCERS: u64 = 64;

/// 2 s of arrivals before those that count …
const WARM_UP_JOBS: u64 = 40;
const WARM_UP_PER_S: f64 = 20.0;
/// … with numbers that are beyond every [`JobTimes`].
const FIRST_IGNORED: u64 = u64::MAX / 2;

/// Shares of the ceiling at which a sweep measures, in percent.
const SHARES: [u32; 3] = [25, 50, 75];

/// At which rate jobs arrive, and for how long.
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

/// The worker that picks jobs up: a task of this process, or a process of its own.
enum LatencyWorker {
    Task { stop: oneshot::Sender<()>, working: JoinHandle<Result<(), WorkerError>> },
    Process(WorkerProcess),
}

impl LatencyWorker {
    async fn start(fixture: &Fixture, queue: &Queue, times: &JobTimes) -> Result<Self> {
        if fixture.location.sqlite_file.is_none() {
            let mut process = WorkerProcess::start(&fixture.location, None, true).await?;
            process.go()?;
            return Ok(Self::Process(process));
        }
        let worker =
            Worker::new(queue.clone()).with_state(times.clone()).handle(|job: NoOp, context: Context<JobTimes>| {
                context.state().started(job.seq, now_nanos());
                std::future::ready(Ok::<_, JobError>(()))
            });
        let (stop, stopped) = oneshot::channel();
        // A sender that is gone means the same.
        let working = tokio::spawn(worker.run_until(async { stopped.await.unwrap_or_default() }));
        Ok(Self::Task { stop, working })
    }

    fn cpu_seconds(&self) -> Option<f64> {
        match self {
            Self::Task { .. } => None,
            Self::Process(process) => process.cpu_seconds(),
        }
    }

    async fn stop(self, times: &JobTimes) -> Result<()> {
        match self {
            Self::Task { stop, working } => {
                // One that has ended by itself says why below.
                let _ = stop.send(());
                Ok(working.await??)
            }
            Self::Process(process) => process.stop(Some(times)).await,
        }
    }
}

/// Sends some jobs that do not count, until the worker is connected, has listened, and every path was taken once.
async fn warm_up(queue: &Queue) -> Result<u64> {
    let ignored = JobTimes::of(WARM_UP_JOBS);
    arrive(queue, &ignored, WARM_UP_JOBS, WARM_UP_PER_S, FIRST_IGNORED, Arc::default()).await?;
    until_succeeded(queue, WARM_UP_JOBS).await?;
    Ok(WARM_UP_JOBS)
}

impl Latency {
    async fn ceiling(&self, fixture: &Fixture) -> Result<Round> {
        // Enough for some seconds on a fast machine.
        const JOBS: u64 = 50_000;
        let queue = fixture.open().await?;
        declare(&queue, Behaviour::Succeeds).await?;
        let times = JobTimes::of(0);
        let worker = LatencyWorker::start(fixture, &queue, &times).await?;
        let stopwatch = fixture.start().await?;
        Producers::start(&queue, CEILING_PRODUCERS, JOBS, 1).calls().await?;
        until_succeeded(&queue, JOBS).await?;
        let round = stopwatch.stop(JOBS).await?;
        worker.stop(&times).await?;
        Ok(round)
    }

    async fn at_rate(&self, fixture: &Fixture, per_s: f64) -> Result<Round> {
        let (round, lost) = measure_latency(fixture, (per_s * self.seconds).ceil() as u64, per_s).await?;
        if lost > 0 {
            bail!("{lost} jobs are on record as succeeded but were never started");
        }
        Ok(round)
    }
}

/// Lets `jobs` jobs arrive at `per_s`. Answers also how many of them were never started.
pub async fn measure_latency(fixture: &Fixture, jobs: u64, per_s: f64) -> Result<(Round, usize)> {
    let queue = fixture.open().await?;
    declare(&queue, Behaviour::Succeeds).await?;
    let times = JobTimes::of(jobs);
    let worker = LatencyWorker::start(fixture, &queue, &times).await?;
    let before = warm_up(&queue).await?;
    let sent = Arc::new(AtomicU64::new(0));
    let _line = fixture.progress.line("arriving", sent.clone(), jobs);
    let (stopwatch, child_before) = (fixture.start().await?, worker.cpu_seconds());
    arrive(&queue, &times, jobs, per_s, 0, sent).await?;
    until_succeeded(&queue, before + jobs).await?;
    let child_cpu_s = child_before.zip(worker.cpu_seconds()).map(|(before, now)| now - before);
    let mut round = stopwatch.stop(jobs).await?;
    round.child_cpu_s = child_cpu_s;
    worker.stop(&times).await?;
    round.latencies = times.percentiles();
    Ok((round, times.lost()))
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

    async fn round(&self, case: usize, earlier: &[Round], fixture: &Fixture) -> Result<Round> {
        match earlier.first() {
            None if self.sweep => self.ceiling(fixture).await,
            None => self.at_rate(fixture, self.rate).await,
            Some(ceiling) => self.at_rate(fixture, ceiling.per_s() * f64::from(SHARES[case - 1]) / 100.0).await,
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
