//! One process owns a file, and nobody but the user it runs as can read it.
//!
//! The lock is on the database file itself, so neither another name for it (a hard link) nor a file that somebody removes
//! lets a second process in; the operating system lets go of it however we end. On Linux such a lock (`flock`) has nothing
//! to do with those of SQLite (`fcntl`). On the BSDs and on macOS the two would get in each other's way: there the lock is
//! on a file beside the database, as good as that can be.
//!
//! POSIX takes all of SQLite's locks from a process that closes *any* descriptor of the file. So the descriptor that holds
//! the lock is opened before the first connection and closed after the last, and a file that this process has open is never
//! opened here a second time: [`OPEN_HERE`].

use std::collections::BTreeSet;
use std::fs::{self, File, Metadata, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::planted::{Bug, planted};
use crate::store::OpenError;

/// The files that this process owns.
static OPEN_HERE: Mutex<BTreeSet<Identity>> = Mutex::new(BTreeSet::new());

/// A file, whatever its name: device and inode.
type Identity = (u64, u64);

fn open_here() -> MutexGuard<'static, BTreeSet<Identity>> {
    OPEN_HERE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn identity(metadata: &Metadata) -> Identity {
    (metadata.dev(), metadata.ino())
}

/// Held as long as anything of the store is open.
#[derive(Debug)]
pub(super) struct OwnerLock {
    locked: Option<File>,
    identity: Identity,
}

impl Drop for OwnerLock {
    fn drop(&mut self) {
        // Closed first: who finds the file free in the list finds the lock free, too. And with the list locked: the inode of
        // a deleted file that is closed may be another file's at once, which must not find itself in the list.
        let mut open_here = open_here();
        drop(self.locked.take());
        open_here.remove(&self.identity);
    }
}

/// Why this process is not the owner.
pub(super) enum NotOwner {
    /// Somebody else is.
    Taken(OpenError),
    Failed(OpenError),
}

impl From<NotOwner> for OpenError {
    fn from(not_owner: NotOwner) -> Self {
        match not_owner {
            NotOwner::Taken(error) | NotOwner::Failed(error) => error,
        }
    }
}

/// Finds the file, or makes it, readable by its owner only. Links to it are resolved; its directory must be there.
pub(super) fn find_or_make(given: &Path) -> Result<PathBuf, OpenError> {
    let shown = given.display();
    let directory = given.parent().filter(|directory| !directory.as_os_str().is_empty());
    match fs::metadata(given) {
        Ok(metadata) if metadata.is_dir() => {
            return Err(OpenError::new(shown, "it is a directory", "give the path of a file in it"));
        }
        // An administrator may write to read-only files; that nobody is meant to is still what the mode says.
        Ok(metadata) if metadata.permissions().mode() & 0o222 == 0 => {
            let way_out = "make it writable (chmod u+w), or choose another file";
            return Err(OpenError::new(shown, "it is read-only", way_out));
        }
        Ok(_) => {}
        Err(_) if directory.is_some_and(|directory| matches!(directory.try_exists(), Ok(false))) => {
            let directory = directory.unwrap_or(given).display();
            let problem = format!("its directory {directory} does not exist");
            return Err(OpenError::new(
                shown,
                problem,
                format!("make it (mkdir -p -m 700 {directory}), or correct the path"),
            ));
        }
        Err(_) => {
            let made = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(given);
            made.map_err(|error| unusable(given, error))?;
        }
    }
    given.canonicalize().map_err(|error| unusable(given, error))
}

fn unusable(path: &Path, error: io::Error) -> OpenError {
    let way_out = match error.kind() {
        io::ErrorKind::PermissionDenied => "give this user the right to write there, or choose another path",
        io::ErrorKind::ReadOnlyFilesystem => "choose a path on a file system that can be written",
        _ => "choose another path",
    };
    OpenError::new(path.display(), error, way_out)
}

/// Becomes the owner of a file that [`find_or_make`] has found. Before the first connection to it.
pub(super) fn become_owner(path: &Path) -> Result<OwnerLock, NotOwner> {
    let failed = |error: io::Error| NotOwner::Failed(unusable(path, error));
    let metadata = fs::metadata(path).map_err(failed)?;
    // Kept until the end, so that of two threads one comes second.
    let mut open_here = open_here();
    if open_here.contains(&identity(&metadata)) && !planted(Bug::TwoOwners) {
        return Err(NotOwner::Taken(taken(path, "this process has it open already")));
    }
    let file = open_to_lock(path).map_err(failed)?;
    match file.try_lock() {
        Err(TryLockError::WouldBlock) if planted(Bug::TwoOwners) => {}
        Err(TryLockError::WouldBlock) => {
            let owner = file.metadata().ok().and_then(|metadata| holder_of_lock(&metadata));
            let owner = owner.map(|pid| format!(" ({pid})")).unwrap_or_default();
            return Err(NotOwner::Taken(taken(path, &format!("another process{owner} has it open"))));
        }
        Err(TryLockError::Error(error)) => return Err(failed(error)),
        Ok(()) => {}
    }
    open_here.insert(identity(&metadata));
    Ok(OwnerLock { locked: Some(file), identity: identity(&metadata) })
}

fn open_to_lock(path: &Path) -> io::Result<File> {
    if cfg!(target_os = "linux") {
        return OpenOptions::new().read(true).write(true).open(path);
    }
    let beside = beside(path, ".lock");
    if fs::symlink_metadata(&beside).is_ok_and(|metadata| !metadata.is_file()) {
        return Err(io::Error::other(format!("{} is not a plain file", beside.display())));
    }
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(beside)
}

fn taken(path: &Path, problem: &str) -> OpenError {
    let way_out = "one process owns a SQLite file: stop the other one, or use PostgreSQL for several processes";
    OpenError::new(path.display(), problem, way_out)
}

/// The process that holds a lock on the file, as far as the kernel tells: only for people who read the refusal.
fn holder_of_lock(metadata: &Metadata) -> Option<u32> {
    let locks = fs::read_to_string("/proc/locks").ok()?;
    let inode = format!(":{}", metadata.ino());
    // 1: FLOCK  ADVISORY  WRITE 5228 fe:00:10097955 0 EOF
    let held = locks.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let mut held = held.filter(|lock| lock.len() > 5 && lock[1] == "FLOCK" && lock[5].ends_with(&inode));
    held.next()?[4].parse().ok().filter(|pid| *pid > 0)
}

/// Refuses a file, or one that SQLite has made beside it, that others than its owner may read or change: payloads can be
/// anybody's secrets.
pub(super) fn check_modes(path: &Path) -> Result<(), OpenError> {
    for path in [path.to_owned(), beside(path, "-wal"), beside(path, "-shm")] {
        let mode = fs::metadata(&path).map_or(0o600, |metadata| metadata.permissions().mode() & 0o777);
        if mode & 0o077 != 0 {
            let shown = path.display();
            let problem = format!("other users of this machine may read or change it (mode {mode:03o})");
            return Err(OpenError::new(&shown, problem, format!("if it is this program's, run chmod 600 {shown}")));
        }
    }
    Ok(())
}

/// `jobs.db` → `jobs.db-wal` and the like.
pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push(suffix);
    path.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_file_is_free_whatever_file_had_its_inode_before() {
        let directory = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let path = directory.path().join(format!("{thread}.db"));
                scope.spawn(move || {
                    for _ in 0..2000 {
                        fs::write(&path, "").unwrap();
                        let owner = become_owner(&path).map_err(OpenError::from).unwrap();
                        fs::remove_file(&path).unwrap();
                        drop(owner);
                    }
                });
            }
        });
    }
}
