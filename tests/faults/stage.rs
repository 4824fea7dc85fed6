//! Where a scenario takes place: a database of its own, a journal, and the way to the verdict.

use std::process::{Child, ExitStatus};
use std::time::Instant;

use serde_json::Value;
use steadfast::Queue;
use tempfile::TempDir;
use tokio::sync::{RwLockReadGuard, RwLockWriteGuard};

use crate::history::{History, Verdict};
use crate::journal::Journal;
use crate::players::Script;
use crate::programs::get;
use crate::scale::{MACHINE, wait_timeout};
use crate::support::postgres::{Cluster, TestDatabase};

/// One at a time in each test: it holds a share of the machine.
pub(crate) struct Stage {
    pub(crate) url: String,
    pub(crate) journal: Journal,
    _share: Share,
    _directory: TempDir,
    _database: Option<TestDatabase>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Store {
    Sqlite,
    Postgres,
}

impl Store {
    pub(crate) const BOTH: [Self; 2] = [Self::Sqlite, Self::Postgres];
}

/// See [`MACHINE`].
enum Share {
    Some(#[expect(dead_code, reason = "held")] RwLockReadGuard<'static, ()>),
    All(#[expect(dead_code, reason = "held")] RwLockWriteGuard<'static, ()>),
}

impl Stage {
    pub(crate) async fn on(store: Store) -> Self {
        Self::with(Share::Some(MACHINE.read().await), store).await
    }

    pub(crate) async fn on_sqlite() -> Self {
        Self::on(Store::Sqlite).await
    }

    pub(crate) async fn on_postgres() -> Self {
        Self::on(Store::Postgres).await
    }

    /// With the machine for itself.
    pub(crate) async fn alone_on(store: Store) -> Self {
        Self::with(Share::All(MACHINE.write().await), store).await
    }

    /// On a database server that is going to be treated badly.
    pub(crate) async fn in_cluster(cluster: &Cluster) -> Self {
        let database = cluster.database().await;
        let share = Share::Some(MACHINE.read().await);
        Self::set(share, database.url.clone(), tempfile::tempdir().unwrap(), Some(database))
    }

    async fn with(share: Share, store: Store) -> Self {
        let directory = tempfile::tempdir().unwrap();
        match store {
            Store::Sqlite => {
                let url = format!("sqlite://{}", directory.path().join("jobs.db").display());
                Self::set(share, url, directory, None)
            }
            Store::Postgres => {
                let database = Cluster::shared().await.database().await;
                Self::set(share, database.url.clone(), directory, Some(database))
            }
        }
    }

    fn set(share: Share, url: String, directory: TempDir, database: Option<TestDatabase>) -> Self {
        let journal = Journal::at(&directory.path().join("journal"));
        Self { url, journal, _share: share, _directory: directory, _database: database }
    }

    pub(crate) fn script(&self) -> Script {
        Script::new(&self.url, &self.journal)
    }

    pub(crate) async fn queue(&self) -> Queue {
        Queue::open(&self.url).await.unwrap()
    }

    /// Adds what the handlers wrote and what the store says, and judges it all. On SQLite, once its owner has ended.
    pub(crate) async fn judge(&self, mut history: History) -> (History, Verdict) {
        self.journal.read_into(&mut history);
        history.read_store(&self.queue().await).await;
        let verdict = history.judge();
        (history, verdict)
    }
}

/// Looks again and again until something is the case.
pub(crate) fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let give_up = Instant::now() + wait_timeout();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < give_up, "waited in vain: {what}");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

/// Waits for a process to end; `None` if it has not by then, and it is killed.
pub(crate) fn ended_by(give_up: Instant, child: &mut Child) -> Option<ExitStatus> {
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return Some(status);
        }
        if Instant::now() > give_up {
            let _ = child.kill();
            let _ = child.wait();
            return None;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

/// Waits until a server has no job left that could still run.
pub(crate) fn wait_until_done(server: &str) {
    let give_up = Instant::now() + wait_timeout() * crate::scale::quick_or_long(1, 5);
    loop {
        let (status, body) = get(&format!("{server}/stats"), None);
        let stats: Value = serde_json::from_str(&body).unwrap_or_default();
        let totals = &stats["totals"];
        let left: u64 = ["queued", "running", "retrying"].iter().filter_map(|status| totals[status].as_u64()).sum();
        if status == 200 && left == 0 {
            return;
        }
        assert!(Instant::now() < give_up, "waited in vain for the jobs to end: {totals}");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}
