//! The PostgreSQL store with a held clock, in a database of its own. Damage is done through a plain connection.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use steadfast::job::JobId;
use steadfast::store::Store;
use steadfast::store::postgres::PostgresStore;

use crate::phrases::retry_policies;
use crate::support::postgres::{Cluster, MISCOUNTED, MISUSED, TestDatabase};
use crate::world::World;

const UNCOVERED: &str = "
    SELECT j.id FROM jobs j
    WHERE j.status = 'running'
      AND NOT EXISTS (SELECT FROM lease_checks c WHERE j.id = ANY (c.jobs) AND c.at <= j.lease_expires_at)";

pub(crate) struct PostgresWorld {
    store: Arc<PostgresStore>,
    admin: tokio_postgres::Client,
    /// Last, so that the store is gone before its database is.
    _database: TestDatabase,
}

impl World for PostgresWorld {
    /// 100: each has a database of its own to be made and dropped.
    const MODEL_SEQUENCES: u32 = 100;

    async fn new() -> Self {
        let database = Cluster::shared().await.database().await;
        let store = Arc::new(PostgresStore::open(database.held_clock().retry(retry_policies())).await.unwrap());
        Self { store, admin: database.admin().await, _database: database }
    }

    fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    async fn now(&self) -> Timestamp {
        self.admin.query_one("SELECT now FROM held.clock", &[]).await.unwrap().get(0)
    }

    async fn advance(&self, by: Duration) {
        let us = by.as_micros() as i64;
        let sql = "UPDATE held.clock SET now = now + $1::bigint * interval '1 microsecond'";
        assert_eq!(self.admin.execute(sql, &[&us]).await.unwrap(), 1);
    }

    /// Every running job is in a check that is due when its lease ends or before, and the counts by kind and
    /// the usage of limits are a recount.
    async fn check_inside(&self) -> Result<(), String> {
        let uncovered = self.admin.query(UNCOVERED, &[]).await.unwrap();
        let ids: Vec<uuid::Uuid> = uncovered.iter().map(|row| row.get(0)).collect();
        if !ids.is_empty() {
            return Err(format!("no lease check covers the running jobs {ids:?}"));
        }
        let miscounted = self.admin.query(MISCOUNTED, &[]).await.unwrap();
        let miscounted: Vec<String> = miscounted.iter().map(|row| row.get(0)).collect();
        if !miscounted.is_empty() {
            return Err(format!("counts that are no recount: {miscounted:?}"));
        }
        let misused = self.admin.query(MISUSED, &[]).await.unwrap();
        let misused: Vec<String> = misused.iter().map(|row| row.get(0)).collect();
        if misused.is_empty() { Ok(()) } else { Err(format!("usage that is no recount: {misused:?}")) }
    }

    async fn put_in_error_group(&self, id: JobId, fingerprint: i64) {
        let sql = "UPDATE jobs SET error_group = $2 WHERE id = $1";
        assert_eq!(
            self.admin.execute(sql, &[id.as_uuid(), &fingerprint]).await.unwrap(),
            1,
            "there is no row of job {id}"
        );
    }

    async fn outbox_rows(&self) -> usize {
        let row = self.admin.query_one("SELECT count(*) FROM outbox", &[]).await.unwrap();
        row.get::<_, i64>(0) as usize
    }

    async fn break_payload(&self, id: JobId) {
        let sql = "UPDATE jobs SET payload = '{not json' WHERE id = $1";
        assert_eq!(self.admin.execute(sql, &[id.as_uuid()]).await.unwrap(), 1, "there is no row of job {id}");
    }

    async fn refuse_a_queue(&self) {
        let sql = "ALTER TABLE jobs ADD CONSTRAINT refuse CHECK (queue <> 'refused')";
        self.admin.batch_execute(sql).await.unwrap();
    }

    async fn refuse_the_audit(&self, refuse: bool) {
        let sql = match refuse {
            true => "ALTER TABLE audit ADD CONSTRAINT refuse CHECK (action = 'none') NOT VALID",
            false => "ALTER TABLE audit DROP CONSTRAINT refuse",
        };
        self.admin.batch_execute(sql).await.unwrap();
    }

    async fn put_off_for_ever(&self, id: JobId) {
        let sql = "UPDATE jobs SET run_at = 'infinity' WHERE id = $1";
        assert_eq!(self.admin.execute(sql, &[id.as_uuid()]).await.unwrap(), 1, "there is no row of job {id}");
    }

    async fn exhaust(&self, id: JobId) {
        let sql = "UPDATE jobs SET attempts = max_attempts WHERE id = $1";
        assert_eq!(self.admin.execute(sql, &[id.as_uuid()]).await.unwrap(), 1, "there is no row of job {id}");
    }
}
