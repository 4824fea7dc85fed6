//! Ends: of a caller, of the store, of the writer. Whatever was accepted is done, and nobody waits in vain.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use steadfast::job::JobId;
use steadfast::store::sqlite::{SqliteSettings, SqliteStore};
use steadfast::store::{Clock, JobStore, Store, StoreErrorKind, SystemClock};

use crate::jobs_file::{
    Call, DEADLINE, JobsFile, assert_sound, claim_of, counted, enqueue, external_connection, jobs, send, told, until,
    walk,
};

#[tokio::test]
async fn a_caller_that_goes_away_leaves_its_whole_batch_stored() {
    let file = JobsFile::new();
    let store = file.open();
    let batch = jobs(10);
    let ids: Vec<JobId> = batch.iter().map(|job| job.id()).collect();
    let lock = file.held_lock();
    let mut call = store.enqueue(batch);
    send(&mut call);
    drop(call);
    drop(lock);
    // Answered after the one before it.
    enqueue(&store, jobs(1)).await;
    assert!(store.get(ids).await.unwrap().iter().all(Option::is_some));
    assert_eq!(told(&store).await, counted(&file.external_connection()));
}

#[tokio::test]
async fn a_call_that_was_never_polled_does_nothing() {
    let file = JobsFile::new();
    let store = file.open();
    drop(store.enqueue(jobs(10)));
    enqueue(&store, jobs(1)).await;
    assert_eq!(walk(&store).await.unwrap().len(), 1);
}

#[tokio::test]
async fn dropping_the_store_finishes_what_is_waiting() {
    let file = JobsFile::new();
    let store = file.open();
    let lock = file.held_lock();
    let mut calls: Vec<Call<'_, _>> = (0..100).map(|_| store.enqueue(jobs(3))).collect();
    calls.iter_mut().for_each(send);
    drop(calls);
    let dropping = std::thread::spawn(move || drop(store));
    drop(lock);
    dropping.join().unwrap();
    assert_eq!(walk(&file.open()).await.unwrap().len(), 300);
    assert_sound(&file.external_connection());
}

/// Stops the writer's heart: panics there, and only there, when told to.
#[derive(Debug, Default)]
struct FatalClock {
    system: SystemClock,
    fatal: AtomicBool,
}

impl Clock for FatalClock {
    fn wall(&self) -> Timestamp {
        let writing = std::thread::current().name() == Some("steadfast-writer");
        assert!(!(writing && self.fatal.load(Ordering::SeqCst)), "planted: the writer dies here");
        self.system.wall()
    }

    fn elapsed(&self) -> Duration {
        self.system.elapsed()
    }
}

#[tokio::test]
async fn once_the_writer_has_died_every_write_says_so_and_none_hangs() {
    let file = JobsFile::new();
    let clock = Arc::new(FatalClock::default());
    let settings = SqliteSettings::at(&file.path).clock(clock.clone());
    let store = SqliteStore::open(settings).unwrap();
    let kept = enqueue(&store, jobs(5)).await;

    let lock = file.held_lock();
    let mut calls: Vec<Call<'_, _>> = (0..50).map(|_| store.enqueue(jobs(1))).collect();
    calls.iter_mut().for_each(send);
    clock.fatal.store(true, Ordering::SeqCst);
    drop(lock);
    for call in calls {
        let answer = tokio::time::timeout(DEADLINE, call).await.expect("it hangs");
        // It died with some of them in hand, and might have done so after the commit.
        let kind = answer.unwrap_err().kind();
        assert!(matches!(kind, StoreErrorKind::OutcomeUnknown | StoreErrorKind::Stopped), "{kind:?}");
    }
    let later = tokio::time::timeout(DEADLINE, store.enqueue(jobs(1))).await.expect("it hangs");
    assert_eq!(later.unwrap_err().kind(), StoreErrorKind::Stopped);
    let later = tokio::time::timeout(DEADLINE, store.claim(claim_of(1))).await.expect("it hangs");
    assert_eq!(later.unwrap_err().kind(), StoreErrorKind::Stopped);
    let error = store.ping().await.unwrap_err();
    assert!(error.kind() == StoreErrorKind::Stopped && error.is_final(), "{error:?}");
    assert!(store.get(kept.clone()).await.unwrap().iter().all(Option::is_some), "reads go on");

    drop(store);
    let store = file.open();
    assert_eq!(walk(&store).await.unwrap().len(), kept.len(), "nothing that was answered as failed is there");
    assert_eq!(told(&store).await, counted(&file.external_connection()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_that_is_aborted_while_it_enqueues_leaves_whole_batches_only() {
    let file = JobsFile::new();
    let store = file.open();
    for round in 1..=10_u64 {
        let before = store.commits();
        let running = store.clone();
        let task = tokio::spawn(async move {
            loop {
                running.enqueue(jobs(7)).await.unwrap();
            }
        });
        until("some are committed", || store.commits() > before + round).await;
        task.abort();
        let _ = task.await;
    }
    drop(store);
    let total = counted(&external_connection(&file.path)).values().sum::<u64>();
    assert!(total > 0 && total.is_multiple_of(7), "{total} jobs");
}
