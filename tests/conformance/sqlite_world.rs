//! The SQLite store with a held clock, in a directory of its own. Damage is done through a second connection.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use rusqlite::Connection;
use steadfast::job::JobId;
use steadfast::store::sqlite::{SqliteSettings, SqliteStore};
use steadfast::store::{Clock, ManualClock, Store};
use tempfile::TempDir;

use crate::phrases::retry_policies;
use crate::world::World;

/// Counts by kind, queue and status that are not what a recount of the jobs says, and rows that count nothing.
const MISCOUNTED: &str = "
    WITH recounted AS (
        SELECT kind, queue, sum(status = 'queued'), sum(status = 'running'), sum(status = 'retrying'),
               sum(status = 'succeeded'), sum(status = 'failed_permanent'), sum(status = 'cancelled')
        FROM jobs GROUP BY kind, queue
    )
    SELECT kind || ' in ' || queue
    FROM (SELECT * FROM (SELECT * FROM counts EXCEPT SELECT * FROM recounted)
          UNION SELECT * FROM (SELECT * FROM recounted EXCEPT SELECT * FROM counts))";

/// Limits whose counted leases are not what a recount of the running jobs says.
const MISUSED: &str = "
    WITH counted (scope, name, grp, n) AS (
        SELECT 'queue', queue, '', count(*) FROM jobs WHERE status = 'running' AND marks & 1 GROUP BY queue
        UNION ALL SELECT 'kind', kind, '', count(*) FROM jobs WHERE status = 'running' AND marks & 2 GROUP BY kind
        UNION ALL SELECT 'group', queue, group_key, count(*) FROM jobs WHERE status = 'running' AND marks & 4
                  GROUP BY queue, group_key
    ),
    told (scope, name, grp, n) AS (SELECT scope, name, grp, running FROM usage WHERE running <> 0)
    SELECT scope || ' ' || name || ' ' || grp || ': ' || n
    FROM (SELECT 'told', * FROM (SELECT * FROM told EXCEPT SELECT * FROM counted)
          UNION SELECT 'counted', * FROM (SELECT * FROM counted EXCEPT SELECT * FROM told))";

pub(crate) struct SqliteWorld {
    store: Arc<SqliteStore>,
    clock: Arc<ManualClock>,
    path: PathBuf,
    /// Last, so that the store lets go of its files before they are removed.
    _dir: TempDir,
}

impl SqliteWorld {
    fn damage(&self, sql: &str, id: JobId) {
        let connection = Connection::open(&self.path).unwrap();
        connection.busy_timeout(Duration::from_secs(30)).unwrap();
        connection.pragma_update(None, "ignore_check_constraints", true).unwrap();
        let rows = connection.execute(sql, [id.as_uuid().as_bytes().as_slice()]).unwrap();
        assert_eq!(rows, 1, "there is no row of job {id} to damage");
    }
}

impl World for SqliteWorld {
    async fn new() -> Self {
        // Beside the build, on a real disk: a system's temporary directory may be memory, where syncing is free.
        let dir = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let path = dir.path().join("jobs.db");
        let clock = Arc::new(ManualClock::at("2030-01-01T00:00:00Z".parse().unwrap()));
        let settings = SqliteSettings::at(path.clone()).clock(clock.clone()).retry(retry_policies());
        let store = Arc::new(SqliteStore::open(settings).unwrap());
        Self { store, clock, path, _dir: dir }
    }

    fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    async fn now(&self) -> Timestamp {
        self.clock.wall()
    }

    async fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    /// The counts by kind and the usage of limits are a recount.
    async fn check_inside(&self) -> Result<(), String> {
        let connection = Connection::open(&self.path).unwrap();
        connection.busy_timeout(Duration::from_secs(30)).unwrap();
        for (what, sql) in [("counts", MISCOUNTED), ("usage", MISUSED)] {
            let mut statement = connection.prepare(sql).unwrap();
            let wrong: Vec<String> =
                statement.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap();
            if !wrong.is_empty() {
                return Err(format!("{what} that are no recount: {wrong:?}"));
            }
        }
        Ok(())
    }

    async fn put_in_error_group(&self, id: JobId, fingerprint: i64) {
        let sql = format!("INSERT OR REPLACE INTO dead_groups SELECT seq, {fingerprint} FROM jobs WHERE id = ?1");
        self.damage(&sql, id);
    }

    async fn outbox_rows(&self) -> usize {
        let connection = Connection::open(&self.path).unwrap();
        connection.query_row("SELECT count(*) FROM outbox", [], |row| row.get(0)).unwrap()
    }

    async fn break_payload(&self, id: JobId) {
        self.damage("UPDATE jobs SET payload = '{not json' WHERE id = ?1", id);
    }

    async fn refuse_a_queue(&self) {
        let connection = Connection::open(&self.path).unwrap();
        connection.busy_timeout(Duration::from_secs(30)).unwrap();
        let sql = "CREATE TRIGGER refuse BEFORE INSERT ON jobs WHEN new.queue = 'refused'
                   BEGIN SELECT raise(ABORT, 'refused'); END";
        connection.execute_batch(sql).unwrap();
    }

    async fn refuse_the_audit(&self, refuse: bool) {
        let connection = Connection::open(&self.path).unwrap();
        connection.busy_timeout(Duration::from_secs(30)).unwrap();
        let sql = match refuse {
            true => "CREATE TRIGGER refuse_audit BEFORE INSERT ON audit BEGIN SELECT raise(ABORT, 'refused'); END",
            false => "DROP TRIGGER refuse_audit",
        };
        connection.execute_batch(sql).unwrap();
    }

    async fn put_off_for_ever(&self, id: JobId) {
        self.damage("UPDATE jobs SET run_at = 9223372036854775807 WHERE id = ?1", id);
    }

    async fn exhaust(&self, id: JobId) {
        self.damage("UPDATE jobs SET attempts = max_attempts WHERE id = ?1", id);
    }
}
