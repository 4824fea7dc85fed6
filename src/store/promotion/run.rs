//! The steps of a promotion, in their order (ADR 23). Whatever happens between two of them, the same command goes on.
//!
//! 1. The file gets an id, then the target the same one: from now on no server opens the target.
//! 2. Pages of rows, each with its cursor in one transaction of the target.
//! 3. What PostgreSQL computes from the jobs.
//! 4. Everything is read again from both sides and compared.
//! 5. The file is marked: no server opens it any more.
//! 6. The id is taken from the target: servers open it.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tokio::task::{JoinHandle, spawn_blocking};
use uuid::Uuid;

use super::{Key, MOVED, Page, PromotionError, Table};
use crate::store::postgres::PostgresSettings;
use crate::store::postgres::promotion::{Found, PromotionTarget};
use crate::store::sqlite::promotion::{self as sqlite, Promotion, PromotionSource};

/// What is promoted, and where to.
pub(crate) struct Options {
    pub(crate) from: PathBuf,
    pub(crate) to: PostgresSettings,
    /// Deletes what an earlier promotion has moved.
    pub(crate) start_over: bool,
    /// Rows in a page; [`PAGE_ROWS`](super::PAGE_ROWS) unless a test wants small ones.
    pub(crate) page_rows: usize,
}

/// What is going on, for whoever watches.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Step<'a> {
    Moving { table: &'a str, rows: u64, of: u64 },
    Computing,
    Comparing { table: &'a str, rows: u64, of: u64 },
}

/// What was moved of one table.
#[derive(Debug)]
pub(crate) struct Moved {
    pub(crate) table: &'static str,
    pub(crate) rows: u64,
    /// How long that took in this run, and comparing it.
    pub(crate) moving: Duration,
    pub(crate) comparing: Duration,
}

/// How it ended.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// Everything is in the target, and the same as in the file.
    Promoted { target: String, tables: Vec<Moved>, resumed: bool },
    /// It had been compared before; only the last step was left.
    Completed { target: String },
    /// An earlier run did all of it.
    AlreadyPromoted { target: String, at: Timestamp },
}

/// What a promotion would do.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) target: String,
    /// Rows of each table; `None`: the file is too old to have it.
    pub(crate) tables: Vec<(&'static str, Option<u64>)>,
    pub(crate) source_upgraded: bool,
    pub(crate) target_tables: TargetTables,
}

/// What is done to the target's tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TargetTables {
    Made,
    Upgraded,
    Ready,
    /// They hold a part already, and it goes on.
    GoOn,
    /// They hold a part already, which is deleted.
    StartedOver,
}

/// Looks what a promotion would do, and whether it may. Changes nothing.
pub(crate) async fn plan(options: &Options) -> Result<Plan, PromotionError> {
    let source = open(&options.from, PromotionSource::open_to_look).await?;
    let target = PromotionTarget::connect(&options.to).await?;
    let begun = source.read(|source| source.promotion()).await?;
    refuse_marked(begun.as_ref(), &options.from)?;
    let newest = crate::store::postgres::promotion::NEWEST_VERSION;
    let target_tables = match target.find().await? {
        Found::Empty(0) => TargetTables::Made,
        Found::Empty(version) if version < newest => TargetTables::Upgraded,
        Found::Empty(_) => TargetTables::Ready,
        Found::Promotion(_) if options.start_over => TargetTables::StartedOver,
        Found::Promotion(id) if begun.as_ref().is_some_and(|begun| begun.id == id) => TargetTables::GoOn,
        found => return Err(refused(found, &target)),
    };
    let tables =
        source.read(|source| MOVED.iter().map(|table| Ok((table.name, source.count(table)?))).collect()).await?;
    let source_upgraded = source.read(|source| Ok(!source.is_up_to_date())).await?;
    Ok(Plan { target: target.shown().to_owned(), tables, source_upgraded, target_tables })
}

/// Takes the mark of a promotion from a file, so that servers open it again. `None`: it has none.
pub(crate) async fn unmark(file: &Path) -> Result<Option<String>, PromotionError> {
    let file = file.to_owned();
    let unmarked = spawn_blocking(move || sqlite::unmark(&file)).await.map_err(interrupted)??;
    Ok(unmarked.map(|promotion| promotion.target))
}

/// Moves everything, or goes on with it.
pub(crate) async fn promote(
    options: &Options,
    watch: &mut (dyn FnMut(Step<'_>) + Send),
) -> Result<Outcome, PromotionError> {
    let source = open(&options.from, PromotionSource::open).await?;
    let mut target = PromotionTarget::connect(&options.to).await?;
    let begun = source.read(|source| source.promotion()).await?;
    if let Some((promotion, at)) = begun.as_ref().and_then(|begun| Some((begun, begun.promoted_at?))) {
        return complete_marked(promotion, at, &target, &options.from).await;
    }
    target.migrate(&options.to).await?;
    let resumed = begin(&source, &mut target, begun, options.start_over).await?;
    source.read(|source| source.hold()).await?;

    let mut tables = Vec::with_capacity(MOVED.len());
    for table in MOVED {
        let of = source.read(|source| source.count(table)).await?.unwrap_or_default();
        let started = Instant::now();
        let rows = move_table(&source, &mut target, table, options.page_rows, &mut |rows| {
            watch(Step::Moving { table: table.name, rows, of });
        })
        .await?;
        tables.push(Moved { table: table.name, rows, moving: started.elapsed(), comparing: Duration::ZERO });
    }
    watch(Step::Computing);
    if !target.is_finished().await? {
        target.finish().await?;
    }
    compare_counts(&source, &target).await?;
    for (table, moved) in MOVED.iter().zip(&mut tables) {
        let (started, of) = (Instant::now(), moved.rows);
        compare_table(&source, &target, table, options.page_rows, &mut |rows| {
            watch(Step::Comparing { table: table.name, rows, of });
        })
        .await?;
        moved.comparing = started.elapsed();
    }
    source.read(|source| source.mark()).await?;
    target.complete().await?;
    Ok(Outcome::Promoted { target: target.shown().to_owned(), tables, resumed })
}

/// Begins, or finds where an earlier run has come to, which it answers.
async fn begin(
    source: &Source,
    target: &mut PromotionTarget,
    begun: Option<Promotion>,
    start_over: bool,
) -> Result<bool, PromotionError> {
    let mut found = target.find().await?;
    if let Found::Promotion(id) = found {
        if !start_over && begun.is_some_and(|begun| begun.id == id) {
            return Ok(true);
        }
        if !start_over {
            return Err(refused(found, target));
        }
        target.start_over().await?;
        found = target.find().await?;
    }
    if !matches!(found, Found::Empty(_)) {
        return Err(refused(found, target));
    }
    let (id, shown) = (Uuid::new_v4(), target.shown().to_owned());
    // The file first: without the target's half the id means nothing, and the next run draws another.
    source.read(move |source| source.begin(id, &shown)).await?;
    match target.begin(id).await? {
        true => Ok(false),
        false => Err(refused(target.find().await?, target)),
    }
}

/// Only the last step can be left.
async fn complete_marked(
    promotion: &Promotion,
    at: Timestamp,
    target: &PromotionTarget,
    from: &Path,
) -> Result<Outcome, PromotionError> {
    let shown = target.shown().to_owned();
    match target.find().await? {
        Found::Promotion(id) if id == promotion.id => {
            target.complete().await?;
            Ok(Outcome::Completed { target: shown })
        }
        _ if shown == promotion.target => Ok(Outcome::AlreadyPromoted { target: shown, at }),
        _ => refuse_marked(Some(promotion), from).map(|()| Outcome::AlreadyPromoted { target: shown, at }),
    }
}

fn refuse_marked(promotion: Option<&Promotion>, from: &Path) -> Result<(), PromotionError> {
    let Some((promotion, at)) = promotion.and_then(|promotion| Some((promotion, promotion.promoted_at?))) else {
        return Ok(());
    };
    Err(PromotionError::refused(
        format!("{} was promoted to {} at {at}", from.display(), promotion.target),
        "to promote it once more, take the mark away first with --unmark",
    ))
}

fn refused(found: Found, target: &PromotionTarget) -> PromotionError {
    let shown = target.shown();
    match found {
        Found::Promotion(_) => PromotionError::refused(
            format!(
                "{shown} holds a part of another promotion, or the file was used by a server since it was begun: what was moved is stale"
            ),
            "run it again with --start-over, which deletes what was moved there",
        ),
        Found::Worker(worker) => PromotionError::refused(
            format!("{shown} is in use: worker {worker} was seen there in the last minute"),
            "stop the servers that use it, wait a minute, then run it again",
        ),
        Found::Rows(table) => PromotionError::refused(
            format!("{shown} is not empty: there are rows in its table {table}"),
            "name another database with --to, or an empty schema of this one with --schema",
        ),
        Found::Empty(_) => PromotionError::refused(
            format!("{shown} was changed by another process"),
            "let one promotion run at a time, then run it again",
        ),
    }
}

async fn move_table(
    source: &Source,
    target: &mut PromotionTarget,
    table: &'static Table,
    page_rows: usize,
    watch: &mut (dyn FnMut(u64) + Send),
) -> Result<u64, PromotionError> {
    let progress = target.progress(table).await?;
    let (mut moved, mut cursor) = (progress.moved, progress.cursor);
    watch(moved);
    if progress.is_done {
        return Ok(moved);
    }
    let mut pages = Pages::new(source, table, cursor.clone(), page_rows);
    while let Some(page) = pages.next().await? {
        target.write(table, cursor.as_ref(), &page).await?;
        moved += page.len() as u64;
        cursor = page.keys.last().cloned().or(cursor);
        watch(moved);
    }
    Ok(moved)
}

async fn compare_table(
    source: &Source,
    target: &PromotionTarget,
    table: &'static Table,
    page_rows: usize,
    watch: &mut (dyn FnMut(u64) + Send),
) -> Result<(), PromotionError> {
    let (mut compared, mut cursor) = (0, None);
    let mut pages = Pages::new(source, table, None, page_rows);
    while let Some(page) = pages.next().await? {
        if let Some(difference) = target.compare(table, cursor.as_ref(), &page).await? {
            return Err(PromotionError::Differs(difference));
        }
        compared += page.len() as u64;
        cursor = page.keys.last().cloned().or(cursor);
        watch(compared);
    }
    Ok(())
}

async fn compare_counts(source: &Source, target: &PromotionTarget) -> Result<(), PromotionError> {
    let there = target.status_counts().await?;
    let here = source.read(|source| source.status_counts()).await?;
    if here == there {
        return Ok(());
    }
    let difference =
        here.iter().find(|count| !there.contains(count)).or(there.iter().find(|count| !here.contains(count)));
    let Some((kind, queue, status, _)) = difference else { return Ok(()) };
    let number = |counts: &[(String, String, String, i64)]| {
        let same = |count: &&(String, String, String, i64)| (&count.0, &count.1, &count.2) == (kind, queue, status);
        counts.iter().find(same).map_or(0, |count| count.3)
    };
    Err(PromotionError::Differs(format!(
        "of kind {kind:?} in queue {queue:?} with status {status} there are {} jobs in the file and {} in the target",
        number(&here),
        number(&there)
    )))
}

/// The file, which is read on threads that may block.
#[derive(Clone)]
struct Source(Arc<Mutex<PromotionSource>>);

async fn open(
    path: &Path,
    open: impl FnOnce(&Path) -> Result<PromotionSource, crate::store::OpenError> + Send + 'static,
) -> Result<Source, PromotionError> {
    let path = path.to_owned();
    let source = spawn_blocking(move || open(&path)).await.map_err(interrupted)??;
    Ok(Source(Arc::new(Mutex::new(source))))
}

impl Source {
    async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&PromotionSource) -> Result<T, PromotionError> + Send + 'static,
    ) -> Result<T, PromotionError> {
        self.start(read).await.map_err(interrupted)?
    }

    fn start<T: Send + 'static>(
        &self,
        read: impl FnOnce(&PromotionSource) -> Result<T, PromotionError> + Send + 'static,
    ) -> JoinHandle<Result<T, PromotionError>> {
        let source = self.0.clone();
        spawn_blocking(move || read(&source.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}

fn interrupted(error: tokio::task::JoinError) -> PromotionError {
    PromotionError::database("reading the file", error)
}

/// Pages of a table, the next of which is read while the caller is busy with one.
struct Pages<'s> {
    source: &'s Source,
    table: &'static Table,
    rows: usize,
    next: Option<JoinHandle<Result<Page, PromotionError>>>,
}

impl<'s> Pages<'s> {
    fn new(source: &'s Source, table: &'static Table, after: Option<Key>, rows: usize) -> Self {
        let mut pages = Self { source, table, rows, next: None };
        pages.read_ahead(after);
        pages
    }

    fn read_ahead(&mut self, after: Option<Key>) {
        let (table, rows) = (self.table, self.rows);
        self.next = Some(self.source.start(move |source| source.page(table, after.as_ref(), rows)));
    }

    /// `None` behind the last one. There is always one, which may be empty.
    async fn next(&mut self) -> Result<Option<Page>, PromotionError> {
        let Some(next) = self.next.take() else { return Ok(None) };
        let page = next.await.map_err(interrupted)??;
        if !page.is_end {
            self.read_ahead(page.keys.last().cloned());
        }
        Ok(Some(page))
    }
}
