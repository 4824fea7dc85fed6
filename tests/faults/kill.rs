//! `kill -9` of servers, workers and PostgreSQL, at random moments, under load. Nothing acknowledged is lost, nothing
//! unexpected is there, and every further start has its cause.
//!
//! That what was written survives a power cut is another matter: `power_cut`.

use std::time::Duration;

use crate::customers::Customers;
use crate::players::{LONG_LEASE, LONG_WORK_MS, Part, Player, Script, Task};
use crate::scale::{dice, quick_or_long};
use crate::stage::{Stage, until, wait_until_done};
use crate::support::postgres::Cluster;

fn customers(server: &str, dice: &mut fastrand::Rng) -> Customers {
    let task = |dice: &mut fastrand::Rng| Task { work_ms: dice.u64(..40), fail_percent: 2 };
    Customers::start(4, Duration::from_millis(4), server, dice, task)
}

fn wait_a_moment(dice: &mut fastrand::Rng, longest_ms: u64) {
    std::thread::sleep(Duration::from_millis(dice.u64(..longest_ms)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f6_f8_f10_a_server_on_sqlite_killed_at_random_loses_nothing_and_runs_nothing_without_a_cause() {
    let mut dice = dice("kill on sqlite");
    let stage = Stage::on_sqlite().await;
    let mut server = Player::start(Part::Server, &stage.script());
    let customers = customers(&server.url, &mut dice);
    let kills = quick_or_long(5, 50);
    for _ in 0..kills {
        customers.carry_on(20);
        wait_a_moment(&mut dice, 700);
        server.kill();
        server = Player::start(Part::Server, &stage.script());
        customers.moved(&server.url);
    }
    customers.carry_on(20);
    let history = customers.close();
    wait_until_done(&server.url);
    server.stop();
    let (history, verdict) = stage.judge(history).await;
    verdict.accept(&format!("{kills} kills on sqlite"), &history);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f6_f8_f10_apis_and_workers_on_postgresql_killed_at_random_lose_nothing_and_run_nothing_without_a_cause() {
    let mut dice = dice("kill on postgresql");
    let stage = Stage::on_postgres().await;
    let script = stage.script();
    let mut api = Player::start(Part::Api, &script);
    let mut workers = [0, 1].map(|_| Player::start(Part::Worker, &script));
    let customers = customers(&api.url, &mut dice);
    let kills = quick_or_long(5, 50);
    for _ in 0..kills {
        customers.carry_on(20);
        wait_a_moment(&mut dice, 700);
        match dice.usize(..3) {
            2 => {
                api.kill();
                api = Player::start(Part::Api, &script);
                customers.moved(&api.url);
            }
            n => {
                let fresh = Player::start(Part::Worker, &script);
                std::mem::replace(&mut workers[n], fresh).kill();
            }
        }
    }
    customers.carry_on(20);
    let history = customers.close();
    wait_until_done(&api.url);
    for player in workers.into_iter().chain([api]) {
        player.stop();
    }
    let (history, verdict) = stage.judge(history).await;
    verdict.accept(&format!("{kills} kills of apis and workers on postgresql"), &history);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f32_postgresql_killed_at_random_loses_nothing_and_no_process_dies_of_it() {
    let mut dice = dice("kill of postgresql");
    let cluster = Cluster::start(&[]).await;
    let stage = Stage::in_cluster(&cluster).await;
    let script = stage.script();
    let mut api = Player::start(Part::Api, &script);
    let mut workers = [0, 1].map(|_| Player::start(Part::Worker, &script));
    let customers = customers(&api.url, &mut dice);
    let kills = quick_or_long(3, 20);
    for _ in 0..kills {
        customers.carry_on(20);
        wait_a_moment(&mut dice, 700);
        tokio::task::block_in_place(|| cluster.kill_and_restart());
    }
    customers.carry_on(20);
    let history = customers.close();
    wait_until_done(&api.url);
    for player in workers.iter_mut().chain([&mut api]) {
        assert!(player.is_alive(), "a process died with the database");
    }
    for player in workers.into_iter().chain([api]) {
        player.stop();
    }
    let (history, verdict) = stage.judge(history).await;
    verdict.accept(&format!("{kills} kills of postgresql"), &history);
}

/// The job of a worker that is killed right after its start.
async fn runs_again(stage: Stage) {
    let queue = stage.queue().await;
    let id = queue.enqueue(Task { work_ms: 0, fail_percent: 0 }).idempotency_key("only").await.unwrap().job.id;
    let victim = Player::start(Part::Worker, &Script { work_ms: Some(LONG_WORK_MS), ..stage.script() });
    until("the job starts", || (stage.journal.lines("start").len() == 1).then_some(()));
    victim.kill();
    let lease_ms = LONG_LEASE.as_millis() as u64;
    let successor = Player::start(Part::Worker, &Script { lease_ms, ..stage.script() });
    until("a dead worker's job is run again", || (stage.journal.lines("start").len() == 2).then_some(()));
    crate::leases::reaches(&queue, id, steadfast::Status::Succeeded).await;
    successor.stop();
    let mut history = crate::history::History::default();
    history.asked.insert("only".into());
    history.acknowledged.push(("only".into(), id));
    let (history, verdict) = stage.judge(history).await;
    verdict.accept("a killed worker", &history);
    assert_eq!(verdict.causes.get("lease_expired"), Some(&1), "the cause is recorded: {verdict:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f10_the_job_of_a_worker_killed_after_its_claim_runs_again_with_the_cause_recorded() {
    runs_again(Stage::on_postgres().await).await;
}
