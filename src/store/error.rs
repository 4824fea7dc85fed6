//! Errors of stores, and whether a retry can help.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use crate::job::JobId;

/// An error of a store. Cheap to clone: one failed commit is the answer to many callers.
#[derive(Clone)]
pub struct StoreError {
    kind: StoreErrorKind,
    doing: &'static str,
    source: Option<Arc<dyn Error + Send + Sync>>,
}

/// The kind of a [`StoreError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// The store cannot be reached, or is shutting down. Nothing was stored.
    Unavailable,
    /// The store did not answer in time. Nothing was stored.
    Timeout,
    /// The connection was lost while committing: it may or may not be stored. Retry with the same idempotency key.
    OutcomeUnknown,
    /// The disk is full. Nothing was stored.
    Full,
    /// The database is read-only: a standby, or set so by an administrator. Nothing was stored.
    ReadOnly,
    /// The database refused this item; others can be stored.
    Rejected,
    /// The database is corrupt, or was replaced or changed by another program. Nothing more is written.
    Damaged,
    /// The store's writer thread has died. Nothing more is written until the process is restarted.
    Stopped,
    /// Anything else: a bug or an unexpected answer.
    Internal,
}

impl StoreError {
    /// An error while `doing` something, named in a word or two.
    pub fn new(kind: StoreErrorKind, doing: &'static str) -> Self {
        Self { kind, doing, source: None }
    }

    /// Adds the error that caused it.
    pub fn caused_by(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.source = Some(Arc::from(source.into()));
        self
    }

    /// What kind of error it is.
    pub fn kind(&self) -> StoreErrorKind {
        self.kind
    }

    /// Whether the same call may succeed later.
    pub fn is_retryable(&self) -> bool {
        match self.kind {
            StoreErrorKind::Unavailable
            | StoreErrorKind::Timeout
            | StoreErrorKind::OutcomeUnknown
            | StoreErrorKind::Full
            | StoreErrorKind::ReadOnly => true,
            StoreErrorKind::Rejected | StoreErrorKind::Damaged | StoreErrorKind::Stopped | StoreErrorKind::Internal => {
                false
            }
        }
    }

    /// Whether this process can never write again and should exit.
    pub fn is_final(&self) -> bool {
        matches!(self.kind, StoreErrorKind::Damaged | StoreErrorKind::Stopped)
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.kind {
            StoreErrorKind::Unavailable => "the store is not available",
            StoreErrorKind::Timeout => "the store did not answer in time",
            StoreErrorKind::OutcomeUnknown => {
                "the connection was lost while committing, so it may or may not be stored; \
                 try again with the same idempotency key"
            }
            StoreErrorKind::Full => "the disk is full; free some space, then try again",
            StoreErrorKind::ReadOnly => "the database is read-only; nothing was changed",
            StoreErrorKind::Rejected => "the database refused this item",
            StoreErrorKind::Damaged => "the database is damaged; stop writing and restore a backup",
            StoreErrorKind::Stopped => "the store has stopped; start the process again",
            StoreErrorKind::Internal => "the store failed unexpectedly",
        };
        write!(f, "{}: {what}", self.doing)
    }
}

impl fmt::Debug for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")?;
        let mut source = self.source();
        while let Some(error) = source {
            write!(f, ": {error}")?;
            source = error.source();
        }
        Ok(())
    }
}

impl Error for StoreError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_ref().map(|source| &**source as &(dyn Error + 'static))
    }
}

/// Why an enqueue failed. Nothing of the call was stored, unless the kind is [`StoreErrorKind::OutcomeUnknown`].
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum NotStored {
    /// These items have idempotency keys of other jobs, with another kind or payload.
    #[error("{} idempotency keys of the call belong to other jobs", .0.len())]
    KeysTaken(Vec<KeyTaken>),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl NotStored {
    /// The kind of error; a key that is taken counts as [`StoreErrorKind::Rejected`].
    pub fn kind(&self) -> StoreErrorKind {
        match self {
            Self::KeysTaken(_) => StoreErrorKind::Rejected,
            Self::Store(error) => error.kind(),
        }
    }

    /// Whether the same call may succeed later.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Store(error) if error.is_retryable())
    }
}

/// An item whose idempotency key belongs to another job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeyTaken {
    /// The index of the item in the call.
    pub index: usize,
    /// The job that has the key.
    pub by: JobId,
}

/// A store could not be opened. The message says what was opened, what is wrong, and how to fix it.
#[derive(Debug, thiserror::Error)]
#[error("cannot open {target}: {problem}; {way_out}")]
pub struct OpenError {
    target: String,
    problem: String,
    way_out: String,
    #[source]
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl OpenError {
    /// An error at opening `target`, which must not contain a password.
    pub fn new(target: impl fmt::Display, problem: impl fmt::Display, way_out: impl fmt::Display) -> Self {
        Self { target: target.to_string(), problem: problem.to_string(), way_out: way_out.to_string(), source: None }
    }

    /// Adds the error that caused it.
    pub fn caused_by(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }
}
