//! Limits among eight claimers, random ends, reapers and leases that nobody settles: never over, and all given back.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use steadfast::job::{GroupDefaults, JobId, Lease, Outcome};
use steadfast::store::{Reap, Settled, Store};

use crate::concurrency::together;
use crate::limit_phrases::*;
use crate::phrases::*;
use crate::world::World;

const CLAIMERS: usize = 8;
const JOBS: usize = 600;
const GROUPS: usize = 4;

/// What is leased as far as its holders know. A lease is entered when it has been granted and leaves before it is given
/// back, so at no time are there more in here than in the store.
#[derive(Default)]
struct Held(Mutex<HashMap<JobId, (String, String, String)>>);

impl Held {
    fn take(&self, leases: &[Lease], limits: &Limits) {
        let mut held = self.0.lock().unwrap();
        for lease in leases {
            let job = lease.job();
            let group = job.group_key.as_ref().map_or(String::new(), |key| key.to_string());
            held.insert(job.id, (job.queue.to_string(), job.kind.to_string(), group));
        }
        let most = |of: fn(&(String, String, String)) -> Option<String>| {
            let mut counts: HashMap<String, u32> = HashMap::new();
            held.values().filter_map(of).for_each(|name| *counts.entry(name).or_default() += 1);
            counts.into_iter().max_by_key(|(_, count)| *count).unwrap_or_default()
        };
        let in_group = |all: &(String, String, String)| (!all.2.is_empty()).then(|| format!("{}/{}", all.0, all.2));
        let counted = [most(|all| Some(all.0.clone())), most(|all| Some(all.1.clone())), most(in_group)];
        for ((name, count), limit) in counted.into_iter().zip([limits.queue, limits.kind, limits.group]) {
            assert!(count <= limit, "over the limit: {count} leases of {name:?}, {limit} are allowed");
        }
    }

    fn give_back(&self, lease: &Lease) {
        self.0.lock().unwrap().remove(&lease.job().id);
    }
}

#[derive(Clone, Copy)]
struct Limits {
    queue: u32,
    kind: u32,
    group: u32,
}

/// Claims and ends jobs at random until nothing is left. One lease in ten is dropped: the reaper has to end it.
async fn work(store: Arc<dyn Store>, held: Arc<Held>, limits: Limits, n: usize) {
    let mut dice = fastrand::Rng::with_seed(n as u64);
    let mut empty = 0;
    while empty < 40 {
        let max = dice.usize(1..=7);
        let leases = store.claim(claim_of(max).worker(worker(&format!("claimer-{n}")))).await.unwrap().leases;
        empty = if leases.is_empty() { empty + 1 } else { 0 };
        held.take(&leases, &limits);
        tokio::task::yield_now().await;
        for lease in leases {
            held.give_back(&lease);
            let outcome = match dice.u8(..10) {
                0 => continue,
                1 => Outcome::Released,
                2 => failed_retry_after(std::time::Duration::ZERO),
                3 => Outcome::failed_permanently("x"),
                _ => succeeded(),
            };
            let settled = store.settle(vec![settle_of(&lease, outcome.clone())]).await.unwrap().remove(0).unwrap();
            if settled == Settled::Recorded && dice.u8(..4) == 0 {
                // Said again, and something else: a place must not be given back twice.
                store.settle(vec![settle_of(&lease, outcome), settle_of(&lease, failed("late"))]).await.unwrap();
            }
        }
    }
}

async fn never_over(world: &impl World, limits: Limits) {
    let each = GroupDefaults::default().concurrency(limits.group);
    for name in ["a", "b"] {
        world.set_queue(name, leases_of_queue(limits.queue).groups(each)).await;
    }
    for name in ["welcome", "other"] {
        world.limit_kind(name, Some(limits.kind), None).await;
    }
    let mut requests = Vec::new();
    for n in 0..JOBS {
        let request = job(["welcome", "other"][n % 2]).queue(["a", "b"][n / 2 % 2]).max_attempts(3);
        requests.push(if n % 5 == 0 { request } else { request.group_key(format!("g{}", n % GROUPS)) });
    }
    world.enqueue_all(requests).await;
    let (store, held) = (world.store(), Arc::new(Held::default()));
    together(CLAIMERS, |n| work(store.clone(), held.clone(), limits, n)).await;
    world.assert_recounted().await;
    // What was dropped runs out and is reaped by several at once, while others claim; until all is done.
    for round in 0.. {
        assert!(round < 200, "it does not come to an end: {:?} {:?}", world.counts("a").await, world.counts("b").await);
        world.advance(LEASE + SECOND).await;
        together(CLAIMERS, |n| {
            let (store, held) = (store.clone(), held.clone());
            async move {
                if n < 2 {
                    store.reap(Reap::up_to(50)).await.unwrap();
                }
                work_once(store, held, limits, n).await;
            }
        })
        .await;
        world.assert_recounted().await;
        let left = |counts: steadfast::store::Counts| counts.iter().any(|(status, _)| !status.is_terminal());
        if !left(world.counts("a").await) && !left(world.counts("b").await) {
            break;
        }
    }
    for name in ["a", "b"] {
        assert_eq!(world.running_in_queue(name).await, 0, "places of queue {name} are not given back");
        for n in 0..GROUPS {
            assert_eq!(world.running_in_group(name, &format!("g{n}")).await, 0, "places of group {n}");
        }
    }
    world.assert_recounted().await;
}

async fn work_once(store: Arc<dyn Store>, held: Arc<Held>, limits: Limits, n: usize) {
    for _ in 0..20 {
        let leases = store.claim(claim_of(3).worker(worker(&format!("claimer-{n}")))).await.unwrap().leases;
        if leases.is_empty() {
            tokio::task::yield_now().await;
        }
        held.take(&leases, &limits);
        for lease in leases {
            held.give_back(&lease);
            store.settle(vec![settle_of(&lease, succeeded())]).await.unwrap();
        }
    }
}

pub(crate) async fn eight_claimers_are_never_over_limits_of_one(world: &impl World) {
    never_over(world, Limits { queue: 1, kind: 1, group: 1 }).await;
}

pub(crate) async fn eight_claimers_are_never_over_limits_of_five(world: &impl World) {
    never_over(world, Limits { queue: 5, kind: 5, group: 5 }).await;
}

pub(crate) async fn eight_claimers_are_never_over_a_group_limit_inside_a_wider_one(world: &impl World) {
    never_over(world, Limits { queue: 5, kind: 7, group: 1 }).await;
}

pub(crate) async fn a_limit_that_is_set_while_jobs_start_and_end_is_exact_afterwards(world: &impl World) {
    world.enqueue_some(JOBS, in_group("acme")).await;
    let store = world.store();
    together(CLAIMERS, |n| {
        let store = store.clone();
        async move {
            for round in 0..30 {
                if n == 0 {
                    let leases = 1 + round % 3;
                    let settings = leases_of_queue(leases).groups(GroupDefaults::default().concurrency(leases));
                    let settings = if round % 4 == 3 { Default::default() } else { settings };
                    store.put_queue(steadfast::store::PutQueue::new(queue(DEFAULT), settings)).await.unwrap();
                    continue;
                }
                for lease in store.claim(claim_of(4)).await.unwrap().leases {
                    tokio::task::yield_now().await;
                    store.settle(vec![settle_of(&lease, succeeded())]).await.unwrap();
                }
            }
        }
    })
    .await;
    world.assert_recounted().await;
    assert_eq!(world.running_in_queue(DEFAULT).await, 0);
    assert_eq!(world.running_in_group(DEFAULT, "acme").await, 0);
}
