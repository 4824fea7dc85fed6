//! Schedules, with many processes, dead processes, clocks that are set and nights without a server: every tick has one
//! job, and catch-up and overlap are as declared.
//!
//! `docs/guarantees.md` F44. What a look at a schedule decides, case by case, is `tests/conformance` `schedules`.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::clocks::{call, leases};
use crate::scale::{MACHINE, dice, quick_or_long, wait_timeout};
use crate::schedule_site::{
    SECOND, Site, assert_all_fired, assert_one_job_per_second, every_second, fired_by, last_tick, next_tick, put,
    ticks_with_a_job, wait_for_tick,
};
use crate::stage::{Store, until};

const HOUR: SignedDuration = SignedDuration::from_hours(1);
const DAY: SignedDuration = SignedDuration::from_hours(24);
const YEAR: SignedDuration = SignedDuration::from_hours(365 * 24);

/// Until the ticker is about to tick, or is at it.
fn wait_for_the_moment_of_a_tick(dice: &mut fastrand::Rng) {
    let into_second = Duration::from_nanos(Timestamp::now().subsec_nanosecond().unsigned_abs().into());
    // It looks up to 50 ms after the full second.
    let aim = Duration::from_millis(1_000 + dice.u64(..80));
    std::thread::sleep(aim - into_second);
}

/// `docs/guarantees.md` F44.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f44_eight_processes_make_one_job_of_each_tick_and_pass_over_none_on_postgresql() {
    let _share = MACHINE.read().await;
    let site = Site::on(Store::Postgres).await;
    let first_process = site.start();
    let first = put(&first_process, "often", every_second());
    // They come when it is there, so that they tick at once.
    let database = &site.database.as_ref().unwrap().0;
    let roles = ["api", "worker", "api", "worker", "api", "worker", "worker"];
    let executor = |role| if role == "worker" { "simulated" } else { "none" };
    let others: Vec<_> = roles.iter().map(|role| site.start_role(database, role, executor(*role))).collect();
    let from = last_tick(&first_process, "often").unwrap_or(first);
    wait_for_tick(&first_process, "often", from + SECOND * quick_or_long(12, 60));
    assert_all_fired(&first_process, "often", first);
    let jobs = ticks_with_a_job(&first_process, "often").len();
    let processes: Vec<_> = others.into_iter().chain([first_process]).collect();
    let shares = until("the processes count as many ticks as there are jobs", || {
        let shares: Vec<_> = processes.iter().map(|process| fired_by(process, "often")).collect();
        (shares.iter().sum::<usize>() == jobs).then_some(shares)
    });
    assert!(shares.iter().filter(|share| **share > 0).count() > 1, "nobody met anybody: {shares:?}");
    for process in processes {
        process.stop();
    }
}

/// `docs/guarantees.md` F44.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f44_one_process_makes_one_job_of_each_tick_and_passes_over_none_on_sqlite() {
    let _share = MACHINE.read().await;
    let site = Site::on(Store::Sqlite).await;
    let server = site.start();
    let first = put(&server, "often", every_second());
    wait_for_tick(&server, "often", first + SECOND * quick_or_long(8, 60));
    assert_all_fired(&server, "often", first);
    server.stop();
}

/// Every process of `count` is killed in turn, at the moment of a tick.
async fn killed_at_ticks(store: Store, count: usize) {
    let _share = MACHINE.read().await;
    let mut dice = dice("schedules and kills");
    let site = Site::on(store).await;
    let mut processes = vec![site.start()];
    let first = put(&processes[0], "often", every_second());
    processes.extend((1..count).map(|_| site.start()));
    let mut last = first;
    for kill in 0..quick_or_long(5, 25) {
        wait_for_tick(&processes[0], "often", last);
        wait_for_the_moment_of_a_tick(&mut dice);
        // SIGKILL.
        drop(processes.remove(kill % count));
        if processes.is_empty() {
            // Ticks that nobody is there for.
            std::thread::sleep(Duration::from_millis(1_200 + dice.u64(..1_500)));
        }
        processes.insert(kill % count, site.start());
        last = last_tick(&processes[0], "often").unwrap_or(first) + SECOND;
    }
    wait_for_tick(&processes[0], "often", last + SECOND * 2);
    assert_all_fired(&processes[0], "often", first);
    for process in processes {
        process.stop();
    }
}

/// `docs/guarantees.md` F44.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f44_the_only_process_killed_between_due_and_tick_loses_no_tick_and_doubles_none_on_sqlite() {
    killed_at_ticks(Store::Sqlite, 1).await;
}

/// `docs/guarantees.md` F44.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f44_the_only_process_killed_between_due_and_tick_loses_no_tick_and_doubles_none_on_postgresql() {
    killed_at_ticks(Store::Postgres, 1).await;
}

/// `docs/guarantees.md` F44.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f44_one_of_three_processes_killed_between_due_and_tick_loses_no_tick_and_doubles_none_on_postgresql() {
    killed_at_ticks(Store::Postgres, 3).await;
}

/// A clock a year ahead, for a while; it is set back while the server runs, or while none does.
async fn a_year_ahead_and_back(store: Store) {
    let _share = MACHINE.read().await;
    let site = Site::on(store).await;
    let mut server = site.start();
    let first = put(&server, "often", json!({"every_ms": 5000, "overlap": "allow", "catch_up": "skip"}));
    put(&server, "daily", json!({"cron": "@daily"}));
    wait_for_tick(&server, "often", first);
    for restarts in [false, true] {
        site.set_clock(YEAR).await;
        wait_for_tick(&server, "often", first + YEAR - DAY);
        until("the daily one follows", || (next_tick(&server, "daily") > first + YEAR - DAY).then_some(()));
        let (ahead, set_back) = (ticks_with_a_job(&server, "often"), Instant::now());
        if restarts {
            server.stop();
            site.set_clock(SignedDuration::ZERO).await;
            server = site.start();
        } else {
            site.set_clock(SignedDuration::ZERO).await;
        }
        until("it fires again, by the right clock", || {
            let ticks = ticks_with_a_job(&server, "often");
            let soon = Timestamp::now() + DAY;
            ticks.iter().any(|tick| *tick < soon && !ahead.contains(tick)).then_some(())
        });
        assert!(set_back.elapsed() < Duration::from_secs(60), "it took {:?} to fire again", set_back.elapsed());
        until("the daily one fires tomorrow", || (next_tick(&server, "daily") <= Timestamp::now() + DAY).then_some(()));
    }
    let ticks = ticks_with_a_job(&server, "often");
    assert_eq!(ticks.iter().collect::<BTreeSet<_>>().len(), ticks.len(), "ticks with two jobs: {ticks:?}");
    server.stop();
}

/// `docs/guarantees.md` F44.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f44_a_clock_a_year_ahead_and_back_costs_no_year_on_sqlite() {
    a_year_ahead_and_back(Store::Sqlite).await;
}

/// `docs/guarantees.md` F44.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f44_a_clock_a_year_ahead_and_back_costs_no_year_on_postgresql() {
    a_year_ahead_and_back(Store::Postgres).await;
}

/// The clock goes back, by a little and by an hour, and comes to times again that it has shown.
async fn back_and_forth(store: Store) {
    let _share = MACHINE.read().await;
    let site = Site::on(store).await;
    let server = site.start();
    let first = put(&server, "often", json!({"every_ms": 1000, "overlap": "allow", "catch_up": "skip"}));
    wait_for_tick(&server, "often", first + SECOND * 3);
    for back in [SECOND * 20, HOUR] {
        let before = last_tick(&server, "often").unwrap();
        site.set_clock(-back).await;
        until("it ticks by the clock that was set back", || {
            last_tick(&server, "often").filter(|tick| *tick < before - back / 2)
        });
        site.set_clock(SignedDuration::ZERO).await;
        // Ticks that had their job are due again, among them.
        wait_for_tick(&server, "often", Timestamp::now() + SECOND);
    }
    assert_one_job_per_second(&server, "often", first);
    server.stop();
}

/// `docs/guarantees.md` F44.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f44_a_clock_that_shows_the_same_hour_again_doubles_no_tick_on_sqlite() {
    back_and_forth(Store::Sqlite).await;
}

/// `docs/guarantees.md` F44.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f44_a_clock_that_shows_the_same_hour_again_doubles_no_tick_on_postgresql() {
    back_and_forth(Store::Postgres).await;
}

/// Eight hours without a process, and a schedule for each way to make up for them.
async fn restarted_after_a_night(store: Store) {
    const MISSED: usize = 8;
    let _share = MACHINE.read().await;
    let site = Site::on(store).await;
    let server = site.start();
    // Half an hour away from now, so that none of the eight is in time.
    let anchor = Timestamp::now() + SignedDuration::from_mins(30);
    let cases = [
        ("skip", json!({"catch_up": "skip"}), 0),
        ("one", json!({"catch_up": "one"}), 1),
        ("all", json!({"catch_up": "all"}), MISSED),
        ("all-of-three", json!({"catch_up": "all", "catch_up_max": 3}), 3),
        ("all-of-two-hours", json!({"catch_up": "all", "catch_up_window_ms": 7_200_000}), 2),
        ("all-but-no-overlap", json!({"catch_up": "all", "overlap": "skip"}), 1),
    ];
    for (name, catch_up, _) in &cases {
        let mut schedule = json!({"every_ms": 3_600_000, "anchor_at": anchor, "overlap": "allow"});
        catch_up.as_object().unwrap().iter().for_each(|(field, value)| schedule[field] = value.clone());
        put(&server, name, schedule);
    }
    server.stop();
    site.set_clock(HOUR * MISSED as i32).await;
    let server = site.start();
    for (name, _, jobs) in &cases {
        wait_for_tick(&server, name, Timestamp::now() + HOUR * (MISSED as i32 - 1));
        let ticks = ticks_with_a_job(&server, name);
        assert_eq!(ticks.len(), *jobs, "{name}: jobs for the ticks {ticks:?}");
        let counts = &server.json(&format!("/schedules/{name}"))["counts"];
        let others: u64 = ["missed", "skipped"].iter().map(|count| counts[count].as_u64().unwrap()).sum();
        assert_eq!(others, (MISSED - jobs) as u64, "{name}: {counts}");
    }
    server.stop();
}

/// `docs/guarantees.md` F44.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f44_a_night_without_a_server_is_made_up_for_as_declared_and_no_further_on_sqlite() {
    restarted_after_a_night(Store::Sqlite).await;
}

/// `docs/guarantees.md` F44.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f44_a_night_without_a_server_is_made_up_for_as_declared_and_no_further_on_postgresql() {
    restarted_after_a_night(Store::Postgres).await;
}

/// Jobs that wait longer than their interval, for a worker that fails at some of them and dies at others.
async fn slow_jobs_and_dead_workers(store: Store) {
    const POLICIES: [&str; 3] = ["skip", "queue_one", "cancel"];
    let _share = MACHINE.read().await;
    let mut dice = dice("schedules and overlap");
    let site = Site::on(store).await;
    let server = site.start();
    for policy in POLICIES {
        put(&server, policy, json!({"every_ms": 1000, "overlap": policy}));
    }
    let give_up = Instant::now() + wait_timeout();
    let mut next_claim = Instant::now();
    loop {
        // Newest first: whatever is read of an older one was so later.
        let jobs = server.json("/jobs?kind=summarize_text&limit=200");
        let is_open = |job: &&Value| ["queued", "running", "retrying"].iter().any(|status| job["status"] == *status);
        for policy in POLICIES {
            let prefix = format!("schedule:{policy}:");
            let is_its = |job: &&Value| job["idempotency_key"].as_str().unwrap().starts_with(&prefix);
            let open: Vec<_> = jobs.as_array().unwrap().iter().filter(is_open).filter(is_its).collect();
            assert!(open.len() <= 1, "overlap {policy}: unfinished at once are {open:#?}");
        }
        let fired = |policy| server.json(&format!("/schedules/{policy}"))["counts"]["fired"].as_u64().unwrap();
        if POLICIES.into_iter().all(|policy| fired(policy) >= quick_or_long(4, 15)) {
            break;
        }
        assert!(Instant::now() < give_up, "waited in vain for jobs of every policy");
        if Instant::now() > next_claim {
            next_claim = Instant::now() + Duration::from_millis(700);
            for lease in leases(&server, 3, 1_000) {
                let fate = dice.u8(..4);
                // Else it dies of it.
                if fate > 0 {
                    let outcome = if fate > 1 { "succeeded" } else { "failed" };
                    let outcome = json!({"job_id": lease["job"]["id"], "lease_token": lease["lease_token"],
                                         "outcome": outcome, "error": (outcome == "failed").then_some("no")});
                    call(&server, "/leases/settle", &json!({"worker": "w", "outcomes": [outcome]}));
                }
            }
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    server.stop();
}

/// `docs/guarantees.md` F44.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f44_no_schedule_but_one_that_allows_it_has_two_unfinished_jobs_on_sqlite() {
    slow_jobs_and_dead_workers(Store::Sqlite).await;
}

/// `docs/guarantees.md` F44.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f44_no_schedule_but_one_that_allows_it_has_two_unfinished_jobs_on_postgresql() {
    slow_jobs_and_dead_workers(Store::Postgres).await;
}
