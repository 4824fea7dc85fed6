//! SQLite: one connection, WAL, `synchronous=FULL`, prepared statements.

use std::path::Path;
use std::time::Instant;

use rusqlite::{Connection, TransactionBehavior};

use super::{Steps, payload};

const TABLE: &str = "
    CREATE TABLE jobs (id INTEGER PRIMARY KEY, kind TEXT NOT NULL, payload TEXT NOT NULL, status INTEGER NOT NULL,
                       attempts INTEGER NOT NULL, run_at INTEGER NOT NULL, started_at INTEGER, worker TEXT);
    CREATE INDEX ready ON jobs (run_at, id) WHERE status = 0;";
const INSERT: &str = "INSERT INTO jobs (kind, payload, status, attempts, run_at) VALUES ('noop', ?1, 0, 0, ?2)";
const CLAIM: &str = "
    UPDATE jobs SET status = 1, attempts = attempts + 1, started_at = ?2, worker = 'w'
    WHERE id IN (SELECT id FROM jobs WHERE status = 0 AND run_at <= ?2 ORDER BY run_at, id LIMIT ?1)
    RETURNING id, payload";
const SETTLE: &str = "UPDATE jobs SET status = 2 WHERE id = ?1 AND status = 1";

/// Rows per second, on a file made for it.
pub(crate) fn rate(directory: &Path, steps: Steps, rows: usize, batch: usize) -> f64 {
    let path = directory.join("raw.db");
    let mut connection = Connection::open(&path).unwrap();
    connection.pragma_update(None, "journal_mode", "WAL").unwrap();
    connection.pragma_update(None, "synchronous", "FULL").unwrap();
    connection.execute_batch(TABLE).unwrap();
    if steps == Steps::Drain {
        for first in (0..rows).step_by(1000) {
            insert(&mut connection, first, 1000.min(rows - first));
        }
    }
    let began = Instant::now();
    for first in (0..rows).step_by(batch) {
        let count = batch.min(rows - first);
        if steps != Steps::Drain {
            insert(&mut connection, first, count);
        }
        if steps != Steps::Insert {
            let claimed = claim(&mut connection, count);
            assert_eq!(claimed.len(), count, "every row is claimed");
            settle(&mut connection, &claimed);
        }
    }
    let rate = rows as f64 / began.elapsed().as_secs_f64();
    drop(connection);
    for suffix in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(directory.join(format!("raw.db{suffix}")));
    }
    rate
}

fn insert(connection: &mut Connection, first: usize, count: usize) {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
    let mut statement = transaction.prepare_cached(INSERT).unwrap();
    for seq in first..first + count {
        statement.execute((payload(seq), seq as i64)).unwrap();
    }
    drop(statement);
    transaction.commit().unwrap();
}

fn claim(connection: &mut Connection, count: usize) -> Vec<i64> {
    let mut statement = connection.prepare_cached(CLAIM).unwrap();
    let rows = statement.query_map((count as i64, i64::MAX), |row| {
        std::hint::black_box(row.get::<_, String>(1)?);
        row.get(0)
    });
    rows.unwrap().map(Result::unwrap).collect()
}

fn settle(connection: &mut Connection, ids: &[i64]) {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
    let mut statement = transaction.prepare_cached(SETTLE).unwrap();
    for id in ids {
        assert_eq!(statement.execute([id]).unwrap(), 1);
    }
    drop(statement);
    transaction.commit().unwrap();
}
