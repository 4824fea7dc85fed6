//! Commits are shared by whatever waits, never by a timer, and an answer never comes before its commit.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use steadfast::store::{Cancel, CatalogStore, JobStore, Pause};
use tokio::task::JoinSet;

use crate::jobs_file::{Call, JobsFile, checked, enqueue_one, job, jobs, send};

const CALLS: usize = 1000;
const TASKS: usize = 64;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_enqueues_of_64_tasks_are_each_answered_after_their_commit_and_share_commits() {
    let file = JobsFile::new();
    let store = file.open();
    let (next, before) = (Arc::new(AtomicUsize::new(0)), store.commits());
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        let (store, next, external) = (store.clone(), next.clone(), file.external_connection());
        tasks.spawn(async move {
            while next.fetch_add(1, Ordering::Relaxed) < CALLS {
                let id = enqueue_one(&store, job()).await;
                let seen: bool = external
                    .prepare_cached("SELECT EXISTS (SELECT 1 FROM jobs WHERE id = ?1)")
                    .unwrap()
                    .query_row([id.as_uuid().as_bytes()], |row| row.get(0))
                    .unwrap();
                assert!(seen, "job {id} was acknowledged before anybody else could see it");
            }
        });
    }
    tasks.join_all().await;
    let commits = store.commits() - before;
    assert_eq!(file.external_connection().query_row("SELECT count(*) FROM jobs", [], |row| row.get(0)), Ok(CALLS));
    assert!(commits < CALLS as u64 / 4, "{commits} commits for {CALLS} enqueues");
}

#[tokio::test]
async fn whatever_arrives_during_one_commit_is_the_next_one() {
    let file = JobsFile::new();
    let store = file.open();
    let before = store.commits();
    let lock = file.held_lock();
    let mut calls: Vec<Call<'_, _>> = (0..500).map(|_| store.enqueue(jobs(1))).collect();
    calls.iter_mut().for_each(send);
    assert_eq!(store.commits(), before);
    drop(lock);
    for call in calls {
        call.await.unwrap();
    }
    assert!(store.commits() - before <= 2, "500 calls took {} commits", store.commits() - before);
}

#[test]
fn one_enqueue_alone_is_one_commit_and_waits_for_no_timer() {
    let file = JobsFile::new();
    // The clock stands still and the runtime has no timers: whoever waited for either would wait for ever or panic.
    let (store, _clock) = file.open_held();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    for _ in 0..3 {
        let before = store.commits();
        runtime.block_on(store.enqueue(vec![checked(job())])).unwrap();
        assert_eq!(store.commits() - before, 1);
    }
}

#[tokio::test]
async fn verbs_of_every_sort_share_a_commit() {
    let file = JobsFile::new();
    let store = file.open();
    let id = enqueue_one(&store, job()).await;
    let before = store.commits();
    let lock = file.held_lock();
    let mut first = store.enqueue(jobs(1));
    send(&mut first);
    let mut enqueue = store.enqueue(jobs(10));
    let mut cancel = store.cancel(Cancel::new([id]));
    let mut pause = store.pause(Pause::new("default".parse().unwrap()));
    send(&mut enqueue);
    send(&mut cancel);
    send(&mut pause);
    drop(lock);
    let _ = (first.await.unwrap(), enqueue.await.unwrap(), cancel.await.unwrap());
    pause.await.unwrap();
    assert!(store.commits() - before <= 2);
}
