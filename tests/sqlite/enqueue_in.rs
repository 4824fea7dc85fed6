//! Enqueue beside the caller's own writes: both or neither.

use steadfast::Queue;
use steadfast::queue::EnqueueError;
use steadfast::store::{StatsRequest, StoreErrorKind};

use crate::jobs_file::{JobsFile, checked, job, told};
use crate::welcome::Welcome;

const OWN_WRITE: &str = "CREATE TABLE IF NOT EXISTS users (id INTEGER PRIMARY KEY); INSERT INTO users VALUES (42);";

fn users(file: &JobsFile) -> i64 {
    file.external_connection().query_row("SELECT count(*) FROM users", [], |row| row.get(0)).unwrap_or(0)
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

#[tokio::test]
async fn a_typed_job_is_stored_with_the_callers_writes_by_the_same_builder() {
    let file = JobsFile::new();
    let queue = Queue::open(&format!("sqlite://{}", file.path.display())).await.unwrap();
    let own_write = |sql: &steadfast::store::sqlite::Connection| sql.execute_batch(OWN_WRITE);
    let job = |user| queue.enqueue(Welcome { user }).priority(7).idempotency_key("k");
    let first = job(1).with_writes(own_write).await.unwrap().unwrap();
    assert!(first.created && first.job.priority == 7);
    assert_eq!((queue.get(first.job.id).await.unwrap(), users(&file)), (Some(first.job.clone()), 1));
    // The row is there: the caller's own write fails, and the job goes with it.
    assert!(queue.enqueue(Welcome { user: 2 }).with_writes(own_write).await.unwrap().is_err());
    assert_eq!(
        queue
            .stats(StatsRequest::new())
            .await
            .unwrap()
            .queues
            .values()
            .flat_map(|queue| queue.counts.values())
            .sum::<u64>(),
        1
    );
    // A key of another job: what the caller wrote is undone.
    let other_write = |sql: &steadfast::store::sqlite::Connection| sql.execute_batch("INSERT INTO users VALUES (43)");
    match job(2).with_writes(other_write).await {
        Err(EnqueueError::KeyTaken { by, .. }) => assert_eq!(by, first.job.id),
        other => panic!("{other:?}"),
    }
    assert_eq!(users(&file), 1);
    // The same job again: there is nothing to store but the caller's row.
    let again = job(1).with_writes(other_write).await.unwrap().unwrap();
    assert_eq!((again.created, again.job.id, users(&file)), (false, first.job.id, 2));
}

#[tokio::test]
async fn many_typed_jobs_declare_their_kind_and_are_stored_together() {
    let file = JobsFile::new();
    let queue = Queue::open(&format!("sqlite://{}", file.path.display())).await.unwrap();
    let stored = queue.enqueue_many((0..10).map(|user| Welcome { user })).await.unwrap();
    assert!(stored.len() == 10 && stored.iter().all(|one| one.created && one.job.kind.as_str() == "welcome"));
    assert!(queue.kinds().await.unwrap().iter().any(|kind| kind.kind.as_str() == "welcome" && kind.schema.is_some()));
}
