//! Eight claimers, random settles, reaps and lost leases: no limit is ever exceeded, and every counter equals a recount.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use steadfast::job::{GroupDefaults, Kind, KindDefinition, Outcome, QueueName, QueueSettings, WorkerId};
use steadfast::store::{CatalogStore, Claim, JobStore, LimitStore, PutKind, PutQueue, Reap, Settle};

use crate::limits::miscounted;
use crate::support::postgres::Cluster;
use crate::work::{checked, eventually, request};

/// Limits of the queue, of its kind, and of each group.
const LIMITS: [i64; 3] = [7, 6, 3];

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn eight_claimers_with_random_ends_never_exceed_a_limit_and_end_at_zero() {
    let database = Cluster::shared().await.database().await;
    let (store, admin) = (database.store().await, database.admin().await);
    let groups = GroupDefaults::default().concurrency(LIMITS[2] as u32);
    let settings = QueueSettings::default().concurrency(LIMITS[0] as u32).groups(groups);
    store.put_queue(PutQueue::new(QueueName::new("mail").unwrap(), settings)).await.unwrap();
    let kind = KindDefinition::any(Kind::new("welcome").unwrap()).concurrency(LIMITS[1] as u32);
    store.put_kind(PutKind::new(kind)).await.unwrap();
    let groups = [None, Some("a"), Some("b"), Some("c")];
    let jobs: Vec<_> = (0..300)
        .map(|n| match groups[n % 4] {
            Some(group) => request("mail").group_key(group),
            None => request("mail"),
        })
        .map(|request| checked(request.max_attempts(100)))
        .collect();
    store.enqueue(jobs).await.unwrap();
    let (stop, finished) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let mut claimers = Vec::new();
    for n in 0..8 {
        let (store, stop, finished) = (database.store().await, stop.clone(), finished.clone());
        claimers.push(tokio::spawn(async move {
            let worker = WorkerId::new(format!("w{n}")).unwrap();
            while !stop.load(Ordering::Relaxed) {
                let max = fastrand::usize(1..=4);
                let claim = Claim::new(worker.clone(), Duration::from_secs(3600)).max(max);
                let leases = store.claim(claim).await.unwrap().leases;
                for lease in leases {
                    let outcome = match fastrand::u8(0..10) {
                        // Killed: the reaper gives back, and this comes late.
                        0 => continue,
                        1 => Outcome::Released,
                        2 => Outcome::failed("e"),
                        _ => Outcome::Succeeded(None),
                    };
                    let done = matches!(outcome, Outcome::Succeeded(_));
                    let settle = Settle::new(lease.key(), outcome);
                    // Twice: the second gives nothing back.
                    store.settle(vec![settle.clone()]).await.unwrap();
                    store.settle(vec![settle]).await.unwrap();
                    finished.fetch_add(usize::from(done), Ordering::Relaxed);
                }
                store.reap(Reap::up_to(100)).await.unwrap();
            }
        }));
    }
    let over = "SELECT
            (SELECT count(*) FROM jobs WHERE status = 'running' AND queue = 'mail'),
            (SELECT count(*) FROM jobs WHERE status = 'running' AND kind = 'welcome'),
            (SELECT coalesce(max(n), 0) FROM (SELECT count(*) AS n FROM jobs
             WHERE status = 'running' AND group_key IS NOT NULL GROUP BY group_key) g)";
    let mut most = [0; 3];
    eventually("all but the last few are done", async || {
        let row = admin.query_one(over, &[]).await.unwrap();
        for (n, limit) in LIMITS.into_iter().enumerate() {
            let running: i64 = row.get(n);
            assert!(running <= limit, "{running} run of {limit}");
            most[n] = most[n].max(running);
        }
        assert_eq!(miscounted(&admin).await, Vec::<String>::new());
        // Leases whose worker was killed end at some time.
        let expire = "UPDATE jobs SET lease_expires_at = now() - interval '1 s'
                      WHERE status = 'running' AND started_at < now() - interval '200 milliseconds'";
        admin.execute(expire, &[]).await.unwrap();
        admin
            .execute("UPDATE lease_checks SET at = now() - interval '1 s' WHERE at > now() + interval '1 minute'", &[])
            .await
            .unwrap();
        finished.load(Ordering::Relaxed) >= 290
    })
    .await;
    stop.store(true, Ordering::Relaxed);
    for claimer in claimers {
        claimer.await.unwrap();
    }
    admin
        .execute("UPDATE jobs SET lease_expires_at = now() - interval '1 s' WHERE status = 'running'", &[])
        .await
        .unwrap();
    admin.execute("UPDATE lease_checks SET at = now() - interval '1 s'", &[]).await.unwrap();
    store.reap(Reap::up_to(1000)).await.unwrap();
    let left: i64 = admin.query_one("SELECT coalesce(sum(abs(running)), 0) FROM usage", &[]).await.unwrap().get(0);
    assert_eq!(left, 0, "all ends at 0");
    assert!(most[1] == LIMITS[1], "the limit was reached: {most:?}");
}

/// The row of usage is younger than the snapshot of the settle that has to give back: a look-up would not find it.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_lease_that_ends_while_its_first_limit_is_set_gives_its_place_back() {
    let database = Cluster::shared().await.database().await;
    let (store, mut holder, admin) = (database.store().await, database.admin().await, database.admin().await);
    store.enqueue(vec![checked(request("mail"))]).await.unwrap();
    let claim = Claim::new(WorkerId::new("w").unwrap(), Duration::from_secs(3600));
    let lease = store.claim(claim).await.unwrap().leases.pop().unwrap();
    let held = holder.transaction().await.unwrap();
    held.execute("SELECT FROM jobs FOR UPDATE", &[]).await.unwrap();
    let waiting = async |count: i64| {
        let sql =
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
        admin.query_one(sql, &[]).await.unwrap().get::<_, i64>(0) == count
    };
    // First in the line for the job's row is who counts it, then who ends it.
    let setter = database.store().await;
    let settings = QueueSettings::default().concurrency(5);
    let set =
        tokio::spawn(async move { setter.put_queue(PutQueue::new(QueueName::new("mail").unwrap(), settings)).await });
    eventually("the limit waits for the job", async || waiting(1).await).await;
    let settled =
        tokio::spawn(async move { store.settle(vec![Settle::new(lease.key(), Outcome::Succeeded(None))]).await });
    eventually("the settle waits as well", async || waiting(2).await).await;
    held.commit().await.unwrap();
    set.await.unwrap().unwrap();
    settled.await.unwrap().unwrap();
    assert_eq!(miscounted(&admin).await, Vec::<String>::new());
    let row = admin.query_one("SELECT running FROM usage WHERE scope = 'queue' AND name = 'mail'", &[]).await.unwrap();
    assert_eq!(row.get::<_, i32>(0), 0, "nothing runs");
}
