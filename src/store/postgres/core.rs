//! What every verb works with: the connections, the statements, and the hints that hurry things along.

use std::sync::Arc;

use super::lanes::Lanes;
use super::pool::{Dial, Pool};
use super::settings::PostgresSettings;
use super::sql::Sql;
use super::wake::Bell;
use crate::job::RetryPolicy;

/// Shared by the verbs.
pub(super) struct Core {
    pub(super) pool: Pool,
    /// One connection of its own, so that a full pool cannot starve heartbeats, on a thread of its own, so that the batches
    /// which are made up beside the other connections cannot either.
    pub(super) heartbeats: Pool,
    pub(super) sql: Sql,
    pub(super) lanes: Lanes,
    pub(super) bell: Bell,
    pub(super) shown: Arc<str>,
    /// For kinds that have no policy of their own.
    pub(super) retry_default: RetryPolicy,
}

impl Core {
    pub(super) fn new(dial: &Dial, settings: &PostgresSettings) -> std::io::Result<Self> {
        Ok(Self {
            pool: Pool::new(dial, settings, settings.pool_size),
            heartbeats: Pool::new(&dial.on_a_thread_of_its_own()?, settings, 1),
            sql: Sql::new(&settings.schema),
            lanes: Lanes::new(settings.low_water_marks),
            bell: Bell::start(dial, settings),
            shown: dial.shown.clone(),
            retry_default: settings.retry_default.clone(),
        })
    }
}
