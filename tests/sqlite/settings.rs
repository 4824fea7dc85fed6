//! The settings our promises rest on, as they are on the writer's own connection at the moment it writes: a trigger, put
//! into the file by a stranger, runs there and notes what it sees.

use rusqlite::Connection;
use steadfast::job::Outcome;
use steadfast::store::sqlite::SqliteStore;
use steadfast::store::{Cancel, JobStore, Settle};

use crate::jobs_file::{JobsFile, claim, claim_of, enqueue_one, job, literal};

const FULL: i64 = 2;
const NORMAL: i64 = 1;

/// Notes `synchronous` with every change of a job.
fn watch(stranger: &Connection) {
    let note = "BEGIN INSERT INTO seen SELECT synchronous FROM pragma_synchronous; END";
    stranger
        .execute_batch(&format!(
            "CREATE TABLE seen (synchronous INTEGER);
             CREATE TRIGGER watch_insert AFTER INSERT ON jobs {note};
             CREATE TRIGGER watch_update AFTER UPDATE ON jobs {note};"
        ))
        .unwrap();
}

/// What was noted since the last look.
fn seen(stranger: &Connection) -> Vec<i64> {
    let mut statement = stranger.prepare("DELETE FROM seen RETURNING synchronous").unwrap();
    statement.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap()
}

fn watched() -> (JobsFile, std::sync::Arc<SqliteStore>, Connection) {
    let file = JobsFile::new();
    let (store, stranger) = (file.open(), file.stranger());
    watch(&stranger);
    (file, store, stranger)
}

#[test]
fn the_journal_is_a_write_ahead_log() {
    let file = JobsFile::new();
    let _store = file.open();
    let mode: String = file.stranger().pragma_query_value(None, "journal_mode", |row| row.get(0)).unwrap();
    assert_eq!(mode, "wal");
}

#[tokio::test]
async fn everything_acknowledged_is_synced_except_a_claim_whose_worker_dies_with_the_store() {
    let (_file, store, stranger) = watched();
    enqueue_one(&store, job()).await;
    assert_eq!(seen(&stranger), [FULL], "enqueue");
    let lease = claim(&store, 1).await.remove(0);
    assert_eq!(seen(&stranger), [NORMAL], "claim by a worker that shares the store's fate");
    store.settle(vec![Settle::new(lease.key(), Outcome::Released)]).await.unwrap();
    assert_eq!(seen(&stranger), [FULL], "settle");
    let remote = claim_of(1);
    assert_eq!(store.claim(remote).await.unwrap().leases.len(), 1);
    assert_eq!(seen(&stranger), [FULL], "claim by a worker elsewhere");
    store.cancel(Cancel::new([lease.job().id])).await.unwrap();
    assert_eq!(seen(&stranger), [FULL], "cancel");
}

#[tokio::test]
async fn commits_are_synced_again_after_a_claim_that_was_given_up() {
    let (file, store, stranger) = watched();
    let id = enqueue_one(&store, job()).await;
    file.refuse("UPDATE", &format!("old.id = {}", literal(id)));
    store.claim(claim_of(1)).await.unwrap_err();
    seen(&stranger);
    enqueue_one(&store, job()).await;
    assert_eq!(seen(&stranger), [FULL]);
}
