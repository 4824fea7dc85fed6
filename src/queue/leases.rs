//! For who runs jobs: claiming, keeping and settling leases, ending those that expired, removing what is old, and hearing
//! when there is something to do. The worker and the API's lease routes are written with these.

use super::{CancelListener, Queue};
use crate::store::{
    Claim, Claimed, Extend, Extended, PerItem, Prune, Pruned, Reap, Reaped, Settle, Settled, StoreError, Wake,
};

impl Queue {
    /// Leases jobs that are due.
    pub async fn claim(&self, claim: Claim) -> Result<Claimed, StoreError> {
        self.inner.store.claim(claim).await
    }

    /// Extends leases; each answer says whether to go on.
    pub async fn extend(&self, extend: Extend) -> Result<Vec<Extended>, StoreError> {
        self.inner.store.extend(extend).await
    }

    /// Records how attempts went.
    pub async fn settle(&self, settles: Vec<Settle>) -> PerItem<Settled> {
        self.inner.store.settle(settles).await
    }

    /// Ends attempts whose leases have expired, anybody's.
    pub async fn reap(&self, reap: Reap) -> Result<Vec<Reaped>, StoreError> {
        self.inner.store.reap(reap).await
    }

    /// Removes jobs that finished long enough ago.
    pub async fn prune(&self, prune: Prune) -> Result<Pruned, StoreError> {
        self.inner.store.prune(prune).await
    }

    /// Rings when there may be work.
    pub fn wake(&self) -> &Wake {
        &self.inner.wake
    }

    /// Hears of running jobs that are asked to stop through this process, from now on. Jobs of other processes are told by
    /// their heartbeats.
    pub fn cancels(&self) -> CancelListener {
        self.inner.cancels.listen()
    }
}
