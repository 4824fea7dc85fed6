//! The settings our promises rest on, as they are on the writer's own connection at the moment it writes: a trigger, put
//! into the file by another program, runs there and notes what it sees.

use std::process::Command;

use rusqlite::Connection;
use steadfast::job::Outcome;
use steadfast::store::sqlite::SqliteStore;
use steadfast::store::{Cancel, JobStore, Settle, WorkerFate};

use crate::child::{Role, SecondProcess};
use crate::jobs_file::{JobsFile, claim, claim_of, enqueue_one, job, literal};

const FULL: i64 = 2;
const NORMAL: i64 = 1;

/// Notes `synchronous` with every change of a job.
fn watch(external: &Connection) {
    let note = "BEGIN INSERT INTO seen SELECT synchronous FROM pragma_synchronous; END";
    external
        .execute_batch(&format!(
            "CREATE TABLE seen (synchronous INTEGER);
             CREATE TRIGGER watch_insert AFTER INSERT ON jobs {note};
             CREATE TRIGGER watch_update AFTER UPDATE ON jobs {note};"
        ))
        .unwrap();
}

/// What was noted since the last look.
fn seen(external: &Connection) -> Vec<i64> {
    let mut statement = external.prepare("DELETE FROM seen RETURNING synchronous").unwrap();
    statement.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap()
}

fn watched() -> (JobsFile, std::sync::Arc<SqliteStore>, Connection) {
    let file = JobsFile::new();
    let (store, external) = (file.open(), file.external_connection());
    watch(&external);
    (file, store, external)
}

#[test]
fn the_journal_is_a_write_ahead_log() {
    let file = JobsFile::new();
    let _store = file.open();
    let mode: String = file.external_connection().pragma_query_value(None, "journal_mode", |row| row.get(0)).unwrap();
    assert_eq!(mode, "wal");
}

/// As this repository builds SQLite. (Without `HAVE_FDATASYNC` it would be `fsync`.)
#[test]
fn a_commit_is_synced_by_fdatasync() {
    let file = JobsFile::new();
    let record = file.dir.path().join("trace");
    let mut traced = Command::new("strace");
    traced.args(["-f", "-qq", "-y", "-e", "trace=fsync,fdatasync", "-o"]).arg(&record);
    traced.arg("--").arg(std::env::current_exe().unwrap());
    let mut child = SecondProcess::start_as(traced, Role::Migrate, &file.path);
    while child.hear().is_some() {}
    let calls = std::fs::read_to_string(record).unwrap();
    let to_the_log = |call: &str| calls.lines().filter(|line| line.contains(call) && line.contains("-wal>")).count();
    assert!(to_the_log("fdatasync(") > 0 && to_the_log("fsync(") == 0, "{calls}");
}

#[tokio::test]
async fn everything_acknowledged_is_synced_except_a_claim_whose_worker_dies_with_the_store() {
    let (_file, store, external) = watched();
    enqueue_one(&store, job()).await;
    assert_eq!(seen(&external), [FULL], "enqueue");
    let lease = claim(&store, 1).await.remove(0);
    assert_eq!(seen(&external), [NORMAL], "claim by a worker that shares the store's fate");
    store.settle(vec![Settle::new(lease.key(), Outcome::Released)]).await.unwrap();
    assert_eq!(seen(&external), [FULL], "settle");
    let remote = claim_of(1).fate(WorkerFate::Independent);
    assert_eq!(store.claim(remote).await.unwrap().leases.len(), 1);
    assert_eq!(seen(&external), [FULL], "claim by a worker elsewhere");
    store.cancel(Cancel::new([lease.job().id])).await.unwrap();
    assert_eq!(seen(&external), [FULL], "cancel");
}

#[tokio::test]
async fn commits_are_synced_again_after_a_claim_that_was_given_up() {
    let (file, store, external) = watched();
    let id = enqueue_one(&store, job()).await;
    file.refuse("UPDATE", &format!("old.id = {}", literal(id)));
    store.claim(claim_of(1)).await.unwrap_err();
    seen(&external);
    enqueue_one(&store, job()).await;
    assert_eq!(seen(&external), [FULL]);
}
