//! Many callers at once, on real threads. The answers must fit together, whatever the order was. Two verbs that meet at
//! one job are in `races.rs`.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};

use steadfast::job::limits::BATCH_MAX;
use steadfast::job::{JobId, Lease, LeaseToken, Outcome, Status};
use steadfast::store::{Beat, Extend, Extended, Reap, Redrive, Redriven, Settled, Store};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::phrases::*;
use crate::world::World;

pub(crate) async fn enqueue_many(world: &impl World, count: usize) -> Vec<JobId> {
    let mut ids = Vec::new();
    while ids.len() < count {
        let batch = (count - ids.len()).min(BATCH_MAX);
        ids.extend(world.enqueue_all((0..batch).map(|_| job("welcome")).collect()).await.iter().map(|a| a.job.id));
    }
    ids
}

/// Runs `count` tasks that set out together, and collects what they return.
pub(crate) async fn together<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
    count: usize,
    mut task: impl FnMut(usize) -> F,
) -> Vec<T> {
    let start = Arc::new(Barrier::new(count));
    let mut tasks = JoinSet::new();
    for n in 0..count {
        let (start, task) = (start.clone(), task(n));
        tasks.spawn(async move {
            start.wait().await;
            task.await
        });
    }
    tasks.join_all().await
}

async fn statuses(world: &impl World) -> HashMap<JobId, Status> {
    world.everything().await.into_iter().map(|job| (job.id, job.status)).collect()
}

pub(crate) async fn eight_claimers_share_2000_jobs_without_taking_one_twice(world: &impl World) {
    let mut expected = enqueue_many(world, 2_000).await;
    let store = world.store();
    let claimed = together(8, |n| {
        let store = store.clone();
        async move {
            let mut mine = Vec::new();
            loop {
                let claim = claim_of(1 + n * 5).worker(worker(&format!("claimer-{n}")));
                match store.claim(claim).await.unwrap().leases {
                    leases if leases.is_empty() => return mine,
                    leases => mine.extend(ids(&leases)),
                }
            }
        }
    })
    .await;
    let mut claimed: Vec<_> = claimed.into_iter().flatten().collect();
    claimed.sort();
    expected.sort();
    assert_eq!(claimed, expected);
}

pub(crate) async fn fifty_enqueues_with_one_key_make_one_job(world: &impl World) {
    let mut requests = Vec::new();
    for _ in 0..50 {
        requests.push(world.checked(with_key("once")).await);
    }
    let store = world.store();
    let answers = together(50, |n| {
        let (store, job) = (store.clone(), requests[n].clone());
        async move { store.enqueue(vec![job]).await.unwrap().remove(0) }
    })
    .await;
    assert_eq!(answers.iter().filter(|answer| answer.created).count(), 1);
    let ids: HashSet<_> = answers.iter().map(|answer| answer.job.id).collect();
    assert_eq!(ids.len(), 1);
    assert_eq!(world.everything().await.len(), 1);
}

pub(crate) async fn the_reaper_overwrites_none_of_2000_settles_in_flight(world: &impl World) {
    enqueue_many(world, 2_000).await;
    let mut leases = world.claim(1000).await;
    leases.extend(world.claim(1000).await);
    world.advance(HOUR).await;
    let reaped = Arc::new(Mutex::new(HashSet::new()));
    let store = world.store();
    let parts: Vec<Vec<Lease>> = leases.chunks(125).map(<[Lease]>::to_vec).collect();
    let answers = together(parts.len() + 2, |n| {
        let (store, reaped, part) = (store.clone(), reaped.clone(), parts.get(n).cloned());
        async move {
            let Some(part) = part else {
                loop {
                    let batch = store.reap(Reap::up_to(50)).await.unwrap();
                    let mut reaped = reaped.lock().unwrap();
                    if batch.is_empty() {
                        return vec![];
                    }
                    for one in batch {
                        assert!(reaped.insert(one.job_id), "job {} was reaped twice", one.job_id);
                    }
                }
            };
            let mut answers = Vec::new();
            for few in part.chunks(5) {
                let settles = few.iter().map(|lease| settle_of(lease, succeeded())).collect();
                let settled = store.settle(settles).await.unwrap();
                answers.extend(few.iter().zip(settled).map(|(lease, answer)| (lease.job().id, answer.unwrap())));
            }
            answers
        }
    })
    .await;
    let reaped = reaped.lock().unwrap().clone();
    let now = statuses(world).await;
    let answers: Vec<_> = answers.into_iter().flatten().collect();
    assert_eq!(answers.len(), 2_000);
    for (id, answer) in &answers {
        let expected = match answer {
            Settled::Recorded => (false, Status::Succeeded),
            Settled::Lost => (true, Status::Retrying),
            other => panic!("{other:?}"),
        };
        assert_eq!((reaped.contains(id), now[id]), expected, "{answer:?}");
    }
    let lost = answers.iter().filter(|(_, answer)| *answer == Settled::Lost).count();
    assert_eq!(lost, reaped.len());
}

pub(crate) async fn the_reaper_takes_no_lease_that_a_heartbeat_saved(world: &impl World) {
    enqueue_many(world, 500).await;
    let leases = world.claim(500).await;
    world.advance(HOUR).await;
    let store = world.store();
    let parts: Vec<Vec<Lease>> = leases.chunks(50).map(<[Lease]>::to_vec).collect();
    let answers = together(parts.len() + 1, |n| {
        let (store, part) = (store.clone(), parts.get(n).cloned());
        async move {
            let Some(part) = part else {
                while !store.reap(Reap::up_to(20)).await.unwrap().is_empty() {}
                return vec![];
            };
            let mut answers = Vec::new();
            for lease in part {
                let beats = vec![Beat::new(lease.key())];
                let answer = store.extend(Extend::new(beats)).await.unwrap().remove(0);
                answers.push((lease, answer));
            }
            answers
        }
    })
    .await;
    let now = statuses(world).await;
    for (lease, answer) in answers.into_iter().flatten() {
        match answer {
            Extended::Ok => {
                assert_eq!(now[&lease.job().id], Status::Running);
                assert_eq!(world.settle(&lease, succeeded()).await, Settled::Recorded);
            }
            Extended::Lost => assert_eq!(now[&lease.job().id], Status::Retrying),
            other => panic!("nobody cancelled: {other:?}"),
        }
    }
}

/// Who holds what, as far as the claimers know: a lease is held from its claim's answer until it is about to be
/// settled, so that two holders at once can only mean two leases at once.
#[derive(Default)]
struct Held(Mutex<HashMap<JobId, LeaseToken>>);

impl Held {
    fn take(&self, lease: &Lease) {
        let before = self.0.lock().unwrap().insert(lease.job().id, lease.token());
        assert_eq!(before, None, "job {} is leased twice at the same time", lease.job().id);
    }

    fn give_back(&self, lease: &Lease) {
        assert_eq!(self.0.lock().unwrap().remove(&lease.job().id), Some(lease.token()));
    }
}

/// Claims, now and then gives back or fails, otherwise finishes; returns how many it finished.
async fn work_off(store: Arc<dyn Store>, held: Arc<Held>, n: usize) -> usize {
    let (mut turn, mut finished) = (n, 0);
    loop {
        let claim = claim_of(20 + n).worker(worker(&format!("claimer-{n}")));
        let leases = store.claim(claim).await.unwrap().leases;
        if leases.is_empty() {
            return finished;
        }
        leases.iter().for_each(|lease| held.take(lease));
        let settles = leases.iter().map(|lease| {
            held.give_back(lease);
            turn += 1;
            let outcome = match turn % 16 {
                0 => Outcome::Released,
                1 if lease.job().attempts < 3 => failed_retry_after(std::time::Duration::ZERO),
                _ => {
                    finished += 1;
                    succeeded()
                }
            };
            settle_of(lease, outcome)
        });
        for answer in store.settle(settles.collect()).await.unwrap() {
            assert_eq!(answer.unwrap(), Settled::Recorded);
        }
    }
}

/// The last jobs may have been given back after everybody else had found nothing.
async fn work_off_rest(store: Arc<dyn Store>, held: Arc<Held>, mut rest: usize) {
    while rest > 0 {
        let finished = work_off(store.clone(), held.clone(), 2).await;
        assert!(finished > 0, "{rest} jobs are left and cannot be claimed");
        rest -= finished;
    }
}

pub(crate) async fn thirty_two_claimers_work_off_10000_jobs_each_leased_once_at_a_time(world: &impl World) {
    enqueue_many(world, 10_000).await;
    let (store, held) = (world.store(), Arc::new(Held::default()));
    let finished: usize = together(32, |n| work_off(store.clone(), held.clone(), n)).await.into_iter().sum();
    work_off_rest(store, held, 10_000 - finished).await;
    assert_eq!(world.counts("default").await, [(Status::Succeeded, 10_000)].into());
}

pub(crate) async fn producers_and_workers_at_the_same_time_lose_nothing(world: &impl World) {
    let (store, held) = (world.store(), Arc::new(Held::default()));
    let mut batches = Vec::new();
    for _ in 0..100 {
        batches.push(vec![world.checked(job("welcome")).await, world.checked(job("welcome")).await]);
    }
    let finished = together(12, |n| {
        let (store, held) = (store.clone(), held.clone());
        let mine: Vec<_> = if n < 4 { batches[n * 25..(n + 1) * 25].to_vec() } else { vec![] };
        async move {
            for batch in mine {
                store.enqueue(batch).await.unwrap();
            }
            work_off(store, held, n).await
        }
    })
    .await;
    work_off_rest(store, held, 200 - finished.into_iter().sum::<usize>()).await;
    assert_eq!(world.counts("default").await, [(Status::Succeeded, 200)].into());
}

pub(crate) async fn the_same_settle_from_many_callers_is_recorded_for_all_and_once(world: &impl World) {
    let lease = world.running(job("welcome")).await;
    let store = world.store();
    let answers = together(20, |_| {
        let (store, settle) = (store.clone(), settle_of(&lease, failed_retry_after(HOUR)));
        async move { store.settle(vec![settle]).await.unwrap().remove(0).unwrap() }
    })
    .await;
    assert_eq!(answers, [Settled::Recorded; 20]);
    let job = world.job(lease.job().id).await;
    assert_eq!((job.status, job.attempts), (Status::Retrying, 1));
    assert_eq!(world.counts("default").await, [(Status::Retrying, 1)].into());
}

pub(crate) async fn of_many_redrives_one_brings_the_job_back(world: &impl World) {
    let lease = world.running(job("welcome")).await;
    let dead = world.end(&lease, Outcome::failed_permanently("x")).await;
    let store = world.store();
    let answers = together(20, |_| {
        let store = store.clone();
        async move { store.redrive(Redrive::new([dead.id])).await.unwrap().remove(0).unwrap() }
    })
    .await;
    let queued = answers.iter().filter(|answer| matches!(answer, Redriven::Queued(_))).count();
    let refused = answers.iter().filter(|answer| **answer == Redriven::NotDead(Status::Queued)).count();
    assert_eq!((queued, refused), (1, 19));
    assert_eq!(world.claim(10).await.len(), 1);
}
