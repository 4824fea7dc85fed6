//! Enqueue inside the caller's own transaction.

use std::sync::Arc;
use std::time::Duration;

use steadfast::job::{JobRequest, NewJob};
use steadfast::store::postgres::{PostgresSettings, PostgresStore};
use steadfast::store::{Store, StoreErrorKind};
use tokio::time::timeout;

use crate::support::postgres::Cluster;
use crate::work::{checked, claim, eventually, jobs, request, work_off};

#[tokio::test]
async fn rollback_leaves_no_job_and_commit_leaves_one_and_wakes_a_worker() {
    let database = Cluster::shared().await.database().await;
    let store = database.store().await;
    let mut theirs = database.admin().await;
    theirs.batch_execute("CREATE TABLE users (id bigint)").await.unwrap();
    let mut wakes = store.wake().listen();

    let mut transaction = theirs.transaction().await.unwrap();
    transaction.execute("INSERT INTO users VALUES (1)", &[]).await.unwrap();
    let enqueued = store.enqueue_in(&mut transaction, &jobs("default", 1)).await.unwrap();
    assert!(enqueued[0].created);
    transaction.rollback().await.unwrap();
    assert_eq!(store.claim(claim(10)).await.unwrap(), []);
    assert_eq!(store.get(vec![enqueued[0].job.id]).await.unwrap(), [None]);

    // Until the listening connection is up, a wake can be missed; polling is for that.
    eventually("a commit wakes a worker", async || {
        let mut transaction = theirs.transaction().await.unwrap();
        let enqueued = store.enqueue_in(&mut transaction, &jobs("default", 1)).await.unwrap();
        transaction.commit().await.unwrap();
        let woken = timeout(Duration::from_secs(1), wakes.woken()).await.is_ok();
        assert_eq!(work_off(&store, 10).await, [enqueued[0].job.id]);
        woken
    })
    .await;
}

#[tokio::test]
async fn a_known_key_answers_with_its_job_inside_a_transaction_too() {
    let database = Cluster::shared().await.database().await;
    let store = database.store().await;
    let mut theirs = database.admin().await;
    let keyed = || checked(JobRequest { idempotency_key: Some("k".into()), ..request("default") });
    let first = store.enqueue(vec![keyed()]).await.unwrap().remove(0);
    let mut transaction = theirs.transaction().await.unwrap();
    let answers = store.enqueue_in(&mut transaction, &[keyed(), checked(request("default"))]).await.unwrap();
    transaction.commit().await.unwrap();
    assert_eq!((answers[0].created, &answers[0].job), (false, &first.job));
    assert_eq!(work_off(&store, 10).await, [first.job.id, answers[1].job.id]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_in_a_transaction_that_stays_open_keeps_only_the_calls_with_that_key_waiting() {
    let database = Cluster::shared().await.database().await;
    let settings = PostgresSettings { statement_timeout: Duration::from_secs(4), ..database.settings() };
    let store = Arc::new(PostgresStore::open(settings).await.unwrap());
    let keyed = |key: &str| checked(JobRequest { idempotency_key: Some(key.into()), ..request("default") });
    let mut theirs = database.admin().await;
    let mut transaction = theirs.transaction().await.unwrap();
    store.enqueue_in(&mut transaction, &[keyed("a"), keyed("b")]).await.unwrap();
    let enqueue = |job: NewJob| {
        let store = store.clone();
        tokio::spawn(async move { store.enqueue(vec![job]).await })
    };
    let first = enqueue(keyed("a"));
    // While the first one waits, these two gather to one batch.
    let waits = "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
    let admin = database.admin().await;
    eventually("the first waits", async || !admin.query(waits, &[]).await.unwrap().is_empty()).await;
    let (second, third) = (enqueue(keyed("b")), enqueue(checked(request("default"))));
    assert_eq!(first.await.unwrap().unwrap_err().kind(), StoreErrorKind::Timeout);
    assert_eq!(second.await.unwrap().unwrap_err().kind(), StoreErrorKind::Timeout);
    assert!(third.await.unwrap().unwrap()[0].created);
    transaction.commit().await.unwrap();
    assert!(!store.enqueue(vec![keyed("b")]).await.unwrap()[0].created);
}

#[cfg(feature = "sqlx")]
#[tokio::test]
async fn the_same_holds_for_transactions_of_sqlx() {
    use sqlx::Connection;

    let database = Cluster::shared().await.database().await;
    let store = database.store().await;
    let mut theirs = sqlx::PgConnection::connect(&database.url).await.unwrap();
    let keyed = || {
        let request = JobRequest { idempotency_key: Some("k".into()), priority: Some(7), ..request("default") };
        checked(JobRequest { delay_ms: Some(60_000), ..request })
    };

    let mut transaction = theirs.begin().await.unwrap();
    store.enqueue_in_sqlx(&mut transaction, &[keyed()]).await.unwrap();
    transaction.rollback().await.unwrap();

    let mut transaction = theirs.begin().await.unwrap();
    let first = store.enqueue_in_sqlx(&mut transaction, &[keyed()]).await.unwrap().remove(0);
    transaction.commit().await.unwrap();
    assert!(first.created);
    assert_eq!(store.get(vec![first.job.id]).await.unwrap(), [Some(first.job.clone())]);

    let mut transaction = theirs.begin().await.unwrap();
    let again = store.enqueue_in_sqlx(&mut transaction, &[checked(request("default")), keyed()]).await.unwrap();
    transaction.commit().await.unwrap();
    assert_eq!((again[0].created, again[1].created, &again[1].job), (true, false, &first.job));
    assert_eq!(work_off(&store, 10).await, [again[0].job.id]);
}
