//! What can go wrong in a store, and whether trying again can help.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use crate::job::JobId;

/// A store could not do what it was asked. Cheap to clone: one failed commit answers many callers.
#[derive(Clone)]
pub struct StoreError {
    kind: StoreErrorKind,
    doing: &'static str,
    source: Option<Arc<dyn Error + Send + Sync>>,
}

/// What went wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// The store cannot be reached, or is shutting down. Nothing was stored.
    Unavailable,
    /// It did not answer in time. Nothing was stored.
    Timeout,
    /// The connection was lost while committing: it may or may not be stored. Try again with the same idempotency key.
    OutcomeUnknown,
    /// The disk is full. Nothing was stored.
    Full,
    /// The database takes no writes: a standby, or somebody has set it so. Nothing was stored.
    ReadOnly,
    /// This item cannot be stored; others can.
    Rejected,
    /// The database is damaged, or no longer what this program made. Nothing more is written.
    Damaged,
    /// The store's own thread has died. Nothing more is written until the process is started again.
    Stopped,
    /// Anything else: a bug or an unexpected answer.
    Internal,
}

impl StoreError {
    /// `doing` says at what, in a word or two.
    pub fn new(kind: StoreErrorKind, doing: &'static str) -> Self {
        Self { kind, doing, source: None }
    }

    /// Keeps the error that caused it.
    pub fn caused_by(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.source = Some(Arc::from(source.into()));
        self
    }

    /// What went wrong.
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

    /// Whether nothing can be written any more for as long as this process lives: it should end.
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

/// An enqueue was not done. Nothing of the call was stored, except where the store says that it does not know.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum NotStored {
    /// Idempotency keys of these items belong to other jobs, of another kind or with another payload.
    #[error("{} idempotency keys of the call belong to other jobs", .0.len())]
    KeysTaken(Vec<KeyTaken>),
    /// The store could not do it.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl NotStored {
    /// What went wrong, as a kind of store error: a key that is taken is an item that cannot be stored.
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
    /// Which item of the call.
    pub index: usize,
    /// The job that has the key.
    pub by: JobId,
}

/// A store could not be opened. The message names what was opened, what is wrong with it and the way out.
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
    /// `target` must not contain a password.
    pub fn new(target: impl fmt::Display, problem: impl fmt::Display, way_out: impl fmt::Display) -> Self {
        Self { target: target.to_string(), problem: problem.to_string(), way_out: way_out.to_string(), source: None }
    }

    /// Keeps the error that caused it.
    pub fn caused_by(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }
}
