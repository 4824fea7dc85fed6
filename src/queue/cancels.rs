//! Tells workers of this process at once which running jobs were asked to stop. Only a hint: heartbeats tell the rest.

use tokio::sync::broadcast;

use crate::job::JobId;

/// 1,024 cancels that a listener has not looked at yet; beyond that its jobs hear of them by heartbeat.
const CANCELS_REMEMBERED: usize = 1024;

#[derive(Debug)]
pub(super) struct Cancels(broadcast::Sender<JobId>);

impl Default for Cancels {
    fn default() -> Self {
        Self(broadcast::Sender::new(CANCELS_REMEMBERED))
    }
}

impl Cancels {
    pub(super) fn announce(&self, job: JobId) {
        // Nobody listening is fine: its worker is elsewhere.
        let _ = self.0.send(job);
    }

    pub(super) fn listen(&self) -> CancelListener {
        CancelListener(self.0.subscribe())
    }
}

/// Hears which running jobs were asked to stop.
#[derive(Debug)]
pub struct CancelListener(broadcast::Receiver<JobId>);

impl CancelListener {
    /// The next one; `None` once the queue is gone. Of a great many at once, some are left to the heartbeats.
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
