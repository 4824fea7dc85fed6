//! due_schedules, tick_schedules: which schedules are to be looked at, and what a look changes.

use std::collections::{HashMap, HashSet};

use deadpool_postgres::Transaction;
use jiff::Timestamp;
use tokio::time::timeout;
use uuid::Uuid;

use super::core::{Core, decode};
use super::enqueue::{insert, insert_sql};
use super::error::{DbError, Effect, Retries};
use super::row;
use super::schedules::{in_transaction, schedule_columns, schedule_from};
use crate::job::limits::TICKS_KEPT;
use crate::job::schedule::{DueSchedule, TickFate, TickRecord, UnfinishedJob};
use crate::job::{JobId, JobRecord, NewJob, ScheduleName};
use crate::store::{DueSchedules, PerItem, ScheduleTicked, SchedulesDue, StoreError, StoreErrorKind, TickSchedule};

/// The unfinished among the newest 20 jobs of a schedule (as `s`), and its last one. An older one that a person redrives
/// is not looked for.
macro_rules! unfinished {
    () => {
        "SCHEMA.jobs j
         WHERE j.finished_at IS NULL
           AND j.id = ANY (ARRAY(SELECT t.job_id FROM SCHEMA.schedule_ticks t WHERE t.name = s.name
                                 ORDER BY t.tick DESC LIMIT 20) || s.last_job_id)"
    };
}

pub(super) const DUE_SCHEDULES: &str = concat!(
    "-- due_schedules: a tick is due, one is held, or the clock was ahead when it was last changed
SELECT now(), (SELECT min(w.wake_at) FROM SCHEMA.schedules w WHERE w.wake_at > now()),
       ARRAY(SELECT j.id FROM ",
    unfinished!(),
    " ORDER BY j.id), ARRAY(SELECT j.cancel_requested FROM ",
    unfinished!(),
    " ORDER BY j.id), ",
    schedule_columns!(),
    "
FROM (SELECT) one LEFT JOIN (
    (SELECT * FROM SCHEMA.schedules d WHERE d.wake_at <= now() ORDER BY d.wake_at, d.name LIMIT $1)
    UNION ALL
    (SELECT * FROM SCHEMA.schedules d WHERE d.updated_at > now() + interval '1 second' AND d.wake_at > now() LIMIT $1)
    LIMIT $1
) s ON true"
);

pub(super) const LOCK_DUE: &str = concat!(
    "-- lock_due: those that are still as they were read; who holds one now has been first
SELECT s.name, now()
FROM unnest($1::text[], $2::bigint[], $3::timestamptz[], $4::timestamptz[], $5::uuid[], $6::boolean[])
         AS t(name, revision, next_at, held_tick, last_job_id, needs_idle)
     JOIN SCHEMA.schedules s ON s.name = t.name
WHERE NOT s.paused AND s.revision = t.revision
  AND s.next_at IS NOT DISTINCT FROM t.next_at AND s.held_tick IS NOT DISTINCT FROM t.held_tick
  AND s.last_job_id IS NOT DISTINCT FROM t.last_job_id
  AND (NOT t.needs_idle OR NOT EXISTS (SELECT FROM ",
    unfinished!(),
    "))
ORDER BY s.name
FOR UPDATE OF s SKIP LOCKED"
);

pub(super) const WRITE_TICKED: &str = "\
-- write_ticked: what the looks came to
UPDATE SCHEMA.schedules s
SET next_at = t.next_at, wake_at = t.wake_at, last_tick_at = t.last_tick_at, held_tick = t.held_tick,
    last_job_id = coalesce(t.last_job_id, s.last_job_id), fired = s.fired + t.fired, skipped = s.skipped + t.skipped,
    missed = s.missed + t.missed, refused = s.refused + t.refused, last_error = coalesce(t.last_error, s.last_error),
    last_skip_tick = coalesce(t.skip_tick, s.last_skip_tick),
    last_skip_reason = coalesce(t.skip_reason, s.last_skip_reason), updated_at = now()
FROM unnest($1::text[], $2::timestamptz[], $3::timestamptz[], $4::timestamptz[], $5::timestamptz[], $6::uuid[],
            $7::bigint[], $8::bigint[], $9::bigint[], $10::bigint[], $11::text[], $12::timestamptz[], $13::text[])
         AS t(name, next_at, wake_at, last_tick_at, held_tick, last_job_id, fired, skipped, missed, refused, last_error,
              skip_tick, skip_reason)
WHERE s.name = t.name";

pub(super) const RECORD_TICKS: &str = "\
-- record_ticks: what became of them
INSERT INTO SCHEMA.schedule_ticks AS k (name, tick, fate, job_id, at, reason)
SELECT t.* FROM unnest($1::text[], $2::timestamptz[], $3::text[], $4::uuid[], $5::timestamptz[], $6::text[])
                    AS t(name, tick, fate, job_id, at, reason)
ON CONFLICT (name, tick) DO UPDATE
SET fate = excluded.fate, job_id = excluded.job_id, at = excluded.at, reason = excluded.reason
-- A tick that has its job keeps it, also if the clock comes by it again.
WHERE k.fate <> 'fired' OR excluded.fate = 'fired'";

pub(super) const TRIM_TICKS: &str = "\
-- trim_ticks: keeps the newest of each schedule
DELETE FROM SCHEMA.schedule_ticks k
USING unnest($1::text[]) AS n(name)
WHERE k.name = n.name
  AND k.tick < (SELECT t.tick FROM SCHEMA.schedule_ticks t WHERE t.name = n.name ORDER BY t.tick DESC LIMIT 1 OFFSET $2)";

pub(super) async fn due_schedules(core: &Core, due: DueSchedules) -> Result<SchedulesDue, StoreError> {
    let verb = "due_schedules";
    let limit = due.limit as i64;
    let rows = core.query(verb, Effect::Repeatable, &core.sql.due_schedules, &[&limit]).await?;
    let first = rows.first().ok_or_else(|| StoreError::new(StoreErrorKind::Internal, verb))?;
    let now = decode(verb, row::time(first, 0))?.unwrap_or_default();
    let next_wake_at = decode(verb, row::time(first, 1))?;
    let read = |row| {
        let ids: Vec<Uuid> = tokio_postgres::Row::try_get(row, 2)?;
        let flags: Vec<bool> = row.try_get(3)?;
        let unfinished = ids.into_iter().zip(flags).map(|(id, flag)| UnfinishedJob::new(row::id(id), flag)).collect();
        Ok(DueSchedule::new(schedule_from(row, 4)?, unfinished))
    };
    let is_there = |row: &&tokio_postgres::Row| matches!(row.try_get::<_, Option<&str>>(4), Ok(Some(_)));
    let due = rows.iter().filter(is_there).map(|row| decode(verb, read(row)));
    Ok(SchedulesDue::new(now, due.collect::<Result<_, _>>()?, next_wake_at))
}

/// What was decided of schedules, in one transaction; if one of them is at fault, each in its own.
pub(super) async fn tick_schedules(core: &Core, ticks: Vec<TickSchedule>) -> PerItem<ScheduleTicked> {
    match tick_together(core, &ticks).await {
        Ok(answers) => Ok(answers.into_iter().map(Ok).collect()),
        Err(error) if ticks.len() > 1 && error.kind() == StoreErrorKind::Rejected => {
            let mut answers = Vec::with_capacity(ticks.len());
            for one in &ticks {
                let alone = tick_together(core, std::slice::from_ref(one)).await;
                answers.push(alone.map(|mut answers| answers.pop().unwrap_or(ScheduleTicked::Lost)));
            }
            Ok(answers)
        }
        Err(error) if error.kind() == StoreErrorKind::Rejected => Ok(vec![Err(error)]),
        Err(error) => Err(error),
    }
}

async fn tick_together(core: &Core, ticks: &[TickSchedule]) -> Result<Vec<ScheduleTicked>, StoreError> {
    let done: Result<Applied, StoreError> = in_transaction!(core, "tick_schedules", |tx| try_tick(core, &tx, ticks));
    let mut done = done?;
    if !done.jobs.is_empty() {
        core.lower(done.jobs.iter());
        if done.jobs.iter().any(|job| job.run_at <= job.created_at) {
            core.notifier.notify();
        }
    }
    let answer = |one: &TickSchedule| match done.new.remove(&one.name) {
        Some(new) => ScheduleTicked::Applied(new),
        None => ScheduleTicked::Lost,
    };
    Ok(ticks.iter().map(answer).collect())
}

/// What a transaction has applied.
#[derive(Default)]
struct Applied {
    /// The new jobs of each schedule that was still as it was read.
    new: HashMap<ScheduleName, Vec<JobId>>,
    jobs: Vec<JobRecord>,
}

async fn try_tick(core: &Core, tx: &Transaction<'_>, ticks: &[TickSchedule]) -> Result<Applied, DbError> {
    let (won, now) = lock_due(core, tx, ticks).await?;
    let mut applied = Applied::default();
    if won.is_empty() {
        return Ok(applied);
    }
    let won: Vec<&TickSchedule> = ticks.iter().filter(|one| won.contains(one.name.as_str())).collect();
    let jobs: Vec<&NewJob> = won.iter().flat_map(|one| one.jobs.iter().map(|(_, job)| job)).collect();
    let mut stored = HashMap::new();
    if !jobs.is_empty() {
        let statement = tx.prepare_cached(insert_sql(&core.sql, &jobs)).await?;
        stored = insert(&**tx, &statement, &jobs, None).await?.new;
    }
    let cancel: Vec<Uuid> = won.iter().flat_map(|one| one.tick.cancel.iter().map(|id| *id.as_uuid())).collect();
    if !cancel.is_empty() {
        let statement = tx.prepare_cached(&core.sql.cancel_unaudited).await?;
        tx.execute(&statement, &[&cancel]).await?;
    }
    let mut records = NewTicks::default();
    for one in &won {
        let mut new = Vec::new();
        one.tick.unstarted.iter().for_each(|tick| records.add(&one.name, tick));
        for (at, job) in &one.jobs {
            // A tick that has a job already has no second.
            let Some((run_at, created_at)) = stored.get(job.id().as_uuid()) else { continue };
            new.push(job.id());
            applied.jobs.push(job.as_stored(*run_at, *created_at));
            records.add(&one.name, &TickRecord::new(*at, TickFate::Fired, now).job(job.id()));
        }
        for (at, why) in &one.refused {
            records.add(&one.name, &TickRecord::new(*at, TickFate::Refused, now).reason(why.clone()));
        }
        applied.new.insert(one.name.clone(), new);
    }
    write_ticked(core, tx, &won, &applied).await?;
    write_ticks(core, tx, &records).await?;
    Ok(applied)
}

async fn lock_due(
    core: &Core,
    tx: &Transaction<'_>,
    ticks: &[TickSchedule],
) -> Result<(HashSet<String>, Timestamp), DbError> {
    let names: Vec<&str> = ticks.iter().map(|one| one.name.as_str()).collect();
    let revisions: Vec<i64> = ticks.iter().map(|one| one.revision as i64).collect();
    let next: Vec<Option<Timestamp>> = ticks.iter().map(|one| one.expected_next_at).collect();
    let held: Vec<Option<Timestamp>> = ticks.iter().map(|one| one.expected_held_tick).collect();
    let last: Vec<Option<Uuid>> = ticks.iter().map(|one| one.expected_last_job_id.map(|id| *id.as_uuid())).collect();
    let needs_idle: Vec<bool> = ticks.iter().map(|one| one.tick.needs_idle).collect();
    let statement = tx.prepare_cached(&core.sql.lock_due).await?;
    let rows = tx.query(&statement, &[&names, &revisions, &next, &held, &last, &needs_idle]).await?;
    let now = rows.first().map(|row| row::time(row, 1)).transpose()?.flatten().unwrap_or_default();
    let won = rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?;
    Ok((won, now))
}

async fn write_ticked(
    core: &Core,
    tx: &Transaction<'_>,
    won: &[&TickSchedule],
    applied: &Applied,
) -> Result<(), DbError> {
    let column = |get: fn(&TickSchedule) -> Option<Timestamp>| won.iter().map(|one| get(one)).collect::<Vec<_>>();
    let count = |get: fn(&TickSchedule) -> u64| won.iter().map(|one| get(one) as i64).collect::<Vec<_>>();
    let names: Vec<&str> = won.iter().map(|one| one.name.as_str()).collect();
    let new = |one: &TickSchedule| applied.new.get(&one.name).map(Vec::as_slice).unwrap_or_default();
    let last: Vec<Option<Uuid>> = won.iter().map(|one| new(one).last().map(|id| *id.as_uuid())).collect();
    let fired: Vec<i64> = won.iter().map(|one| new(one).len() as i64).collect();
    let error = |one: &&TickSchedule| one.refused.last().map(|(_, why)| why.clone()).or_else(|| one.tick.error.clone());
    let errors: Vec<Option<String>> = won.iter().map(error).collect();
    let reason = |one: &&TickSchedule| one.tick.last_skip.as_ref().map(|skip| skip.reason.clone());
    let reasons: Vec<Option<String>> = won.iter().map(reason).collect();
    let statement = tx.prepare_cached(&core.sql.write_ticked).await?;
    tx.execute(
        &statement,
        &[
            &names,
            &column(|one| one.tick.next_at),
            &column(|one| one.tick.wake_at),
            &column(|one| one.tick.last_tick_at),
            &column(|one| one.tick.held_tick),
            &last,
            &fired,
            &count(|one| one.tick.skipped),
            &count(|one| one.tick.missed),
            &count(|one| one.refused.len() as u64),
            &errors,
            &column(|one| one.tick.last_skip.as_ref().map(|skip| skip.tick)),
            &reasons,
        ],
    )
    .await?;
    Ok(())
}

/// Ticks to be recorded, each once.
#[derive(Default)]
pub(super) struct NewTicks {
    seen: HashSet<(String, Timestamp)>,
    names: Vec<String>,
    ticks: Vec<Timestamp>,
    fates: Vec<&'static str>,
    jobs: Vec<Option<Uuid>>,
    at: Vec<Timestamp>,
    reasons: Vec<Option<String>>,
}

impl NewTicks {
    pub(super) fn add(&mut self, name: &ScheduleName, tick: &TickRecord) {
        if !self.seen.insert((name.to_string(), tick.tick)) {
            return;
        }
        self.names.push(name.to_string());
        self.ticks.push(tick.tick);
        self.fates.push(tick.fate.as_str());
        self.jobs.push(tick.job_id.map(|id| *id.as_uuid()));
        self.at.push(tick.at);
        self.reasons.push(tick.reason.clone());
    }
}

pub(super) async fn write_ticks(core: &Core, tx: &Transaction<'_>, new: &NewTicks) -> Result<(), DbError> {
    if new.names.is_empty() {
        return Ok(());
    }
    let statement = tx.prepare_cached(&core.sql.record_ticks).await?;
    tx.execute(&statement, &[&new.names, &new.ticks, &new.fates, &new.jobs, &new.at, &new.reasons]).await?;
    let mut names = new.names.clone();
    names.dedup();
    let statement = tx.prepare_cached(&core.sql.trim_ticks).await?;
    tx.execute(&statement, &[&names, &(TICKS_KEPT as i64 - 1)]).await?;
    Ok(())
}
