//! Counts: never counted, never wrong, whoever adds them up and whatever is still open meanwhile.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use steadfast::job::{NewJob, Outcome, Status};
use steadfast::store::postgres::PostgresStore;
use steadfast::store::{Cancel, Delete, JobStore, Prune, Reap, Redrive, Settle, StatsRequest};
use tokio_postgres::Client;

use crate::changed::changed;
use crate::support::postgres::{Cluster, MISCOUNTED};
use crate::work::{checked, claim, count, enqueue, request, settle_all};

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

async fn assert_counted_by_kind(admin: &Client) {
    let rows = admin.query(MISCOUNTED, &[]).await.unwrap();
    let miscounted: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
    assert!(miscounted.is_empty(), "{miscounted:#?}");
}

/// Two kinds in turns.
fn of_two_kinds(queue: &str, count: usize) -> Vec<NewJob> {
    let job = |n: usize| checked(changed(request(queue), |request| request.kind = ["welcome", "report"][n % 2].into()));
    (0..count).map(job).collect()
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
    store.enqueue_in(&mut early, &of_two_kinds("default", 3)).await.unwrap();
    enqueue(&store, "default", 5).await;
    let leases = store.claim(claim(4)).await.unwrap().leases;
    settle_all(&store, &leases).await.unwrap();
    roll_up(&store).await;
    assert_eq!(told(&store).await, recounted(&admin).await);
    assert_counted_by_kind(&admin).await;
    early.commit().await.unwrap();
    // Seen by the one that had rolled up past it, rolled up by it, and seen by one that never has.
    assert_eq!(count(&store, "default", Status::Queued).await, 4);
    roll_up(&store).await;
    let loose: i64 = admin.query_one("SELECT count(*) FROM count_deltas", &[]).await.unwrap().get(0);
    assert_eq!(loose, 0);
    assert_eq!(told(&store).await, recounted(&admin).await);
    assert_eq!(told(&other).await, recounted(&admin).await);
    assert_counted_by_kind(&admin).await;
}

#[tokio::test]
async fn every_verb_that_moves_jobs_counts_them_by_kind_and_all_kinds_together_are_what_stats_tells() {
    let database = Cluster::shared().await.database().await;
    let (store, admin) = (database.store().await, database.admin().await);
    let mut ids = Vec::new();
    for batch in [1, 30] {
        let stored = store.enqueue(of_two_kinds("default", batch)).await.unwrap();
        ids.extend(stored.into_iter().map(|one| one.job.id));
        assert_counted_by_kind(&admin).await;
    }
    let leases = store.claim(claim(20)).await.unwrap().leases;
    assert_counted_by_kind(&admin).await;
    settle_all(&store, &leases[..8]).await.unwrap();
    assert_counted_by_kind(&admin).await;
    roll_up(&store).await;
    let failed = leases[8..14].iter().map(|lease| Settle::new(lease.key(), Outcome::failed_permanently("e")));
    store.settle(failed.collect()).await.unwrap();
    assert_counted_by_kind(&admin).await;
    admin.execute("UPDATE jobs SET attempts = max_attempts WHERE status = 'queued'", &[]).await.unwrap();
    assert!(store.claim(claim(3)).await.unwrap().leases.is_empty(), "no attempt is left");
    assert_counted_by_kind(&admin).await;
    admin.execute("UPDATE jobs SET attempts = 0 WHERE status = 'queued'", &[]).await.unwrap();
    store.cancel(Cancel::new(ids.clone())).await.unwrap();
    assert_counted_by_kind(&admin).await;
    store.redrive(Redrive::new(ids[20..].to_vec())).await.unwrap();
    assert_counted_by_kind(&admin).await;
    roll_up(&store).await;
    store.delete(Delete::new(ids[..10].to_vec())).await.unwrap();
    assert_counted_by_kind(&admin).await;
    store.prune(Prune::keeping(Duration::ZERO).limit(1000)).await.unwrap();
    roll_up(&store).await;
    assert_counted_by_kind(&admin).await;
    let sums =
        "SELECT queue || ' ' || status, sum(n)::bigint FROM kind_counts GROUP BY queue, status HAVING sum(n) <> 0";
    let sums = admin.query(sums, &[]).await.unwrap();
    let sums: Counts = sums.iter().map(|row| (row.get(0), row.get::<_, i64>(1) as u64)).collect();
    assert_eq!((sums, told(&store).await), (recounted(&admin).await, recounted(&admin).await));
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
                store.enqueue(of_two_kinds(queue, 3)).await.unwrap();
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
    assert_counted_by_kind(&database.admin().await).await;
    let truth = recounted(&database.admin().await).await;
    for store in stores {
        assert_eq!(told(&store).await, truth);
    }
}
