//! The leases this process holds: what the heartbeat extends. An attempt is held from its claim until its outcome is on
//! record, so neither a full buffer nor a slow store lets its lease run out.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::StopReason;
use super::context::Attempt;
use crate::job::{JobId, LeaseToken};
use crate::queue::CancelListener;

#[derive(Debug, Default)]
pub(super) struct HeldLeases {
    // By token: a job that was lost and claimed again by this same process is held twice for a while.
    attempts: Mutex<HashMap<LeaseToken, Arc<Attempt>>>,
}

impl HeldLeases {
    pub(super) fn hold(&self, attempts: impl IntoIterator<Item = Arc<Attempt>>) {
        self.lock().extend(attempts.into_iter().map(|attempt| (attempt.lease.token, attempt)));
    }

    /// Stops extending it. `None` if it had been let go of before (the heartbeat found it lost).
    pub(super) fn let_go(&self, token: LeaseToken) -> Option<Arc<Attempt>> {
        self.lock().remove(&token)
    }

    /// Stops extending it, because it is gone, and says so: this process believed it was running a job that had been taken
    /// from it. `None`, and no word, if it had been let go of before.
    pub(super) fn lose(&self, token: LeaseToken) -> Option<Arc<Attempt>> {
        let attempt = self.let_go(token)?;
        metrics::counter!("leases_lost_total").increment(1);
        tracing::warn!(
            job_id = %attempt.lease.job_id, kind = %attempt.kind, attempt = attempt.number,
            "lost the lease of a job: whatever this attempt reports is refused"
        );
        Some(attempt)
    }

    pub(super) fn all(&self) -> Vec<Arc<Attempt>> {
        self.lock().values().cloned().collect()
    }

    pub(super) fn len(&self) -> usize {
        self.lock().len()
    }

    /// Tells the handler of a job to stop.
    fn stop_job(&self, id: JobId, reason: StopReason) {
        self.lock().values().filter(|attempt| attempt.lease.job_id == id).for_each(|attempt| attempt.stop(reason));
    }

    /// Tells every handler to stop.
    pub(super) fn stop_all(&self, reason: StopReason) {
        self.lock().values().for_each(|attempt| attempt.stop(reason));
    }

    /// Tells the handlers of jobs that are cancelled through this process, as long as there is a queue. Heartbeats tell the
    /// others.
    pub(super) async fn stop_cancelled(&self, mut cancels: CancelListener) {
        while let Some(job) = cancels.next().await {
            self.stop_job(job, StopReason::Cancelled);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<LeaseToken, Arc<Attempt>>> {
        self.attempts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
