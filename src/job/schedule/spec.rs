//! From a request to a schedule that can be stored: everything is validated here, once, and then carried by the type.

use std::ops::RangeInclusive;
use std::time::Duration;

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use sha2::{Digest, Sha256};

use super::request::{CatchUp, Overlap, ScheduleRequest, ScheduledJob};
use super::timing::{CronTiming, Interval, Timing};
use super::zones;
use crate::job::limits::{
    CATCH_UP_DEFAULT, CATCH_UP_MAX, CATCH_UP_WINDOW_DEFAULT, CATCH_UP_WINDOW_MAX, EVERY_MIN, JITTER_MAX,
    PATTERN_MAX_BYTES, SCHEDULE_HORIZON,
};
use crate::job::template::{Filled, UnknownPlaceholder, filled};
use crate::job::{JobRequest, Json, Kind, NotAName, ScheduleName};

/// Why a schedule is not valid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ScheduleRefusal {
    /// A name is not valid.
    #[error(transparent)]
    Name(#[from] NotAName),
    /// A value is out of range, or two exclude each other.
    #[error("{field} {reason}")]
    #[non_exhaustive]
    Value {
        /// Which field.
        field: &'static str,
        /// What is wrong, and what is allowed.
        reason: String,
    },
    /// The pattern cannot be read.
    #[error(
        "cron {pattern:?} is not a pattern: {reason}; use 5 fields (minute hour day month weekday), 6 with seconds first, \
         or @hourly, @daily, @weekly, @monthly, @yearly"
    )]
    #[non_exhaustive]
    Pattern {
        /// The pattern.
        pattern: String,
        /// What is wrong with it.
        reason: String,
    },
    /// There is no such time within the next five years.
    #[error("cron {pattern:?} never fires: no such time in the next five years")]
    #[non_exhaustive]
    NeverFires {
        /// The pattern.
        pattern: String,
    },
    /// There is no such time zone.
    #[error("tz {tz:?} is not a time zone{}; use an IANA name such as Europe/Berlin, or UTC", did_you_mean(close))]
    #[non_exhaustive]
    UnknownZone {
        /// What was given.
        tz: String,
        /// Zones with a similar name.
        close: Vec<String>,
    },
    /// The payload has a placeholder that there is no value for.
    #[error(
        "payload has the unknown placeholder {{{{{name}}}}}: use {{{{tick}}}}, {{{{tick_local}}}}, {{{{tick_unix}}}}, \
         {{{{previous_tick}}}} or {{{{schedule}}}}"
    )]
    #[non_exhaustive]
    UnknownPlaceholder {
        /// The placeholder.
        name: String,
    },
}

fn did_you_mean(close: &[String]) -> String {
    if close.is_empty() { String::new() } else { format!(" (did you mean {}?)", close.join(" or ")) }
}

/// A validated schedule. Cheap enough to make anew from what is stored at every tick.
#[derive(Debug, Clone)]
pub struct ScheduleSpec {
    request: ScheduleRequest,
    kind: Kind,
    pub(super) timing: Timing,
    pub(super) zone: TimeZone,
}

impl PartialEq for ScheduleSpec {
    /// Made of the same request.
    fn eq(&self, other: &Self) -> bool {
        self.stored_text() == other.stored_text()
    }
}

impl ScheduleSpec {
    /// Validates a request. `now` is only used to see that it ever fires; what is due is decided by the store.
    pub fn new(request: ScheduleRequest, now: Timestamp) -> Result<Self, ScheduleRefusal> {
        let spec = Self::compiled(request)?;
        spec.check_values()?;
        let first = spec.timing.next(spec.request.start_at.unwrap_or(now).max(now));
        match (first, &spec.request.cron) {
            (Some(first), _) if first.duration_since(now) <= horizon() || spec.request.start_at.is_some() => Ok(spec),
            (_, Some(pattern)) => Err(ScheduleRefusal::NeverFires { pattern: pattern.clone() }),
            (_, None) => Err(value("every_ms", "has no tick in the next five years".into())),
        }
    }

    /// Reads what [`stored_text`](Self::stored_text) wrote; an error says why it cannot be read.
    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    pub(crate) fn from_stored(text: &str) -> Result<Self, String> {
        let request = serde_json::from_str(text).map_err(|error| format!("its spec cannot be read: {error}"))?;
        Self::compiled(request).map_err(|error| error.to_string())
    }

    /// As it is stored.
    pub(crate) fn stored_text(&self) -> String {
        // Strings, numbers and JSON that came as JSON: all of it can be written.
        serde_json::to_string(&self.request).unwrap_or_default()
    }

    fn compiled(request: ScheduleRequest) -> Result<Self, ScheduleRefusal> {
        let zone = match request.tz.as_deref() {
            Some(name) => zones::zone(name)
                .map_err(|close| ScheduleRefusal::UnknownZone { tz: name.chars().take(64).collect(), close })?,
            None => TimeZone::UTC,
        };
        let timing = match (&request.cron, request.every_ms) {
            (Some(pattern), None) => Timing::Cron(Box::new(cron(pattern, zone.clone())?)),
            (None, Some(ms)) => {
                let every = within("every_ms", Some(ms), ms_range(EVERY_MIN, SCHEDULE_HORIZON))?.unwrap_or(ms);
                // Stores keep microseconds.
                let anchor = request.anchor_at.unwrap_or(Timestamp::UNIX_EPOCH).as_microsecond();
                let anchor = Timestamp::from_microsecond(anchor).unwrap_or(Timestamp::UNIX_EPOCH);
                Timing::Every(Interval { every_ns: i128::from(every) * 1_000_000, anchor })
            }
            (Some(_), Some(_)) => {
                return Err(value("every_ms", "and cron exclude each other: send one of them".into()));
            }
            (None, None) => return Err(value("cron", "or every_ms is required".into())),
        };
        Ok(Self { kind: Kind::new(&request.job.kind)?, request, timing, zone })
    }

    fn check_values(&self) -> Result<(), ScheduleRefusal> {
        let request = &self.request;
        within("catch_up_max", request.catch_up_max, 1..=CATCH_UP_MAX.into())?;
        within("catch_up_window_ms", request.catch_up_window_ms, ms_range(Duration::ZERO, CATCH_UP_WINDOW_MAX))?;
        within("jitter_ms", request.jitter_ms, ms_range(Duration::ZERO, JITTER_MAX))?;
        if request.anchor_at.is_some() && request.cron.is_some() {
            return Err(value("anchor_at", "is for every_ms; a cron pattern has no anchor".into()));
        }
        if let (Some(start), Some(end)) = (request.start_at, request.end_at)
            && end < start
        {
            return Err(value("end_at", format!("{end} is before start_at {start}")));
        }
        // With any tick: which placeholders there are does not depend on it.
        let name = ScheduleName::new("example")?;
        self.payload(&name, Timestamp::UNIX_EPOCH).map(drop)
    }

    /// The request that it was made of.
    pub fn request(&self) -> &ScheduleRequest {
        &self.request
    }

    /// The kind of its jobs.
    pub fn kind(&self) -> &Kind {
        &self.kind
    }

    /// The job that each tick enqueues.
    pub fn job(&self) -> &ScheduledJob {
        &self.request.job
    }

    /// What a tick does while a job of the schedule is unfinished.
    pub fn overlap(&self) -> Overlap {
        self.request.overlap.unwrap_or_default()
    }

    /// What becomes of ticks that nobody was there for.
    pub fn catch_up(&self) -> CatchUp {
        self.request.catch_up.unwrap_or_default()
    }

    /// How many missed ticks `catch_up: all` makes up for at most.
    pub fn catch_up_max(&self) -> usize {
        self.request.catch_up_max.map_or(CATCH_UP_DEFAULT as usize, |max| max.clamp(1, CATCH_UP_MAX.into()) as usize)
    }

    /// How old a missed tick may be to be made up for.
    pub fn catch_up_window(&self) -> Duration {
        self.request.catch_up_window_ms.map_or(CATCH_UP_WINDOW_DEFAULT, |ms| Duration::from_millis(ms.max(0) as u64))
    }

    /// The first tick after this time, within `start_at` and `end_at`.
    pub fn next(&self, after: Timestamp) -> Option<Timestamp> {
        let after = match self.request.start_at {
            Some(start) => after.max(start.checked_sub(SignedDuration::from_nanos(1)).ok()?),
            None => after,
        };
        self.timing.next(after).filter(|tick| self.request.end_at.is_none_or(|end| *tick <= end))
    }

    /// The last tick before this time, within `start_at` and `end_at`.
    pub fn previous(&self, before: Timestamp) -> Option<Timestamp> {
        let before = match self.request.end_at {
            Some(end) => before.min(end.checked_add(SignedDuration::from_nanos(1)).ok()?),
            None => before,
        };
        self.timing.previous(before).filter(|tick| self.request.start_at.is_none_or(|start| *tick >= start))
    }

    /// The last tick at this time or before it.
    pub(super) fn last_at(&self, now: Timestamp) -> Option<Timestamp> {
        self.previous(now.checked_add(SignedDuration::from_nanos(1)).ok()?)
    }

    /// The payload of this tick's job.
    pub(crate) fn payload(&self, name: &ScheduleName, tick: Timestamp) -> Result<Json, ScheduleRefusal> {
        let fill = |placeholder: &str| match placeholder {
            "tick" => Some(Filled::Text(tick.to_string())),
            "tick_local" => Some(Filled::Text(tick.to_zoned(self.zone.clone()).to_string())),
            "tick_unix" => Some(Filled::Number(tick.as_second())),
            "previous_tick" => Some(self.previous(tick).map_or(Filled::Null, |tick| Filled::Text(tick.to_string()))),
            "schedule" => Some(Filled::Text(name.to_string())),
            _ => None,
        };
        let unknown = |UnknownPlaceholder(name)| ScheduleRefusal::UnknownPlaceholder { name };
        filled(&self.request.job.payload, fill).map_err(unknown)
    }

    /// The request for this tick's job: the same in every process. Its key is the second fence against a second job.
    pub(crate) fn job_request(&self, name: &ScheduleName, tick: Timestamp) -> Result<JobRequest, ScheduleRefusal> {
        let request = self.request.job.request(self.payload(name, tick)?);
        let start = tick.checked_add(self.jitter(name, tick)).unwrap_or(tick);
        Ok(request.run_at(start).idempotency_key(tick_key(name, tick)))
    }

    /// The same in every process: made of the name and the tick.
    fn jitter(&self, name: &ScheduleName, tick: Timestamp) -> SignedDuration {
        let span = self.request.jitter_ms.unwrap_or(0).max(0) as u64;
        if span == 0 {
            return SignedDuration::ZERO;
        }
        let hash = Sha256::digest(tick_key(name, tick).as_bytes());
        let drawn = hash.iter().take(8).fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte));
        SignedDuration::from_millis((drawn % span) as i64)
    }
}

/// The idempotency key of a tick's job.
fn tick_key(name: &ScheduleName, tick: Timestamp) -> String {
    format!("schedule:{name}:{tick}")
}

fn cron(pattern: &str, zone: TimeZone) -> Result<CronTiming, ScheduleRefusal> {
    let refuse = |reason: String| ScheduleRefusal::Pattern { pattern: pattern.chars().take(64).collect(), reason };
    if pattern.len() > PATTERN_MAX_BYTES || !pattern.is_ascii() {
        return Err(refuse(format!("it is not up to {PATTERN_MAX_BYTES} characters of ASCII")));
    }
    let fields: Vec<&str> = pattern.split_whitespace().collect();
    let hour = match fields.as_slice() {
        [nickname] if nickname.starts_with('@') => {
            if nickname.eq_ignore_ascii_case("@hourly") {
                "*"
            } else {
                "0"
            }
        }
        [_, hour, _, _, _] | [_, _, hour, _, _, _] => *hour,
        fields => return Err(refuse(format!("it has {} fields", fields.len()))),
    };
    let parser = croner::parser::CronParser::builder()
        .seconds(croner::parser::Seconds::Optional)
        .year(croner::parser::Year::Disallowed)
        .build();
    let cron = parser.parse(pattern).map_err(|error| refuse(error.to_string()))?;
    Ok(CronTiming { cron, hour_has_star: hour.contains('*'), zone })
}

fn horizon() -> SignedDuration {
    SignedDuration::try_from(SCHEDULE_HORIZON).unwrap_or(SignedDuration::MAX)
}

fn value(field: &'static str, reason: String) -> ScheduleRefusal {
    ScheduleRefusal::Value { field, reason }
}

fn ms_range(from: Duration, to: Duration) -> RangeInclusive<i64> {
    from.as_millis() as i64..=to.as_millis() as i64
}

fn within(field: &'static str, given: Option<i64>, range: RangeInclusive<i64>) -> Result<Option<i64>, ScheduleRefusal> {
    match given {
        Some(given) if !range.contains(&given) => {
            Err(value(field, format!("{given} is out of range: use {} to {}", range.start(), range.end())))
        }
        other => Ok(other),
    }
}
