//! Machines whose clocks are wrong, or are set while they run: real programs under `libfaketime`, which lies to them
//! about the time of day and leaves alone what time passes.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::producers::{agent, post};
use crate::programs::{Running, World};
use crate::scale::{quick_or_long, wait_timeout};
use crate::support::postgres::Cluster;

/// 60 s: far more than anything here takes, far less than the ten minutes that the clocks are wrong by.
const SLACK: SignedDuration = SignedDuration::from_secs(60);

/// The library, wherever this system keeps it.
fn libfaketime() -> PathBuf {
    let below = |dir: &Path| std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    let places = ["/usr/lib", "/usr/lib64", "/usr/local/lib"].map(PathBuf::from);
    let dirs = places.iter().flat_map(|dir| below(dir).chain([dir.clone()])).collect::<Vec<_>>();
    let found = dirs.iter().map(|dir| dir.join("faketime/libfaketimeMT.so.1")).find(|path| path.is_file());
    found.expect("libfaketime is not installed: ./test installs it (package libfaketime)")
}

/// A server that takes its time of day from a file that says how wrong it is, like `+600s`.
pub(crate) fn serve_lied_to(world: &World, lie: &Path, role: &str, variables: &[(&str, &str)]) -> Running {
    let mut command = world.steadfast();
    command.arg(role).env("API_BIND_ADDR", "127.0.0.1:0").env("STEADFAST_EXECUTOR", "none");
    command.env("STEADFAST_REAP_INTERVAL_MS", "50").envs(variables.iter().copied());
    command.env("LD_PRELOAD", libfaketime()).env("FAKETIME_TIMESTAMP_FILE", lie).env("FAKETIME_NO_CACHE", "1");
    command.env("FAKETIME_DONT_FAKE_MONOTONIC", "1").env("DONT_FAKE_MONOTONIC", "1");
    Running::start(command)
}

/// A clock that is wrong by this from now on. Renamed into place, so that nobody reads half of it.
pub(crate) fn lie(world: &World, name: &str, by: &str) -> PathBuf {
    let (fresh, path) = (world.path("fresh"), world.path(name));
    std::fs::write(&fresh, by).unwrap();
    std::fs::rename(&fresh, &path).unwrap();
    path
}

pub(crate) fn call(server: &Running, path: &str, body: &Value) -> Value {
    let answer = post(&agent(), &format!("{}{path}", server.url), body).expect("an answer");
    assert!(answer.status < 300, "{path}: {answer:?}");
    answer.body
}

pub(crate) fn time(value: &Value) -> Timestamp {
    value.as_str().expect("a time").parse().unwrap()
}

pub(crate) fn leases(server: &Running, max: usize, lease_ms: u64) -> Vec<Value> {
    let body = json!({"worker": "w", "max": max, "lease_ms": lease_ms});
    call(server, "/leases", &body)["leases"].as_array().unwrap().clone()
}

/// How often this server has looked for expired leases.
fn reaps(server: &Running) -> f64 {
    let (_, metrics) = server.get("/metrics");
    let count = metrics.lines().find(|line| line.starts_with("store_operation_seconds_count{verb=\"reap\"}"));
    count.map_or(0.0, |line| line.split_whitespace().last().unwrap().parse().unwrap())
}

/// Until a server has looked at least so often more.
fn wait_for_reaps(server: &Running, more: f64) {
    let (from, give_up) = (reaps(server), Instant::now() + wait_timeout());
    while reaps(server) < from + more {
        assert!(Instant::now() < give_up, "the reaper does not run:\n{}", server.log());
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn about(what: &str, is: Timestamp, should: Timestamp) {
    let off = is.duration_since(should).abs();
    assert!(off < SLACK, "{what} follows the host's clock: {is}, {off:?} from the {should} of the database's");
}

/// `docs/guarantees.md` F30.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f30_hosts_ten_minutes_off_change_no_lease_no_backoff_and_no_delay_on_postgres() {
    let database = Cluster::shared().await.database().await;
    let admin = database.admin().await;
    let now = async || admin.query_one("SELECT now()", &[]).await.unwrap().get::<_, Timestamp>(0);
    let world = World::new();
    let url = [("DATABASE_URL", database.url.as_str())];
    let fast = serve_lied_to(&world, &lie(&world, "fast", "+600s"), "api", &url);
    let slow = serve_lied_to(&world, &lie(&world, "slow", "-600s"), "api", &url);
    for (early, late) in [(&fast, &slow), (&slow, &fast)] {
        // With attempts to spare: on a slow machine its short leases run out several times below.
        let job = |delay_ms, priority| {
            json!({"kind": "summarize_text", "payload": {"text": "t"}, "delay_ms": delay_ms, "max_attempts": 20,
                   "priority": priority})
        };
        let delayed = call(early, "/jobs", &job(1_500, 0));
        about("a delay", time(&delayed["run_at"]), now().await + SignedDuration::from_millis(1_500));
        // By now it may be due.
        for lease in leases(late, 1, 1_000) {
            assert!(time(&lease["job"]["run_at"]) <= now().await, "a delay was skipped");
        }
        let at_once = call(early, "/jobs", &job(0, 1));
        let lease = leases(late, 1, 30_000).remove(0);
        assert_eq!(lease["job"]["id"], at_once["id"]);
        about("a lease", time(&lease["job"]["lease_expires_at"]), now().await + SignedDuration::from_secs(30));
        // Both look for expired leases all the time; neither may find this one, nor keep it from living on.
        for server in [early, late] {
            wait_for_reaps(server, 5.0);
            let beat =
                json!({"worker": "w", "leases": [{"job_id": at_once["id"], "lease_token": lease["lease_token"]}]});
            assert_eq!(call(server, "/leases/heartbeat", &beat)["leases"][0]["status"], "ok");
        }
        let failed = json!({"worker": "w", "outcomes": [{"job_id": at_once["id"], "lease_token": lease["lease_token"],
                            "outcome": "failed", "error": "no"}]});
        assert_eq!(call(early, "/leases/settle", &failed)["outcomes"][0]["status"], "recorded");
        let retrying = late.json(&format!("/jobs/{}", at_once["id"].as_str().unwrap()));
        about("a backoff", time(&retrying["run_at"]), now().await + SignedDuration::from_secs(2));
        // Both come back at their time, and a lease that nobody keeps is over for both hosts alike.
        let mut left = vec![delayed["id"].clone(), at_once["id"].clone()];
        let give_up = Instant::now() + wait_timeout();
        while !left.is_empty() {
            assert!(Instant::now() < give_up, "not due for a host whose clock is wrong: {left:?}");
            for lease in leases(late, 10, 1_000) {
                assert!(time(&lease["job"]["run_at"]) <= now().await, "started before it was due");
                left.retain(|id| *id != lease["job"]["id"]);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        for id in [&delayed["id"], &at_once["id"]] {
            let path = format!("/jobs/{}", id.as_str().unwrap());
            crate::stage::until("an abandoned lease is reaped", || {
                (early.json(&path)["status"] != "running").then_some(())
            });
            call(early, &format!("{path}/cancel"), &json!({}));
        }
    }
    fast.stop();
    slow.stop();
}

/// `docs/guarantees.md` F31. The store's own part, with every case, is `tests/sqlite` `clock_steps`.
#[test]
fn f31_no_lease_ends_and_nothing_runs_twice_when_the_clock_of_a_server_is_set() {
    const JOBS: usize = 50;
    let world = World::new();
    let server = serve_lied_to(&world, &lie(&world, "clock", "+0s"), "serve", &[]);
    // Due in half an hour: by each step it would be skipped, or wait longer, if it stayed at its time of day.
    let delayed =
        call(&server, "/jobs", &json!({"kind": "summarize_text", "payload": {"text": "t"}, "delay_ms": 1_800_000}));
    let (delayed, due) = (delayed["id"].as_str().unwrap(), time(&delayed["run_at"]));
    for step in quick_or_long(vec!["+3600s", "+0s"], vec!["+3600s", "+0s", "-3600s", "+86400s", "-86400s", "+0s"]) {
        let jobs: Vec<_> = (0..JOBS).map(|_| json!({"kind": "summarize_text", "payload": {"text": "t"}})).collect();
        call(&server, "/jobs/batch", &json!({ "jobs": jobs }));
        let leases = leases(&server, JOBS, 600_000);
        assert_eq!(leases.len(), JOBS);
        let noticed = server.log().matches("the clock was set").count();
        lie(&world, "clock", step);
        wait_for_reaps(&server, 5.0);
        let heard = || server.log().matches("the clock was set").count();
        crate::stage::until("the lie is heard", || (heard() > noticed).then_some(()));
        assert_eq!(heard(), noticed + 1, "one lie was heard more than once");
        let outcomes: Vec<_> = leases
            .iter()
            .map(|lease| json!({"job_id": lease["job"]["id"], "lease_token": lease["lease_token"], "outcome": "succeeded"}))
            .collect();
        let answer = call(&server, "/leases/settle", &json!({"worker": "w", "outcomes": outcomes}));
        let lost = answer["outcomes"].as_array().unwrap().iter().filter(|one| one["status"] != "recorded").count();
        assert_eq!(lost, 0, "live leases were reaped when the clock went to {step}");
        for lease in &leases {
            let job = server.json(&format!("/jobs/{}", lease["job"]["id"].as_str().unwrap()));
            assert_eq!((&job["status"], &job["attempts"]), (&json!("succeeded"), &json!(1)));
        }
        let delayed = server.json(&format!("/jobs/{delayed}"));
        let off = SignedDuration::from_secs(step.trim_end_matches('s').parse().unwrap());
        let run_at = time(&delayed["run_at"]);
        assert!(
            run_at.duration_since(due + off).abs() < SLACK,
            "a delay was left behind when the clock went to {step}: {run_at} instead of {}",
            due + off
        );
        assert_eq!((&delayed["status"], &delayed["attempts"]), (&json!("queued"), &json!(0)));
        assert!(self::leases(&server, 1, 1_000).is_empty(), "a delay was skipped when the clock went to {step}");
    }
    server.stop();
}
