//! The task that makes the overview: one for a process, begun by the first who asks and ended 30 s after the last. It looks once a
//! second at most, writes the document once, and hands the same bytes to everybody.
//!
//! While nobody asks there is no task, and nothing is read. It decides nothing: what is wrong is said by
//! [`problems`](crate::job::problems).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use axum::body::Bytes;
use jiff::Timestamp;
use sha2::{Digest, Sha256};
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;

use super::flow::{Crew, Flow, activity, due_by_queue};
use super::gather::{Gatherer, Moment};
use crate::api::health;
use crate::api::limits::{PULSE_STREAMS_MAX, PULSE_TIMEOUT};
use crate::api::problem::{Code, Problem};
use crate::api::state::{Api, ApiState};
use crate::api::wire::{ListedQueue, OperationView, ProblemView, PulseQueue, PulseView, QueueView, WorkerCounts};
use crate::job::WorkerState;
use crate::job::problems::problems;
use crate::queue::Queue;
use crate::store::warn_throttled;

/// 1 s between two looks, …
const INTERVAL: Duration = Duration::from_secs(1);
/// … and nine times as long as one takes: where looking is slow, it takes a tenth of the time.
const SHARE: u32 = 9;
/// 30 s after the last who asked.
const LINGER: Duration = Duration::from_secs(30);
/// 20 problems are part of the overview.
const PROBLEMS_MAX: usize = 20;

/// What everybody is shown.
#[derive(Debug)]
pub(super) struct Pulse {
    /// The document of `GET /pulse`.
    pub(super) document: Bytes,
    /// The same as an event of the stream.
    pub(super) event: Bytes,
    /// Names what it says, the time left out.
    pub(super) etag: String,
    /// The document of `GET /problems`.
    pub(super) problems: Bytes,
    made: Instant,
    /// How long it may be shown.
    fresh_for: Duration,
}

/// Who watches, and what there is to see.
pub(in crate::api) struct PulseHub {
    state: Mutex<HubState>,
    newest: watch::Sender<Option<Arc<Pulse>>>,
    /// Permits for streams.
    pub(super) streams: Arc<Semaphore>,
}

#[derive(Debug, Default)]
struct HubState {
    is_running: bool,
    asked: Option<Instant>,
}

impl Default for PulseHub {
    fn default() -> Self {
        let streams = Arc::new(Semaphore::new(PULSE_STREAMS_MAX));
        Self { state: Mutex::default(), newest: watch::Sender::new(None), streams }
    }
}

impl PulseHub {
    fn lock(&self) -> MutexGuard<'_, HubState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Somebody watches: the task runs, for 30 s at least.
    pub(super) fn watch(&self, api: &Api) -> watch::Receiver<Option<Arc<Pulse>>> {
        let mut state = self.lock();
        state.asked = Some(Instant::now());
        if !std::mem::replace(&mut state.is_running, true) {
            // What was seen long ago is not shown.
            self.newest.send_replace(None);
            tokio::spawn(run(Running(Arc::downgrade(api))));
        }
        self.newest.subscribe()
    }

    /// What there is now.
    pub(super) async fn current(&self, api: &Api) -> Result<Arc<Pulse>, Problem> {
        let mut watching = self.watch(api);
        let is_fresh =
            |pulse: &Option<Arc<Pulse>>| pulse.as_ref().is_some_and(|pulse| pulse.made.elapsed() < pulse.fresh_for);
        let seen = timeout(PULSE_TIMEOUT, watching.wait_for(is_fresh)).await;
        let pulse = seen.ok().and_then(Result::ok).and_then(|pulse| pulse.clone());
        pulse.ok_or_else(|| Problem::new(Code::Overloaded, "the overview takes too long to be made; try again shortly"))
    }

    /// Nobody has asked for a while, and there is no stream.
    fn is_alone(&self) -> bool {
        let is_idle = self.streams.available_permits() == PULSE_STREAMS_MAX;
        let mut state = self.lock();
        if is_idle && state.asked.is_none_or(|asked| asked.elapsed() >= LINGER) {
            state.is_running = false;
            return true;
        }
        if !is_idle {
            state.asked = Some(Instant::now());
        }
        false
    }
}

/// The task. If it ends in another way than by being alone, the next who asks begins another.
struct Running(Weak<ApiState>);

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(api) = self.0.upgrade() {
            api.pulse.lock().is_running = false;
        }
    }
}

async fn run(mut running: Running) {
    let mut gatherer = Gatherer::default();
    let mut last: Option<Moment> = None;
    loop {
        let Some(api) = running.0.upgrade() else { return };
        if api.is_closing() || api.pulse.is_alone() {
            // The hub knows. It must not be told once more: another task may have begun.
            running.0 = Weak::new();
            return;
        }
        let began = Instant::now();
        let not_ready = health::not_ready(&api).await;
        match timeout(PULSE_TIMEOUT, gatherer.look(&api.queue)).await {
            Ok(Ok(moment)) => last = Some(moment),
            Ok(Err(error)) => warn_throttled(&error, "cannot look at what there is; the overview shows what was"),
            Err(_) => tracing::debug!("a look at what there is took too long"),
        }
        let wait = INTERVAL.max(began.elapsed() * SHARE);
        let pulse = make(&api.queue, &gatherer, last.as_ref(), not_ready, wait);
        api.pulse.newest.send_replace(Some(Arc::new(pulse)));
        let mut closing = api.closing.subscribe();
        drop(api);
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            _ = closing.wait_for(|closing| *closing) => return,
        }
    }
}

/// Writes it down, once for all.
fn make(queue: &Queue, gatherer: &Gatherer, moment: Option<&Moment>, not_ready: Vec<String>, wait: Duration) -> Pulse {
    let nothing;
    let moment = match moment {
        Some(moment) => moment,
        None => {
            nothing = Moment::nothing(Timestamp::now());
            &nothing
        }
    };
    let ready = not_ready.is_empty();
    let found: Vec<ProblemView> =
        problems(&gatherer.snapshot(moment, not_ready)).into_iter().map(ProblemView::from).collect();
    let written = serde_json::to_string(&found).unwrap_or_else(|_| "[]".to_owned());
    let view = view(queue, gatherer, moment, found, ready);
    // Plain data: it can be written.
    let rest = serde_json::to_string(&view).unwrap_or_else(|_| "{}".to_owned());
    let digest = Sha256::digest(rest.as_bytes());
    let etag: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    let document = format!("{{\"at\":\"{}\",{}", moment.facts.now, &rest[1..]);
    Pulse {
        event: format!("event: pulse\ndata: {document}\n\n").into(),
        document: document.into(),
        etag: format!("W/\"{etag}\""),
        problems: written.into(),
        made: Instant::now(),
        fresh_for: wait + INTERVAL,
    }
}

#[cfg(feature = "dashboard")]
fn assets() -> Option<String> {
    crate::api::dashboard_files::newest_hash()
}

#[cfg(not(feature = "dashboard"))]
fn assets() -> Option<String> {
    None
}

fn view(queue: &Queue, gatherer: &Gatherer, moment: &Moment, mut found: Vec<ProblemView>, ready: bool) -> PulseView {
    let Moment { stats, facts } = moment;
    let (crew, due) = (Crew::of(gatherer.workers()), due_by_queue(&facts.due));
    let nothing = Flow::default();
    let queues = stats.queues.iter().map(|(name, stats)| {
        let flow = gatherer.queues.get(name).unwrap_or(&nothing);
        let due = due.get(name).copied().unwrap_or_default();
        let activity = activity(name, stats, due, facts, flow, &crew);
        PulseQueue { queue: ListedQueue { queue: QueueView::new(name, stats), activity }, spark: flow.spark(facts.now) }
    });
    let more_problems = found.len().saturating_sub(PROBLEMS_MAX);
    found.truncate(PROBLEMS_MAX);
    PulseView {
        version: env!("CARGO_PKG_VERSION"),
        assets: assets(),
        store: queue.store_name(),
        ready,
        totals: (&stats.totals).into(),
        rates: gatherer.total.rates(facts.now),
        oldest_ready_ms: stats
            .queues
            .values()
            .filter_map(|queue| queue.oldest_ready)
            .max()
            .map(|age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX)),
        queues: queues.collect(),
        more_queues: stats.next.is_some(),
        workers: worker_counts(gatherer),
        problems: found,
        more_problems,
        operations: gatherer.operations().iter().cloned().map(OperationView::from).collect(),
        audit_seq: facts.audit_seq,
    }
}

fn worker_counts(gatherer: &Gatherer) -> WorkerCounts {
    let mut counts = WorkerCounts::default();
    for worker in gatherer.workers() {
        match worker.state() {
            WorkerState::Live => counts.live += 1,
            WorkerState::Deaf => counts.deaf += 1,
            WorkerState::Draining => counts.draining += 1,
            WorkerState::Gone => {
                counts.gone += 1;
                continue;
            }
        }
        counts.slots += u64::from(worker.info.concurrency.unwrap_or(1));
        counts.busy += u64::from(worker.busy);
    }
    counts
}
