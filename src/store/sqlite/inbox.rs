//! What is handed to the writer, and where it waits: a verb with whoever waits for its answer, the inbox, and how much of
//! it one batch takes.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::transaction::Tx;
use crate::store::{StoreError, StoreErrorKind};

/// 512 requests, or 1,000 items (one request may bring as many): a commit of that takes some milliseconds; more would
/// only make heartbeats wait.
const BATCH_REQUESTS_MAX: usize = 512;
const BATCH_ITEMS_MAX: usize = 1000;
/// Of these, what new jobs are left at least, however busy the workers are.
const BATCH_MIN_FOR_BULK: usize = 128;

/// Something to be written. `apply` may be called twice (the second time with nothing of the first left).
pub(super) trait Verb: Send + 'static {
    type Answer: Send + 'static;
    /// For error messages.
    const NAME: &'static str;
    const URGENCY: Urgency;

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

/// Workers' reports never queue behind new jobs, else a flood of those would expire live leases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Urgency {
    Urgent,
    Bulk,
}

/// One call that waits for its commit.
pub(super) struct Request<V: Verb> {
    verb: V,
    /// Of the last time it was applied; not told before the commit.
    answer: Option<V::Answer>,
    reply: oneshot::Sender<Result<V::Answer, StoreError>>,
    _permit: OwnedSemaphorePermit,
}

impl<V: Verb> Request<V> {
    /// The permit is given back with the answer: it limits how many may wait.
    pub(super) fn new(
        verb: V,
        reply: oneshot::Sender<Result<V::Answer, StoreError>>,
        permit: OwnedSemaphorePermit,
    ) -> Self {
        Self { verb, answer: None, reply, _permit: permit }
    }
}

/// A [`Request`] whose verb the writer need not know.
pub(super) trait AnyRequest: Send {
    fn apply(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<()>;
    fn needs_sync(&self) -> bool;
    fn weight(&self) -> usize;
    /// The verb's name.
    fn name(&self) -> &'static str;
    /// Answers the caller, once it is known whether the commit succeeded.
    fn reply(self: Box<Self>, committed: Result<(), StoreError>);
}

impl<V: Verb> AnyRequest for Request<V> {
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

    fn name(&self) -> &'static str {
        V::NAME
    }

    fn reply(self: Box<Self>, committed: Result<(), StoreError>) {
        let unanswered = || StoreError::new(StoreErrorKind::Internal, V::NAME);
        let Self { answer, reply, .. } = *self;
        // The caller may have gone; what was written is written all the same.
        let _ = reply.send(committed.and_then(|()| answer.ok_or_else(unanswered)));
    }
}

/// Requests that wait for the writer's next batch.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    pending: Mutex<Pending>,
    arrived: Condvar,
}

#[derive(Default)]
struct Pending {
    urgent: VecDeque<Box<dyn AnyRequest>>,
    bulk: VecDeque<Box<dyn AnyRequest>>,
    restart_wal: bool,
    closed: bool,
}

impl std::fmt::Debug for Pending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} urgent, {} bulk", self.urgent.len(), self.bulk.len())
    }
}

/// Nothing is taken in any more.
#[derive(Debug, Clone, Copy)]
pub(super) struct Closed;

/// What the writer does next.
pub(super) struct Batch {
    pub(super) requests: Vec<Box<dyn AnyRequest>>,
    pub(super) restart_wal: bool,
}

impl Batch {
    /// Takes requests until the batch has so many of them or of items, whichever comes first.
    fn fill(&mut self, from: &mut VecDeque<Box<dyn AnyRequest>>, requests_max: usize, items_max: usize) {
        let mut items: usize = self.requests.iter().map(|request| request.weight()).sum();
        while self.requests.len() < requests_max && items < items_max {
            let Some(request) = from.pop_front() else { return };
            items += request.weight();
            self.requests.push(request);
        }
    }
}

impl Inbox {
    pub(super) fn put(&self, urgency: Urgency, request: Box<dyn AnyRequest>) -> Result<(), Closed> {
        let mut pending = self.lock();
        if pending.closed {
            return Err(Closed);
        }
        match urgency {
            Urgency::Urgent => pending.urgent.push_back(request),
            Urgency::Bulk => pending.bulk.push_back(request),
        }
        self.arrived.notify_one();
        Ok(())
    }

    /// Asks the writer to begin the WAL anew between two batches.
    pub(super) fn restart_wal(&self) {
        self.lock().restart_wal = true;
        self.arrived.notify_one();
    }

    /// Waits for something to do; `None` when closed and empty.
    pub(super) fn take(&self) -> Option<Batch> {
        let mut pending = self.lock();
        while pending.urgent.is_empty() && pending.bulk.is_empty() && !pending.restart_wal {
            if pending.closed {
                return None;
            }
            pending = self.arrived.wait(pending).unwrap_or_else(PoisonError::into_inner);
        }
        let reserved = pending.bulk.len().min(BATCH_MIN_FOR_BULK);
        let mut batch = Batch { requests: Vec::new(), restart_wal: std::mem::take(&mut pending.restart_wal) };
        batch.fill(&mut pending.urgent, BATCH_REQUESTS_MAX - reserved, BATCH_ITEMS_MAX);
        // However heavy the urgent ones are, one of the others goes along.
        batch.fill(&mut pending.bulk, BATCH_REQUESTS_MAX, 2 * BATCH_ITEMS_MAX);
        Some(batch)
    }

    /// What waits is still taken.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.arrived.notify_all();
    }

    /// Closes it and hands back what nobody will take.
    pub(super) fn close_and_drain(&self) -> Vec<Box<dyn AnyRequest>> {
        let mut pending = self.lock();
        pending.closed = true;
        let urgent = std::mem::take(&mut pending.urgent);
        urgent.into_iter().chain(std::mem::take(&mut pending.bulk)).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
