//! A schedule as it is sent: not validated yet.

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::job::{JobRequest, Json};

/// The text is none of the words there are.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} {given:?} is unknown: use {words}")]
pub struct NoSuchWord {
    pub(super) what: &'static str,
    pub(super) given: String,
    pub(super) words: String,
}

macro_rules! words {
    ($(#[$about:meta])* $name:ident, $what:literal { $($(#[$meaning:meta])* $word:ident = $text:literal,)* }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        #[non_exhaustive]
        pub enum $name {
            $($(#[$meaning])* $word,)*
        }

        impl $name {
            /// Every value.
            pub const ALL: &[Self] = &[$(Self::$word,)*];

            /// The word used in the API and the database.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$word => $text,)*
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl FromStr for $name {
            type Err = NoSuchWord;
            fn from_str(text: &str) -> Result<Self, NoSuchWord> {
                let found = Self::ALL.iter().copied().find(|word| word.as_str() == text);
                found.ok_or_else(|| NoSuchWord {
                    what: $what,
                    given: text.chars().take(32).collect(),
                    words: [$($text,)*].join(", "),
                })
            }
        }
    };
}
pub(super) use words;

words! {
    /// What a tick does while a job of the schedule is unfinished.
    #[derive(Default)]
    Overlap, "overlap" {
        /// Starts another one.
        Allow = "allow",
        /// Starts none; the tick is counted as skipped.
        #[default]
        Skip = "skip",
        /// Waits for the job to finish; one tick at most, later ones are skipped.
        QueueOne = "queue_one",
        /// Cancels the job and waits for it to finish.
        Cancel = "cancel",
    }
}

words! {
    /// What becomes of ticks that nobody was there for.
    #[derive(Default)]
    CatchUp, "catch_up" {
        /// None is made up for.
        Skip = "skip",
        /// The newest one runs, unless a later tick runs anyway.
        #[default]
        One = "one",
        /// Each runs, oldest first: the newest `catch_up_max` of them.
        All = "all",
    }
}

/// The job that each tick enqueues. Strings of its payload may contain placeholders: `{{tick}}`, `{{tick_local}}`,
/// `{{tick_unix}}`, `{{previous_tick}}`, `{{schedule}}`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ScheduledJob {
    /// The kind, which selects the handler.
    pub kind: String,
    /// The handler's input, with placeholders.
    pub payload: Json,
    /// The queue; the kind's default, else `default`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// −100 to 100, higher runs first; the kind's default, else 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<i64>,
    /// How many attempts may count; the kind's default, else 3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<i64>,
    /// Timeout of one attempt; the kind's default, else none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<i64>,
}

impl ScheduledJob {
    /// A job with every option left to the kind's defaults.
    pub fn new(kind: impl Into<String>, payload: Json) -> Self {
        Self { kind: kind.into(), payload, queue: None, priority: None, max_attempts: None, timeout_ms: None }
    }

    /// Sets the queue.
    pub fn queue(mut self, queue: impl Into<String>) -> Self {
        self.queue = Some(queue.into());
        self
    }

    /// Sets the priority, −100 to 100; higher runs first.
    pub fn priority(mut self, priority: i64) -> Self {
        self.priority = Some(priority);
        self
    }

    /// Sets how many attempts may count.
    pub fn max_attempts(mut self, attempts: i64) -> Self {
        self.max_attempts = Some(attempts);
        self
    }

    /// Sets the timeout of one attempt.
    pub fn timeout_ms(mut self, ms: i64) -> Self {
        self.timeout_ms = Some(ms);
        self
    }

    /// The request that a tick makes of it.
    pub(crate) fn request(&self, payload: Json) -> JobRequest {
        JobRequest {
            queue: self.queue.clone(),
            priority: self.priority,
            max_attempts: self.max_attempts,
            timeout_ms: self.timeout_ms,
            ..JobRequest::new(self.kind.clone(), payload)
        }
    }
}

/// A schedule to be put, not validated yet: `cron` or `every_ms`, and the job.
///
/// ```
/// use serde_json::json;
/// use steadfast::Json;
/// use steadfast::job::ScheduleRequest;
/// use steadfast::job::schedule::{Overlap, ScheduledJob};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let job = ScheduledJob::new("report", Json::of(&json!({ "day": "{{tick_local}}" }))?);
/// let nightly = ScheduleRequest::cron("30 2 * * *", job).tz("Europe/Berlin").overlap(Overlap::QueueOne);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ScheduleRequest {
    /// A cron pattern: 5 fields, or 6 with seconds first, or `@hourly` and the like. Excludes `every_ms`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cron: Option<String>,
    /// The time zone of `cron` and of `{{tick_local}}`, by its IANA name; UTC by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tz: Option<String>,
    /// The interval, at least 1,000. Excludes `cron`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every_ms: Option<i64>,
    /// Ticks are whole intervals before or after this time; 1970 by default, so that a quarter of an hour is on the quarter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub anchor_at: Option<Timestamp>,
    /// The job that each tick enqueues.
    pub job: ScheduledJob,
    /// What a tick does while a job of the schedule is unfinished; `skip` by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overlap: Option<Overlap>,
    /// What becomes of ticks that nobody was there for; `one` by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub catch_up: Option<CatchUp>,
    /// How many missed ticks `catch_up: all` makes up for at most; 100 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub catch_up_max: Option<i64>,
    /// How old a missed tick may be to be made up for; one day by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub catch_up_window_ms: Option<i64>,
    /// Each job may start up to so long after its tick, by a pseudo-random delay; 0 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jitter_ms: Option<i64>,
    /// No tick before this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_at: Option<Timestamp>,
    /// No tick after this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_at: Option<Timestamp>,
    /// Whether it is put paused; `None` leaves an existing schedule as it is. Not part of what is stored.
    #[serde(skip)]
    pub paused: Option<bool>,
}

impl ScheduleRequest {
    fn of(cron: Option<String>, every_ms: Option<i64>, job: ScheduledJob) -> Self {
        Self {
            cron,
            tz: None,
            every_ms,
            anchor_at: None,
            job,
            overlap: None,
            catch_up: None,
            catch_up_max: None,
            catch_up_window_ms: None,
            jitter_ms: None,
            start_at: None,
            end_at: None,
            paused: None,
        }
    }

    /// A schedule that fires by a cron pattern.
    pub fn cron(pattern: impl Into<String>, job: ScheduledJob) -> Self {
        Self::of(Some(pattern.into()), None, job)
    }

    /// A schedule that fires every so many milliseconds.
    pub fn every_ms(ms: i64, job: ScheduledJob) -> Self {
        Self::of(None, Some(ms), job)
    }

    /// A schedule as it came over the wire, where either may be missing or both be there.
    pub fn either(cron: Option<String>, every_ms: Option<i64>, job: ScheduledJob) -> Self {
        Self::of(cron, every_ms, job)
    }
}

macro_rules! setters {
    ($($(#[$about:meta])* $field:ident: $type:ty;)*) => {
        impl ScheduleRequest {
            $(
                $(#[$about])*
                pub fn $field(mut self, $field: $type) -> Self {
                    self.$field = Some($field.into());
                    self
                }
            )*
        }
    };
}

setters! {
    /// Sets the time zone, by its IANA name.
    tz: impl Into<String>;
    /// Sets what the ticks of an interval are counted from.
    anchor_at: Timestamp;
    /// Sets what a tick does while a job of the schedule is unfinished.
    overlap: Overlap;
    /// Sets what becomes of ticks that nobody was there for.
    catch_up: CatchUp;
    /// Sets how many missed ticks `catch_up: all` makes up for at most.
    catch_up_max: i64;
    /// Sets how old a missed tick may be to be made up for.
    catch_up_window_ms: i64;
    /// Sets how long after its tick a job may start.
    jitter_ms: i64;
    /// Sets the time before which there is no tick.
    start_at: Timestamp;
    /// Sets the time after which there is no tick.
    end_at: Timestamp;
    /// Sets whether it is put paused.
    paused: bool;
}
