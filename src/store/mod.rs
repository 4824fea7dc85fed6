//! Where jobs live: the [`Store`] trait, one verb per transition, and what its verbs take and answer.
//!
//! The database decides; callers only hurry. Every verb is one atomic step that says what it expects to find; finding
//! something else is an answer (`lost`, `not found`), not an error. All times are the store's own clock: callers hand
//! over durations. Not here: which outcome leads where (that is [`decide`](crate::job::decide())), opening, migrating,
//! waking. The two stores are `sqlite` and `postgres`; `tests/conformance` is what makes them the same.

mod clock;
#[cfg(any(feature = "api", feature = "postgres", feature = "sqlite", feature = "worker"))]
mod complaints;
mod error;
#[cfg(any(feature = "postgres", feature = "sqlite", feature = "worker"))]
mod failures;
mod metered;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "sqlite")]
pub mod sqlite;
mod token;
mod verbs;
mod wake;

use async_trait::async_trait;

pub use clock::{Clock, HeldClock, SystemClock};
#[cfg(any(feature = "api", feature = "postgres", feature = "sqlite", feature = "worker"))]
pub(crate) use complaints::complain;
pub use error::{KeyTaken, NotStored, OpenError, StoreError, StoreErrorKind};
#[cfg(any(feature = "postgres", feature = "sqlite", feature = "worker"))]
pub(crate) use failures::FailedAttempt;
pub use metered::Metered;
#[cfg(feature = "api")]
pub(crate) use metered::VERBS;
pub use token::{LastAdmin, NoSuchScope, Scope, TokenDeleted, TokenRecord};
pub use verbs::{
    Beat, Cancelled, Claim, Counts, Deleted, Enqueued, Extend, Extended, Known, List, Page, Prune, Pruned, QueueStats,
    Reap, Reaped, Redriven, Settle, Settled, Stats, WorkerFate,
};
pub use wake::{Wake, WakeListener};

use crate::job::{AttemptRecord, JobId, JobRecord, Kind, KindDefinition, Lease, NewJob, QueueName};

/// What enqueue did: all of the call, or nothing because keys are taken.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
type EnqueueAnswer = Result<Vec<Enqueued>, Vec<KeyTaken>>;

/// One answer per item: an item that fails does so alone.
pub type PerItem<T> = Result<Vec<Result<T, StoreError>>, StoreError>;

/// The verbs. Each takes and answers batches, in the order given; the answer is only given once it is on stable
/// storage.
#[async_trait]
pub trait Store: std::fmt::Debug + Send + Sync + 'static {
    /// – → queued. All of the batch or nothing. A key that is known answers with its job, unchanged; if that is of
    /// another kind or has another payload, nothing is stored ([`NotStored::KeysTaken`]). A job that is there already,
    /// by its id, is answered as created: the answer to an earlier call was lost.
    async fn enqueue(&self, jobs: Vec<NewJob>) -> Result<Vec<Enqueued>, NotStored>;

    /// What the keys of these jobs belong to already. Stores nothing.
    async fn known(&self, jobs: Vec<NewJob>) -> Result<Vec<Option<Known>>, StoreError>;

    /// queued, retrying → running. Highest priority first, then oldest `run_at`, then id; only what is due, of the
    /// kinds asked for, in queues that are not paused. A row that cannot be read is dead-lettered with the reason and
    /// does not keep the others back.
    async fn claim(&self, claim: Claim) -> Result<Vec<Lease>, StoreError>;

    /// running → running. Moves the end of each lease whose token still matches, never past `started_at + timeout_ms`.
    async fn extend(&self, extend: Extend) -> Result<Vec<Extended>, StoreError>;

    /// running → what [`decide`](crate::job::decide()) says, fenced by the lease token. The same settle again gets the
    /// same answer; a stale one changes nothing and is answered [`Settled::Lost`].
    async fn settle(&self, settles: Vec<Settle>) -> PerItem<Settled>;

    /// running → retrying, failed_permanent or cancelled, for leases that have expired, oldest expiry first.
    async fn reap(&self, reap: Reap) -> Result<Vec<Reaped>, StoreError>;

    /// queued, retrying → cancelled at once; running → flagged.
    async fn cancel(&self, ids: Vec<JobId>) -> PerItem<Cancelled>;

    /// failed_permanent, cancelled → queued, as if new, with its history and last error kept.
    async fn redrive(&self, ids: Vec<JobId>) -> PerItem<Redriven>;

    /// Finished → gone, with its attempts. Its idempotency key is free again.
    async fn delete(&self, ids: Vec<JobId>) -> PerItem<Deleted>;

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

    /// No job of this queue is claimed until it is resumed. Running jobs go on. The queue need not exist yet.
    async fn pause(&self, queue: QueueName) -> Result<(), StoreError>;

    /// Ends a pause.
    async fn resume(&self, queue: QueueName) -> Result<(), StoreError>;

    /// Declares a kind, or changes its declaration; `true` if it is new.
    async fn put_kind(&self, definition: KindDefinition) -> Result<bool, StoreError>;

    /// Forgets a kind; its jobs go on. `false` if it was not declared.
    async fn delete_kind(&self, kind: Kind) -> Result<bool, StoreError>;

    /// Every declared kind, by name.
    async fn kinds(&self) -> Result<Vec<KindDefinition>, StoreError>;

    /// Adds an API token, or replaces the one with its id. From then on there was a token.
    async fn put_token(&self, token: TokenRecord) -> Result<(), StoreError>;

    /// Every API token, by id.
    async fn tokens(&self) -> Result<Vec<TokenRecord>, StoreError>;

    /// Whether there ever was an API token, also if all are gone.
    async fn had_token(&self) -> Result<bool, StoreError>;

    /// Forgets an API token. Two calls at the same time never delete the last two with the scope `admin` if each is
    /// to keep the last one.
    async fn delete_token(&self, id: String, last_admin: LastAdmin) -> Result<TokenDeleted, StoreError>;

    /// One round trip, to see that the store answers and takes writes. A full disk is no failure: there is room again
    /// once jobs are removed, which takes a server that is ready.
    async fn ping(&self) -> Result<(), StoreError>;
}
