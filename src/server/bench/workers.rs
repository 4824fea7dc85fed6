//! `workers`: the same backlog, drained by one, two and four worker processes that together run as many jobs at the same
//! time, which shows whether they get in each other's way. And [`WorkerProcess`], which `latency` uses, too.
//!
//! A worker process is this program again, as `bench child`, spoken to over pipes: it says `ready`, starts on the first
//! line it is sent, and stops when its stdin is closed. Then it prints when each job was started, and ends.

use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, Result, bail};
use clap::Args;
use serde_json::{Value, json};

use super::Common;
use super::arrivals::{JobTimes, now_nanos};
use super::noop_jobs::{Behaviour, NoOp, preload, until_succeeded};
use super::run::Measure;
use super::stopwatch::{Fixture, Round, cpu_seconds_of};
use super::workspace::StoreLocation;
use crate::worker::{Context, JobError, Worker, WorkerSettings};

/// How the backlog is shared.
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

    async fn round(&self, case: usize, _: &[Round], fixture: &Fixture) -> Result<Round> {
        preload(fixture, &fixture.open().await?, Behaviour::Succeeds, self.jobs).await?;
        fixture.tidy().await?;
        let each = self.concurrency().div_ceil(self.processes[case] as usize);
        let mut processes = Vec::new();
        for _ in 0..self.processes[case] {
            processes.push(WorkerProcess::start(&fixture.location, Some(each), false).await?);
        }
        let queue = fixture.open().await?;
        let cpu_seconds =
            |processes: &[WorkerProcess]| processes.iter().map(WorkerProcess::cpu_seconds).sum::<Option<f64>>();
        let (stopwatch, before) = (fixture.start().await?, cpu_seconds(&processes));
        for process in &mut processes {
            process.go()?;
        }
        until_succeeded(&queue, self.jobs).await?;
        let child_cpu_s = before.zip(cpu_seconds(&processes)).map(|(before, now)| now - before);
        let mut round = stopwatch.stop(self.jobs).await?;
        round.child_cpu_s = child_cpu_s;
        for process in processes {
            process.stop(None).await?;
        }
        Ok(round)
    }
}

/// The arguments of a worker process.
#[derive(Debug, Args)]
pub(super) struct WorkerProcessArgs {
    #[arg(long, default_value = "public")]
    schema: String,
    #[arg(long)]
    concurrency: Option<usize>,
    /// Remember when each job was started
    #[arg(long)]
    starts: bool,
}

type Starts = Mutex<Vec<(u64, u64)>>;

impl WorkerProcessArgs {
    pub(super) async fn run(self) -> Result<()> {
        let url = std::env::var("DATABASE_URL").context("a worker process needs DATABASE_URL")?;
        let queue = StoreLocation::postgres(url, self.schema).open().await?;
        let (starts, remember) = (Arc::new(Starts::default()), self.starts);
        let worker =
            Worker::new(queue).with_state(starts.clone()).handle(move |job: NoOp, context: Context<Arc<Starts>>| {
                if remember {
                    context.state().lock().unwrap_or_else(PoisonError::into_inner).push((job.seq, now_nanos()));
                }
                std::future::ready(Ok::<_, JobError>(()))
            });
        let worker = match self.concurrency {
            Some(jobs) => worker.concurrency(jobs),
            None => worker,
        };
        tell("ready")?;
        if !line_from_stdin().await? {
            return Ok(());
        }
        worker
            .run_until(async {
                // Anything but another line means that it is over.
                while line_from_stdin().await.unwrap_or(false) {}
            })
            .await?;
        let starts = starts.lock().unwrap_or_else(PoisonError::into_inner);
        let lines: Vec<String> = starts.iter().map(|(seq, nanos)| format!("{seq} {nanos}\n")).collect();
        std::io::stdout().write_all(lines.concat().as_bytes())?;
        Ok(())
    }
}

fn tell(line: &str) -> Result<()> {
    let mut stdout = std::io::stdout().lock();
    Ok(writeln!(stdout, "{line}").and_then(|()| stdout.flush())?)
}

/// Waits for a line; `false` at the end.
async fn line_from_stdin() -> Result<bool> {
    let read = tokio::task::spawn_blocking(|| std::io::stdin().lock().read_line(&mut String::new()));
    Ok(read.await.context("stdin cannot be read")?? > 0)
}

/// A worker process, seen from the one that started it. Killed when dropped.
#[derive(Debug)]
pub(super) struct WorkerProcess {
    process: std::process::Child,
    stdin: Option<ChildStdin>,
    stdout: Option<BufReader<ChildStdout>>,
}

impl WorkerProcess {
    /// Starts it and waits until it has opened the queue.
    pub(super) async fn start(location: &StoreLocation, concurrency: Option<usize>, starts: bool) -> Result<Self> {
        let program = std::env::current_exe().context("cannot find this program to start it again")?;
        let mut command = Command::new(program);
        // The URL may hold a password, which has no place among a process's arguments.
        command.args(["bench", "child", "--schema", &location.schema]).env("DATABASE_URL", &location.url);
        if let Some(jobs) = concurrency {
            command.args(["--concurrency", &jobs.to_string()]);
        }
        if starts {
            command.arg("--starts");
        }
        let mut process =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("cannot start a worker")?;
        let stdin = process.stdin.take();
        let stdout = process.stdout.take().map(BufReader::new);
        let mut this = Self { process, stdin, stdout };
        if this.read_line().await?.trim() != "ready" {
            bail!("a worker process ended before it was ready");
        }
        Ok(this)
    }

    async fn read_line(&mut self) -> Result<String> {
        let mut stdout = self.stdout.take().context("a worker process says nothing more")?;
        let (stdout, line) = tokio::task::spawn_blocking(move || {
            let mut line = String::new();
            stdout.read_line(&mut line).map(|_| (stdout, line))
        })
        .await
        .context("a worker process cannot be heard")??;
        self.stdout = Some(stdout);
        Ok(line)
    }

    /// Lets it begin.
    pub(super) fn go(&mut self) -> Result<()> {
        let stdin = self.stdin.as_mut().context("a worker process is not listening")?;
        Ok(stdin.write_all(b"go\n").and_then(|()| stdin.flush())?)
    }

    /// CPU seconds so far.
    pub(super) fn cpu_seconds(&self) -> Option<f64> {
        cpu_seconds_of(self.process.id())
    }

    /// Lets it finish, and notes when each job was started.
    pub(super) async fn stop(mut self, times: Option<&JobTimes>) -> Result<()> {
        drop(self.stdin.take());
        loop {
            let line = self.read_line().await?;
            if line.is_empty() {
                break;
            }
            let numbers = line.trim().split_once(' ').and_then(|(seq, at)| Some((seq.parse().ok()?, at.parse().ok()?)));
            if let (Some(times), Some((seq, nanos))) = (times, numbers) {
                times.started(seq, nanos);
            }
        }
        let status = self.process.wait().context("a worker process cannot be waited for")?;
        if !status.success() {
            bail!("a worker process ended with {status}");
        }
        Ok(())
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        // One that has ended already need not be killed.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
