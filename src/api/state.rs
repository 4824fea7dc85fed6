//! What an API server is made of: its settings, and what its requests share.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, watch};
use tracing::Instrument;

use super::answers::Answers;
use super::auth::Keys;
use super::auth_throttle::AuthThrottle;
use super::budget::Budget;
use super::health::{Pulse, ReadyCheck};
use super::limits::{ApiLimits, WORKER_BODIES_MAX};
use super::problem::{Code, Problem};
use super::rates::Rates;
use super::turns::Turns;
use crate::job::limits::LEASE_DEFAULT;
use crate::queue::Queue;

/// More pieces of work than a process can have at one time.
pub(super) const AT_WORK_MAX: u32 = 1 << 30;

/// How an API server is to behave.
#[derive(Clone)]
pub struct ApiSettings {
    /// The queue it serves.
    pub queue: Queue,
    /// The first token: it may do everything. Others are made with it.
    pub admin_token: Option<String>,
    /// Names that the `Host` header may give, besides those of the loopback, while there is no token.
    pub hosts: Vec<String>,
    /// How long a lease lasts without a heartbeat, where the worker does not say.
    pub lease: Duration,
    /// What `/readyz` looks at, besides the store.
    pub checks: Vec<Arc<dyn ReadyCheck>>,
    /// What one caller may take up.
    pub limits: ApiLimits,
}

impl ApiSettings {
    /// The usual settings.
    pub fn new(queue: Queue) -> Self {
        Self {
            queue,
            admin_token: None,
            hosts: Vec::new(),
            lease: LEASE_DEFAULT,
            checks: Vec::new(),
            limits: ApiLimits::default(),
        }
    }
}

impl fmt::Debug for ApiSettings {
    /// Without the token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiSettings")
            .field("queue", &self.queue)
            .field("hosts", &self.hosts)
            .field("lease", &self.lease)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

/// Who can reach the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Exposure {
    /// Only programs on this machine: without tokens, it is open to them.
    Loopback,
    /// Others too: without tokens, nobody gets in.
    Network,
}

/// Shared by all requests.
pub(super) struct Shared {
    pub(super) queue: Queue,
    pub(super) keys: Arc<Keys>,
    pub(super) hosts: Vec<String>,
    pub(super) throttle: AuthThrottle,
    pub(super) rates: Rates,
    pub(super) checks: Vec<Arc<dyn ReadyCheck>>,
    pub(super) limits: ApiLimits,
    /// Places for enqueues.
    pub(super) enqueues: Arc<Semaphore>,
    /// Memory for bodies.
    pub(super) bodies: Budget,
    /// The same for the bodies of workers.
    pub(super) worker_bodies: Budget,
    /// Memory for answers.
    pub(super) answers: Answers,
    /// Where the worker does not say.
    pub(super) lease: Duration,
    /// One taken by every piece of work that goes on without its caller. All are free: all of it is done.
    pub(super) at_work: Arc<Semaphore>,
    pub(super) pulse: Pulse,
    pub(super) turns: Turns,
    /// Turns true when the server is shutting down.
    pub(super) closing: watch::Sender<bool>,
}

/// How handlers see it.
pub(super) type Api = Arc<Shared>;

impl Shared {
    pub(super) fn new(settings: ApiSettings, exposure: Exposure) -> Api {
        let hosts = settings.hosts.iter().map(|host| host.to_ascii_lowercase()).collect();
        Arc::new(Self {
            keys: Arc::new(Keys::new(settings.queue.clone(), settings.admin_token.as_deref(), exposure)),
            hosts,
            throttle: AuthThrottle::default(),
            rates: Rates::default(),
            checks: settings.checks,
            enqueues: Arc::new(Semaphore::new(settings.limits.enqueues_in_flight)),
            bodies: Budget::of_bytes(settings.limits.body_bytes),
            worker_bodies: Budget::of_bytes(WORKER_BODIES_MAX),
            answers: Answers::new(settings.limits.answer_bytes),
            lease: settings.lease,
            at_work: Arc::new(Semaphore::new(AT_WORK_MAX as usize)),
            pulse: Pulse::default(),
            turns: Turns::default(),
            closing: watch::Sender::new(false),
            limits: settings.limits,
            queue: settings.queue,
        })
    }

    pub(super) fn is_closing(&self) -> bool {
        *self.closing.borrow()
    }
}

/// Does it to the end, even if the caller hangs up halfway: a write is not left half done, a read does not cost the
/// store the connection it was using. The shutdown waits for it.
pub(super) async fn to_the_end<T, W>(api: &Api, work: impl FnOnce(Api) -> W) -> Result<T, Problem>
where
    T: Send + 'static,
    W: Future<Output = T> + Send + 'static,
{
    let place = api.at_work.clone().try_acquire_owned();
    let work = work(api.clone());
    let working = async move {
        let _place = place;
        work.await
    };
    tokio::spawn(working.in_current_span()).await.map_err(|error| {
        tracing::error!(%error, "a request failed");
        Problem::new(Code::Internal, "the server's log says more under this request_id")
    })
}
