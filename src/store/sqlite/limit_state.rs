//! What the writer knows of limits: how they are set, and how much of them is used. Between two transactions it is what the
//! file has.

use rusqlite::Connection;

use super::gates::LimitKey;
use super::known_lanes::KnownLanes;
use super::limit_settings::LimitSettings;
use super::usage::Usage;

#[derive(Debug, Default)]
pub(super) struct LimitState {
    pub(super) settings: LimitSettings,
    pub(super) usage: Usage,
    /// Whose settings the open transaction has changed: they are read again if it is rolled back.
    changed: Vec<LimitKey>,
}

impl LimitState {
    /// Reads all of it, and opens what gates there are.
    pub(super) fn read(&mut self, connection: &Connection, lanes: &mut KnownLanes) -> rusqlite::Result<()> {
        self.usage = Usage::read(connection)?;
        self.settings = LimitSettings::read(connection)?;
        lanes.set_paused_groups(self.settings.paused_groups());
        lanes.open_all_gates();
        Ok(())
    }

    /// Reads how one queue, kind or group is set, and opens the gates that it may have closed. Tells whether it is news.
    pub(super) fn read_one(
        &mut self,
        connection: &Connection,
        lanes: &mut KnownLanes,
        of: LimitKey,
    ) -> rusqlite::Result<bool> {
        // First: what cannot be read now is read again with the rollback.
        self.changed.push(of.clone());
        let is_news = self.settings.read_one(connection, &of)?;
        if is_news {
            lanes.open_gate(&of);
            match &of {
                LimitKey::Queue(queue) => lanes.open_group_gates(queue),
                LimitKey::Group(queue, key) => {
                    lanes.set_paused_group(queue, key, self.settings.group(queue, key).paused);
                }
                LimitKey::Kind(_) => {}
            }
        }
        Ok(is_news)
    }

    /// It is as the file has it.
    pub(super) fn end_transaction(&mut self) {
        self.changed.clear();
    }

    /// What the transaction changed is as the file has it, now that it was rolled back.
    pub(super) fn rolled_back(&mut self, connection: &Connection, lanes: &mut KnownLanes) -> rusqlite::Result<()> {
        for of in std::mem::take(&mut self.changed) {
            self.read_one(connection, lanes, of)?;
        }
        self.changed.clear();
        Ok(())
    }
}
