//! Gathers what an overview shows. What changes from second to second is read every time; the rest at its own pace, and kept.
//!
//! Everything is bounded: 200 queues, 10,000 workers, 200 groups of errors, 200 schedules, 20 limits.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};

use super::flow::Flow;
use crate::job::problems::{
    DueFacts, ErrorFacts, FullLimit, QueueFlow, RunningFacts, ScheduleFacts, Snapshot, WorkerSight,
};
use crate::job::{Fingerprint, OperationState, QueueName, SeriesStep, Status, WorkerRecord};
use crate::queue::Queue;
use crate::store::{
    ErrorRecord, List, ListErrors, ListOperations, ListSchedules, ListTicks, OperationRecord, Order, PulseFacts,
    ReadSeries, SeriesOf, SeriesRow, Stats, StatsRequest, StoreError,
};

/// 200 queues are shown.
const QUEUES_MAX: usize = 200;
/// 61 minutes: the last hour, and the minute that is not over.
const MINUTES: SignedDuration = SignedDuration::from_mins(61);
/// 3 minutes are read again: processes write every 10 s, for the minute that is and the one before.
const LATE_MINUTES: SignedDuration = SignedDuration::from_mins(3);
/// 10 min: an error that comes more often than usual is measured over this time.
const SPIKE: Duration = Duration::from_secs(600);
/// 5 min: attempts that are not older are not looked at.
const LONG_RUN: SignedDuration = SignedDuration::from_mins(5);
/// 20 operations, and limits of 20 queues.
const FEW: usize = 20;
/// 1 MiB of jobs that run for long is read.
const RUNNING_MAX_BYTES: usize = 1 << 20;

/// What was read at some time, and is read again after a while.
#[derive(Debug, Default)]
struct Kept<T> {
    read: Option<Instant>,
    value: T,
}

impl<T> Kept<T> {
    fn is_older_than(&self, seconds: u64) -> bool {
        self.read.is_none_or(|read| read.elapsed() >= Duration::from_secs(seconds))
    }

    fn put(&mut self, value: T) {
        (self.value, self.read) = (value, Some(Instant::now()));
    }
}

/// What is known from one look to the next.
#[derive(Debug, Default)]
pub(super) struct Gatherer {
    series: Kept<()>,
    pub(super) total: Flow,
    pub(super) queues: HashMap<QueueName, Flow>,
    workers_kept: Kept<Vec<WorkerRecord>>,
    operations_kept: Kept<Vec<OperationRecord>>,
    errors: Kept<Vec<ErrorRecord>>,
    error_totals: HashMap<Fingerprint, VecDeque<(Instant, u64)>>,
    running: Kept<Vec<RunningFacts>>,
    schedules: Kept<Vec<ScheduleFacts>>,
    day_waits: Kept<HashMap<QueueName, f64>>,
    full: Kept<BTreeMap<QueueName, FullLimit>>,
}

/// One moment.
#[derive(Debug)]
pub(super) struct Moment {
    pub(super) stats: Stats,
    pub(super) facts: PulseFacts,
}

impl Moment {
    /// Before anything could be read.
    pub(super) fn nothing(now: Timestamp) -> Self {
        Self { stats: Stats::default(), facts: PulseFacts::new(now) }
    }
}

impl Gatherer {
    pub(super) fn workers(&self) -> &[WorkerRecord] {
        &self.workers_kept.value
    }

    pub(super) fn operations(&self) -> &[OperationRecord] {
        &self.operations_kept.value
    }

    /// Looks at what there is.
    pub(super) async fn look(&mut self, queue: &Queue) -> Result<Moment, StoreError> {
        let stats = queue.stats(StatsRequest::new().limit(QUEUES_MAX)).await?;
        let facts = queue.pulse().await?;
        if self.workers_kept.is_older_than(2) {
            self.workers_kept.put(queue.all_workers().await?);
        }
        if self.operations_kept.is_older_than(2) {
            let mut open = Vec::new();
            for state in [OperationState::Running, OperationState::Paused] {
                let list = ListOperations::new().state(state).limit(FEW - open.len().min(FEW));
                open.extend(queue.operations(list).await?.operations);
            }
            open.truncate(FEW);
            self.operations_kept.put(open);
        }
        self.read_series(queue, facts.now).await?;
        self.read_errors(queue, facts.now).await?;
        self.read_schedules(queue).await?;
        self.read_running(queue, facts.now).await?;
        self.read_limits(queue, &facts).await?;
        Ok(Moment { stats, facts })
    }

    async fn read_series(&mut self, queue: &Queue, now: Timestamp) -> Result<(), StoreError> {
        let is_first = self.series.read.is_none();
        if self.series.is_older_than(10) {
            let from = now - if is_first { MINUTES } else { LATE_MINUTES };
            let from = SeriesStep::Minute.start_of(from);
            for of in [SeriesOf::Total, SeriesOf::EachQueue] {
                queue.series(ReadSeries::new(of, from)).await?.rows.into_iter().for_each(|row| self.put(row));
            }
            self.series.put(());
            let oldest = SeriesStep::Minute.start_of(now - MINUTES);
            self.total.forget_before(oldest);
            self.queues.values_mut().for_each(|flow| flow.forget_before(oldest));
            self.queues.retain(|_, flow| !flow.is_empty());
        } else {
            for of in [SeriesOf::Total, SeriesOf::EachQueue] {
                queue.own_series(of, now - LATE_MINUTES).into_iter().for_each(|row| self.put(row));
            }
        }
        if self.day_waits.is_older_than(300) {
            let from = SeriesStep::Hour.start_of(now - SignedDuration::from_hours(24));
            let read = queue.series(ReadSeries::new(SeriesOf::EachQueue, from).step(SeriesStep::Hour)).await?;
            let mut waits: HashMap<QueueName, crate::job::Histogram> = HashMap::new();
            for row in read.rows {
                if let Some(queue) = row.queue {
                    waits.entry(queue).or_default().add(&row.counts.wait);
                }
            }
            let p95 = waits.into_iter().filter_map(|(queue, waits)| Some((queue, waits.percentile_ms(0.95)?)));
            self.day_waits.put(p95.collect());
        }
        Ok(())
    }

    fn put(&mut self, row: SeriesRow) {
        match row.queue.clone() {
            Some(queue) => self.queues.entry(queue).or_default().put(row),
            None => self.total.put(row),
        }
    }

    async fn read_errors(&mut self, queue: &Queue, now: Timestamp) -> Result<(), StoreError> {
        if !self.errors.is_older_than(10) {
            return Ok(());
        }
        let list = ListErrors::new().since(now - SignedDuration::from_hours(1)).limit(200);
        self.errors.put(queue.errors(list).await?.groups);
        let groups = &self.errors.value;
        self.error_totals.retain(|fingerprint, _| groups.iter().any(|group| group.fingerprint == *fingerprint));
        for group in groups {
            let totals = self.error_totals.entry(group.fingerprint).or_default();
            while totals.front().is_some_and(|(at, _)| at.elapsed() > SPIKE) {
                totals.pop_front();
            }
            if totals.back().is_none_or(|(at, _)| at.elapsed() >= Duration::from_secs(30)) {
                totals.push_back((Instant::now(), group.total));
            }
        }
        Ok(())
    }

    async fn read_schedules(&mut self, queue: &Queue) -> Result<(), StoreError> {
        if !self.schedules.is_older_than(60) {
            return Ok(());
        }
        let page = queue.schedules(ListSchedules::new()).await?;
        let mut seen = Vec::with_capacity(page.schedules.len());
        for schedule in page.schedules {
            let mut last_three_dead = false;
            // Few have failed the last time; only of these more is read.
            if let Some(last) = schedule.last_job_id
                && is_dead(queue, last).await?
            {
                let ticks = queue.schedule_ticks(ListTicks::new(schedule.name.clone()).limit(10)).await?;
                let jobs: Vec<_> = ticks.into_iter().flatten().filter_map(|tick| tick.job_id).take(3).collect();
                last_three_dead = jobs.len() == 3;
                for job in jobs {
                    last_three_dead = last_three_dead && is_dead(queue, job).await?;
                }
            }
            let next_at = schedule.next_at.filter(|_| !schedule.paused && schedule.held_tick.is_none());
            seen.push(ScheduleFacts::new(schedule.name, next_at, last_three_dead));
        }
        self.schedules.put(seen);
        Ok(())
    }

    async fn read_running(&mut self, queue: &Queue, now: Timestamp) -> Result<(), StoreError> {
        if !self.running.is_older_than(30) {
            return Ok(());
        }
        let mut list = List::new().status(Status::Running).order(Order::Oldest).limit(200);
        list.max_bytes = RUNNING_MAX_BYTES;
        let jobs = queue.list(list).await?.jobs.into_iter();
        let long = |started: Option<Timestamp>| started.filter(|at| now.duration_since(*at) >= LONG_RUN);
        let jobs: Vec<_> = jobs.filter_map(|job| Some((long(job.started_at)?, job))).collect();
        let mut runs: HashMap<_, crate::job::Histogram> = HashMap::new();
        if !jobs.is_empty() {
            let from = now - SignedDuration::from_hours(24);
            for row in queue.series(ReadSeries::new(SeriesOf::EachKind, from).step(SeriesStep::Hour)).await?.rows {
                if let Some(kind) = row.kind {
                    runs.entry(kind).or_default().add(&row.counts.run);
                }
            }
        }
        let seen = jobs.into_iter().map(|(started_at, job)| {
            let usual = runs.get(&job.kind);
            let mut running = RunningFacts::new(job.id, job.kind, started_at);
            running.reports_progress = job.progress.is_some();
            running.usual_p99_ms = usual.and_then(|runs| runs.percentile_ms(0.99));
            running.samples = usual.map_or(0, crate::job::Histogram::count);
            running
        });
        let seen = seen.collect();
        self.running.put(seen);
        Ok(())
    }

    async fn read_limits(&mut self, queue: &Queue, facts: &PulseFacts) -> Result<(), StoreError> {
        if !self.full.is_older_than(10) {
            return Ok(());
        }
        let due = super::flow::due_by_queue(&facts.due);
        let mut waiting: Vec<_> = due.into_iter().filter(|(name, _)| !facts.paused.contains_key(*name)).collect();
        waiting.sort_by_key(|(name, due)| (std::cmp::Reverse(due.n), (*name).clone()));
        let mut full = BTreeMap::new();
        for (name, due) in waiting.into_iter().take(FEW) {
            let usage = queue.queue_limits(name.clone()).await?.usage;
            if let Some(limit) = usage.concurrency.filter(|_| usage.is_full()) {
                let since = self.full.value.get(name).map_or(facts.now, |known| known.since);
                full.insert(name.clone(), FullLimit::new(name.clone(), limit, due.n, since));
            }
        }
        self.full.put(full);
        Ok(())
    }

    /// For the rules.
    pub(super) fn snapshot(&self, moment: &Moment, not_ready: Vec<String>) -> Snapshot {
        let Moment { stats, facts } = moment;
        let mut seen = Snapshot::new(facts.now);
        seen.not_ready = not_ready;
        seen.clock_ahead = Timestamp::now().duration_since(facts.now);
        seen.storage.log_bytes = facts.log_bytes;
        seen.storage.oldest_transaction = facts.oldest_transaction;
        let lately = self.total.last(10, facts.now);
        seen.lost_in_10_min = lately.expired + lately.lost;
        let count = |counts: &crate::store::Counts, status| counts.get(&status).copied().unwrap_or(0);
        let nothing = Flow::default();
        for (name, queue) in &stats.queues {
            let flow = self.queues.get(name).unwrap_or(&nothing);
            let (minutes, hour) = (flow.last(6, facts.now), flow.last(60, facts.now));
            let paused = facts.paused.get(name).filter(|_| queue.paused);
            let flow = QueueFlow {
                paused: queue.paused,
                paused_at: paused.and_then(|paused| paused.at),
                paused_by: paused.and_then(|paused| paused.by.clone()),
                dead: count(&queue.counts, Status::FailedPermanent),
                running: count(&queue.counts, Status::Running),
                started_lately: flow.last(2, facts.now).started,
                in_5_min: minutes.enqueued,
                out_5_min: minutes.finished(),
                wait_p95_ms: self.day_waits.value.get(name).copied(),
                dead_in_hour: hour.dead,
            };
            seen.queues.insert(name.clone(), flow);
        }
        seen.due = facts
            .due
            .iter()
            .map(|due| {
                let mut facts = DueFacts::new(due.queue.clone(), due.kind.clone(), due.n, due.since);
                facts.at_least = due.at_least;
                facts
            })
            .collect();
        seen.workers = self.workers().iter().map(worker_sight).collect();
        seen.errors = self.errors.value.iter().map(|group| self.error_facts(group, facts.now)).collect();
        seen.running = self.running.value.clone();
        seen.schedules = self.schedules.value.clone();
        seen.full_limits = self.full.value.values().cloned().collect();
        seen
    }

    fn error_facts(&self, group: &ErrorRecord, now: Timestamp) -> ErrorFacts {
        let oldest = self.error_totals.get(&group.fingerprint).and_then(|totals| totals.front());
        let is_young = now.duration_since(group.first_seen) < SignedDuration::from_mins(10);
        let mut facts = ErrorFacts::new(group.fingerprint, group.kind.clone(), group.first_seen);
        facts.title.clone_from(&group.title);
        (facts.dead, facts.total) = (group.dead, group.total);
        facts.in_10_min = match oldest {
            _ if is_young => Some(group.total),
            Some((_, total)) => Some(group.total.saturating_sub(*total)),
            None => None,
        };
        facts.snoozed_until = group.snoozed.as_ref().map(|snoozed| snoozed.until);
        facts
    }
}

fn worker_sight(worker: &WorkerRecord) -> WorkerSight {
    let mut sight = WorkerSight::new(worker.worker.clone(), worker.seen_at);
    sight.state = worker.state();
    sight.stopped = worker.stopped;
    sight.asks = worker.asks.clone();
    sight.last_fetch_at = worker.last_fetch_at;
    (sight.slots, sight.busy) = (worker.info.concurrency.unwrap_or(1), worker.busy);
    sight
}

async fn is_dead(queue: &Queue, job: crate::job::JobId) -> Result<bool, StoreError> {
    Ok(queue.get(job).await?.is_some_and(|job| job.status == Status::FailedPermanent))
}
