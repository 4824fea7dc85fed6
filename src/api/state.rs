//! What all requests to an API server share.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, watch};
use tracing::Instrument;

use super::auth::Authenticator;
use super::auth_throttle::AuthThrottle;
use super::health::{ReadyCheck, StoreCheck};
use super::limits::WORKER_BODIES_MAX;
use super::long_poll_turns::LongPollTurns;
use super::memory_budget::MemoryBudget;
use super::problem::{Code, Problem};
use super::public_url::PublicUrl;
use super::pulse::PulseHub;
use super::response_memory::ResponseMemory;
use super::session_cookie::SessionCookie;
use super::settings::{ApiLimits, ApiSettings};
use super::stats::Rates;
use super::worker_registry::WorkerRegistry;
use crate::queue::Queue;

/// More tasks than a process can have at one time.
pub(super) const DETACHED_TASKS_MAX: u32 = 1 << 30;

/// Who can reach the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Exposure {
    /// Only programs on this machine: without tokens, it is open to them.
    Loopback,
    /// Others too: without tokens, nobody gets in.
    Network,
}

/// Shared by all requests.
pub(super) struct ApiState {
    pub(super) queue: Queue,
    pub(super) authenticator: Arc<Authenticator>,
    pub(super) hosts: Vec<String>,
    pub(super) public_url: Option<PublicUrl>,
    /// The pages below `/ui/` are served.
    #[cfg(feature = "dashboard")]
    pub(super) has_dashboard: bool,
    /// Payloads and results are for `admin` only.
    pub(super) hides_payloads: bool,
    pub(super) throttle: AuthThrottle,
    pub(super) rates: Rates,
    pub(super) ready_checks: Vec<Arc<dyn ReadyCheck>>,
    pub(super) limits: ApiLimits,
    /// Permits for enqueues.
    pub(super) enqueues: Arc<Semaphore>,
    /// Memory for bodies.
    pub(super) bodies: MemoryBudget,
    /// The same for the bodies of workers.
    pub(super) worker_bodies: MemoryBudget,
    /// Memory for responses.
    pub(super) response_memory: ResponseMemory,
    /// Where the worker does not say.
    pub(super) lease: Duration,
    /// A permit taken by every task that goes on without its caller. All are free: all of them are done.
    pub(super) detached_tasks: Arc<Semaphore>,
    pub(super) store_check: StoreCheck,
    pub(super) long_poll_turns: LongPollTurns,
    /// The workers that this process hears of.
    pub(super) workers: Arc<WorkerRegistry>,
    /// Who watches the overview.
    pub(super) pulse: PulseHub,
    /// Turns true when the server is shutting down.
    pub(super) closing: watch::Sender<bool>,
}

/// How handlers see it.
pub(super) type Api = Arc<ApiState>;

impl ApiState {
    pub(super) fn new(settings: ApiSettings, exposure: Exposure) -> Api {
        let hosts = settings.hosts.iter().map(|host| host.to_ascii_lowercase()).collect();
        Arc::new(Self {
            authenticator: Arc::new(Authenticator::new(
                settings.queue.clone(),
                settings.admin_token.as_deref(),
                exposure,
                SessionCookie::of(settings.public_url.as_ref()),
            )),
            hosts,
            public_url: settings.public_url,
            #[cfg(feature = "dashboard")]
            has_dashboard: settings.dashboard,
            hides_payloads: settings.hides_payloads,
            throttle: AuthThrottle::default(),
            rates: Rates::default(),
            ready_checks: settings.ready_checks,
            enqueues: Arc::new(Semaphore::new(settings.limits.enqueues_in_flight)),
            bodies: MemoryBudget::of_bytes(settings.limits.body_bytes),
            worker_bodies: MemoryBudget::of_bytes(WORKER_BODIES_MAX),
            response_memory: ResponseMemory::new(settings.limits.response_bytes),
            lease: settings.lease,
            detached_tasks: Arc::new(Semaphore::new(DETACHED_TASKS_MAX as usize)),
            store_check: StoreCheck::default(),
            long_poll_turns: LongPollTurns::default(),
            workers: Arc::default(),
            pulse: PulseHub::default(),
            closing: watch::Sender::new(false),
            limits: settings.limits,
            queue: settings.queue,
        })
    }

    pub(super) fn is_closing(&self) -> bool {
        *self.closing.borrow()
    }
}

/// Runs it to its end, even if the caller hangs up halfway: a write is not left half done, a read does not cost the
/// store the connection it was using. A shutdown waits for it.
pub(super) async fn run_to_completion<T, W>(api: &Api, work: impl FnOnce(Api) -> W) -> Result<T, Problem>
where
    T: Send + 'static,
    W: Future<Output = T> + Send + 'static,
{
    let permit = api.detached_tasks.clone().try_acquire_owned();
    let work = work(api.clone());
    let working = async move {
        let _permit = permit;
        work.await
    };
    tokio::spawn(working.in_current_span()).await.map_err(|error| {
        tracing::error!(%error, "a request failed");
        Problem::new(Code::Internal, "the server's log says more under this request_id")
    })
}
