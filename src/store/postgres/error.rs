//! Errors of the database: what is kept of one, what it means to a caller, and whether to try again right here. Callers of
//! the store see [`StoreError`].
//!
//! Kept is enough to find the cause, and nothing of what people have stored. The server quotes rows in its DETAIL
//! ("Failing row contains (…)"), and values in the messages of some errors ("invalid input syntax for type integer: …").
//! Errors end up in logs, by `Debug`, by `Display`, or as the source of another, so neither is kept in the first place.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use deadpool_postgres::PoolError;
use tokio_postgres::error::SqlState;

use crate::planted::{Bug, planted};
use crate::store::{StoreError, StoreErrorKind};

/// One failed try.
#[derive(Debug)]
pub(super) struct DbError {
    kind: StoreErrorKind,
    /// Another transaction was in the way; the same again may well succeed.
    conflict: bool,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl DbError {
    /// The client's own timeout ended: nobody knows what the server did.
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

    /// The server took the statement for wrong, or for too much. Nothing of it is stored.
    pub(super) fn is_rejected(&self) -> bool {
        self.kind == StoreErrorKind::Rejected
    }

    /// Another transaction held a row locked for too long.
    pub(super) fn is_lock_timeout(&self) -> bool {
        let source = self.source.as_ref().and_then(|source| source.downcast_ref::<Cause>());
        source.and_then(Cause::state) == Some(&SqlState::LOCK_NOT_AVAILABLE)
    }

    /// Something changed in between; look again.
    pub(super) fn moved(what: &'static str) -> Self {
        Self { kind: StoreErrorKind::Internal, conflict: true, source: Some(what.into()) }
    }

    /// The same behind a statement that is committed: whatever the server says of this one, that one stands.
    pub(super) fn after_a_commit(self) -> Self {
        Self { kind: StoreErrorKind::OutcomeUnknown, ..self }
    }

    /// The connection went away with the answer.
    pub(super) fn is_unknown(&self) -> bool {
        self.kind == StoreErrorKind::OutcomeUnknown
    }

    pub(super) fn during(self, verb: &'static str) -> StoreError {
        let error = StoreError::new(self.kind, verb);
        match self.source {
            Some(source) => error.caused_by(source),
            None => error,
        }
    }
}

impl From<tokio_postgres::Error> for DbError {
    fn from(error: tokio_postgres::Error) -> Self {
        let state = error.code().map(SqlState::code);
        let kind = match state {
            // The connection is gone. Whether the statement had been committed by then cannot be told.
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

/// Whether another transaction held a row lock for longer than the lock timeout.
pub(super) fn is_lock_timeout(error: &StoreError) -> bool {
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref::<Cause>());
    source.and_then(Cause::state) == Some(&SqlState::LOCK_NOT_AVAILABLE)
}

fn is_io(error: &tokio_postgres::Error) -> bool {
    std::error::Error::source(error).is_some_and(|source| source.is::<std::io::Error>())
}

impl From<PoolError> for DbError {
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
pub(super) struct Retries {
    verb: &'static str,
    effect: Effect,
    left: u32,
    /// The answer to an earlier try was lost: it may have been done, whatever the later ones run into.
    may_be_done: bool,
}

impl Retries {
    pub(super) fn new(verb: &'static str, effect: Effect) -> Self {
        // 4: two processes in each other's way sort themselves out in one or two.
        Self { verb, effect, left: 4, may_be_done: false }
    }

    /// Returns after a short wait if another try is due; the error otherwise.
    pub(super) async fn again(&mut self, error: DbError) -> Result<(), StoreError> {
        let worth_it = (error.conflict && !planted(Bug::ConflictsNotRetried))
            || (error.is_unknown() && self.effect == Effect::Repeatable);
        self.may_be_done |= error.is_unknown() && !planted(Bug::OutcomeForgotten);
        if !worth_it || self.left == 0 {
            let says_nothing_was_stored = matches!(
                error.kind,
                StoreErrorKind::Unavailable | StoreErrorKind::Timeout | StoreErrorKind::Full | StoreErrorKind::ReadOnly
            );
            let kind = match self.may_be_done && says_nothing_was_stored {
                true => StoreErrorKind::OutcomeUnknown,
                false => error.kind,
            };
            return Err(DbError { kind, ..error }.during(self.verb));
        }
        self.left -= 1;
        tracing::debug!(verb = self.verb, ?error, "trying again");
        tokio::time::sleep(Duration::from_millis(fastrand::u64(2..20 << (4 - self.left).min(3)))).await;
        Ok(())
    }
}

/// The classes of errors whose messages name tables, settings and states, never values. What a trigger says (P0), what is
/// wrong with a value (22) or a row (23), and every class that is not known stay out.
const CLASSES_WITHOUT_VALUES: [&str; 15] =
    ["08", "0A", "25", "26", "28", "3D", "3F", "40", "42", "53", "54", "55", "57", "58", "XX"];

/// A database error without the data.
#[derive(Debug)]
pub(super) struct Cause {
    state: Option<SqlState>,
    text: String,
}

impl Cause {
    /// The server's code for it, if it was the server's.
    pub(super) fn state(&self) -> Option<&SqlState> {
        self.state.as_ref()
    }
}

impl From<&tokio_postgres::Error> for Cause {
    fn from(error: &tokio_postgres::Error) -> Self {
        match error.as_db_error() {
            Some(said) => {
                let names = [("table", said.table()), ("column", said.column()), ("constraint", said.constraint())];
                let text = without_values(said.code().code(), said.message(), &names);
                Self { state: Some(said.code().clone()), text }
            }
            None => {
                // The driver's own words: about the connection, or about the type of a column.
                let cause = error.source().map(|cause| format!(": {cause}")).unwrap_or_default();
                let text = error.to_string();
                Self { state: None, text: if text.ends_with(&cause) { text } else { text + &cause } }
            }
        }
    }
}

impl From<&PoolError> for Cause {
    fn from(error: &PoolError) -> Self {
        match error {
            PoolError::Backend(error) => Self::from(error),
            other => Self { state: None, text: other.to_string() },
        }
    }
}

#[cfg(feature = "sqlx")]
impl From<&sqlx::Error> for Cause {
    fn from(error: &sqlx::Error) -> Self {
        let Some(said) = error.as_database_error() else {
            return Self { state: None, text: error.to_string() };
        };
        let code = said.code().unwrap_or_default();
        let names = [("table", said.table()), ("constraint", said.constraint())];
        let text = without_values(&code, said.message(), &names);
        Self { state: Some(SqlState::from_code(&code)), text }
    }
}

/// `names` are of what it happened to.
fn without_values(code: &str, message: &str, names: &[(&str, Option<&str>)]) -> String {
    let mut text = format!("SQLSTATE {code}");
    if code.get(..2).is_some_and(|class| CLASSES_WITHOUT_VALUES.contains(&class)) {
        text.push_str(": ");
        text.push_str(message);
    }
    for (what, name) in names.iter().filter_map(|(what, name)| Some((what, (*name)?))) {
        text.push_str(&format!(", {what} {name:?}"));
    }
    text
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Error for Cause {}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_fails_behind_a_commit_is_tried_again_and_never_said_to_have_stored_nothing() {
        let timed_out = || DbError { kind: StoreErrorKind::Timeout, conflict: false, source: None };
        let refused = Retries::new("enqueue", Effect::Repeatable).again(timed_out()).await.unwrap_err();
        assert_eq!(refused.kind(), StoreErrorKind::Timeout);
        let mut retries = Retries::new("enqueue", Effect::Repeatable);
        while retries.left > 0 {
            retries.again(timed_out().after_a_commit()).await.unwrap();
        }
        let given_up = retries.again(timed_out()).await.unwrap_err();
        assert_eq!(given_up.kind(), StoreErrorKind::OutcomeUnknown);
    }

    #[test]
    fn what_a_value_or_a_trigger_is_quoted_in_is_left_out_and_the_rest_is_kept() {
        let names = [("table", Some("jobs")), ("column", None), ("constraint", Some("jobs_x"))];
        let violated = without_values("23514", "new row for relation \"jobs\" is wrong: secret", &names);
        assert_eq!(violated, "SQLSTATE 23514, table \"jobs\", constraint \"jobs_x\"");
        for code in ["22P02", "22021", "P0001", "45000", "9", ""] {
            assert_eq!(without_values(code, "secret", &[]), format!("SQLSTATE {code}"));
        }
        assert_eq!(without_values("57P01", "terminating connection", &[]), "SQLSTATE 57P01: terminating connection");
    }
}
