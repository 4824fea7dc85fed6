//! The maximum depth of queues. Counts are read from the store about once a second; jobs admitted since are added, so that
//! a second of full speed cannot overshoot by much.
//!
//! It protects memory and disk and is not exact: no lock is held while the store is asked, one caller asks for all, and
//! a store that does not answer is not asked again for a moment.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::job::{NewJob, QueueName, Status};
use crate::store::{Stats, Store, StoreError};

/// 1 s: how old a count may be.
const FRESH: Duration = Duration::from_secs(1);
/// 200 ms: while the store is down, calls do not each wait for it anew.
const FAILURE_FRESH: Duration = Duration::from_millis(200);

/// A queue has reached its maximum depth. Nothing was stored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("queue {queue} has {waiting} waiting jobs and the limit is {max}; try again later")]
#[non_exhaustive]
pub struct QueueFull {
    queue: QueueName,
    waiting: u64,
    max: u64,
}

#[derive(Debug)]
pub(super) struct DepthLimit {
    max: Option<u64>,
    depths: Mutex<Depths>,
}

#[derive(Debug, Default)]
struct Depths {
    waiting: HashMap<QueueName, u64>,
    counted: Option<Instant>,
    /// A caller is reading the counts from the store.
    asking: bool,
    failed: Option<(Instant, StoreError)>,
    /// Incremented with every read: an admission before it is not released after it.
    count: u64,
}

/// Why jobs are not admitted.
pub(super) enum NotAdmitted {
    Full(QueueFull),
    Store(StoreError),
}

impl DepthLimit {
    pub(super) fn new(max: Option<u64>) -> Self {
        Self { max, depths: Mutex::default() }
    }

    /// Admits all of them, or none.
    pub(super) async fn admit<'j>(
        &self,
        store: &dyn Store,
        jobs: impl Iterator<Item = &'j NewJob>,
    ) -> Result<Admitted, NotAdmitted> {
        let Some(max) = self.max else { return Ok(Admitted::default()) };
        if let Some(asking) = self.ask()? {
            let stats = store.stats().await;
            asking.answered(stats)?;
        }
        let mut wanted: HashMap<QueueName, u64> = HashMap::new();
        for job in jobs {
            *wanted.entry(job.queue().clone()).or_default() += 1;
        }
        let mut depths = self.lock();
        for (queue, more) in &wanted {
            let waiting = depths.waiting.get(queue).copied().unwrap_or(0);
            if waiting + more > max {
                return Err(NotAdmitted::Full(QueueFull { queue: queue.clone(), waiting, max }));
            }
        }
        for (queue, more) in &wanted {
            *depths.waiting.entry(queue.clone()).or_default() += more;
        }
        Ok(Admitted { count: depths.count })
    }

    /// For jobs that were admitted and then not stored.
    pub(super) fn release<'j>(&self, admitted: &Admitted, queues: impl Iterator<Item = &'j QueueName>) {
        if self.max.is_none() {
            return;
        }
        let mut depths = self.lock();
        if depths.count != admitted.count {
            return;
        }
        for queue in queues {
            if let Some(waiting) = depths.waiting.get_mut(queue) {
                *waiting = waiting.saturating_sub(1);
            }
        }
    }

    /// Whether the caller should read the counts: they are old, and no other caller is reading them.
    fn ask(&self) -> Result<Option<Asking<'_>>, NotAdmitted> {
        let mut depths = self.lock();
        let is_known = depths.counted.is_some();
        if depths.counted.is_some_and(|counted| counted.elapsed() < FRESH) || (is_known && depths.asking) {
            return Ok(None);
        }
        match &depths.failed {
            // Old counts are better than none: the enqueue that follows meets the same error and reports it.
            Some((at, _)) if is_known && at.elapsed() < FAILURE_FRESH => return Ok(None),
            Some((at, error)) if at.elapsed() < FAILURE_FRESH => return Err(NotAdmitted::Store(error.clone())),
            _ => {}
        }
        depths.asking = true;
        Ok(Some(Asking(self)))
    }

    fn lock(&self) -> MutexGuard<'_, Depths> {
        self.depths.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Which counts jobs were admitted by.
#[derive(Debug, Default)]
pub(super) struct Admitted {
    count: u64,
}

/// A caller that reads the counts. Once it is dropped, another may.
struct Asking<'d>(&'d DepthLimit);

impl Asking<'_> {
    fn answered(&self, stats: Result<Stats, StoreError>) -> Result<(), NotAdmitted> {
        let mut depths = self.0.lock();
        match stats {
            Ok(stats) => {
                depths.waiting =
                    stats.queues.iter().map(|(name, queue)| (name.clone(), waiting(&queue.counts))).collect();
                (depths.counted, depths.failed) = (Some(Instant::now()), None);
                depths.count += 1;
                Ok(())
            }
            Err(error) => {
                depths.failed = Some((Instant::now(), error.clone()));
                if depths.counted.is_some() { Ok(()) } else { Err(NotAdmitted::Store(error)) }
            }
        }
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.0.lock().asking = false;
    }
}

fn waiting(counts: &crate::store::Counts) -> u64 {
    [Status::Queued, Status::Retrying].iter().filter_map(|status| counts.get(status)).sum()
}
