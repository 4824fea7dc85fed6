//! What a verb works with inside the writer's transaction: the connection, one "now" for all, and the counts it moves.

use std::collections::HashMap;
use std::sync::Arc;

use rusqlite::{CachedStatement, Connection};

use super::counts::{Moved, MovedCounts};
use super::dead_groups::DeadGroups;
use super::due_groups::Served;
use super::due_jobs::ReadLane;
use super::error::store_error;
use super::gates::LimitKey;
use super::known_lanes::KnownLanes;
use super::lanes::{Group, Lane, Position};
use super::lease::ClaimedRows;
use super::limit_settings::LimitSettings;
use super::limit_state::LimitState;
use super::marks::Marks;
use super::room::RoomTaken;
use super::row::UuidBlob;
use super::usage::{UsageChanges, Used, held_by};
use crate::job::{ErrorGroup, Status};
use crate::store::StoreError;

/// One open transaction.
pub(super) struct Tx<'c> {
    connection: &'c Connection,
    now_micros: i64,
    on_item_error: OnItemError,
    moved: Moved,
    dead_groups: DeadGroups,
    made_ready: bool,
    claimed_rows: &'c mut ClaimedRows,
    lanes: &'c mut KnownLanes,
    limits: &'c mut LimitState,
    used: UsageChanges,
    enqueue: Option<CachedStatement<'c>>,
}

/// What happens to a batch when one of its items fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OnItemError {
    /// The whole transaction is given up. The good path: no savepoints.
    FailsAll,
    /// That item alone is undone. For the second try, after the first was given up.
    FailsItem,
}

impl<'c> Tx<'c> {
    pub(super) fn new(
        connection: &'c Connection,
        now_micros: i64,
        on_item_error: OnItemError,
        claimed_rows: &'c mut ClaimedRows,
        lanes: &'c mut KnownLanes,
        limits: &'c mut LimitState,
    ) -> Self {
        Self {
            connection,
            now_micros,
            on_item_error,
            moved: Moved::default(),
            dead_groups: DeadGroups::default(),
            made_ready: false,
            claimed_rows,
            lanes,
            limits,
            used: UsageChanges::default(),
            enqueue: None,
        }
    }

    pub(super) fn on_item_error(&self) -> OnItemError {
        self.on_item_error
    }

    /// Rows that this process has claimed.
    pub(super) fn claimed_rows(&mut self) -> &mut ClaimedRows {
        self.claimed_rows
    }

    /// The lanes that have jobs waiting.
    pub(super) fn lanes(&self) -> &KnownLanes {
        self.lanes
    }

    /// A job waits there now. Every write that makes a job wait must say so, or no claim looks for it.
    pub(super) fn add_waiting(&mut self, lane: Lane, position: Position) -> rusqlite::Result<()> {
        match &lane.group {
            Group::Strict(_) => self.lanes.look_again(self.connection, [Arc::new(lane)])?,
            _ => self.lanes.add(lane, position),
        }
        if position.run_at <= self.now_micros {
            self.made_ready = true;
        }
        Ok(())
    }

    /// Jobs of these lanes no longer wait.
    pub(super) fn look_again(&mut self, lanes: impl IntoIterator<Item = Arc<Lane>>) -> rusqlite::Result<()> {
        self.lanes.look_again(self.connection, lanes)
    }

    /// Jobs were taken from these lanes.
    pub(super) fn has_read(&mut self, lanes: Vec<ReadLane>) -> rusqlite::Result<()> {
        for ReadLane { lane, head } in lanes {
            match head {
                Some(head) => drop(self.lanes.set_head(lane, Some(head))),
                None => self.lanes.look_again(self.connection, [lane])?,
            }
        }
        Ok(())
    }

    /// A job of a strict group has ended: the next of its group may start.
    pub(super) fn has_ended(&mut self, lane: &Lane) -> rusqlite::Result<()> {
        if matches!(lane.group, Group::Strict(_)) {
            self.lanes.look_again(self.connection, [Arc::new(lane.clone())])?;
            self.made_ready = true;
        }
        Ok(())
    }

    /// How limits are set.
    pub(super) fn limit_settings(&self) -> &LimitSettings {
        &self.limits.settings
    }

    /// What is used of a limit.
    pub(super) fn used(&self, key: &LimitKey) -> Used {
        self.limits.usage.of(key, &self.used)
    }

    /// What a claim has taken of limits, and who had turns.
    pub(super) fn took(&mut self, room: RoomTaken, served: HashMap<i16, Served>) {
        for (key, leases, tat) in room.taken {
            if let Some(tat) = tat {
                self.used.set_tat(key.clone(), tat);
            }
            self.used.add(key, leases);
        }
        room.reached.into_iter().for_each(|(key, reached)| self.lanes.close_gate(key, reached));
        if !served.is_empty() {
            self.lanes.served(served);
        }
    }

    /// So many leases of this lane counted for these limits, and live no more.
    pub(super) fn give_back(&mut self, lane: &Lane, holds: Marks, leases: i64) {
        for key in held_by(lane, holds) {
            self.made_ready |= self.lanes.open_gate(&key);
            self.used.add(key, -leases);
        }
    }

    /// So many leases that live already count for a limit from now on.
    pub(super) fn count_also(&mut self, key: LimitKey, leases: i64) {
        self.used.add(key, leases);
        // What is known of their rows is no longer so.
        self.claimed_rows.forget();
    }

    /// The settings of a queue, kind or group were written. There may be room where there was none.
    pub(super) fn settings_written(&mut self, of: LimitKey) -> rusqlite::Result<()> {
        self.made_ready |= self.limits.read_one(self.connection, self.lanes, of)?;
        Ok(())
    }

    /// Forgets rates that nobody has used for long enough, a bounded number.
    pub(super) fn forget_idle_rates(&mut self, max: usize) {
        let idle = self.limits.usage.idle(self.now_micros, max);
        idle.into_iter().for_each(|key| self.used.touch(key));
    }

    pub(super) fn set_paused(&mut self, queue: &str, paused: bool) {
        self.lanes.set_paused(queue, paused);
    }

    /// The store's now, the same for everything in this transaction.
    pub(super) fn now_micros(&self) -> i64 {
        self.now_micros
    }

    pub(super) fn connection(&self) -> &'c Connection {
        self.connection
    }

    /// Compiled once per connection.
    pub(super) fn statement(&self, sql: &str) -> rusqlite::Result<CachedStatement<'c>> {
        self.connection.prepare_cached(sql)
    }

    /// Looked up once for all the calls that share this transaction, a twentieth of an enqueue: the cache of statements
    /// hashes the whole text each time.
    pub(super) fn enqueue_statement(&mut self) -> rusqlite::Result<&mut CachedStatement<'c>> {
        let kept = match self.enqueue.take() {
            Some(kept) => kept,
            None => self.statement(include_str!("enqueue.sql"))?,
        };
        Ok(self.enqueue.insert(kept))
    }

    /// Keeps the counts: a job went from one status to another; `None` is outside of the store.
    pub(super) fn moved(&mut self, lane: &Lane, from: Option<Status>, to: Option<Status>) {
        self.moved_many(lane, from, to, 1);
    }

    /// As [`Tx::moved`], for several that went the same way.
    pub(super) fn moved_many(&mut self, lane: &Lane, from: Option<Status>, to: Option<Status>, count: i64) {
        self.moved.add(lane, from, to, count);
    }

    /// A job has become a dead letter because of an error of this group.
    pub(super) fn died(&mut self, seq: i64, id: UuidBlob, lane: &Lane, group: &ErrorGroup) -> rusqlite::Result<()> {
        self.dead_groups.add(self.connection, (seq, id), lane, group)
    }

    /// A job is a dead letter no more, or gone. Nothing to do if its error is in no group: it died before there were any.
    pub(super) fn is_dead_no_more(&mut self, seq: i64, lane: &Lane) -> rusqlite::Result<()> {
        self.dead_groups.remove(self.connection, seq, lane)
    }

    /// Somebody waiting for work should look.
    pub(super) fn has_made_ready(&self) -> bool {
        self.made_ready || self.lanes.has_stopped_gathering()
    }

    /// A job may have become claimable otherwise than by waiting anew.
    pub(super) fn make_ready(&mut self) {
        self.made_ready = true;
    }

    /// Applies `f` to each item. One that fails does so alone, or fails all: see [`OnItemError`].
    pub(super) fn each<I, T>(
        &mut self,
        items: &[I],
        mut f: impl FnMut(&mut Self, &I) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<Vec<Result<T, StoreError>>> {
        let mut answers = Vec::with_capacity(items.len());
        for item in items {
            if self.on_item_error == OnItemError::FailsAll {
                answers.push(Ok(f(self, item)?));
                continue;
            }
            let (moved, used, dead_groups) = (self.moved.clone(), self.used.clone(), self.dead_groups.clone());
            self.connection.execute_batch("SAVEPOINT item")?;
            match f(self, item) {
                Ok(answer) => {
                    self.connection.execute_batch("RELEASE item")?;
                    answers.push(Ok(answer));
                }
                Err(error) => {
                    self.connection.execute_batch("ROLLBACK TO item; RELEASE item")?;
                    (self.moved, self.used, self.dead_groups) = (moved, used, dead_groups);
                    self.lanes.rolled_back(self.connection)?;
                    answers.push(Err(store_error("one item of a batch", error)));
                }
            }
        }
        Ok(answers)
    }

    /// Writes the counts: a row for each kind and queue, however many jobs moved. Part of every transaction. Answers what
    /// it wrote, for the sums in memory.
    pub(super) fn write_counts(&mut self) -> rusqlite::Result<(MovedCounts, UsageChanges)> {
        let used = std::mem::take(&mut self.used);
        used.write(self.connection, &self.limits.usage, self.now_micros)?;
        std::mem::take(&mut self.dead_groups).write(self.connection, self.now_micros)?;
        Ok((std::mem::take(&mut self.moved).write(self.connection)?, used))
    }
}
