//! What a round is measured on and with: an empty store, a stopwatch, and a look at the server from beside.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::cpu;
use super::figures::Percentiles;
use super::place::Place;
use super::progress::Progress;
use crate::queue::Queue;
use crate::store::postgres::Observer;

/// An empty store and what is needed to measure on it.
#[derive(Debug)]
pub(super) struct Stage {
    pub(super) place: Place,
    /// For whoever needs one without anything of somebody else's in it.
    pub(super) directory: PathBuf,
    pub(super) observer: Option<Observer>,
    pub(super) progress: Progress,
}

/// What one round brought.
#[derive(Debug, Clone, Default)]
pub(super) struct Round {
    /// Jobs, executions or requests, whatever the shape counts.
    pub(super) operations: u64,
    pub(super) seconds: f64,
    /// CPU of this process, of worker or server processes it started, and of a PostgreSQL on this machine.
    pub(super) cpu_s: Option<f64>,
    pub(super) child_cpu_s: Option<f64>,
    pub(super) server_cpu_s: Option<f64>,
    pub(super) wal_bytes: Option<u64>,
    pub(super) commits: Option<u64>,
    /// Commits of the database when the clock was started; see [`Stage::complete`].
    pub(super) commits_before: Option<u64>,
    /// What was timed one by one, by name.
    pub(super) latencies: Vec<(&'static str, Percentiles)>,
}

impl Round {
    pub(super) fn per_s(&self) -> f64 {
        self.operations as f64 / self.seconds
    }
}

/// A running stopwatch.
#[derive(Debug)]
pub(super) struct Watch<'a> {
    stage: &'a Stage,
    cpu_s: Option<f64>,
    server_cpu_s: Option<f64>,
    wal_bytes: Option<u64>,
    commits: Option<u64>,
    began: Instant,
}

impl Stage {
    pub(super) async fn open(&self) -> Result<Queue> {
        self.place.open().await
    }

    /// Leaves the server's housekeeping of what was preloaded out of the measurement.
    pub(super) async fn tidy(&self) -> Result<()> {
        if let Some(observer) = &self.observer {
            self.let_connections_end(observer).await?;
            observer.tidy(&self.place.schema).await?;
        }
        Ok(())
    }

    /// Starts the clock.
    pub(super) async fn start(&self) -> Result<Watch<'_>> {
        let (mut wal_bytes, mut commits, mut server_cpu_s) = (None, None, None);
        if let Some(observer) = &self.observer {
            let written = observer.written().await?;
            (wal_bytes, commits) = (Some(written.wal_bytes), Some(written.commits));
            server_cpu_s = cpu::postgres_seconds(observer.backend());
        }
        let cpu_s = cpu::own_seconds();
        Ok(Watch { stage: self, cpu_s, server_cpu_s, wal_bytes, commits, began: Instant::now() })
    }

    /// What can only be read once every connection of the round is closed: the server counts a backend's commits late,
    /// at the latest when it ends.
    pub(super) async fn complete(&self, round: &mut Round) -> Result<()> {
        if let (Some(observer), Some(before)) = (&self.observer, round.commits_before) {
            self.let_connections_end(observer).await?;
            round.commits = Some(observer.written().await?.commits.saturating_sub(before));
        }
        Ok(())
    }

    async fn let_connections_end(&self, observer: &Observer) -> Result<()> {
        // 5 s: a backend that takes longer costs the round a few commits in its figures, no more.
        let deadline = Instant::now() + Duration::from_secs(5);
        while observer.connections(&self.place.schema).await? > 0 && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }
}

impl Watch<'_> {
    /// Stops the clock.
    pub(super) async fn stop(self, operations: u64) -> Result<Round> {
        let seconds = self.began.elapsed().as_secs_f64();
        let since = |now: Option<f64>, before: Option<f64>| Some(now? - before?);
        let mut round = Round { operations, seconds, commits_before: self.commits, ..Round::default() };
        round.cpu_s = since(cpu::own_seconds(), self.cpu_s);
        if let Some(observer) = &self.stage.observer {
            round.server_cpu_s = since(cpu::postgres_seconds(observer.backend()), self.server_cpu_s);
            let written = observer.written().await?;
            round.wal_bytes = self.wal_bytes.map(|before| written.wal_bytes.saturating_sub(before));
        }
        Ok(round)
    }
}
