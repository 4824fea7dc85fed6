//! Runs a shape: its rounds are repeated with its cases in turns, so that what else the machine does hits all alike.
//! Whatever was made is removed, however the run ends.

use std::fs::OpenOptions;
use std::io::{IsTerminal, Seek, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;
use tokio::task::JoinHandle;

use super::Common;
use super::report::{Report, Series};
use super::statistics::grouped;
use super::stopwatch::{Fixture, Round};
use super::workspace::Workspace;
use crate::job::limits::BATCH_MAX;
use crate::server::exit::{Exit, ExitError};
use crate::server::stdio::replace_line;
use crate::store::postgres::PostgresSettings;
use crate::worker::shutdown_signal;

/// One shape of load.
pub(super) trait Measure {
    /// The subcommand.
    const NAME: &'static str;
    /// Whether several processes must share the store.
    const NEEDS_POSTGRES: bool = false;

    /// What it was told to do.
    fn settings(&self) -> Vec<(&'static str, Value)>;

    /// What its operations are.
    fn counts(&self) -> &'static str {
        "jobs"
    }

    /// What is compared with each other.
    fn cases(&self) -> Vec<String> {
        vec![Self::NAME.into()]
    }

    /// Measures a case once, on an empty store. `earlier` are the cases before it of the same turn.
    async fn round(&self, case: usize, earlier: &[Round], fixture: &Fixture) -> Result<Round>;
}

/// Measures and reports.
pub(super) async fn run<M: Measure>(common: &Common, shape: &M) -> Result<()> {
    let workspace = Workspace::new(common)?;
    let measured = tokio::select! {
        measured = measure(common, shape, &workspace) => measured,
        () = shutdown_signal() => Err(ExitError::new(Exit::Failed, "interrupted; what it had made was removed").into()),
    };
    let removed = workspace.remove().await;
    let report = measured?;
    removed?;
    report.print(common.json);
    Ok(())
}

async fn measure<M: Measure>(common: &Common, shape: &M, workspace: &Workspace) -> Result<Report> {
    if M::NEEDS_POSTGRES && !workspace.is_postgres() {
        bail!("bench {} needs a store that several processes can share; give --store postgres://…", M::NAME);
    }
    let mut report = Report::new(M::NAME, shape.counts(), shape.settings());
    report.store = match workspace.observer().await? {
        Some(observer) => observer.settings().await?,
        None => sqlite_settings(),
    };
    if workspace.is_postgres() {
        report.store.push(("pool_size".into(), PostgresSettings::new("").pool_size.to_string()));
    }
    report.store.push(("batch_max".into(), BATCH_MAX.to_string()));
    report.disk_syncs_per_s = syncs_per_s(&workspace.directory)?;
    if !common.json {
        report.print_head();
    }
    let cases = shape.cases();
    report.series = cases.iter().map(|case| Series { case: case.clone(), rounds: Vec::new() }).collect();
    let mut number = 0;
    for _ in 0..common.repeats {
        let mut turn = Vec::new();
        for (case, name) in cases.iter().enumerate() {
            number += 1;
            let fixture = Fixture {
                location: workspace.empty_store(number).await?,
                directory: workspace.directory.clone(),
                observer: workspace.observer().await?,
                progress: ProgressLine::new(),
            };
            let round = shape.round(case, &turn, &fixture).await;
            let mut round = round.with_context(|| format!("round {number} ({name})"))?;
            fixture.complete(&mut round).await?;
            workspace.remove_rounds().await?;
            report.series[case].rounds.push(round.clone());
            turn.push(round);
        }
    }
    Ok(report)
}

/// The store reads these back when it opens a file and refuses to go on with less: `settings are read back` in
/// `tests/sqlite`.
fn sqlite_settings() -> Vec<(String, String)> {
    [("database", "SQLite"), ("journal_mode", "wal"), ("synchronous", "FULL")]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .to_vec()
}

/// 5 times a second: seen as moving, and nothing the measurement would notice.
const REDRAW: Duration = Duration::from_millis(200);

/// One line that tells how far a measurement is: on a terminal only, on stderr.
#[derive(Debug, Default)]
pub(super) struct ProgressLine {
    drawing: bool,
}

/// A line being drawn; cleared when dropped.
#[derive(Debug)]
pub(super) struct DrawnLine(Option<JoinHandle<()>>);

impl ProgressLine {
    pub(super) fn new() -> Self {
        Self { drawing: std::io::stderr().is_terminal() }
    }

    /// Shows `done` of `total` until the answer is dropped.
    pub(super) fn line(&self, what: &str, done: Arc<AtomicU64>, total: u64) -> DrawnLine {
        if !self.drawing {
            return DrawnLine(None);
        }
        let what = what.to_owned();
        DrawnLine(Some(tokio::spawn(async move {
            let began = Instant::now();
            loop {
                let done = done.load(Ordering::Relaxed);
                let per_s = done as f64 / began.elapsed().as_secs_f64().max(0.001);
                let share = (100 * done.min(total)).checked_div(total).unwrap_or_default();
                replace_line(&format!(
                    "{what}  {share:3} %  {} of {}  {}/s",
                    grouped(done as f64),
                    grouped(total as f64),
                    grouped(per_s)
                ));
                tokio::time::sleep(REDRAW).await;
            }
        })))
    }
}

impl Drop for DrawnLine {
    fn drop(&mut self) {
        if let Some(task) = self.0.take() {
            task.abort();
            replace_line("");
        }
    }
}

/// 1 s is enough to tell a disk from a cache.
const TRIAL: Duration = Duration::from_secs(1);

/// One page, as databases write them.
const PAGE: [u8; 8192] = [0x5a; 8192];

/// Writes of one page, each followed by fdatasync, per second.
fn syncs_per_s(directory: &Path) -> Result<f64> {
    let path = directory.join("disk-trial");
    let measured = write_and_sync(&path);
    // Whatever it found, nothing stays behind; the directory itself goes later.
    let _ = std::fs::remove_file(&path);
    measured.with_context(|| format!("cannot measure the disk at {}", directory.display()))
}

fn write_and_sync(path: &Path) -> std::io::Result<f64> {
    let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
    file.write_all(&PAGE)?;
    file.sync_all()?;
    let (began, mut syncs) = (Instant::now(), 0u32);
    while began.elapsed() < TRIAL {
        file.rewind()?;
        file.write_all(&PAGE)?;
        file.sync_data()?;
        syncs += 1;
    }
    Ok(f64::from(syncs) / began.elapsed().as_secs_f64())
}
