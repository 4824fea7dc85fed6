//! Every running job is in a check that is due when its lease ends or before: whatever was done to it, and whoever died
//! over it. The model test looks after every step; here are the cases that it does not come to.

use std::collections::BTreeSet;
use std::time::Duration;

use steadfast::job::{JobId, Lease, Outcome, Status};
use steadfast::store::postgres::PostgresStore;
use steadfast::store::{Beat, Extend, Extended, JobStore, List, Reap, Redrive, Settle};
use tokio_postgres::Client;
use uuid::Uuid;

use crate::support::postgres::{Cluster, TestDatabase};
use crate::work::{claim, done, enqueue, eventually, settle_all};

/// A store whose time stands still.
async fn held() -> (PostgresStore, Client, TestDatabase) {
    let database = Cluster::shared().await.database().await;
    (PostgresStore::open(database.held_clock()).await.unwrap(), database.admin().await, database)
}

async fn advance(admin: &Client, by: Duration) {
    let sql = "UPDATE held.clock SET now = now + $1::bigint * interval '1 microsecond'";
    admin.execute(sql, &[&(by.as_micros() as i64)]).await.unwrap();
}

/// Running jobs that no check covers in time.
async fn uncovered(admin: &Client) -> i64 {
    let sql = "SELECT count(*) FROM jobs j WHERE j.status = 'running' AND NOT EXISTS (
                   SELECT FROM lease_checks c WHERE j.id = ANY (c.jobs) AND c.at <= j.lease_expires_at)";
    admin.query_one(sql, &[]).await.unwrap().get(0)
}

async fn checks(admin: &Client) -> i64 {
    admin.query_one("SELECT count(*) FROM lease_checks", &[]).await.unwrap().get(0)
}

fn ids(leases: &[Lease]) -> BTreeSet<JobId> {
    leases.iter().map(|lease| lease.job().id).collect()
}

async fn reap(store: &PostgresStore, limit: usize) -> BTreeSet<JobId> {
    store.reap(Reap::up_to(limit)).await.unwrap().into_iter().map(|one| one.job_id).collect()
}

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test]
async fn a_claim_of_many_jobs_writes_checks_of_a_hundred_and_they_go_once_all_of_their_leases_have_ended() {
    let (store, admin, _database) = held().await;
    enqueue(&store, "default", 250).await;
    let leases = store.claim(claim(250)).await.unwrap().leases;
    assert_eq!((checks(&admin).await, uncovered(&admin).await), (3, 0));
    settle_all(&store, &leases[..249]).await.unwrap();
    assert!(reap(&store, 10).await.is_empty());
    // The one that runs keeps its own.
    assert_eq!((checks(&admin).await, uncovered(&admin).await), (1, 0));
    settle_all(&store, &leases[249..]).await.unwrap();
    assert!(reap(&store, 10).await.is_empty());
    assert_eq!(checks(&admin).await, 0);
}

#[tokio::test]
async fn checks_of_jobs_that_another_process_settled_go_when_they_are_due() {
    let (store, admin, database) = held().await;
    let other = PostgresStore::open(database.held_clock()).await.unwrap();
    enqueue(&store, "default", 5).await;
    let leases = store.claim(claim(5)).await.unwrap().leases;
    settle_all(&other, &leases).await.unwrap();
    assert!(reap(&store, 10).await.is_empty());
    assert_eq!(checks(&admin).await, 1);
    advance(&admin, 61 * SECOND).await;
    assert!(reap(&store, 10).await.is_empty());
    assert_eq!(checks(&admin).await, 0);
}

#[tokio::test]
async fn a_heartbeat_that_shortens_a_lease_has_it_checked_earlier() {
    let (store, admin, _database) = held().await;
    enqueue(&store, "default", 3).await;
    let leases = store.claim(claim(3)).await.unwrap().leases;
    let beat = |lease: &Lease, by| Extend::new([Beat::new(lease.key())]).lease(by);
    assert_eq!(store.extend(beat(&leases[0], 5 * SECOND)).await.unwrap(), [Extended::Ok]);
    assert_eq!(store.extend(beat(&leases[1], 600 * SECOND)).await.unwrap(), [Extended::Ok]);
    assert_eq!((uncovered(&admin).await, checks(&admin).await), (0, 2), "only the shorter one needs another check");
    advance(&admin, 6 * SECOND).await;
    assert_eq!(reap(&store, 10).await, ids(&leases[..1]));
    assert_eq!(uncovered(&admin).await, 0);
    advance(&admin, 60 * SECOND).await;
    assert_eq!(reap(&store, 10).await, ids(&leases[2..]));
    assert_eq!(uncovered(&admin).await, 0);
    advance(&admin, 600 * SECOND).await;
    assert_eq!(reap(&store, 10).await, ids(&leases[1..2]));
    assert_eq!(checks(&admin).await, 0);
}

#[tokio::test]
async fn more_expired_leases_than_one_call_may_reap_are_reaped_by_the_next_oldest_first() {
    let (store, admin, _database) = held().await;
    let mut leases = Vec::new();
    for _ in 0..7 {
        enqueue(&store, "default", 150).await;
        leases.extend(store.claim(claim(150)).await.unwrap().leases);
        advance(&admin, SECOND).await;
    }
    advance(&admin, 600 * SECOND).await;
    let mut reaped = Vec::new();
    loop {
        let more: Vec<JobId> = store.reap(Reap::up_to(40)).await.unwrap().into_iter().map(|one| one.job_id).collect();
        assert_eq!(uncovered(&admin).await, 0);
        if more.is_empty() {
            break;
        }
        reaped.extend(more);
    }
    let oldest_first =
        |ids: &[JobId]| ids.chunks(150).map(|some| some.iter().copied().collect()).collect::<Vec<BTreeSet<_>>>();
    let claimed: Vec<JobId> = leases.iter().map(|lease| lease.job().id).collect();
    assert_eq!(oldest_first(&reaped), oldest_first(&claimed));
    assert_eq!(checks(&admin).await, 0);
}

#[tokio::test]
async fn many_checks_that_say_nothing_do_not_hide_an_expired_lease_behind_them() {
    let (store, admin, _database) = held().await;
    // As other processes leave them behind: due, and their jobs have ended or never were.
    let stale =
        "INSERT INTO lease_checks SELECT held.now() - interval '1 hour', gen_random_uuid(), ARRAY[gen_random_uuid()]
                 FROM generate_series(1, 300)";
    admin.execute(stale, &[]).await.unwrap();
    enqueue(&store, "default", 2).await;
    let leases = store.claim(claim(2)).await.unwrap().leases;
    advance(&admin, 61 * SECOND).await;
    assert_eq!(reap(&store, 10).await, ids(&leases));
    assert_eq!(checks(&admin).await, 0);
}

#[tokio::test]
async fn an_expired_job_whose_row_is_locked_is_reaped_later_and_keeps_no_other_waiting() {
    let (store, admin, database) = held().await;
    enqueue(&store, "default", 3).await;
    let leases = store.claim(claim(3)).await.unwrap().leases;
    advance(&admin, 61 * SECOND).await;
    let mut other_client = database.admin().await;
    let lock = other_client.transaction().await.unwrap();
    lock.execute("SELECT FROM jobs WHERE id = $1 FOR UPDATE", &[leases[0].job().id.as_uuid()]).await.unwrap();
    assert_eq!(reap(&store, 2).await, ids(&leases[1..]));
    assert_eq!(uncovered(&admin).await, 0);
    assert!(reap(&store, 10).await.is_empty());
    lock.rollback().await.unwrap();
    assert_eq!(reap(&store, 10).await, ids(&leases[..1]));
    assert_eq!(checks(&admin).await, 0);
}

#[tokio::test]
async fn a_reaper_that_dies_halfway_has_taken_nothing() {
    let (store, admin, database) = held().await;
    enqueue(&store, "default", 3).await;
    let leases = store.claim(claim(3)).await.unwrap().leases;
    let alive = Extend::new([Beat::new(leases[2].key())]).lease(600 * SECOND);
    store.extend(alive).await.unwrap();
    advance(&admin, 61 * SECOND).await;
    // The reaper has taken the check and waits for the counts that its settle appends to.
    let mut other_client = database.admin().await;
    let lock = other_client.transaction().await.unwrap();
    lock.batch_execute("LOCK TABLE count_deltas IN ACCESS EXCLUSIVE MODE").await.unwrap();
    let reaper = tokio::spawn(async move { store.reap(Reap::up_to(10)).await });
    let waiting = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'
                   AND query LIKE '-- settle: running%'";
    eventually("the reaper waits", async || admin.query_opt(waiting, &[]).await.unwrap().is_some()).await;
    reaper.abort();
    admin.execute(&format!("SELECT pg_terminate_backend(pid) FROM ({waiting}) w"), &[]).await.unwrap();
    eventually("it is gone", async || admin.query_opt(waiting, &[]).await.unwrap().is_none()).await;
    lock.rollback().await.unwrap();
    assert_eq!(uncovered(&admin).await, 0);
    let next = PostgresStore::open(database.held_clock()).await.unwrap();
    assert_eq!(reap(&next, 10).await, ids(&leases[..2]));
    assert_eq!(uncovered(&admin).await, 0);
}

#[tokio::test]
async fn jobs_that_run_again_after_a_release_a_snooze_a_reap_and_a_redrive_are_covered_again() {
    let (store, admin, _database) = held().await;
    let all = enqueue(&store, "default", 4).await;
    let leases = store.claim(claim(4)).await.unwrap().leases;
    let ends =
        [Outcome::Released, Outcome::snoozed(SECOND), Outcome::Failed(steadfast::job::Failure::new("e").permanent())];
    let settles = leases.iter().zip(ends).map(|(lease, end)| Settle::new(lease.key(), end));
    store.settle(settles.collect()).await.unwrap();
    assert_eq!(uncovered(&admin).await, 0);
    advance(&admin, 61 * SECOND).await;
    assert_eq!(reap(&store, 10).await, ids(&leases[3..]));
    store.redrive(Redrive::new([leases[2].job().id])).await.unwrap();
    let again = store.claim(claim(4)).await.unwrap().leases;
    assert_eq!(ids(&again), all.iter().copied().collect());
    assert_eq!(uncovered(&admin).await, 0);
    advance(&admin, 61 * SECOND).await;
    assert_eq!(reap(&store, 10).await, ids(&again));
    assert_eq!(checks(&admin).await, 0);
}

#[tokio::test]
async fn running_jobs_are_listed_once_each_and_ended_ones_are_not() {
    let (store, admin, _database) = held().await;
    enqueue(&store, "default", 5).await;
    let leases = store.claim(claim(5)).await.unwrap().leases;
    // Named by two checks.
    store.extend(Extend::new([Beat::new(leases[0].key())]).lease(SECOND)).await.unwrap();
    assert_eq!(checks(&admin).await, 2);
    store.settle(vec![done(&leases[4])]).await.unwrap();
    let page = store.list(List::new().status(Status::Running).limit(10)).await.unwrap();
    let listed: Vec<Uuid> = page.jobs.iter().map(|job| *job.id.as_uuid()).collect();
    let mut expected: Vec<Uuid> = leases[..4].iter().map(|lease| *lease.job().id.as_uuid()).collect();
    expected.sort_by(|a, b| b.cmp(a));
    assert_eq!(listed, expected);
}
