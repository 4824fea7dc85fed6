//! A damaged file: refused, or what cannot be read is an error. Never silently fewer jobs.

use std::fs;

use steadfast::job::{JobId, Status};
use steadfast::store::sqlite::{SqliteSettings, SqliteStore};
use steadfast::store::{JobStore, List, StatsRequest, Store, StoreError, StoreErrorKind};

use crate::jobs_file::{
    JobsFile, assert_sound, checked, claim_of, counted, enqueue, in_queue, jobs, told, walk, write_private,
};
use crate::refusals::refusal;

const PAGE: usize = 4096;
const JOBS: usize = 300;

/// Puts this content in the file's place and looks at it in every way there is: each must fail or tell of all jobs.
/// Returns whether it was opened.
async fn look(file: &JobsFile, content: &[u8], ids: &[JobId], what: &str) -> bool {
    for suffix in ["-wal", "-shm"] {
        let _ = fs::remove_file(file.beside(suffix));
    }
    fs::write(&file.path, content).unwrap();
    let store = match SqliteStore::open(SqliteSettings::at(&file.path)) {
        Ok(store) => store,
        Err(error) => {
            let refused = error.to_string();
            assert!(refused.contains("jobs.db") && refused.contains("; "), "{what}: {refused}");
            return false;
        }
    };
    let found = [
        ("list", walk(&store).await.map(|jobs| jobs.len())),
        ("get", store.get(ids.to_vec()).await.map(|jobs| jobs.iter().flatten().count())),
        (
            "stats",
            store
                .stats(StatsRequest::new())
                .await
                .map(|stats| stats.queues.values().flat_map(|queue| queue.counts.values()).sum::<u64>() as usize),
        ),
        ("claim", claimed_or_buried(&store).await),
    ];
    for (verb, found) in found {
        match found {
            Ok(count) => assert_eq!(count, ids.len(), "{what}: {verb} tells of fewer jobs"),
            Err(error) => assert!(!error.is_retryable(), "{what}: {verb}: {error:?}"),
        }
    }
    true
}

/// A job whose row makes no sense is not lost but a dead letter with the reason.
async fn claimed_or_buried(store: &SqliteStore) -> Result<usize, StoreError> {
    let claimed = store.claim(claim_of(JOBS)).await?;
    let buried = List::new().status(Status::FailedPermanent).limit(JOBS);
    Ok(claimed.leases.len() + store.list(buried).await?.jobs.len())
}

#[tokio::test]
async fn a_page_that_was_overwritten_is_an_error_and_never_fewer_jobs() {
    let (file, ids) = JobsFile::with_jobs(JOBS).await;
    let sound = fs::read(&file.path).unwrap();
    assert!(look(&file, &sound, &ids, "untouched").await);
    for page in 0..sound.len() / PAGE {
        for byte in [0x00, 0xa5] {
            let mut content = sound.clone();
            content[page * PAGE..][..PAGE].fill(byte);
            look(&file, &content, &ids, &format!("page {page} filled with {byte:#x}")).await;
        }
    }
}

#[tokio::test]
async fn a_flipped_byte_in_the_header_is_refused_or_harmless() {
    let (file, ids) = JobsFile::with_jobs(JOBS).await;
    let sound = fs::read(&file.path).unwrap();
    for at in 0..100 {
        for flip in [0x01, 0xff] {
            let mut content = sound.clone();
            content[at] ^= flip;
            look(&file, &content, &ids, &format!("byte {at} of the header xor {flip:#x}")).await;
        }
    }
}

#[tokio::test]
async fn a_truncated_file_is_refused_as_damaged() {
    let (file, _) = JobsFile::with_jobs(JOBS).await;
    let sound = fs::read(&file.path).unwrap();
    for length in [2, 99, 512, PAGE, 2 * PAGE, sound.len() / 2, sound.len() - PAGE] {
        fs::write(&file.path, &sound[..length]).unwrap();
        let refused = refusal(&file.path);
        assert!(
            refused.contains("it is damaged") || refused.contains("it is not a SQLite database"),
            "cut to {length} bytes: {refused}"
        );
        assert!(refused.contains("restore a backup") || length < PAGE, "cut to {length} bytes: {refused}");
    }
}

#[tokio::test]
async fn a_file_cut_in_the_middle_of_its_last_page_tells_of_no_fewer_jobs() {
    let (file, ids) = JobsFile::with_jobs(JOBS).await;
    let sound = fs::read(&file.path).unwrap();
    for cut in [1, 100, PAGE / 2, PAGE - 1] {
        look(&file, &sound[..sound.len() - cut], &ids, &format!("{cut} bytes cut off")).await;
    }
}

#[tokio::test]
async fn damage_found_while_reading_is_said_as_damage() {
    let (file, ids) = JobsFile::with_jobs(JOBS).await;
    let root: usize = file
        .external_connection()
        .query_row("SELECT rootpage FROM sqlite_schema WHERE name = 'jobs'", [], |row| row.get(0))
        .unwrap();
    let mut content = fs::read(&file.path).unwrap();
    content[(root - 1) * PAGE..][..PAGE].fill(0);
    fs::write(&file.path, content).unwrap();
    let store = file.open();
    assert_eq!(store.get(ids).await.unwrap_err().kind(), StoreErrorKind::Damaged);
    assert_eq!(store.enqueue(jobs(1)).await.unwrap_err().kind(), StoreErrorKind::Damaged);
    // What is whole goes on.
    store.ping().await.unwrap();
    assert_eq!(told(&store).await.values().sum::<u64>(), JOBS as u64);
}

/// A process that dies while it appends to the log leaves such a file behind: its last commit was never acknowledged.
#[tokio::test]
async fn a_log_that_ends_in_the_middle_of_a_commit_is_opened_at_the_commit_before_it() {
    let file = JobsFile::new();
    let store = file.open();
    // As it is before anything of the log has been copied into it.
    let database = fs::read(&file.path).unwrap();
    for batch in 0..20 {
        enqueue(&store, (0..10).map(|_| checked(in_queue(&format!("batch-{batch}")))).collect()).await;
    }
    let log = fs::read(file.beside("-wal")).unwrap();
    drop(store);
    let mut whole_batches = Vec::new();
    for parts in 0..=16 {
        let copy = JobsFile::new();
        write_private(&copy.path, &database);
        write_private(&copy.beside("-wal"), &log[..log.len() * parts / 16]);
        let store = copy.open();
        let tally = counted(&copy.external_connection());
        assert!(tally.values().all(|n| *n == 10), "{parts}/16 of the log: {tally:?}");
        assert_eq!(told(&store).await, tally);
        assert_sound(&copy.external_connection());
        whole_batches.push(tally.len());
    }
    assert!(whole_batches.is_sorted() && whole_batches.last() == Some(&20), "{whole_batches:?}");
}
