//! Operations: preview, begin, read, change. What a step changes is in `operation_steps`.

use rusqlite::{Connection, OptionalExtension, Row, params};
use uuid::Uuid;

use super::audit;
use super::inbox::{Urgency, Verb};
use super::operation_jobs::{JobSource, Look};
use super::row::{UuidBlob, micros, timestamp};
use super::transaction::Tx;
use crate::job::operation::{Action, Canary, OPERATIONS_MAX, OperationState, PREVIEW_LOOK_MAX};
use crate::job::{JobId, OperationId};
use crate::store::audit_entry::{begun_entry, changed_entry};
use crate::store::{
    BeginOperation, ChangeOperation, JobFilter, ListOperations, OperationBegun, OperationChanged, OperationPage,
    OperationPreview, OperationRecord, OperationTally, PreviewOperation, Selection, StoredSelection,
};

/// What [`read_operation`] reads, in its order.
macro_rules! operation_columns {
    () => {
        "id, action, argument, selection, cutoff, rate, max_changes, canary_first, canary_need, canary_jobs, canary_passed, \
         state, looked_at, changed, unchanged, failed, expected, next_step_at, token_id, token_name, reason, note, \
         created_at, updated_at, finished_at"
    };
}
pub(super) use operation_columns;

/// How many columns that is.
pub(super) const OPERATION_COLUMN_COUNT: usize = 25;

pub(super) fn read_operation(row: &Row<'_>) -> rusqlite::Result<OperationRecord> {
    let time = |index| Ok::<_, rusqlite::Error>(timestamp(row.get(index)?));
    let argument: Option<String> = row.get(2)?;
    let selection = StoredSelection::read(row.get_ref(3)?.as_str()?);
    let canary_jobs: Vec<Uuid> = serde_json::from_str(row.get_ref(9)?.as_str()?).unwrap_or_default();
    let canary = row.get::<_, Option<u32>>(7)?.zip(row.get::<_, Option<u32>>(8)?);
    Ok(OperationRecord {
        id: OperationId::from(row.get::<_, UuidBlob>(0)?.0),
        action: Action::from_parts(row.get_ref(1)?.as_str()?, argument.as_deref())
            .ok_or(rusqlite::Error::InvalidQuery)?,
        // A manual edit that makes no sense selects nothing.
        selection: selection.unwrap_or(Selection::Ids(Vec::new())),
        cutoff: time(4)?,
        rate: row.get(5)?,
        max: row.get(6)?,
        canary: canary.map(|(first, need)| Canary::new(first, need)),
        canary_jobs: canary_jobs.into_iter().map(JobId::from).collect(),
        canary_passed: row.get(10)?,
        state: OperationState::from_name(row.get_ref(11)?.as_str()?).ok_or(rusqlite::Error::InvalidQuery)?,
        tally: OperationTally {
            looked_at: row.get(12)?,
            changed: row.get(13)?,
            unchanged: row.get(14)?,
            failed: row.get(15)?,
        },
        of: row.get(16)?,
        next_step_at: time(17)?,
        token_id: row.get(18)?,
        by: row.get(19)?,
        reason: row.get(20)?,
        note: row.get(21)?,
        created_at: time(22)?,
        updated_at: time(23)?,
        finished_at: row.get::<_, Option<i64>>(24)?.map(timestamp),
    })
}

pub(super) fn operation(connection: &Connection, id: OperationId) -> rusqlite::Result<Option<OperationRecord>> {
    connection
        .prepare_cached(concat!("SELECT ", operation_columns!(), " FROM operations WHERE id = ?1"))?
        .query_row([UuidBlob(*id.as_uuid())], read_operation)
        .optional()
}

pub(super) fn operations(connection: &Connection, list: &ListOperations) -> rusqlite::Result<OperationPage> {
    let mut statement = connection.prepare_cached(concat!(
        "SELECT ",
        operation_columns!(),
        " FROM operations WHERE id < ?1 AND (?2 IS NULL OR state = ?2) ORDER BY id DESC LIMIT ?3"
    ))?;
    let before = UuidBlob(list.before.map_or(Uuid::max(), |id| *id.as_uuid()));
    let rows = statement
        .query_map(params![before, list.state.map(OperationState::as_str), list.limit as i64 + 1], read_operation)?;
    let mut operations: Vec<_> = rows.collect::<rusqlite::Result<_>>()?;
    let has_more = operations.len() > list.limit;
    operations.truncate(list.limit);
    let next = operations.last().filter(|_| has_more).map(|last| last.id);
    Ok(OperationPage { operations, next })
}

pub(super) fn preview_operation(
    connection: &Connection,
    preview: &PreviewOperation,
    now_micros: i64,
) -> rusqlite::Result<OperationPreview> {
    let snapshot = connection.unchecked_transaction()?;
    let source = JobSource::of(&preview.selection);
    let look = Look { selection: &preview.selection, cutoff: now_micros, rows: PREVIEW_LOOK_MAX };
    super::operation_jobs::preview(&snapshot, source, &look, preview.samples, now_micros)
}

/// 90 days, in microseconds: how long what has ended is kept.
const KEPT_MICROS: i64 = 90 * 24 * 3600 * 1_000_000;

impl Verb for BeginOperation {
    type Answer = OperationBegun;
    const NAME: &'static str = "begin_operation";
    const URGENCY: Urgency = Urgency::Urgent;

    fn apply(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<OperationBegun> {
        let open: u64 = tx
            .statement("SELECT count(*) FROM operations WHERE finished_at IS NULL")?
            .query_row([], |row| row.get(0))?;
        if open >= OPERATIONS_MAX {
            return Ok(OperationBegun::TooMany);
        }
        // Ids follow time: the oldest first.
        tx.statement(
            "DELETE FROM operations WHERE id IN (SELECT id FROM (SELECT id, finished_at FROM operations ORDER BY id LIMIT 100)
                                                 WHERE finished_at < ?1)",
        )?
        .execute([tx.now_micros() - KEPT_MICROS])?;
        let now = tx.now_micros();
        let cutoff = self.cutoff.map_or(now, |cutoff| micros(cutoff).min(now));
        tx.statement(
            "INSERT INTO operations (id, action, argument, selection, cutoff, rate, max_changes, canary_first, canary_need,
                                     canary_jobs, canary_passed, state, looked_at, changed, unchanged, failed, expected,
                                     next_step_at, token_id, token_name, reason, created_at, updated_at)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, '[]', 0, 'running', 0, 0, 0, 0, ?10, ?11, ?12, ?13, ?14, ?11, ?11)",
        )?
        .execute(params![
            UuidBlob(*self.id.as_uuid()),
            self.action.as_str(),
            self.action.argument(),
            StoredSelection::text(&self.selection),
            cutoff,
            self.rate,
            self.max,
            self.canary.map(|canary| canary.first),
            self.canary.map(|canary| canary.need),
            self.of,
            now,
            self.by.as_ref().and_then(|by| by.token_id.as_deref()),
            self.by.as_ref().map_or("library", |by| by.token_name.as_str()),
            self.reason,
        ])?;
        let begun = operation(tx.connection(), self.id)?.ok_or(rusqlite::Error::QueryReturnedNoRows)?;
        audit::record(tx, &begun_entry(&begun, self.by.as_ref()))?;
        Ok(OperationBegun::Begun(begun))
    }
}

impl Verb for ChangeOperation {
    type Answer = OperationChanged;
    const NAME: &'static str = "change_operation";
    const URGENCY: Urgency = Urgency::Urgent;

    fn apply(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<OperationChanged> {
        let Some(found) = operation(tx.connection(), self.id)? else { return Ok(OperationChanged::NotFound) };
        let before = found.clone();
        let changed = found.changed_by(self.change, timestamp(tx.now_micros()));
        if let OperationChanged::Done(record) = &changed {
            write_operation(tx, record)?;
            if let Some(entry) = changed_entry(&before, record, self.change, self.by.as_ref()) {
                audit::record(tx, &entry)?;
            }
        }
        Ok(changed)
    }
}

/// Writes what steps and operators change; the cursor is a step's own.
pub(super) fn write_operation(tx: &Tx<'_>, record: &OperationRecord) -> rusqlite::Result<()> {
    let canary_jobs: Vec<&Uuid> = record.canary_jobs.iter().map(JobId::as_uuid).collect();
    tx.statement(
        "UPDATE operations
         SET rate = ?2, canary_jobs = ?3, canary_passed = ?4, state = ?5, looked_at = ?6, changed = ?7, unchanged = ?8,
             failed = ?9, next_step_at = ?10, note = ?11, updated_at = ?12, finished_at = ?13
         WHERE id = ?1",
    )?
    .execute(params![
        UuidBlob(*record.id.as_uuid()),
        record.rate,
        serde_json::to_string(&canary_jobs).expect("ids are JSON"),
        record.canary_passed,
        record.state.as_str(),
        record.tally.looked_at,
        record.tally.changed,
        record.tally.unchanged,
        record.tally.failed,
        micros(record.next_step_at),
        record.note,
        micros(record.updated_at),
        record.finished_at.map(micros),
    ])?;
    Ok(())
}

/// A selection's filter; one that allows everything for ids.
pub(super) fn filter_of(selection: &Selection) -> JobFilter {
    match selection {
        Selection::Filter(filter) => filter.clone(),
        Selection::Ids(_) => JobFilter::new(),
    }
}
