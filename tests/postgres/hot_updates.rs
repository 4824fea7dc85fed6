//! A claim and a heartbeat write no index entry: no index key or predicate names a column that they change (ADR 11).

use std::time::Duration;

use steadfast::job::Progress;
use steadfast::store::{Beat, Extend, JobStore};
use tokio_postgres::Client;

use crate::support::postgres::Cluster;
use crate::work::{claim, enqueue, eventually};

/// What `claim.sql` and `extend.sql` set for a plain job.
const CHANGED: [&str; 11] = [
    "status",
    "attempts",
    "worker",
    "lease_token",
    "lease_ms",
    "lease_expires_at",
    "started_at",
    "ended_at",
    "outcome",
    "progress",
    "updated_at",
];

/// Updates of `jobs`, and how many of them were HOT.
async fn updates(admin: &Client) -> (i64, i64) {
    let sql = "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables
               WHERE relname = 'jobs' AND schemaname = 'public'";
    let row = admin.query_one(sql, &[]).await.unwrap();
    (row.get(0), row.get(1))
}

#[tokio::test]
async fn no_index_of_jobs_names_a_column_that_a_claim_or_a_heartbeat_changes() {
    let database = Cluster::shared().await.database().await;
    let admin = database.admin().await;
    // All that the server itself holds to keep an update from being HOT: keys, expressions, predicates.
    let sql = "SELECT c.relname, a.attname
               FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
               JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum > 0
               WHERE i.indrelid = 'public.jobs'::regclass
                 AND (a.attnum = ANY (i.indkey)
                      OR pg_get_expr(i.indexprs, i.indrelid) ~ ('\\m' || a.attname || '\\M')
                      OR pg_get_expr(i.indpred, i.indrelid) ~ ('\\m' || a.attname || '\\M'))";
    let rows = admin.query(sql, &[]).await.unwrap();
    let named: Vec<(String, String)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    assert!(named.contains(&("jobs_ready".into(), "finished_at".into())), "predicates are seen: {named:?}");
    let bad: Vec<_> = named.iter().filter(|(_, column)| CHANGED.contains(&column.as_str())).collect();
    assert!(bad.is_empty(), "a claim or a heartbeat would write index entries: {bad:?}");
}

#[tokio::test]
async fn claims_and_heartbeats_are_hot_updates() {
    let database = Cluster::shared().await.database().await;
    let (store, admin) = (database.store().await, database.admin().await);
    enqueue(&store, "default", 2000).await;
    assert_eq!(updates(&admin).await, (0, 0));
    let mut leases = Vec::new();
    for _ in 0..4 {
        leases.extend(store.claim(claim(500)).await.unwrap().leases);
    }
    assert_eq!(leases.len(), 2000);
    // Sessions report when they are idle, once a second at most.
    eventually("the claims are counted", async || updates(&admin).await.0 == 2000).await;
    assert_eq!(updates(&admin).await, (2000, 2000));
    // One on each page, where there is room for it whether or not old versions could be pruned.
    let beats = leases.iter().step_by(20).map(|lease| Beat::new(lease.key()).progress(Progress::new(Some(1), None)));
    store.extend(Extend::new(beats).lease(Duration::from_secs(60))).await.unwrap();
    eventually("the beats are counted", async || updates(&admin).await.0 == 2100).await;
    assert_eq!(updates(&admin).await, (2100, 2100));
}
