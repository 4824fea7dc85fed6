//! Callers on several runtimes: what one of them does to its own must not reach the others through the store.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use steadfast::store::postgres::PostgresStore;
use steadfast::store::{Beat, Extend, Extended, JobStore};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::changed::changed;
use crate::support::postgres::Cluster;
use crate::work::{claim, enqueue};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heartbeats_go_on_while_the_runtime_that_sent_the_first_one_is_blocked_and_after_it_has_ended() {
    let database = Cluster::shared().await.database().await;
    // Long, so that a connection that stands still is not replaced within this test.
    let settings = changed(database.settings(), |settings| settings.statement_timeout = Duration::from_secs(120));
    let store = Arc::new(PostgresStore::open(settings).await.unwrap());
    enqueue(&*store, "default", 1).await;
    let lease = store.claim(claim(1)).await.unwrap().leases.remove(0).key();
    let beat = move || Extend::new(vec![Beat::new(lease)]);
    let (blocked, is_blocked) = oneshot::channel();
    let (unblock, unblocked) = mpsc::channel::<()>();
    let theirs = std::thread::spawn({
        let store = store.clone();
        move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                store.extend(beat()).await.unwrap();
                blocked.send(()).unwrap();
                // A handler that does not give its thread back.
                unblocked.recv().unwrap();
            });
        }
    });
    is_blocked.await.unwrap();
    let goes_on = async || timeout(Duration::from_secs(30), store.extend(beat())).await.unwrap().unwrap();
    assert_eq!(goes_on().await, [Extended::Ok]);
    unblock.send(()).unwrap();
    tokio::task::block_in_place(|| theirs.join().unwrap());
    assert_eq!(goes_on().await, [Extended::Ok]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_is_dropped_takes_its_connections_along() {
    let database = Cluster::shared().await.database().await;
    let store = database.store().await;
    enqueue(&store, "default", 1).await;
    let admin = database.admin().await;
    let connections = async || -> i64 {
        let sql = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'steadfast'";
        admin.query_one(sql, &[]).await.unwrap().get(0)
    };
    assert!(connections().await > 0);
    drop(store);
    crate::work::eventually("no connection is left", async || connections().await == 0).await;
}
