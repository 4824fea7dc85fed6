//! What a benchmark makes and removes: a directory, and per round a SQLite file or a PostgreSQL schema.
//!
//! It never uses a file that exists or a schema somebody else made.

use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::Common;
use crate::queue::{Queue, QueueBuilder};
use crate::store::postgres::{Observer, PostgresSettings};

/// 8 tries, 250 ms apart, for a worker that was interrupted to release its locks on a schema.
const REMOVAL_TRIES: usize = 8;

/// 5 s for the threads of a worker to end on a busy machine and release their file.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(5);

/// The directory of one run, and the stores of its rounds.
#[derive(Debug)]
pub(super) struct Workspace {
    /// A directory of our own; the disk is measured in it, too.
    pub(super) directory: PathBuf,
    kind: StoreKind,
    /// What was made and not removed yet, named by [`StoreLocation::schema`].
    made: Mutex<Vec<String>>,
    run: String,
}

#[derive(Debug)]
enum StoreKind {
    /// The file the caller named, or `None` for one in our directory.
    Sqlite(Option<PathBuf>),
    Postgres {
        url: String,
    },
}

/// Where the store of one round is.
#[derive(Debug, Clone)]
pub struct StoreLocation {
    /// For `DATABASE_URL`.
    pub(super) url: String,
    pub(super) schema: String,
    pub(super) sqlite_file: Option<PathBuf>,
}

impl StoreLocation {
    pub fn builder(&self) -> QueueBuilder {
        Queue::builder(&self.url).schema(&self.schema)
    }

    /// Opens the queue. A SQLite file has one owner: the threads of a worker that has just ended may need a moment to
    /// let go of it.
    pub async fn open(&self) -> Result<Queue> {
        let mut left = if self.sqlite_file.is_some() { RELEASE_TIMEOUT } else { Duration::ZERO };
        loop {
            match self.builder().open().await {
                Err(_) if left > Duration::ZERO => {
                    const PAUSE: Duration = Duration::from_millis(20);
                    tokio::time::sleep(PAUSE).await;
                    left = left.saturating_sub(PAUSE);
                }
                opened => return Ok(opened?),
            }
        }
    }

    /// A PostgreSQL schema that the caller makes and removes.
    pub fn postgres(url: String, schema: String) -> Self {
        Self { url, schema, sqlite_file: None }
    }

    /// A SQLite file that the caller makes and removes.
    pub fn sqlite(file: PathBuf) -> Self {
        Self { url: format!("sqlite://{}", file.display()), schema: String::new(), sqlite_file: Some(file) }
    }
}

impl Workspace {
    pub(super) fn new(common: &Common) -> Result<Self> {
        let run = uuid::Uuid::new_v4().simple().to_string()[..10].to_owned();
        let kind = match common.store.as_deref() {
            None => StoreKind::Sqlite(None),
            Some(url) if url.starts_with("postgres://") || url.starts_with("postgresql://") => {
                StoreKind::Postgres { url: url.to_owned() }
            }
            Some(url) => StoreKind::Sqlite(Some(new_file(url)?)),
        };
        let base = match (&common.dir, std::env::var_os("TMPDIR").filter(|path| !path.is_empty())) {
            (Some(directory), _) => directory.clone(),
            (None, Some(directory)) => directory.into(),
            // Not the system's usual place, which is often memory: a disk that keeps nothing is fast.
            (None, None) => std::env::current_dir().context("the current directory cannot be used; give --dir")?,
        };
        let base = base.canonicalize().with_context(|| format!("cannot use {}; give another --dir", base.display()))?;
        let directory = base.join(format!("steadfast-bench-{run}"));
        let made = fs::DirBuilder::new().mode(0o700).create(&directory);
        made.with_context(|| format!("cannot make {}; give another --dir", directory.display()))?;
        Ok(Self { directory, kind, made: Mutex::default(), run })
    }

    pub(super) fn is_postgres(&self) -> bool {
        matches!(self.kind, StoreKind::Postgres { .. })
    }

    /// An empty, migrated store for one round.
    pub(super) async fn empty_store(&self, round: usize) -> Result<StoreLocation> {
        let schema = format!("steadfast_bench_{}_{round}", self.run);
        let location = match &self.kind {
            StoreKind::Sqlite(file) => {
                let path = file.clone().unwrap_or_else(|| self.directory.join(format!("round-{round}.db")));
                StoreLocation::sqlite(path)
            }
            StoreKind::Postgres { url } => {
                // By its name a backend is recognised as ours.
                let separator = if url.contains('?') { '&' } else { '?' };
                let url = format!("{url}{separator}application_name={schema}");
                StoreLocation::postgres(url, schema.clone())
            }
        };
        self.made.lock().unwrap_or_else(PoisonError::into_inner).push(schema);
        location.builder().migrate().await?;
        Ok(location)
    }

    /// A connection of its own, to read the server's counters; `None` for SQLite.
    pub(super) async fn observer(&self) -> Result<Option<Observer>> {
        let StoreKind::Postgres { url } = &self.kind else { return Ok(None) };
        // Cleaning up after millions of jobs may take a while.
        let settings = PostgresSettings { statement_timeout: Duration::from_secs(600), ..PostgresSettings::new(url) };
        Ok(Some(Observer::connect(&settings).await?))
    }

    /// Removes what rounds have left. Comes after each round, and at the end however it ends.
    pub(super) async fn remove_rounds(&self) -> Result<()> {
        let made = std::mem::take(&mut *self.made.lock().unwrap_or_else(PoisonError::into_inner));
        match &self.kind {
            StoreKind::Sqlite(Some(file)) => remove_sqlite(file),
            StoreKind::Sqlite(None) => {
                for entry in fs::read_dir(&self.directory)?.flatten() {
                    let _ = fs::remove_file(entry.path());
                }
            }
            StoreKind::Postgres { .. } if made.is_empty() => {}
            StoreKind::Postgres { .. } => {
                let Some(observer) = self.observer().await? else { return Ok(()) };
                for schema in made {
                    remove_schema(&observer, &schema).await?;
                }
            }
        }
        Ok(())
    }

    pub(super) async fn remove(self) -> Result<()> {
        let rounds = self.remove_rounds().await;
        let directory = fs::remove_dir_all(&self.directory);
        rounds?;
        directory.with_context(|| format!("cannot remove {}; do it by hand", self.directory.display()))
    }
}

async fn remove_schema(observer: &Observer, schema: &str) -> Result<()> {
    let mut tries = 0;
    loop {
        match observer.drop_schema(schema).await {
            Ok(()) => return Ok(()),
            Err(error) if tries == REMOVAL_TRIES => {
                return Err(error).with_context(|| format!("cannot remove the schema {schema}; drop it by hand"));
            }
            // A worker that was broken off may hold a lock until its connection is closed.
            Err(_) => tokio::time::sleep(Duration::from_millis(250)).await,
        }
        tries += 1;
    }
}

fn new_file(url: &str) -> Result<PathBuf> {
    let path = url.strip_prefix("sqlite://").or_else(|| url.strip_prefix("sqlite:")).filter(|path| !path.is_empty());
    let Some(path) = path else { bail!("--store: use sqlite://FILE or postgres://USER@HOST/DATABASE") };
    if fs::exists(path)? {
        bail!("--store: {path} exists, and a benchmark removes its file afterwards; name one that does not exist");
    }
    Ok(path.into())
}

fn remove_sqlite(file: &Path) {
    for suffix in ["", "-wal", "-shm"] {
        let mut path = file.as_os_str().to_owned();
        path.push(suffix);
        // What is not there need not be removed.
        let _ = fs::remove_file(PathBuf::from(path));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_exists_is_never_used() {
        let here = std::env::current_exe().unwrap();
        let error = new_file(&format!("sqlite://{}", here.display())).unwrap_err().to_string();
        assert!(error.contains("exists"), "{error}");
        assert!(new_file("sqlite://no-such-file-in-here.db").is_ok());
        assert!(new_file("mysql://x").is_err() && new_file("sqlite://").is_err());
    }
}
