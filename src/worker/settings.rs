//! Settings of a worker, and retention.

use std::time::Duration;

use crate::job::QueueName;
use crate::job::limits::{LEASE_DEFAULT, LEASE_MAX, LEASE_MIN};

/// Settings of a worker, each with a default.
///
/// ```
/// use std::time::Duration;
/// use steadfast::worker::{Retention, WorkerSettings};
///
/// let settings = WorkerSettings::default()
///     .lease(Duration::from_secs(60))
///     .shutdown_grace(Duration::from_secs(10))
///     .retention(Retention::default().succeeded(Duration::from_secs(24 * 3600)));
/// # let _ = settings;
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct WorkerSettings {
    /// How many jobs run at the same time; 4 × cores.
    pub concurrency: usize,
    /// Claim only jobs of these queues; `None`: of every queue.
    pub queues: Option<Vec<QueueName>>,
    /// 30 s: how long a job waits after its worker died. Heartbeats are sent at a third of it.
    pub lease: Duration,
    /// 5 s: how often expired leases, of any worker, are reaped.
    pub reap_interval: Duration,
    /// 500 ms: the shortest poll interval, without notifications.
    pub poll_min: Duration,
    /// 2 s: the longest poll interval, without notifications.
    pub poll_max: Duration,
    /// 30 s: how long running jobs may go on at shutdown before they are released.
    pub shutdown_grace: Duration,
    /// How long finished jobs are kept.
    pub retention: Retention,
    /// 10 s: how often the worker tells the store that it is there, and learns whether to drain.
    pub report_interval: Duration,
}

impl WorkerSettings {
    /// Sets how many jobs run at the same time.
    pub fn concurrency(mut self, concurrency: usize) -> Self {
        self.concurrency = concurrency;
        self
    }

    /// Claims only jobs of these queues.
    pub fn queues(mut self, queues: impl Into<Option<Vec<QueueName>>>) -> Self {
        self.queues = queues.into();
        self
    }

    /// Sets how long leases last without a heartbeat.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// Sets how often expired leases are reaped.
    pub fn reap_interval(mut self, reap_interval: Duration) -> Self {
        self.reap_interval = reap_interval;
        self
    }

    /// Sets the shortest poll interval.
    pub fn poll_min(mut self, poll_min: Duration) -> Self {
        self.poll_min = poll_min;
        self
    }

    /// Sets the longest poll interval.
    pub fn poll_max(mut self, poll_max: Duration) -> Self {
        self.poll_max = poll_max;
        self
    }

    /// Sets how long running jobs may go on at shutdown.
    pub fn shutdown_grace(mut self, shutdown_grace: Duration) -> Self {
        self.shutdown_grace = shutdown_grace;
        self
    }

    /// Sets how long finished jobs are kept.
    pub fn retention(mut self, retention: Retention) -> Self {
        self.retention = retention;
        self
    }

    /// Sets how often the worker tells the store that it is there.
    pub fn report_interval(mut self, report_interval: Duration) -> Self {
        self.report_interval = report_interval;
        self
    }

    /// Values out of range become the nearest in range.
    pub(super) fn within_limits(self) -> Self {
        /// 10 ms: less would be a hot loop.
        const INTERVAL_MIN: Duration = Duration::from_millis(10);
        /// 10 s: who says nothing for 30 s is taken for gone.
        const REPORT_INTERVAL_MAX: Duration = Duration::from_secs(10);
        let poll_min = self.poll_min.max(INTERVAL_MIN);
        Self {
            concurrency: self.concurrency.max(1),
            lease: self.lease.clamp(LEASE_MIN, LEASE_MAX),
            reap_interval: self.reap_interval.max(INTERVAL_MIN),
            poll_max: self.poll_max.max(poll_min),
            report_interval: self.report_interval.clamp(INTERVAL_MIN, REPORT_INTERVAL_MAX),
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
            report_interval: Duration::from_secs(10),
        }
    }
}

/// How long finished jobs are kept, per status, and the audit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Retention {
    /// Succeeded jobs: 7 days.
    pub succeeded: Duration,
    /// Cancelled jobs: 7 days.
    pub cancelled: Duration,
    /// Permanently failed jobs: 90 days, time to find out why.
    pub failed: Duration,
    /// What operators did: 400 days, a year and the time to look back at it.
    pub audit: Duration,
}

impl Default for Retention {
    fn default() -> Self {
        const DAY: Duration = Duration::from_secs(24 * 3600);
        Self { succeeded: 7 * DAY, cancelled: 7 * DAY, failed: 90 * DAY, audit: 400 * DAY }
    }
}

impl Retention {
    /// Sets how long succeeded jobs are kept.
    pub fn succeeded(mut self, time: Duration) -> Self {
        self.succeeded = time;
        self
    }

    /// Sets how long cancelled jobs are kept.
    pub fn cancelled(mut self, time: Duration) -> Self {
        self.cancelled = time;
        self
    }

    /// Sets how long permanently failed jobs are kept.
    pub fn failed(mut self, time: Duration) -> Self {
        self.failed = time;
        self
    }

    /// Sets how long the audit is kept.
    pub fn audit(mut self, time: Duration) -> Self {
        self.audit = time;
        self
    }
}
