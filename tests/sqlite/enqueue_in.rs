//! Enqueue beside the caller's own writes: both or neither.

use steadfast::store::StoreErrorKind;

use crate::jobs_file::{JobsFile, checked, job, told};

const OWN_WRITE: &str = "CREATE TABLE IF NOT EXISTS users (id INTEGER PRIMARY KEY); INSERT INTO users VALUES (42);";

fn users(file: &JobsFile) -> i64 {
    file.stranger().query_row("SELECT count(*) FROM users", [], |row| row.get(0)).unwrap_or(0)
}

#[tokio::test]
async fn what_commits_leaves_the_callers_row_and_one_job_and_wakes_a_worker() {
    let file = JobsFile::new();
    let store = file.open();
    let mut wake = store.wake().listen();
    let new = checked(job());
    let stored = store
        .enqueue_in(move |sql| {
            sql.execute_batch(OWN_WRITE)?;
            Ok::<_, rusqlite::Error>(vec![new.clone()])
        })
        .await
        .unwrap()
        .unwrap();
    assert_eq!((stored.len(), users(&file)), (1, 1));
    tokio::time::timeout(std::time::Duration::from_secs(30), wake.woken()).await.unwrap();
}

#[tokio::test]
async fn what_fails_leaves_neither_row_nor_job_and_the_store_goes_on() {
    let file = JobsFile::new();
    let store = file.open();
    let outcome = store
        .enqueue_in(move |sql| {
            sql.execute_batch(OWN_WRITE).unwrap();
            Err("the caller changed its mind")
        })
        .await
        .unwrap();
    assert_eq!(outcome.unwrap_err(), "the caller changed its mind");
    assert_eq!(users(&file), 0);
    assert!(told(&store).await.is_empty());
    store.enqueue_in(move |_| Ok::<_, ()>(vec![checked(job())])).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_panic_of_the_caller_fails_that_call_only() {
    let file = JobsFile::new();
    let store = file.open();
    let failed = store
        .enqueue_in(|sql| -> Result<_, ()> {
            sql.execute_batch(OWN_WRITE).unwrap();
            panic!("on purpose")
        })
        .await
        .unwrap_err();
    assert_eq!(failed.kind(), StoreErrorKind::Internal);
    assert_eq!(users(&file), 0);
    store.enqueue_in(move |_| Ok::<_, ()>(vec![checked(job())])).await.unwrap().unwrap();
}
