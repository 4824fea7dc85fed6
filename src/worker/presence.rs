//! Tells the store every 10 s that this worker is there, and learns whether operators want it to drain. Nothing about its
//! jobs depends on it: leases are kept by `heartbeat`.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::time::timeout;

use super::running_worker::RunningWorker;
use crate::job::{Told, WorkerAsks, WorkerInfo, WorkerSource};
use crate::store::{StoreError, StoreErrorKind, WorkerReport, warn_throttled};

/// 1 s at the end: nobody waits for a farewell.
const GOODBYE_MAX: Duration = Duration::from_secs(1);

/// What is known of this worker's presence.
pub(super) struct Presence {
    /// Tells this run of the worker from another one under the same name.
    incarnation: String,
    began: Instant,
    /// Its last claim that is not reported yet.
    fetched: Mutex<Option<Instant>>,
    told: watch::Sender<Told>,
}

impl Default for Presence {
    fn default() -> Self {
        let (incarnation, began) = (uuid::Uuid::new_v4().to_string(), Instant::now());
        // It is about to ask.
        Self { incarnation, began, fetched: Mutex::new(Some(began)), told: watch::Sender::new(Told::Run) }
    }
}

impl Presence {
    /// It has asked for jobs.
    pub(super) fn fetched(&self) {
        *self.fetched.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    pub(super) fn is_draining(&self) -> bool {
        *self.told.borrow() == Told::Drain
    }

    /// Returns when it is not draining.
    pub(super) async fn told_to_run(&self) {
        // An error would mean that the sender is gone, which is here.
        let _ = self.told.subscribe().wait_for(|told| *told == Told::Run).await;
    }

    fn hear(&self, told: Told) {
        let is_new = self.told.send_if_modified(|known| std::mem::replace(known, told) != told);
        match told {
            Told::Drain if is_new => tracing::info!("told to drain: no more jobs are claimed"),
            Told::Run if is_new => tracing::info!("told to go on"),
            _ => {}
        }
    }
}

/// Reports until it is cancelled.
pub(super) async fn run<S>(shared: &RunningWorker<S>) {
    let interval = shared.settings.report_interval;
    let mut changes = shared.queue.worker_changes();
    loop {
        if let Err(error) = report(shared, interval.max(GOODBYE_MAX), false).await {
            warn_throttled(&error, "cannot tell that the worker is there; trying again");
        }
        tokio::select! {
            () = tokio::time::sleep(interval) => {}
            () = changes.woken() => {}
        }
    }
}

/// The worker stops.
pub(super) async fn say_goodbye<S>(shared: &RunningWorker<S>) {
    if let Err(error) = report(shared, GOODBYE_MAX, true).await {
        tracing::debug!(?error, "the worker will be taken for gone a little later");
    }
}

async fn report<S>(shared: &RunningWorker<S>, limit: Duration, stopped: bool) -> Result<(), StoreError> {
    let presence = &shared.presence;
    let fetched = presence.fetched.lock().unwrap_or_else(PoisonError::into_inner).take();
    let mut kinds: Vec<_> = shared.handlers.keys().cloned().collect();
    kinds.sort_unstable();
    let concurrency = u32::try_from(shared.settings.concurrency).unwrap_or(u32::MAX);
    let report = WorkerReport {
        incarnation: Some(presence.incarnation.clone()),
        info: WorkerInfo {
            host: Some(host_name()),
            pid: Some(std::process::id()),
            language: Some("rust".to_owned()),
            version: Some(env!("CARGO_PKG_VERSION").to_owned()),
            concurrency: Some(concurrency),
        },
        asks: WorkerAsks::new(shared.settings.queues.clone(), Some(kinds)),
        started: presence.began.elapsed(),
        fetched: fetched.map(|at| at.elapsed()),
        stopped,
        ..WorkerReport::new(shared.worker.clone(), WorkerSource::Embedded).beat()
    };
    let told = timeout(limit, shared.queue.report_workers(vec![report])).await;
    let told = told.unwrap_or_else(|_| Err(StoreError::new(StoreErrorKind::Timeout, "report_workers")))?;
    told.first().into_iter().for_each(|told| presence.hear(*told));
    Ok(())
}

/// The name of this machine, as far as it says.
pub(crate) fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = name.trim();
    if name.is_empty() { "worker".into() } else { name.into() }
}
