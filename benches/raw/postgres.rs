//! PostgreSQL: some connections, one statement per step and batch, plans pinned to the index.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use tokio_postgres::{Client, NoTls, Statement};

use super::{Steps, payload};

const TABLE: &str = "
    DROP TABLE IF EXISTS raw_jobs;
    CREATE TABLE raw_jobs (id bigserial PRIMARY KEY, kind text NOT NULL, payload text NOT NULL,
                           status smallint NOT NULL DEFAULT 0, attempts smallint NOT NULL DEFAULT 0,
                           run_at timestamptz NOT NULL DEFAULT now(), started_at timestamptz, worker text);
    CREATE INDEX raw_jobs_ready ON raw_jobs (run_at, id) WHERE status = 0";
const INSERT: &str = "INSERT INTO raw_jobs (kind, payload) SELECT 'noop', p FROM unnest($1::text[]) p";
const CLAIM: &str = "
    UPDATE raw_jobs SET status = 1, attempts = attempts + 1, started_at = now(), worker = 'w'
    WHERE id = ANY(ARRAY(SELECT id FROM raw_jobs WHERE status = 0 AND run_at <= now()
                         ORDER BY run_at, id LIMIT $1 FOR UPDATE SKIP LOCKED))
    RETURNING id, payload";
const SETTLE: &str = "UPDATE raw_jobs SET status = 2 WHERE id = ANY($1) AND status = 1";
/// The table begins empty, and what the planner makes of that would be no limit.
const PLANS: &str = "SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_sort = off;
                     SET plan_cache_mode = force_generic_plan; SET synchronous_commit = on";

/// One connection with its statements.
struct Line {
    client: Client,
    insert: Statement,
    claim: Statement,
    settle: Statement,
}

impl Line {
    async fn open(url: &str) -> Self {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
        tokio::spawn(connection);
        client.batch_execute(PLANS).await.unwrap();
        let insert = client.prepare(INSERT).await.unwrap();
        let claim = client.prepare(CLAIM).await.unwrap();
        let settle = client.prepare(SETTLE).await.unwrap();
        Self { client, insert, claim, settle }
    }

    async fn insert(&self, first: usize, count: usize) {
        let payloads: Vec<String> = (first..first + count).map(payload).collect();
        assert_eq!(self.client.execute(&self.insert, &[&payloads]).await.unwrap(), count as u64);
    }

    /// Claims and settles one batch; answers how many there were.
    async fn work(&self, batch: usize) -> usize {
        let rows = self.client.query(&self.claim, &[&(batch as i64)]).await.unwrap();
        let id = |row: &tokio_postgres::Row| {
            std::hint::black_box(row.get::<_, String>(1));
            row.get::<_, i64>(0)
        };
        let ids: Vec<i64> = rows.iter().map(id).collect();
        if !ids.is_empty() {
            assert_eq!(self.client.execute(&self.settle, &[&ids]).await.unwrap(), ids.len() as u64);
        }
        ids.len()
    }
}

/// Rows per second, in a table made for it.
pub(crate) async fn rate(url: &str, steps: Steps, rows: usize, batch: usize) -> f64 {
    // Commits of single rows only come together where many wait; large batches keep two cores busy with two.
    let connections = if batch == 1 { 32 } else { 2 };
    let (admin, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    admin.batch_execute(TABLE).await.unwrap();
    let mut lines = Vec::new();
    for _ in 0..connections {
        lines.push(Line::open(url).await);
    }
    if steps == Steps::Drain {
        for first in (0..rows).step_by(5000) {
            lines[0].insert(first, 5000.min(rows - first)).await;
        }
    }
    for tidy in ["VACUUM ANALYZE raw_jobs", "CHECKPOINT"] {
        admin.batch_execute(tidy).await.unwrap();
    }
    let next = Arc::new(AtomicUsize::new(0));
    let began = Instant::now();
    let run = |line: Line| tokio::spawn(run(line, steps, rows, batch, next.clone()));
    let running: Vec<_> = lines.into_iter().map(run).collect();
    for line in running {
        line.await.unwrap();
    }
    let rate = rows as f64 / began.elapsed().as_secs_f64();
    let wanted: i16 = if steps == Steps::Insert { 0 } else { 2 };
    let found = admin.query_one("SELECT count(*) FROM raw_jobs WHERE status = $1", &[&wanted]).await.unwrap();
    assert_eq!(found.get::<_, i64>(0), rows as i64, "every row went all the way");
    admin.batch_execute("DROP TABLE raw_jobs").await.unwrap();
    rate
}

async fn run(line: Line, steps: Steps, rows: usize, batch: usize, next: Arc<AtomicUsize>) {
    // Rows to drain are there already.
    let wanted = if steps == Steps::Drain { 0 } else { rows };
    loop {
        let first = next.fetch_add(batch, Ordering::Relaxed);
        if first >= wanted {
            break;
        }
        line.insert(first, batch.min(rows - first)).await;
        if steps == Steps::Life {
            line.work(batch).await;
        }
    }
    // What others' claims left behind, or all there is.
    while steps != Steps::Insert && line.work(batch).await > 0 {}
}
