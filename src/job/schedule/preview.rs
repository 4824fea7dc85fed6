//! What a schedule will do, for people to read: the runs to come, with a note where the clocks change, and a description.

use jiff::Timestamp;

use super::spec::ScheduleSpec;
use super::timing::Timing;
use crate::job::limits::PREVIEW_MAX;

/// One run to come.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Run {
    /// The tick.
    pub at: Timestamp,
    /// The same in the schedule's zone, with offset and zone.
    pub local: String,
    /// What daylight saving does to it: the clocks have changed since the run before, or the time that was meant does not
    /// exist on that day.
    pub note: Option<String>,
}

impl ScheduleSpec {
    /// The next runs after this time, at most 100.
    pub fn preview(&self, after: Timestamp, count: usize) -> Vec<Run> {
        let mut before = after.to_zoned(self.zone.clone()).offset();
        let mut runs = Vec::new();
        let mut tick = self.next(after);
        while let Some(at) = tick.filter(|_| runs.len() < count.min(PREVIEW_MAX)) {
            let zoned = at.to_zoned(self.zone.clone());
            let changed_by = zoned.offset().seconds() - before.seconds();
            let mut notes = Vec::new();
            if changed_by != 0 {
                let direction = if changed_by > 0 { "forward" } else { "back" };
                let by = span(changed_by.unsigned_abs().into());
                notes.push(format!("clocks went {direction} by {by} since the run before"));
            }
            if let Timing::Cron(cron) = &self.timing
                && !cron.is_shown_at(at)
            {
                notes.push("the time that was meant does not exist on this day: runs at the end of the gap".into());
            }
            before = zoned.offset();
            runs.push(Run { at, local: zoned.to_string(), note: (!notes.is_empty()).then(|| notes.join("; ")) });
            tick = self.next(at);
        }
        runs
    }

    /// The pattern or interval in words.
    pub fn describe(&self) -> String {
        match &self.timing {
            Timing::Cron(cron) => cron.cron.describe().trim_end_matches('.').to_owned(),
            Timing::Every(interval) => match interval.every_ns % 1_000_000_000 {
                0 => format!("Every {}", span((interval.every_ns / 1_000_000_000) as u64)),
                _ => format!("Every {} ms", interval.every_ns / 1_000_000),
            },
        }
    }
}

/// So many seconds, in the largest unit that they are a multiple of.
fn span(seconds: u64) -> String {
    let units = [(86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second")];
    let (size, unit) = units.into_iter().find(|(size, _)| seconds.is_multiple_of(*size)).unwrap_or((1, "second"));
    let count = seconds / size;
    if count == 1 { format!("1 {unit}") } else { format!("{count} {unit}s") }
}
