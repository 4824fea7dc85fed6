//! What a process does for jobs besides serving requests: run them, or only the housekeeping (reap and prune).

use std::future::Future;
#[cfg(feature = "api")]
use std::sync::Arc;

use anyhow::Result;

#[cfg(feature = "worker")]
use super::crew::{Crew, State};
use crate::queue::Queue;
use crate::server::settings::Settings;
#[cfg(feature = "worker")]
use crate::{
    job::{Kind, WorkerId},
    kinds::BuiltInKinds,
    server::settings::Executor,
    worker::{Retention, Worker, WorkerHealth, WorkerSettings, host_name, run_housekeeping},
};

/// The part of a process that looks after jobs.
pub(super) enum BackgroundWork {
    /// Runs the built-in kinds, reaps and prunes.
    #[cfg(feature = "worker")]
    Workers(Box<Worker>),
    /// Reaps and prunes: also where all jobs are run by workers over HTTP, crashed ones must come back.
    #[cfg(feature = "worker")]
    Housekeeping { queue: Queue, settings: Box<WorkerSettings>, health: WorkerHealth },
    /// Built without the feature `worker`: only notices when the store is beyond use.
    #[cfg(not(feature = "worker"))]
    StoreWatch(Queue),
}

#[cfg(feature = "worker")]
impl BackgroundWork {
    /// What the setting `executor` says; without a kind to run, only the housekeeping.
    pub(super) fn by_executor(settings: &Settings, queue: &Queue, crew: &Crew, kinds: &BuiltInKinds) -> Self {
        if crew.runs_anything() {
            Self::workers(settings, queue, crew, kinds)
        } else {
            Self::housekeeping(settings, queue)
        }
    }

    pub(super) fn workers(settings: &Settings, queue: &Queue, crew: &Crew, kinds: &BuiltInKinds) -> Self {
        // The host is for people: the random part is what tells two processes apart.
        let id = WorkerId::random(&host_name());
        let worker = Worker::new(queue.clone()).id(id).settings(worker_settings(settings));
        #[cfg(feature = "api")]
        {
            let known = crew.states().iter().filter_map(|kind| Kind::new(&*kind.kind).ok()).collect::<Vec<_>>();
            crate::api::metrics::expect_kinds(&known);
        }
        let simulated = || crew.states().iter().filter(|kind| matches!(kind.state, State::Simulated));
        let worker = match settings.executor {
            Executor::Simulated => {
                simulated().fold(worker, |worker, kind| crate::kinds::simulated::register_kind(worker, &kind.kind))
            }
            Executor::BuiltIn | Executor::None => crate::kinds::register(worker, kinds),
        };
        Self::Workers(Box::new(worker))
    }

    pub(super) fn housekeeping(settings: &Settings, queue: &Queue) -> Self {
        let settings = Box::new(worker_settings(settings));
        Self::Housekeeping { queue: queue.clone(), settings, health: WorkerHealth::default() }
    }

    /// For `/readyz`.
    #[cfg(feature = "api")]
    pub(super) fn checks(&self) -> Vec<Arc<dyn crate::api::ReadyCheck>> {
        let health = match self {
            Self::Workers(worker) => worker.health(),
            Self::Housekeeping { health, .. } => health.clone(),
        };
        vec![Arc::new(Loops(health))]
    }

    /// Works until `shutdown`, then finishes or releases what runs.
    pub(super) async fn work(self, shutdown: impl Future<Output = ()>) -> Result<()> {
        match self {
            Self::Workers(worker) => worker.run_until(shutdown).await?,
            Self::Housekeeping { queue, settings, health } => {
                run_housekeeping(queue, *settings, health, shutdown).await?;
            }
        }
        Ok(())
    }
}

#[cfg(not(feature = "worker"))]
impl BackgroundWork {
    pub(super) fn housekeeping(_: &Settings, queue: &Queue) -> Self {
        tracing::warn!("built without the feature `worker`: expired leases must be looked for by another process");
        Self::StoreWatch(queue.clone())
    }

    #[cfg(feature = "api")]
    pub(super) fn checks(&self) -> Vec<Arc<dyn crate::api::ReadyCheck>> {
        Vec::new()
    }

    /// Until `shutdown`, or until the store is beyond use: there is no reaper here to find that out.
    pub(super) async fn work(self, shutdown: impl Future<Output = ()>) -> Result<()> {
        let Self::StoreWatch(queue) = self;
        let looking = async {
            loop {
                if let Err(error) = queue.ping().await
                    && error.is_final()
                {
                    return error;
                }
                tokio::time::sleep(std::time::Duration::from_secs(5)).await;
            }
        };
        tokio::select! {
            () = shutdown => Ok(()),
            error = looking => Err(error.into()),
        }
    }
}

#[cfg(feature = "worker")]
fn worker_settings(settings: &Settings) -> WorkerSettings {
    let usual = WorkerSettings::default();
    WorkerSettings {
        concurrency: settings.worker_concurrency.unwrap_or(usual.concurrency),
        queues: settings.worker_queues.clone(),
        lease: settings.lease,
        reap_interval: settings.reap_interval,
        poll_min: settings.poll_min,
        poll_max: settings.poll_max,
        shutdown_grace: settings.shutdown_grace,
        retention: Retention {
            succeeded: settings.retention_succeeded,
            cancelled: settings.retention_cancelled,
            failed: settings.retention_failed,
            audit: settings.retention_audit,
        },
        report_interval: usual.report_interval,
    }
}

#[cfg(all(feature = "api", feature = "worker"))]
#[derive(Debug)]
struct Loops(WorkerHealth);

#[cfg(all(feature = "api", feature = "worker"))]
#[async_trait::async_trait]
impl crate::api::ReadyCheck for Loops {
    fn name(&self) -> &str {
        "worker"
    }

    async fn check(&self) -> Result<(), String> {
        let problems = self.0.problems();
        if problems.is_empty() { Ok(()) } else { Err(problems.join("; ")) }
    }
}
