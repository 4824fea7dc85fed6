//! Settings of an API server. Limits that cannot be changed are in [`limits`](super::limits).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::health::ReadyCheck;
use super::limits::{
    BODIES_MAX, BODY_TIMEOUT, CONNECTIONS_MAX, ENQUEUES_MAX, HEADER_TIMEOUT, READ_RESPONSES_MAX, REQUEST_TIMEOUT,
    SHUTDOWN_GRACE, WORKER_REPORT_INTERVAL,
};
use super::public_url::PublicUrl;
use crate::job::limits::LEASE_DEFAULT;
use crate::queue::Queue;

/// Settings of an API server.
///
/// ```
/// # use std::time::Duration;
/// # use steadfast::Queue;
/// use steadfast::api::{ApiLimits, ApiSettings};
///
/// # fn settings(queue: Queue, token: String) -> ApiSettings {
/// ApiSettings::new(queue)
///     .admin_token(token)
///     .lease(Duration::from_secs(60))
///     .limits(ApiLimits::default().connections(1000))
/// # }
/// ```
#[derive(Clone)]
#[must_use]
pub struct ApiSettings {
    pub(super) queue: Queue,
    pub(super) admin_token: Option<String>,
    pub(super) hosts: Vec<String>,
    pub(super) public_url: Option<PublicUrl>,
    pub(super) hides_payloads: bool,
    #[cfg(feature = "dashboard")]
    pub(super) dashboard: bool,
    pub(super) lease: Duration,
    pub(super) ready_checks: Vec<Arc<dyn ReadyCheck>>,
    pub(super) limits: ApiLimits,
}

impl ApiSettings {
    /// The defaults, for a server of this queue.
    pub fn new(queue: Queue) -> Self {
        Self {
            queue,
            admin_token: None,
            hosts: Vec::new(),
            public_url: None,
            hides_payloads: false,
            #[cfg(feature = "dashboard")]
            dashboard: true,
            lease: LEASE_DEFAULT,
            ready_checks: Vec::new(),
            limits: ApiLimits::default(),
        }
    }

    /// The first token: it may do everything. Others are made with it. None by default.
    pub fn admin_token(mut self, token: impl Into<Option<String>>) -> Self {
        self.admin_token = token.into();
        self
    }

    /// Names that the `Host` header may give, besides those of the loopback, while there is no token.
    pub fn hosts(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.hosts = names.into_iter().map(Into::into).collect();
        self
    }

    /// Under which URL browsers reach the server; decides what the cookie of a session looks like. None by default: plain
    /// HTTP, and whatever `Host` they give.
    pub fn public_url(mut self, url: impl Into<Option<PublicUrl>>) -> Self {
        self.public_url = url.into();
        self
    }

    /// Shows payloads and results only to tokens with the scope `admin`. All readers see them by default.
    pub fn hide_payloads(mut self, hide: bool) -> Self {
        self.hides_payloads = hide;
        self
    }

    /// Whether the dashboard is served below `/ui/`. It is by default.
    #[cfg(feature = "dashboard")]
    pub fn dashboard(mut self, on: bool) -> Self {
        self.dashboard = on;
        self
    }

    /// How long a lease lasts without a heartbeat, where the worker does not say. 30 s by default.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// What `/readyz` checks, besides the store.
    pub fn ready_checks(mut self, checks: impl IntoIterator<Item = Arc<dyn ReadyCheck>>) -> Self {
        self.ready_checks = checks.into_iter().collect();
        self
    }

    /// What one caller may take up.
    pub fn limits(mut self, limits: ApiLimits) -> Self {
        self.limits = limits;
        self
    }
}

impl fmt::Debug for ApiSettings {
    /// Without the token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiSettings")
            .field("queue", &self.queue)
            .field("hosts", &self.hosts)
            .field("public_url", &self.public_url)
            .field("lease", &self.lease)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

/// What callers may take up, as far as it can be changed. `docs/api.md` has the limits that cannot.
#[derive(Debug, Clone)]
#[must_use]
pub struct ApiLimits {
    pub(super) connections: usize,
    connections_per_address: Option<usize>,
    pub(super) enqueues_in_flight: usize,
    pub(super) body_bytes: usize,
    pub(super) response_bytes: usize,
    pub(super) header_timeout: Duration,
    pub(super) body_timeout: Duration,
    pub(super) request_timeout: Duration,
    pub(super) shutdown_grace: Duration,
    pub(super) worker_report_interval: Duration,
}

impl Default for ApiLimits {
    fn default() -> Self {
        Self {
            connections: CONNECTIONS_MAX,
            connections_per_address: None,
            enqueues_in_flight: ENQUEUES_MAX,
            body_bytes: BODIES_MAX,
            response_bytes: READ_RESPONSES_MAX,
            header_timeout: HEADER_TIMEOUT,
            body_timeout: BODY_TIMEOUT,
            request_timeout: REQUEST_TIMEOUT,
            shutdown_grace: SHUTDOWN_GRACE,
            worker_report_interval: WORKER_REPORT_INTERVAL,
        }
    }
}

impl ApiLimits {
    /// Connections at one time; beyond, only probes and workers are served, the others are answered 503. 4,096 unless
    /// said.
    pub fn connections(mut self, max: usize) -> Self {
        self.connections = max;
        self
    }

    /// Connections from one address (IPv6: from one /64). `None`, the default, is three quarters of all.
    pub fn connections_per_address(mut self, max: impl Into<Option<usize>>) -> Self {
        self.connections_per_address = max.into();
        self
    }

    /// Enqueues at one time; one more is answered 429. 4,096 by default.
    pub fn enqueues_in_flight(mut self, max: usize) -> Self {
        self.enqueues_in_flight = max;
        self
    }

    /// Bytes of request bodies in memory at one time, those of workers aside; one body more is answered 503. 256 MiB
    /// by default.
    pub fn body_bytes(mut self, max: usize) -> Self {
        self.body_bytes = max;
        self
    }

    /// Bytes of responses to readers in memory at one time; one more large response is 503. 32 MiB by default.
    pub fn response_bytes(mut self, max: usize) -> Self {
        self.response_bytes = max;
        self
    }

    /// For the head of a request to arrive, and until an idle connection is closed. 10 s by default.
    pub fn header_timeout(mut self, timeout: Duration) -> Self {
        self.header_timeout = timeout;
        self
    }

    /// For the body of a request to arrive. 30 s by default.
    pub fn body_timeout(mut self, timeout: Duration) -> Self {
        self.body_timeout = timeout;
        self
    }

    /// For a whole request. 60 s by default.
    pub fn request_timeout(mut self, timeout: Duration) -> Self {
        self.request_timeout = timeout;
        self
    }

    /// How long requests in flight may go on after the shutdown began. 30 s by default.
    pub fn shutdown_grace(mut self, grace: Duration) -> Self {
        self.shutdown_grace = grace;
        self
    }

    /// How often is recorded which workers were heard of. 10 s by default, and at most.
    pub fn worker_report_interval(mut self, interval: Duration) -> Self {
        self.worker_report_interval = interval.min(WORKER_REPORT_INTERVAL);
        self
    }

    pub(super) fn per_address(&self) -> usize {
        self.connections_per_address.unwrap_or(self.connections.saturating_mul(3) / 4).max(1)
    }
}
