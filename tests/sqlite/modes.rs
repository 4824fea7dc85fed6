//! Who may read the files: their owner, nobody else. Payloads can be anybody's secrets.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use crate::jobs_file::{JobsFile, enqueue, jobs, open};

fn mode(path: &Path) -> String {
    let metadata = fs::metadata(path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
    format!("{:o}", metadata.permissions().mode() & 0o7777)
}

#[tokio::test]
async fn the_file_and_everything_beside_it_are_readable_by_their_owner_only() {
    let file = JobsFile::new();
    let store = file.open();
    enqueue(&store, jobs(10)).await;
    for suffix in ["", "-wal", "-shm", ".lock"] {
        assert_eq!(mode(&file.beside(suffix)), "600", "jobs.db{suffix}");
    }
    let mut names: Vec<_> =
        fs::read_dir(file.dir.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    assert_eq!(names, ["jobs.db", "jobs.db-shm", "jobs.db-wal", "jobs.db.lock"]);
}

#[test]
fn directories_that_had_to_be_made_are_their_owners_only_and_others_stay_as_they_were() {
    let file = JobsFile::new();
    let given = file.dir.path().join("given");
    fs::create_dir(&given).unwrap();
    fs::set_permissions(&given, fs::Permissions::from_mode(0o755)).unwrap();
    open(&given.join("made/deeper/jobs.db"));
    assert_eq!(mode(&given), "755");
    assert_eq!(mode(&given.join("made")), "700");
    assert_eq!(mode(&given.join("made/deeper")), "700");
}

#[test]
fn a_file_reached_through_a_link_has_its_companions_beside_itself() {
    let file = JobsFile::new();
    let elsewhere = file.dir.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    let link = elsewhere.join("link.db");
    // The file is not there yet: the link decides where it is made.
    symlink(&file.path, &link).unwrap();
    let store = open(&link);
    assert_eq!(store.path(), file.path.canonicalize().unwrap());
    assert!(file.beside(".lock").exists() && file.beside("-wal").exists());
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 1);
}
