//! Notifies workers of this process at once which running jobs were cancelled. Only a hint: heartbeats bring it, too.

use tokio::sync::broadcast;

use crate::job::JobId;

/// 1,024 notifications that a listener has not read yet; beyond that, its jobs are told by heartbeat.
const CAPACITY: usize = 1024;

#[derive(Debug)]
pub(super) struct Cancels(broadcast::Sender<JobId>);

impl Default for Cancels {
    fn default() -> Self {
        Self(broadcast::Sender::new(CAPACITY))
    }
}

impl Cancels {
    pub(super) fn announce(&self, job: JobId) {
        // No listener is fine: the worker is in another process.
        let _ = self.0.send(job);
    }

    pub(super) fn listen(&self) -> CancelListener {
        CancelListener(self.0.subscribe())
    }
}

/// Receives the ids of running jobs that were cancelled through this process.
#[derive(Debug)]
pub struct CancelListener(broadcast::Receiver<JobId>);

impl CancelListener {
    /// The next one; `None` once the queue is closed. A listener that lags far behind misses some.
    pub async fn next(&mut self) -> Option<JobId> {
        loop {
            match self.0.recv().await {
                Ok(job) => return Some(job),
                Err(broadcast::error::RecvError::Lagged(_)) => {}
                Err(broadcast::error::RecvError::Closed) => return None,
            }
        }
    }
}
