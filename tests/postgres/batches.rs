//! Calls that share a commit, and counts that are never counted.

use std::sync::Arc;
use std::time::Duration;

use steadfast::job::Status;
use steadfast::store::{Delete, JobStore, NotStored, Prune, Reap, StatsRequest};

use crate::changed::changed;
use crate::support::postgres::Cluster;
use crate::work::{checked, claim, count, enqueue, request, settle_all, work_off};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_calls_with_one_key_make_one_job_and_get_one_answer() {
    let database = Cluster::shared().await.database().await;
    let stores = [Arc::new(database.store().await), Arc::new(database.store().await)];
    let calls = (0..50).map(|n| {
        let store = stores[n % 2].clone();
        let job = checked(request("default").idempotency_key("welcome-42"));
        tokio::spawn(async move { store.enqueue(vec![job]).await.unwrap().remove(0) })
    });
    let mut answers = Vec::new();
    for call in calls.collect::<Vec<_>>() {
        answers.push(call.await.unwrap());
    }
    assert_eq!(answers.iter().filter(|answer| answer.created).count(), 1);
    assert!(answers.iter().all(|answer| answer.job == answers[0].job));
    assert_eq!(count(&*stores[0], "default", Status::Queued).await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_single_enqueues_share_commits() {
    let database = Cluster::shared().await.database().await;
    let store = Arc::new(database.store().await);
    let admin = database.admin().await;
    let commits = async || -> i64 {
        admin.batch_execute("SELECT pg_stat_clear_snapshot()").await.unwrap();
        // Each insert statement leaves one change of the counts behind.
        admin.query_one("SELECT count(*) FROM count_deltas", &[]).await.unwrap().get(0)
    };
    let calls = (0..500).map(|_| {
        let store = store.clone();
        tokio::spawn(async move { store.enqueue(vec![checked(request("default"))]).await.unwrap() })
    });
    for call in calls.collect::<Vec<_>>() {
        call.await.unwrap();
    }
    assert_eq!(count(&*store, "default", Status::Queued).await, 500);
    assert!(commits().await < 250, "{} commits for 500 calls", commits().await);
}

#[tokio::test]
async fn counts_are_the_same_before_and_after_they_are_rolled_up() {
    let database = Cluster::shared().await.database().await;
    let store = database.store().await;
    enqueue(&store, "a", 30).await;
    enqueue(&store, "b", 20).await;
    let leases = store.claim(claim(15)).await.unwrap().leases;
    settle_all(&store, &leases[..5]).await.unwrap();
    let before = store.stats(StatsRequest::new()).await.unwrap();
    store.reap(Reap::up_to(100)).await.unwrap();
    let admin = database.admin().await;
    let loose: i64 = admin.query_one("SELECT count(*) FROM count_deltas", &[]).await.unwrap().get(0);
    assert_eq!(loose, 0);
    let counts = |stats: &steadfast::store::Stats| {
        stats.queues.iter().map(|(name, queue)| (name.clone(), queue.counts.clone())).collect::<Vec<_>>()
    };
    assert_eq!(counts(&store.stats(StatsRequest::new()).await.unwrap()), counts(&before));
    let truth = "SELECT queue || ' ' || status || ' ' || count(*) FROM jobs GROUP BY queue, status ORDER BY 1";
    let truth: Vec<String> = admin.query(truth, &[]).await.unwrap().iter().map(|row| row.get(0)).collect();
    let mut told: Vec<String> = before
        .queues
        .iter()
        .flat_map(|(name, queue)| queue.counts.iter().map(move |(status, n)| format!("{name} {status} {n}")))
        .collect();
    told.sort();
    assert_eq!(told, truth);
}

#[tokio::test]
async fn queues_that_are_no_longer_used_leave_no_counts_behind_once_pruned_nor_do_their_kinds() {
    let database = Cluster::shared().await.database().await;
    let store = database.store().await;
    let admin = database.admin().await;
    let gone = enqueue(&store, "gone", 3).await;
    work_off(&store, 10).await;
    store.reap(Reap::up_to(1)).await.unwrap();
    enqueue(&store, "kept", 2).await;
    store.delete(Delete::new(gone)).await.unwrap();
    store.reap(Reap::up_to(1)).await.unwrap();
    let queues = async || -> Vec<String> {
        let sql =
            "SELECT DISTINCT queue FROM counts UNION SELECT DISTINCT queue || ' by kind' FROM kind_counts ORDER BY 1";
        admin.query(sql, &[]).await.unwrap().iter().map(|row| row.get(0)).collect()
    };
    assert_eq!(queues().await, ["gone", "gone by kind", "kept", "kept by kind"]);
    store.prune(Prune::keeping(Duration::from_secs(3600))).await.unwrap();
    assert_eq!(queues().await, ["kept", "kept by kind"]);
    assert_eq!(count(&store, "kept", Status::Queued).await, 2);
}

/// Each call wants both keys, for jobs of its own; which of them comes first under a key is decided by the ids.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_calls_that_want_the_same_two_keys_for_different_jobs_one_is_stored_whole_and_the_others_are_refused() {
    let database = Cluster::shared().await.database().await;
    let store = Arc::new(database.store().await);
    for round in 0..5 {
        let calls = (0..20).map(|n| {
            let job = |key: &str| {
                checked(changed(request("default"), |request| {
                    request.kind = format!("kind-{n}");
                    request.idempotency_key = Some(format!("{key}-{round}"));
                }))
            };
            // Made in turns, so that their ids are.
            let jobs = if n % 2 == 0 { vec![job("a"), job("b")] } else { vec![job("b"), job("a")] };
            let store = store.clone();
            tokio::spawn(async move { store.enqueue(jobs).await })
        });
        let mut stored = 0;
        for call in calls.collect::<Vec<_>>() {
            match call.await.unwrap() {
                Ok(answers) => stored += answers.iter().filter(|answer| answer.created).count(),
                Err(NotStored::KeysTaken(taken)) => assert!(!taken.is_empty()),
                Err(error) => panic!("{error:?}"),
            }
        }
        assert_eq!(stored, 2);
        assert_eq!(count(&*store, "default", Status::Queued).await, 2 * (round + 1));
    }
}
