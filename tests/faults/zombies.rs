//! Workers that are stopped in the middle of their work and wake when somebody else has it: what they say then changes
//! nothing, and they are told.

use std::time::{Duration, Instant};

use steadfast::Status;
use steadfast::job::AttemptOutcome;

use crate::customers::Customers;
use crate::history::History;
use crate::leases::reaches;
use crate::players::{LEASE, LONG_LEASE, Part, Player, Script, Task, body};
use crate::producers::{agent, post};
use crate::programs::get;
use crate::scale::{dice, quick_or_long, wait_timeout};
use crate::stage::{Stage, until, wait_until_done};

/// 4 workers, one after the other stopped for up to three leases and continued, for as long as the size says, and until
/// one of them has lost a lease by it.
fn storm(zombies: &mut [Player], server: &str, dice: &mut fastrand::Rng) -> usize {
    let end = Instant::now() + Duration::from_secs(quick_or_long(15, 180));
    let mut wakes: Vec<Option<Instant>> = vec![None; zombies.len()];
    let mut stops = 0;
    while Instant::now() < end || !has_lost_a_lease(server) {
        assert!(Instant::now() < end + wait_timeout(), "no lease was lost: nothing was tested");
        for (zombie, wake) in zombies.iter().zip(&mut wakes) {
            match wake {
                Some(at) if *at <= Instant::now() => {
                    zombie.signal("CONT");
                    *wake = None;
                }
                None if dice.u8(..100) < 4 => {
                    zombie.signal("STOP");
                    stops += 1;
                    *wake = Some(Instant::now() + Duration::from_millis(dice.u64(100..3 * LEASE.as_millis() as u64)));
                }
                _ => {}
            }
        }
        // The step of the storm, not a wait for anything.
        std::thread::sleep(Duration::from_millis(50));
    }
    zombies.iter().for_each(|zombie| zombie.signal("CONT"));
    stops
}

/// By one of the newest jobs: its error stays when it succeeds later.
fn has_lost_a_lease(server: &str) -> bool {
    get(&format!("{server}/jobs?limit=200"), None).1.contains("lease expired")
}

async fn survives_a_storm(scenario: &str, stage: Stage, part: Part) {
    let mut dice = dice(scenario);
    let server = Player::start(Part::Api, &stage.script());
    let url = if part == Part::Remote { server.url.clone() } else { stage.url.clone() };
    let script = Script { url, slots: 4, ..stage.script() };
    let mut zombies: Vec<_> = (0..4).map(|_| Player::start(part, &script)).collect();
    let task = |dice: &mut fastrand::Rng| Task { work_ms: dice.u64(50..500), fail_percent: 10 };
    let customers = Customers::start(2, Duration::from_millis(120), &server.url, &mut dice, task);
    let stops = storm(&mut zombies, &server.url, &mut dice);
    let history = customers.close();
    wait_until_done(&server.url);
    drop(zombies);
    server.stop();
    let (history, verdict) = stage.judge(history).await;
    let refused = history.reports.iter().filter(|report| !report.recorded).count();
    println!(
        "{scenario}: {stops} stops, {refused} settles refused, {} heartbeats told so",
        stage.journal.lines("told-lost").len()
    );
    verdict.accept(scenario, &history);
    assert!(verdict.causes.contains_key("lease_expired"), "no lease was lost: nothing was tested: {verdict:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f12_f13_a_storm_of_zombies_over_http_on_sqlite_leaves_no_stale_settle() {
    survives_a_storm("zombies over http on sqlite", Stage::on_sqlite().await, Part::Remote).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f12_f13_a_storm_of_zombies_on_postgresql_leaves_no_stale_settle() {
    survives_a_storm("zombies on postgresql", Stage::on_postgres().await, Part::Worker).await;
}

/// One job, a zombie that has begun it and is stopped, and a successor that has begun it too.
struct Haunted {
    stage: Stage,
    server: Player,
    zombie: Player,
    successor: Player,
    history: History,
}

impl Haunted {
    fn new(stage: Stage, work_ms: u64, zombie_fails: bool) -> Self {
        let server = Player::start(Part::Api, &stage.script());
        let mut history = History::default();
        history.asked.insert("only".into());
        let task = Task { work_ms, fail_percent: 0 };
        let answer = post(&agent(), &format!("{}/jobs", server.url), &body(&task, "only")).unwrap();
        history.acknowledged.push(("only".into(), answer.body["id"].as_str().unwrap().parse().unwrap()));
        let script = Script { url: server.url.clone(), ..stage.script() };
        let zombie =
            Player::start(Part::Remote, &Script { always_fails: zombie_fails, work_ms: Some(1_500), ..script.clone() });
        until("the zombie begins", || (stage.journal.lines("start").len() == 1).then_some(()));
        zombie.signal("STOP");
        let lease_ms = LONG_LEASE.as_millis() as u64;
        let successor = Player::start(Part::Remote, &Script { lease_ms, ..script });
        until("the successor begins", || (stage.journal.lines("start").len() == 2).then_some(()));
        Self { stage, server, zombie, successor, history }
    }

    /// The zombie goes on, and has said what it has to say.
    fn wakes(&self) {
        self.zombie.signal("CONT");
        let run = self.stage.journal.lines("start")[0][4].clone();
        let settled = || self.stage.journal.lines("settled").into_iter().find(|line| line[1] == run);
        let settled = until("the zombie settles", settled);
        assert_eq!(settled[3], "lost", "a stale settle was recorded");
        let told = self.stage.journal.lines("told-lost");
        assert!(told.iter().any(|line| line[1] == run), "the zombie's heartbeat was not told that the lease is lost");
    }

    async fn ends_as_the_successor_said(self) {
        let id = self.history.acknowledged[0].1;
        wait_until_done(&self.server.url);
        drop((self.zombie, self.successor));
        self.server.stop();
        let (history, verdict) = self.stage.judge(self.history).await;
        verdict.accept("one zombie", &history);
        let job = reaches(&self.stage.queue().await, id, Status::Succeeded).await;
        assert_eq!(job.attempts, 2);
        let outcomes: Vec<_> = history.kept[0].tries.iter().map(|one| one.outcome.unwrap()).collect();
        assert_eq!(outcomes, [AttemptOutcome::LeaseExpired, AttemptOutcome::Succeeded]);
    }
}

/// It wakes while its successor is at work: the successor must be able to finish.
async fn f12(stage: Stage) {
    let haunted = Haunted::new(stage, 6_000, false);
    // The fault itself: with the lease that its successor had to wait for, three.
    std::thread::sleep(2 * LEASE);
    haunted.wakes();
    haunted.ends_as_the_successor_said().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f12_a_worker_stopped_for_three_leases_changes_nothing_when_it_wakes_on_sqlite() {
    f12(Stage::on_sqlite().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f12_a_worker_stopped_for_three_leases_changes_nothing_when_it_wakes_on_postgresql() {
    f12(Stage::on_postgres().await).await;
}

/// It wakes when all is done, and says that it failed.
async fn f13(stage: Stage) {
    let haunted = Haunted::new(stage, 600, true);
    until("the successor has finished", || (!haunted.stage.journal.lines("settled").is_empty()).then_some(()));
    haunted.wakes();
    haunted.ends_as_the_successor_said().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f13_a_failure_that_arrives_after_the_successors_success_changes_nothing_on_sqlite() {
    f13(Stage::on_sqlite().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f13_a_failure_that_arrives_after_the_successors_success_changes_nothing_on_postgresql() {
    f13(Stage::on_postgres().await).await;
}
