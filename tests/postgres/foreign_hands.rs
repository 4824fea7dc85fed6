//! What a foreign hand in the database can do to one row, and that it stays with that row.

use steadfast::store::Store;

use crate::support::postgres::Cluster;
use crate::work::{enqueue, work_off};

#[tokio::test]
async fn a_job_due_since_before_all_time_is_claimed_first() {
    let database = Cluster::shared().await.database().await;
    let store = database.store().await;
    let ids = enqueue(&store, "default", 3).await;
    let admin = database.admin().await;
    admin.execute("UPDATE jobs SET run_at = '-infinity' WHERE id = $1", &[ids[2].as_uuid()]).await.unwrap();
    assert!(store.stats().await.unwrap().queues.values().all(|queue| queue.oldest_ready.is_some()));
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
