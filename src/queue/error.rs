//! Why something was turned away at the door.

use super::depth::QueueFull;
use crate::job::{JobId, Kind, NotAName, NotJson, Refusal};
use crate::store::{StoreError, StoreErrorKind};

/// A job was not accepted. Nothing was stored, except where the store says that it does not know.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EnqueueError {
    /// A value is not acceptable.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// Nobody declared this kind.
    #[error(
        "kind {kind:?} is not declared{}; declare it with PUT /kinds/{kind} or by registering its handler",
        did_you_mean(close)
    )]
    UnknownKind {
        /// What was asked for.
        kind: Kind,
        /// Declared kinds with a similar name.
        close: Vec<Kind>,
    },
    /// The payload is not what the kind's schema wants.
    #[error("payload does not fit kind {kind:?}: {}", errors.join("; "))]
    Payload {
        /// The kind.
        kind: Kind,
        /// What is wrong, and where.
        errors: Vec<String>,
    },
    /// The idempotency key belongs to a job of another kind or with another payload.
    #[error(
        "idempotency key {key:?} belongs to job {by}, which has another kind or payload; use another key for another job"
    )]
    KeyTaken {
        /// The key.
        key: String,
        /// The job that has it.
        by: JobId,
    },
    /// An item of the same batch has the same idempotency key, and another kind or payload.
    #[error("idempotency key {key:?} is used by item {first} of this batch, with another kind or payload")]
    KeyUsedTwice {
        /// The key.
        key: String,
        /// The first item with it.
        first: usize,
    },
    /// The queue has as many waiting jobs as it may have.
    #[error(transparent)]
    Full(QueueFull),
    /// A transaction was given that this queue's store knows nothing of.
    #[error("the job cannot be part of this transaction: {reason}")]
    Transaction {
        /// What would be right.
        reason: &'static str,
    },
    /// Checking the payload against the kind's schema takes more than is allowed for its size.
    #[error(
        "payload takes too long to check against the schema of kind {kind:?}; send a smaller or less nested one, or \
         declare the kind with fewer alternatives (oneOf, anyOf) and simpler patterns"
    )]
    PayloadTooExpensive {
        /// The kind.
        kind: Kind,
    },
    /// Too many payloads are being checked. Nothing was stored; the same call may succeed a moment later.
    #[error("too many payloads are being checked; try again shortly")]
    Busy,
    /// The typed job cannot be written as JSON.
    #[error(transparent)]
    Encode(#[from] NotJson),
    /// The kind of the typed job could not be declared.
    #[error(transparent)]
    Kind(Box<KindError>),
    /// The store could not take it.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<BatchError> for EnqueueError {
    /// Of a batch of one.
    fn from(error: BatchError) -> Self {
        match error {
            BatchError::Store(error) => Self::Store(error),
            BatchError::Full(full) => Self::Full(full),
            BatchError::Busy => Self::Busy,
            BatchError::Kind(error) => Self::Kind(error),
            BatchError::Encode(error) => Self::Encode(error),
            BatchError::Refused(mut items) if !items.is_empty() => items.remove(0).1,
            BatchError::Refused(_) | BatchError::Size { .. } => {
                Self::Store(StoreError::new(StoreErrorKind::Internal, "enqueue"))
            }
        }
    }
}

impl From<NotAName> for EnqueueError {
    fn from(error: NotAName) -> Self {
        Self::Refused(error.into())
    }
}

impl From<KindError> for EnqueueError {
    fn from(error: KindError) -> Self {
        match error {
            KindError::Store(error) => Self::Store(error),
            KindError::Busy => Self::Busy,
            other => Self::Kind(Box::new(other)),
        }
    }
}

fn did_you_mean(close: &[Kind]) -> String {
    if close.is_empty() {
        return String::new();
    }
    let names: Vec<_> = close.iter().map(|kind| kind.as_str()).collect();
    format!(" (did you mean {}?)", names.join(" or "))
}

/// A batch was not accepted; nothing of it was stored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BatchError {
    /// Too few or too many.
    #[error("a batch has 1 to 1000 jobs, this one has {given}")]
    Size {
        /// How many there were.
        given: usize,
    },
    /// A queue has as many waiting jobs as it may have.
    #[error(transparent)]
    Full(QueueFull),
    /// A typed job cannot be written as JSON.
    #[error(transparent)]
    Encode(#[from] NotJson),
    /// The kind of the typed jobs could not be declared.
    #[error(transparent)]
    Kind(Box<KindError>),
    /// These items are at fault.
    #[error("{} of the jobs were refused, the first at index {}: {}", .0.len(), .0[0].0, .0[0].1)]
    Refused(Vec<(usize, EnqueueError)>),
    /// Too many payloads are being checked; the same call may succeed a moment later.
    #[error("too many payloads are being checked; try again shortly")]
    Busy,
    /// The store could not take it.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<KindError> for BatchError {
    fn from(error: KindError) -> Self {
        match error {
            KindError::Busy => Self::Busy,
            KindError::Store(error) => Self::Store(error),
            other => Self::Kind(Box::new(other)),
        }
    }
}

/// A kind cannot be declared like this.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KindError {
    /// The name is not a name.
    #[error(transparent)]
    Name(#[from] NotAName),
    /// The schema is not a JSON Schema.
    #[error("schema of kind {kind:?} is not a valid JSON Schema: {reason}")]
    Schema {
        /// The kind.
        kind: Kind,
        /// What is wrong with it.
        reason: String,
    },
    /// The schema is one, but checking payloads against it has no bound that is worth the name.
    #[error("schema of kind {kind:?} is too expensive to check: {reason}")]
    SchemaTooExpensive {
        /// The kind.
        kind: Kind,
        /// What is too much, and what to change.
        reason: String,
    },
    /// One of the defaults is not acceptable.
    #[error("default {reason}")]
    Default {
        /// What is wrong with it.
        reason: String,
    },
    /// Built-in kinds are what they are.
    #[error("kind {kind:?} is built in and cannot be changed; choose another name")]
    BuiltIn {
        /// The kind.
        kind: Kind,
    },
    /// Too many schemas and payloads are being checked; the same call may succeed a moment later.
    #[error("too many schemas and payloads are being checked; try again shortly")]
    Busy,
    /// The store could not take it.
    #[error(transparent)]
    Store(#[from] StoreError),
}
