//! SIGTERM under load, and what a kill in the middle of it leaves. That a second signal ends the program at once is
//! shown with the real one: `tests/cli/shutdown.rs`.

use std::time::Duration;

use serde_json::Value;
use steadfast::Status;
use steadfast::job::AttemptOutcome;

use crate::customers::Customers;
use crate::history::History;
use crate::players::{LONG_LEASE, LONG_WORK_MS, Part, Player, Script, Task};
use crate::programs::get;
use crate::scale::dice;
use crate::stage::{Stage, until, wait_until_done};

/// Half of the jobs end within the grace period, the others do not.
fn customers(server: &str, dice: &mut fastrand::Rng) -> Customers {
    let task =
        |dice: &mut fastrand::Rng| Task { work_ms: if dice.bool() { 200 } else { LONG_WORK_MS }, fail_percent: 0 };
    Customers::start(2, Duration::from_millis(20), server, dice, task)
}

/// Waits until all slots have had a job, and one of them has a job that cannot end within the grace period.
fn wait_for_long_work(stage: &Stage, server: &str) {
    until("every slot has had a job", || (stage.journal.lines("start").len() >= stage.script().slots).then_some(()));
    until("a long job is running", || {
        let (_, body) = get(&format!("{server}/jobs?status=running"), None);
        let page: Value = serde_json::from_str(&body).unwrap_or_default();
        page.as_array()?.iter().any(|job| job["payload"]["work_ms"] == LONG_WORK_MS).then_some(())
    });
}

/// A worker with a short grace period, and leases that do not run out during it.
fn short_of_time(stage: &Stage) -> Script {
    Script { grace_ms: 1_000, lease_ms: LONG_LEASE.as_millis() as u64, ..stage.script() }
}

/// What nothing may have been left of, once a worker has ended in order.
fn assert_clean(history: &History) {
    let mut released = 0;
    for job in &history.kept {
        assert_ne!(job.status, Status::Running, "job {} was left running", job.id);
        for one in &job.tries {
            let outcome = one.outcome.unwrap();
            let fine = matches!(outcome, AttemptOutcome::Succeeded | AttemptOutcome::Released);
            assert!(fine, "an attempt was spent by the shutdown: {outcome} of {}", job.id);
            released += usize::from(outcome == AttemptOutcome::Released);
        }
    }
    assert!(released > 0, "nothing was under way: nothing was tested");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f19_a_server_told_to_stop_under_load_leaves_nothing_running_and_spends_no_attempt_on_sqlite() {
    let mut dice = dice("stop on sqlite");
    let stage = Stage::on_sqlite().await;
    let mut server = Player::start(Part::Server, &short_of_time(&stage));
    let customers = customers(&server.url, &mut dice);
    wait_for_long_work(&stage, &server.url);
    server.signal("TERM");
    let status = server.ended();
    assert_eq!(status.code(), Some(0), "{status}");
    let history = customers.close();
    let (history, _) = stage.judge(history).await;
    assert_clean(&history);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f19_a_worker_told_to_stop_under_load_leaves_nothing_running_and_spends_no_attempt_on_postgresql() {
    let mut dice = dice("stop on postgresql");
    let stage = Stage::on_postgres().await;
    let api = Player::start(Part::Api, &stage.script());
    let mut worker = Player::start(Part::Worker, &short_of_time(&stage));
    let customers = customers(&api.url, &mut dice);
    wait_for_long_work(&stage, &api.url);
    worker.signal("TERM");
    let status = worker.ended();
    assert_eq!(status.code(), Some(0), "{status}");
    let history = customers.close();
    api.stop();
    let (history, _) = stage.judge(history).await;
    assert_clean(&history);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f19_a_kill_in_the_middle_of_a_shutdown_loses_nothing() {
    let mut dice = dice("kill during a shutdown");
    let stage = Stage::on_sqlite().await;
    let script = stage.script();
    let server = Player::start(Part::Server, &script);
    let task = |dice: &mut fastrand::Rng| Task { work_ms: dice.u64(100..800), fail_percent: 0 };
    let customers = Customers::start(2, Duration::from_millis(30), &server.url, &mut dice, task);
    until("jobs are running", || (stage.journal.lines("start").len() >= 20).then_some(()));
    server.signal("TERM");
    std::thread::sleep(Duration::from_millis(dice.u64(..300)));
    server.kill();
    let server = Player::start(Part::Server, &script);
    customers.moved(&server.url);
    customers.carry_on(5);
    let history = customers.close();
    wait_until_done(&server.url);
    server.stop();
    let (history, verdict) = stage.judge(history).await;
    verdict.accept("a kill during a shutdown", &history);
}
