//! Connections that only read, each query with a time limit, so that none pins the write-ahead log.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use tokio::sync::Semaphore;

use super::error::store_error;
use super::open::open_reader;
use super::owner::OwnerLock;
use crate::store::{StoreError, StoreErrorKind};

/// 4: reads are short; more connections would only hold more of the cache.
const CONNECTIONS: usize = 4;

/// 1,000 steps of SQLite's virtual machine, some microseconds: how often a query looks at the time.
const STEPS_PER_LOOK: i32 = 1000;

#[derive(Debug, Clone)]
pub(super) struct Readers {
    path: PathBuf,
    timeout: Duration,
    idle: Arc<Mutex<Vec<Connection>>>,
    permits: Arc<Semaphore>,
    /// A read that outlives the store still has the file open.
    _owner: Arc<OwnerLock>,
}

impl Readers {
    pub(super) fn new(path: PathBuf, timeout: Duration, owner: Arc<OwnerLock>) -> Self {
        let permits = Arc::new(Semaphore::new(CONNECTIONS));
        Self { path, timeout, idle: Arc::default(), permits, _owner: owner }
    }

    /// Runs `query` on a thread that may block.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        doing: &'static str,
        query: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        let deadline = Instant::now() + self.timeout;
        let permit = tokio::time::timeout(self.timeout, self.permits.clone().acquire_owned())
            .await
            .map_err(|_| StoreError::new(StoreErrorKind::Timeout, doing))?;
        let readers = self.clone();
        let reading = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            readers.read_until(deadline, query)
        });
        let answer =
            reading.await.map_err(|error| StoreError::new(StoreErrorKind::Internal, doing).caused_by(error))?;
        answer.map_err(|error| store_error(doing, error))
    }

    fn read_until<T>(
        &self,
        deadline: Instant,
        query: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<T> {
        let idle = || self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = idle().pop();
        let connection = match kept {
            Some(connection) => connection,
            None => open_reader(&self.path)?,
        };
        connection.progress_handler(STEPS_PER_LOOK, Some(move || Instant::now() > deadline))?;
        let answer = query(&connection)?;
        // Not kept after an error: a fresh one has nothing left open.
        idle().push(connection);
        Ok(answer)
    }
}
