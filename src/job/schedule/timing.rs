//! When a schedule fires: the next and the previous tick, a pure function of the pattern, the zone and a time.
//!
//! Daylight saving, by the hour field of the pattern, as in Vixie cron:
//!
//! | | the hour field has a `*` | the hour field names hours (`2`, `2,3`, `1-4`) |
//! |---|---|---|
//! | clocks go forward | times in the gap do not exist and are not made up for | each such time runs once, at the end of the gap; two that fall together are one tick |
//! | clocks go back | both passes run | the first pass only |
//!
//! croner treats a list or a range of hours as a wildcard across such a change. Therefore, where hours are named, it
//! searches on civil time, and the step to an instant is taken here.

use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{SignedDuration, Timestamp};

/// When a schedule fires.
#[derive(Debug, Clone)]
pub(super) enum Timing {
    Cron(Box<CronTiming>),
    Every(Interval),
}

#[derive(Debug, Clone)]
pub(super) struct CronTiming {
    pub(super) cron: croner::Cron,
    /// The hour field has a `*`: real time goes on, whatever the clocks on the wall do.
    pub(super) hour_has_star: bool,
    pub(super) zone: TimeZone,
}

/// Ticks at `anchor + n * every`, of elapsed time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Interval {
    pub(super) every_ns: i128,
    pub(super) anchor: Timestamp,
}

impl Timing {
    /// The first tick after this time.
    pub(super) fn next(&self, after: Timestamp) -> Option<Timestamp> {
        match self {
            Self::Cron(cron) => cron.next(after),
            Self::Every(interval) => interval.tick(interval.index(after).checked_add(1)?),
        }
    }

    /// The last tick before this time.
    pub(super) fn previous(&self, before: Timestamp) -> Option<Timestamp> {
        match self {
            Self::Cron(cron) => cron.previous(before),
            Self::Every(interval) => interval.tick(interval.index(before.checked_sub(NANOSECOND).ok()?)),
        }
    }
}

const NANOSECOND: SignedDuration = SignedDuration::from_nanos(1);

impl Interval {
    /// Of the last tick at or before this time.
    fn index(&self, at: Timestamp) -> i128 {
        (at.as_nanosecond() - self.anchor.as_nanosecond()).div_euclid(self.every_ns)
    }

    /// How many ticks there are from one to another.
    pub(super) fn count(&self, first: Timestamp, last: Timestamp) -> u64 {
        u64::try_from(self.index(last) - self.index(first) + 1).unwrap_or(0)
    }

    fn tick(&self, index: i128) -> Option<Timestamp> {
        let since_anchor = index.checked_mul(self.every_ns)?;
        Timestamp::from_nanosecond(self.anchor.as_nanosecond().checked_add(since_anchor)?).ok()
    }
}

/// The second that this time is in, since 1970.
fn whole_second(at: Timestamp) -> i64 {
    at.as_nanosecond().div_euclid(1_000_000_000) as i64
}

impl CronTiming {
    /// Its ticks are whole seconds; croner passes over fractions.
    fn next(&self, after: Timestamp) -> Option<Timestamp> {
        let after = Timestamp::from_second(whole_second(after)).ok()?;
        let zoned = after.to_zoned(self.zone.clone());
        if self.hour_has_star {
            return Some(self.cron.find_next_occurrence(&zoned, false).ok()?.timestamp());
        }
        let mut civil = zoned.datetime();
        loop {
            civil = self.cron.find_next_occurrence(&civil, false).ok()?;
            let at = self.instant(civil)?;
            // Not later: another time of the same gap, or one whose first pass is over.
            if at > after {
                return Some(at);
            }
        }
    }

    fn previous(&self, before: Timestamp) -> Option<Timestamp> {
        let whole = Timestamp::from_second(whole_second(before)).ok()?;
        // A tick at the second that `before` is in is before it.
        let before = if whole < before { whole.checked_add(SignedDuration::from_secs(1)).ok()? } else { whole };
        if self.hour_has_star {
            let zoned = before.to_zoned(self.zone.clone());
            return Some(self.cron.find_previous_occurrence(&zoned, false).ok()?.timestamp());
        }
        let mut civil = self.civil_bound(before)?;
        loop {
            civil = self.cron.find_previous_occurrence(&civil, false).ok()?;
            let at = self.instant(civil)?;
            if at < before {
                return Some(at);
            }
        }
    }

    /// A civil time that is later than every one whose instant is before this one. In the second pass of an hour that
    /// is the hour's end: the first pass has had all of it.
    fn civil_bound(&self, before: Timestamp) -> Option<DateTime> {
        let zoned = before.to_zoned(self.zone.clone());
        let civil = zoned.datetime();
        match self.zone.to_ambiguous_zoned(civil).offset() {
            AmbiguousOffset::Fold { before: first, after: second } if zoned.offset() == second => {
                let change = self.change_before(before)?;
                Some(first.to_datetime(change))
            }
            _ => Some(civil),
        }
    }

    /// The instant of a civil time: of two the first, of none the end of the gap.
    fn instant(&self, civil: DateTime) -> Option<Timestamp> {
        let at = self.zone.to_ambiguous_zoned(civil);
        match at.offset() {
            AmbiguousOffset::Unambiguous { .. } => Some(at.compatible().ok()?.timestamp()),
            AmbiguousOffset::Fold { .. } => Some(at.earlier().ok()?.timestamp()),
            // Not `compatible()`, with which 02:30 would be 03:30.
            AmbiguousOffset::Gap { .. } => self.change_before(at.compatible().ok()?.timestamp()),
        }
    }

    /// The last change of the clocks, at or before this time.
    fn change_before(&self, at: Timestamp) -> Option<Timestamp> {
        let just_after = at.checked_add(SignedDuration::from_secs(1)).ok()?;
        Some(self.zone.preceding(just_after).next()?.timestamp())
    }

    /// Whether the clocks show a time of the pattern at this tick; if not, the time that was meant does not exist.
    pub(super) fn is_shown_at(&self, tick: Timestamp) -> bool {
        self.cron.is_time_matching(&tick.to_zoned(self.zone.clone()).datetime()).unwrap_or(true)
    }
}
