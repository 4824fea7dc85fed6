//! Workers: who is there, what each holds, and telling them to drain.

use std::collections::BTreeMap;

use super::Queue;
use crate::job::limits::{WORKERS_MAX, WORKERS_PAGE_MAX};
use crate::job::{Told, WorkerId, WorkerRecord, WorkerState};
use crate::store::{
    ListWorkers, PruneWorkers, StoreError, TellWorker, WakeListener, WorkerDetail, WorkerPage, WorkerReport,
};

/// Workers.
impl Queue {
    /// Lists workers that were seen in the last day, by name, at most 200 a page.
    ///
    /// ```
    /// # #[cfg(feature = "sqlite")]
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// # let directory = tempfile::tempdir()?;
    /// # let queue = steadfast::Queue::open(&format!("sqlite://{}", directory.path().join("jobs.db").display())).await?;
    /// use steadfast::store::ListWorkers;
    ///
    /// for worker in queue.workers(ListWorkers::new()).await?.workers {
    ///     println!("{} is {}, busy {}", worker.worker, worker.state(), worker.busy);
    /// }
    /// # Ok(())
    /// # })
    /// # }
    /// # #[cfg(not(feature = "sqlite"))]
    /// # fn main() {}
    /// ```
    pub async fn workers(&self, list: ListWorkers) -> Result<WorkerPage, StoreError> {
        self.inner.store.workers(ListWorkers { limit: list.limit.clamp(1, WORKERS_PAGE_MAX), ..list }).await
    }

    /// Reads every worker that was seen within a day, at most 10,000.
    pub async fn all_workers(&self) -> Result<Vec<WorkerRecord>, StoreError> {
        Ok(self.inner.store.workers(ListWorkers::new().limit(WORKERS_MAX)).await?.workers)
    }

    /// Counts workers by state.
    pub async fn worker_counts(&self) -> Result<BTreeMap<WorkerState, usize>, StoreError> {
        let mut counts: BTreeMap<_, _> = WorkerState::ALL.into_iter().map(|state| (state, 0)).collect();
        for worker in self.all_workers().await? {
            *counts.entry(worker.state()).or_default() += 1;
        }
        Ok(counts)
    }

    /// Reads one worker and the jobs that it holds; `None` if it is not known.
    pub async fn worker(&self, worker: WorkerId) -> Result<Option<WorkerDetail>, StoreError> {
        self.inner.store.worker(worker).await
    }

    /// Tells a worker to finish what it has and to start no more; `false` if it is not known. It learns of it within 10 s.
    pub async fn drain_worker(&self, worker: WorkerId) -> Result<bool, StoreError> {
        self.tell_worker(worker, Told::Drain).await
    }

    /// Tells a worker to go on; `false` if it is not known.
    pub async fn undrain_worker(&self, worker: WorkerId) -> Result<bool, StoreError> {
        self.tell_worker(worker, Told::Run).await
    }

    async fn tell_worker(&self, worker: WorkerId, told: Told) -> Result<bool, StoreError> {
        let known = self.inner.store.tell_worker(TellWorker::new(worker, told).by(self.actor())).await?;
        if known {
            self.inner.worker_changes.wake();
        }
        Ok(known)
    }

    /// Records what workers did since they were last reported; answers what each is told.
    /// [`Worker`](crate::Worker) does this for you.
    pub async fn report_workers(&self, reports: Vec<WorkerReport>) -> Result<Vec<Told>, StoreError> {
        self.inner.store.report_workers(reports).await
    }

    /// Deletes workers that were last seen long enough ago.
    pub async fn prune_workers(&self, prune: PruneWorkers) -> Result<usize, StoreError> {
        self.inner.store.prune_workers(prune).await
    }

    /// Notifies when a worker is told something through this process.
    pub fn worker_changes(&self) -> WakeListener {
        self.inner.worker_changes.listen()
    }
}
