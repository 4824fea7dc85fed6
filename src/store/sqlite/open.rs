//! Opens the file: everything that can be wrong with it is found here, before the first job, and said clearly.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::migrate::{check_identity, is_up_to_date, migrate};
use crate::planted::{Bug, planted};
use crate::store::OpenError;

/// 3.51.3: the first without the WAL-reset bug that could damage a database.
const SQLITE_MIN_VERSION: i32 = 3_051_003;

/// 10 s: longer than a backup or a person at the `sqlite3` prompt holds a lock, shorter than a caller waits.
pub(super) const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// Held as long as the store is open: one process owns a file. The operating system lets go of it however we end.
#[derive(Debug)]
pub(super) struct OwnerLock(#[expect(dead_code, reason = "closing the file releases the lock")] File);

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
    let path = prepare_file(given)?;
    let owner = lock_owner(&path)?;
    let mut connection = connect_to_ours(&path)?;
    migrate(&mut connection, &path)?;
    Ok(OpenedFile { path, owner, connection })
}

/// Brings the schema up to date. Becomes the owner only if there is something to do: beside a server of this version
/// there is not, and under a server of an older one nothing may be changed.
pub(super) fn migrate_file(given: &Path) -> Result<usize, OpenError> {
    let path = prepare_file(given)?;
    let mut connection = connect_to_ours(&path)?;
    let _owner = if is_up_to_date(&connection) { None } else { Some(lock_owner(&path)?) };
    migrate(&mut connection, &path)
}

/// Looks whose file it is before anything is set in it, over a connection that cannot write, not even on closing.
fn connect_to_ours(path: &Path) -> Result<Connection, OpenError> {
    let failed = |error| cannot_open(path, error);
    let flags = OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let looking = Connection::open_with_flags(path, flags | OpenFlags::SQLITE_OPEN_READ_ONLY).map_err(failed)?;
    looking.busy_timeout(BUSY_TIMEOUT).map_err(failed)?;
    check_identity(&looking, path)?;
    connect(path, flags | OpenFlags::SQLITE_OPEN_READ_WRITE).map_err(failed)
}

/// A further connection that only reads.
pub(super) fn open_reader(path: &Path) -> rusqlite::Result<Connection> {
    let connection =
        Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.pragma_update(None, "query_only", true)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS_KEPT);
    Ok(connection)
}

/// A further connection for checkpoints.
pub(super) fn open_checkpointer(path: &Path) -> rusqlite::Result<Connection> {
    connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX)
}

/// 64: more than there are statements, so that none is compiled twice.
const STATEMENTS_KEPT: usize = 64;

fn connect(path: &Path, flags: OpenFlags) -> rusqlite::Result<Connection> {
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(if planted(Bug::LocksNotWaitedFor) { Duration::ZERO } else { BUSY_TIMEOUT })?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS_KEPT);
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

/// Makes the file and its directory if they are missing, readable by their owner only.
fn prepare_file(given: &Path) -> Result<PathBuf, OpenError> {
    let shown = given.display();
    if given.is_dir() {
        return Err(OpenError::new(shown, "it is a directory", "give the path of a file in it"));
    }
    if let Some(directory) = given.parent().filter(|directory| !directory.as_os_str().is_empty() && !directory.exists())
    {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(|error| {
            OpenError::new(&shown, format!("its directory cannot be made ({error})"), "make it, or choose another")
        })?;
    }
    // An administrator may write to read-only files; that nobody is meant to is still what the mode says.
    if fs::metadata(given).is_ok_and(|metadata| metadata.permissions().mode() & 0o222 == 0) {
        return Err(OpenError::new(shown, "it is read-only", "make it writable (chmod u+w), or choose another file"));
    }
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(given)
        .and_then(|_| given.canonicalize())
        .map_err(|error| {
            let way_out = match error.kind() {
                io::ErrorKind::PermissionDenied => "give this user the right to write there, or choose another path",
                io::ErrorKind::ReadOnlyFilesystem => "choose a path on a file system that can be written",
                _ => "choose another path",
            };
            OpenError::new(shown, error, way_out)
        })
}

fn lock_owner(path: &Path) -> Result<OwnerLock, OpenError> {
    let mut lock_path = path.as_os_str().to_owned();
    lock_path.push(".lock");
    let lock_path = PathBuf::from(lock_path);
    let failed = |error: io::Error| {
        OpenError::new(
            path.display(),
            format!("its lock file {} fails: {error}", lock_path.display()),
            "check the directory's permissions",
        )
    };
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&lock_path)
        .map_err(failed)?;
    match file.try_lock() {
        Ok(()) => {
            // The number is for people reading the refusal below; the lock is what counts.
            file.set_len(0).and_then(|()| write!(file, "{}", std::process::id())).map_err(failed)?;
            Ok(OwnerLock(file))
        }
        Err(TryLockError::WouldBlock) if planted(Bug::TwoOwners) => Ok(OwnerLock(file)),
        Err(TryLockError::WouldBlock) => {
            let mut owner = String::new();
            // Whatever cannot be read is left out of the message.
            let _ = file.take(20).read_to_string(&mut owner);
            let problem =
                format!("another process ({}) has it open", if owner.is_empty() { "unknown" } else { &owner });
            let way_out = "one process owns a SQLite file: stop the other one, or use PostgreSQL for several processes";
            Err(OpenError::new(path.display(), problem, way_out))
        }
        Err(TryLockError::Error(error)) => Err(failed(error)),
    }
}

pub(super) fn cannot_open(path: &Path, error: rusqlite::Error) -> OpenError {
    let (problem, way_out) = match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => {
            ("it is not a SQLite database", "give the path of a new file, or of one that Steadfast made")
        }
        Some(ErrorCode::DatabaseCorrupt) => {
            ("it is damaged", "restore a backup; `sqlite3 FILE .recover` saves what can be saved")
        }
        Some(ErrorCode::DatabaseBusy) => ("another program holds a lock on it", "close that program, then start again"),
        Some(ErrorCode::DiskFull) => ("the disk is full", "free some space, then start again"),
        _ => ("SQLite cannot open it", "see the cause"),
    };
    OpenError::new(path.display(), format!("{problem} ({error})"), way_out).caused_by(error)
}
