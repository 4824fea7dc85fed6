//! What the loops of one worker share, and the settings they go by.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use super::context::Attempt;
use super::handler::{AnyHandler, Stateless};
use super::held::HeldLeases;
use super::prefetch::Pace;
use super::settler::Outcomes;
use crate::job::limits::{LEASE_DEFAULT, LEASE_MAX, LEASE_MIN};
use crate::job::{Kind, KindDefinition, Lease, QueueName, WorkerId};
use crate::queue::Queue;

/// How a worker behaves. Every field has a default.
#[derive(Debug, Clone)]
pub struct WorkerSettings {
    /// Jobs at the same time; 4 × cores.
    pub concurrency: usize,
    /// Take jobs from these queues only; `None`: from every queue.
    pub queues: Option<Vec<QueueName>>,
    /// 30 s: how long a job of this worker stays unclaimed by others after the worker died. Heartbeats come at a third.
    pub lease: Duration,
    /// 5 s: how often expired leases, anybody's, are looked for.
    pub reap_interval: Duration,
    /// 500 ms: the first wait for work, when no wake comes.
    pub poll_min: Duration,
    /// 2 s: the longest wait for work, when no wake comes.
    pub poll_max: Duration,
    /// 30 s: how long running jobs may go on at shutdown before they are released.
    pub shutdown_grace: Duration,
    /// How long finished jobs are kept.
    pub retention: Retention,
}

impl WorkerSettings {
    /// What makes no sense becomes the nearest that does.
    pub(super) fn within_limits(self) -> Self {
        /// 10 ms: less would be a hot loop.
        const INTERVAL_MIN: Duration = Duration::from_millis(10);
        let poll_min = self.poll_min.max(INTERVAL_MIN);
        Self {
            concurrency: self.concurrency.max(1),
            lease: self.lease.clamp(LEASE_MIN, LEASE_MAX),
            reap_interval: self.reap_interval.max(INTERVAL_MIN),
            poll_max: self.poll_max.max(poll_min),
            poll_min,
            ..self
        }
    }
}

impl Default for WorkerSettings {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
        Self {
            concurrency: 4 * cores,
            queues: None,
            lease: LEASE_DEFAULT,
            reap_interval: Duration::from_secs(5),
            poll_min: Duration::from_millis(500),
            poll_max: Duration::from_secs(2),
            shutdown_grace: Duration::from_secs(30),
            retention: Retention::default(),
        }
    }
}

/// How long finished jobs are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// 7 days.
    pub succeeded: Duration,
    /// 7 days.
    pub cancelled: Duration,
    /// 90 days: time to find out why.
    pub failed: Duration,
}

impl Default for Retention {
    fn default() -> Self {
        const DAY: Duration = Duration::from_secs(24 * 3600);
        Self { succeeded: 7 * DAY, cancelled: 7 * DAY, failed: 90 * DAY }
    }
}

/// A handler and what was said about it.
pub(super) struct Registered<S> {
    pub(super) handler: Arc<dyn AnyHandler<S>>,
    /// What registering it declares; `None` leaves the declaration to others.
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

/// A claimed job on its way to a slot.
pub(super) struct Work {
    pub(super) lease: Lease,
    pub(super) attempt: Arc<Attempt>,
    /// Taken before the claim was sent, so a deadline counted from here is never late.
    pub(super) claimed: Instant,
    pub(super) permit: Option<OwnedSemaphorePermit>,
}

/// Everything the loops share.
pub(super) struct Shared<S> {
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
    /// No more claims.
    pub(super) stop_claiming: CancellationToken,
    /// The grace period is over.
    pub(super) release_now: CancellationToken,
    /// Everything is settled; heartbeats may stop.
    pub(super) stop_guarding: CancellationToken,
}

/// Between the dispatcher and the slots: claimed jobs in their order.
#[derive(Default)]
pub(super) struct Buffer {
    works: Mutex<VecDeque<Work>>,
    /// One permit per job, so that slots wait for jobs in turn. Bounded by what the dispatcher claims.
    ready: Semaphore0,
    idle_slots: AtomicUsize,
    pub(super) room: Notify,
}

/// A semaphore that begins empty.
struct Semaphore0(Semaphore);

impl Default for Semaphore0 {
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

    pub(super) fn put(&self, works: Vec<Work>) {
        let count = works.len();
        self.lock().extend(works);
        self.ready.0.add_permits(count);
    }

    /// The next job; `None` once closed.
    async fn next(&self) -> Option<Work> {
        self.ready.0.acquire().await.ok()?.forget();
        self.lock().pop_front()
    }

    /// The oldest job, if it is one that `unwanted` picks; never one that a slot is about to take.
    pub(super) fn take_oldest_if(&self, unwanted: impl FnOnce(&Work) -> bool) -> Option<Work> {
        self.ready.0.try_acquire().ok()?.forget();
        let mut works = self.lock();
        if works.front().is_some_and(unwanted) {
            return works.pop_front();
        }
        self.ready.0.add_permits(1);
        None
    }

    /// Slots get nothing more; what is left is for the caller.
    pub(super) fn close(&self) -> Vec<Work> {
        self.ready.0.close();
        self.lock().drain(..).collect()
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Work>> {
        self.works.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts one slot as idle; taken back however the wait ends.
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

impl<S> Shared<S> {
    /// The next job for a slot; `None` when the dispatcher has stopped and the buffer is empty.
    pub(super) async fn next_work(&self) -> Option<Work> {
        let _idle = Idle::count(&self.buffer.idle_slots);
        if self.room() > 0 {
            self.buffer.room.notify_one();
        }
        self.buffer.next().await
    }

    /// How many more jobs to claim: the free slots and the prefetch, less what is buffered already. None until enough
    /// are wanted to be worth a round trip, unless a slot stands idle.
    pub(super) fn room(&self) -> usize {
        let (idle, buffered) = (self.buffer.idle_slots(), self.buffer.len());
        let prefetch = self.pace.prefetch(self.settings.concurrency);
        let room = (idle + prefetch).saturating_sub(buffered);
        let starving = idle > buffered;
        if starving || room > prefetch / 4 { room } else { 0 }
    }
}
