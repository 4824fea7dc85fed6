//! What the loops of one worker share: settings, handlers, held leases, and the buffer of claimed jobs (see `pool`).

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::WorkerSettings;
use super::handler::{AnyHandler, Stateless};
use super::held::HeldLeases;
use super::pool::Buffer;
use super::prefetch::Pace;
use super::presence::Presence;
use super::settler::Outcomes;
use crate::job::{Kind, KindDefinition, WorkerId};
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

/// The state that the loops share.
pub(super) struct RunningWorker<S> {
    pub(super) queue: Queue,
    pub(super) worker: WorkerId,
    pub(super) settings: WorkerSettings,
    pub(super) handlers: HashMap<Kind, Registered<S>>,
    pub(super) state: Arc<S>,
    pub(super) held: HeldLeases,
    pub(super) pace: Pace,
    pub(super) presence: Presence,
    pub(super) outcomes: Outcomes,
    pub(super) buffer: Buffer,
    pub(super) progress_reported: Arc<Notify>,
    /// Tasks that may outlive their handler; see [`Context::outliving_tasks`](super::Context::outliving_tasks).
    pub(super) outliving_tasks: TaskTracker,
    /// Cancelled when no more jobs are to be claimed.
    pub(super) stop_claiming: CancellationToken,
    /// Cancelled when the grace period is over.
    pub(super) release_now: CancellationToken,
    /// Cancelled when everything is settled.
    pub(super) stop_heartbeats: CancellationToken,
}
