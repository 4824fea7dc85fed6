//! Verbs on jobs and leases, one per transition. See [`JobStore`].

use async_trait::async_trait;

use super::sealed::Sealed;
use super::{
    Cancel, Cancelled, Claim, Claimed, Delete, Deleted, Enqueued, Extend, Extended, Known, List, NotStored, Page,
    PerItem, Prune, Pruned, Reap, Reaped, Redrive, Redriven, Settle, Settled, Stats, StatsRequest, StoreError,
};
use crate::job::{AttemptRecord, JobId, JobRecord, NewJob};

/// Verbs on jobs and leases, one per transition. Most take a batch and answer in its order, once the result is on stable
/// storage.
#[async_trait]
pub trait JobStore: Sealed {
    /// – → queued. All of the batch or nothing. A known idempotency key is answered with its job, unchanged; if that is of
    /// another kind or has another payload, nothing is stored ([`NotStored::KeysTaken`]). A job whose id is stored already
    /// is answered as created: the answer to an earlier call was lost.
    async fn enqueue(&self, jobs: Vec<NewJob>) -> Result<Vec<Enqueued>, NotStored>;

    /// Looks up which idempotency keys of these jobs are in use. Stores nothing.
    async fn known(&self, jobs: Vec<NewJob>) -> Result<Vec<Option<Known>>, StoreError>;

    /// queued, retrying → running. Highest priority first, then oldest `run_at`, then id; only jobs that are due, of the
    /// requested kinds, in queues that are not paused. A row that cannot be read is dead-lettered with the reason and does
    /// not block the others.
    async fn claim(&self, claim: Claim) -> Result<Claimed, StoreError>;

    /// running → running. Extends each lease whose token still matches, never past `started_at + timeout_ms`.
    async fn extend(&self, extend: Extend) -> Result<Vec<Extended>, StoreError>;

    /// running → what [`decide`](crate::job::decide()) says, fenced by the lease token. Idempotent: the same settle again
    /// gets the same answer; a stale one changes nothing and is answered [`Settled::Lost`].
    async fn settle(&self, settles: Vec<Settle>) -> PerItem<Settled>;

    /// running → retrying, failed_permanent or cancelled, for leases that have expired, oldest expiry first.
    async fn reap(&self, reap: Reap) -> Result<Vec<Reaped>, StoreError>;

    /// queued, retrying → cancelled at once; running → running, with `cancel_requested`.
    async fn cancel(&self, cancel: Cancel) -> PerItem<Cancelled>;

    /// failed_permanent, cancelled → queued, with `attempts` at 0; history and last error are kept.
    async fn redrive(&self, redrive: Redrive) -> PerItem<Redriven>;

    /// Deletes finished jobs with their attempts. Their idempotency keys are free again.
    async fn delete(&self, delete: Delete) -> PerItem<Deleted>;

    /// Deletes jobs that finished long enough ago. Scans a bounded number of jobs, oldest first; see [`Pruned::next`].
    async fn prune(&self, prune: Prune) -> Result<Pruned, StoreError>;

    /// Reads the jobs with these ids; `None` for an id without a job.
    async fn get(&self, ids: Vec<JobId>) -> Result<Vec<Option<JobRecord>>, StoreError>;

    /// Lists jobs, those that only wait in the order in which they will run, others newest first, or as asked for. Scans a
    /// bounded number of jobs; see [`Page::next`].
    async fn list(&self, list: List) -> Result<Page, StoreError>;

    /// Reads a job's attempts in the order of their starts, the newest 1,000; `None` if there is no such job.
    async fn attempts(&self, id: JobId) -> Result<Option<Vec<AttemptRecord>>, StoreError>;

    /// Counts jobs per queue and status, a page of queues by name and over all. The counts are kept with every change; no
    /// rows are counted.
    async fn stats(&self, request: StatsRequest) -> Result<Stats, StoreError>;
}
