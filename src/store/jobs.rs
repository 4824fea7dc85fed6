//! Jobs and their leases: one verb per transition. See [`JobStore`].

use async_trait::async_trait;

use super::sealed::Sealed;
use super::{
    Cancel, Cancelled, Claim, Claimed, Delete, Deleted, Enqueued, Extend, Extended, Known, List, NotStored, Page,
    PerItem, Prune, Pruned, Reap, Reaped, Redrive, Redriven, Settle, Settled, Stats, StoreError,
};
use crate::job::{AttemptRecord, JobId, JobRecord, NewJob};

/// What can be done with jobs. Each verb takes and answers batches, in the order given; the answer is only given once it
/// is on stable storage.
#[async_trait]
pub trait JobStore: Sealed {
    /// – → queued. All of the batch or nothing. A key that is known answers with its job, unchanged; if that is of
    /// another kind or has another payload, nothing is stored ([`NotStored::KeysTaken`]). A job that is there already,
    /// by its id, is answered as created: the answer to an earlier call was lost.
    async fn enqueue(&self, jobs: Vec<NewJob>) -> Result<Vec<Enqueued>, NotStored>;

    /// What the keys of these jobs belong to already. Stores nothing.
    async fn known(&self, jobs: Vec<NewJob>) -> Result<Vec<Option<Known>>, StoreError>;

    /// queued, retrying → running. Highest priority first, then oldest `run_at`, then id; only what is due, of the
    /// kinds asked for, in queues that are not paused. A row that cannot be read is dead-lettered with the reason and
    /// does not keep the others back.
    async fn claim(&self, claim: Claim) -> Result<Claimed, StoreError>;

    /// running → running. Moves the end of each lease whose token still matches, never past `started_at + timeout_ms`.
    async fn extend(&self, extend: Extend) -> Result<Vec<Extended>, StoreError>;

    /// running → what [`decide`](crate::job::decide()) says, fenced by the lease token. The same settle again gets the
    /// same answer; a stale one changes nothing and is answered [`Settled::Lost`].
    async fn settle(&self, settles: Vec<Settle>) -> PerItem<Settled>;

    /// running → retrying, failed_permanent or cancelled, for leases that have expired, oldest expiry first.
    async fn reap(&self, reap: Reap) -> Result<Vec<Reaped>, StoreError>;

    /// queued, retrying → cancelled at once; running → flagged.
    async fn cancel(&self, cancel: Cancel) -> PerItem<Cancelled>;

    /// failed_permanent, cancelled → queued, as if new, with its history and last error kept.
    async fn redrive(&self, redrive: Redrive) -> PerItem<Redriven>;

    /// Finished → gone, with its attempts. Its idempotency key is free again.
    async fn delete(&self, delete: Delete) -> PerItem<Deleted>;

    /// Finished long enough ago → gone. Looks at a bounded number of jobs, oldest first; see [`Pruned::next`].
    async fn prune(&self, prune: Prune) -> Result<Pruned, StoreError>;

    /// The jobs with these ids.
    async fn get(&self, ids: Vec<JobId>) -> Result<Vec<Option<JobRecord>>, StoreError>;

    /// Jobs, newest first. Looks at a bounded number of jobs; see [`Page::next`].
    async fn list(&self, list: List) -> Result<Page, StoreError>;

    /// A job's attempts, in the order of their starts, the newest 1,000 of them; `None` if there is no such job.
    async fn attempts(&self, id: JobId) -> Result<Option<Vec<AttemptRecord>>, StoreError>;

    /// Jobs per queue and status, and how long the oldest due one has waited. Never counts rows.
    async fn stats(&self) -> Result<Stats, StoreError>;
}
