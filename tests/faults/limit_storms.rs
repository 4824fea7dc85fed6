//! Many at one limit, with everything that happens to leases at once: ends of every kind, said twice, too late, never;
//! reapers; processes that are killed. Never over the limit, and at the end every place is given back.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use steadfast::Queue;
use steadfast::job::{Failure, GroupDefaults, JobId, Lease, LeaseKey, Outcome, QueueSettings, WorkerId};
use steadfast::store::{self, Claim, LimitsRequest, Reap, Settle, Settled};

use crate::limit_site::*;
use crate::players::{LEASE, LONG_LEASE, Part, Player, Script, Task};
use crate::scale::{dice, quick_or_long};
use crate::stage::{Stage, Store, until, wait_until_done};

const GROUPS: [Option<&str>; 4] = [Some("a"), Some("b"), Some("c"), None];
const IN_QUEUE: usize = 5;
const IN_GROUP: usize = 2;

fn limits() -> QueueSettings {
    leases(IN_QUEUE as u32).groups(GroupDefaults::default().concurrency(IN_GROUP as u32))
}

/// What is leased as far as its holders know: entered once it is granted, with the time until which it surely lives, and
/// out before it is given back. So there are never more in here than in the store.
#[derive(Default)]
struct Held(Mutex<HashMap<LeaseKey, (Option<String>, Instant)>>);

impl Held {
    fn take(&self, leases: &[Lease], until: Instant) {
        let mut held = self.0.lock().unwrap();
        held.extend(leases.iter().map(|lease| (lease.key(), (group_of(lease.job()), until))));
        let now = Instant::now();
        let live: Vec<_> = held.values().filter(|(_, until)| now < *until).map(|(group, _)| group.as_deref()).collect();
        assert!(live.len() <= IN_QUEUE, "over the limit: {} leases, {IN_QUEUE} are allowed", live.len());
        for group in GROUPS.into_iter().filter(Option::is_some) {
            let count = live.iter().filter(|of| **of == group).count();
            assert!(count <= IN_GROUP, "over the limit: {count} leases of {group:?}, {IN_GROUP} are allowed");
        }
    }

    fn give_back(&self, lease: &Lease) {
        self.0.lock().unwrap().remove(&lease.key());
    }
}

fn some_end(dice: &mut fastrand::Rng) -> Outcome {
    match dice.u8(..10) {
        0 => Outcome::Released,
        1 | 2 => Outcome::Failed(Failure::new("as the dice said").retry_after(Duration::ZERO)),
        3 => Outcome::failed_permanently("as the dice said"),
        _ => Outcome::succeeded(None),
    }
}

/// Claims and ends jobs until it is told to stop. One claim in twenty is that of a zombie: its lease runs out, and it settles
/// all the same, at some later time.
async fn work(store: Arc<dyn store::Store>, held: Arc<Held>, stop: Arc<AtomicBool>, mut dice: fastrand::Rng) {
    let mut zombies: Vec<Lease> = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let asked = Instant::now();
        if dice.u8(..20) == 0 {
            let claim = Claim::new(WorkerId::new("zombie").unwrap(), LEASE).max(1);
            let leases = store.claim(claim).await.unwrap().leases;
            held.take(&leases, asked + LEASE);
            zombies.extend(leases);
        }
        if zombies.len() > 3 {
            let zombie = zombies.remove(0);
            held.give_back(&zombie);
            let late = Settle::new(zombie.key(), some_end(&mut dice));
            store.settle(vec![late]).await.unwrap().pop().unwrap().unwrap();
        }
        let asked = Instant::now();
        let leases = claim(&store, dice.usize(1..=4)).await;
        held.take(&leases, asked + LONG_LEASE);
        tokio::task::yield_now().await;
        for lease in leases {
            held.give_back(&lease);
            let end = some_end(&mut dice);
            let again = if dice.bool() { end.clone() } else { some_end(&mut dice) };
            let settles = vec![Settle::new(lease.key(), end)];
            assert_eq!(store.settle(settles).await.unwrap().pop().unwrap().unwrap(), Settled::Recorded);
            if dice.u8(..4) == 0 {
                store.settle(vec![Settle::new(lease.key(), again)]).await.unwrap();
            }
        }
    }
}

async fn reap(store: Arc<dyn store::Store>, stop: Arc<AtomicBool>) {
    while !stop.load(Ordering::Relaxed) {
        store.reap(Reap::up_to(50)).await.unwrap();
        // How often, not a wait for anything.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// What the store itself says is used, at any time.
async fn watch(queue: Queue, stop: Arc<AtomicBool>) {
    while !stop.load(Ordering::Relaxed) {
        let page = queue.store().limits(LimitsRequest::new(default_queue())).await.unwrap();
        for limit in page.items.iter().map(|item| &item.limit) {
            let (running, allowed) = (limit.running, limit.concurrency.unwrap());
            assert!(running <= allowed, "over the limit: {running} leases of {}, {allowed} are allowed", limit.name);
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Stores that share nothing but the database, like processes; on SQLite there is one.
async fn eight_claimers(stage: Stage, processes: usize) {
    let jobs = quick_or_long(300, 6_000);
    let mut dice = dice("eight claimers");
    let mut queues = Vec::new();
    for _ in 0..processes {
        queues.push(stage.queue().await);
    }
    limit(&queues[0], limits()).await;
    for group in GROUPS {
        enqueue(&queues[0], jobs / GROUPS.len(), &QUICK, group).await;
    }
    let (held, stop) = (Arc::new(Held::default()), Arc::new(AtomicBool::new(false)));
    let mut storm = tokio::task::JoinSet::new();
    for n in 0..8 {
        let store = queues[n % processes].store().clone();
        storm.spawn(work(store.clone(), held.clone(), stop.clone(), dice.fork()));
        if n < 2 {
            storm.spawn(reap(store, stop.clone()));
        }
    }
    storm.spawn(watch(queues[0].clone(), stop.clone()));
    tokio::select! {
        () = ended(&queues[0], jobs as u64) => {}
        // Before its time only if it panics.
        Some(over) = storm.join_next() => over.unwrap(),
    }
    stop.store(true, Ordering::Relaxed);
    storm.join_all().await;
    assert_all_given_back(&queues[0]).await;
}

/// And the places can be taken again: as many as are allowed, not one more.
async fn assert_all_given_back(queue: &Queue) {
    assert_eq!(running(queue).await, 0, "places are not given back");
    assert_recounted(queue).await;
    for group in GROUPS {
        enqueue(queue, IN_QUEUE, &QUICK, group).await;
    }
    let mut leases = Vec::new();
    for _ in 0..4 {
        leases.extend(claim(queue.store(), 10).await);
    }
    Held::default().take(&leases, Instant::now() + LONG_LEASE);
    assert_eq!(leases.len(), IN_QUEUE, "places are not given back");
    assert_recounted(queue).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f43_eight_claimers_with_reaps_and_zombies_are_never_over_a_limit_on_sqlite() {
    eight_claimers(Stage::on_sqlite().await, 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f43_eight_claimers_of_four_processes_with_reaps_and_zombies_are_never_over_a_limit_on_postgresql() {
    eight_claimers(Stage::on_postgres().await, 4).await;
}

/// Leases long enough for a busy machine: whoever loses one is still at work when the next begins, and is counted here.
fn script(stage: &Stage) -> Script {
    Script { lease_ms: 3_000, ..stage.script() }
}

async fn enqueue_some(queue: &Queue, jobs: usize, dice: &mut fastrand::Rng) -> HashMap<JobId, Option<&'static str>> {
    let mut groups = HashMap::new();
    for n in 0..jobs {
        let (task, group) = (Task { work_ms: dice.u64(5..60), fail_percent: 10 }, GROUPS[n % GROUPS.len()]);
        groups.extend(enqueue(queue, 1, &task, group).await.into_iter().map(|id| (id, group)));
    }
    groups
}

fn assert_never_over(stage: &Stage, groups: &HashMap<JobId, Option<&str>>) {
    let most = most_at_once(&stage.journal, |_| true);
    assert!(most <= IN_QUEUE, "over the limit: {most} at work at once, {IN_QUEUE} are allowed");
    for group in GROUPS.into_iter().flatten() {
        let most = most_at_once(&stage.journal, |id| groups[&id] == Some(group));
        assert!(most <= IN_GROUP, "over the limit: {most} of {group} at work at once, {IN_GROUP} are allowed");
    }
}

/// Processes that share nothing but the database, killed and replaced at random.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f43_three_processes_killed_at_random_never_run_more_than_allowed_on_postgresql() {
    let mut dice = dice("limits on postgresql");
    let stage = Stage::alone_on(Store::Postgres).await;
    let queue = stage.queue().await;
    limit(&queue, limits()).await;
    let jobs = quick_or_long(120, 1_500);
    let groups = enqueue_some(&queue, jobs, &mut dice).await;
    let mut workers = [0, 1, 2].map(|_| Player::start(Part::Worker, &script(&stage)));
    for _ in 0..quick_or_long(4, 40) {
        let begun = stage.journal.lines("start").len();
        until("work goes on", || (stage.journal.lines("start").len() > begun + 5).then_some(()));
        let n = dice.usize(..3);
        let fresh = Player::start(Part::Worker, &script(&stage));
        std::mem::replace(&mut workers[n], fresh).kill();
        stage.journal.killed();
    }
    ended(&queue, jobs as u64).await;
    workers.into_iter().for_each(Player::stop);
    assert_never_over(&stage, &groups);
    assert_all_given_back(&queue).await;
}

/// The one process there is, killed and started again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f43_a_server_killed_at_random_never_runs_more_than_allowed_on_sqlite() {
    let mut dice = dice("limits on sqlite");
    let stage = Stage::alone_on(Store::Sqlite).await;
    let queue = stage.queue().await;
    limit(&queue, limits()).await;
    let jobs = quick_or_long(120, 1_500);
    let groups = enqueue_some(&queue, jobs, &mut dice).await;
    drop(queue);
    let mut server = Player::start(Part::Server, &script(&stage));
    for _ in 0..quick_or_long(4, 40) {
        let begun = stage.journal.lines("start").len();
        let enough = dice.usize(1..8);
        until("work goes on", || (stage.journal.lines("start").len() > begun + enough).then_some(()));
        server.kill();
        stage.journal.killed();
        server = Player::start(Part::Server, &script(&stage));
    }
    wait_until_done(&server.url);
    server.stop();
    assert_never_over(&stage, &groups);
    assert_all_given_back(&stage.queue().await).await;
}
