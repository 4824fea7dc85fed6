//! What a verb works with inside the writer's transaction: the connection, one "now" for all, and the counts it moves.

use std::sync::Arc;

use rusqlite::{CachedStatement, Connection};

use super::counts::{Moved, MovedCounts};
use super::error::store_error;
use super::known_lanes::KnownLanes;
use super::lanes::{Lane, Position};
use super::lease::ClaimedRows;
use crate::job::Status;
use crate::store::StoreError;

/// One open transaction.
pub(super) struct Tx<'c> {
    connection: &'c Connection,
    now_micros: i64,
    on_item_error: OnItemError,
    moved: Moved,
    made_ready: bool,
    claimed_rows: &'c mut ClaimedRows,
    lanes: &'c mut KnownLanes,
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
    ) -> Self {
        Self {
            connection,
            now_micros,
            on_item_error,
            moved: Moved::default(),
            made_ready: false,
            claimed_rows,
            lanes,
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
    pub(super) fn add_waiting(&mut self, lane: Lane, position: Position) {
        self.lanes.add(lane, position);
        if position.run_at <= self.now_micros {
            self.made_ready = true;
        }
    }

    /// Jobs of these lanes no longer wait.
    pub(super) fn look_again(&mut self, lanes: impl IntoIterator<Item = Arc<Lane>>) -> rusqlite::Result<()> {
        self.lanes.look_again(self.connection, lanes)
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

    /// Somebody waiting for work should look.
    pub(super) fn has_made_ready(&self) -> bool {
        self.made_ready
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
            let moved = self.moved.clone();
            self.connection.execute_batch("SAVEPOINT item")?;
            match f(self, item) {
                Ok(answer) => {
                    self.connection.execute_batch("RELEASE item")?;
                    answers.push(Ok(answer));
                }
                Err(error) => {
                    self.connection.execute_batch("ROLLBACK TO item; RELEASE item")?;
                    self.moved = moved;
                    self.lanes.rolled_back(self.connection)?;
                    answers.push(Err(store_error("one item of a batch", error)));
                }
            }
        }
        Ok(answers)
    }

    /// Writes the counts: a row for each kind and queue, however many jobs moved. Part of every transaction. Answers what
    /// it wrote, for the sums in memory.
    pub(super) fn write_counts(&mut self) -> rusqlite::Result<MovedCounts> {
        std::mem::take(&mut self.moved).write(self.connection)
    }
}
