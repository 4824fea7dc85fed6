//! What a round is measured with: an empty store, a stopwatch, CPU seconds from `/proc` (where there is none, nothing is
//! said about CPU), and PostgreSQL's own counters.

use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::run::ProgressLine;
use super::statistics::Percentiles;
use super::workspace::StoreLocation;
use crate::queue::Queue;
use crate::store::postgres::Observer;

/// An empty store and what is needed to measure on it.
#[derive(Debug)]
pub struct Fixture {
    pub(super) location: StoreLocation,
    /// An empty one, for a server process that must not find anybody's settings file.
    pub(super) directory: PathBuf,
    pub(super) observer: Option<Observer>,
    pub(super) progress: ProgressLine,
}

/// The measurements of one round.
#[derive(Debug, Clone, Default)]
pub struct Round {
    /// Jobs, executions or requests, whatever the shape counts.
    pub operations: u64,
    pub seconds: f64,
    /// CPU of this process, of worker or server processes it started, and of a PostgreSQL on this machine.
    pub cpu_s: Option<f64>,
    pub(super) child_cpu_s: Option<f64>,
    pub(super) server_cpu_s: Option<f64>,
    pub(super) wal_bytes: Option<u64>,
    pub(super) commits: Option<u64>,
    /// Commits of the database when the clock was started; see [`Fixture::complete`].
    pub(super) commits_before: Option<u64>,
    /// What was timed one by one, by name.
    pub latencies: Vec<(&'static str, Percentiles)>,
}

impl Round {
    pub fn per_s(&self) -> f64 {
        self.operations as f64 / self.seconds
    }
}

/// A running stopwatch.
#[derive(Debug)]
pub struct Stopwatch<'a> {
    fixture: &'a Fixture,
    cpu_s: Option<f64>,
    server_cpu_s: Option<f64>,
    wal_bytes: Option<u64>,
    commits: Option<u64>,
    began: Instant,
}

impl Fixture {
    /// A store that the caller has made; PostgreSQL's counters are not read.
    pub fn on(location: StoreLocation) -> Self {
        Self { location, directory: ".".into(), observer: None, progress: ProgressLine::default() }
    }

    pub async fn open(&self) -> Result<Queue> {
        self.location.open().await
    }

    /// Vacuums and checkpoints what was preloaded, so that this is not part of the measurement.
    pub(super) async fn tidy(&self) -> Result<()> {
        if let Some(observer) = &self.observer {
            self.wait_for_connections_to_end(observer).await?;
            observer.tidy(&self.location.schema).await?;
        }
        Ok(())
    }

    /// Starts the clock.
    pub async fn start(&self) -> Result<Stopwatch<'_>> {
        let (mut wal_bytes, mut commits, mut server_cpu_s) = (None, None, None);
        if let Some(observer) = &self.observer {
            let written = observer.written().await?;
            (wal_bytes, commits) = (Some(written.wal_bytes), Some(written.commits));
            server_cpu_s = postgres_cpu_seconds(observer.backend());
        }
        let cpu_s = own_cpu_seconds();
        Ok(Stopwatch { fixture: self, cpu_s, server_cpu_s, wal_bytes, commits, began: Instant::now() })
    }

    /// What can only be read once every connection of the round is closed: the server counts a backend's commits late,
    /// at the latest when it ends.
    pub(super) async fn complete(&self, round: &mut Round) -> Result<()> {
        if let (Some(observer), Some(before)) = (&self.observer, round.commits_before) {
            self.wait_for_connections_to_end(observer).await?;
            round.commits = Some(observer.written().await?.commits.saturating_sub(before));
        }
        Ok(())
    }

    async fn wait_for_connections_to_end(&self, observer: &Observer) -> Result<()> {
        // 5 s: a backend that takes longer costs the round a few commits in its figures, no more.
        let deadline = Instant::now() + Duration::from_secs(5);
        while observer.connections(&self.location.schema).await? > 0 && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }
}

impl Stopwatch<'_> {
    /// Stops the clock.
    pub async fn stop(self, operations: u64) -> Result<Round> {
        let seconds = self.began.elapsed().as_secs_f64();
        let since = |now: Option<f64>, before: Option<f64>| Some(now? - before?);
        let mut round = Round { operations, seconds, commits_before: self.commits, ..Round::default() };
        round.cpu_s = since(own_cpu_seconds(), self.cpu_s);
        if let Some(observer) = &self.fixture.observer {
            round.server_cpu_s = since(postgres_cpu_seconds(observer.backend()), self.server_cpu_s);
            let written = observer.written().await?;
            round.wal_bytes = self.wal_bytes.map(|before| written.wal_bytes.saturating_sub(before));
        }
        Ok(round)
    }
}

/// 100 a second: what the kernel counts in towards programs, on every Linux.
const TICKS_PER_S: f64 = 100.0;

/// The fields of `/proc/PID/stat` that matter here.
struct Stat {
    parent: u32,
    own_ticks: u64,
    /// Of children that have ended and been waited for.
    reaped_ticks: u64,
}

fn stat(pid: &str) -> Option<Stat> {
    parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

fn parse_stat(text: &str) -> Option<Stat> {
    // The name stands in brackets and may hold brackets and blanks itself.
    let (_, rest) = text.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let ticks = |at: usize| fields.get(at)?.parse::<u64>().ok();
    Some(Stat {
        parent: fields.get(1)?.parse().ok()?,
        own_ticks: ticks(11)? + ticks(12)?,
        reaped_ticks: ticks(13)? + ticks(14)?,
    })
}

/// CPU of this process, without its children.
fn own_cpu_seconds() -> Option<f64> {
    stat("self").map(|stat| stat.own_ticks as f64 / TICKS_PER_S)
}

/// CPU of another process, without its children.
pub(super) fn cpu_seconds_of(pid: u32) -> Option<f64> {
    stat(&pid.to_string()).map(|stat| stat.own_ticks as f64 / TICKS_PER_S)
}

/// CPU of the PostgreSQL server whose backend this is, all its processes together; `None` if it runs on another machine.
fn postgres_cpu_seconds(backend: u32) -> Option<f64> {
    // On another machine the number may belong to anything.
    let name = fs::read_to_string(format!("/proc/{backend}/comm")).ok()?;
    let postmaster = if name.starts_with("postgres") { stat(&backend.to_string())?.parent } else { return None };
    let pids = fs::read_dir("/proc").ok()?.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let stats: HashMap<u32, Stat> = pids.filter_map(|pid| Some((pid.parse().ok()?, stat(&pid)?))).collect();
    let ours = |(pid, stat): &(&u32, &Stat)| **pid == postmaster || stat.parent == postmaster;
    let ticks: u64 = stats.iter().filter(ours).map(|(_, stat)| stat.own_ticks + stat.reaped_ticks).sum();
    Some(ticks as f64 / TICKS_PER_S)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_and_blanks_does_not_shift_the_fields() {
        let text = "17 (a) b (c) S 4 17 17 0 -1 4194304 100 0 0 0 250 50 30 20 20 0 1 0 100 0 0";
        let stat = parse_stat(text).unwrap();
        assert_eq!((stat.parent, stat.own_ticks, stat.reaped_ticks), (4, 300, 50));
    }

    #[test]
    fn this_process_has_used_some_cpu_and_is_no_postgres() {
        assert!(own_cpu_seconds().is_some_and(|seconds| seconds >= 0.0));
        assert_eq!(postgres_cpu_seconds(std::process::id()), None);
    }
}
