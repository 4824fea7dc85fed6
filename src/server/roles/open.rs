//! Opens what every role needs: the queue, with its kinds, and sockets.

use std::io;
use std::net::SocketAddr;

use anyhow::{Context, Result, anyhow};
use tokio::net::TcpListener;

use crate::queue::{Queue, QueueBuilder};
use crate::server::settings::Settings;

pub(super) fn builder(settings: &Settings) -> Result<QueueBuilder> {
    Ok(Queue::builder(&settings.database_url)
        .schema(&settings.database_schema)
        .allow_unsafe_server_settings(settings.allow_unsafe_server_settings)
        .payload_max_bytes(settings.max_payload_bytes)
        .max_queue_depth(settings.max_queue_depth)
        .allow_undeclared_kinds(settings.allow_undeclared_kinds)
        .default_max_attempts(settings.default_max_attempts)
        .default_retry(settings.default_retry.clone())
        .built_in_kinds(crate::kinds::definitions()?))
}

/// Opens the queue and declares the kinds of the settings file.
pub(super) async fn queue(settings: &Settings) -> Result<Queue> {
    let queue = builder(settings)?.open().await?;
    for kind in &settings.kinds {
        let name = &kind.kind;
        queue
            .put_kind(kind.clone())
            .await
            .with_context(|| format!("cannot declare kind {name} of the settings file"))?;
    }
    Ok(queue)
}

pub(super) async fn listen(address: SocketAddr, variable: &str) -> Result<TcpListener> {
    TcpListener::bind(address).await.map_err(|error| {
        let way_out = match error.kind() {
            io::ErrorKind::AddrInUse => "another program uses it; stop that one or choose another port",
            io::ErrorKind::PermissionDenied => "this user may not; choose a port above 1023",
            io::ErrorKind::AddrNotAvailable => "this machine has no such address; choose one it has",
            _ => "choose another",
        };
        anyhow!("cannot listen at {address}: {error}; {way_out} ({variable})")
    })
}
