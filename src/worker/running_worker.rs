//! What the loops of one worker share: settings, handlers, held leases, and the buffer of claimed jobs.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use super::WorkerSettings;
use super::context::Attempt;
use super::handler::{AnyHandler, Stateless};
use super::held::HeldLeases;
use super::prefetch::Pace;
use super::settler::Outcomes;
use crate::job::{Kind, KindDefinition, Lease, WorkerId};
use crate::queue::Queue;

/// A handler and its options.
pub(super) struct Registered<S> {
    pub(super) handler: Arc<dyn AnyHandler<S>>,
    /// Declared when the worker starts; `None` for raw handlers.
    pub(super) definition: Option<KindDefinition>,
    pub(super) timeout: Option<Duration>,
    /// Jobs of this kind at the same time; `None`: as many as there are slots.
    pub(super) limit: Option<Arc<Semaphore>>,
}

impl Registered<()> {
    /// The same handler in a worker that has state.
    pub(super) fn with_any_state<S: Send + Sync + 'static>(self) -> Registered<S> {
        let Self { handler, definition, timeout, limit } = self;
        Registered { handler: Arc::new(Stateless(handler)), definition, timeout, limit }
    }
}

/// A claimed job, waiting for a slot.
pub(super) struct ClaimedJob {
    pub(super) lease: Lease,
    pub(super) attempt: Arc<Attempt>,
    /// Taken before the claim was sent, so a deadline counted from here is never late.
    pub(super) claimed: Instant,
    pub(super) permit: Option<OwnedSemaphorePermit>,
}

/// The state that the loops share.
pub(super) struct RunningWorker<S> {
    pub(super) queue: Queue,
    pub(super) worker: WorkerId,
    pub(super) settings: WorkerSettings,
    pub(super) handlers: HashMap<Kind, Registered<S>>,
    pub(super) state: Arc<S>,
    pub(super) held: HeldLeases,
    pub(super) pace: Pace,
    pub(super) outcomes: Outcomes,
    pub(super) buffer: Buffer,
    pub(super) progress_reported: Arc<Notify>,
    /// Cancelled when no more jobs are to be claimed.
    pub(super) stop_claiming: CancellationToken,
    /// Cancelled when the grace period is over.
    pub(super) release_now: CancellationToken,
    /// Cancelled when everything is settled.
    pub(super) stop_heartbeats: CancellationToken,
}

/// Claimed jobs, in order, between the dispatcher and the slots.
#[derive(Default)]
pub(super) struct Buffer {
    jobs: Mutex<VecDeque<ClaimedJob>>,
    /// One permit per job, so that slots wait for jobs in turn. Bounded by what the dispatcher claims.
    ready: EmptySemaphore,
    idle_slots: AtomicUsize,
    pub(super) room: Notify,
}

/// A semaphore that starts without permits.
struct EmptySemaphore(Semaphore);

impl Default for EmptySemaphore {
    fn default() -> Self {
        Self(Semaphore::new(0))
    }
}

impl Buffer {
    pub(super) fn idle_slots(&self) -> usize {
        self.idle_slots.load(Ordering::Relaxed)
    }

    pub(super) fn len(&self) -> usize {
        self.lock().len()
    }

    pub(super) fn put(&self, jobs: Vec<ClaimedJob>) {
        let count = jobs.len();
        self.lock().extend(jobs);
        self.ready.0.add_permits(count);
    }

    /// The next job; `None` once closed.
    async fn next(&self) -> Option<ClaimedJob> {
        self.ready.0.acquire().await.ok()?.forget();
        self.lock().pop_front()
    }

    /// The oldest job, if `unwanted` selects it; never one that a slot is about to take.
    pub(super) fn take_oldest_if(&self, unwanted: impl FnOnce(&ClaimedJob) -> bool) -> Option<ClaimedJob> {
        self.ready.0.try_acquire().ok()?.forget();
        let mut jobs = self.lock();
        if jobs.front().is_some_and(unwanted) {
            return jobs.pop_front();
        }
        self.ready.0.add_permits(1);
        None
    }

    /// Closes the buffer to the slots; the remaining jobs are the caller's.
    pub(super) fn close(&self) -> Vec<ClaimedJob> {
        self.ready.0.close();
        self.lock().drain(..).collect()
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<ClaimedJob>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts a slot as idle until dropped.
struct Idle<'a>(&'a AtomicUsize);

impl<'a> Idle<'a> {
    fn count(slots: &'a AtomicUsize) -> Self {
        slots.fetch_add(1, Ordering::Relaxed);
        Self(slots)
    }
}

impl Drop for Idle<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<S> RunningWorker<S> {
    /// The next job for a slot; `None` when the dispatcher has stopped and the buffer is empty.
    pub(super) async fn next_job(&self) -> Option<ClaimedJob> {
        let _idle = Idle::count(&self.buffer.idle_slots);
        if self.room() > 0 {
            self.buffer.room.notify_one();
        }
        self.buffer.next().await
    }

    /// How many more jobs to claim: the idle slots and the prefetch, less what is buffered. 0 until it is worth a round
    /// trip, unless a slot is starving.
    pub(super) fn room(&self) -> usize {
        let (idle, buffered) = (self.buffer.idle_slots(), self.buffer.len());
        let prefetch = self.pace.prefetch(self.settings.concurrency);
        let room = (idle + prefetch).saturating_sub(buffered);
        let starving = idle > buffered;
        if starving || room > prefetch / 4 { room } else { 0 }
    }
}
