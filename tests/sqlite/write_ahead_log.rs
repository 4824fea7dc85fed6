//! The write-ahead log must not grow for ever: whoever pins it, it shrinks once they are gone.

use rusqlite::Connection;
use steadfast::store::sqlite::SqliteStore;

use crate::jobs_file::{JobsFile, checked, enqueue, enqueue_one, job, job_of, until};

/// 16 MiB: from there on the log is begun anew.
const LONG: u64 = 16 * 1024 * 1024;

fn log_bytes(file: &JobsFile) -> u64 {
    std::fs::metadata(file.beside("-wal")).map_or(0, |metadata| metadata.len())
}

/// Another program in the middle of reading.
fn reading(file: &JobsFile) -> Connection {
    let external = file.external_connection();
    external.execute_batch("BEGIN; SELECT count(*) FROM jobs;").unwrap();
    external
}

/// Enough that the log is longer than it may be.
async fn load(file: &JobsFile, store: &SqliteStore) {
    while log_bytes(file) < LONG + LONG / 2 {
        enqueue(store, (0..10).map(|_| checked(job_of(200_000))).collect()).await;
    }
}

#[tokio::test]
async fn the_log_shrinks_again_under_load_after_a_reader_that_held_it_is_gone() {
    let file = JobsFile::new();
    let store = file.open();
    let reader = reading(&file);
    load(&file, &store).await;
    drop(reader);
    let given_up_at = std::time::Instant::now() + crate::jobs_file::DEADLINE;
    while log_bytes(&file) >= LONG {
        assert!(std::time::Instant::now() < given_up_at, "the log still has {} bytes", log_bytes(&file));
        enqueue_one(&store, job()).await;
    }
}

#[tokio::test]
async fn the_log_shrinks_again_although_nothing_is_written_after_the_reader_is_gone() {
    let file = JobsFile::new();
    let store = file.open();
    let reader = reading(&file);
    load(&file, &store).await;
    // Long enough for the checkpointer to find the reader in its way and, if it were wrong, to think that it is done.
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    drop(reader);
    until("the log shrinks", || log_bytes(&file) < LONG).await;
}

#[tokio::test]
async fn closing_leaves_one_file_that_holds_everything() {
    let (file, ids) = JobsFile::with_jobs(500).await;
    assert_eq!(log_bytes(&file), 0);
    let moved = file.dir.path().join("moved.db");
    std::fs::rename(&file.path, &moved).unwrap();
    assert_eq!(crate::jobs_file::walk(&crate::jobs_file::open(&moved)).await.unwrap().len(), ids.len());
}
