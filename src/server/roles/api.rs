//! `steadfast api`: serves requests, and reaps and prunes besides. Jobs are run elsewhere: by worker processes, or by
//! workers over HTTP.

use std::time::Duration;

use anyhow::{Context, Result};
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::crew::Crew;
use super::signals::Signals;
use super::{banner, notify, open};
use crate::api::{ApiLimits, ApiSettings, may_bind, serve};
use crate::queue::Queue;
use crate::server::out::say;
use crate::server::settings::Settings;

/// 5 s: requests are answered in milliseconds; one that takes long must not keep the worker from draining.
const REQUESTS_GRACE_MAX: Duration = Duration::from_secs(5);

/// Runs until it is told to stop.
pub(in crate::server) async fn run(settings: &Settings) -> Result<()> {
    let signals = Signals::listen()?;
    crate::api::metrics::install();
    let queue = open::queue(settings).await?;
    let listener = bind(settings, &queue).await?;
    let crew = Crew::housekeeping(settings, &queue);
    say(&banner::one_line("api", listener.local_addr()?, &settings.database_url));
    serve_with(settings, queue, listener, crew, signals).await
}

/// A socket for the API, unless strangers could reach it unhindered.
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
    if queue.tokens().await.context(unseen)?.is_empty() {
        tracing::warn!("there were API tokens and none is left: nobody gets in; set STEADFAST_ADMIN_TOKEN and restart");
    }
    Ok(true)
}

/// Serves requests until the signal, then lets requests finish, then the crew. A crew that ends by itself takes the
/// server down: it would take jobs that nobody looks after.
pub(super) async fn serve_with(
    settings: &Settings,
    queue: Queue,
    listener: TcpListener,
    crew: Crew,
    signals: Signals,
) -> Result<()> {
    let api_settings = api_settings(settings, queue, &crew);
    let (drain, mut draining) = watch::channel(false);
    let mut working = tokio::spawn(crew.work(async move {
        // Nobody left to say so means the same.
        let _ = draining.wait_for(|drain| *drain).await.is_ok();
    }));
    let (close, mut closing) = watch::channel(false);
    let stop = signals.stop();
    let mut serving = tokio::spawn(serve(listener, api_settings, async move {
        tokio::select! {
            () = stop => notify::stopping(),
            _ = closing.wait_for(|close| *close) => {}
        }
    }));
    notify::ready();
    let served = tokio::select! {
        served = &mut serving => served,
        died = &mut working => {
            close.send_replace(true);
            // Whatever the server says now, the crew's end is the reason.
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

pub(super) fn api_settings(settings: &Settings, queue: Queue, crew: &Crew) -> ApiSettings {
    ApiSettings {
        admin_token: settings.admin_token.clone(),
        hosts: settings.api_hosts.clone(),
        lease: settings.lease,
        checks: crew.checks(),
        limits: ApiLimits {
            connections: settings.max_connections,
            connections_per_address: settings.max_connections_per_address,
            enqueues_in_flight: settings.max_enqueues_in_flight,
            shutdown_grace: settings.shutdown_grace.min(REQUESTS_GRACE_MAX),
            ..ApiLimits::default()
        },
        ..ApiSettings::new(queue)
    }
}
