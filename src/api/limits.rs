//! What one caller may take up, named once, each with its reason. `docs/api.md` tells callers.
//!
//! Limits on a job itself (payload, priority, schedule …) are in [`job::limits`](crate::job::limits).

use std::time::Duration;

/// 10 s for the head of a request, and for an idle connection: a head is a few packets.
pub(super) const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// 30 s for a body: 8 MiB over a slow line.
pub(super) const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// 60 s for the whole request; a handler that needs longer is stuck.
pub(super) const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// 60 s for the client to take one answer: 8 MiB over a slow line.
pub(super) const WRITE_TIMEOUT: Duration = Duration::from_secs(60);
/// 10 s beyond `wait_ms` for a long poll to be answered.
pub(super) const LONG_POLL_SLACK: Duration = Duration::from_secs(10);
/// 30 s: proxies cut connections that are silent for a minute.
pub(super) const WAIT_MAX: Duration = Duration::from_secs(30);
/// 320 KiB: a payload of 256 KiB and what stands around it.
pub(super) const SINGLE_BODY_MAX: usize = 320 * 1024;
/// 8 MiB for batches and settles.
pub(super) const BATCH_BODY_MAX: usize = 8 * 1024 * 1024;
/// 16 MiB beyond a limit are read and thrown away, so that the caller gets to see the refusal.
pub(super) const DISCARD_MAX: usize = 16 * 1024 * 1024;
/// 1 MiB of a refused request's body is read …
pub(super) const REFUSED_BODY_MAX: usize = 1024 * 1024;
/// … for at most 1 s.
pub(super) const REFUSED_BODY_TIMEOUT: Duration = Duration::from_secs(1);
/// 256 MiB of request bodies in memory at one time, over all connections.
pub(super) const BODIES_MAX: usize = 256 * 1024 * 1024;
/// 64 MiB besides for the bodies of workers: a flood of enqueues must not make them lose their leases.
pub(super) const WORKER_BODIES_MAX: usize = 64 * 1024 * 1024;
/// 100 jobs are claimed in one step: 25 MiB if every payload is as large as it may be …
pub(super) const LEASE_STEP: usize = 100;
/// … and none further once an answer has 8 MiB of jobs.
pub(super) const LEASES_MAX_BYTES: usize = 8 * 1024 * 1024;
/// 8 MiB of jobs on a page; a page that would be larger is cut and links to the next.
pub(super) const PAGE_MAX_BYTES: usize = 8 * 1024 * 1024;
/// 100 levels: any JSON reader's own limit is higher, also for what we wrap around it.
pub(super) const JSON_DEPTH_MAX: usize = 100;
/// 10,000: skipping is walking; `cursor` goes on from anywhere at no cost.
pub(super) const OFFSET_MAX: usize = 10_000;
/// 4,096 connections: well below the usual limit of open files times the memory of each.
pub(super) const CONNECTIONS_MAX: usize = 4096;
/// 4,096 enqueues in flight: what a second of a good disk can take.
pub(super) const ENQUEUES_MAX: usize = 4096;
/// 64 KiB for the head of a request; hyper itself allows 100 header lines.
pub(super) const HEAD_MAX_BYTES: usize = 64 * 1024;
/// 512 bytes: our tokens have 81, an operator's own may be longer.
pub(super) const TOKEN_MAX_BYTES: usize = 512;
/// 1,000 queues are shown one by one by `/metrics`; the rest are added up.
pub(super) const QUEUE_LABELS_MAX: usize = 1000;
/// 2 s for the store to answer a health check.
pub(super) const CHECK_TIMEOUT: Duration = Duration::from_secs(2);

/// The limits an operator or a test may change.
#[derive(Debug, Clone)]
pub struct ApiLimits {
    /// Connections at one time; one more is answered 503.
    pub connections: usize,
    /// Enqueues at one time; one more is answered 429.
    pub enqueues_in_flight: usize,
    /// Bytes of request bodies in memory at one time, those of workers aside; one body more is answered 503.
    pub body_bytes: usize,
    /// For the head of a request to arrive, and until an idle connection is closed.
    pub header_timeout: Duration,
    /// For the body of a request to arrive.
    pub body_timeout: Duration,
    /// For a whole request.
    pub request_timeout: Duration,
    /// How long requests in flight may go on after the shutdown began.
    pub shutdown_grace: Duration,
}

impl Default for ApiLimits {
    fn default() -> Self {
        Self {
            connections: CONNECTIONS_MAX,
            enqueues_in_flight: ENQUEUES_MAX,
            body_bytes: BODIES_MAX,
            header_timeout: HEADER_TIMEOUT,
            body_timeout: BODY_TIMEOUT,
            request_timeout: REQUEST_TIMEOUT,
            shutdown_grace: Duration::from_secs(30),
        }
    }
}
