//! `steadfast migrate`: brings the database to the schema this program knows, and ends.

use anyhow::Result;

use super::open;
use crate::server::out::say;
use crate::server::settings::{Settings, without_password};

/// Running it again, or twice at once, changes nothing.
pub(in crate::server) async fn run(settings: &Settings) -> Result<()> {
    let steps = open::builder(settings)?.migrate().await?;
    let store = without_password(&settings.database_url);
    match steps {
        0 => say(&format!("{store} is up to date: nothing to do")),
        1 => say(&format!("{store} is up to date: 1 migration applied")),
        steps => say(&format!("{store} is up to date: {steps} migrations applied")),
    }
    Ok(())
}
