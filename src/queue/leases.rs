//! Calls for workers: claim, extend and settle leases, reap expired ones, prune old jobs, and be notified of work and of
//! cancellations. The worker and the lease routes of the API use these.

use super::series::EndedAttempt;
use super::{CancelListener, Queue};
use crate::store::{
    Claim, Claimed, Extend, Extended, PerItem, Prune, Pruned, Reap, Reaped, Settle, Settled, StoreError, Wake,
};

/// For workers: claim, extend and settle. [`Worker`](crate::Worker) does all of this; use it unless you write a worker of
/// your own.
impl Queue {
    /// Claims jobs that are due, with a lease each. [`Worker`](crate::Worker) does this for you.
    pub async fn claim(&self, claim: Claim) -> Result<Claimed, StoreError> {
        let claimed = self.inner.store.claim(claim).await?;
        self.inner.count_claimed(&claimed.leases);
        Ok(claimed)
    }

    /// Extends leases; each answer says whether to go on. Due at a third of a lease.
    pub async fn extend(&self, extend: Extend) -> Result<Vec<Extended>, StoreError> {
        self.inner.store.extend(extend).await
    }

    /// Records the outcomes of attempts.
    pub async fn settle(&self, settles: Vec<Settle>) -> PerItem<Settled> {
        let ended: Vec<EndedAttempt> = settles.iter().map(EndedAttempt::from).collect();
        let answers = self.inner.store.settle(settles).await;
        self.inner.count_settled(&ended, &answers);
        answers
    }

    /// Ends attempts whose leases have expired, of any worker.
    pub async fn reap(&self, reap: Reap) -> Result<Vec<Reaped>, StoreError> {
        let reaped = self.inner.store.reap(reap).await?;
        self.inner.count_reaped(&reaped);
        Ok(reaped)
    }

    /// Deletes jobs that finished long enough ago.
    pub async fn prune(&self, prune: Prune) -> Result<Pruned, StoreError> {
        self.inner.store.prune(prune).await
    }

    /// Notifies when there may be work.
    pub fn wake(&self) -> &Wake {
        &self.inner.wake
    }

    /// A listener for running jobs that are cancelled through this process, from now on. Cancellations through other
    /// processes are in the answers to heartbeats.
    pub fn cancels(&self) -> CancelListener {
        self.inner.cancels.listen()
    }
}
