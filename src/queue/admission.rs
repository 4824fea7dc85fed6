//! Limits on what a store holds: queues, and waiting jobs in one queue and in all. What there is is read from the store about
//! once a second while it matters (less often where that takes long); what was admitted since is added, so that a second of full speed cannot overshoot by much.
//!
//! It protects memory and disk and is not exact: processes do not see what others admitted since their last read. No lock is
//! held while the store is asked, one caller asks for all, and a store that does not answer is not asked again for a moment.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::job::{NewJob, QueueName, Status};
use crate::planted::{Bug, planted};
use crate::store::{Counts, Stats, StatsRequest, Store, StoreError};

/// 1 s: how old a count of jobs may be, and the list of queues when one that is not in it comes up.
const FRESH: Duration = Duration::from_secs(1);
/// 1/20 of the time at most goes into reading, however many queues there are.
const READ_SHARE: u32 = 20;
/// 1 min: how old the list of queues may be as long as all that come up are in it. One that is gone since, and is made anew,
/// is not counted meanwhile.
const NAMES_FRESH: Duration = Duration::from_secs(60);
/// 200 ms: while the store is down, calls do not each wait for it anew.
const FAILURE_FRESH: Duration = Duration::from_millis(200);

/// A limit on the whole store has been reached. Nothing was stored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LimitReached {
    /// The queue has as many waiting jobs as it may have.
    #[error("queue {queue} has {waiting} waiting jobs and the limit (max_queue_depth) is {max}; try again later")]
    #[non_exhaustive]
    QueueDepth {
        /// The queue.
        queue: QueueName,
        /// How many jobs wait in it.
        waiting: u64,
        /// The limit.
        max: u64,
    },
    /// All queues together have as many waiting jobs as they may have.
    #[error("{waiting} jobs wait in all queues together and the limit (max_depth) is {max}; try again later")]
    #[non_exhaustive]
    Depth {
        /// How many jobs wait.
        waiting: u64,
        /// The limit.
        max: u64,
    },
    /// There are as many queues as there may be, and this one would be new.
    #[error(
        "queue {queue} would be new, there are {queues} queues and the limit (max_queues) is {max}; use a queue that \
         exists, delete the finished jobs of one that is no longer needed, or raise the limit"
    )]
    #[non_exhaustive]
    Queues {
        /// The queue that would be new.
        queue: QueueName,
        /// How many there are.
        queues: u64,
        /// The limit.
        max: u64,
    },
}

/// The limits in force; `None` is no limit.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct AdmissionLimits {
    /// Queues that have jobs or are paused.
    pub(super) max_queues: Option<u64>,
    /// Waiting jobs in all queues together.
    pub(super) max_depth: Option<u64>,
    /// Waiting jobs in one queue.
    pub(super) max_queue_depth: Option<u64>,
}

#[derive(Debug)]
pub(super) struct Admission {
    limits: AdmissionLimits,
    seen: Mutex<KnownDepths>,
}

/// What the store holds, as last read, and what was admitted since.
#[derive(Debug, Default)]
struct KnownDepths {
    /// Waiting jobs of every queue that there is.
    waiting: HashMap<QueueName, u64>,
    /// Waiting jobs of all of them.
    total: u64,
    read: Option<Instant>,
    /// How long that took.
    took: Duration,
    /// A caller is reading from the store.
    asking: bool,
    failed: Option<(Instant, StoreError)>,
    /// Incremented with every read: an admission before it is not released after it.
    reads: u64,
}

/// Why jobs are not admitted.
pub(super) enum NotAdmitted {
    Limit(LimitReached),
    Store(StoreError),
}

/// How many jobs a call would add to each queue.
type NewJobsPerQueue<'j> = HashMap<&'j QueueName, u64>;

impl Admission {
    pub(super) fn new(limits: AdmissionLimits) -> Self {
        Self { limits, seen: Mutex::default() }
    }

    /// Admits all of them, or none.
    pub(super) async fn admit<'j>(
        &self,
        store: &dyn Store,
        jobs: impl Iterator<Item = &'j NewJob>,
    ) -> Result<Admitted, NotAdmitted> {
        if self.limits.are_none() {
            return Ok(Admitted::default());
        }
        let mut wanted = NewJobsPerQueue::new();
        for job in jobs {
            *wanted.entry(job.queue()).or_default() += 1;
        }
        self.admit_all(store, wanted).await
    }

    /// Admits a queue without jobs, which is about to be paused. One that exists is admitted in any case.
    pub(super) async fn admit_queue(&self, store: &dyn Store, queue: &QueueName) -> Result<Admitted, NotAdmitted> {
        if self.limits.max_queues.is_none() {
            return Ok(Admitted::default());
        }
        match self.admit_all(store, NewJobsPerQueue::from([(queue, 0)])).await {
            Err(NotAdmitted::Limit(limit)) => {
                // Perhaps another process has made it since. An operator who stops a queue is not told to come back later.
                let request = StatsRequest::of([queue.clone()]).without_ages();
                let stats = store.stats(request).await.map_err(NotAdmitted::Store)?;
                if !stats.queues.is_empty() { Ok(Admitted::default()) } else { Err(NotAdmitted::Limit(limit)) }
            }
            other => other,
        }
    }

    async fn admit_all(&self, store: &dyn Store, wanted: NewJobsPerQueue<'_>) -> Result<Admitted, NotAdmitted> {
        if let Some(asking) = self.ask(&wanted)? {
            let (everything, began) = (StatsRequest::new().limit(usize::MAX).without_ages(), Instant::now());
            let stats = store.stats(everything).await;
            asking.answered(stats, began.elapsed())?;
        }
        let mut seen = self.lock();
        let new: Vec<QueueName> =
            wanted.keys().filter(|queue| !seen.waiting.contains_key(**queue)).map(|queue| (*queue).clone()).collect();
        self.limits.check(&seen, &wanted, &new).map_err(NotAdmitted::Limit)?;
        for (queue, more) in wanted {
            seen.total += more;
            *seen.waiting.entry(queue.clone()).or_default() += more;
        }
        Ok(Admitted { reads: seen.reads, new })
    }

    /// For jobs that were admitted and then not stored: the queue of each, or the one queue that was admitted by itself.
    pub(super) fn release<'j>(&self, admitted: &Admitted, queues: impl Iterator<Item = &'j QueueName>) {
        if self.limits.are_none() {
            return;
        }
        let mut seen = self.lock();
        if seen.reads != admitted.reads {
            return;
        }
        for queue in queues {
            seen.total = seen.total.saturating_sub(1);
            let Some(waiting) = seen.waiting.get_mut(queue) else { continue };
            *waiting = waiting.saturating_sub(1);
            if *waiting == 0 && admitted.new.contains(queue) {
                seen.waiting.remove(queue);
            }
        }
    }

    /// Whether the caller should read from the store: what was read is old, and no other caller is reading.
    fn ask(&self, wanted: &NewJobsPerQueue<'_>) -> Result<Option<Asking<'_>>, NotAdmitted> {
        let mut seen = self.lock();
        let counts_jobs = self.limits.max_depth.is_some() || self.limits.max_queue_depth.is_some();
        let has_new = || wanted.keys().any(|queue| !seen.waiting.contains_key(*queue));
        let fresh = if counts_jobs || has_new() { FRESH.max(seen.took * READ_SHARE) } else { NAMES_FRESH };
        let is_known = seen.read.is_some();
        if seen.read.is_some_and(|read| read.elapsed() < fresh) || (is_known && seen.asking) {
            return Ok(None);
        }
        match &seen.failed {
            // Old counts are better than none: the enqueue that follows meets the same error and reports it.
            Some((at, _)) if is_known && at.elapsed() < FAILURE_FRESH => return Ok(None),
            Some((at, error)) if at.elapsed() < FAILURE_FRESH => return Err(NotAdmitted::Store(error.clone())),
            _ => {}
        }
        seen.asking = true;
        Ok(Some(Asking(self)))
    }

    fn lock(&self) -> MutexGuard<'_, KnownDepths> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AdmissionLimits {
    fn are_none(&self) -> bool {
        self.max_queues.is_none() && self.max_depth.is_none() && self.max_queue_depth.is_none()
    }

    fn check(&self, seen: &KnownDepths, wanted: &NewJobsPerQueue<'_>, new: &[QueueName]) -> Result<(), LimitReached> {
        let queues = seen.waiting.len() as u64;
        if let (Some(max), Some(queue)) = (self.max_queues, new.first())
            && queues + new.len() as u64 > max
            && !planted(Bug::QueuesUncapped)
        {
            return Err(LimitReached::Queues { queue: queue.clone(), queues, max });
        }
        let more: u64 = wanted.values().sum();
        if let Some(max) = self.max_depth
            && more > 0
            && seen.total + more > max
        {
            return Err(LimitReached::Depth { waiting: seen.total, max });
        }
        let Some(max) = self.max_queue_depth else { return Ok(()) };
        for (queue, more) in wanted.iter().filter(|(_, more)| **more > 0) {
            let waiting = seen.waiting.get(*queue).copied().unwrap_or(0);
            if waiting + more > max {
                return Err(LimitReached::QueueDepth { queue: (*queue).clone(), waiting, max });
            }
        }
        Ok(())
    }
}

/// What a call was admitted by.
#[derive(Debug, Default)]
pub(super) struct Admitted {
    reads: u64,
    /// Queues that there were not before.
    new: Vec<QueueName>,
}

/// A caller that reads from the store. Once it is dropped, another may.
struct Asking<'d>(&'d Admission);

impl Asking<'_> {
    fn answered(&self, stats: Result<Stats, StoreError>, took: Duration) -> Result<(), NotAdmitted> {
        let mut seen = self.0.lock();
        match stats {
            Ok(stats) => {
                seen.waiting =
                    stats.queues.iter().map(|(name, queue)| (name.clone(), waiting(&queue.counts))).collect();
                seen.total = waiting(&stats.totals);
                (seen.read, seen.took, seen.failed) = (Some(Instant::now()), took, None);
                seen.reads += 1;
                Ok(())
            }
            Err(error) => {
                seen.failed = Some((Instant::now(), error.clone()));
                if seen.read.is_some() { Ok(()) } else { Err(NotAdmitted::Store(error)) }
            }
        }
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.0.lock().asking = false;
    }
}

fn waiting(counts: &Counts) -> u64 {
    [Status::Queued, Status::Retrying].iter().filter_map(|status| counts.get(status)).sum()
}
