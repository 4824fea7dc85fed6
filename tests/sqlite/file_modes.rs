//! Who may read the files: their owner, nobody else. Payloads can be anybody's secrets.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use steadfast::store::sqlite::{SqliteSettings, SqliteStore, migrate};

use crate::jobs_file::{JobsFile, counted, enqueue, jobs, open, walk};

fn mode(path: &Path) -> String {
    let metadata = fs::metadata(path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
    format!("{:o}", metadata.permissions().mode() & 0o7777)
}

#[tokio::test]
async fn the_file_and_everything_beside_it_are_readable_by_their_owner_only() {
    let file = JobsFile::new();
    let store = file.open();
    enqueue(&store, jobs(10)).await;
    for suffix in ["", "-wal", "-shm"] {
        assert_eq!(mode(&file.beside(suffix)), "600", "jobs.db{suffix}");
    }
    let mut names: Vec<_> =
        fs::read_dir(file.dir.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    assert_eq!(names, ["jobs.db", "jobs.db-shm", "jobs.db-wal"]);
}

#[tokio::test]
async fn a_file_that_others_may_read_is_refused_with_the_way_out_and_left_as_it_is() {
    let (file, ids) = JobsFile::with_jobs(3).await;
    // SQLite's files are there while somebody has the database open.
    let external = file.external_connection();
    counted(&external);
    enqueue(&file.open(), jobs(1)).await;
    for suffix in ["", "-wal", "-shm"] {
        for (bits, shown) in [(0o640, "640"), (0o604, "604"), (0o620, "620"), (0o601, "601")] {
            let path = file.beside(suffix);
            fs::set_permissions(&path, fs::Permissions::from_mode(bits)).unwrap();
            let refused = SqliteStore::open(SqliteSettings::at(&file.path)).unwrap_err().to_string();
            assert!(refused.contains(&format!("mode {shown}")), "{refused}");
            assert!(refused.ends_with(&format!("chmod 600 {}", path.canonicalize().unwrap().display())), "{refused}");
            let refused = migrate(&file.path).unwrap_err().to_string();
            assert!(refused.contains("chmod 600"), "{refused}");
            assert_eq!(mode(&path), shown);
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        }
    }
    drop(external);
    assert_eq!(walk(&file.open()).await.unwrap().len(), ids.len() + 1);
}

#[test]
fn a_directory_that_is_not_there_is_refused_with_the_way_out_and_not_made() {
    let file = JobsFile::new();
    let missing = file.dir.path().join("missing");
    let refused = SqliteStore::open(SqliteSettings::at(missing.join("jobs.db"))).unwrap_err().to_string();
    let expected = format!("its directory {} does not exist; make it (mkdir -p", missing.display());
    assert!(refused.contains(&expected), "{refused}");
    assert!(migrate(missing.join("jobs.db")).unwrap_err().to_string().contains(&expected));
    assert!(!missing.exists());
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
    assert!(file.beside("-wal").exists());
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 1);
}
