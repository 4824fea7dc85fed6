//! Whether the store can still write, as its threads have seen it, and `ping`, which asks.
//!
//! Only a write shows that a disk still takes writes; but who asks every second must not wear it out. So ping tries a write
//! every ten seconds, and at every call once one has failed, until one succeeds.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::time::timeout;

use super::SqliteStore;
use super::error::{is_lock, is_sync_failure};
use super::inbox::{Urgency, Verb};
use super::migrate::APPLICATION_ID;
use super::transaction::Tx;
use crate::store::{StoreError, StoreErrorKind};

/// 10 s: as often as an orchestrator usually asks; one page of the log each.
const WRITE_INTERVAL: Duration = Duration::from_secs(10);

/// 500 ms: a write takes some milliseconds, and readiness must be answered within its own time limit.
const WRITE_TIMEOUT: Duration = Duration::from_millis(500);

/// Shared by the writer, the checkpointer and whoever asks.
#[derive(Debug, Default)]
pub(super) struct WriterHealth {
    commits: AtomicU64,
    /// Set once the disk failed to sync, by whoever met it: from then on nothing is written any more.
    sync_failed: AtomicBool,
    /// Set once the writer has died of a panic.
    writer_died: AtomicBool,
    /// Set when a commit failed at the disk, until a write is seen to succeed.
    write_failed: AtomicBool,
    /// When `ping` last saw a write succeed.
    last_write: Mutex<Option<Instant>>,
}

impl WriterHealth {
    pub(super) fn commits(&self) -> u64 {
        self.commits.load(Ordering::Relaxed)
    }

    pub(super) fn note_commit(&self) {
        self.commits.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes note of an error if it means that the disk does not keep what it is given.
    pub(super) fn note_error(&self, error: &rusqlite::Error) {
        if is_sync_failure(error) && !self.sync_failed.swap(true, Ordering::SeqCst) {
            tracing::error!(%error, "the disk failed to sync; nothing more is written, restart on a sound disk");
        }
    }

    pub(super) fn note_write_failed(&self) {
        self.write_failed.store(true, Ordering::SeqCst);
    }

    pub(super) fn note_writer_died(&self) {
        self.writer_died.store(true, Ordering::SeqCst);
    }

    pub(super) fn has_sync_failed(&self) -> bool {
        self.sync_failed.load(Ordering::SeqCst)
    }

    /// Why nothing can be written for as long as this process lives, if so.
    pub(super) fn final_error(&self, doing: &'static str) -> Option<StoreError> {
        if self.has_sync_failed() {
            return Some(StoreError::new(StoreErrorKind::Damaged, doing));
        }
        self.writer_died.load(Ordering::SeqCst).then(|| StoreError::new(StoreErrorKind::Stopped, doing))
    }

    /// For a request that the writer does not take: it has died, or the store is being closed.
    pub(super) fn why_closed(&self, doing: &'static str) -> StoreError {
        let died = self.writer_died.load(Ordering::SeqCst);
        StoreError::new(if died { StoreErrorKind::Stopped } else { StoreErrorKind::Unavailable }, doing)
    }

    /// A commit of nothing succeeds on any disk, so this is about [`WriteProbe`] only.
    fn note_probe_succeeded(&self) {
        self.write_failed.store(false, Ordering::SeqCst);
        *self.last_write.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    fn needs_probe(&self) -> bool {
        let last = *self.last_write.lock().unwrap_or_else(PoisonError::into_inner);
        self.write_failed.load(Ordering::SeqCst) || last.is_none_or(|last| last.elapsed() >= WRITE_INTERVAL)
    }
}

pub(super) async fn ping(store: &SqliteStore) -> Result<(), StoreError> {
    let health = store.writer.health();
    if let Some(error) = health.final_error("ping") {
        return Err(error);
    }
    if health.needs_probe() {
        match timeout(WRITE_TIMEOUT, store.writer.write(WriteProbe)).await {
            Ok(Ok(())) => health.note_probe_succeeded(),
            Ok(Err(error)) if error.kind() == StoreErrorKind::Full || is_lock(&error) => {}
            Ok(Err(error)) => return Err(error),
            // Somebody holds a lock, as a backup does: callers wait for that, too, and it is no reason to send them away.
            Err(_) => {}
        }
    }
    store.readers.read("ping", |connection| connection.query_row("SELECT 1", [], |_| Ok(()))).await
}

/// Writes what is there already.
struct WriteProbe;

impl Verb for WriteProbe {
    type Answer = ();
    const NAME: &'static str = "ping";
    const URGENCY: Urgency = Urgency::Urgent;

    fn apply(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<()> {
        tx.connection().pragma_update(None, "application_id", APPLICATION_ID)
    }

    fn needs_sync(&self) -> bool {
        false
    }
}
