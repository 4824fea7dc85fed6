//! Answers that are lost on the wire: whoever did not hear can ask again, and nothing is done twice.

use std::time::Duration;

use serde_json::{Value, json};
use steadfast::job::AttemptOutcome;

use crate::players::{LEASE, LONG_LEASE, Part, Player, Task, body};
use crate::producers::agent;
use crate::proxy::Proxy;
use crate::stage::{Stage, until};

const QUICK: Task = Task { work_ms: 0, fail_percent: 0 };

fn port_of(url: &str) -> u16 {
    url.rsplit(':').next().unwrap().split('/').next().unwrap().parse().unwrap()
}

/// Status, whether it is marked as a replay, body; `None` if no answer came.
fn send(url: &str, path: &str, body: &Value) -> Option<(u16, bool, Value)> {
    let request = agent().post(format!("{url}{path}")).header("content-type", "application/json");
    let mut response = tokio::task::block_in_place(|| request.send(body.to_string())).ok()?;
    let replayed = response.headers().get("idempotent-replayed").is_some_and(|value| value == "true");
    let text = response.body_mut().read_to_string().ok()?;
    Some((response.status().as_u16(), replayed, serde_json::from_str(&text).unwrap_or_default()))
}

async fn f5(stage: Stage) {
    let server = Player::start(Part::Api, &stage.script());
    let proxy = Proxy::to(port_of(&server.url)).await;
    let url = format!("http://127.0.0.1:{}", proxy.port);
    proxy.lose_the_answer_to("the-key");
    assert_eq!(send(&url, "/jobs", &body(&QUICK, "the-key")), None);
    assert!(proxy.has_lost_an_answer());
    let (status, replayed, first) = send(&url, "/jobs", &body(&QUICK, "the-key")).unwrap();
    assert_eq!((status, replayed), (200, true), "the key was seen: one job, not two: {first}");
    let (_, _, second) = send(&url, "/jobs", &body(&QUICK, "the-key")).unwrap();
    assert_eq!(first["id"], second["id"]);
    server.stop();
    assert_eq!(stage.judge(Default::default()).await.0.kept.len(), 1, "one job");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f5_an_enqueue_whose_answer_was_lost_is_stored_once_and_its_replay_is_marked_on_sqlite() {
    f5(Stage::on_sqlite().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f5_an_enqueue_whose_answer_was_lost_is_stored_once_and_its_replay_is_marked_on_postgresql() {
    f5(Stage::on_postgres().await).await;
}

/// A key that another job has: the caller is told, and does not take that job for its own.
async fn a_key_never_swallows_a_job(stage: Stage) {
    let server = Player::start(Part::Api, &stage.script());
    let (_, _, first) = send(&server.url, "/jobs", &body(&QUICK, "the-key")).unwrap();
    let other = body(&Task { work_ms: 1, ..QUICK }, "the-key");
    let (status, _, problem) = send(&server.url, "/jobs", &other).unwrap();
    assert_eq!(
        (status, problem["code"].as_str()),
        (422, Some("idempotency_conflict")),
        "a job was swallowed: {problem}"
    );
    assert!(problem["detail"].as_str().unwrap().contains(first["id"].as_str().unwrap()), "{problem}");
    server.stop();
    assert_eq!(stage.judge(Default::default()).await.0.kept.len(), 1, "one job");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g2_a_key_never_swallows_another_job_on_sqlite() {
    a_key_never_swallows_a_job(Stage::on_sqlite().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g2_a_key_never_swallows_another_job_on_postgresql() {
    a_key_never_swallows_a_job(Stage::on_postgres().await).await;
}

/// The link to the database is cut during the commit, and stays cut: nobody can know.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f7_a_commit_whose_outcome_is_unknown_is_a_503_that_says_so_and_the_same_key_resolves_it() {
    let stage = Stage::on_postgres().await;
    let proxy = Proxy::to(port_of(&stage.url)).await;
    let mut script = stage.script();
    script.url = stage.url.replace(&format!(":{}/", port_of(&stage.url)), &format!(":{}/", proxy.port));
    let server = Player::start(Part::Api, &script);
    // A job by itself is stored by one statement, which is its own commit.
    proxy.lose_the_answer_to("the-key");
    proxy.go_down_with_the_lost_answer();
    let (status, _, problem) = send(&server.url, "/jobs", &body(&QUICK, "the-key")).unwrap();
    assert!(proxy.has_lost_an_answer());
    assert_eq!((status, problem["code"].as_str()), (503, Some("outcome_unknown")), "{problem}");
    proxy.come_back();
    let resolved = until("the server has its database again", || {
        send(&server.url, "/jobs", &body(&QUICK, "the-key")).filter(|(status, ..)| *status != 503)
    });
    // The server had done it before it lost its way back.
    assert_eq!((resolved.0, resolved.1), (200, true), "{}", resolved.2);
    server.stop();
    assert_eq!(stage.judge(Default::default()).await.0.kept.len(), 1, "one job");
}

async fn f11(stage: Stage) {
    let server = Player::start(Part::Api, &stage.script());
    let (_, _, job) = send(&server.url, "/jobs", &body(&QUICK, "the-key")).unwrap();
    let proxy = Proxy::to(port_of(&server.url)).await;
    proxy.lose_the_answer_to("POST /leases");
    let wish =
        |lease: Duration| json!({ "worker": "w", "max": 1, "lease_ms": lease.as_millis() as u64, "wait_ms": 1000 });
    assert_eq!(send(&format!("http://127.0.0.1:{}", proxy.port), "/leases", &wish(LEASE)), None);
    assert!(proxy.has_lost_an_answer());
    let lease = until("the job is leased again", || {
        let (status, _, answer) = send(&server.url, "/leases", &wish(LONG_LEASE)).unwrap();
        assert_eq!(status, 200, "{answer}");
        answer["leases"].get(0).cloned()
    });
    assert_eq!((&lease["job"]["id"], &lease["attempt"]), (&job["id"], &json!(2)));
    let report = json!({ "job_id": job["id"], "lease_token": lease["lease_token"], "outcome": "succeeded" });
    send(&server.url, "/leases/settle", &json!({ "worker": "w", "outcomes": [report] })).unwrap();
    server.stop();
    let kept = stage.judge(Default::default()).await.0.kept;
    let outcomes: Vec<_> = kept[0].tries.iter().filter_map(|one| one.outcome).collect();
    assert_eq!(outcomes, [AttemptOutcome::LeaseExpired, AttemptOutcome::Succeeded], "with the cause recorded");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f11_a_claim_whose_answer_was_lost_comes_back_with_the_cause_recorded_on_sqlite() {
    f11(Stage::on_sqlite().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f11_a_claim_whose_answer_was_lost_comes_back_with_the_cause_recorded_on_postgresql() {
    f11(Stage::on_postgres().await).await;
}

/// F34: nobody may touch the table for longer than a lease, under load.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f34_a_database_that_stalls_ends_in_lost_leases_or_kept_ones_and_everything_goes_on() {
    let mut dice = crate::scale::dice("a stalled database");
    let stage = Stage::on_postgres().await;
    let mut players = vec![Player::start(Part::Api, &stage.script())];
    players.extend([0, 1].map(|_| Player::start(Part::Worker, &stage.script())));
    let task = |dice: &mut fastrand::Rng| Task { work_ms: dice.u64(..300), fail_percent: 0 };
    let url = players[0].url.clone();
    let customers = crate::customers::Customers::start(2, Duration::from_millis(20), &url, &mut dice, task);
    customers.carry_on(20);
    let (mut admin, connection) = tokio_postgres::connect(&stage.url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    let transaction = admin.transaction().await.unwrap();
    transaction.batch_execute("LOCK TABLE jobs").await.unwrap();
    // The fault itself, not a wait for anything.
    tokio::time::sleep(Duration::from_secs(crate::scale::quick_or_long(5, 30))).await;
    transaction.rollback().await.unwrap();
    customers.carry_on(20);
    let history = customers.close();
    crate::stage::wait_until_done(&url);
    for mut player in players {
        assert!(player.is_alive(), "a process died with the stall");
        player.stop();
    }
    let (history, verdict) = stage.judge(history).await;
    verdict.accept("a stalled database", &history);
}
