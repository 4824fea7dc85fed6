//! What is kept of a database error: enough to find the cause, nothing of what people have stored.
//!
//! The server quotes rows in its DETAIL ("Failing row contains (…)"), and values in the messages of some errors ("invalid
//! input syntax for type integer: …"). Errors end up in logs, by `Debug`, by `Display`, or as the source of another, so
//! neither is kept in the first place.

use std::error::Error;
use std::fmt;

use deadpool_postgres::PoolError;
use tokio_postgres::error::SqlState;

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
