//! The lock of another program on the file: waited for as long as it is reasonable, and then said at once to everybody who waits.

use std::time::Duration;

use steadfast::job::JobId;
use steadfast::store::{JobStore, Store, StoreErrorKind};

use crate::jobs_file::{Call, DEADLINE, JobsFile, counted, enqueue, jobs, send, told};

const CALLERS: usize = 64;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixty_four_enqueues_outlast_another_program_that_holds_the_lock_for_five_seconds() {
    let file = JobsFile::new();
    let store = file.open();
    let lock = file.held_lock();
    let mut calls: Vec<Call<'_, _>> = (0..CALLERS).map(|_| store.enqueue(jobs(1))).collect();
    calls.iter_mut().for_each(send);
    let holder = std::thread::spawn(move || {
        // Not to let things settle: the five seconds are the case.
        std::thread::sleep(Duration::from_secs(5));
        drop(lock);
    });
    let mut ids: Vec<JobId> = Vec::new();
    for call in calls {
        ids.push(call.await.unwrap()[0].job.id);
    }
    holder.join().unwrap();
    assert!(store.get(ids).await.unwrap().iter().all(Option::is_some));
}

#[tokio::test]
async fn a_lock_that_is_not_let_go_is_said_once_to_all_who_wait_and_the_store_goes_on_afterwards() {
    let file = JobsFile::new();
    let store = file.open();
    let lock = file.held_lock();
    let mut calls: Vec<Call<'_, _>> = (0..CALLERS).map(|_| store.enqueue(jobs(1))).collect();
    calls.iter_mut().for_each(send);
    // One after the other, each with a wait of its own, would be ten minutes.
    let given_up_at = tokio::time::Instant::now() + DEADLINE;
    for call in calls {
        let answer = tokio::time::timeout_at(given_up_at, call).await.expect("one wait for all");
        let error = answer.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error:?}");
        assert!(error.is_retryable() && !error.to_string().contains("locked"), "{error}");
    }
    drop(lock);
    enqueue(&store, jobs(1)).await;
    assert_eq!(counted(&file.external_connection()).values().sum::<u64>(), 1);
    assert_eq!(told(&store).await, counted(&file.external_connection()));
}

#[tokio::test]
async fn reads_go_on_while_another_program_holds_the_write_lock() {
    let (file, ids) = JobsFile::with_jobs(5).await;
    let store = file.open();
    let _lock = file.held_lock();
    assert_eq!(crate::jobs_file::walk(&store).await.unwrap().len(), ids.len());
    assert_eq!(told(&store).await.values().sum::<u64>(), ids.len() as u64);
    store.ping().await.unwrap();
}
