//! The roles that serve requests: `steadfast api`, which besides only reaps and prunes (jobs are run elsewhere: by worker
//! processes, or by workers over HTTP), and `steadfast serve`, which is everything in one process.

use std::time::Duration;

use anyhow::{Context, Result};
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::background::BackgroundWork;
use super::crew::{Crew, Duty};
use super::lifecycle::{Signals, notify_ready, notify_stopping};
use super::{banner, open};
use crate::api::{ApiLimits, ApiSettings, may_bind, serve};
use crate::queue::Queue;
use crate::server::settings::Settings;
use crate::server::stdio::print_line;
#[cfg(feature = "worker")]
use crate::server::stdio::print_text;

/// 5 s: requests are answered in milliseconds; one that takes long must not keep the worker from draining.
const REQUESTS_GRACE_MAX: Duration = Duration::from_secs(5);

/// `steadfast api`, until it is told to stop.
pub(in crate::server) async fn run(settings: &Settings) -> Result<()> {
    let signals = Signals::listen()?;
    crate::api::metrics::install();
    let mut crew = Crew::new(settings, Duty::Requests)?;
    let queue = open::queue(settings, crew.declarations()?).await?;
    let listener = bind(settings, &queue).await?;
    crew.ready(&[listener.local_addr()?]).await?;
    if settings.sync_schedules {
        open::sync_schedules(settings, &queue).await?;
    }
    let background = BackgroundWork::housekeeping(settings, &queue);
    print_line(&banner::one_line("api", listener.local_addr()?, settings));
    serve_with(settings, queue, listener, background, signals).await
}

/// `steadfast serve`: everything in one process, until it is told to stop.
#[cfg(feature = "worker")]
pub(in crate::server) async fn serve_all(settings: &Settings) -> Result<()> {
    let signals = Signals::listen()?;
    crate::api::metrics::install();
    let mut crew = Crew::new(settings, Duty::Everything)?;
    let queue = open::queue(settings, crew.declarations()?).await?;
    let listener = bind(settings, &queue).await?;
    let address = listener.local_addr()?;
    let kinds = crew.ready(&[address]).await?;
    open::sync_schedules(settings, &queue).await?;
    let background = BackgroundWork::by_executor(settings, &queue, &crew, &kinds);
    let declared = queue.kinds().await?.into_iter().map(|kind| kind.kind.to_string()).collect();
    let open = !needs_token(settings, &queue).await?;
    let facts = banner::Facts { address, open, declared, crew: &crew, settings };
    print_text(&banner::banner(&facts));
    serve_with(settings, queue, listener, background, signals).await
}

/// A socket for the API; refused beyond the loopback without a token.
pub(super) async fn bind(settings: &Settings, queue: &Queue) -> Result<TcpListener> {
    may_bind(settings.api_bind_addr, needs_token(settings, queue).await?)?;
    open::listen(settings.api_bind_addr, "API_BIND_ADDR").await
}

/// Whether callers need a token: there is one, or there was one.
pub(super) async fn needs_token(settings: &Settings, queue: &Queue) -> Result<bool> {
    let unseen = "cannot see whether there are API tokens";
    if settings.admin_token.is_some() || !queue.had_token().await.context(unseen)? {
        return Ok(settings.admin_token.is_some());
    }
    if queue.tokens().await.context(unseen)?.tokens.is_empty() {
        tracing::warn!("there were API tokens and none is left: nobody gets in; set STEADFAST_ADMIN_TOKEN and restart");
    }
    Ok(true)
}

/// Serves requests until the signal, then lets requests finish, then the background work. If that ends by itself, it takes
/// the server down: it would take jobs that nobody looks after.
pub(super) async fn serve_with(
    settings: &Settings,
    queue: Queue,
    listener: TcpListener,
    background: BackgroundWork,
    signals: Signals,
) -> Result<()> {
    let api_settings = api_settings(settings, queue, &background);
    let (drain, mut draining) = watch::channel(false);
    let mut working = tokio::spawn(background.work(async move {
        // A sender that is gone means the same.
        let _ = draining.wait_for(|drain| *drain).await.is_ok();
    }));
    let (close, mut closing) = watch::channel(false);
    let stop = signals.stop();
    let mut serving = tokio::spawn(serve(listener, api_settings, async move {
        tokio::select! {
            () = stop => notify_stopping(),
            _ = closing.wait_for(|close| *close) => {}
        }
    }));
    notify_ready();
    let served = tokio::select! {
        served = &mut serving => served,
        died = &mut working => {
            close.send_replace(true);
            // Whatever the server says now, the end of the background work is the reason.
            let _ = serving.await;
            return died.context("the worker was interrupted")?;
        }
    };
    drain.send_replace(true);
    working.await.context("the worker was interrupted")??;
    served.context("the server was interrupted")??;
    tracing::info!("stopped");
    Ok(())
}

pub(super) fn api_settings(settings: &Settings, queue: Queue, background: &BackgroundWork) -> ApiSettings {
    let limits = ApiLimits::default()
        .connections(settings.max_connections)
        .connections_per_address(settings.max_connections_per_address)
        .enqueues_in_flight(settings.max_enqueues_in_flight)
        .shutdown_grace(settings.shutdown_grace.min(REQUESTS_GRACE_MAX));
    let api = ApiSettings::new(queue)
        .admin_token(settings.admin_token.clone())
        .hosts(&settings.api_hosts)
        .public_url(settings.public_url.as_deref().and_then(|url| url.parse().ok()))
        .hide_payloads(settings.hide_payloads)
        .lease(settings.lease)
        .ready_checks(background.checks())
        .limits(limits);
    #[cfg(feature = "dashboard")]
    let api = api.dashboard(settings.dashboard);
    api
}
