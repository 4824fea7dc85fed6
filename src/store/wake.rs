//! In-process notifications that there may be work. Only a hint: a lost one costs a poll interval, never a job.

use tokio::sync::watch;

/// Notifies the listeners of this process that jobs may be ready.
#[derive(Debug, Clone)]
pub struct Wake(watch::Sender<u64>);

impl Default for Wake {
    fn default() -> Self {
        Self(watch::Sender::new(0))
    }
}

impl Wake {
    /// Notifies every listener.
    pub fn wake(&self) {
        self.0.send_modify(|count| *count = count.wrapping_add(1));
    }

    /// A listener for notifications from now on.
    pub fn listen(&self) -> WakeListener {
        WakeListener(self.0.subscribe())
    }
}

/// Waits for a [`Wake`]. Notifications that arrive while it does not wait are remembered, as one.
#[derive(Debug, Clone)]
pub struct WakeListener(watch::Receiver<u64>);

impl WakeListener {
    /// Whether there was a notification since the last call of this or of [`woken`](Self::woken).
    #[cfg(feature = "postgres")]
    pub(crate) fn has_woken(&mut self) -> bool {
        let is_woken = self.is_woken();
        self.0.mark_unchanged();
        is_woken
    }

    /// The same, without forgetting it.
    #[cfg(feature = "postgres")]
    pub(crate) fn is_woken(&self) -> bool {
        self.0.has_changed().unwrap_or(false)
    }

    /// Returns when there was a notification since the last call. Never returns once the store is closed.
    pub async fn woken(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
