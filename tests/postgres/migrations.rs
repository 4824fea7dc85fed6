//! Migrating: at once, halfway, again, in another schema.

use steadfast::job::Status;
use steadfast::store::Store;
use steadfast::store::postgres::{PostgresStore, migrate};

use crate::changed::changed;
use crate::support::postgres::Cluster;
use crate::work::{count, enqueue, eventually, work_off};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_migrators_at_once_both_end_well_and_each_step_is_done_once() {
    let database = Cluster::shared().await.empty_database().await;
    let settings = database.settings();
    let (a, b) = tokio::join!(migrate(&settings), migrate(&settings));
    let versions = database.admin().await.query_one("SELECT count(*) FROM steadfast_migrations", &[]).await.unwrap();
    assert_eq!((a.unwrap() + b.unwrap()) as i64, versions.get::<_, i64>(0));
    PostgresStore::open(settings.clone()).await.unwrap().ping().await.unwrap();
    assert_eq!(migrate(&settings).await.unwrap(), 0, "doing it again changes nothing");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_migration_killed_halfway_leaves_nothing_and_the_next_one_completes() {
    let database = Cluster::shared().await.empty_database().await;
    let settings = database.settings();
    // A table of the same name that is not committed makes the migration stop in its middle.
    let mut blocker = database.admin().await;
    let transaction = blocker.transaction().await.unwrap();
    transaction.batch_execute("CREATE TABLE kinds ()").await.unwrap();
    let migration = tokio::spawn({
        let settings = settings.clone();
        async move { migrate(&settings).await }
    });
    let admin = database.admin().await;
    let waiting = "SELECT pid FROM pg_stat_activity
                   WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%CREATE TABLE%'";
    eventually("the migration waits in its middle", async || admin.query_opt(waiting, &[]).await.unwrap().is_some())
        .await;
    admin.execute(&format!("SELECT pg_terminate_backend(pid) FROM ({waiting}) w"), &[]).await.unwrap();
    let error = migration.await.unwrap().unwrap_err();
    assert!(error.to_string().contains("migration 1"), "{error}");
    transaction.rollback().await.unwrap();
    let tables = "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'";
    assert_eq!(admin.query_one(tables, &[]).await.unwrap().get::<_, i64>(0), 0, "something was left half done");
    assert!(migrate(&settings).await.unwrap() > 0);
    PostgresStore::open(settings).await.unwrap();
}

#[tokio::test]
async fn jobs_can_live_in_a_schema_of_their_own_beside_another() {
    let database = Cluster::shared().await.database().await;
    let settings = changed(database.settings(), |settings| settings.schema = "Jobs of \"Ours\"".into());
    let error = PostgresStore::open(settings.clone()).await.unwrap_err().to_string();
    assert!(error.contains("run `steadfast migrate`"), "{error}");
    assert!(migrate(&settings).await.unwrap() > 0);
    let (ours, public) = (PostgresStore::open(settings).await.unwrap(), database.store().await);
    enqueue(&ours, "default", 3).await;
    assert_eq!(work_off(&public, 10).await, []);
    assert_eq!(work_off(&ours, 10).await.len(), 3);
    assert_eq!(count(&ours, "default", Status::Succeeded).await, 3);
}
