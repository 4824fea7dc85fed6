//! Low-water marks only hurry: what another process puts below them is found all the same.

use std::time::Duration;

use steadfast::job::QueueName;
use steadfast::store::postgres::{PostgresSettings, PostgresStore};
use steadfast::store::{CatalogStore, JobStore, Pause, Resume, StoreErrorKind};
use tokio::time::Instant;

use crate::support::postgres::{Cluster, PASSWORD};
use crate::work::{checked, claim, enqueue, eventually, request};

#[tokio::test]
async fn a_claim_that_comes_up_short_finds_what_another_process_put_below_its_mark() {
    let database = Cluster::shared().await.database().await;
    let (here, there) = (database.store().await, database.store().await);
    let early = checked(request("default"));
    enqueue(&here, "default", 10).await;
    assert_eq!(here.claim(claim(5)).await.unwrap().leases.len(), 5);
    there.enqueue(vec![early.clone()]).await.unwrap();
    // Put below the low-water mark by a manual edit, as a transaction that was slow to commit does.
    let admin = database.admin().await;
    let sql = "UPDATE jobs SET run_at = now() - interval '1 hour' WHERE id = $1";
    admin.execute(sql, &[early.id().as_uuid()]).await.unwrap();
    let claimed = here.claim(claim(100)).await.unwrap().leases;
    assert_eq!(claimed.len(), 6);
    assert_eq!(claimed[0].job().id, early.id());
}

#[tokio::test]
async fn while_there_is_other_work_a_higher_priority_of_another_process_is_found_within_seconds() {
    let database = Cluster::shared().await.database().await;
    let (here, there) = (database.store().await, database.store().await);
    enqueue(&here, "default", 2000).await;
    assert_eq!(here.claim(claim(1)).await.unwrap().leases.len(), 1);
    let urgent = checked(request("default").priority(50));
    there.enqueue(vec![urgent.clone()]).await.unwrap();
    let began = Instant::now();
    eventually("the urgent job is claimed", async || {
        here.claim(claim(1)).await.unwrap().leases[0].job().id == urgent.id()
    })
    .await;
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_pause_in_one_process_binds_the_others_at_once() {
    let database = Cluster::shared().await.database().await;
    let (here, there) = (database.store().await, database.store().await);
    enqueue(&here, "default", 10).await;
    assert_eq!(here.claim(claim(1)).await.unwrap().leases.len(), 1);
    there.pause(Pause::new(QueueName::default())).await.unwrap();
    assert_eq!(here.claim(claim(1)).await.unwrap().leases, []);
    there.resume(Resume::new(QueueName::default())).await.unwrap();
    assert_eq!(here.claim(claim(1)).await.unwrap().leases.len(), 1);
}

#[tokio::test]
async fn jobs_that_another_claimer_holds_locked_do_not_hide_those_of_another_lane() {
    let database = Cluster::shared().await.database().await;
    let store = database.store().await;
    let urgent = request("default").priority(50);
    store.enqueue((0..5).map(|_| checked(urgent.clone())).collect()).await.unwrap();
    enqueue(&store, "default", 5).await;
    let mut admin = database.admin().await;
    let transaction = admin.transaction().await.unwrap();
    transaction.execute("SELECT FROM jobs WHERE priority = 50 FOR UPDATE", &[]).await.unwrap();
    assert_eq!(store.claim(claim(5)).await.unwrap().leases.len(), 5);
}

#[tokio::test]
async fn what_a_claim_has_leased_is_handed_over_even_if_it_cannot_look_for_more() {
    let cluster = Cluster::shared().await;
    let database = cluster.database().await;
    let admin = database.admin().await;
    // Somebody whose looks can be made to fail, and nothing else: a policy of the table knows a look by its first words.
    let sql = format!(
        "CREATE ROLE shortsighted LOGIN PASSWORD '{PASSWORD}';
         GRANT ALL ON ALL TABLES IN SCHEMA public TO shortsighted;
         GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO shortsighted;
         CREATE TABLE public.blind ();
         GRANT SELECT ON public.blind TO shortsighted;
         CREATE FUNCTION public.may_see() RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN
             IF current_query() LIKE '-- lanes%' AND EXISTS (SELECT FROM public.blind) THEN
                 RAISE query_canceled;
             END IF;
             RETURN true;
         END $$;
         ALTER TABLE jobs ENABLE ROW LEVEL SECURITY;
         CREATE POLICY sight ON jobs USING (public.may_see());"
    );
    admin.batch_execute(&sql).await.unwrap();
    let url = database.url.replace("//steadfast:", "//shortsighted:");
    let store = PostgresStore::open(PostgresSettings::new(&url)).await.unwrap();
    let ids = enqueue(&store, "default", 2).await;
    let later = request("default").delay_ms(3_600_000);
    store.enqueue(vec![checked(later)]).await.unwrap();
    assert_eq!(store.claim(claim(1)).await.unwrap().leases[0].job().id, ids[0]);
    admin.batch_execute("INSERT INTO public.blind DEFAULT VALUES").await.unwrap();
    let leases = store.claim(claim(10)).await.unwrap().leases;
    assert_eq!(leases.iter().map(|lease| lease.job().id).collect::<Vec<_>>(), [ids[1]]);
    // Nothing in hand: then it is an error, and not "there is no work".
    assert_eq!(store.claim(claim(10)).await.unwrap_err().kind(), StoreErrorKind::Timeout);
    admin.batch_execute("DELETE FROM public.blind").await.unwrap();
    assert_eq!(store.claim(claim(10)).await.unwrap().leases, []);
    drop(store);
    admin.batch_execute("DROP OWNED BY shortsighted; DROP ROLE shortsighted").await.unwrap();
}
