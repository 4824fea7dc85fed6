//! What a database call ran into, and whether to try it again right here. Callers of the store see [`StoreError`].

use std::time::Duration;

use deadpool_postgres::PoolError;
use tokio_postgres::error::SqlState;

use super::cause::Cause;
use crate::planted::{Bug, planted};
use crate::store::{StoreError, StoreErrorKind};

/// One failed try.
#[derive(Debug)]
pub(super) struct Trouble {
    kind: StoreErrorKind,
    /// Another transaction was in the way; the same again may well succeed.
    conflict: bool,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Trouble {
    /// The client's own patience ended: nobody knows what the server did.
    pub(super) fn overdue() -> Self {
        Self { kind: StoreErrorKind::OutcomeUnknown, conflict: false, source: Some("no answer in time".into()) }
    }

    /// Waited too long for its turn; nothing was sent.
    pub(super) fn no_turn() -> Self {
        Self { kind: StoreErrorKind::Timeout, conflict: false, source: None }
    }

    /// The session takes no writes.
    pub(super) fn read_only() -> Self {
        Self { kind: StoreErrorKind::ReadOnly, conflict: false, source: None }
    }

    /// Whether the session takes no writes. Another may, by now: what a database or user is set to counts from the next
    /// connection on.
    pub(super) fn is_read_only(&self) -> bool {
        self.kind == StoreErrorKind::ReadOnly
    }

    /// Something changed in between; look again.
    pub(super) fn moved(what: &'static str) -> Self {
        Self { kind: StoreErrorKind::Internal, conflict: true, source: Some(what.into()) }
    }

    /// The connection went away with the answer.
    pub(super) fn is_unknown(&self) -> bool {
        self.kind == StoreErrorKind::OutcomeUnknown
    }

    pub(super) fn doing(self, doing: &'static str) -> StoreError {
        let error = StoreError::new(self.kind, doing);
        match self.source {
            Some(source) => error.caused_by(source),
            None => error,
        }
    }
}

impl From<tokio_postgres::Error> for Trouble {
    fn from(error: tokio_postgres::Error) -> Self {
        let state = error.code().map(SqlState::code);
        let kind = match state {
            // The link is gone. Whether the statement had been committed by then cannot be told.
            None => match error.is_closed() || is_io(&error) {
                true => StoreErrorKind::OutcomeUnknown,
                false => StoreErrorKind::Internal,
            },
            // What the server says about a statement it broke off; nothing of it is stored.
            Some("57014" | "55P03" | "25P03") => StoreErrorKind::Timeout,
            Some("53100") => StoreErrorKind::Full,
            Some("25006") => StoreErrorKind::ReadOnly,
            Some("XX001" | "XX002" | "42P01" | "42703" | "3F000") => StoreErrorKind::Damaged,
            Some(state) => match &state[..2] {
                "08" | "53" | "57" | "25" | "58" => StoreErrorKind::Unavailable,
                "22" | "23" | "54" => StoreErrorKind::Rejected,
                "40" => StoreErrorKind::Unavailable,
                _ => StoreErrorKind::Internal,
            },
        };
        // 26000: behind a pooler another server process may not know the prepared statement.
        let conflict = matches!(state, Some("40001" | "40P01" | "26000"));
        Self { kind, conflict, source: Some(Box::new(Cause::from(&error))) }
    }
}

/// Whether somebody else held what was wanted, for longer than is waited.
pub(super) fn is_lock_timeout(error: &StoreError) -> bool {
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref::<Cause>());
    source.and_then(Cause::state) == Some(&SqlState::LOCK_NOT_AVAILABLE)
}

fn is_io(error: &tokio_postgres::Error) -> bool {
    std::error::Error::source(error).is_some_and(|source| source.is::<std::io::Error>())
}

impl From<PoolError> for Trouble {
    fn from(error: PoolError) -> Self {
        let kind = match &error {
            PoolError::Timeout(_) => StoreErrorKind::Timeout,
            _ => StoreErrorKind::Unavailable,
        };
        Self { kind, conflict: false, source: Some(Box::new(Cause::from(&error))) }
    }
}

/// What may be done over when the answer was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    /// Reads, and writes that a second time changes nothing.
    Repeatable,
    /// A second time would be another one.
    Once,
}

/// Counts the tries of one call.
pub(super) struct Tries {
    doing: &'static str,
    effect: Effect,
    left: u32,
    /// The answer to an earlier try was lost: it may have been done, whatever the later ones run into.
    may_be_done: bool,
}

impl Tries {
    pub(super) fn new(doing: &'static str, effect: Effect) -> Self {
        // 4: two processes in each other's way sort themselves out in one or two.
        Self { doing, effect, left: 4, may_be_done: false }
    }

    /// Returns after a short wait if another try is due; the error otherwise.
    pub(super) async fn again(&mut self, trouble: Trouble) -> Result<(), StoreError> {
        let worth_it = (trouble.conflict && !planted(Bug::ConflictsNotRetried))
            || (trouble.is_unknown() && self.effect == Effect::Repeatable);
        self.may_be_done |= trouble.is_unknown() && !planted(Bug::OutcomeForgotten);
        if !worth_it || self.left == 0 {
            let says_nothing_was_stored = matches!(
                trouble.kind,
                StoreErrorKind::Unavailable | StoreErrorKind::Timeout | StoreErrorKind::Full | StoreErrorKind::ReadOnly
            );
            let kind = match self.may_be_done && says_nothing_was_stored {
                true => StoreErrorKind::OutcomeUnknown,
                false => trouble.kind,
            };
            return Err(Trouble { kind, ..trouble }.doing(self.doing));
        }
        self.left -= 1;
        tracing::debug!(verb = self.doing, ?trouble, "trying again");
        tokio::time::sleep(Duration::from_millis(fastrand::u64(2..20 << (4 - self.left).min(3)))).await;
        Ok(())
    }
}
