//! Reads the lanes from the file, a bounded number at a time: all of them when the file is opened, and again after somebody
//! else has written to the file, and from time to time.
//!
//! A round goes through the lanes in the order of the ready index. What it finds replaces what was known, so nothing that
//! waits stays unknown for longer than a round.

use std::sync::Arc;

use rusqlite::Connection;

use super::known_lanes::KnownLanes;
use super::lanes::{Lane, WaitingLane, lane_behind};

/// 256 lanes, a few milliseconds: what one transaction reads.
const SLICE_LANES: usize = 256;

/// 10 min: how long the lanes are relied on though nobody else has written. Nothing should ever be found then.
const ROUND_INTERVAL_MICROS: i64 = 600 * 1_000_000;

/// How far a round has come, and whether there is to be another.
#[derive(Debug, Default)]
pub(super) struct Sweep {
    is_loaded: bool,
    /// `PRAGMA data_version`: another number says that another connection has committed.
    data_version: i64,
    /// Rounds that are to be finished, the present one included.
    rounds: u8,
    /// The last lane that the present round has read.
    cursor: Option<Lane>,
    next_round_at: i64,
    /// The present round was begun because somebody else has written.
    is_expecting: bool,
}

impl KnownLanes {
    /// At the beginning of a transaction. Tells whether somebody else may have written since the last one.
    pub(super) fn catch_up(&mut self, connection: &Connection, now_micros: i64) -> rusqlite::Result<bool> {
        let data_version =
            connection.prepare_cached("PRAGMA data_version")?.query_row([], |row| row.get::<_, i64>(0))?;
        if !self.sweep.is_loaded {
            self.advance(now_micros);
            self.read_paused(connection)?;
            self.sweep = Sweep { data_version, rounds: 1, is_expecting: true, ..Sweep::default() };
            self.read_slice(connection, usize::MAX)?;
            self.sweep.is_loaded = true;
            self.sweep.next_round_at = now_micros.saturating_add(ROUND_INTERVAL_MICROS);
            self.end_transaction();
            return Ok(true);
        }
        self.advance(now_micros);
        let is_external = data_version != self.sweep.data_version;
        if is_external {
            self.read_paused(connection)?;
            self.sweep.data_version = data_version;
            self.sweep.is_expecting = true;
            // What the present round has passed already may have changed.
            self.sweep.rounds = if self.sweep.cursor.is_some() { 2 } else { 1 };
        } else if self.sweep.rounds == 0 && now_micros >= self.sweep.next_round_at {
            self.sweep.is_expecting = false;
            self.sweep.rounds = 1;
        }
        if self.sweep.rounds > 0 {
            self.read_slice(connection, SLICE_LANES)?;
            self.sweep.next_round_at = now_micros.saturating_add(ROUND_INTERVAL_MICROS);
            // As the file has it, whatever becomes of this transaction.
            self.end_transaction();
        }
        Ok(is_external)
    }

    /// Whether what is known should be what the file has.
    pub(super) fn is_caught_up(&self) -> bool {
        self.sweep.is_loaded && self.sweep.rounds == 0
    }

    fn read_slice(&mut self, connection: &Connection, lanes_max: usize) -> rusqlite::Result<()> {
        let mut found: Vec<WaitingLane> = Vec::new();
        let mut is_end = false;
        while found.len() < lanes_max && !is_end {
            match lane_behind(connection, found.last().map(|last| &last.lane).or(self.sweep.cursor.as_ref()))? {
                Some(waiting) => found.push(waiting),
                None => is_end = true,
            }
        }
        let last = found.last().map(|last| last.lane.clone()).filter(|_| !is_end);
        let mut news = 0;
        for known in self.between(self.sweep.cursor.as_ref(), last.as_ref()) {
            let found = found.binary_search_by(|waiting| waiting.lane.cmp(&known)).map(|at| found[at].head);
            if !matches!(found, Ok(Some(_))) {
                news += usize::from(self.set_head(known, None));
            }
        }
        for WaitingLane { lane, head } in found.into_iter().filter(|found| found.head.is_some()) {
            news += usize::from(self.set_head(Arc::new(lane), head));
        }
        if news > 0 && !self.sweep.is_expecting {
            tracing::error!(lanes = news, "what was known of the waiting jobs was wrong; it is corrected");
        }
        if is_end {
            self.sweep.rounds -= 1;
        }
        self.sweep.cursor = last;
        Ok(())
    }
}
