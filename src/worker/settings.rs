//! How a worker behaves, and how long finished jobs are kept.

use std::time::Duration;

use crate::job::QueueName;
use crate::job::limits::{LEASE_DEFAULT, LEASE_MAX, LEASE_MIN};

/// How a worker behaves. Every field has a default.
#[derive(Debug, Clone)]
#[non_exhaustive]
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
    /// Jobs at the same time.
    pub fn concurrency(mut self, concurrency: usize) -> Self {
        self.concurrency = concurrency;
        self
    }

    /// Only jobs from these queues.
    pub fn queues(mut self, queues: impl Into<Option<Vec<QueueName>>>) -> Self {
        self.queues = queues.into();
        self
    }

    /// How long a job stays with this worker without a heartbeat.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// How often expired leases are looked for.
    pub fn reap_interval(mut self, reap_interval: Duration) -> Self {
        self.reap_interval = reap_interval;
        self
    }

    /// The first wait for work, when no wake comes.
    pub fn poll_min(mut self, poll_min: Duration) -> Self {
        self.poll_min = poll_min;
        self
    }

    /// The longest wait for work, when no wake comes.
    pub fn poll_max(mut self, poll_max: Duration) -> Self {
        self.poll_max = poll_max;
        self
    }

    /// How long running jobs may go on at shutdown.
    pub fn shutdown_grace(mut self, shutdown_grace: Duration) -> Self {
        self.shutdown_grace = shutdown_grace;
        self
    }

    /// How long finished jobs are kept.
    pub fn retention(mut self, retention: Retention) -> Self {
        self.retention = retention;
        self
    }

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
#[non_exhaustive]
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

impl Retention {
    /// How long jobs that succeeded are kept.
    pub fn succeeded(mut self, time: Duration) -> Self {
        self.succeeded = time;
        self
    }

    /// How long cancelled jobs are kept.
    pub fn cancelled(mut self, time: Duration) -> Self {
        self.cancelled = time;
        self
    }

    /// How long jobs that failed for good are kept.
    pub fn failed(mut self, time: Duration) -> Self {
        self.failed = time;
        self
    }
}
