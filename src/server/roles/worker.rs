//! `steadfast worker`: runs jobs, and shows how it is doing on a port of its own.

use anyhow::{Result, bail};

use super::background::BackgroundWork;
use super::lifecycle::{Signals, notify_ready, notify_stopping};
use super::{banner, open};
use crate::queue::Queue;
use crate::server::settings::{Executor, Settings};
use crate::server::stdio::print_line;

/// Runs until it is told to stop.
pub(in crate::server) async fn run(settings: &Settings) -> Result<()> {
    let signals = Signals::listen()?;
    if settings.executor == Executor::None {
        bail!("executor is none, which leaves a worker nothing to run; set STEADFAST_EXECUTOR=builtin");
    }
    #[cfg(feature = "api")]
    crate::api::metrics::install();
    let queue = open::queue(settings).await?;
    let background = BackgroundWork::workers(settings, &queue);
    let probes = Probes::start(settings, &queue, &background).await?;
    notify_ready();
    let ended = background.work(signals.stop()).await;
    notify_stopping();
    probes.stop().await;
    ended
}

/// `/metrics`, `/livez` and `/readyz`, until the last outcome is recorded.
#[cfg(feature = "api")]
struct Probes(Option<(tokio::sync::oneshot::Sender<()>, tokio::task::JoinHandle<()>)>);

#[cfg(feature = "api")]
impl Probes {
    async fn start(settings: &Settings, queue: &Queue, background: &BackgroundWork) -> Result<Self> {
        let Some(address) = settings.worker_metrics_bind_addr else {
            print_line(&banner::one_line("worker", "no port", &settings.database_url));
            return Ok(Self(None));
        };
        crate::api::may_bind(address, super::api::needs_token(settings, queue).await?)?;
        let listener = match open::listen(address, "WORKER_METRICS_BIND_ADDR").await {
            // A second worker on one machine: its jobs matter more than where its metrics are.
            Err(_) if settings.worker_metrics_port_is_free_choice => {
                let elsewhere = open::listen((address.ip(), 0).into(), "WORKER_METRICS_BIND_ADDR").await?;
                let port = elsewhere.local_addr()?.port();
                tracing::warn!(
                    port,
                    "{address} is in use, so metrics are on another port; to choose one, set WORKER_METRICS_BIND_ADDR"
                );
                elsewhere
            }
            bound => bound?,
        };
        print_line(&banner::one_line("worker", listener.local_addr()?, &settings.database_url));
        let api = super::api::api_settings(settings, queue.clone(), background);
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let serving = tokio::spawn(async move {
            let until = async {
                // A sender that is gone means the same.
                let _ = stopped.await;
            };
            if let Err(error) = crate::api::serve_probes(listener, api, until).await {
                tracing::error!(%error, "metrics are not served");
            }
        });
        Ok(Self(Some((stop, serving))))
    }

    async fn stop(self) {
        if let Some((stop, serving)) = self.0 {
            drop(stop);
            // It ends by itself within the grace period; if it panicked, that was logged.
            let _ = serving.await;
        }
    }
}

/// Metrics are rendered by the feature `api`.
#[cfg(not(feature = "api"))]
struct Probes;

#[cfg(not(feature = "api"))]
impl Probes {
    async fn start(settings: &Settings, _: &Queue, _: &BackgroundWork) -> Result<Self> {
        if settings.worker_metrics_bind_addr.is_some() {
            tracing::warn!("built without the feature `api`: no /metrics, /livez and /readyz");
        }
        print_line(&banner::one_line("worker", "no port", &settings.database_url));
        Ok(Self)
    }

    async fn stop(self) {}
}
