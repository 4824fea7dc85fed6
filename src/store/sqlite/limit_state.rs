//! What the writer knows of limits: how they are set, and how much of them is used. Between two transactions it is what the
//! file has.

use rusqlite::Connection;

use super::known_lanes::KnownLanes;
use super::limit_settings::LimitSettings;
use super::usage::Usage;

#[derive(Debug, Default)]
pub(super) struct LimitState {
    pub(super) settings: LimitSettings,
    pub(super) usage: Usage,
    /// The open transaction has changed settings: they are read again if it is rolled back.
    pub(super) have_settings_changed: bool,
}

impl LimitState {
    /// Reads all of it, and opens what gates there are.
    pub(super) fn read(&mut self, connection: &Connection, lanes: &mut KnownLanes) -> rusqlite::Result<()> {
        self.usage = Usage::read(connection)?;
        self.read_settings(connection, lanes)
    }

    /// Reads how limits are set.
    pub(super) fn read_settings(&mut self, connection: &Connection, lanes: &mut KnownLanes) -> rusqlite::Result<()> {
        self.settings = LimitSettings::read(connection)?;
        lanes.set_paused_groups(self.settings.paused_groups());
        lanes.open_all_gates();
        Ok(())
    }
}
