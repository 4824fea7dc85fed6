//! What a schedule does when it is looked at: which ticks start a job, which are skipped, missed or held, and when it is
//! looked at next. The whole policy of catch-up and overlap.

use jiff::{SignedDuration, Timestamp};

use super::record::{ScheduleRecord, SkippedTick, TickFate, TickRecord};
use super::request::{CatchUp, Overlap};
use super::spec::ScheduleSpec;
use super::timing::Timing;
use crate::job::JobId;
use crate::job::limits::{TICK_LATE, TICKS_KEPT};

/// 1,000 missed ticks are counted of one outage of a cron schedule, and 1,000 ticks are done at one look: a search takes
/// some microseconds, and whatever the gap, a look stays a matter of milliseconds.
const TICKS_WALKED_MAX: usize = 1000;
/// 1 s: how often it is looked whether the job that a held tick waits for has finished.
const HOLD_INTERVAL: SignedDuration = SignedDuration::from_secs(1);
/// 1 h: what cannot be read does not become readable by itself.
const UNREADABLE_INTERVAL: SignedDuration = SignedDuration::from_hours(1);

/// An unfinished job of a schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnfinishedJob {
    /// Its id.
    pub id: JobId,
    /// Whether it has been asked to stop.
    pub cancel_requested: bool,
}

impl UnfinishedJob {
    /// A job, and whether it has been asked to stop.
    pub fn new(id: JobId, cancel_requested: bool) -> Self {
        Self { id, cancel_requested }
    }
}

/// A schedule that is to be looked at.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct DueSchedule {
    /// The schedule.
    pub record: ScheduleRecord,
    /// Those of its newest jobs that have not finished.
    pub unfinished: Vec<UnfinishedJob>,
}

impl DueSchedule {
    /// A schedule, and those of its newest jobs that have not finished.
    pub fn new(record: ScheduleRecord, unfinished: Vec<UnfinishedJob>) -> Self {
        Self { record, unfinished }
    }
}

/// What a look at a schedule comes to. A store applies it if, and only if, the schedule is still as it was looked at.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tick {
    /// Ticks that start a job, in this order.
    pub start: Vec<Timestamp>,
    /// Ticks that start none, the newest 100.
    pub unstarted: Vec<TickRecord>,
    /// How many were skipped.
    pub skipped: u64,
    /// How many were missed and not made up for.
    pub missed: u64,
    /// The tick that waits now.
    pub held_tick: Option<Timestamp>,
    /// The next tick.
    pub next_at: Option<Timestamp>,
    /// When to look again.
    pub wake_at: Option<Timestamp>,
    /// The newest tick that was looked at.
    pub last_tick_at: Option<Timestamp>,
    /// The newest tick that was skipped at this look.
    pub last_skip: Option<SkippedTick>,
    /// Jobs that are to be cancelled.
    pub cancel: Vec<JobId>,
    /// It starts a job because no other is unfinished, which must still be so.
    pub needs_idle: bool,
    /// Why the schedule cannot be read.
    pub error: Option<String>,
}

/// Decides what a schedule does at `now`.
pub fn tick(due: &DueSchedule, now: Timestamp) -> Tick {
    let record = &due.record;
    let spec = match &record.spec {
        Ok(spec) => spec,
        Err(error) => {
            return Tick {
                held_tick: record.held_tick,
                next_at: record.next_at,
                wake_at: Some(now.saturating_add(UNREADABLE_INTERVAL).unwrap_or(now)),
                last_tick_at: record.last_tick_at,
                error: Some(error.clone()),
                ..Tick::default()
            };
        }
    };
    let mut look = Look { now, busy: !due.unfinished.is_empty(), overlap: spec.overlap(), tick: Tick::default() };
    if let Some(held) = record.held_tick {
        look.pass(held);
    }
    let (to_run, last) = match record.next_at {
        Some(next) if next <= now => look.due_ticks(spec, next),
        _ => (Vec::new(), None),
    };
    to_run.into_iter().for_each(|tick| look.pass(tick));
    let mut tick = look.tick;
    tick.last_tick_at = last.or(record.last_tick_at);
    tick.next_at = match record.next_at {
        Some(next) if next <= now => spec.next(now),
        // The clock was ahead when it ticked, and is not any more.
        Some(next) => pulled_back(spec, next, now).or(Some(next)),
        None => None,
    };
    let look_again = tick.held_tick.map(|_| now.saturating_add(HOLD_INTERVAL).unwrap_or(now));
    tick.wake_at = [tick.next_at, look_again].into_iter().flatten().min();
    tick.needs_idle = spec.overlap() != Overlap::Allow && !tick.start.is_empty();
    if spec.overlap() == Overlap::Cancel && tick.held_tick.is_some() {
        tick.cancel = due.unfinished.iter().filter(|job| !job.cancel_requested).map(|job| job.id).collect();
    }
    let kept = tick.unstarted.len().saturating_sub(TICKS_KEPT);
    tick.unstarted.drain(..kept);
    tick
}

/// The next tick, if `announced` is more than one tick behind it: then the clock was ahead when that was announced. One
/// tick is what a clock leaves that went back by a moment.
fn pulled_back(spec: &ScheduleSpec, announced: Timestamp, now: Timestamp) -> Option<Timestamp> {
    let next = spec.next(now)?;
    spec.next(next).is_some_and(|second| announced > second).then_some(next)
}

struct Look {
    now: Timestamp,
    /// A job is unfinished, or was started at this look.
    busy: bool,
    overlap: Overlap,
    tick: Tick,
}

impl Look {
    /// What the overlap rule says of a tick.
    fn pass(&mut self, tick: Timestamp) {
        match self.overlap {
            _ if !self.busy => {
                self.tick.start.push(tick);
                self.busy = true;
            }
            Overlap::Allow => self.tick.start.push(tick),
            Overlap::QueueOne | Overlap::Cancel if self.tick.held_tick.is_none() => self.tick.held_tick = Some(tick),
            Overlap::Skip => self.skip(tick, "still running"),
            Overlap::QueueOne | Overlap::Cancel => self.skip(tick, "still running, and another tick waits"),
        }
    }

    fn skip(&mut self, tick: Timestamp, reason: &str) {
        self.tick.skipped += 1;
        self.tick.last_skip = Some(SkippedTick { tick, reason: reason.to_owned() });
        self.tick.unstarted.push(TickRecord::new(tick, TickFate::Skipped, self.now).reason(reason));
    }

    /// The ticks from `first` to now: those that run, oldest first, and the newest of all.
    fn due_ticks(&mut self, spec: &ScheduleSpec, first: Timestamp) -> (Vec<Timestamp>, Option<Timestamp>) {
        let newest = spec.last_at(self.now).filter(|tick| *tick >= first);
        let all = std::iter::successors(newest, |tick| spec.previous(*tick).filter(|earlier| *earlier >= first));
        // Newest first.
        let mut ticks: Vec<Timestamp> = all.take(TICKS_WALKED_MAX).collect();
        if ticks.is_empty() {
            // The rules of its zone have changed since it was announced.
            ticks.push(first);
        }
        let is_late = |tick: &Timestamp| self.now.duration_since(*tick).unsigned_abs() > TICK_LATE;
        let on_time = ticks.iter().take_while(|tick| !is_late(tick)).count();
        let (in_time, late) = ticks.split_at(on_time);
        let window = spec.catch_up_window();
        let in_window = late.iter().take_while(|tick| self.now.duration_since(**tick).unsigned_abs() <= window).count();
        let made_up = match spec.catch_up() {
            CatchUp::Skip => 0,
            // A tick that is in time is newer than all of these, and must not find one of them running.
            CatchUp::One => in_window.min(usize::from(in_time.is_empty())),
            CatchUp::All => in_window.min(spec.catch_up_max()),
        };
        let walked = late.len() as u64;
        let late_count = match (&spec.timing, late.first()) {
            (Timing::Every(interval), Some(newest_late)) => interval.count(first, *newest_late),
            _ => walked,
        };
        self.tick.missed = late_count.saturating_sub(made_up as u64);
        let missed = late[made_up..].iter().rev();
        let record = |tick: &Timestamp| TickRecord::new(*tick, TickFate::Missed, self.now);
        self.tick.unstarted.extend(missed.map(record));
        let run = in_time.iter().chain(&late[..made_up]).rev().copied().collect();
        (run, ticks.first().copied())
    }
}
