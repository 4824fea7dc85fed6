//! Brings a file to the schema this program knows: numbered steps, forward only, each in one transaction with its number.

use std::path::Path;

use rusqlite::{Connection, TransactionBehavior};

use super::open::cannot_open;
use crate::store::OpenError;

/// Marks the file as ours ("SFst"), so that somebody else's database is not migrated by mistake.
pub(super) const APPLICATION_ID: i32 = 0x5346_7374;

/// In order; the number of a step is its place, counted from 1. Never edit one that was released.
const MIGRATIONS: &[&str] = &[include_str!("migrations/0001_jobs.sql"), include_str!("migrations/0002_tokens.sql")];

/// Refuses a file that is another program's or a later version's. Only reads.
pub(super) fn check_identity(connection: &Connection, path: &Path) -> Result<(), OpenError> {
    let failed = |error: rusqlite::Error| cannot_open(path, error);
    let application_id: i32 = pragma(connection, "application_id").map_err(failed)?;
    let tables: i64 =
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).map_err(failed)?;
    if application_id != APPLICATION_ID && tables > 0 {
        return Err(OpenError::new(
            path.display(),
            "it is a database of another program",
            "give the path of a new file, or of one that Steadfast made",
        ));
    }
    let (version, known): (i32, usize) = (pragma(connection, "user_version").map_err(failed)?, MIGRATIONS.len());
    if usize::try_from(version).map_or(true, |version| version > known) {
        return Err(OpenError::new(
            path.display(),
            format!("its schema is version {version} and this program knows versions up to {known}"),
            "run the newer program that wrote it",
        ));
    }
    Ok(())
}

/// For a file that passed [`check_identity`]. How many steps it took.
pub(super) fn migrate(connection: &mut Connection, path: &Path) -> Result<usize, OpenError> {
    let failed = |error: rusqlite::Error| {
        OpenError::new(path.display(), "its schema cannot be brought up to date", "see the cause, then start again")
            .caused_by(error)
    };
    let mut applied = 0;
    for (number, step) in (1..).zip(MIGRATIONS) {
        // Looked up again inside each transaction: another process may have been faster.
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
        let version: usize = pragma(&transaction, "user_version").map_err(failed)?;
        if version < number {
            transaction.execute_batch(step).map_err(failed)?;
            transaction.pragma_update(None, "application_id", APPLICATION_ID).map_err(failed)?;
            transaction.pragma_update(None, "user_version", number).map_err(failed)?;
            applied += 1;
        }
        transaction.commit().map_err(failed)?;
    }
    Ok(applied)
}

fn pragma<T: rusqlite::types::FromSql>(connection: &Connection, name: &str) -> rusqlite::Result<T> {
    connection.pragma_query_value(None, name, |row| row.get(0))
}

/// Whether every step has been taken. What cannot be read is for [`migrate`] to report.
pub(super) fn is_up_to_date(connection: &Connection) -> bool {
    pragma::<usize>(connection, "user_version").is_ok_and(|version| version >= MIGRATIONS.len())
}
