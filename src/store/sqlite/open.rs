//! Opens the file: everything that can be wrong with it is found here, before the first job, and said clearly.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::build_flags::log_missing;
use super::migrate::{check_identity, is_up_to_date, migrate};
use super::owner::{NotOwner, OwnerLock, become_owner, beside, check_modes, find_or_make};
use super::promoted;
use crate::planted::{Bug, planted};
use crate::store::OpenError;

/// 3.51.3: the first without the WAL-reset bug that could damage a database.
const SQLITE_MIN_VERSION: i32 = 3_051_003;

/// 10 s: longer than a backup or a person at the `sqlite3` prompt holds a lock, shorter than a caller waits.
pub(super) const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// A file that is ours alone, migrated, with the settings our promises need.
pub(super) struct OpenedFile {
    /// The file, with links resolved.
    pub(super) path: PathBuf,
    pub(super) owner: OwnerLock,
    pub(super) connection: Connection,
}

pub(super) fn open(given: &Path) -> Result<OpenedFile, OpenError> {
    if rusqlite::version_number() < SQLITE_MIN_VERSION {
        let problem =
            format!("this program was built with SQLite {}, which can damage a database", rusqlite::version());
        return Err(OpenError::new(given.display(), problem, "build it with SQLite 3.51.3 or newer"));
    }
    let path = find_or_make(given)?;
    let owner = become_owner(&path)?;
    let mut connection = check_and_connect(&path, Promoted::Refused)?;
    migrate(&mut connection, &path)?;
    promoted::forget(&connection, &path)?;
    log_missing(&connection).map_err(|error| cannot_open(&path, error))?;
    Ok(OpenedFile { path, owner, connection })
}

/// Brings the schema up to date. Beside a server of this version there is nothing to do, and under a server of an older
/// one nothing may be changed.
pub(super) fn migrate_file(given: &Path) -> Result<usize, OpenError> {
    let path = find_or_make(given)?;
    match become_owner(&path) {
        Ok(owner) => {
            let mut connection = check_and_connect(&path, Promoted::Refused)?;
            let steps = migrate(&mut connection, &path);
            drop(connection);
            drop(owner);
            steps
        }
        Err(NotOwner::Taken(_)) if is_up_to_date(&connect_read_only(&path, Promoted::Refused)?) => Ok(0),
        Err(not_owner) => Err(not_owner.into()),
    }
}

/// What to make of a file that was promoted to PostgreSQL.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Promoted {
    Refused,
    /// For the promotion itself.
    Allowed,
}

pub(super) fn check_and_connect(path: &Path, promoted: Promoted) -> Result<Connection, OpenError> {
    // First of all: whatever SQLite makes beside the file gets its mode.
    check_modes(path)?;
    // Closed only after the other one is open: the last to close would copy the log into the file.
    let read_only = connect_read_only(path, promoted)?;
    check_last_page(&read_only, path)?;
    let flags = OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_READ_WRITE;
    connect(path, flags).map_err(|error| cannot_open(path, error))
}

/// Looks whose file it is before anything is set in it, over a connection that cannot write, not even on closing.
pub(super) fn connect_read_only(path: &Path, promoted: Promoted) -> Result<Connection, OpenError> {
    let failed = |error| cannot_open(path, error);
    let flags = OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_READ_ONLY;
    let read_only = Connection::open_with_flags(path, flags).map_err(failed)?;
    read_only.busy_timeout(BUSY_TIMEOUT).map_err(failed)?;
    check_identity(&read_only, path, promoted)?;
    Ok(read_only)
}

/// SQLite takes the missing end of the last page for zeros, and rows in it would be gone without a word. While there is a
/// log, it may be what completes the page.
fn check_last_page(connection: &Connection, path: &Path) -> Result<(), OpenError> {
    let failed = |error| cannot_open(path, error);
    let page_bytes: u64 = connection.pragma_query_value(None, "page_size", |row| row.get(0)).map_err(failed)?;
    let bytes = |path: &Path| std::fs::metadata(path).map_or(0, |metadata| metadata.len());
    if bytes(path) % page_bytes != 0 && bytes(&beside(path, "-wal")) == 0 {
        let problem = "it is damaged (its last page is cut off)";
        return Err(OpenError::new(path.display(), problem, DAMAGED_WAY_OUT));
    }
    Ok(())
}

/// A further connection that only reads.
pub(super) fn open_reader(path: &Path) -> rusqlite::Result<Connection> {
    let connection =
        Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.pragma_update(None, "query_only", true)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS_KEPT);
    keep_plans(&connection)?;
    Ok(connection)
}

/// A further connection for checkpoints.
pub(super) fn open_checkpointer(path: &Path) -> rusqlite::Result<Connection> {
    connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX)
}

/// 64: more than there are statements, so that none is compiled twice.
const STATEMENTS_KEPT: usize = 64;

/// Plans do not depend on the values of parameters. Otherwise SQLite compiles a statement that goes through a partial index
/// anew whenever one is bound, which took more than half of a claim from a hundred groups.
fn keep_plans(connection: &Connection) -> rusqlite::Result<()> {
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map(drop)
}

fn connect(path: &Path, flags: OpenFlags) -> rusqlite::Result<Connection> {
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(if planted(Bug::LocksNotWaitedFor) { Duration::ZERO } else { BUSY_TIMEOUT })?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS_KEPT);
    keep_plans(&connection)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    // Checkpoints are `checkpoint.rs`'s business; here they would stall a commit.
    connection.pragma_update(None, "wal_autocheckpoint", 0)?;
    // 16 MiB of page cache instead of 2: claims and settles find the pages of their lanes, and a busy server stays small.
    connection.pragma_update(None, "cache_size", -16 * 1024)?;
    let journal_mode: String = connection.pragma_query_value(None, "journal_mode", |row| row.get(0))?;
    let synchronous: i64 = connection.pragma_query_value(None, "synchronous", |row| row.get(0))?;
    if journal_mode != "wal" || synchronous != 2 {
        let problem = format!("wanted journal_mode=wal and synchronous=2 (FULL), got {journal_mode} and {synchronous}");
        return Err(rusqlite::Error::ToSqlConversionFailure(problem.into()));
    }
    Ok(connection)
}

const DAMAGED_WAY_OUT: &str = "restore a backup; `sqlite3 FILE .recover` saves what can be saved";

pub(super) fn cannot_open(path: &Path, error: rusqlite::Error) -> OpenError {
    let (problem, way_out) = match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => {
            ("it is not a SQLite database", "give the path of a new file, or of one that Steadfast made")
        }
        Some(ErrorCode::DatabaseCorrupt) => ("it is damaged", DAMAGED_WAY_OUT),
        Some(ErrorCode::DatabaseBusy) => ("another program holds a lock on it", "close that program, then start again"),
        Some(ErrorCode::CannotOpen | ErrorCode::ReadOnly) => (
            "SQLite cannot write it, or make its files beside it",
            "check the permissions of the file and its directory",
        ),
        Some(ErrorCode::DiskFull) => ("the disk is full", "free some space, then start again"),
        _ => ("SQLite cannot open it", "see the cause"),
    };
    OpenError::new(path.display(), format!("{problem} ({error})"), way_out).caused_by(error)
}
