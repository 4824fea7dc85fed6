//! One queue on a real file, workers on it, and ways to wait for things without guessing how long they take.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use steadfast::job::JobId;
use steadfast::store::sqlite::{SqliteSettings, SqliteStore};
use steadfast::store::{Enqueued, ManualClock, StatsRequest};
use steadfast::worker::{WorkerError, WorkerSettings};
use steadfast::{Job, JobRecord, Queue, Status, Worker};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::support::postgres::{Cluster, TestDatabase};

/// Machines are slow; nothing here should take that long.
pub const TIMEOUT: Duration = Duration::from_secs(120);

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Task {
    pub n: u64,
}

impl Job for Task {
    const KIND: &'static str = "task";
}

pub struct World {
    pub queue: Queue,
    _home: Home,
}

/// Where the jobs are, for as long as the world lasts.
enum Home {
    File(#[expect(dead_code, reason = "removed when dropped")] tempfile::TempDir),
    Database(#[expect(dead_code, reason = "removed when dropped")] TestDatabase),
}

impl World {
    pub async fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}", directory.path().join("jobs.db").display());
        Self { queue: Queue::open(&url).await.unwrap(), _home: Home::File(directory) }
    }

    /// On PostgreSQL, and where that is.
    pub async fn on_postgres() -> (Self, String) {
        let database = Cluster::shared().await.database().await;
        let url = database.url.clone();
        (Self { queue: Queue::open(&url).await.unwrap(), _home: Home::Database(database) }, url)
    }

    /// Time passes only when the test says so, for the store; heartbeats and polls go on.
    pub async fn with_held_clock() -> (Self, Arc<ManualClock>) {
        let directory = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::at("2030-01-01T00:00:00Z".parse().unwrap()));
        let settings = SqliteSettings::at(directory.path().join("jobs.db")).clock(clock.clone());
        let store = SqliteStore::open(settings).unwrap();
        let wake = store.wake().clone();
        (Self { queue: Queue::over(Arc::new(store), wake), _home: Home::File(directory) }, clock)
    }

    pub async fn enqueue(&self, n: u64) -> JobId {
        let Enqueued { job, .. } = self.queue.enqueue(Task { n }).await.unwrap();
        job.id
    }

    pub async fn job(&self, id: JobId) -> JobRecord {
        self.queue.get(id).await.unwrap().expect("the job is there")
    }

    /// Waits until the job is where it should be.
    pub async fn reaches(&self, id: JobId, status: Status) -> JobRecord {
        eventually(&format!("job {id} to be {status}"), async || {
            let job = self.job(id).await;
            (job.status == status).then_some(job)
        })
        .await
    }

    pub async fn count(&self, status: Status) -> u64 {
        let stats = self.queue.stats(StatsRequest::new()).await.unwrap();
        stats.queues.values().filter_map(|queue| queue.counts.get(&status)).sum()
    }
}

/// Asks again and again until there is an answer.
pub async fn eventually<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let mut again = tokio::time::interval(Duration::from_millis(5));
    let asking = async {
        loop {
            if let Some(answer) = ask().await {
                return answer;
            }
            again.tick().await;
        }
    };
    tokio::time::timeout(TIMEOUT, asking).await.unwrap_or_else(|_| panic!("waited in vain for {what}"))
}

pub async fn in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(TIMEOUT, future).await.unwrap_or_else(|_| panic!("waited in vain for {what}"))
}

/// Short leases and intervals, so that what takes half a minute in production takes a second here.
pub fn brisk() -> WorkerSettings {
    WorkerSettings::default()
        .concurrency(4)
        // Twice the shortest there is: a machine may stand still for a moment, and most tests are not about that.
        .lease(Duration::from_secs(2))
        .reap_interval(Duration::from_millis(100))
        .shutdown_grace(Duration::from_secs(5))
}

/// A worker that runs until it is told to stop.
pub struct Running {
    stop: oneshot::Sender<()>,
    ended: JoinHandle<Result<(), WorkerError>>,
}

impl Running {
    pub fn start<S: Send + Sync + 'static>(worker: Worker<S>) -> Self {
        let (stop, stopped) = oneshot::channel();
        let ended = tokio::spawn(worker.run_until(async move {
            let _ = stopped.await;
        }));
        Self { stop, ended }
    }

    pub async fn stop(self) -> Result<(), WorkerError> {
        let _ = self.stop.send(());
        in_time("the worker to stop", self.ended).await.expect("the worker does not panic")
    }

    /// Waits for it to end by itself.
    pub async fn end(self) -> Result<(), WorkerError> {
        in_time("the worker to end", self.ended).await.expect("the worker does not panic")
    }
}
