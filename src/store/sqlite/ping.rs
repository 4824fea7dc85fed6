//! ping: whether the file can be read, and written.
//!
//! Only a write shows that a disk still takes writes; but who asks every second must not wear it out. So a write is tried
//! every ten seconds, and at every call once one has failed, until one succeeds.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::time::timeout;

use super::SqliteStore;
use super::error::is_lock;
use super::migrate::APPLICATION_ID;
use super::transaction::Tx;
use super::writer::{Lane, Verb};
use crate::store::{StoreError, StoreErrorKind};

/// 10 s: as often as an orchestrator usually asks; one page of the log each.
const WRITE_INTERVAL: Duration = Duration::from_secs(10);

/// 500 ms: a write takes some milliseconds, and readiness must be answered within its own time limit.
const WRITE_TIMEOUT: Duration = Duration::from_millis(500);

/// When a write was last seen to succeed.
#[derive(Debug, Default)]
pub(super) struct LastWrite(Mutex<Option<Instant>>);

impl LastWrite {
    fn is_recent(&self) -> bool {
        let last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        last.is_some_and(|last| last.elapsed() < WRITE_INTERVAL)
    }

    fn is_now(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }
}

pub(super) async fn ping(store: &SqliteStore) -> Result<(), StoreError> {
    let inbox = store.writer.inbox();
    if let Some(trouble) = inbox.trouble("ping") {
        return Err(trouble);
    }
    if inbox.has_write_failed() || !store.last_write.is_recent() {
        match timeout(WRITE_TIMEOUT, store.writer.write(WriteSomething)).await {
            Ok(Ok(())) => {
                inbox.write_succeeded();
                store.last_write.is_now();
            }
            Ok(Err(error)) if error.kind() == StoreErrorKind::Full || is_lock(&error) => {}
            Ok(Err(error)) => return Err(error),
            // Somebody holds a lock, as a backup does: callers wait for that, too, and it is no reason to send them away.
            Err(_) => {}
        }
    }
    store.readers.read("ping", |connection| connection.query_row("SELECT 1", [], |_| Ok(()))).await
}

/// Writes what is there already.
struct WriteSomething;

impl Verb for WriteSomething {
    type Answer = ();
    const NAME: &'static str = "ping";
    const LANE: Lane = Lane::Urgent;

    fn apply(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<()> {
        tx.connection().pragma_update(None, "application_id", APPLICATION_ID)
    }

    fn needs_sync(&self) -> bool {
        false
    }
}
