//! Counts what passes through this process, minute by minute, and writes it every 10 s while there is something: enqueues, starts
//! and ends, with how long jobs waited and ran.
//!
//! In memory, behind one short lock per call of the store; never in a transaction, and nothing waits for a write. A crash loses
//! what was not written yet. Outcomes are attributed to a queue and kind by what was claimed through this process; others are
//! in the totals only.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};

use super::series_minute::{Key, Minute};
use super::{Inner, Queue};
use crate::job::{AttemptOutcome, JobId, JobRecord, Lease, LeaseToken, NewJob, Outcome, SeriesStep, Status};
use crate::store::{
    Enqueued, PerItem, PruneSeries, ReadSeries, Reaped, SeriesOf, SeriesRead, SeriesRow, Settle, Settled, StoreError,
    warn_throttled,
};

/// 10 s between two writes.
const WRITE_INTERVAL: Duration = Duration::from_secs(10);
/// 5 min of what could not be written are kept.
const MINUTES_MAX: usize = 5;
/// 65,536 attempts are remembered until they end, a few megabytes. Others are in the totals only.
const RUNNING_MAX: usize = 65_536;
/// 1 h: attempts that ended elsewhere are forgotten after this when there are too many.
const RUNNING_KEPT: Duration = Duration::from_secs(3600);

/// The statistics of this process.
#[derive(Debug)]
pub(super) struct SeriesRecorder {
    /// Tells the rows of this process from those of others.
    process: i64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// By the second at which they began.
    minutes: BTreeMap<i64, Minute>,
    running: HashMap<JobId, Running, BuildHasherDefault<IdHasher>>,
    /// The store's time, as last seen.
    clock: Option<(Instant, Timestamp)>,
    /// A task is going to write.
    is_scheduled: bool,
}

/// An attempt that was claimed through this process.
#[derive(Debug)]
struct Running {
    token: LeaseToken,
    key: Arc<Key>,
    claimed: Instant,
    /// If it fails, the job is dead.
    is_last: bool,
}

impl Default for SeriesRecorder {
    fn default() -> Self {
        // Never 0, which stands for all processes.
        Self { process: fastrand::i64(1..), state: Mutex::default() }
    }
}

impl State {
    /// The minute that began at this second.
    fn minute(&mut self, second: i64) -> &mut Minute {
        while self.minutes.len() >= MINUTES_MAX && !self.minutes.contains_key(&second) {
            self.minutes.pop_first();
        }
        self.minutes.entry(second).or_default()
    }

    /// When the minute began that it is now, by the store's clock as far as it is known.
    fn this_minute(&self, now: Instant) -> i64 {
        let now = match self.clock {
            Some((seen, at)) => {
                let passed = SignedDuration::try_from(now.saturating_duration_since(seen)).ok();
                passed.and_then(|by| at.checked_add(by).ok())
            }
            None => None,
        };
        second_of(now.unwrap_or_else(Timestamp::now))
    }

    fn see(&mut self, now: Instant, at: Timestamp) {
        self.clock = Some((now, at));
    }

    fn remember(&mut self, lease: &Lease, key: Option<Arc<Key>>, now: Instant) {
        let Some(key) = key else { return };
        if self.running.len() >= RUNNING_MAX {
            self.running.retain(|_, running| now.saturating_duration_since(running.claimed) < RUNNING_KEPT);
        }
        if self.running.len() < RUNNING_MAX {
            let is_last = lease.job().attempts >= lease.job().max_attempts;
            let running = Running { token: lease.token(), key, claimed: now, is_last };
            self.running.insert(lease.job().id, running);
        }
    }

    fn end(&mut self, settle: &Settled, ended: &EndedAttempt, now: Instant, minute: i64) {
        let known = self.running.get(&ended.job_id).is_some_and(|running| running.token == ended.token);
        let running = if known { self.running.remove(&ended.job_id) } else { None };
        let minute = self.minute(minute);
        let counts = match &running {
            Some(running) => minute.cell(&running.key).1,
            None => minute.others(),
        };
        if *settle != Settled::Recorded {
            counts.lost += 1;
            return;
        }
        match ended.end {
            End::Succeeded => counts.succeeded += 1,
            End::Failed { permanent } => {
                counts.failed += 1;
                counts.dead += u64::from(permanent || running.as_ref().is_some_and(|running| running.is_last));
            }
            End::Other => return,
        }
        if let Some(running) = running {
            counts.run.record(now.saturating_duration_since(running.claimed));
        }
    }
}

fn second_of(at: Timestamp) -> i64 {
    SeriesStep::Minute.start_of(at).as_second()
}

/// Times of one batch, most of which are the same.
#[derive(Default)]
struct Minutes(Option<(Timestamp, i64)>);

impl Minutes {
    fn of(&mut self, at: Timestamp) -> i64 {
        match self.0 {
            Some((known, second)) if known == at => second,
            _ => self.0.insert((at, second_of(at))).1,
        }
    }
}

/// Job ids are random in their last bytes, and made by us: they need no better hash.
#[derive(Debug, Default)]
struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            // The last part counts most, and every bit of it.
            self.0 = self.0.rotate_left(29) ^ u64::from_le_bytes(word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
    }
}

/// What is kept of a settle while the store has it.
pub(super) struct EndedAttempt {
    job_id: JobId,
    token: LeaseToken,
    end: End,
}

#[derive(Clone, Copy)]
enum End {
    Succeeded,
    Failed {
        permanent: bool,
    },
    /// Given back, snoozed or cancelled.
    Other,
}

impl From<&Settle> for EndedAttempt {
    fn from(settle: &Settle) -> Self {
        let end = match &settle.outcome {
            Outcome::Succeeded(_) => End::Succeeded,
            Outcome::Failed(failure) => End::Failed { permanent: failure.permanent },
            Outcome::TimedOut(_) => End::Failed { permanent: false },
            Outcome::Cancelled | Outcome::Released | Outcome::Snoozed(_) => End::Other,
        };
        Self { job_id: settle.lease.job_id, token: settle.lease.token, end }
    }
}

impl SeriesRecorder {
    fn enqueued<'j>(&self, created: impl Iterator<Item = &'j JobRecord>) {
        let (mut state, now) = (self.lock(), Instant::now());
        let mut minute = Minutes::default();
        for (nth, job) in created.enumerate() {
            if nth == 0 {
                state.see(now, job.created_at);
            }
            state.minute(minute.of(job.created_at)).cell_of(&job.queue, &job.kind).1.enqueued += 1;
        }
    }

    fn claimed(&self, leases: &[Lease]) {
        let (mut state, now) = (self.lock(), Instant::now());
        let mut minute = Minutes::default();
        for (nth, lease) in leases.iter().enumerate() {
            let job = lease.job();
            let started = job.started_at.unwrap_or_else(Timestamp::now);
            if nth == 0 {
                state.see(now, started);
            }
            let (key, counts) = state.minute(minute.of(started)).cell_of(&job.queue, &job.kind);
            counts.started += 1;
            counts.wait.record(Duration::try_from(started.duration_since(job.run_at)).unwrap_or_default());
            state.remember(lease, key, now);
        }
    }

    fn reaped(&self, reaped: &[Reaped]) {
        let mut state = self.lock();
        let this_minute = state.this_minute(Instant::now());
        for attempt in reaped {
            let running = state.running.remove(&attempt.job_id);
            let minute = state.minute(this_minute);
            let counts = match &running {
                Some(running) => minute.cell(&running.key).1,
                None => minute.others(),
            };
            counts.failed += 1;
            counts.expired += u64::from(attempt.recorded == AttemptOutcome::LeaseExpired);
            counts.dead += u64::from(attempt.to == Status::FailedPermanent);
        }
    }

    /// What is to be written, and marks it as written.
    fn take_changed(&self) -> Vec<SeriesRow> {
        let mut state = self.lock();
        let mut rows = Vec::new();
        for (at, minute) in &mut state.minutes {
            if minute.is_changed() {
                rows.extend(minute.rows(*at, self.process, true));
                minute.others.is_changed = false;
                minute.cells.iter_mut().for_each(|(_, cell)| cell.is_changed = false);
            }
        }
        rows
    }

    /// Nothing was written: next time, all of it.
    fn put_back(&self, rows: &[SeriesRow]) {
        let mut state = self.lock();
        for at in rows.iter().map(|row| row.at.as_second()).collect::<HashSet<_>>() {
            if let Some(minute) = state.minutes.get_mut(&at) {
                minute.others.is_changed = true;
                minute.cells.iter_mut().for_each(|(_, cell)| cell.is_changed = true);
            }
        }
    }

    /// Whether there will be something to write. Minutes that are over and written are forgotten.
    fn stays_scheduled(&self) -> bool {
        let mut state = self.lock();
        if let Some(newest) = state.minutes.last_key_value().map(|(at, _)| *at) {
            state.minutes.retain(|at, minute| *at == newest || minute.is_changed());
        }
        state.is_scheduled = state.minutes.values().any(Minute::is_changed);
        state.is_scheduled
    }

    /// What is in memory of this, written or not.
    fn rows(&self, read: &ReadSeries) -> Vec<SeriesRow> {
        let state = self.lock();
        let in_time = |at: Timestamp| at >= read.from && read.to.is_none_or(|to| at < to);
        let rows = state.minutes.iter().flat_map(|(at, minute)| minute.rows(*at, self.process, false));
        rows.filter(|row| in_time(row.at) && read.of.includes(row.queue.as_ref(), row.kind.as_ref())).collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Jobs were stored.
    pub(super) fn count_enqueued(self: &Arc<Self>, stored: &[Enqueued]) {
        let created = || stored.iter().filter(|stored| stored.created).map(|stored| &stored.job);
        if created().next().is_some() {
            self.series.enqueued(created());
            self.write_series_soon();
        }
    }

    /// Jobs of schedules were stored; of these, what was asked for is known.
    pub(super) fn count_scheduled<'j>(self: &Arc<Self>, jobs: impl Iterator<Item = &'j NewJob>) {
        let mut state = self.series.lock();
        let this_minute = state.this_minute(Instant::now());
        for job in jobs {
            state.minute(this_minute).cell_of(job.queue(), job.kind()).1.enqueued += 1;
        }
        drop(state);
        self.write_series_soon();
    }

    pub(super) fn count_claimed(self: &Arc<Self>, leases: &[Lease]) {
        if !leases.is_empty() {
            self.series.claimed(leases);
            self.write_series_soon();
        }
    }

    pub(super) fn count_settled(self: &Arc<Self>, ended: &[EndedAttempt], answers: &PerItem<Settled>) {
        let Ok(answers) = answers else { return };
        let (mut state, now) = (self.series.lock(), Instant::now());
        let this_minute = state.this_minute(now);
        for (ended, answer) in ended.iter().zip(answers) {
            if let Ok(settled) = answer {
                state.end(settled, ended, now, this_minute);
            }
        }
        drop(state);
        self.write_series_soon();
    }

    pub(super) fn count_reaped(self: &Arc<Self>, reaped: &[Reaped]) {
        if !reaped.is_empty() {
            self.series.reaped(reaped);
            self.write_series_soon();
        }
    }

    /// Within 10 s, in a task of its own. Outside of a runtime nothing is written.
    fn write_series_soon(self: &Arc<Self>) {
        let mut state = self.series.lock();
        if state.is_scheduled {
            return;
        }
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            state.is_scheduled = true;
            runtime.spawn(write_from_time_to_time(Scheduled(Arc::downgrade(self))));
        }
    }

    async fn write_series(&self) -> Result<(), StoreError> {
        let rows = self.series.take_changed();
        if rows.is_empty() {
            return Ok(());
        }
        let written = self.store.write_series(rows.clone()).await;
        if written.is_err() {
            self.series.put_back(&rows);
        }
        written
    }
}

/// A task that is going to write. If its runtime ends before, the next call schedules another.
struct Scheduled(Weak<Inner>);

impl Drop for Scheduled {
    fn drop(&mut self) {
        if let Some(inner) = self.0.upgrade() {
            inner.series.lock().is_scheduled = false;
        }
    }
}

/// Writes until there is nothing to write. Between two writes it does not keep the store open.
async fn write_from_time_to_time(scheduled: Scheduled) {
    loop {
        tokio::time::sleep(WRITE_INTERVAL).await;
        let Some(inner) = scheduled.0.upgrade() else { return };
        if let Err(error) = inner.write_series().await {
            warn_throttled(&error, "cannot write statistics; trying again");
        }
        if !inner.series.stays_scheduled() {
            return;
        }
    }
}

/// Statistics by minute and hour.
impl Queue {
    /// Reads statistics of a span of time, with what this process has counted and not written yet. Those of other processes
    /// may be 10 s late. What jobs a program enqueued within a transaction of its own is not in them.
    pub async fn series(&self, read: ReadSeries) -> Result<SeriesRead, StoreError> {
        let mut answer = self.inner.store.series(read.clone()).await?;
        self.with_own_series(&mut answer.rows, &read);
        Ok(answer)
    }

    /// Replaces rows of this process by what is in memory, which is newer.
    fn with_own_series(&self, rows: &mut Vec<SeriesRow>, read: &ReadSeries) {
        let own = self.inner.series.rows(read);
        let minutes: HashSet<_> = own.iter().map(|row| row.at).collect();
        rows.retain(|row| row.process != self.inner.series.process || !minutes.contains(&row.at));
        rows.extend(own);
        rows.sort_by_key(|row| row.at);
    }

    /// What this process has in memory of these minutes, without asking the store: newer than what [`series`](Self::series) of the
    /// store has, in whose place it stands.
    pub fn own_series(&self, of: SeriesOf, from: Timestamp) -> Vec<SeriesRow> {
        self.inner.series.rows(&ReadSeries::new(of, from))
    }

    /// Writes what this process has counted and not written yet. Otherwise it is written within 10 s.
    pub async fn write_series(&self) -> Result<(), StoreError> {
        self.inner.write_series().await
    }

    /// Adds minutes up to hours, and deletes what was kept long enough; answers whether there may be more to do.
    pub async fn prune_series(&self, prune: PruneSeries) -> Result<bool, StoreError> {
        self.inner.store.prune_series(prune).await
    }
}
