//! The server restarts, dies, and throws everybody out, while eight workers run.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use steadfast::job::{JobId, Status};
use steadfast::store::postgres::PostgresStore;
use steadfast::store::{JobStore, Reap, Settled, StoreErrorKind};
use tokio::time::{Instant, sleep, timeout};

use crate::changed::changed;
use crate::support::postgres::Cluster;
use crate::work::{claim, done, enqueue, eventually, jobs};

/// Producers, eight workers and a reaper, who take every error as a reason to try again.
struct Factory {
    store: Arc<PostgresStore>,
    producing: AtomicBool,
    stopped: AtomicBool,
    acknowledged: Mutex<HashSet<JobId>>,
    settled: AtomicUsize,
}

impl Factory {
    async fn produce(self: Arc<Self>) {
        while self.producing.load(Ordering::Relaxed) {
            match self.store.enqueue(jobs("default", 5)).await {
                Ok(enqueued) => self.acknowledged.lock().unwrap().extend(enqueued.iter().map(|one| one.job.id)),
                Err(error) => assert!(error.is_retryable(), "{error:?}"),
            }
            sleep(Duration::from_millis(5)).await;
        }
    }

    async fn work(self: Arc<Self>) {
        while !self.stopped.load(Ordering::Relaxed) {
            let wish = claim(10).lease(Duration::from_secs(2));
            match self.store.claim(wish).await {
                Ok(claimed) if claimed.leases.is_empty() => sleep(Duration::from_millis(20)).await,
                Ok(claimed) => match self.store.settle(claimed.leases.iter().map(done).collect()).await {
                    Ok(answers) => {
                        let recorded = answers.into_iter().filter(|answer| matches!(answer, Ok(Settled::Recorded)));
                        self.settled.fetch_add(recorded.count(), Ordering::Relaxed);
                    }
                    Err(error) => assert!(error.is_retryable(), "{error:?}"),
                },
                Err(error) => {
                    assert!(error.is_retryable(), "{error:?}");
                    sleep(Duration::from_millis(20)).await;
                }
            }
        }
    }

    async fn reap(self: Arc<Self>) {
        while !self.stopped.load(Ordering::Relaxed) {
            if let Err(error) = self.store.reap(Reap::up_to(1000)).await {
                assert!(error.is_retryable(), "{error:?}");
            }
            sleep(Duration::from_millis(100)).await;
        }
    }

    /// Waits until the workers have settled this many more.
    async fn carries_on(&self, more: usize) {
        let target = self.settled.load(Ordering::Relaxed) + more;
        eventually("the workers carry on", async || self.settled.load(Ordering::Relaxed) >= target).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_and_workers_carry_on_through_restarts_kills_and_terminated_backends() {
    let cluster = Cluster::start(&[]).await;
    let database = cluster.database().await;
    let factory = Arc::new(Factory {
        store: Arc::new(database.store().await),
        producing: AtomicBool::new(true),
        stopped: AtomicBool::new(false),
        acknowledged: Mutex::default(),
        settled: AtomicUsize::new(0),
    });
    let mut tasks = vec![tokio::spawn(factory.clone().reap())];
    tasks.extend((0..2).map(|_| tokio::spawn(factory.clone().produce())));
    tasks.extend((0..8).map(|_| tokio::spawn(factory.clone().work())));
    factory.carries_on(100).await;
    for _ in 0..2 {
        let admin = database.admin().await;
        let terminate = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                         WHERE datname = current_database() AND pid <> pg_backend_pid()";
        admin.execute(terminate, &[]).await.unwrap();
        factory.carries_on(100).await;
        tokio::task::block_in_place(|| cluster.restart_immediately());
        factory.carries_on(100).await;
        tokio::task::block_in_place(|| cluster.kill_and_restart());
        factory.carries_on(100).await;
    }
    factory.producing.store(false, Ordering::Relaxed);
    let acknowledged = || factory.acknowledged.lock().unwrap().iter().copied().collect::<Vec<_>>();
    eventually("everything acknowledged has succeeded", async || {
        let ids = acknowledged();
        let Ok(jobs) = factory.store.get(ids).await else { return false };
        jobs.into_iter().all(|job| job.expect("an acknowledged job is gone").status == Status::Succeeded)
    })
    .await;
    factory.stopped.store(true, Ordering::Relaxed);
    for task in tasks {
        timeout(Duration::from_secs(60), task).await.unwrap().unwrap();
    }
    assert!(acknowledged().len() > 100);
}

#[tokio::test]
async fn a_database_that_stalls_makes_calls_time_out_and_everything_goes_on_afterwards() {
    let database = Cluster::shared().await.database().await;
    let settings = changed(database.settings(), |settings| settings.statement_timeout = Duration::from_secs(2));
    let store = PostgresStore::open(settings).await.unwrap();
    enqueue(&store, "default", 1).await;
    let mut admin = database.admin().await;
    let transaction = admin.transaction().await.unwrap();
    transaction.batch_execute("LOCK TABLE jobs").await.unwrap();
    let began = Instant::now();
    let (enqueued, claimed) = tokio::join!(store.enqueue(jobs("default", 1)), store.claim(claim(1)));
    assert_eq!(enqueued.unwrap_err().kind(), StoreErrorKind::Timeout);
    assert_eq!(claimed.unwrap_err().kind(), StoreErrorKind::Timeout);
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    transaction.rollback().await.unwrap();
    assert_eq!(store.claim(claim(10)).await.unwrap().leases.len(), 1);
}
