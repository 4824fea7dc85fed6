//! Many processes on one database.

use std::collections::HashSet;
use std::process::Stdio;
use std::sync::Arc;

use steadfast::job::Status;
use steadfast::store::Store;
use steadfast::store::postgres::{PostgresSettings, PostgresStore};
use tokio::process::Command;

use crate::support::postgres::Cluster;
use crate::work::{count, enqueue, work_off};

/// Tells this test's own program, started again, that it is one of the processes.
const URL: &str = "STEADFAST_TEST_PROCESS_URL";
const JOBS: usize = 20_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_processes_with_eight_claimers_each_claim_every_job_once_and_never_deadlock() {
    if let Ok(url) = std::env::var(URL) {
        return claim_in_this_process(&url).await;
    }
    // Its own server: the log is searched for deadlocks.
    let cluster = Cluster::start(&[]).await;
    let database = cluster.database().await;
    let store = database.store().await;
    enqueue(&store, "default", JOBS).await;

    let name = "many_processes::four_processes_with_eight_claimers_each_claim_every_job_once_and_never_deadlock";
    let program = std::env::current_exe().unwrap();
    let start = |_| {
        let mut command = Command::new(&program);
        command.args(["--exact", name, "--nocapture"]).env(URL, &database.url);
        command.stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap()
    };
    let processes: Vec<_> = (0..4).map(start).collect();
    let mut claimed = Vec::new();
    for process in processes {
        let output = process.wait_with_output().await.unwrap();
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        let before = claimed.len();
        claimed.extend(text.lines().filter_map(|line| line.strip_prefix("claimed ")).map(str::to_owned));
        assert!(claimed.len() > before, "one process got nothing");
    }
    assert_eq!(claimed.len(), JOBS);
    assert_eq!(claimed.iter().collect::<HashSet<_>>().len(), JOBS, "a job was claimed twice");
    assert_eq!(count(&store, "default", Status::Succeeded).await, JOBS as u64);
    let admin = database.admin().await;
    let sql = "SELECT count(*) FROM jobs WHERE status = 'succeeded' AND attempts = 1";
    assert_eq!(admin.query_one(sql, &[]).await.unwrap().get::<_, i64>(0), JOBS as i64);
    assert!(!cluster.log().contains("deadlock detected"));
}

async fn claim_in_this_process(url: &str) {
    let store = Arc::new(PostgresStore::open(PostgresSettings::new(url)).await.unwrap());
    let claimers = (0..8).map(|_| {
        let store = store.clone();
        tokio::spawn(async move {
            let mut ids = Vec::new();
            // Nothing left to claim may mean that the others have it; then they settle it.
            while count(&*store, "default", Status::Queued).await > 0 {
                ids.extend(work_off(&*store as &dyn Store, 25).await);
            }
            ids
        })
    });
    for claimer in claimers.collect::<Vec<_>>() {
        for id in claimer.await.unwrap() {
            println!("claimed {id}");
        }
    }
}
