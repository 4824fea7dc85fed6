//! SQLite's errors in the store's words.

use rusqlite::config::DbConfig;
use rusqlite::{Connection, Error, ErrorCode, ffi};

use crate::planted::{Bug, planted};
use crate::store::{StoreError, StoreErrorKind};

pub(super) fn store_error(doing: &'static str, error: Error) -> StoreError {
    StoreError::new(kind(&error), doing).caused_by(Cause::from(&error))
}

/// What is kept of an error: neither the words of a trigger, which may quote the row it saw, nor those of a value that
/// could not be read. Errors end up in logs.
#[derive(Debug)]
pub(super) struct Cause {
    code: Option<ErrorCode>,
    text: String,
}

impl From<&Error> for Cause {
    fn from(error: &Error) -> Self {
        let text = match error {
            Error::SqliteFailure(failure, _) if failure.extended_code == ffi::SQLITE_CONSTRAINT_TRIGGER => {
                String::from("a trigger has refused it")
            }
            Error::FromSqlConversionFailure(column, kind, _) => {
                format!("column {column}, of type {kind}, cannot be read")
            }
            other => other.to_string(),
        };
        Self { code: error.sqlite_error_code(), text }
    }
}

impl std::fmt::Display for Cause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Cause {}

fn kind(error: &Error) -> StoreErrorKind {
    if is_sync_failure(error) {
        return StoreErrorKind::Damaged;
    }
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) if !planted(Bug::FullIsInternal) => StoreErrorKind::Full,
        Some(ErrorCode::ConstraintViolation | ErrorCode::TooBig | ErrorCode::TypeMismatch) => StoreErrorKind::Rejected,
        Some(ErrorCode::ReadOnly) => StoreErrorKind::ReadOnly,
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => StoreErrorKind::Damaged,
        Some(ErrorCode::OperationInterrupted) => StoreErrorKind::Timeout,
        Some(
            ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::SystemIoFailure | ErrorCode::CannotOpen,
        ) => StoreErrorKind::Unavailable,
        _ => StoreErrorKind::Internal,
    }
}

/// Another program held a lock for longer than we wait.
pub(super) fn is_lock(error: &StoreError) -> bool {
    let cause = std::error::Error::source(error).and_then(|cause| cause.downcast_ref::<Cause>());
    cause.and_then(|cause| cause.code) == Some(ErrorCode::DatabaseBusy)
}

/// Lets a connection close without what it would do last: copy the log into the file and sync, once more.
pub(super) fn skip_checkpoint_on_close(connection: &Connection) {
    if let Err(error) = connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true) {
        tracing::error!(%error, "closing the file will write to it");
    }
}

/// The disk refused to sync. What it holds is unknown from then on, and syncing again would only hide that.
pub(super) fn is_sync_failure(error: &Error) -> bool {
    let code = error.sqlite_error().map(|error| error.extended_code);
    matches!(code, Some(ffi::SQLITE_IOERR_FSYNC | ffi::SQLITE_IOERR_DIR_FSYNC)) && !planted(Bug::SyncErrorIgnored)
}
