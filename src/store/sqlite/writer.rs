//! The one thread that writes. It takes everything that is waiting, applies it in one transaction, commits once and
//! then answers all: one flush in flight, whatever arrives meanwhile is the next batch. No timer, so a call that comes
//! alone goes straight through.
//!
//! It never knows what the verbs do; each brings its own [`Verb::apply`]. A batch that fails is done again one request
//! at a time, so that only the request at fault fails.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use rusqlite::Connection;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::error::{is_lock, is_sync_failure, leave_log_alone, store_error};
use super::lease::ClaimedRows;
use super::time::{StoreTime, move_along};
use super::transaction::{Items, Tx};
use crate::planted::{Bug, planted};
use crate::store::{StoreError, StoreErrorKind, Wake};

/// 512 requests, or 1,000 items (one request may bring as many): a commit of that takes some milliseconds; more would
/// only make heartbeats wait.
const BATCH_MAX: usize = 512;
const BATCH_ITEMS_MAX: usize = 1000;
/// Of these, what new jobs are left at least, however busy the workers are.
const BATCH_MIN_FOR_BULK: usize = 128;
/// 4,096 requests may wait in each lane; further callers wait for a place.
const WAITING_MAX: usize = 4096;

/// Something to be written. `apply` may be called twice (the second time with nothing of the first left).
pub(super) trait Verb: Send + 'static {
    type Answer: Send + 'static;
    /// For error messages.
    const NAME: &'static str;
    const LANE: Lane;

    fn apply(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<Self::Answer>;

    /// How many items it brings.
    fn weight(&self) -> usize {
        1
    }

    /// Whether the answer must wait until the commit is on stable storage.
    fn needs_sync(&self) -> bool {
        true
    }
}

/// Who waits where: workers' reports never queue behind new jobs, else a flood of those would expire live leases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lane {
    Urgent,
    Bulk,
}

/// The way to the writer. Dropping the last one ends the thread once everything waiting is done.
#[derive(Debug)]
pub(super) struct Writer {
    inbox: Arc<Inbox>,
    urgent: Arc<Semaphore>,
    bulk: Arc<Semaphore>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    pub(super) fn start(connection: Connection, time: StoreTime, wake: Wake) -> std::io::Result<Self> {
        let inbox = Arc::new(Inbox::default());
        let mut writing =
            Writing { connection, time, wake, inbox: inbox.clone(), syncs: None, claimed_rows: ClaimedRows::default() };
        let thread = std::thread::Builder::new().name("steadfast-writer".into()).spawn(move || {
            let _ended = RefuseFurther(writing.inbox.clone());
            writing.run();
        })?;
        Ok(Self {
            inbox,
            urgent: Arc::new(Semaphore::new(WAITING_MAX)),
            bulk: Arc::new(Semaphore::new(WAITING_MAX)),
            thread: Some(thread),
        })
    }

    /// Applies and commits, then answers. Goes on even if the caller goes away.
    pub(super) async fn write<V: Verb>(&self, verb: V) -> Result<V::Answer, StoreError> {
        let lane = if planted(Bug::OneLane) { Lane::Bulk } else { V::LANE };
        let places = match lane {
            Lane::Urgent => &self.urgent,
            Lane::Bulk => &self.bulk,
        };
        let closed = |_| StoreError::new(StoreErrorKind::Unavailable, V::NAME);
        let place = places.clone().acquire_owned().await.map_err(closed)?;
        let (reply, answer) = oneshot::channel();
        self.inbox.put(lane, Box::new(Request { verb, answer: None, reply, _place: place }))?;
        // The writer died with it in hand, before or after the commit.
        answer.await.map_err(|_| StoreError::new(StoreErrorKind::OutcomeUnknown, V::NAME))?
    }

    /// Commits so far.
    pub(super) fn commits(&self) -> u64 {
        self.inbox.commits.load(Ordering::Relaxed)
    }

    pub(super) fn inbox(&self) -> Arc<Inbox> {
        self.inbox.clone()
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

/// Requests waiting for the next batch.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    waiting: Mutex<Waiting>,
    arrived: Condvar,
    commits: AtomicU64,
    /// Set once the disk failed to sync, by whoever met it: from then on nothing is written any more.
    broken: AtomicBool,
    /// Set once the writer has died of a panic.
    dead: AtomicBool,
    /// Set when a commit failed at the disk, until somebody has seen one succeed.
    write_failed: AtomicBool,
}

#[derive(Default)]
struct Waiting {
    urgent: VecDeque<Box<dyn Work>>,
    bulk: VecDeque<Box<dyn Work>>,
    restart_wal: bool,
    closed: bool,
}

impl std::fmt::Debug for Waiting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} urgent, {} bulk", self.urgent.len(), self.bulk.len())
    }
}

struct Batch {
    works: Vec<Box<dyn Work>>,
    restart_wal: bool,
}

impl Batch {
    /// Takes from `lane` until the batch has so many requests or items, whichever comes first.
    fn fill(&mut self, lane: &mut VecDeque<Box<dyn Work>>, requests_max: usize, items_max: usize) {
        let mut items: usize = self.works.iter().map(|work| work.weight()).sum();
        while self.works.len() < requests_max && items < items_max {
            let Some(work) = lane.pop_front() else { return };
            items += work.weight();
            self.works.push(work);
        }
    }
}

impl Inbox {
    fn put(&self, lane: Lane, work: Box<dyn Work>) -> Result<(), StoreError> {
        let mut waiting = self.lock();
        if waiting.closed {
            return Err(self.why_closed(work.doing()));
        }
        match lane {
            Lane::Urgent => waiting.urgent.push_back(work),
            Lane::Bulk => waiting.bulk.push_back(work),
        }
        self.arrived.notify_one();
        Ok(())
    }

    /// Asks the writer to begin the WAL anew between two batches.
    pub(super) fn restart_wal(&self) {
        self.lock().restart_wal = true;
        self.arrived.notify_one();
    }

    pub(super) fn commits(&self) -> u64 {
        self.commits.load(Ordering::Relaxed)
    }

    /// Takes note of an error if it means that the disk does not keep what it is given.
    pub(super) fn note_failure(&self, error: &rusqlite::Error) {
        if is_sync_failure(error) && !self.broken.swap(true, Ordering::SeqCst) {
            tracing::error!(%error, "the disk failed to sync; nothing more is written, restart on a sound disk");
        }
    }

    /// Why nothing can be written any more, if so.
    pub(super) fn trouble(&self, doing: &'static str) -> Option<StoreError> {
        if self.broken.load(Ordering::SeqCst) {
            return Some(StoreError::new(StoreErrorKind::Damaged, doing));
        }
        self.lock().closed.then(|| self.why_closed(doing))
    }

    fn why_closed(&self, doing: &'static str) -> StoreError {
        let dead = self.dead.load(Ordering::SeqCst);
        StoreError::new(if dead { StoreErrorKind::Stopped } else { StoreErrorKind::Unavailable }, doing)
    }

    /// Whether a commit failed at the disk since [`Inbox::write_succeeded`].
    pub(super) fn has_write_failed(&self) -> bool {
        self.write_failed.load(Ordering::SeqCst)
    }

    /// Something was written and committed. (A commit of nothing succeeds on any disk.)
    pub(super) fn write_succeeded(&self) {
        self.write_failed.store(false, Ordering::SeqCst);
    }

    /// Waits for something to do; `None` when closed and empty.
    fn take(&self) -> Option<Batch> {
        let mut waiting = self.lock();
        while waiting.urgent.is_empty() && waiting.bulk.is_empty() && !waiting.restart_wal {
            if waiting.closed {
                return None;
            }
            waiting = self.arrived.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
        let reserved = waiting.bulk.len().min(BATCH_MIN_FOR_BULK);
        let mut batch = Batch { works: Vec::new(), restart_wal: std::mem::take(&mut waiting.restart_wal) };
        batch.fill(&mut waiting.urgent, BATCH_MAX - reserved, BATCH_ITEMS_MAX);
        // However heavy the urgent ones are, one of the others goes along.
        batch.fill(&mut waiting.bulk, BATCH_MAX, 2 * BATCH_ITEMS_MAX);
        Some(batch)
    }

    fn close(&self) {
        self.lock().closed = true;
        self.arrived.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request whose verb the writer need not know.
trait Work: Send {
    fn apply(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<()>;
    fn needs_sync(&self) -> bool;
    fn weight(&self) -> usize;
    fn doing(&self) -> &'static str;
    fn reply(self: Box<Self>, committed: Result<(), StoreError>);
}

struct Request<V: Verb> {
    verb: V,
    answer: Option<V::Answer>,
    reply: oneshot::Sender<Result<V::Answer, StoreError>>,
    _place: OwnedSemaphorePermit,
}

impl<V: Verb> Work for Request<V> {
    fn apply(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<()> {
        self.answer = Some(self.verb.apply(tx)?);
        Ok(())
    }

    fn needs_sync(&self) -> bool {
        self.verb.needs_sync()
    }

    fn weight(&self) -> usize {
        self.verb.weight()
    }

    fn doing(&self) -> &'static str {
        V::NAME
    }

    fn reply(self: Box<Self>, committed: Result<(), StoreError>) {
        let unanswered = || StoreError::new(StoreErrorKind::Internal, V::NAME);
        let Self { answer, reply, .. } = *self;
        // The caller may have gone; the work is done all the same.
        let _ = reply.send(committed.and_then(|()| answer.ok_or_else(unanswered)));
    }
}

/// However the writer ends, nobody waits for it in vain.
struct RefuseFurther(Arc<Inbox>);

impl Drop for RefuseFurther {
    fn drop(&mut self) {
        if std::thread::panicking() {
            tracing::error!(
                "the thread that writes has died; nothing more is written until the process is started again"
            );
            self.0.dead.store(!planted(Bug::WriterDeathUnnoticed), Ordering::SeqCst);
        }
        let waiting = {
            let mut waiting = self.0.lock();
            waiting.closed = true;
            std::mem::take(&mut waiting.urgent).into_iter().chain(std::mem::take(&mut waiting.bulk))
        };
        for work in waiting {
            let error = self.0.why_closed(work.doing());
            work.reply(Err(error));
        }
    }
}

/// The thread's side.
struct Writing {
    connection: Connection,
    time: StoreTime,
    wake: Wake,
    inbox: Arc<Inbox>,
    /// Whether the connection is set to sync its commits; `None`: not known.
    syncs: Option<bool>,
    claimed_rows: ClaimedRows,
}

impl Writing {
    fn is_broken(&self) -> bool {
        self.inbox.broken.load(Ordering::SeqCst)
    }

    fn run(&mut self) {
        while let Some(batch) = self.inbox.take() {
            if batch.restart_wal && !self.is_broken() {
                self.restart_wal();
            }
            if !batch.works.is_empty() {
                self.flush(batch.works);
            }
        }
        if self.is_broken() {
            leave_log_alone(&self.connection);
        }
    }

    fn flush(&mut self, mut works: Vec<Box<dyn Work>>) {
        assert!(!planted(Bug::WriterPanics) || works.iter().all(|work| work.doing() != "enqueue"), "planted");
        match self.commit(&mut works, Items::Together) {
            Ok(()) => works.into_iter().for_each(|work| work.reply(Ok(()))),
            // None of them is at fault for a lock; each alone would wait for it once more, one after the other.
            Err(error) if self.is_broken() || is_lock(&error) => {
                works.into_iter().for_each(|work| work.reply(Err(error.clone())));
            }
            // Alone, each fails or succeeds for reasons of its own.
            Err(_) => {
                for work in works {
                    let mut alone = [work];
                    let committed = self.commit(&mut alone, Items::Apart);
                    let [work] = alone;
                    work.reply(committed);
                }
            }
        }
    }

    fn commit(&mut self, works: &mut [Box<dyn Work>], items: Items) -> Result<(), StoreError> {
        let doing = works.first().map_or("write", |work| work.doing());
        if self.is_broken() {
            return Err(StoreError::new(StoreErrorKind::Damaged, doing));
        }
        let result = self.try_commit(works, items);
        if let Err(error) = &result {
            if !self.connection.is_autocommit()
                && let Err(error) = self.connection.execute_batch("ROLLBACK")
            {
                tracing::error!(%error, "cannot roll back");
            }
            self.inbox.note_failure(error);
        }
        result.map_err(|error| {
            let error = store_error(doing, error);
            let at_the_disk = matches!(error.kind(), StoreErrorKind::ReadOnly | StoreErrorKind::Unavailable);
            if at_the_disk && !is_lock(&error) {
                self.inbox.write_failed.store(true, Ordering::SeqCst);
            }
            error
        })
    }

    fn try_commit(&mut self, works: &mut [Box<dyn Work>], items: Items) -> rusqlite::Result<()> {
        self.set_sync(works.iter().any(|work| work.needs_sync()))?;
        if self.apply_and_commit(works, items)? {
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
    fn apply_and_commit(&mut self, works: &mut [Box<dyn Work>], items: Items) -> rusqlite::Result<bool> {
        self.connection.execute_batch("BEGIN IMMEDIATE")?;
        // Only now: waiting for the lock may have taken time.
        let step = self.time.step();
        if let Some(step) = step {
            tracing::warn!(from = step.from_micros, to = step.to_micros, "the clock was set; leases move along");
            if !planted(Bug::ClockStepsIgnored) {
                move_along(&self.connection, step)?;
            }
        }
        let now_micros = step.map_or_else(|| self.time.now_micros(), |step| step.to_micros);
        let mut tx = Tx::new(&self.connection, now_micros, items, &mut self.claimed_rows);
        for work in works {
            work.apply(&mut tx)?;
        }
        tx.write_counts()?;
        let made_ready = tx.has_made_ready();
        self.connection.execute_batch("COMMIT")?;
        if let Some(step) = step {
            self.time.take_over(step);
        }
        self.inbox.commits.fetch_add(1, Ordering::Relaxed);
        Ok(made_ready)
    }

    /// Short: the checkpointer has copied nearly everything already. If a reader is in the way, another time.
    fn restart_wal(&self) {
        let restart = || {
            self.connection.busy_timeout(std::time::Duration::from_millis(20))?;
            self.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
        };
        if let Err(error) = restart() {
            self.inbox.note_failure(&error);
            tracing::debug!(%error, "the WAL cannot begin anew yet");
        }
        if let Err(error) = self.connection.busy_timeout(super::open::BUSY_TIMEOUT) {
            tracing::error!(%error, "cannot set the lock timeout");
        }
    }
}
