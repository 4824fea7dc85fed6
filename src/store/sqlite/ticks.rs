//! due_schedules, tick_schedules: which schedules are to be looked at, and what a look changes.

use rusqlite::{Connection, params};

use super::enqueue::enqueue_unless_known;
use super::inbox::{Urgency, Verb};
use super::jobs::cancel;
use super::row::{UuidBlob, micros, timestamp};
use super::schedules::{read_schedule, schedule, schedule_columns};
use super::transaction::Tx;
use crate::job::ScheduleName;
use crate::job::limits::TICKS_KEPT;
use crate::job::schedule::{DueSchedule, TickFate, TickRecord, UnfinishedJob};
use crate::store::{DueSchedules, ScheduleTicked, SchedulesDue, StoreError, TickSchedule};

const DUE: &str = concat!(
    "-- due_schedules: a tick is due, one is held, or the clock was ahead when it was last changed
     SELECT ",
    schedule_columns!(),
    " FROM (SELECT * FROM schedules WHERE wake_at <= ?1 ORDER BY wake_at, name LIMIT ?2)
      UNION ALL
      SELECT ",
    schedule_columns!(),
    " FROM (SELECT * FROM schedules WHERE updated_at > ?1 + 1000000 AND wake_at > ?1 LIMIT ?2)
      LIMIT ?2"
);

/// The newest 20 jobs of a schedule, and its last one. An older one that a person redrives is not looked for.
const UNFINISHED: &str = "
SELECT j.id, j.cancel_requested FROM jobs j
WHERE j.finished_at IS NULL
  AND j.id IN (SELECT job_id FROM (SELECT job_id FROM schedule_ticks WHERE name = ?1 ORDER BY tick DESC LIMIT 20)
               UNION SELECT last_job_id FROM schedules WHERE name = ?1)";

pub(super) fn due_schedules(
    connection: &Connection,
    due: DueSchedules,
    now_micros: i64,
) -> rusqlite::Result<SchedulesDue> {
    let mut statement = connection.prepare_cached(DUE)?;
    let rows = statement.query_map(params![now_micros, due.limit], read_schedule)?;
    let mut found = Vec::new();
    for record in rows {
        let record = record?;
        let unfinished = unfinished(connection, &record.name)?;
        found.push(DueSchedule::new(record, unfinished));
    }
    let next_wake: Option<i64> = connection
        .prepare_cached("SELECT min(wake_at) FROM schedules WHERE wake_at > ?1")?
        .query_row([now_micros], |row| row.get(0))?;
    Ok(SchedulesDue::new(timestamp(now_micros), found, next_wake.map(timestamp)))
}

fn unfinished(connection: &Connection, name: &ScheduleName) -> rusqlite::Result<Vec<UnfinishedJob>> {
    let mut statement = connection.prepare_cached(UNFINISHED)?;
    let rows = statement
        .query_map([name.as_str()], |row| Ok(UnfinishedJob::new(row.get::<_, UuidBlob>(0)?.0.into(), row.get(1)?)))?;
    rows.collect()
}

/// What was decided of several schedules.
pub(super) struct TickSchedules(pub(super) Vec<TickSchedule>);

impl Verb for TickSchedules {
    type Answer = Vec<Result<ScheduleTicked, StoreError>>;
    const NAME: &'static str = "tick_schedules";
    const URGENCY: Urgency = Urgency::Urgent;

    fn weight(&self) -> usize {
        self.0.iter().map(|ticked| 1 + ticked.jobs.len()).sum()
    }

    fn apply(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<Self::Answer> {
        tx.each(&self.0, tick)
    }
}

const WRITE: &str = "
UPDATE schedules
SET next_at = ?2, wake_at = ?3, last_tick_at = ?4, held_tick = ?5, last_job_id = coalesce(?6, last_job_id),
    fired = fired + ?7, skipped = skipped + ?8, missed = missed + ?9, refused = refused + ?10,
    last_error = coalesce(?11, last_error), last_skip_tick = coalesce(?12, last_skip_tick),
    last_skip_reason = coalesce(?13, last_skip_reason), updated_at = ?14
WHERE name = ?1";

fn tick(tx: &mut Tx<'_>, ticked: &TickSchedule) -> rusqlite::Result<ScheduleTicked> {
    let now = timestamp(tx.now_micros());
    let is_as_read = schedule(tx.connection(), &ticked.name)?.is_some_and(|found| {
        !found.paused
            && found.revision == ticked.revision
            && found.next_at == ticked.expected_next_at
            && found.held_tick == ticked.expected_held_tick
            && found.last_job_id == ticked.expected_last_job_id
    });
    if !is_as_read || (ticked.tick.needs_idle && !unfinished(tx.connection(), &ticked.name)?.is_empty()) {
        return Ok(ScheduleTicked::Lost);
    }
    let (mut new, mut records) = (Vec::new(), ticked.tick.unstarted.clone());
    let mut last_job = None;
    for (at, job) in &ticked.jobs {
        let enqueued = enqueue_unless_known(tx, job)?;
        last_job = Some(enqueued.job.id);
        if enqueued.created {
            new.push(enqueued.job.id);
            records.push(TickRecord::new(*at, TickFate::Fired, now).job(enqueued.job.id));
        }
    }
    let refused = ticked.refused.iter();
    records.extend(refused.map(|(at, why)| TickRecord::new(*at, TickFate::Refused, now).reason(why.clone())));
    for id in &ticked.tick.cancel {
        cancel(tx, *id)?;
    }
    let decided = &ticked.tick;
    let error = ticked.refused.last().map(|(_, why)| why.as_str()).or(decided.error.as_deref());
    tx.statement(WRITE)?.execute(params![
        ticked.name.as_str(),
        decided.next_at.map(micros),
        decided.wake_at.map(micros),
        decided.last_tick_at.map(micros),
        decided.held_tick.map(micros),
        last_job.map(UuidBlob::from),
        new.len(),
        decided.skipped,
        decided.missed,
        ticked.refused.len(),
        error,
        decided.last_skip.as_ref().map(|skip| micros(skip.tick)),
        decided.last_skip.as_ref().map(|skip| skip.reason.as_str()),
        tx.now_micros(),
    ])?;
    record_ticks(tx, &ticked.name, &records)?;
    trim_ticks(tx, &ticked.name)?;
    Ok(ScheduleTicked::Applied(new))
}

pub(super) fn record_ticks(tx: &Tx<'_>, name: &ScheduleName, records: &[TickRecord]) -> rusqlite::Result<()> {
    let mut statement = tx.statement(
        "INSERT INTO schedule_ticks (name, tick, fate, job_id, at, reason) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
         ON CONFLICT (name, tick) DO UPDATE
         SET fate = excluded.fate, job_id = excluded.job_id, at = excluded.at, reason = excluded.reason
         WHERE schedule_ticks.fate <> 'fired' OR excluded.fate = 'fired'",
    )?;
    for record in records {
        statement.execute(params![
            name.as_str(),
            micros(record.tick),
            record.fate.as_str(),
            record.job_id.map(UuidBlob::from),
            micros(record.at),
            record.reason,
        ])?;
    }
    Ok(())
}

/// Keeps the newest.
pub(super) fn trim_ticks(tx: &Tx<'_>, name: &ScheduleName) -> rusqlite::Result<()> {
    tx.statement(
        "DELETE FROM schedule_ticks
         WHERE name = ?1 AND tick < (SELECT tick FROM schedule_ticks WHERE name = ?1 ORDER BY tick DESC LIMIT 1 OFFSET ?2)",
    )?
    .execute(params![name.as_str(), TICKS_KEPT - 1])?;
    Ok(())
}
