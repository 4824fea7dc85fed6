//! Schedules: put, delete, sync, read, pause, resume, run. What a look at them changes is in `ticks`.

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::audit;
use super::enqueue::enqueue_unless_known;
use super::inbox::{Urgency, Verb};
use super::row::{UuidBlob, micros, timestamp};
use super::ticks::{record_ticks, trim_ticks};
use super::transaction::Tx;
use crate::job::limits::SCHEDULES_MAX;
use crate::job::schedule::{
    ScheduleCounts, ScheduleRecord, ScheduleSource, ScheduleSpec, ScheduleState, SkippedTick, TickFate, TickRecord,
};
use crate::job::{Kind, ScheduleName};
use crate::store::audit_entry::{schedule_deleted, schedule_put, schedule_ran, schedule_switched, schedules_synced};
use crate::store::{
    Actor, DeleteSchedule, ListSchedules, ListTicks, PauseSchedule, PutSchedule, ResumeSchedule, RunSchedule,
    ScheduleDeleted, SchedulePage, SchedulePut, ScheduleRan, SchedulesSynced, SyncSchedules,
};

/// What [`read_schedule`] reads, in its order.
macro_rules! schedule_columns {
    () => {
        "name, spec, source, revision, paused, next_at, last_tick_at, last_job_id, held_tick, fired, skipped, missed, \
         refused, last_error, last_skip_tick, last_skip_reason, created_at, updated_at"
    };
}
pub(super) use schedule_columns;

const BY_NAME: &str = concat!("SELECT ", schedule_columns!(), " FROM schedules WHERE name = ?1");

pub(super) fn read_schedule(row: &Row<'_>) -> rusqlite::Result<ScheduleRecord> {
    let time = |index| Ok::<_, rusqlite::Error>(row.get::<_, Option<i64>>(index)?.map(timestamp));
    let skip_tick = time(14)?;
    let skip_reason: Option<String> = row.get(15)?;
    Ok(ScheduleRecord {
        name: ScheduleName::new(row.get::<_, String>(0)?).unwrap_or_else(|_| ScheduleName::unknown()),
        spec: ScheduleSpec::from_stored(row.get_ref(1)?.as_str()?),
        source: row.get_ref(2)?.as_str()?.parse().unwrap_or(ScheduleSource::Api),
        revision: row.get(3)?,
        paused: row.get(4)?,
        next_at: time(5)?,
        last_tick_at: time(6)?,
        last_job_id: row.get::<_, Option<UuidBlob>>(7)?.map(|id| id.0.into()),
        held_tick: time(8)?,
        counts: ScheduleCounts {
            fired: row.get(9)?,
            skipped: row.get(10)?,
            missed: row.get(11)?,
            refused: row.get(12)?,
        },
        last_error: row.get(13)?,
        last_skip: skip_tick.zip(skip_reason).map(|(tick, reason)| SkippedTick { tick, reason }),
        created_at: timestamp(row.get(16)?),
        updated_at: timestamp(row.get(17)?),
    })
}

pub(super) fn schedule(connection: &Connection, name: &ScheduleName) -> rusqlite::Result<Option<ScheduleRecord>> {
    connection.prepare_cached(BY_NAME)?.query_row([name.as_str()], read_schedule).optional()
}

/// Writes the whole schedule, new or not.
fn write(tx: &Tx<'_>, record: &ScheduleRecord) -> rusqlite::Result<()> {
    // What cannot be read is not rewritten: only an edit replaces it.
    let (kind, spec) = match &record.spec {
        Ok(spec) => (Some(spec.kind().as_str()), Some(spec.stored_text())),
        Err(_) => (None, None),
    };
    let skip = record.last_skip.as_ref();
    let wake_at = record.next_at.into_iter().chain(record.held_tick).min();
    tx.statement(
        "INSERT INTO schedules (name, kind, spec, source, revision, paused, next_at, wake_at, held_tick, skipped,
                                last_error, last_skip_tick, last_skip_reason, created_at, updated_at)
         VALUES (?1, coalesce(?2, ''), coalesce(?3, ''), ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)
         ON CONFLICT (name) DO UPDATE
         SET kind = coalesce(?2, kind), spec = coalesce(?3, spec), source = ?4, revision = ?5, paused = ?6, next_at = ?7,
             wake_at = ?8, held_tick = ?9, skipped = ?10, last_error = ?11, last_skip_tick = ?12, last_skip_reason = ?13,
             updated_at = ?15",
    )?
    .execute(params![
        record.name.as_str(),
        kind,
        spec,
        record.source.as_str(),
        record.revision,
        record.paused,
        record.next_at.map(micros),
        wake_at.map(micros),
        record.held_tick.map(micros),
        record.counts.skipped,
        record.last_error,
        skip.map(|skip| micros(skip.tick)),
        skip.map(|skip| skip.reason.as_str()),
        micros(record.created_at),
        micros(record.updated_at),
    ])?;
    Ok(())
}

fn has_room(tx: &Tx<'_>) -> rusqlite::Result<bool> {
    let count: u64 = tx.statement("SELECT count(*) FROM schedules")?.query_row([], |row| row.get(0))?;
    Ok(count < SCHEDULES_MAX)
}

fn now(tx: &Tx<'_>) -> Timestamp {
    timestamp(tx.now_micros())
}

impl Verb for PutSchedule {
    type Answer = SchedulePut;
    const NAME: &'static str = "put_schedule";
    const URGENCY: Urgency = Urgency::Urgent;

    fn apply(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<SchedulePut> {
        let now = now(tx);
        let found = schedule(tx.connection(), &self.name)?;
        let revision = found.as_ref().map(|found| found.revision);
        if self.if_revision.is_some_and(|expected| revision != Some(expected)) {
            return Ok(SchedulePut::RevisionDiffers(revision));
        }
        let Some(found) = found else {
            if !has_room(tx)? {
                return Ok(SchedulePut::TooMany);
            }
            let record = ScheduleRecord::new(self.name.clone(), self.spec.clone(), self.source, now);
            write(tx, &record)?;
            audit::record(tx, &schedule_put(self, None, &record))?;
            return Ok(SchedulePut::Created(record));
        };
        if found.source == ScheduleSource::Config && self.source != ScheduleSource::Config {
            return Ok(SchedulePut::Declared);
        }
        match found.edited(self.spec.clone(), self.source, now) {
            None => Ok(SchedulePut::Unchanged(found)),
            Some(_) if found.is_due(now) && !self.drop_due_tick => Ok(SchedulePut::TickDue),
            Some(edited) => {
                write(tx, &edited)?;
                audit::record(tx, &schedule_put(self, Some(&found), &edited))?;
                Ok(SchedulePut::Changed(edited))
            }
        }
    }
}

fn delete(tx: &Tx<'_>, name: &ScheduleName) -> rusqlite::Result<()> {
    tx.statement("DELETE FROM schedule_ticks WHERE name = ?1")?.execute([name.as_str()])?;
    tx.statement("DELETE FROM schedules WHERE name = ?1")?.execute([name.as_str()])?;
    Ok(())
}

impl Verb for DeleteSchedule {
    type Answer = ScheduleDeleted;
    const NAME: &'static str = "delete_schedule";
    const URGENCY: Urgency = Urgency::Urgent;

    fn apply(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<ScheduleDeleted> {
        let Some(found) = schedule(tx.connection(), &self.name)? else { return Ok(ScheduleDeleted::NotFound) };
        if found.source == ScheduleSource::Config && self.source != ScheduleSource::Config {
            return Ok(ScheduleDeleted::Declared);
        }
        delete(tx, &self.name)?;
        audit::record(tx, &schedule_deleted(self, &found))?;
        Ok(ScheduleDeleted::Deleted)
    }
}

impl Verb for SyncSchedules {
    type Answer = SchedulesSynced;
    const NAME: &'static str = "sync_schedules";
    const URGENCY: Urgency = Urgency::Urgent;

    fn weight(&self) -> usize {
        self.declared.len()
    }

    fn apply(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<SchedulesSynced> {
        let (now, source) = (now(tx), ScheduleSource::Config);
        let (mut created, mut changed, mut deleted) = (Vec::new(), Vec::new(), Vec::new());
        let mut taken = Vec::new();
        for (name, spec) in &self.declared {
            match schedule(tx.connection(), name)? {
                None => created.push(ScheduleRecord::new(name.clone(), spec.clone(), source, now)),
                Some(found) if found.source != source => taken.push(name.clone()),
                Some(found) => changed.extend(found.edited(spec.clone(), source, now)),
            }
        }
        if !taken.is_empty() {
            return Ok(SchedulesSynced::NamesTaken(taken));
        }
        let stored: u64 = tx.statement("SELECT count(*) FROM schedules")?.query_row([], |row| row.get(0))?;
        if stored + created.len() as u64 > SCHEDULES_MAX {
            return Ok(SchedulesSynced::TooMany);
        }
        let mut statement = tx.statement("SELECT name FROM schedules WHERE source = 'config'")?;
        let names: Vec<String> = statement.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
        for name in names.into_iter().filter_map(|name| ScheduleName::new(name).ok()) {
            if !self.declared.iter().any(|(declared, _)| *declared == name) {
                delete(tx, &name)?;
                deleted.push(name);
            }
        }
        created.iter().chain(&changed).try_for_each(|record| write(tx, record))?;
        let gone: Vec<&str> = deleted.iter().map(ScheduleName::as_str).collect();
        if let Some(entry) = schedules_synced(self, &created, &changed, &gone) {
            audit::record(tx, &entry)?;
        }
        Ok(SchedulesSynced::done(created.len(), changed.len(), deleted.len()))
    }
}

/// Changes a schedule that there is.
fn change(
    tx: &Tx<'_>,
    name: &ScheduleName,
    (action, by): (&'static str, Option<&Actor>),
    change: impl FnOnce(&ScheduleRecord) -> ScheduleRecord,
) -> rusqlite::Result<Option<ScheduleRecord>> {
    let Some(found) = schedule(tx.connection(), name)? else { return Ok(None) };
    let changed = change(&found);
    write(tx, &changed)?;
    if let Some(entry) = schedule_switched(action, by, (&found, &changed)) {
        audit::record(tx, &entry)?;
    }
    Ok(Some(changed))
}

impl Verb for PauseSchedule {
    type Answer = Option<ScheduleRecord>;
    const NAME: &'static str = "pause_schedule";
    const URGENCY: Urgency = Urgency::Urgent;

    fn apply(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<Self::Answer> {
        let now = now(tx);
        change(tx, &self.name, (Self::NAME, self.by.as_ref()), |found| found.paused(now))
    }
}

impl Verb for ResumeSchedule {
    type Answer = Option<ScheduleRecord>;
    const NAME: &'static str = "resume_schedule";
    const URGENCY: Urgency = Urgency::Urgent;

    fn apply(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<Self::Answer> {
        let now = now(tx);
        change(tx, &self.name, (Self::NAME, self.by.as_ref()), |found| found.resumed(now))
    }
}

impl Verb for RunSchedule {
    type Answer = ScheduleRan;
    const NAME: &'static str = "run_schedule";
    const URGENCY: Urgency = Urgency::Urgent;

    fn apply(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<ScheduleRan> {
        let Some(found) = schedule(tx.connection(), &self.name)? else { return Ok(ScheduleRan::NotFound) };
        if found.revision != self.revision {
            return Ok(ScheduleRan::RevisionDiffers);
        }
        let enqueued = enqueue_unless_known(tx, &self.job)?;
        if enqueued.created {
            tx.statement("UPDATE schedules SET fired = fired + 1, last_job_id = ?2 WHERE name = ?1")?
                .execute(params![self.name.as_str(), UuidBlob::from(enqueued.job.id)])?;
            let fired = TickRecord::new(self.tick, TickFate::Fired, now(tx)).job(enqueued.job.id);
            record_ticks(tx, &self.name, &[fired])?;
            trim_ticks(tx, &self.name)?;
            audit::record(tx, &schedule_ran(self, enqueued.job.id))?;
        }
        Ok(ScheduleRan::Enqueued(enqueued))
    }
}

const LIST: &str = concat!(
    "SELECT ",
    schedule_columns!(),
    " FROM schedules
      WHERE name > ?1 AND (?2 IS NULL OR kind = ?2)
        AND (?3 IS NULL OR ?3 = CASE WHEN paused THEN 'paused' WHEN wake_at IS NULL THEN 'ended' ELSE 'active' END)
      ORDER BY name LIMIT ?4"
);

pub(super) fn schedules(connection: &Connection, list: &ListSchedules) -> rusqlite::Result<SchedulePage> {
    let after = list.after.as_ref().map_or("", |name| name.as_str());
    let (kind, state) = (list.kind.as_ref().map(Kind::as_str), list.state.map(ScheduleState::as_str));
    let mut statement = connection.prepare_cached(LIST)?;
    let rows = statement.query_map(params![after, kind, state, list.limit + 1], read_schedule)?;
    Ok(SchedulePage::of(rows.collect::<rusqlite::Result<_>>()?, list.limit))
}

pub(super) fn schedule_ticks(connection: &Connection, list: &ListTicks) -> rusqlite::Result<Option<Vec<TickRecord>>> {
    if schedule(connection, &list.name)?.is_none() {
        return Ok(None);
    }
    let mut statement = connection.prepare_cached(
        "SELECT tick, fate, job_id, at, reason FROM schedule_ticks WHERE name = ?1 ORDER BY tick DESC LIMIT ?2",
    )?;
    let rows = statement.query_map(params![list.name.as_str(), list.limit], |row| {
        // The table's CHECK allows no other text.
        let fate = row.get_ref(1)?.as_str()?.parse().map_err(|_| rusqlite::Error::InvalidQuery)?;
        let record = TickRecord::new(timestamp(row.get(0)?), fate, timestamp(row.get(3)?));
        let job_id = row.get::<_, Option<UuidBlob>>(2)?.map(|id| id.0.into());
        Ok(TickRecord { job_id, reason: row.get(4)?, ..record })
    })?;
    rows.collect::<rusqlite::Result<_>>().map(Some)
}
