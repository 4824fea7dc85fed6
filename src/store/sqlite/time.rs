//! The store's own time: runs evenly even when somebody sets the machine's clock or the machine sleeps.
//!
//! Leases are measured against it, so a clock that jumps an hour ahead must not expire them all. Time runs on by the
//! monotonic clock; when the time of day turns out to have jumped, the jump is taken over in one step, and everything
//! that was measured from "now" (live leases, delays, backoff, jobs that are due) moves along with it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, params};

use super::row::micros;
use crate::planted::{Bug, planted};
use crate::store::Clock;

/// 1 s: smaller differences are drift between two clocks, not somebody setting one.
const STEP_MIN_MICROS: i64 = 1_000_000;

#[derive(Debug, Clone)]
pub(super) struct StoreTime {
    clock: Arc<dyn Clock>,
    anchor: Arc<Mutex<Anchor>>,
}

#[derive(Debug, Clone, Copy)]
struct Anchor {
    wall_micros: i64,
    elapsed: Duration,
}

/// The time of day jumped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ClockStep {
    pub(super) from_micros: i64,
    pub(super) to_micros: i64,
}

impl StoreTime {
    pub(super) fn start(clock: Arc<dyn Clock>) -> Self {
        let anchor = Anchor { wall_micros: micros(clock.wall()), elapsed: clock.elapsed() };
        Self { clock, anchor: Arc::new(Mutex::new(anchor)) }
    }

    /// Now, in microseconds since 1970.
    pub(super) fn now_micros(&self) -> i64 {
        let anchor = *self.anchor.lock().unwrap_or_else(PoisonError::into_inner);
        let passed = self.clock.elapsed().saturating_sub(anchor.elapsed);
        anchor.wall_micros + passed.as_micros() as i64
    }

    /// The jump to take over, if there was one.
    pub(super) fn clock_step(&self) -> Option<ClockStep> {
        let step = ClockStep { from_micros: self.now_micros(), to_micros: micros(self.clock.wall()) };
        ((step.to_micros - step.from_micros).abs() > STEP_MIN_MICROS).then_some(step)
    }

    /// Goes on from the new time of day; only once the store has moved along ([`shift_times`] is committed).
    pub(super) fn adopt(&self, step: ClockStep) {
        let mut anchor = self.anchor.lock().unwrap_or_else(PoisonError::into_inner);
        anchor.wall_micros += step.to_micros - step.from_micros;
    }
}

/// Moves what was measured from the old now to the new one.
pub(super) fn shift_times(connection: &Connection, step: ClockStep) -> rusqlite::Result<()> {
    let by = step.to_micros - step.from_micros;
    connection.execute(
        "UPDATE jobs INDEXED BY jobs_leased
         SET lease_expires_at = lease_expires_at + ?1, started_at = started_at + ?1
         WHERE lease_expires_at IS NOT NULL",
        [by],
    )?;
    if planted(Bug::DelaysLeftBehind) {
        return Ok(());
    }
    // Delays, backoff and snoozes are durations; what was due stays due. A first start at a time that the caller named is
    // a time of day. `updated_at` goes along: how long after it the job may start is what `adjust_at_open` goes by.
    for waiting in WAITING {
        connection.execute(
            &format!(
                "UPDATE jobs INDEXED BY {waiting} SET run_at = run_at + ?1, updated_at = updated_at + ?1
                 WHERE {} AND run_at >= min(?2, ?3)
                   AND (status = 'retrying' OR run_at_is_wall_clock IS NULL OR run_at <= ?2)",
                waits_in(waiting)
            ),
            params![by, step.from_micros, step.to_micros],
        )?;
    }
    connection.execute(
        "UPDATE workers SET started_at = started_at + ?1, last_fetch_at = last_fetch_at + ?1,
             last_beat_at = last_beat_at + ?1, seen_at = seen_at + ?1",
        [by],
    )?;
    // So are how far a rate has run ahead and how long a key is kept. The deadline of a start is a time of day.
    connection.execute("UPDATE usage SET tat = tat + ?1, updated_at = updated_at + ?1", [by])?;
    connection.execute(
        "UPDATE job_options INDEXED BY job_options_unique_key SET unique_until = unique_until + ?1
         WHERE unique_key IS NOT NULL AND unique_until IS NOT NULL",
        [by],
    )?;
    Ok(())
}

/// The indexes of jobs that wait; each is in one of them.
const WAITING: [&str; 3] = ["jobs_ready", "jobs_ready_grouped", "jobs_strict"];

/// Which of its jobs wait. It names the whole condition of the index, or SQLite would walk the table.
fn waits_in(index: &str) -> &'static str {
    match index {
        "jobs_ready" => "lease_expires_at IS NULL AND finished_at IS NULL AND group_key IS NULL",
        "jobs_ready_grouped" => {
            "lease_expires_at IS NULL AND finished_at IS NULL AND group_key IS NOT NULL \
             AND coalesce(marks, 0) & 8 = 0"
        }
        _ => {
            "lease_expires_at IS NULL AND finished_at IS NULL AND group_key IS NOT NULL \
             AND coalesce(marks, 0) & 8 <> 0"
        }
    }
}

/// On opening: a clock that was set back while nobody was here must not keep a dead worker's lease alive, nor keep
/// waiting jobs back until it has caught up. What was last changed later than now tells that it was.
pub(super) fn adjust_at_open(connection: &Connection, now_micros: i64) -> rusqlite::Result<()> {
    connection.execute(
        "UPDATE jobs INDEXED BY jobs_leased
         SET lease_expires_at = ?1 + lease_ms * 1000, started_at = min(started_at, ?1)
         WHERE lease_expires_at > ?1 + lease_ms * 1000",
        [now_micros],
    )?;
    for waiting in WAITING {
        connection.execute(
            &format!(
                "UPDATE jobs INDEXED BY {waiting} SET run_at = ?1 + max(run_at - updated_at, 0)
                 WHERE {} AND run_at > ?1
                   AND updated_at > ?1 AND (status = 'retrying' OR run_at_is_wall_clock IS NULL OR run_at <= updated_at)",
                waits_in(waiting)
            ),
            [now_micros],
        )?;
    }
    connection.execute(
        "UPDATE usage SET tat = ?1 + max(tat - updated_at, 0), updated_at = ?1 WHERE updated_at > ?1",
        [now_micros],
    )?;
    // No key is kept for longer than its window.
    connection.execute(
        "UPDATE job_options INDEXED BY job_options_unique_key
         SET unique_until = ?1 + coalesce(shown ->> '$.unique.for_ms', 0) * 1000
         WHERE unique_key IS NOT NULL AND unique_until > ?1
           AND unique_until > ?1 + coalesce(shown ->> '$.unique.for_ms', 0) * 1000",
        [now_micros],
    )?;
    connection.execute("UPDATE workers SET seen_at = ?1 WHERE seen_at > ?1", [now_micros])?;
    Ok(())
}
