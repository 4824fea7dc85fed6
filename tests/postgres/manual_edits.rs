//! What manual edits and locks held by other programs do to one row, and that it stays with that row.

use std::time::Duration;

use steadfast::store::postgres::PostgresStore;
use steadfast::store::{Beat, Extend, Extended, JobStore, Settled, StatsRequest, StoreErrorKind};
use tokio::time::Instant;

use crate::changed::changed;
use crate::support::postgres::Cluster;
use crate::work::{claim, done, enqueue, settle_all, work_off};

#[tokio::test]
async fn a_job_due_since_before_all_time_is_claimed_first() {
    let database = Cluster::shared().await.database().await;
    let store = database.store().await;
    let ids = enqueue(&store, "default", 3).await;
    let admin = database.admin().await;
    admin.execute("UPDATE jobs SET run_at = '-infinity' WHERE id = $1", &[ids[2].as_uuid()]).await.unwrap();
    assert!(store.stats(StatsRequest::new()).await.unwrap().queues.values().all(|queue| queue.oldest_ready.is_some()));
    assert_eq!(work_off(&store, 1).await, [ids[2], ids[0], ids[1]]);
}

#[tokio::test]
async fn numbers_that_would_make_times_overflow_are_refused_by_the_table() {
    let database = Cluster::shared().await.database().await;
    let store = database.store().await;
    enqueue(&store, "default", 1).await;
    let admin = database.admin().await;
    for damage in ["timeout_ms = 9223372036854775807", "timeout_ms = 0", "lease_ms = 1e18", "priority = 101"] {
        let error = admin.execute(&format!("UPDATE jobs SET {damage}"), &[]).await.unwrap_err();
        assert!(error.as_db_error().unwrap().message().contains("jobs_ranges"), "{damage}: {error}");
    }
}

#[tokio::test]
async fn one_row_that_is_held_locked_costs_no_other_lease_its_heartbeat() {
    let database = Cluster::shared().await.database().await;
    // Then one that waits for the lock waits for a quarter of a minute.
    let settings = changed(database.settings(), |settings| settings.statement_timeout = Duration::from_secs(60));
    let store = PostgresStore::open(settings).await.unwrap();
    enqueue(&store, "default", 3).await;
    let leases = store.claim(claim(3)).await.unwrap().leases;
    let mut admin = database.admin().await;
    let holder = admin.transaction().await.unwrap();
    holder.execute("SELECT FROM jobs WHERE id = $1 FOR UPDATE", &[leases[1].job().id.as_uuid()]).await.unwrap();
    let beats = || leases.iter().map(|lease| Beat::new(lease.key()));
    let began = Instant::now();
    let answers = store.extend(Extend::new(beats()).lease(Duration::from_secs(3000))).await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(10), "it waits for the lock: {:?}", began.elapsed());
    assert_eq!(answers, [Extended::Ok; 3]);
    let ends = async || {
        let jobs = store.get(leases.iter().map(|lease| lease.job().id).collect()).await.unwrap();
        jobs.into_iter()
            .zip(&leases)
            .map(|(job, lease)| job.unwrap().lease_expires_at.unwrap() > lease.job().lease_expires_at.unwrap())
            .collect::<Vec<_>>()
    };
    assert_eq!(ends().await, [true, false, true]);
    holder.rollback().await.unwrap();
    store.extend(Extend::new(beats()).lease(Duration::from_secs(3000))).await.unwrap();
    assert_eq!(ends().await, [true; 3]);
}

#[tokio::test]
async fn one_row_that_is_held_locked_keeps_only_its_own_settle_waiting() {
    let database = Cluster::shared().await.database().await;
    let settings = changed(database.settings(), |settings| settings.statement_timeout = Duration::from_secs(4));
    let store = PostgresStore::open(settings).await.unwrap();
    enqueue(&store, "default", 3).await;
    let leases = store.claim(claim(3)).await.unwrap().leases;
    let mut admin = database.admin().await;
    let holder = admin.transaction().await.unwrap();
    holder.execute("SELECT FROM jobs WHERE id = $1 FOR UPDATE", &[leases[1].job().id.as_uuid()]).await.unwrap();
    let answers = store.settle(leases.iter().map(done).collect()).await.unwrap();
    assert_eq!(answers[0].as_ref().unwrap(), &Settled::Recorded);
    assert_eq!(answers[1].as_ref().unwrap_err().kind(), StoreErrorKind::Timeout);
    assert_eq!(answers[2].as_ref().unwrap(), &Settled::Recorded);
    holder.rollback().await.unwrap();
    settle_all(&store, &leases).await.unwrap();
}
