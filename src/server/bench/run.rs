//! Repeats the rounds of a shape, its cases in turns, so that what else the machine does hits all alike; and leaves
//! nothing behind, however it ends.

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::Common;
use super::disk;
use super::place::Home;
use super::progress::Progress;
use super::report::{Report, Series};
use super::stage::{Round, Stage};
use crate::job::limits::BATCH_MAX;
use crate::server::exit::{Exit, Failure};
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
    async fn round(&self, case: usize, earlier: &[Round], stage: &Stage) -> Result<Round>;
}

/// Measures and reports.
pub(super) async fn run<M: Measure>(common: &Common, shape: &M) -> Result<()> {
    let home = Home::new(common)?;
    let measured = tokio::select! {
        measured = measure(common, shape, &home) => measured,
        () = shutdown_signal() => Err(Failure::new(Exit::Failed, "interrupted; what it had made was removed").into()),
    };
    let removed = home.remove().await;
    let report = measured?;
    removed?;
    report.print(common.json);
    Ok(())
}

async fn measure<M: Measure>(common: &Common, shape: &M, home: &Home) -> Result<Report> {
    if M::NEEDS_POSTGRES && !home.is_postgres() {
        bail!("bench {} needs a store that several processes can share; give --store postgres://…", M::NAME);
    }
    let mut report = Report::new(M::NAME, shape.counts(), shape.settings());
    report.store = match home.observer().await? {
        Some(observer) => observer.settings().await?,
        None => sqlite_settings(),
    };
    if home.is_postgres() {
        report.store.push(("pool_size".into(), PostgresSettings::new("").pool_size.to_string()));
    }
    report.store.push(("batch_max".into(), BATCH_MAX.to_string()));
    report.disk_syncs_per_s = disk::syncs_per_s(&home.directory)?;
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
            let stage = Stage {
                place: home.place(number).await?,
                directory: home.directory.clone(),
                observer: home.observer().await?,
                progress: Progress::new(),
            };
            let round = shape.round(case, &turn, &stage).await;
            let mut round = round.with_context(|| format!("round {number} ({name})"))?;
            stage.complete(&mut round).await?;
            home.remove_rounds().await?;
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
