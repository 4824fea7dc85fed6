//! Why a job or a kind was not accepted.

use super::admission::LimitReached;
use crate::job::limits::{KINDS_MAX, SETTINGS_MAX, TOKENS_MAX};
use crate::job::{HookName, JobId, Kind, NotAName, NotJson, Refusal};
use crate::store::{StoreError, StoreErrorKind};

/// Why a job was not accepted. Nothing was stored, unless it is a [`StoreErrorKind::OutcomeUnknown`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EnqueueError {
    /// A name or a value is not valid.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The kind is not declared.
    #[error(
        "kind {kind:?} is not declared{}; declare it with PUT /kinds/{kind} or by registering its handler",
        did_you_mean(close)
    )]
    #[non_exhaustive]
    UnknownKind {
        /// The kind of the request.
        kind: Kind,
        /// Declared kinds with a similar name.
        close: Vec<Kind>,
    },
    /// The kind is built in, and this process is not set up for it.
    #[error("kind {kind:?} is not configured: {way_out}")]
    #[non_exhaustive]
    NotConfigured {
        /// The kind.
        kind: Kind,
        /// How to configure it.
        way_out: String,
    },
    /// The hook that the request names does not exist.
    #[error("there is no hook {hook:?} to notify: put it first (PUT /hooks/{hook}), or leave notify out")]
    #[non_exhaustive]
    UnknownHook {
        /// The hook of the request.
        hook: HookName,
    },
    /// The payload does not match the kind's schema, or breaks another rule of a built-in kind.
    #[error("payload does not fit kind {kind:?}: {}", errors.join("; "))]
    #[non_exhaustive]
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
    #[non_exhaustive]
    KeyTaken {
        /// The key.
        key: String,
        /// The job that has it.
        by: JobId,
    },
    /// An item of the same batch has the same idempotency key, and another kind or payload.
    #[error("idempotency key {key:?} is used by item {first} of this batch, with another kind or payload")]
    #[non_exhaustive]
    KeyUsedTwice {
        /// The key.
        key: String,
        /// The first item with it.
        first: usize,
    },
    /// There are as many queues or waiting jobs as there may be.
    #[error(transparent)]
    OverLimit(LimitReached),
    /// The transaction is not of this queue's store.
    #[error("the job cannot be part of this transaction: {reason}")]
    #[non_exhaustive]
    Transaction {
        /// What to use instead.
        reason: &'static str,
    },
    /// Validating the payload against the kind's schema takes longer than its size allows.
    #[error(
        "payload takes too long to check against the schema of kind {kind:?}; send a smaller or less nested one, or \
         declare the kind with fewer alternatives (oneOf, anyOf) and simpler patterns"
    )]
    #[non_exhaustive]
    PayloadTooExpensive {
        /// The kind.
        kind: Kind,
    },
    /// Too many payloads are being validated. Retry shortly.
    #[error("too many payloads are being checked; try again shortly")]
    Busy,
    /// The typed job cannot be serialized.
    #[error(transparent)]
    Encode(#[from] NotJson),
    /// The kind of the typed job could not be declared.
    #[error(transparent)]
    Kind(Box<KindError>),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<BatchError> for EnqueueError {
    /// The error of a batch of one.
    fn from(error: BatchError) -> Self {
        match error {
            BatchError::Store(error) => Self::Store(error),
            BatchError::OverLimit(limit) => Self::OverLimit(limit),
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

/// Why a batch was not accepted. Nothing of it was stored, unless it is a [`StoreErrorKind::OutcomeUnknown`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BatchError {
    /// The batch is empty or too large.
    #[error("a batch has 1 to 1000 jobs, this one has {given}")]
    #[non_exhaustive]
    Size {
        /// How many jobs it has.
        given: usize,
    },
    /// There are as many queues or waiting jobs as there may be.
    #[error(transparent)]
    OverLimit(LimitReached),
    /// A typed job cannot be serialized.
    #[error(transparent)]
    Encode(#[from] NotJson),
    /// The kind of the typed jobs could not be declared.
    #[error(transparent)]
    Kind(Box<KindError>),
    /// These items were refused, by index.
    #[error("{} of the jobs were refused, the first at index {}: {}", .0.len(), .0[0].0, .0[0].1)]
    Refused(Vec<(usize, EnqueueError)>),
    /// Too many payloads are being validated. Retry shortly.
    #[error("too many payloads are being checked; try again shortly")]
    Busy,
    /// The store failed.
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

/// Why a kind was not declared.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KindError {
    /// The name is not valid.
    #[error(transparent)]
    Name(#[from] NotAName),
    /// The schema is not a JSON Schema.
    #[error("schema of kind {kind:?} is not a valid JSON Schema: {reason}")]
    #[non_exhaustive]
    Schema {
        /// The kind.
        kind: Kind,
        /// What is wrong with it.
        reason: String,
    },
    /// The schema is valid, but validating payloads against it could take too long.
    #[error("schema of kind {kind:?} is too expensive to check: {reason}")]
    #[non_exhaustive]
    SchemaTooExpensive {
        /// The kind.
        kind: Kind,
        /// What is too much, and what to change.
        reason: String,
    },
    /// One of the defaults is out of range.
    #[error("default {reason}")]
    #[non_exhaustive]
    Default {
        /// What is wrong with it.
        reason: String,
    },
    /// A limit or a hidden part is out of range.
    #[error(transparent)]
    Limit(#[from] Refusal),
    /// The kind is built in and cannot be changed.
    #[error("kind {kind:?} is built in and cannot be changed; choose another name")]
    #[non_exhaustive]
    BuiltIn {
        /// The kind.
        kind: Kind,
    },
    /// There are as many kinds as may be declared, and this one is not.
    #[error(
        "kind {kind:?} is new and {KINDS_MAX} kinds are declared, the most there may be; delete one that is no longer needed"
    )]
    #[non_exhaustive]
    TooMany {
        /// The kind.
        kind: Kind,
    },
    /// Too many schemas and payloads are being checked. Retry shortly.
    #[error("too many schemas and payloads are being checked; try again shortly")]
    Busy,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why a queue was not paused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PauseError {
    /// There are as many queues as there may be, and this one would be new.
    #[error(transparent)]
    OverLimit(LimitReached),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why limits were not set.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LimitError {
    /// A value is out of range.
    #[error(transparent)]
    Value(#[from] Refusal),
    /// There are as many queues as there may be, and this one would be new.
    #[error(transparent)]
    OverLimit(LimitReached),
    /// As many queues, or groups, have settings as may.
    #[error("{SETTINGS_MAX} have settings of their own, the most there may be; remove some that are no longer needed")]
    TooMany,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why an API token was not stored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// There are as many tokens as there may be.
    #[error("there are {TOKENS_MAX} tokens, the most there may be; revoke one that is no longer needed")]
    TooMany,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}
