//! More lanes than one look sees: what is due is found all the same, best first, in a bounded number of calls.

use std::collections::HashSet;

use steadfast::job::{JobId, NewJob};
use steadfast::store::postgres::PostgresStore;
use steadfast::store::{Claimed, JobStore};

use crate::support::postgres::Cluster;
use crate::work::{checked, claim, eventually, request};

/// Two and a half slices.
const LANES: usize = 2_500;

/// One job in each of many lanes; the priority grows with the name, so that a look finds the best last.
fn one_in_each_lane() -> Vec<NewJob> {
    (0..LANES).map(|n| checked(request(&format!("queue-{n:05}")).priority((n / 100) as i64))).collect()
}

async fn enqueue(store: &PostgresStore, jobs: Vec<NewJob>) -> HashSet<JobId> {
    let mut ids = HashSet::new();
    for chunk in jobs.chunks(1000) {
        ids.extend(store.enqueue(chunk.to_vec()).await.unwrap().into_iter().map(|one| one.job.id));
    }
    ids
}

#[tokio::test]
async fn jobs_of_2500_lanes_are_claimed_in_the_order_of_their_priority() {
    let database = Cluster::shared().await.database().await;
    let store = database.store().await;
    let ids = enqueue(&store, one_in_each_lane()).await;
    let (mut claimed, mut last) = (HashSet::new(), i16::MAX);
    while claimed.len() < LANES {
        let Claimed { leases, .. } = store.claim(claim(100)).await.unwrap();
        assert_eq!(leases.len(), 100, "after {} jobs", claimed.len());
        for lease in leases {
            assert!(lease.job().priority <= last, "{} after {last}", lease.job().priority);
            last = lease.job().priority;
            claimed.insert(lease.job().id);
        }
    }
    assert_eq!(claimed, ids);
    assert_eq!(store.claim(claim(100)).await.unwrap().leases, []);
}

#[tokio::test]
async fn jobs_that_another_process_put_in_2500_lanes_are_all_found() {
    let database = Cluster::shared().await.database().await;
    let (here, there) = (database.store().await, database.store().await);
    let ids = enqueue(&there, one_in_each_lane()).await;
    let (mut claimed, mut calls) = (HashSet::new(), 0);
    eventually("all are found", async || {
        let answer = here.claim(claim(1000)).await.unwrap();
        calls += usize::from(!answer.leases.is_empty());
        claimed.extend(answer.leases.iter().map(|lease| lease.job().id));
        claimed.len() == LANES
    })
    .await;
    assert_eq!(claimed, ids);
    assert!(calls <= 10, "{calls} calls brought something: one or two for each slice would do");
    // Then one in the last lane of all.
    let last = enqueue(&there, vec![checked(request("zzz"))]).await;
    eventually("the job in the last lane is found", async || {
        here.claim(claim(1000)).await.unwrap().leases.iter().any(|lease| last.contains(&lease.job().id))
    })
    .await;
}

#[tokio::test]
async fn a_due_job_behind_2500_lanes_of_future_ones_is_found_and_those_are_not_asked() {
    let database = Cluster::shared().await.database().await;
    let (here, there) = (database.store().await, database.store().await);
    let later = (0..LANES).map(|n| checked(request(&format!("queue-{n:05}")).delay_ms(3_600_000)));
    enqueue(&there, later.collect()).await;
    let due = enqueue(&there, vec![checked(request("zzz"))]).await;
    let mut answers = Vec::new();
    eventually("the due job is found", async || {
        answers.push(here.claim(claim(10)).await.unwrap());
        answers.last().unwrap().leases.iter().any(|lease| due.contains(&lease.job().id))
    })
    .await;
    assert!(answers.iter().all(|answer| !answer.more), "future lanes are not said to have more");
}
