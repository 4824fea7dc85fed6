//! Each store in turn, with a foreign hand in it: for what must hold on both and can be seen without a crash.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use steadfast::job::{
    JobId, JobRecord, JobRequest, Json, KindDefaults, Lease, LeaseKey, Limits, NewJob, Outcome, WorkerId,
};
use steadfast::store::postgres::PostgresStore;
use steadfast::store::sqlite::{SqliteSettings, SqliteStore};
use steadfast::store::{Claim, Settle, Settled, Store, WorkerFate};
use tempfile::TempDir;

use crate::support::postgres::{Cluster, TestDatabase};

pub(crate) struct OneStore {
    pub(crate) name: &'static str,
    pub(crate) store: Arc<dyn Store>,
    home: Home,
}

enum Home {
    File(TempDir),
    Database(TestDatabase),
}

impl OneStore {
    pub(crate) async fn on_sqlite() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(SqliteSettings::at(directory.path().join("jobs.db"))).unwrap();
        Self { name: "SQLite", store: Arc::new(store), home: Home::File(directory) }
    }

    pub(crate) async fn on_postgres() -> Self {
        let database = Cluster::shared().await.database().await;
        let store = PostgresStore::open(database.settings()).await.unwrap();
        Self { name: "PostgreSQL", store: Arc::new(store), home: Home::Database(database) }
    }

    /// Writes into a job's row behind the store's back.
    pub(crate) async fn tamper(&self, id: JobId, set: &str) {
        let rows = match &self.home {
            Home::File(directory) => {
                let file = rusqlite::Connection::open(directory.path().join("jobs.db")).unwrap();
                file.busy_timeout(Duration::from_secs(30)).unwrap();
                let id = id.as_uuid().as_bytes().as_slice();
                file.execute(&format!("UPDATE jobs SET {set} WHERE id = ?1"), [id]).unwrap() as u64
            }
            Home::Database(database) => {
                let admin = database.admin().await;
                admin.execute(&format!("UPDATE jobs SET {set} WHERE id = $1"), &[id.as_uuid()]).await.unwrap()
            }
        };
        assert_eq!(rows, 1, "there is no row of job {id}");
    }

    pub(crate) async fn enqueue(&self, kind: &str, count: usize) -> Vec<JobId> {
        let mut ids = Vec::with_capacity(count);
        while ids.len() < count {
            let jobs = (0..(count - ids.len()).min(1000)).map(|_| job(kind)).collect();
            ids.extend(self.store.enqueue(jobs).await.unwrap().iter().map(|enqueued| enqueued.job.id));
        }
        ids
    }

    /// Up to `max` jobs of every kind.
    pub(crate) async fn claim(&self, max: usize, lease: Duration) -> Vec<Lease> {
        let worker = WorkerId::new("host-1").unwrap();
        let mut leases = Vec::new();
        while leases.len() < max {
            let max = (max - leases.len()).min(1000);
            let claim = Claim::new(worker.clone(), lease).max(max).fate(WorkerFate::Shared);
            let some = self.store.claim(claim).await.unwrap().leases;
            if some.is_empty() {
                break;
            }
            leases.extend(some);
        }
        leases
    }

    pub(crate) async fn settle(&self, leases: impl Iterator<Item = LeaseKey>, outcome: &Outcome) {
        let settles: Vec<_> = leases.map(|lease| Settle::new(lease, outcome.clone())).collect();
        for some in settles.chunks(1000) {
            for answer in self.store.settle(some.to_vec()).await.unwrap() {
                assert_eq!(answer.unwrap(), Settled::Recorded);
            }
        }
    }

    pub(crate) async fn jobs(&self, ids: &[JobId]) -> Vec<JobRecord> {
        let mut jobs = Vec::with_capacity(ids.len());
        for some in ids.chunks(1000) {
            jobs.extend(self.store.get(some.to_vec()).await.unwrap().into_iter().map(|job| job.expect("it is there")));
        }
        jobs
    }
}

fn job(kind: &str) -> NewJob {
    let request = JobRequest::new(kind, Json::parse(r#"{"user":42}"#.into()).unwrap());
    NewJob::new(request, &KindDefaults::default(), &Limits::default(), Timestamp::now()).unwrap()
}
