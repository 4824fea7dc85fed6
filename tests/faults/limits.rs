//! Limits when things break: a worker that is killed with a place, one that comes back to give it back a second time, a
//! job that dies with it. Many at one limit are in `limit_storms`, turns and rates in `limit_turns`; the same without
//! anything breaking is in `tests/conformance`.

use std::time::{Duration, Instant};

use steadfast::job::{GroupDefaults, JobRequest, Lease, Outcome, WorkerId};
use steadfast::store::{Claim, LimitsRequest, Reap, Settled};
use steadfast::{Queue, Status};

use crate::limit_site::*;
use crate::players::{LEASE, LONG_LEASE, LONG_WORK_MS, Part, Player, REAP_INTERVAL, Script, Task};
use crate::scale::wait_timeout;
use crate::stage::{Stage, Store, until, wait_until_done};

/// What a busy machine may add to lease and reap interval. The reap interval is 5 s unless set: then it is too long.
const SLACK: Duration = Duration::from_secs(3);

const LONG: Task = Task { work_ms: LONG_WORK_MS, fail_percent: 0 };

fn assert_free_in_time(wait: Duration) {
    let allowed = LEASE + REAP_INTERVAL;
    println!("a dead worker's place was free after {wait:?}, lease and reap interval are {allowed:?}");
    assert!(wait <= allowed + SLACK, "the place was free after {wait:?}, {allowed:?} are allowed");
}

/// A killed worker's place is free after its lease and the reap interval, once: one of the others has it, not two.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f43_a_worker_killed_between_claim_and_settle_frees_its_place_once_on_postgresql() {
    let stage = Stage::alone_on(Store::Postgres).await;
    let queue = stage.queue().await;
    limit(&queue, leases(1)).await;
    enqueue(&queue, 1, &LONG, None).await;
    let victim = Player::start(Part::Worker, &stage.script());
    until("the victim has the place", || (stage.journal.lines("start").len() == 1).then_some(()));
    assert_eq!(running(&queue).await, 1);
    // Two reapers, so that both would give it back.
    let script = Script { work_ms: Some(30), lease_ms: LONG_LEASE.as_millis() as u64, ..stage.script() };
    let heirs = [0, 1].map(|_| Player::start(Part::Worker, &script));
    enqueue(&queue, 30, &QUICK, None).await;
    victim.kill();
    stage.journal.killed();
    let died = Instant::now();
    until("an heir begins", || (stage.journal.lines("start").len() > 1).then_some(()));
    assert_free_in_time(died.elapsed());
    ended(&queue, 31).await;
    assert_eq!(most_at_once(&stage.journal, |_| true), 1, "the place was given to two");
    assert_eq!(running(&queue).await, 0, "a place is not given back");
    assert_recounted(&queue).await;
    heirs.into_iter().for_each(Player::stop);
}

/// On SQLite all go down with the one process; the next one finds the place taken, and reaps it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f43_a_server_killed_between_claim_and_settle_frees_its_place_once_on_sqlite() {
    let stage = Stage::alone_on(Store::Sqlite).await;
    let queue = stage.queue().await;
    limit(&queue, leases(1)).await;
    enqueue(&queue, 1, &LONG, None).await;
    enqueue(&queue, 30, &QUICK, None).await;
    drop(queue);
    let victim = Player::start(Part::Server, &stage.script());
    until("the victim has the place", || (stage.journal.lines("start").len() == 1).then_some(()));
    victim.kill();
    stage.journal.killed();
    let script = Script { work_ms: Some(30), ..stage.script() };
    let heir = Player::start(Part::Server, &script);
    let there = Instant::now();
    until("the heir begins", || (stage.journal.lines("start").len() > 1).then_some(()));
    assert_free_in_time(there.elapsed());
    wait_until_done(&heir.url);
    heir.stop();
    assert_eq!(most_at_once(&stage.journal, |_| true), 1, "the place was given to two");
    let queue = stage.queue().await;
    ended(&queue, 31).await;
    assert_eq!(running(&queue).await, 0, "a place is not given back");
    assert_recounted(&queue).await;
}

/// rails/solid_queue#761: a worker that was taken for dead, and finished after all, gave its place back once more than it
/// had taken it. From then on one more ran than was allowed.
async fn late_settle(stage: Stage) {
    let queue = stage.queue().await;
    limit(&queue, leases(1).groups(GroupDefaults::default().concurrency(1))).await;
    let job = enqueue(&queue, 1, &QUICK, Some("acme")).await[0];
    let claim = Claim::new(WorkerId::new("zombie").unwrap(), LEASE);
    let zombie = queue.store().claim(claim).await.unwrap().leases.pop().unwrap();
    // The lease itself, not a wait for anything.
    tokio::time::sleep(LEASE + Duration::from_millis(100)).await;
    assert_eq!(queue.store().reap(Reap::up_to(10)).await.unwrap().len(), 1);
    assert_eq!(running(&queue).await, 0, "the place of a lease that ran out is not free");
    // The same job: it is that of the heir which must not be given back.
    let heir = claim_when_due(&queue).await;
    assert_eq!(heir.job().id, job);
    enqueue(&queue, 2, &QUICK, Some("acme")).await;
    for outcome in [Outcome::succeeded(None), Outcome::failed("late"), Outcome::Released] {
        assert_eq!(settle(&queue, &zombie, outcome).await, Settled::Lost);
        assert_eq!(running(&queue).await, 1, "a place was given back twice");
    }
    assert!(claim_up_to(queue.store(), 2).await.is_empty(), "a place was given back twice");
    assert_recounted(&queue).await;
    // Nor does the one that has it: said twice, it counts once.
    for _ in 0..2 {
        assert_eq!(settle(&queue, &heir, Outcome::succeeded(None)).await, Settled::Recorded);
    }
    assert_eq!(claim_up_to(queue.store(), 3).await.len(), 1, "a place was given back twice");
    assert_recounted(&queue).await;
}

/// One that was lost is tried again after a while.
async fn claim_when_due(queue: &Queue) -> Lease {
    let give_up = Instant::now() + wait_timeout();
    loop {
        if let Some(lease) = claim(queue.store(), 1).await.pop() {
            return lease;
        }
        assert!(Instant::now() < give_up, "waited in vain for a job that was lost to be due");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn f43_the_zombie_of_solid_queue_761_gives_no_place_back_a_second_time_on_sqlite() {
    late_settle(Stage::on_sqlite().await).await;
}

#[tokio::test]
async fn f43_the_zombie_of_solid_queue_761_gives_no_place_back_a_second_time_on_postgresql() {
    late_settle(Stage::on_postgres().await).await;
}

async fn dead_letter(stage: Stage) {
    let queue = stage.queue().await;
    limit(&queue, leases(1)).await;
    for how in ["reaped", "failed"] {
        let request = JobRequest::of(&QUICK).unwrap().max_attempts(1);
        queue.enqueue_requests(vec![request]).await.unwrap();
        let claim = Claim::new(WorkerId::new("w").unwrap(), LEASE).max(1);
        let mut leases = queue.store().claim(claim.clone()).await.unwrap().leases;
        if leases.is_empty() {
            leases = queue.store().claim(claim).await.unwrap().leases;
        }
        let lease = leases.pop().unwrap_or_else(|| panic!("the place of a dead letter is never free again"));
        if how == "failed" {
            settle(&queue, &lease, Outcome::failed("x")).await;
        } else {
            tokio::time::sleep(LEASE + Duration::from_millis(100)).await;
            queue.store().reap(Reap::up_to(10)).await.unwrap();
        }
        assert_eq!(queue.get(lease.job().id).await.unwrap().unwrap().status, Status::FailedPermanent);
        assert_eq!(running(&queue).await, 0, "the place of a dead letter is never free again: {how}");
    }
}

#[tokio::test]
async fn f43_a_dead_letter_gives_its_place_back_on_sqlite() {
    dead_letter(Stage::on_sqlite().await).await;
}

#[tokio::test]
async fn f43_a_dead_letter_gives_its_place_back_on_postgresql() {
    dead_letter(Stage::on_postgres().await).await;
}

#[tokio::test]
async fn f43_groups_that_are_done_leave_nothing_behind() {
    for store in Store::BOTH {
        let stage = Stage::on(store).await;
        let queue = stage.queue().await;
        limit(&queue, leases(20).groups(GroupDefaults::default().concurrency(1))).await;
        for n in 0..50 {
            enqueue(&queue, 1, &QUICK, Some(&format!("g{n}"))).await;
        }
        loop {
            let leases = claim_up_to(queue.store(), 10).await;
            if leases.is_empty() {
                break;
            }
            for lease in leases {
                settle(&queue, &lease, Outcome::succeeded(None)).await;
            }
        }
        ended(&queue, 50).await;
        queue.store().reap(Reap::up_to(10)).await.unwrap();
        let page = queue.store().limits(LimitsRequest::new(default_queue())).await.unwrap();
        assert_eq!(page.items.len(), 1, "groups without leases are told of, {store:?}: {:?}", page.items);
    }
}
