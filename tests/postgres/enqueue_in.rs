//! Enqueue inside the caller's own transaction.

use std::sync::Arc;
use std::time::Duration;

use steadfast::Queue;
use steadfast::job::{NewJob, Status};
use steadfast::queue::EnqueueError;
use steadfast::store::postgres::{PostgresSettings, PostgresStore};
use steadfast::store::{JobStore, NotStored, StoreErrorKind};
use tokio::time::timeout;

use crate::changed::changed;
use crate::proxy::Proxy;
use crate::support::postgres::Cluster;
use crate::welcome::Welcome;
use crate::work::{checked, claim, count, eventually, jobs, request, work_off};

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
    assert_eq!(store.claim(claim(10)).await.unwrap().leases, []);
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
    let keyed = || checked(request("default").idempotency_key("k"));
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
    let settings = changed(database.settings(), |settings| settings.statement_timeout = Duration::from_secs(4));
    let store = Arc::new(PostgresStore::open(settings).await.unwrap());
    let keyed = |key: &str| checked(request("default").idempotency_key(key));
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

/// The batch's first COMMIT stalls on the wire until its outcome is given up as unknown; a second try then waits for the
/// rows of the first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_whose_commit_stalls_is_never_said_to_be_refused() {
    let database = Cluster::shared().await.database().await;
    let port: u16 = database.url.rsplit(':').next().unwrap().split('/').next().unwrap().parse().unwrap();
    let proxy = Proxy::to(port).await;
    let through = database.url.replace(&format!(":{port}/"), &format!(":{}/", proxy.port));
    // The usual timeouts: the client gives up after 12 s, the second try after 2.5 s more, the server after 20 s.
    let store = Arc::new(PostgresStore::open(PostgresSettings::new(&through)).await.unwrap());
    let keyed = |key: &str| checked(request("default").idempotency_key(key));
    let enqueue = |jobs: Vec<NewJob>| {
        let store = store.clone();
        tokio::spawn(async move { store.enqueue(jobs).await })
    };
    let mut theirs = database.admin().await;
    let mut transaction = theirs.transaction().await.unwrap();
    store.enqueue_in(&mut transaction, &[keyed("a"), keyed("b")]).await.unwrap();
    // Both places for flushes are taken by calls that wait for a key, so that the next ones gather to one batch.
    let admin = database.admin().await;
    let waiting = async || {
        let waits = "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
        admin.query(waits, &[]).await.unwrap().len()
    };
    let mut held = Vec::new();
    eventually("two calls wait", async || {
        if waiting().await < 2 {
            held.push(enqueue(vec![keyed(["a", "b"][held.len() % 2])]));
        }
        waiting().await == 2
    })
    .await;
    proxy.hold_back("COMMIT");
    // Two jobs each, one with a key, so that there is a COMMIT.
    let call = |n| vec![keyed(&format!("of-the-batch-{n}")), checked(request("default"))];
    let batch: Vec<Vec<NewJob>> = (0..10).map(call).collect();
    let ids: Vec<_> = batch.iter().flatten().map(|job| job.id()).collect();
    let calls: Vec<_> = batch.into_iter().map(enqueue).collect();
    for call in held {
        assert_eq!(call.await.unwrap().unwrap_err().kind(), StoreErrorKind::Timeout);
    }
    eventually("the commit is held back", async || proxy.is_holding_back()).await;
    let mut unknown = 0;
    for call in calls {
        match call.await.unwrap() {
            Ok(answers) => assert!(answers.iter().all(|answer| answer.created)),
            Err(error) => {
                assert_eq!(error.kind(), StoreErrorKind::OutcomeUnknown, "it may be stored, and is said not to be");
                unknown += 1;
            }
        }
    }
    assert!(unknown > 1, "only {unknown} calls shared the commit that stalled");
    proxy.let_through();
    eventually("the commit goes through", async || store.get(ids.clone()).await.unwrap().iter().all(Option::is_some))
        .await;
    drop(transaction);
}

#[tokio::test]
async fn a_key_of_another_job_is_refused_inside_a_transaction_and_leaves_it_usable() {
    let database = Cluster::shared().await.database().await;
    let store = database.store().await;
    let mut theirs = database.admin().await;
    theirs.batch_execute("CREATE TABLE users (id bigint)").await.unwrap();
    let keyed = |kind: &str| {
        checked(changed(request("default"), |request| {
            request.idempotency_key = Some("k".into());
            request.kind = kind.into();
        }))
    };
    let first = store.enqueue(vec![keyed("welcome")]).await.unwrap().remove(0);
    let mut transaction = theirs.transaction().await.unwrap();
    transaction.execute("INSERT INTO users VALUES (1)", &[]).await.unwrap();
    let jobs = [checked(request("default")), keyed("other")];
    match store.enqueue_in(&mut transaction, &jobs).await {
        Err(NotStored::KeysTaken(taken)) => {
            assert_eq!((taken.len(), taken[0].index, taken[0].by), (1, 1, first.job.id))
        }
        other => panic!("{other:?}"),
    }
    transaction.commit().await.unwrap();
    let users: i64 = theirs.query_one("SELECT count(*) FROM users", &[]).await.unwrap().get(0);
    assert_eq!((users, work_off(&store, 10).await), (1, vec![first.job.id]));
}

#[tokio::test]
async fn a_typed_job_is_enqueued_within_the_callers_transaction_by_the_same_builder() {
    let database = Cluster::shared().await.database().await;
    let queue = Queue::open(&database.url).await.unwrap();
    let mut theirs = database.admin().await;
    let mut transaction = theirs.transaction().await.unwrap();
    // Its kind is declared by the first one, and stays so.
    queue.enqueue(Welcome { user: 1 }).within(&mut transaction).await.unwrap();
    transaction.rollback().await.unwrap();
    let mut transaction = theirs.transaction().await.unwrap();
    let job = |user| queue.enqueue(Welcome { user }).priority(7).idempotency_key("k");
    let first = job(1).within(&mut transaction).await.unwrap();
    assert!(first.created && first.job.priority == 7);
    assert!(queue.get(first.job.id).await.unwrap().is_none(), "not yet committed");
    transaction.commit().await.unwrap();
    assert_eq!(queue.get(first.job.id).await.unwrap(), Some(first.job.clone()));
    let mut transaction = theirs.transaction().await.unwrap();
    assert_eq!(job(1).within(&mut transaction).await.unwrap().job.id, first.job.id);
    match job(2).within(&mut transaction).await {
        Err(EnqueueError::KeyTaken { by, .. }) => assert_eq!(by, first.job.id),
        other => panic!("{other:?}"),
    }
    let wrong = queue.enqueue(Welcome { user: 3 }).with_writes(|_| Ok::<_, ()>(())).await.unwrap_err();
    assert!(wrong.to_string().contains("within"), "{wrong}");
}

#[cfg(feature = "sqlx")]
#[tokio::test]
async fn the_same_holds_for_transactions_of_sqlx() {
    use sqlx::Connection;

    let database = Cluster::shared().await.database().await;
    let store = database.store().await;
    let mut theirs = sqlx::PgConnection::connect(&database.url).await.unwrap();
    let keyed = || {
        let request = request("default").idempotency_key("k").priority(7);
        checked(request.delay_ms(60_000))
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

    let other = checked(changed(request("default"), |request| {
        request.kind = "other".into();
        request.idempotency_key = Some("k".into());
    }));
    let mut transaction = theirs.begin().await.unwrap();
    match store.enqueue_in_sqlx(&mut transaction, &[checked(request("left-out")), other]).await {
        Err(NotStored::KeysTaken(taken)) => {
            assert_eq!((taken.len(), taken[0].index, taken[0].by), (1, 1, first.job.id))
        }
        other => panic!("{other:?}"),
    }
    store.enqueue_in_sqlx(&mut transaction, &[checked(request("kept"))]).await.unwrap();
    transaction.commit().await.unwrap();
    assert_eq!(count(&store, "left-out", Status::Queued).await, 0);
    assert_eq!(count(&store, "kept", Status::Queued).await, 1);

    let queue = Queue::open(&database.url).await.unwrap();
    let job = || queue.enqueue(Welcome { user: 1 }).idempotency_key("typed");
    let mut transaction = theirs.begin().await.unwrap();
    job().within(&mut transaction).await.unwrap();
    transaction.rollback().await.unwrap();
    let mut transaction = theirs.begin().await.unwrap();
    let first = job().within(&mut transaction).await.unwrap();
    assert!(first.created && queue.get(first.job.id).await.unwrap().is_none(), "not yet committed");
    transaction.commit().await.unwrap();
    assert_eq!(queue.get(first.job.id).await.unwrap(), Some(first.job.clone()));
    let mut transaction = theirs.begin().await.unwrap();
    let again = job().within(&mut transaction).await.unwrap();
    assert_eq!((again.created, again.job.id), (false, first.job.id));
    transaction.commit().await.unwrap();
}
