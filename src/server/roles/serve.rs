//! `steadfast serve`: everything in one process.

use anyhow::Result;

use super::crew::Crew;
use super::signals::Signals;
use super::{api, banner, open};
use crate::server::out::say_raw;
use crate::server::settings::Settings;

/// Runs until it is told to stop.
pub(in crate::server) async fn run(settings: &Settings) -> Result<()> {
    let signals = Signals::listen()?;
    crate::api::metrics::install();
    let queue = open::queue(settings).await?;
    let listener = api::bind(settings, &queue).await?;
    let crew = Crew::by_executor(settings, &queue);
    let kinds = queue.kinds().await?.into_iter().map(|kind| kind.kind.to_string()).collect();
    let facts = banner::Facts {
        address: listener.local_addr()?,
        open: !api::needs_token(settings, &queue).await?,
        kinds,
        settings,
    };
    say_raw(&banner::banner(&facts));
    api::serve_with(settings, queue, listener, crew, signals).await
}
