//! Opens what every role needs: the queue, with its kinds, and sockets. And `migrate`, the role that needs no more.

use std::io;
use std::net::SocketAddr;

use anyhow::{Context, Result, anyhow};
use tokio::net::TcpListener;

use super::crew::{Crew, Duty};
use crate::queue::{BuiltInKind, Queue, QueueBuilder};
use crate::server::settings::{DeclaredSchedule, Settings, without_password};
use crate::server::stdio::print_line;
use crate::store::Actor;

fn builder(settings: &Settings) -> QueueBuilder {
    Queue::builder(&settings.database_url)
        .schema(&settings.database_schema)
        .allow_unsafe_server_settings(settings.allow_unsafe_server_settings)
        .payload_max_bytes(settings.max_payload_bytes)
        .max_queue_depth(settings.max_queue_depth)
        .max_depth(settings.max_depth)
        .max_queues(Some(settings.max_queues))
        .allow_undeclared_kinds(settings.allow_undeclared_kinds)
        .default_max_attempts(settings.default_max_attempts)
        .default_retry(settings.default_retry.clone())
}

/// Opens the queue with these built-in kinds, declares the other kinds of the settings file, and sets the limits that the
/// file declares.
pub(super) async fn queue(settings: &Settings, built_in: Vec<BuiltInKind>) -> Result<Queue> {
    let queue = builder(settings).built_in_kinds(built_in).open().await?;
    let (opened, queue) = (queue.clone(), queue.by(settings_file()));
    let declared = &settings.declarations;
    let kinds = declared.kinds.iter().map(|kind| &kind.definition);
    let commands = declared.commands.iter().map(|command| &command.definition);
    for definition in kinds.clone().chain(commands).filter(|definition| !queue.is_built_in(&definition.kind)) {
        let name = &definition.kind;
        let put = match definition.has_limits() {
            true => queue.put_kind(definition.clone()).await,
            // What the file says nothing about stays as an operator has set it.
            false => queue.declare_kind(definition.clone()).await,
        };
        put.with_context(|| format!("cannot declare kind {name} of the settings file"))?;
    }
    let limits: Vec<_> = kinds.filter(|definition| queue.is_built_in(&definition.kind)).cloned().collect();
    queue.limit_built_in_kinds(&limits).await.context("cannot limit the built-in kinds as the settings file says")?;
    for table in &declared.queues {
        let name = &table.queue;
        let limited = queue.limit(name.clone(), table.settings).await;
        limited.with_context(|| format!("cannot limit queue {name} as the settings file says"))?;
    }
    Ok(opened)
}

/// Who it is that does what the file says.
fn settings_file() -> Actor {
    Actor::new("settings file")
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

/// Makes the schedules of the settings file those of the database: the others of an earlier file are deleted, schedules
/// from elsewhere stay, an operator's pause stays.
pub(super) async fn sync_schedules(settings: &Settings, queue: &Queue) -> Result<()> {
    let declared = &settings.declarations.schedules;
    for DeclaredSchedule { name, request } in declared {
        // By itself first, so that an error names it.
        let checked = queue.checked_schedule(name, request.clone()).await;
        checked.with_context(|| format!("cannot declare schedule {name} of the settings file"))?;
    }
    let requests = declared.iter().map(|schedule| (schedule.name.clone(), schedule.request.clone()));
    let (created, changed, deleted) = queue.by(settings_file()).sync_schedules(requests.collect()).await?;
    if created + changed + deleted > 0 {
        tracing::info!(created, changed, deleted, "the schedules of the settings file are in the database");
    }
    Ok(())
}

/// `steadfast migrate`: brings the database to the schema this program knows, and ends. Running it again, or twice at once, changes nothing.
pub(in crate::server) async fn migrate(settings: &Settings) -> Result<()> {
    let steps = builder(settings).migrate().await?;
    let store = without_password(&settings.database_url);
    match steps {
        0 => print_line(&format!("{store} is up to date: nothing to do")),
        1 => print_line(&format!("{store} is up to date: 1 migration applied")),
        steps => print_line(&format!("{store} is up to date: {steps} migrations applied")),
    }
    // Without a file there is nothing that says which schedules there are.
    if settings.declarations.in_a_file {
        // Not made ready: payloads are checked by their schemas, nothing is set up.
        let crew = Crew::new(settings, Duty::Requests)?;
        let queue = queue(settings, crew.declarations()?).await?;
        sync_schedules(settings, &queue).await?;
    }
    Ok(())
}
