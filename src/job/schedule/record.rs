//! A schedule as it is stored, and what operators do to it. Stores write what these functions answer.

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::request::{NoSuchWord, words};
use super::spec::ScheduleSpec;
use crate::job::{JobId, ScheduleName};

words! {
    /// Who declared a schedule.
    ScheduleSource, "source" {
        /// The HTTP API.
        Api = "api",
        /// A program that embeds the queue.
        Library = "library",
        /// The configuration file; only that changes or deletes it.
        Config = "config",
    }
}

words! {
    /// Whether a schedule fires.
    ScheduleState, "state" {
        /// It fires.
        Active = "active",
        /// It is paused, and fires from the next tick on once it is resumed.
        Paused = "paused",
        /// There is no further tick: `end_at` is over.
        Ended = "ended",
    }
}

words! {
    /// What became of a tick.
    TickFate, "fate" {
        /// Its job was enqueued.
        Fired = "fired",
        /// A job of the schedule was unfinished, and its overlap rule said not to start another.
        Skipped = "skipped",
        /// Nobody was there in time, and catch-up did not make up for it.
        Missed = "missed",
        /// Its job was refused: the payload does not fit the kind, or the queue is full.
        Refused = "refused",
    }
}

/// Ticks since the schedule was created, by what became of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ScheduleCounts {
    /// Ticks whose job was enqueued.
    pub fired: u64,
    /// Ticks that found a job unfinished.
    pub skipped: u64,
    /// Ticks that nobody was there for. Of one outage of a cron schedule at most 1,000 are counted.
    pub missed: u64,
    /// Ticks whose job was refused.
    pub refused: u64,
}

/// The newest tick that was skipped.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SkippedTick {
    /// The tick.
    pub tick: Timestamp,
    /// Why it was skipped.
    pub reason: String,
}

/// A schedule with everything that is stored about it.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ScheduleRecord {
    /// Its name.
    pub name: ScheduleName,
    /// What it does; if what is stored cannot be read, why.
    pub spec: Result<ScheduleSpec, String>,
    /// Who declared it.
    pub source: ScheduleSource,
    /// Changes with every edit.
    pub revision: u64,
    /// Whether an operator has paused it.
    pub paused: bool,
    /// The next tick.
    pub next_at: Option<Timestamp>,
    /// The newest tick that was looked at.
    pub last_tick_at: Option<Timestamp>,
    /// The newest job.
    pub last_job_id: Option<JobId>,
    /// A tick that waits for an unfinished job.
    pub held_tick: Option<Timestamp>,
    /// What became of its ticks.
    pub counts: ScheduleCounts,
    /// Why the newest refused tick was refused.
    pub last_error: Option<String>,
    /// The newest tick that was skipped.
    pub last_skip: Option<SkippedTick>,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it last changed: edited, paused, resumed, or ticked.
    pub updated_at: Timestamp,
}

impl ScheduleRecord {
    /// Whether it fires.
    pub fn state(&self) -> ScheduleState {
        match () {
            () if self.paused => ScheduleState::Paused,
            () if self.next_at.is_none() && self.held_tick.is_none() => ScheduleState::Ended,
            () => ScheduleState::Active,
        }
    }

    /// The next runs, at most `count`; none while it is paused or ended.
    pub fn next_runs(&self, count: usize) -> Vec<Timestamp> {
        let Ok(spec) = &self.spec else { return Vec::new() };
        let runs = std::iter::successors(self.next_at, |tick| spec.next(*tick));
        runs.take(count).collect()
    }
}

/// What stores write.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
impl ScheduleRecord {
    /// A new schedule, from its first tick after `now`.
    pub(crate) fn new(name: ScheduleName, spec: ScheduleSpec, source: ScheduleSource, now: Timestamp) -> Self {
        let paused = spec.request().paused.unwrap_or(false);
        Self {
            name,
            next_at: spec.next(now).filter(|_| !paused),
            spec: Ok(spec),
            source,
            revision: 1,
            paused,
            last_tick_at: None,
            last_job_id: None,
            held_tick: None,
            counts: ScheduleCounts::default(),
            last_error: None,
            last_skip: None,
            created_at: now,
            updated_at: now,
        }
    }

    /// Whether a tick is due and not done yet.
    pub(crate) fn is_due(&self, now: Timestamp) -> bool {
        !self.paused && self.next_at.is_some_and(|next| next <= now)
    }

    /// The same schedule with another spec, from its first tick after `now`. `None` if there is nothing to change.
    pub(crate) fn edited(&self, spec: ScheduleSpec, source: ScheduleSource, now: Timestamp) -> Option<Self> {
        let paused = match spec.request().paused {
            // What an operator has paused stays paused, whatever the file says.
            Some(paused) if source != ScheduleSource::Config => paused,
            _ => self.paused,
        };
        let is_same = self.source == source && self.spec.as_ref() == Ok(&spec);
        if is_same && paused == self.paused {
            return None;
        }
        if is_same {
            return Some(if paused { self.paused(now) } else { self.resumed(now) });
        }
        Some(Self {
            next_at: spec.next(now).filter(|_| !paused),
            spec: Ok(spec),
            source,
            revision: self.revision + 1,
            paused,
            held_tick: self.held_tick.filter(|_| !paused),
            last_error: None,
            updated_at: now,
            ..self.clone()
        })
    }

    /// Paused: a tick that is held is given up, and what falls into the pause is not missed.
    pub(crate) fn paused(&self, now: Timestamp) -> Self {
        if self.paused {
            return self.clone();
        }
        let mut counts = self.counts;
        counts.skipped += u64::from(self.held_tick.is_some());
        let skipped = self.held_tick.map(|tick| SkippedTick { tick, reason: "paused while it waited".into() });
        Self {
            paused: true,
            next_at: None,
            held_tick: None,
            counts,
            last_skip: skipped.or_else(|| self.last_skip.clone()),
            updated_at: now,
            ..self.clone()
        }
    }

    /// Resumed: from its first tick after `now`.
    pub(crate) fn resumed(&self, now: Timestamp) -> Self {
        if !self.paused {
            return self.clone();
        }
        let next_at = self.spec.as_ref().ok().and_then(|spec| spec.next(now));
        Self { paused: false, next_at, updated_at: now, ..self.clone() }
    }
}

/// One tick, as its schedule remembers it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TickRecord {
    /// The tick.
    pub tick: Timestamp,
    /// What became of it.
    pub fate: TickFate,
    /// Its job, if it has one.
    pub job_id: Option<JobId>,
    /// When that was decided.
    pub at: Timestamp,
    /// Why, if it did not fire.
    pub reason: Option<String>,
}

impl TickRecord {
    /// A tick with what became of it.
    pub fn new(tick: Timestamp, fate: TickFate, at: Timestamp) -> Self {
        Self { tick, fate, job_id: None, at, reason: None }
    }

    /// Sets its job.
    pub fn job(mut self, id: JobId) -> Self {
        self.job_id = Some(id);
        self
    }

    /// Sets why it did not fire.
    pub fn reason(mut self, reason: impl Into<String>) -> Self {
        self.reason = Some(reason.into());
        self
    }
}
