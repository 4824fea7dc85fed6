//! `steadfast worker`: runs jobs, and shows how it is doing on a port of its own.

use anyhow::{Result, bail};

use super::background::BackgroundWork;
use super::crew::{Crew, Duty};
use super::lifecycle::{Signals, notify_ready, notify_stopping};
use super::{banner, open};
use crate::queue::Queue;
use crate::server::settings::{Executor, Settings, SettingsError};
use crate::server::stdio::print_line;

/// Runs until it is told to stop.
pub(in crate::server) async fn run(settings: &Settings) -> Result<()> {
    let signals = Signals::listen()?;
    if settings.executor == Executor::None {
        bail!("executor is none, which leaves a worker nothing to run; set STEADFAST_EXECUTOR=builtin");
    }
    #[cfg(feature = "api")]
    crate::api::metrics::install();
    let mut crew = Crew::new(settings, Duty::Jobs)?;
    if !crew.runs_anything() {
        let why = banner::missing(crew.states()).unwrap_or_else(|| "every kind is left to other workers".into());
        return Err(SettingsError(format!("there is nothing this worker could run: {why}")).into());
    }
    let queue = open::queue(settings, crew.declarations()?).await?;
    let probes = Probes::bind(settings, &queue).await?;
    let kinds = crew.ready(&probes.addresses()?).await?;
    if settings.sync_schedules {
        open::sync_schedules(settings, &queue).await?;
    }
    let background = BackgroundWork::workers(settings, &queue, &crew, &kinds);
    let probes = probes.start(settings, &queue, &background)?;
    if let Some(missing) = banner::missing(crew.states()) {
        print_line(&format!("left to other workers: {missing}"));
    }
    for line in crew.outbound_lines() {
        print_line(&format!("outbound: {line}"));
    }
    notify_ready();
    let ended = background.work(signals.stop()).await;
    notify_stopping();
    probes.stop().await;
    ended
}

/// `/metrics`, `/livez` and `/readyz`, until the last outcome is recorded.
#[cfg(feature = "api")]
struct Probes(Option<(tokio::sync::oneshot::Sender<()>, tokio::task::JoinHandle<()>)>);

/// The port for them, which does not answer yet.
#[cfg(feature = "api")]
struct BoundProbes(Option<tokio::net::TcpListener>);

#[cfg(feature = "api")]
impl Probes {
    async fn bind(settings: &Settings, queue: &Queue) -> Result<BoundProbes> {
        let Some(address) = settings.worker_metrics_bind_addr else { return Ok(BoundProbes(None)) };
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
        Ok(BoundProbes(Some(listener)))
    }

    async fn stop(self) {
        if let Some((stop, serving)) = self.0 {
            drop(stop);
            // It ends by itself within the grace period; if it panicked, that was logged.
            let _ = serving.await;
        }
    }
}

#[cfg(feature = "api")]
impl BoundProbes {
    fn addresses(&self) -> std::io::Result<Vec<std::net::SocketAddr>> {
        self.0.iter().map(tokio::net::TcpListener::local_addr).collect()
    }

    /// Serves them, and says that the worker is ready.
    fn start(self, settings: &Settings, queue: &Queue, background: &BackgroundWork) -> Result<Probes> {
        let Some(listener) = self.0 else {
            print_line(&banner::one_line("worker", "no port", settings));
            return Ok(Probes(None));
        };
        print_line(&banner::one_line("worker", listener.local_addr()?, settings));
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
        Ok(Probes(Some((stop, serving))))
    }
}

/// Metrics are rendered by the feature `api`.
#[cfg(not(feature = "api"))]
struct Probes;

#[cfg(not(feature = "api"))]
impl Probes {
    async fn bind(settings: &Settings, _: &Queue) -> Result<Self> {
        if settings.worker_metrics_bind_addr.is_some() {
            tracing::warn!("built without the feature `api`: no /metrics, /livez and /readyz");
        }
        Ok(Self)
    }

    fn addresses(&self) -> std::io::Result<Vec<std::net::SocketAddr>> {
        Ok(Vec::new())
    }

    fn start(self, settings: &Settings, _: &Queue, _: &BackgroundWork) -> Result<Self> {
        print_line(&banner::one_line("worker", "no port", settings));
        Ok(self)
    }

    async fn stop(self) {}
}
