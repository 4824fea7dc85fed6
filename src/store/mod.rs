//! Where jobs are stored: the [`Store`] traits, their requests and answers, and the stores `sqlite` and `postgres`.
//!
//! Programs that embed a queue use [`Queue`](crate::Queue) instead; they meet the requests and answers of this module there.
//!
//! Every verb is one atomic step that states what it expects to find; finding something else is an answer (`Lost`,
//! `NotFound`), not an error. Times are those of the store's clock: callers pass durations. A store never decides which
//! status an outcome leads to (that is [`decide`](crate::job::decide())) and never waits for work. The two stores behave the
//! same: `tests/conformance` runs on both.
//!
//! **Wrap, don't write.** The traits are sealed: a store must keep promises that no type can state (fencing, order, what is
//! on disk before it answers), and it gains verbs with every version. To measure, refuse, delay or record calls, put an
//! [`Around`] around a store with [`Wrapped`].

mod actor;
mod audit;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod audit_entry;
mod catalog;
mod clock;
mod error;
mod errors;
#[cfg(any(feature = "postgres", feature = "sqlite", feature = "worker"))]
mod failures;
mod hooks;
mod job_filter;
mod job_requests;
mod jobs;
mod lease_requests;
mod limits;
mod list;
mod log_throttle;
mod metrics;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod operation_steps;
mod operations;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod outbox;
#[cfg(feature = "postgres")]
pub mod postgres;
mod pulse;
#[cfg(all(feature = "postgres", feature = "sqlite", feature = "server"))]
pub(crate) mod promotion;
mod retry_policies;
mod schedules;
mod series;
mod sessions;
#[cfg(feature = "sqlite")]
pub mod sqlite;
mod stats;
mod token;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod turns;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod waiting;
mod waiting_place;
mod wake;
mod workers;
mod wrapped;

use async_trait::async_trait;

pub use actor::Actor;
pub use audit::{AuditCursor, AuditPage, AuditRecord, AuditStore, ListAudit, NotAnAuditCursor, PruneAudit};
pub use catalog::{CatalogStore, DeleteKind, DeleteToken, KindPut, Pause, PutKind, PutToken, Resume};
pub use clock::{Clock, ManualClock, SystemClock};
pub use error::{KeyTaken, NotStored, OpenError, StoreError, StoreErrorKind};
pub use errors::{
    ErrorCursor, ErrorPage, ErrorQueue, ErrorRecord, ErrorStore, ListErrors, SnoozeEnd, SnoozeErrors, Snoozed,
    UnsnoozeErrors,
};
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) use errors::{ErrorPart, ErrorSeen, added_up, error_page};
#[cfg(any(feature = "postgres", feature = "sqlite", feature = "worker"))]
pub(crate) use failures::FailedAttempt;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) use failures::UnrunnableJob;
pub use hooks::{DeleteHook, HookPut, HookStore, PutHook, ResolveOutbox, Resolved, SwitchHook};
pub use job_filter::JobFilter;
pub use job_requests::{Cancel, Cancelled, Delete, Deleted, Enqueued, Known, Prune, Pruned, Redrive, Redriven};
pub use jobs::JobStore;
pub use lease_requests::{Beat, Claim, Claimed, Extend, Extended, Reap, Reaped, Settle, Settled, WorkerFate};
pub use limits::{
    DeleteGroup, LimitItem, LimitStore, LimitsPage, LimitsRequest, PutGroup, PutQueue, QueueLimits, SettingsPut,
};
pub use list::{Cursor, List, NotACursor, Order, Page};
pub(crate) use log_throttle::warn_throttled;
pub(crate) use metrics::StoreMetrics;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) use operation_steps::{LookBudget, Matches, NextStep, StepDone};
pub(crate) use operations::StoredSelection;
pub use operations::{
    BeginOperation, ChangeOperation, ListOperations, OperationBegun, OperationChange, OperationChanged, OperationPage,
    OperationPreview, OperationRecord, OperationStep, OperationStore, OperationTally, PreviewOperation, Selection,
};
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) use pulse::{DUE_LANES_MAX, DUE_MAX, DUE_OF_LANE_MAX, KIND_COUNTS_MAX, PAUSED_MAX, due_by_kind};
pub use pulse::{DueJobs, PausedQueue, PulseFacts, PulseStore};
pub use retry_policies::RetryPolicies;
pub use schedules::{
    DeleteSchedule, DueSchedules, ListSchedules, ListTicks, PauseSchedule, PutSchedule, ResumeSchedule, RunSchedule,
    ScheduleDeleted, SchedulePage, SchedulePut, ScheduleRan, ScheduleStore, ScheduleTicked, SchedulesDue,
    SchedulesSynced, SyncSchedules, TickSchedule,
};
pub use series::{PruneSeries, ReadSeries, SeriesOf, SeriesRead, SeriesRow, SeriesStore};
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) use series::{SERIES_ROWS_MAX, added_up_to_hour, next_hour};
pub use sessions::{DeleteSession, PruneTokens, PutSession, SessionParent, SessionRecord, SessionStore, TouchTokens};
pub use stats::{Counts, QueueStats, Stats, StatsRequest};
pub use token::{LastAdmin, NoSuchScope, Scope, TokenDeleted, TokenList, TokenPut, TokenRecord};
pub use wake::{Wake, WakeListener};
pub use workers::{ListWorkers, PruneWorkers, TellWorker, WorkerDetail, WorkerPage, WorkerReport, WorkerStore};
#[cfg(feature = "api")]
pub(crate) use wrapped::VERBS;
pub use wrapped::{Around, Call, CallDone, Wrapped};

/// The answer to an enqueue: all jobs of the call, or the keys because of which nothing was stored.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
type EnqueueAnswer = Result<Vec<Enqueued>, Vec<KeyTaken>>;

/// One result per item: an item that fails does not fail the others. The outer error is of the whole call.
pub type PerItem<T> = Result<Vec<Result<T, StoreError>>, StoreError>;

/// A store: jobs, catalog, schedules, limits, audit, sessions, groups of errors, workers, operations, series and hooks in one database. Implemented by `SqliteStore`, `PostgresStore` and [`Wrapped`].
#[async_trait]
pub trait Store:
    JobStore
    + CatalogStore
    + ScheduleStore
    + LimitStore
    + AuditStore
    + SessionStore
    + ErrorStore
    + WorkerStore
    + OperationStore
    + SeriesStore
    + PulseStore
    + HookStore
{
    /// Checks in one round trip that the store answers and takes writes. A full disk is not an error here: to free space,
    /// finished jobs must be removed, which takes a server that is ready.
    async fn ping(&self) -> Result<(), StoreError>;
}

mod sealed {
    /// Implemented by this crate's stores and their wrapper only.
    pub trait Sealed: std::fmt::Debug + Send + Sync + 'static {}
}
