//! The leases that this process holds and the heartbeat extends: from the claim until the outcome is recorded, so that
//! neither a full buffer nor a slow store lets a lease expire.

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
    pub(super) fn add(&self, attempts: impl IntoIterator<Item = Arc<Attempt>>) {
        self.lock().extend(attempts.into_iter().map(|attempt| (attempt.lease.token, attempt)));
    }

    /// Stops extending it. `None` if it was removed before (the heartbeat found it lost).
    pub(super) fn remove(&self, token: LeaseToken) -> Option<Arc<Attempt>> {
        self.lock().remove(&token)
    }

    /// Stops extending a lease that was lost, and logs it. `None`, without a log line, if it was removed before.
    pub(super) fn remove_lost(&self, token: LeaseToken) -> Option<Arc<Attempt>> {
        let attempt = self.remove(token)?;
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

    /// Tells the handlers of jobs that are cancelled through this process to stop. The others are told by heartbeats.
    pub(super) async fn stop_cancelled(&self, mut cancels: CancelListener) {
        while let Some(job) = cancels.next().await {
            self.stop_job(job, StopReason::Cancelled);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<LeaseToken, Arc<Attempt>>> {
        self.attempts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
