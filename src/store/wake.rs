//! The tap on the shoulder: tells whoever waits for work that there may be some. Only a hint; a lost wake costs a poll
//! interval, never a job.

use tokio::sync::watch;

/// Wakes every listener of this process.
#[derive(Debug, Clone)]
pub struct Wake(watch::Sender<u64>);

impl Default for Wake {
    fn default() -> Self {
        Self(watch::Sender::new(0))
    }
}

impl Wake {
    /// There may be work.
    pub fn wake(&self) {
        self.0.send_modify(|count| *count = count.wrapping_add(1));
    }

    /// Hears of every wake from now on.
    pub fn listen(&self) -> WakeListener {
        WakeListener(self.0.subscribe())
    }
}

/// Hears a [`Wake`]. Wakes that happen while nobody waits are remembered, as one.
#[derive(Debug, Clone)]
pub struct WakeListener(watch::Receiver<u64>);

impl WakeListener {
    /// Returns when there was a wake since the last call. Never returns once the store is gone.
    pub async fn woken(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
