//! `steadfast bench`: figures with their contract, and nothing left behind. That they are good is no business of a test.

#[path = "../../benches/peer/operations.rs"]
mod peer_operations;

use std::process::{Command, Stdio};

use serde_json::Value;

use crate::support::postgres::{Cluster, PASSWORD, TestDatabase};
use crate::world::{Ended, World, ended, until};

/// The report of a benchmark that ended well, said nothing else, and left nothing in its directory.
#[track_caller]
fn report(world: &World, done: &Ended) -> Value {
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    assert_eq!(done.stdout.lines().count(), 1, "{}", done.stdout);
    assert!(!done.stderr.contains('\r'), "no progress where nobody looks: {}", done.stderr);
    assert_eq!(left_in(world), Vec::<String>::new());
    let report = done.json();
    for name in ["bench", "contract", "store", "settings", "machine"] {
        assert!(!report[name].is_null(), "{name} is missing: {report}");
    }
    for case in report["cases"].as_array().unwrap() {
        let rate = |name: &str| case["per_s"][name].as_f64().unwrap();
        assert!(rate("min") > 0.0 && rate("min") <= rate("median") && rate("median") <= rate("max"), "{case}");
    }
    report
}

fn left_in(world: &World) -> Vec<String> {
    let entries = std::fs::read_dir(world.directory.path()).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

async fn schemas(database: &TestDatabase) -> Vec<String> {
    let sql = "SELECT nspname::text FROM pg_namespace WHERE nspname LIKE 'steadfast_bench%'";
    database.admin().await.query(sql, &[]).await.unwrap().iter().map(|row| row.get(0)).collect()
}

#[test]
fn a_drain_on_sqlite_gives_figures_with_their_contract_and_leaves_nothing_behind() {
    let world = World::new();
    let done = world.run(&["bench", "drain", "--jobs", "200", "--repeats", "2", "--json"]);
    let report = report(&world, &done);
    assert_eq!((report["bench"].as_str(), report["settings"]["jobs"].as_u64()), (Some("drain"), Some(200)));
    assert_eq!(report["store"]["synchronous"], "FULL");
    let case = &report["cases"][0];
    assert_eq!((case["operations"].as_u64(), case["rounds"].as_u64()), (Some(200), Some(2)));
    assert!(report["machine"]["fdatasync_per_s"].as_f64().unwrap() > 0.0);
}

#[test]
fn every_shape_for_one_machine_gives_figures() {
    let world = World::new();
    let shapes: [(&[&str], &str, u64); 7] = [
        (&["drain", "--jobs", "200", "--fails-once"], "drain", 400),
        (&["drain", "--jobs", "200", "--finished", "300"], "drain", 200),
        (&["life", "--jobs", "200"], "life", 200),
        (&["enqueue", "--jobs", "200", "--producers", "4", "--batch", "30"], "enqueue", 200),
        (&["latency", "--seconds", "1", "--rate", "50"], "50/s", 50),
        (&["http", "--jobs", "200"], "GET /livez", 200),
        (&["http", "--jobs", "1000", "--protocol"], "POST /leases, /leases/settle", 1000),
    ];
    for (arguments, case, operations) in shapes {
        let arguments = [&["bench"], arguments, &["--repeats", "1", "--json"]].concat();
        let report = report(&world, &world.run(&arguments));
        let found = &report["cases"][0];
        assert_eq!((found["case"].as_str(), found["operations"].as_u64()), (Some(case), Some(operations)), "{report}");
        let latency_wanted = ["life", "enqueue", "50/s", "GET /livez"].contains(&case);
        assert_eq!(found["latency"].is_object(), latency_wanted, "{report}");
    }
}

#[test]
fn a_file_that_exists_is_not_touched() {
    let world = World::new();
    std::fs::write(world.path("mine.db"), "mine").unwrap();
    let done = world.run(&["bench", "drain", "--jobs", "1", "--store", "sqlite://mine.db"]);
    assert!(done.one_line(1).contains("mine.db exists"), "{}", done.stderr);
    assert_eq!(std::fs::read_to_string(world.path("mine.db")).unwrap(), "mine");
    assert_eq!(left_in(&world), ["mine.db"]);
}

#[test]
fn a_named_file_is_removed_with_everything_beside_it() {
    let world = World::new();
    let done = world.run(&["bench", "enqueue", "--jobs", "50", "--store", "sqlite://new.db", "--json"]);
    report(&world, &done);
}

#[tokio::test]
async fn worker_processes_share_a_schema_of_their_own_that_is_dropped() {
    let database = Cluster::shared().await.empty_database().await;
    let world = World::new();
    let mut command = world.steadfast();
    command.args(["bench", "workers", "--jobs", "500", "--processes", "1,2", "--repeats", "1", "--json"]);
    let done = ended(command.env("STEADFAST_BENCH_STORE", &database.url));
    let report = report(&world, &done);
    assert_eq!(report["store"]["synchronous_commit"], "on");
    assert_eq!(report["cases"].as_array().unwrap().len(), 2);
    for figure in ["wal_bytes_per_op", "commits_per_op"] {
        assert!(report["cases"][0][figure]["median"].as_f64().unwrap() > 0.0, "{report}");
    }
    assert!(report["cases"][1]["of_the_first"]["median"].as_f64().unwrap() > 0.0);
    assert!(!done.stdout.contains(PASSWORD));
    assert_eq!(schemas(&database).await, Vec::<String>::new());
}

#[tokio::test]
async fn an_interrupted_benchmark_drops_its_schema() {
    let database = Cluster::shared().await.empty_database().await;
    let world = World::new();
    let mut command = world.steadfast();
    command.args(["bench", "drain", "--jobs", "10000000"]).env("STEADFAST_BENCH_STORE", &database.url);
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let admin = database.admin().await;
    tokio::time::timeout(crate::world::DEADLINE, async {
        let sql = "SELECT FROM pg_stat_user_tables WHERE schemaname LIKE 'steadfast_bench%' AND n_tup_ins > 0";
        while admin.query(sql, &[]).await.unwrap().is_empty() {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    })
    .await
    .expect("it begins to preload");
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    let done = tokio::task::spawn_blocking(move || child.wait_with_output().unwrap()).await.unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(1), "{said}");
    assert!(said.contains("interrupted"), "{said}");
    assert_eq!(schemas(&database).await, Vec::<String>::new());
    until("nothing is left in its directory", || left_in(&world).is_empty().then_some(()));
}

#[tokio::test]
async fn a_harness_of_peers_is_answered_with_figures() {
    let database = Cluster::shared().await.empty_database().await;
    let peer = async |arguments: &[&str]| {
        let arguments: Vec<String> = arguments.iter().map(|&argument| argument.to_owned()).collect();
        peer_operations::answer(&arguments, Some(database.url.clone())).await.unwrap()
    };
    peer(&["setup"]).await;
    assert_eq!(peer(&["bulk", "n=300", "batch=1000"]).await["n"], 300);
    assert_eq!(peer(&["enqueue", "n=100", "conc=16"]).await["n"], 100);
    let drained = peer(&["drain", "n=400"]).await;
    assert!(drained["rate"].as_f64().unwrap() > 0.0 && drained["cpu_client"].is_number(), "{drained}");
}

#[tokio::test]
async fn what_a_harness_of_peers_says_wrong_is_named() {
    for (arguments, said) in [(&["drain", "n"], "write n as key=value"), (&["drain", "n=x"], "n=x is not a number")] {
        let arguments: Vec<String> = arguments.iter().map(|&argument| argument.to_owned()).collect();
        let error = peer_operations::answer(&arguments, Some(String::new())).await.unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    }
}
