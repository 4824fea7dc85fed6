//! Copies the write-ahead log into the database file, on a thread and a connection of its own, so that commits do not
//! wait for it.
//!
//! A passive checkpoint never blocks anyone but never empties a log that is being written to either; once the log is
//! long, the writer is asked to finish the last bit between two batches and begin the log anew.

use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::Duration;

use rusqlite::Connection;

use super::error::{skip_checkpoint_on_close, store_error};
use super::health::WriterHealth;
use super::inbox::Inbox;
use crate::planted::{Bug, planted};
use crate::store::warn_throttled;

/// 200 ms: seldom enough to cost nothing, often enough that little is left for the writer to finish.
const INTERVAL: Duration = Duration::from_millis(200);

/// 4,096 pages of 4 KiB, 16 MiB: above that the log is begun anew.
const LOG_MAX_PAGES: i64 = 4096;

/// Runs until dropped.
#[derive(Debug)]
pub(super) struct Checkpointer {
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Checkpointer {
    pub(super) fn start(connection: Connection, inbox: Arc<Inbox>, health: Arc<WriterHealth>) -> std::io::Result<Self> {
        let (stop, stopped) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name("steadfast-checkpoint".into())
            .spawn(move || run(&connection, &inbox, &health, &stopped))?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Checkpointer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run(connection: &Connection, inbox: &Inbox, health: &WriterHealth, stopped: &mpsc::Receiver<()>) {
    let mut seen = health.commits();
    while stopped.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
        let commits = health.commits();
        // After a failed sync another one would only hide that pages were lost.
        if commits == seen || health.final_error("checkpoint").is_some() {
            continue;
        }
        match checkpoint(connection) {
            // Looked at again even if nothing more is committed: a reader may be in the way until then.
            Ok(log_pages) if log_pages > LOG_MAX_PAGES && !planted(Bug::LogNeverShrinks) => inbox.restart_wal(),
            Ok(_) => seen = commits,
            Err(error) => {
                health.note_error(&error);
                warn_throttled(
                    &store_error("checkpoint", error),
                    "cannot copy the log into the database file; trying again",
                );
            }
        }
    }
    if health.final_error("checkpoint").is_some() {
        skip_checkpoint_on_close(connection);
    }
}

/// How many pages the log holds.
fn checkpoint(connection: &Connection) -> rusqlite::Result<i64> {
    connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| row.get(1))
}
