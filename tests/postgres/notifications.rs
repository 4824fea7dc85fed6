//! Wakes between processes, and what happens when they, or answers, do not arrive.

use std::time::Duration;

use steadfast::job::Status;
use steadfast::store::postgres::{PostgresSettings, PostgresStore};
use steadfast::store::{JobStore, WakeListener};
use tokio::time::timeout;

use crate::changed::changed;
use crate::proxy::Proxy;
use crate::support::postgres::{Cluster, TestDatabase};
use crate::work::{checked, claim, count, enqueue, eventually, request};

/// A store whose connections go through a proxy.
async fn behind_a_proxy(cluster: &Cluster, database: &TestDatabase) -> (Proxy, PostgresStore) {
    let proxy = Proxy::to(cluster.port()).await;
    let url = database.url.replace(&cluster.port().to_string(), &proxy.port.to_string());
    let settings = changed(PostgresSettings::new(format!("{url}?sslmode=disable")), |settings| {
        settings.listen_check_interval = Duration::from_millis(200)
    });
    let store = PostgresStore::open(settings).await.unwrap();
    (proxy, store)
}

/// Whether an enqueue elsewhere is heard here before long.
pub(crate) async fn hears(wakes: &mut WakeListener, elsewhere: &PostgresStore) -> bool {
    while timeout(Duration::ZERO, wakes.woken()).await.is_ok() {}
    enqueue(elsewhere, "default", 1).await;
    timeout(Duration::from_secs(1), wakes.woken()).await.is_ok()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_the_listener_cut_off_without_a_sound_work_starts_within_the_poll_interval_and_the_listener_comes_back() {
    const POLL: Duration = Duration::from_millis(500);
    let cluster = Cluster::shared().await;
    let database = cluster.database().await;
    let (proxy, here) = behind_a_proxy(cluster, &database).await;
    let there = database.store().await;
    let mut wakes = here.wake().listen();
    eventually("an enqueue in another process wakes this one", async || hears(&mut wakes, &there).await).await;
    while !here.claim(claim(1000)).await.unwrap().leases.is_empty() {}

    proxy.silence_listeners();
    while timeout(Duration::ZERO, wakes.woken()).await.is_ok() {}
    let ids = enqueue(&there, "default", 1).await;
    // What a dispatcher does: sleeps until woken, but never longer than the poll interval.
    let mut looks = 0;
    let leases = loop {
        let _ = timeout(POLL, wakes.woken()).await;
        let leases = here.claim(claim(10)).await.unwrap().leases;
        looks += 1;
        if !leases.is_empty() {
            break leases;
        }
        assert!(looks < 4, "not found by {looks} looks");
    };
    assert_eq!(leases[0].job().id, ids[0]);
    eventually("the listener is connected anew", async || hears(&mut wakes, &there).await).await;
}

#[tokio::test]
async fn no_connection_turns_synchronous_commit_off_for_whoever_a_pooler_gives_it_to_next() {
    // Its own server: the log is searched for what every connection was told.
    let cluster = Cluster::start(&["log_statement = 'all'"]).await;
    let database = cluster.database().await;
    let store = database.store().await;
    enqueue(&store, "default", 1).await;
    eventually("the store listens", async || cluster.log().contains("LISTEN \"steadfast:")).await;
    assert!(!cluster.log().contains("synchronous_commit = off"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_enqueue_whose_answer_is_lost_on_the_wire_is_stored_once_and_answered() {
    let cluster = Cluster::shared().await;
    let database = cluster.database().await;
    let (proxy, store) = behind_a_proxy(cluster, &database).await;
    let keyed = |key: &str| checked(request("lost-answers").idempotency_key(key));
    let calls = [
        ("lost-answers", vec![checked(request("lost-answers"))]),
        ("lost-answers", vec![keyed("welcome-42")]),
        // Several jobs with a key are a transaction, and it is the answer to its COMMIT that is lost.
        ("COMMIT", vec![keyed("welcome-43"), checked(request("lost-answers"))]),
    ];
    for (sent, jobs) in calls {
        proxy.lose_the_answer_to(sent);
        let enqueued = store.enqueue(jobs.clone()).await.unwrap();
        assert!(proxy.has_lost_an_answer());
        assert_eq!(enqueued.len(), jobs.len());
        for (enqueued, job) in enqueued.iter().zip(&jobs) {
            assert_eq!((enqueued.created, enqueued.job.id), (true, job.id()));
        }
    }
    assert_eq!(count(&store, "lost-answers", Status::Queued).await, 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_enqueue_with_nothing_beside_it_is_one_statement_that_carries_its_notification() {
    // Its own server: the log is searched for every statement there was.
    let cluster = Cluster::start(&["log_statement = 'all'"]).await;
    let database = cluster.database().await;
    let (here, there) = (database.store().await, database.store().await);
    let mut wakes = here.wake().listen();
    eventually("an enqueue in another process wakes this one", async || hears(&mut wakes, &there).await).await;
    // One in 5 ms: an enqueue right behind another has its notification sent for it.
    for keyed in [false, true] {
        let mut tries = 0;
        eventually("an enqueue carries its own notification", async || {
            tries += 1;
            let job =
                if keyed { request("default").idempotency_key(format!("welcome-{tries}")) } else { request("default") };
            let before = cluster.log().len();
            while timeout(Duration::ZERO, wakes.woken()).await.is_ok() {}
            there.enqueue(vec![checked(job)]).await.unwrap();
            wakes.woken().await;
            let log = cluster.log()[before..].to_owned();
            assert_eq!(log.matches(": -- enqueue_one").count(), 1, "{log}");
            for other in ["BEGIN", "COMMIT", "-- known"] {
                assert!(!log.contains(other), "{other} is another statement:\n{log}");
            }
            !log.contains("NOTIFY \"")
        })
        .await;
    }
}
