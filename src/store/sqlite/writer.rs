//! The one thread that writes. It takes everything that is waiting, applies it in one transaction, commits once and
//! then answers all: one flush in flight, whatever arrives meanwhile is the next batch. No timer, so a call that comes
//! alone goes straight through.
//!
//! It never knows what the verbs do; each brings its own [`Verb::apply`]. A batch that fails is done again one request
//! at a time, so that only the request at fault fails. What waits is in `inbox`, what is known of the disk in `health`.

use std::sync::Arc;
use std::thread::JoinHandle;

use rusqlite::Connection;
use tokio::sync::{Semaphore, oneshot};

use super::error::{is_lock, skip_checkpoint_on_close, store_error};
use super::health::WriterHealth;
use super::inbox::{AnyRequest, Closed, Inbox, Request, Urgency, Verb};
use super::known_lanes::KnownLanes;
use super::lease::ClaimedRows;
use super::limit_state::LimitState;
use super::queue_counts::SharedCounts;
use super::time::{StoreTime, shift_times};
use super::transaction::{OnItemError, Tx};
use crate::planted::{Bug, planted};
use crate::store::{StoreError, StoreErrorKind, Wake};

/// 4,096 requests of each urgency may wait; further callers wait for a permit.
const WAITING_MAX: usize = 4096;

/// The way to the writer. Dropping it ends the thread once everything waiting is done.
#[derive(Debug)]
pub(super) struct Writer {
    inbox: Arc<Inbox>,
    health: Arc<WriterHealth>,
    urgent: Arc<Semaphore>,
    bulk: Arc<Semaphore>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    pub(super) fn start(
        connection: Connection,
        time: StoreTime,
        wake: Wake,
        counts: SharedCounts,
    ) -> std::io::Result<Self> {
        let (inbox, health) = (Arc::<Inbox>::default(), Arc::<WriterHealth>::default());
        let mut writer = WriterThread {
            connection,
            time,
            wake,
            inbox: inbox.clone(),
            health: health.clone(),
            syncs: None,
            claimed_rows: ClaimedRows::default(),
            lanes: KnownLanes::default(),
            limits: LimitState::default(),
            counts,
        };
        let thread = std::thread::Builder::new().name("steadfast-writer".into()).spawn(move || {
            let _ended = RefuseFurther { inbox: writer.inbox.clone(), health: writer.health.clone() };
            writer.run();
        })?;
        Ok(Self {
            inbox,
            health,
            urgent: Arc::new(Semaphore::new(WAITING_MAX)),
            bulk: Arc::new(Semaphore::new(WAITING_MAX)),
            thread: Some(thread),
        })
    }

    /// Applies and commits, then answers. Goes on even if the caller goes away.
    pub(super) async fn write<V: Verb>(&self, verb: V) -> Result<V::Answer, StoreError> {
        let urgency = if planted(Bug::WorkersBehindEnqueues) { Urgency::Bulk } else { V::URGENCY };
        let permits = match urgency {
            Urgency::Urgent => &self.urgent,
            Urgency::Bulk => &self.bulk,
        };
        let closed = |_| StoreError::new(StoreErrorKind::Unavailable, V::NAME);
        let permit = permits.clone().acquire_owned().await.map_err(closed)?;
        let (reply, answer) = oneshot::channel();
        let request = Box::new(Request::new(verb, reply, permit));
        self.inbox.put(urgency, request).map_err(|Closed| self.health.why_closed(V::NAME))?;
        // The writer died with it in hand, before or after the commit.
        answer.await.map_err(|_| StoreError::new(StoreErrorKind::OutcomeUnknown, V::NAME))?
    }

    pub(super) fn inbox(&self) -> &Arc<Inbox> {
        &self.inbox
    }

    pub(super) fn health(&self) -> &Arc<WriterHealth> {
        &self.health
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.inbox.close();
        if let Some(thread) = self.thread.take() {
            // It logs what it dies of itself.
            let _ = thread.join();
        }
    }
}

/// However the thread ends, nobody waits for it in vain.
struct RefuseFurther {
    inbox: Arc<Inbox>,
    health: Arc<WriterHealth>,
}

impl Drop for RefuseFurther {
    fn drop(&mut self) {
        if std::thread::panicking() {
            tracing::error!(
                "the thread that writes has died; nothing more is written until the process is started again"
            );
            if !planted(Bug::WriterDeathUnnoticed) {
                self.health.note_writer_died();
            }
        }
        for request in self.inbox.close_and_drain() {
            let error = self.health.why_closed(request.name());
            request.reply(Err(error));
        }
    }
}

struct WriterThread {
    connection: Connection,
    time: StoreTime,
    wake: Wake,
    inbox: Arc<Inbox>,
    health: Arc<WriterHealth>,
    /// Whether the connection is set to sync its commits; `None`: not known.
    syncs: Option<bool>,
    claimed_rows: ClaimedRows,
    lanes: KnownLanes,
    limits: LimitState,
    counts: SharedCounts,
}

impl WriterThread {
    fn run(&mut self) {
        while let Some(batch) = self.inbox.take() {
            if batch.restart_wal && !self.health.has_sync_failed() {
                self.restart_wal();
            }
            if !batch.requests.is_empty() {
                self.flush(batch.requests);
            }
        }
        if self.health.has_sync_failed() {
            skip_checkpoint_on_close(&self.connection);
        }
    }

    fn flush(&mut self, mut requests: Vec<Box<dyn AnyRequest>>) {
        assert!(!planted(Bug::WriterPanics) || requests.iter().all(|request| request.name() != "enqueue"), "planted");
        match self.commit(&mut requests, OnItemError::FailsAll) {
            Ok(()) => requests.into_iter().for_each(|request| request.reply(Ok(()))),
            // None of them is at fault for a lock; each alone would wait for it once more, one after the other.
            Err(error) if self.health.has_sync_failed() || is_lock(&error) => {
                requests.into_iter().for_each(|request| request.reply(Err(error.clone())));
            }
            // Alone, each fails or succeeds for reasons of its own.
            Err(_) => {
                for request in requests {
                    let mut alone = [request];
                    let committed = self.commit(&mut alone, OnItemError::FailsItem);
                    let [request] = alone;
                    request.reply(committed);
                }
            }
        }
    }

    fn commit(&mut self, requests: &mut [Box<dyn AnyRequest>], on_item_error: OnItemError) -> Result<(), StoreError> {
        let doing = requests.first().map_or("write", |request| request.name());
        if self.health.has_sync_failed() {
            return Err(StoreError::new(StoreErrorKind::Damaged, doing));
        }
        let result = self.try_commit(requests, on_item_error);
        if let Err(error) = &result {
            if !self.connection.is_autocommit()
                && let Err(error) = self.connection.execute_batch("ROLLBACK")
            {
                tracing::error!(%error, "cannot roll back");
            }
            self.health.note_error(error);
            // The step of the clock that it took over is undone, too; the next one takes it over again.
            if self.time.clock_step().is_some() || self.lanes.rolled_back(&self.connection).is_err() {
                self.lanes.forget();
            }
            // Else they are read with the lanes.
            if self.limits.rolled_back(&self.connection, &mut self.lanes).is_err() {
                self.lanes.forget();
            }
            self.lanes.end_transaction();
        }
        result.map_err(|error| {
            let error = store_error(doing, error);
            let at_the_disk = matches!(error.kind(), StoreErrorKind::ReadOnly | StoreErrorKind::Unavailable);
            if at_the_disk && !is_lock(&error) {
                self.health.note_write_failed();
            }
            error
        })
    }

    fn try_commit(&mut self, requests: &mut [Box<dyn AnyRequest>], on_item_error: OnItemError) -> rusqlite::Result<()> {
        self.set_sync(requests.iter().any(|request| request.needs_sync()))?;
        if self.apply_and_commit(requests, on_item_error)? {
            self.wake.wake();
        }
        Ok(())
    }

    /// Before a transaction, never after it: one that was given up is still open then, SQLite refuses the change, and
    /// the next commit would not be synced. A commit without a sync of its own is covered by the next synced one.
    fn set_sync(&mut self, syncs: bool) -> rusqlite::Result<()> {
        if self.syncs != Some(syncs) {
            self.syncs = None;
            let level = if syncs && !planted(Bug::AnswerBeforeSync) { "FULL" } else { "NORMAL" };
            let level = if planted(Bug::SyncOff) { "OFF" } else { level };
            self.connection.pragma_update(None, "synchronous", level)?;
            self.syncs = Some(syncs);
        }
        Ok(())
    }

    /// `true` if jobs became ready.
    fn apply_and_commit(
        &mut self,
        requests: &mut [Box<dyn AnyRequest>],
        on_item_error: OnItemError,
    ) -> rusqlite::Result<bool> {
        self.connection.execute_batch("BEGIN IMMEDIATE")?;
        // Only now: waiting for the lock may have taken time.
        let step = self.time.clock_step();
        if let Some(step) = step {
            tracing::warn!(from = step.from_micros, to = step.to_micros, "the clock was set; leases move along");
            if !planted(Bug::ClockStepsIgnored) {
                shift_times(&self.connection, step)?;
            }
            self.lanes.forget();
        }
        let now_micros = step.map_or_else(|| self.time.now_micros(), |step| step.to_micros);
        if let Err(error) = self.catch_up(now_micros) {
            // Read in part: the next transaction must not take that for all there is.
            self.lanes.forget();
            return Err(error);
        }
        let lanes = (&mut self.lanes, &mut self.limits);
        let mut tx = Tx::new(&self.connection, now_micros, on_item_error, &mut self.claimed_rows, lanes.0, lanes.1);
        for request in requests {
            request.apply(&mut tx)?;
        }
        let (moved, used) = tx.write_counts()?;
        let made_ready = tx.has_made_ready();
        drop(tx);
        self.lanes.debug_check(&self.connection)?;
        self.connection.execute_batch("COMMIT")?;
        self.counts.add(moved.iter().map(|(key, by)| (&key.queue, by)));
        self.counts.debug_check(&self.connection);
        self.lanes.end_transaction();
        self.limits.end_transaction();
        self.limits.usage.committed(used, now_micros);
        self.limits.usage.debug_check(&self.connection, now_micros);
        if let Some(step) = step {
            self.time.adopt(step);
        }
        self.health.note_commit();
        Ok(made_ready)
    }

    /// What is known is what the file has, also if somebody else has written to it.
    fn catch_up(&mut self, now_micros: i64) -> rusqlite::Result<()> {
        if self.lanes.catch_up(&self.connection, now_micros)? {
            self.limits.read(&self.connection, &mut self.lanes)?;
            self.claimed_rows.forget();
        }
        Ok(())
    }

    /// Short: the checkpointer has copied nearly everything already. If a reader is in the way, another time.
    fn restart_wal(&self) {
        let restart = || {
            self.connection.busy_timeout(std::time::Duration::from_millis(20))?;
            self.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
        };
        if let Err(error) = restart() {
            self.health.note_error(&error);
            tracing::debug!(%error, "the WAL cannot begin anew yet");
        }
        if let Err(error) = self.connection.busy_timeout(super::open::BUSY_TIMEOUT) {
            tracing::error!(%error, "cannot set the lock timeout");
        }
    }
}
