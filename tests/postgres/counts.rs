//! Counts: never counted, never wrong, whoever adds them up and whatever is still open meanwhile.

use std::collections::BTreeMap;
use std::sync::Arc;

use steadfast::job::Status;
use steadfast::store::postgres::PostgresStore;
use steadfast::store::{JobStore, Reap, StatsRequest};
use tokio_postgres::Client;

use crate::support::postgres::Cluster;
use crate::work::{claim, count, enqueue, jobs, settle_all};

type Counts = BTreeMap<String, u64>;

async fn told(store: &PostgresStore) -> Counts {
    let stats = store.stats(StatsRequest::new()).await.unwrap();
    let of = |(queue, of): (_, &steadfast::store::QueueStats)| {
        of.counts.iter().map(|(status, n)| (format!("{queue} {status}"), *n)).collect::<Vec<_>>()
    };
    stats.queues.iter().flat_map(of).collect()
}

async fn recounted(admin: &Client) -> Counts {
    let sql = "SELECT queue || ' ' || status, count(*) FROM jobs GROUP BY queue, status";
    let rows = admin.query(sql, &[]).await.unwrap();
    rows.iter().map(|row| (row.get(0), row.get::<_, i64>(1) as u64)).collect()
}

/// Rolls the changes up, as often as it takes a mark to get past them.
async fn roll_up(store: &PostgresStore) {
    for _ in 0..3 {
        store.reap(Reap::up_to(100)).await.unwrap();
    }
}

#[tokio::test]
async fn what_a_transaction_that_was_open_while_others_were_rolled_up_adds_is_counted() {
    let database = Cluster::shared().await.database().await;
    let (store, other) = (database.store().await, database.store().await);
    let (mut theirs, admin) = (database.admin().await, database.admin().await);
    let mut early = theirs.transaction().await.unwrap();
    store.enqueue_in(&mut early, &jobs("default", 3)).await.unwrap();
    enqueue(&store, "default", 5).await;
    let leases = store.claim(claim(4)).await.unwrap().leases;
    settle_all(&store, &leases).await.unwrap();
    roll_up(&store).await;
    assert_eq!(told(&store).await, recounted(&admin).await);
    early.commit().await.unwrap();
    // Seen by the one that had rolled up past it, rolled up by it, and seen by one that never has.
    assert_eq!(count(&store, "default", Status::Queued).await, 4);
    roll_up(&store).await;
    let loose: i64 = admin.query_one("SELECT count(*) FROM count_deltas", &[]).await.unwrap().get(0);
    assert_eq!(loose, 0);
    assert_eq!(told(&store).await, recounted(&admin).await);
    assert_eq!(told(&other).await, recounted(&admin).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_change_is_lost_or_counted_twice_by_four_processes_that_roll_up_while_jobs_move() {
    let database = Cluster::shared().await.database().await;
    let mut moving = Vec::new();
    for n in 0..4 {
        let store = Arc::new(database.store().await);
        moving.push(tokio::spawn(async move {
            let queue = ["a", "b"][n % 2];
            for _ in 0..25 {
                enqueue(&*store, queue, 3).await;
                let leases = store.claim(claim(2)).await.unwrap().leases;
                settle_all(&*store, &leases).await.unwrap();
                store.reap(Reap::up_to(10)).await.unwrap();
                store.stats(StatsRequest::new()).await.unwrap();
            }
            store
        }));
    }
    let mut stores = Vec::new();
    for store in moving {
        stores.push(store.await.unwrap());
    }
    let truth = recounted(&database.admin().await).await;
    for store in stores {
        assert_eq!(told(&store).await, truth);
    }
}
