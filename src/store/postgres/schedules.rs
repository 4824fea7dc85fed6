//! Schedules: put, delete, sync, read, pause, resume, run. What a look at them changes is in `ticks`. Every change locks the
//! schedule's row first, then decides in `job::schedule`, then writes; jobs come after schedules.

use deadpool_postgres::Transaction;
use jiff::Timestamp;
use tokio::time::timeout;
use tokio_postgres::Row;

use super::audit;
use super::core::{Core, decode};
use super::enqueue::{insert, insert_sql};
use super::error::{DbError, Effect, Retries};
use super::row;
use super::ticks::{NewTicks, write_ticks};
use crate::job::limits::SCHEDULES_MAX;
use crate::job::schedule::{
    ScheduleCounts, ScheduleRecord, ScheduleSource, ScheduleSpec, ScheduleState, SkippedTick, TickFate, TickRecord,
};
use crate::job::{Kind, ScheduleName};
use crate::store::audit_entry::{schedule_deleted, schedule_put, schedule_ran, schedule_switched, schedules_synced};
use crate::store::{
    Actor, DeleteSchedule, Enqueued, ListSchedules, ListTicks, PauseSchedule, PutSchedule, ResumeSchedule, RunSchedule,
    ScheduleDeleted, SchedulePage, SchedulePut, ScheduleRan, SchedulesSynced, StoreError, SyncSchedules,
};

/// The columns of `schedules` (as `s`) that [`schedule_from`] reads, in its order.
macro_rules! schedule_columns {
    () => {
        "s.name, s.spec, s.source, s.revision, s.paused, s.next_at, s.last_tick_at, s.last_job_id, s.held_tick, s.fired, \
         s.skipped, s.missed, s.refused, s.last_error, s.last_skip_tick, s.last_skip_reason, s.created_at, s.updated_at"
    };
}
pub(super) use schedule_columns;

pub(super) const SCHEDULE: &str =
    concat!("-- schedule: by name\nSELECT ", schedule_columns!(), " FROM SCHEMA.schedules s WHERE s.name = $1");

pub(super) const LOCK_SCHEDULE: &str = concat!(
    "-- lock_schedule: by name, to be changed\nSELECT ",
    schedule_columns!(),
    " FROM SCHEMA.schedules s WHERE s.name = $1 FOR UPDATE"
);

pub(super) const SCHEDULES: &str = concat!(
    "-- schedules: a page of them, by name\nSELECT ",
    schedule_columns!(),
    " FROM SCHEMA.schedules s
      WHERE s.name > $1 AND ($2::text IS NULL OR s.kind = $2)
        AND ($3::text IS NULL
             OR $3 = CASE WHEN s.paused THEN 'paused' WHEN s.wake_at IS NULL THEN 'ended' ELSE 'active' END)
      ORDER BY s.name LIMIT $4"
);

pub(super) const WRITE_SCHEDULE: &str = "\
-- write_schedule: the whole of it, new or not; what cannot be read stays
INSERT INTO SCHEMA.schedules AS s (name, kind, spec, source, revision, paused, next_at, wake_at, held_tick, skipped,
                                   last_error, last_skip_tick, last_skip_reason, created_at, updated_at)
VALUES ($1, coalesce($2::text, ''), coalesce($3::text, ''), $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)
ON CONFLICT (name) DO UPDATE
SET kind = coalesce($2, s.kind), spec = coalesce($3, s.spec), source = $4, revision = $5, paused = $6, next_at = $7,
    wake_at = $8, held_tick = $9, skipped = $10, last_error = $11, last_skip_tick = $12, last_skip_reason = $13,
    updated_at = $15";

pub(super) const DELETE_SCHEDULES: &str = "\
-- delete_schedules: with their ticks; their jobs stay
WITH gone AS (DELETE FROM SCHEMA.schedules s WHERE s.name = ANY ($1) RETURNING s.name)
DELETE FROM SCHEMA.schedule_ticks t USING gone g WHERE t.name = g.name";

pub(super) const LOCK_CONFIG: &str = "\
-- lock_config: schedules of the configuration file, and what has their names
SELECT s.name FROM SCHEMA.schedules s WHERE s.source = 'config' OR s.name = ANY ($1) ORDER BY s.name FOR UPDATE";

pub(super) const COUNT_SCHEDULES: &str = "\
-- count_schedules: how many there are, and the time
SELECT count(*), now() FROM SCHEMA.schedules s";

pub(super) const SCHEDULE_TICKS: &str = "\
-- schedule_ticks: what became of them, newest first
SELECT t.tick, t.fate, t.job_id, t.at, t.reason
FROM SCHEMA.schedules s LEFT JOIN SCHEMA.schedule_ticks t ON t.name = s.name
WHERE s.name = $1
ORDER BY t.tick DESC LIMIT $2";

pub(super) const SCHEDULE_RAN: &str = "\
-- schedule_ran: a person asked for it
UPDATE SCHEMA.schedules s SET fired = s.fired + 1, last_job_id = $2 WHERE s.name = $1";

pub(super) fn schedule_from(row: &Row, at: usize) -> Result<ScheduleRecord, tokio_postgres::Error> {
    let count = |index: usize| row.try_get::<_, i64>(at + index).map(|count| count.max(0) as u64);
    let skip_reason: Option<String> = row.try_get(at + 15)?;
    Ok(ScheduleRecord {
        name: ScheduleName::new(row.try_get::<_, &str>(at)?).unwrap_or_else(|_| ScheduleName::unknown()),
        spec: ScheduleSpec::from_stored(row.try_get(at + 1)?),
        source: row.try_get::<_, &str>(at + 2)?.parse().unwrap_or(ScheduleSource::Api),
        revision: count(3)?,
        paused: row.try_get(at + 4)?,
        next_at: row::time(row, at + 5)?,
        last_tick_at: row::time(row, at + 6)?,
        last_job_id: row.try_get::<_, Option<uuid::Uuid>>(at + 7)?.map(row::id),
        held_tick: row::time(row, at + 8)?,
        counts: ScheduleCounts { fired: count(9)?, skipped: count(10)?, missed: count(11)?, refused: count(12)? },
        last_error: row.try_get(at + 13)?,
        last_skip: row::time(row, at + 14)?.zip(skip_reason).map(|(tick, reason)| SkippedTick { tick, reason }),
        created_at: row::time(row, at + 16)?.unwrap_or_default(),
        updated_at: row::time(row, at + 17)?.unwrap_or_default(),
    })
}

/// Runs `$work` in a transaction, with retries: each is repeatable, for it looks at what it finds.
macro_rules! in_transaction {
    ($core:expr, $verb:literal, |$transaction:ident| $work:expr) => {{
        let mut retries = Retries::new($verb, Effect::Repeatable);
        loop {
            let tried = async {
                let mut connection = $core.pool.get().await?;
                let limit = connection.timeout();
                let work = async {
                    let $transaction = connection.transaction().await?;
                    let answer = $work.await?;
                    $transaction.commit().await?;
                    Ok::<_, DbError>(answer)
                };
                let answer = timeout(limit, work).await;
                connection.finish(answer)
            };
            match tried.await {
                Ok(answer) => break Ok(answer),
                Err(error) => retries.again(error).await?,
            }
        }
    }};
}
pub(super) use in_transaction;

async fn lock(core: &Core, tx: &Transaction<'_>, name: &ScheduleName) -> Result<Option<ScheduleRecord>, DbError> {
    let statement = tx.prepare_cached(&core.sql.lock_schedule).await?;
    let row = tx.query_opt(&statement, &[&name.as_str()]).await?;
    Ok(row.as_ref().map(|row| schedule_from(row, 0)).transpose()?)
}

async fn count_and_now(core: &Core, tx: &Transaction<'_>) -> Result<(u64, Timestamp), DbError> {
    let statement = tx.prepare_cached(&core.sql.count_schedules).await?;
    let row = tx.query_one(&statement, &[]).await?;
    Ok((row.try_get::<_, i64>(0)?.max(0) as u64, row::time(&row, 1)?.unwrap_or_default()))
}

async fn write(core: &Core, tx: &Transaction<'_>, record: &ScheduleRecord) -> Result<(), DbError> {
    let statement = tx.prepare_cached(&core.sql.write_schedule).await?;
    let (kind, spec) = match &record.spec {
        Ok(spec) => (Some(spec.kind().as_str()), Some(spec.stored_text())),
        Err(_) => (None, None),
    };
    let wake_at = record.next_at.into_iter().chain(record.held_tick).min();
    let skip = record.last_skip.as_ref();
    let (skip_tick, skip_reason) = (skip.map(|skip| skip.tick), skip.map(|skip| skip.reason.as_str()));
    tx.execute(
        &statement,
        &[
            &record.name.as_str(),
            &kind,
            &spec,
            &record.source.as_str(),
            &(record.revision as i64),
            &record.paused,
            &record.next_at,
            &wake_at,
            &record.held_tick,
            &(record.counts.skipped as i64),
            &record.last_error,
            &skip_tick,
            &skip_reason,
            &record.created_at,
            &record.updated_at,
        ],
    )
    .await?;
    Ok(())
}

pub(super) async fn put_schedule(core: &Core, put: PutSchedule) -> Result<SchedulePut, StoreError> {
    in_transaction!(core, "put_schedule", |tx| try_put(core, &tx, &put))
}

async fn try_put(core: &Core, tx: &Transaction<'_>, put: &PutSchedule) -> Result<SchedulePut, DbError> {
    let found = lock(core, tx, &put.name).await?;
    let (count, now) = count_and_now(core, tx).await?;
    let revision = found.as_ref().map(|found| found.revision);
    if put.if_revision.is_some_and(|expected| revision != Some(expected)) {
        return Ok(SchedulePut::RevisionDiffers(revision));
    }
    let Some(found) = found else {
        if count >= SCHEDULES_MAX {
            return Ok(SchedulePut::TooMany);
        }
        let record = ScheduleRecord::new(put.name.clone(), put.spec.clone(), put.source, now);
        write(core, tx, &record).await?;
        audit::record(core, tx, &schedule_put(put, None, &record)).await?;
        return Ok(SchedulePut::Created(record));
    };
    if found.source == ScheduleSource::Config && put.source != ScheduleSource::Config {
        return Ok(SchedulePut::Declared);
    }
    match found.edited(put.spec.clone(), put.source, now) {
        None => Ok(SchedulePut::Unchanged(found)),
        Some(_) if found.is_due(now) && !put.drop_due_tick => Ok(SchedulePut::TickDue),
        Some(edited) => {
            write(core, tx, &edited).await?;
            audit::record(core, tx, &schedule_put(put, Some(&found), &edited)).await?;
            Ok(SchedulePut::Changed(edited))
        }
    }
}

pub(super) async fn delete_schedule(core: &Core, delete: DeleteSchedule) -> Result<ScheduleDeleted, StoreError> {
    in_transaction!(core, "delete_schedule", |tx| try_delete(core, &tx, &delete))
}

async fn try_delete(core: &Core, tx: &Transaction<'_>, delete: &DeleteSchedule) -> Result<ScheduleDeleted, DbError> {
    let Some(found) = lock(core, tx, &delete.name).await? else { return Ok(ScheduleDeleted::NotFound) };
    if found.source == ScheduleSource::Config && delete.source != ScheduleSource::Config {
        return Ok(ScheduleDeleted::Declared);
    }
    let statement = tx.prepare_cached(&core.sql.delete_schedules).await?;
    tx.execute(&statement, &[&vec![delete.name.as_str()]]).await?;
    audit::record(core, tx, &schedule_deleted(delete, &found)).await?;
    Ok(ScheduleDeleted::Deleted)
}

pub(super) async fn sync_schedules(core: &Core, sync: SyncSchedules) -> Result<SchedulesSynced, StoreError> {
    in_transaction!(core, "sync_schedules", |tx| try_sync(core, &tx, &sync))
}

async fn try_sync(core: &Core, tx: &Transaction<'_>, sync: &SyncSchedules) -> Result<SchedulesSynced, DbError> {
    let source = ScheduleSource::Config;
    let names: Vec<&str> = sync.declared.iter().map(|(name, _)| name.as_str()).collect();
    let statement = tx.prepare_cached(&core.sql.lock_config).await?;
    let stored = tx.query(&statement, &[&names]).await?;
    let (count, now) = count_and_now(core, tx).await?;
    let (mut created, mut changed, mut taken) = (Vec::new(), Vec::new(), Vec::new());
    for (name, spec) in &sync.declared {
        match lock(core, tx, name).await? {
            None => created.push(ScheduleRecord::new(name.clone(), spec.clone(), source, now)),
            Some(found) if found.source != source => taken.push(name.clone()),
            Some(found) => changed.extend(found.edited(spec.clone(), source, now)),
        }
    }
    if !taken.is_empty() {
        return Ok(SchedulesSynced::NamesTaken(taken));
    }
    if count + created.len() as u64 > SCHEDULES_MAX {
        return Ok(SchedulesSynced::TooMany);
    }
    let mut gone = Vec::new();
    for row in &stored {
        let name: &str = row.try_get(0)?;
        if !names.contains(&name) {
            gone.push(name);
        }
    }
    let statement = tx.prepare_cached(&core.sql.delete_schedules).await?;
    tx.execute(&statement, &[&gone]).await?;
    for record in created.iter().chain(&changed) {
        write(core, tx, record).await?;
    }
    if let Some(entry) = schedules_synced(sync, &created, &changed, &gone) {
        audit::record(core, tx, &entry).await?;
    }
    Ok(SchedulesSynced::done(created.len(), changed.len(), gone.len()))
}

pub(super) async fn pause_schedule(core: &Core, pause: PauseSchedule) -> Result<Option<ScheduleRecord>, StoreError> {
    let act = ("pause_schedule", pause.by.as_ref());
    in_transaction!(core, "pause_schedule", |tx| change(core, &tx, &pause.name, act, ScheduleRecord::paused))
}

pub(super) async fn resume_schedule(core: &Core, resume: ResumeSchedule) -> Result<Option<ScheduleRecord>, StoreError> {
    let act = ("resume_schedule", resume.by.as_ref());
    in_transaction!(core, "resume_schedule", |tx| change(core, &tx, &resume.name, act, ScheduleRecord::resumed))
}

async fn change(
    core: &Core,
    tx: &Transaction<'_>,
    name: &ScheduleName,
    (action, by): (&'static str, Option<&Actor>),
    change: fn(&ScheduleRecord, Timestamp) -> ScheduleRecord,
) -> Result<Option<ScheduleRecord>, DbError> {
    let Some(found) = lock(core, tx, name).await? else { return Ok(None) };
    let (_, now) = count_and_now(core, tx).await?;
    let changed = change(&found, now);
    write(core, tx, &changed).await?;
    if let Some(entry) = schedule_switched(action, by, (&found, &changed)) {
        audit::record(core, tx, &entry).await?;
    }
    Ok(Some(changed))
}

pub(super) async fn run_schedule(core: &Core, run: RunSchedule) -> Result<ScheduleRan, StoreError> {
    let ran: Result<ScheduleRan, StoreError> = in_transaction!(core, "run_schedule", |tx| try_run(core, &tx, &run));
    if let Ok(ScheduleRan::Enqueued(Enqueued { created: true, job, .. })) = &ran {
        core.lower(std::iter::once(job));
        core.notifier.notify();
    }
    ran
}

async fn try_run(core: &Core, tx: &Transaction<'_>, run: &RunSchedule) -> Result<ScheduleRan, DbError> {
    let Some(found) = lock(core, tx, &run.name).await? else { return Ok(ScheduleRan::NotFound) };
    if found.revision != run.revision {
        return Ok(ScheduleRan::RevisionDiffers);
    }
    let jobs = [&run.job];
    let statement = tx.prepare_cached(insert_sql(&core.sql, &jobs)).await?;
    let mut stored = insert(&**tx, &statement, &jobs, None).await?;
    if !stored.missing().is_empty() {
        let known = tx.prepare_cached(&core.sql.known).await?;
        let get = tx.prepare_cached(&core.sql.get).await?;
        stored.look_up(&**tx, &known, &get).await?;
    }
    let enqueued = match stored.answers()?.pop() {
        Some(Ok(enqueued)) => enqueued,
        // The tick's job was made of another spec; it is the tick's job all the same.
        Some(Err(by)) => {
            let get = tx.prepare_cached(&core.sql.get).await?;
            let found = tx.query_opt(&get, &[&vec![*by.as_uuid()]]).await?;
            let found = found.ok_or_else(|| DbError::moved("a key was taken, and free again a moment later"))?;
            Enqueued { created: false, replaced: false, job: row::job(&found)? }
        }
        None => return Err(DbError::moved("no answer")),
    };
    if enqueued.created {
        let statement = tx.prepare_cached(&core.sql.schedule_ran).await?;
        tx.execute(&statement, &[&run.name.as_str(), enqueued.job.id.as_uuid()]).await?;
        let fired = TickRecord::new(run.tick, TickFate::Fired, enqueued.job.created_at).job(enqueued.job.id);
        let mut ticks = NewTicks::default();
        ticks.add(&run.name, &fired);
        write_ticks(core, tx, &ticks).await?;
        audit::record(core, tx, &schedule_ran(run, enqueued.job.id)).await?;
    }
    Ok(ScheduleRan::Enqueued(enqueued))
}

pub(super) async fn schedule(core: &Core, name: ScheduleName) -> Result<Option<ScheduleRecord>, StoreError> {
    let rows = core.query("schedule", Effect::Repeatable, &core.sql.schedule, &[&name.as_str()]).await?;
    rows.first().map(|row| decode("schedule", schedule_from(row, 0))).transpose()
}

pub(super) async fn schedules(core: &Core, list: ListSchedules) -> Result<SchedulePage, StoreError> {
    let after = list.after.as_ref().map_or("", |name| name.as_str());
    let (kind, state) = (list.kind.as_ref().map(Kind::as_str), list.state.map(ScheduleState::as_str));
    let limit = list.limit as i64 + 1;
    let rows =
        core.query("schedules", Effect::Repeatable, &core.sql.schedules, &[&after, &kind, &state, &limit]).await?;
    let read = rows.iter().map(|row| decode("schedules", schedule_from(row, 0)));
    Ok(SchedulePage::of(read.collect::<Result<_, _>>()?, list.limit))
}

pub(super) async fn schedule_ticks(core: &Core, list: ListTicks) -> Result<Option<Vec<TickRecord>>, StoreError> {
    let limit = list.limit as i64;
    let params: [&(dyn tokio_postgres::types::ToSql + Sync); 2] = [&list.name.as_str(), &limit];
    let rows = core.query("schedule_ticks", Effect::Repeatable, &core.sql.schedule_ticks, &params).await?;
    if rows.is_empty() {
        return Ok(None);
    }
    // A schedule without a tick is one row of nulls.
    let ticks = rows.iter().filter_map(|row| decode("schedule_ticks", tick_from(row)).transpose());
    ticks.collect::<Result<_, _>>().map(Some)
}

fn tick_from(row: &Row) -> Result<Option<TickRecord>, tokio_postgres::Error> {
    let Some((tick, at)) = row::time(row, 0)?.zip(row::time(row, 3)?) else { return Ok(None) };
    // The table's CHECK allows no other text.
    let fate = row.try_get::<_, &str>(1)?.parse().unwrap_or(TickFate::Refused);
    let job_id = row.try_get::<_, Option<uuid::Uuid>>(2)?.map(row::id);
    Ok(Some(TickRecord { job_id, reason: row.try_get(4)?, ..TickRecord::new(tick, fate, at) }))
}
