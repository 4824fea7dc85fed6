//! Where jobs live: the [`Store`] traits, one verb per transition, and what their verbs take and answer.
//!
//! The database decides; callers only hurry. Every verb is one atomic step that says what it expects to find; finding
//! something else is an answer (`lost`, `not found`), not an error. All times are the store's own clock: callers hand
//! over durations. Not here: which outcome leads where (that is [`decide`](crate::job::decide())), opening, migrating,
//! waking. The two stores are `sqlite` and `postgres`; `tests/conformance` is what makes them the same.
//!
//! **Wrap, don't write.** The traits are sealed: a store must keep promises that no type can state (fences, order, what is
//! on disk before it answers), and its verbs become more with every version. What happens around a store's verbs is yours
//! ([`Wrapped`]): measure, refuse, delay or record any call, over either store.

mod actor;
mod catalog;
mod clock;
#[cfg(any(feature = "api", feature = "postgres", feature = "sqlite", feature = "worker"))]
mod complaints;
mod error;
#[cfg(any(feature = "postgres", feature = "sqlite", feature = "worker"))]
mod failures;
mod job_requests;
mod jobs;
mod lease_requests;
mod metrics;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "sqlite")]
pub mod sqlite;
mod token;
mod wake;
mod wrapped;

use async_trait::async_trait;

pub use actor::Actor;
pub use catalog::{CatalogStore, DeleteKind, DeleteToken, Pause, PutKind, PutToken, Resume};
pub use clock::{Clock, HeldClock, SystemClock};
#[cfg(any(feature = "api", feature = "postgres", feature = "sqlite", feature = "worker"))]
pub(crate) use complaints::complain;
pub use error::{KeyTaken, NotStored, OpenError, StoreError, StoreErrorKind};
#[cfg(any(feature = "postgres", feature = "sqlite", feature = "worker"))]
pub(crate) use failures::FailedAttempt;
pub use job_requests::{
    Cancel, Cancelled, Counts, Delete, Deleted, Enqueued, Known, List, Page, Prune, Pruned, QueueStats, Redrive,
    Redriven, Stats,
};
pub use jobs::JobStore;
pub use lease_requests::{Beat, Claim, Claimed, Extend, Extended, Reap, Reaped, Settle, Settled, WorkerFate};
pub(crate) use metrics::StoreMetrics;
pub use token::{LastAdmin, NoSuchScope, Scope, TokenDeleted, TokenRecord};
pub use wake::{Wake, WakeListener};
#[cfg(feature = "api")]
pub(crate) use wrapped::VERBS;
pub use wrapped::{Around, Call, CallDone, Wrapped};

/// What enqueue did: all of the call, or nothing because keys are taken.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
type EnqueueAnswer = Result<Vec<Enqueued>, Vec<KeyTaken>>;

/// One answer per item: an item that fails does so alone.
pub type PerItem<T> = Result<Vec<Result<T, StoreError>>, StoreError>;

/// A store: jobs and catalog in one database.
#[async_trait]
pub trait Store: JobStore + CatalogStore {
    /// One round trip, to see that the store answers and takes writes. A full disk is no failure: there is room again
    /// once jobs are removed, which takes a server that is ready.
    async fn ping(&self) -> Result<(), StoreError>;
}

mod sealed {
    /// Only this crate's stores, and what is wrapped around them.
    pub trait Sealed: std::fmt::Debug + Send + Sync + 'static {}
}
