//! The workers that this process hears of over HTTP: kept in memory with every fetch, heartbeat and settle, and recorded in
//! the store every 10 s in one batch. While nobody calls, nothing is written.
//!
//! Nothing about leases depends on it. What is forgotten here is heard of again with the worker's next call.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use super::access::Caller;
use super::state::{Api, ApiState};
use crate::job::limits::{BATCH_MAX, WORKERS_MAX};
use crate::job::{Told, WorkerAsks, WorkerId, WorkerInfo, WorkerSource};
use crate::store::{WorkerReport, warn_throttled};

/// 16 MiB of names of queues and kinds, over all workers.
const NAMES_MAX_BYTES: usize = 16 * 1024 * 1024;
/// 100 ms after the first call of a worker that was not heard of lately: others come with it, and what it is told is learnt
/// soon.
const GATHER: Duration = Duration::from_millis(100);

/// The workers that this process hears of.
#[derive(Debug, Default)]
pub(super) struct WorkerRegistry(Mutex<Heard>);

#[derive(Debug, Default)]
struct Heard {
    workers: HashMap<WorkerId, HeardWorker>,
    /// Of the names in them.
    bytes: usize,
    /// A task is going to write.
    is_scheduled: bool,
    written: Option<Instant>,
}

#[derive(Debug)]
struct HeardWorker {
    first: Instant,
    seen: Instant,
    /// Since the last write.
    fetched: Option<Instant>,
    beat: Option<Instant>,
    is_changed: bool,
    /// Fetches that wait for jobs: it is there all the while.
    polls: usize,
    asks: WorkerAsks,
    /// The most that it asked for in one fetch.
    largest_max: usize,
    info: WorkerInfo,
    token: Option<String>,
    told: Told,
    told_at: Instant,
}

impl HeardWorker {
    fn new(now: Instant) -> Self {
        Self {
            first: now,
            seen: now,
            fetched: None,
            beat: None,
            is_changed: true,
            polls: 0,
            asks: WorkerAsks::default(),
            largest_max: 0,
            info: WorkerInfo::new(),
            token: None,
            told: Told::Run,
            told_at: now,
        }
    }

    fn report(&mut self, worker: &WorkerId, now: Instant) -> WorkerReport {
        if self.polls > 0 {
            (self.seen, self.fetched) = (now, Some(now));
        }
        self.is_changed = false;
        let ago = |at: Instant| now.saturating_duration_since(at);
        let mut report = WorkerReport::new(worker.clone(), WorkerSource::Http);
        report.incarnation = self.info.incarnation();
        report.info = self.info.clone();
        let asked = (self.largest_max > 0).then_some(self.largest_max as u32);
        report.info.concurrency = report.info.concurrency.or(asked);
        report.token = self.token.clone();
        report.asks = self.asks.clone();
        (report.started, report.seen) = (ago(self.first), ago(self.seen));
        (report.fetched, report.beat) = (self.fetched.take().map(ago), self.beat.take().map(ago));
        report
    }
}

/// What a worker asks for.
pub(super) struct Fetch {
    pub(super) asks: WorkerAsks,
    pub(super) max: usize,
    pub(super) info: Option<WorkerInfo>,
}

/// A fetch that is not answered yet.
pub(super) struct Poll {
    registry: Arc<WorkerRegistry>,
    worker: WorkerId,
}

impl Drop for Poll {
    fn drop(&mut self) {
        let (mut heard, now) = (self.registry.lock(), Instant::now());
        if let Some(worker) = heard.workers.get_mut(&self.worker) {
            worker.polls = worker.polls.saturating_sub(1);
            (worker.seen, worker.fetched, worker.is_changed) = (now, Some(now), true);
        }
    }
}

/// A worker asks for jobs, until what is returned is dropped.
pub(super) fn fetch(api: &Api, caller: &Caller, worker: &WorkerId, fetch: Fetch) -> Poll {
    hear(api, caller, worker, |heard, now| {
        heard.fetched = Some(now);
        heard.polls += 1;
        heard.asks = fetch.asks;
        heard.largest_max = heard.largest_max.max(fetch.max);
        if let Some(info) = fetch.info {
            let is_known = heard.info.incarnation().is_some() && info.incarnation().is_some();
            if is_known && info.incarnation() != heard.info.incarnation() {
                // Another process under the same name.
                (heard.first, heard.told, heard.told_at, heard.largest_max) = (now, Told::Run, now, fetch.max);
            }
            heard.info = info;
        }
    });
    Poll { registry: api.workers.clone(), worker: worker.clone() }
}

/// A worker sent a heartbeat.
pub(super) fn beat(api: &Api, caller: &Caller, worker: &WorkerId) {
    hear(api, caller, worker, |heard, now| heard.beat = Some(now));
}

/// A worker reported outcomes.
pub(super) fn settled(api: &Api, caller: &Caller, worker: &WorkerId) {
    hear(api, caller, worker, |_, _| {});
}

fn hear(api: &Api, caller: &Caller, worker: &WorkerId, change: impl FnOnce(&mut HeardWorker, Instant)) {
    let now = Instant::now();
    let mut heard = api.workers.lock();
    heard.make_room(worker);
    let known = heard.workers.entry(worker.clone()).or_insert_with(|| HeardWorker::new(now));
    let before = names_bytes(&known.asks);
    change(known, now);
    if let Caller::Holder(token) = caller
        && known.token.as_ref() != Some(&token.name)
    {
        known.token = Some(token.name.clone());
    }
    (known.seen, known.is_changed) = (now, true);
    let after = names_bytes(&known.asks);
    heard.bytes = heard.bytes + after - before;
    if !std::mem::replace(&mut heard.is_scheduled, true) {
        let interval = api.limits.worker_report_interval;
        let wait = heard.written.map_or(Duration::ZERO, |written| interval.saturating_sub(written.elapsed()));
        tokio::spawn(write_from_time_to_time(Arc::downgrade(api), wait.max(GATHER.min(interval))));
    }
}

/// About how many bytes of names.
fn names_bytes(asks: &WorkerAsks) -> usize {
    let queues = asks.queues.iter().flatten().map(|name| name.as_str().len() + 32);
    queues.chain(asks.kinds.iter().flatten().map(|name| name.as_str().len() + 32)).sum()
}

impl Heard {
    /// Forgets the tenth that was not heard of for the longest time, if there are too many.
    fn make_room(&mut self, newcomer: &WorkerId) {
        let is_full = self.workers.len() >= WORKERS_MAX && !self.workers.contains_key(newcomer);
        if !is_full && self.bytes <= NAMES_MAX_BYTES {
            return;
        }
        let waits = |worker: &HeardWorker| worker.polls == 0;
        let mut idle: Vec<_> = self
            .workers
            .iter()
            .filter(|(_, worker)| waits(worker))
            .map(|(id, worker)| (worker.seen, id.clone()))
            .collect();
        idle.sort_unstable_by_key(|(seen, _)| *seen);
        idle.truncate((self.workers.len() / 10).max(1));
        for (_, id) in idle {
            if let Some(forgotten) = self.workers.remove(&id) {
                self.bytes -= names_bytes(&forgotten.asks);
            }
        }
    }
}

impl WorkerRegistry {
    /// Whether operators have told it to drain, as far as is known here.
    pub(super) fn is_draining(&self, worker: &WorkerId) -> bool {
        self.lock().workers.get(worker).is_some_and(|worker| worker.told == Told::Drain)
    }

    /// An operator told it through this process.
    pub(super) fn tell(&self, worker: &WorkerId, told: Told) {
        if let Some(worker) = self.lock().workers.get_mut(worker) {
            (worker.told, worker.told_at) = (told, Instant::now());
        }
    }

    /// What is to be recorded.
    fn take_changed(&self) -> Vec<WorkerReport> {
        let (mut heard, now) = (self.lock(), Instant::now());
        heard.written = Some(now);
        let changed = heard.workers.iter_mut().filter(|(_, worker)| worker.is_changed || worker.polls > 0);
        changed.map(|(id, worker)| worker.report(id, now)).collect()
    }

    /// What each is told, as of `asked`.
    fn learn(&self, reports: &[WorkerReport], told: Vec<Told>, asked: Instant) {
        let mut heard = self.lock();
        for (report, told) in reports.iter().zip(told) {
            // What was told through this process meanwhile is newer.
            if let Some(worker) = heard.workers.get_mut(&report.worker).filter(|worker| worker.told_at <= asked) {
                worker.told = told;
            }
        }
    }

    /// Nothing was recorded: next time.
    fn put_back(&self, reports: &[WorkerReport], taken: Instant) {
        let mut heard = self.lock();
        for report in reports {
            let Some(worker) = heard.workers.get_mut(&report.worker) else { continue };
            let at = |ago: Option<Duration>| ago.and_then(|ago| taken.checked_sub(ago));
            worker.is_changed = true;
            worker.fetched = worker.fetched.or(at(report.fetched));
            worker.beat = worker.beat.or(at(report.beat));
        }
    }

    /// Whether there will be something to write. If not, the next call schedules it.
    fn stays_scheduled(&self) -> bool {
        let mut heard = self.lock();
        heard.is_scheduled = heard.workers.values().any(|worker| worker.is_changed || worker.polls > 0);
        heard.is_scheduled
    }

    fn lock(&self) -> MutexGuard<'_, Heard> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes until there is nothing to write. Between two writes it does not hold the server.
async fn write_from_time_to_time(api: Weak<ApiState>, first: Duration) {
    let mut wait = first;
    loop {
        tokio::time::sleep(wait).await;
        let Some(api) = api.upgrade() else { return };
        // A shutdown waits for it.
        let permit = api.detached_tasks.clone().try_acquire_owned();
        if api.is_closing() {
            return;
        }
        write_changed(&api).await;
        if !api.workers.stays_scheduled() {
            return;
        }
        wait = api.limits.worker_report_interval;
        drop(permit);
    }
}

/// Records what changed since the last time, and learns what workers are told.
pub(super) async fn write_changed(api: &ApiState) {
    let taken = Instant::now();
    let reports = api.workers.take_changed();
    for some in reports.chunks(BATCH_MAX) {
        match api.queue.report_workers(some.to_vec()).await {
            Ok(told) => api.workers.learn(some, told, taken),
            Err(error) => {
                api.workers.put_back(some, taken);
                warn_throttled(&error, "cannot record which workers were heard of; trying again");
            }
        }
    }
}
