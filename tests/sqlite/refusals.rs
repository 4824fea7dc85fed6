//! What cannot be opened: each refusal names the file, what is wrong and the way out, and leaves the file as it was.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use steadfast::store::sqlite::{SqliteSettings, SqliteStore};
use tempfile::TempDir;

use crate::child::{Role, SecondProcess};
use crate::jobs_file::{JobsFile, external_connection, jobs, make_private, write_private};

/// Opens what cannot be opened; the file must be the same afterwards, byte for byte.
pub(crate) fn refusal(path: &Path) -> String {
    let before = fs::read(path).ok();
    let refused = SqliteStore::open(SqliteSettings::at(path)).expect_err("it was opened").to_string();
    assert!(fs::read(path).ok() == before, "{refused}, but the file was changed");
    assert_names(&refused, path);
    refused
}

fn assert_names(refused: &str, path: &Path) {
    assert!(refused.starts_with("cannot open "), "{refused}");
    assert!(refused.contains(&*path.file_name().unwrap().to_string_lossy()), "{refused} does not name {path:?}");
}

#[track_caller]
fn assert_says(refused: &str, problem: &str, way_out: &str) {
    let (said, out) = refused.rsplit_once("; ").unwrap_or((refused, ""));
    assert!(said.contains(problem), "{refused:?} does not say {problem:?}");
    assert!(out.contains(way_out), "{refused:?} does not show the way out {way_out:?}");
}

#[tokio::test]
async fn a_file_that_another_process_owns() {
    let (file, _) = JobsFile::with_jobs(3).await;
    let mut owner = SecondProcess::start(Role::Own, &file.path);
    assert_eq!(owner.hear().as_deref(), Some("open"));
    let refused = refusal(&file.path);
    assert_says(&refused, &format!("another process ({}) has it open", owner.id()), "PostgreSQL");
    owner.kill();
    // The lock went with its owner, however that ended.
    file.open();
}

#[tokio::test]
async fn a_file_that_is_open_in_this_process_already() {
    let (file, ids) = JobsFile::with_jobs(3).await;
    let store = file.open();
    assert_says(&refusal(&file.path), "this process has it open already", "one process owns a SQLite file");
    assert_eq!(crate::jobs_file::walk(&store).await.unwrap().len(), ids.len());
}

#[test]
fn a_file_that_is_open_through_a_link_to_it() {
    let file = JobsFile::new();
    let link = file.dir.path().join("link.db");
    symlink(&file.path, &link).unwrap();
    let through_link = crate::jobs_file::open(&link);
    assert_eq!(through_link.path(), file.path.canonicalize().unwrap());
    assert_says(&refusal(&file.path), "this process has it open already", "one process owns a SQLite file");
    drop(through_link);
    let _direct = file.open();
    let refused = SqliteStore::open(SqliteSettings::at(&link)).unwrap_err().to_string();
    assert_says(&refused, "this process has it open already", "one process owns a SQLite file");
}

#[tokio::test]
async fn another_name_of_a_file_that_is_owned() {
    let (file, ids) = JobsFile::with_jobs(3).await;
    let hard_link = file.dir.path().join("hard_link.db");
    fs::hard_link(&file.path, &hard_link).unwrap();
    let mut owner = SecondProcess::start(Role::Own, &file.path);
    assert_eq!(owner.hear().as_deref(), Some("open"));
    // What an earlier version used as its lock.
    let _ = fs::remove_file(file.beside(".lock"));
    assert_says(&refusal(&hard_link), &format!("another process ({}) has it open", owner.id()), "PostgreSQL");
    assert_says(&refusal(&file.path), &format!("another process ({}) has it open", owner.id()), "PostgreSQL");
    owner.kill();
    let store = file.open();
    assert_says(&refusal(&hard_link), "this process has it open already", "PostgreSQL");
    assert_eq!(crate::jobs_file::walk(&store).await.unwrap().len(), ids.len());
}

/// POSIX takes every lock of a file from a process that closes any descriptor of it: refusing a second store in this
/// process must not cost the first one the locks by which other programs see that the file is in use.
#[tokio::test]
async fn a_second_store_in_this_process_leaves_the_first_ones_locks_alone() {
    let (file, _) = JobsFile::with_jobs(3).await;
    let store = file.open();
    crate::jobs_file::enqueue(&store, jobs(1)).await;
    let locks = || {
        let inode = format!(":{}", file.path.metadata().unwrap().ino());
        let pid = std::process::id().to_string();
        let all = fs::read_to_string("/proc/locks").unwrap();
        let ours = all.lines().filter(|line| {
            let lock: Vec<_> = line.split_whitespace().collect();
            lock[1] == "POSIX" && lock[4] == pid && lock[5].ends_with(&inode)
        });
        ours.count()
    };
    assert!(locks() > 0, "SQLite holds a lock on a database that is open");
    SqliteStore::open(SqliteSettings::at(&file.path)).unwrap_err();
    assert_eq!(steadfast::store::sqlite::migrate(&file.path).unwrap(), 0);
    assert!(locks() > 0, "the locks are gone");
}

#[test]
fn a_directory() {
    let file = JobsFile::new();
    fs::create_dir(&file.path).unwrap();
    assert_says(&refusal(&file.path), "it is a directory", "give the path of a file in it");
}

#[test]
fn a_path_through_a_file() {
    let file = JobsFile::new();
    fs::write(&file.path, "not a directory").unwrap();
    let refused = refusal(&file.path.join("jobs.db"));
    assert_says(&refused, "", "choose another");
}

#[tokio::test]
async fn a_read_only_file_even_for_an_administrator() {
    let (file, ids) = JobsFile::with_jobs(3).await;
    fs::set_permissions(&file.path, Permissions::from_mode(0o444)).unwrap();
    assert_says(&refusal(&file.path), "it is read-only", "chmod u+w");
    fs::set_permissions(&file.path, Permissions::from_mode(0o600)).unwrap();
    assert_eq!(crate::jobs_file::walk(&file.open()).await.unwrap().len(), ids.len());
}

/// Somebody whom permissions bind: this user, or `nobody` when this is root.
struct Ordinary {
    /// Where everybody may look, unlike where the build may be.
    dir: TempDir,
    is_root: bool,
}

/// The user id of `nobody` wherever there is one; that nothing here belongs to it is all that matters.
const NOBODY: u32 = 65_534;

impl Ordinary {
    fn new() -> Self {
        let dir = TempDir::new().unwrap();
        fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
        let is_root = dir.path().metadata().unwrap().uid() == 0;
        fs::copy(std::env::current_exe().unwrap(), dir.path().join("tests")).unwrap();
        Self { dir, is_root }
    }

    /// What opening says to them.
    fn tries(&self, path: &Path) -> String {
        let mut program = Command::new(self.dir.path().join("tests"));
        program.current_dir(self.dir.path());
        if self.is_root {
            program.uid(NOBODY).gid(NOBODY);
        }
        SecondProcess::start_as(program, Role::Try, path).hear().expect("the child said nothing")
    }

    /// A directory in which nobody may make a file.
    fn sealed(&self, jobs: Option<&str>) -> std::path::PathBuf {
        let sealed = self.dir.path().join("sealed");
        fs::create_dir(&sealed).unwrap();
        if let Some(name) = jobs {
            let path = sealed.join(name);
            drop(crate::jobs_file::open(&path));
            if self.is_root {
                chown(&path, Some(NOBODY), Some(NOBODY)).unwrap();
            }
        }
        fs::set_permissions(&sealed, Permissions::from_mode(0o555)).unwrap();
        sealed
    }
}

#[test]
fn a_new_file_in_a_read_only_directory() {
    let ordinary = Ordinary::new();
    let path = ordinary.sealed(None).join("jobs.db");
    let refused = ordinary.tries(&path);
    assert_names(&refused, &path);
    assert_says(&refused, "Permission denied", "give this user the right to write there, or choose another path");
    assert!(!path.exists());
}

#[test]
fn a_writable_file_in_a_read_only_directory() {
    let ordinary = Ordinary::new();
    let path = ordinary.sealed(Some("jobs.db")).join("jobs.db");
    let before = fs::read(&path).unwrap();
    let refused = ordinary.tries(&path);
    assert_names(&refused, &path);
    assert_says(&refused, "cannot write it, or make its files beside it", "permissions of the file and its directory");
    assert!(fs::read(&path).unwrap() == before);
}

#[test]
fn a_file_that_is_not_a_database() {
    let file = JobsFile::new();
    // A single byte is what SQLite itself may leave in a file that is to become a database.
    for content in ["no", "name,email\nada,ada@example.org\n", &"long ".repeat(10_000)] {
        write_private(&file.path, content.as_bytes());
        let refused = refusal(&file.path);
        assert_says(
            &refused,
            "it is not a SQLite database",
            "give the path of a new file, or of one that Steadfast made",
        );
    }
}

#[test]
fn a_database_of_another_program() {
    for journal_mode in ["delete", "wal"] {
        let file = JobsFile::new();
        let theirs = external_connection(&file.path);
        make_private(&file.path);
        theirs.pragma_update(None, "journal_mode", journal_mode).unwrap();
        theirs.execute_batch("CREATE TABLE accounts (name TEXT); INSERT INTO accounts VALUES ('ada')").unwrap();
        // Once while they have it open, once after.
        let refused = refusal(&file.path);
        assert_says(&refused, "it is a database of another program", "give the path of a new file");
        drop(theirs);
        refusal(&file.path);
        let name: String =
            external_connection(&file.path).query_row("SELECT name FROM accounts", [], |row| row.get(0)).unwrap();
        assert_eq!(name, "ada");
    }
}

#[tokio::test]
async fn a_schema_from_the_future_which_stays_as_it_is() {
    let (file, _) = JobsFile::with_jobs(3).await;
    file.external_connection().pragma_update(None, "user_version", 999).unwrap();
    let before = fs::read(&file.path).unwrap();
    assert_says(&refusal(&file.path), "its schema is version 999", "run the newer program that wrote it");
    let refused = steadfast::store::sqlite::migrate(&file.path).unwrap_err().to_string();
    assert_says(&refused, "its schema is version 999", "there is no downgrade");
    assert!(fs::read(&file.path).unwrap() == before);
}

#[tokio::test]
async fn what_was_refused_can_be_opened_once_the_reason_is_gone() {
    let (file, ids) = JobsFile::with_jobs(3).await;
    let known: i64 = file.external_connection().pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
    file.external_connection().pragma_update(None, "user_version", 999).unwrap();
    refusal(&file.path);
    file.external_connection().pragma_update(None, "user_version", known).unwrap();
    let store = file.open();
    crate::jobs_file::enqueue(&store, jobs(1)).await;
    assert_eq!(crate::jobs_file::walk(&store).await.unwrap().len(), ids.len() + 1);
}
