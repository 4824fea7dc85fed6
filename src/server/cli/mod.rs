//! Commands for a running server, over HTTP.

use anyhow::Result;
use clap::Subcommand;

use super::exit::Exit;

/// The commands.
#[derive(Debug, Subcommand)]
pub(super) enum Operate {
    /// Show counts
    Stats,
}

pub(super) fn run(_: Operate) -> Result<Exit> {
    Ok(Exit::Ok)
}
