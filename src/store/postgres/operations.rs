//! Operations: preview, begin, read, change. What a step changes is in `operation_steps`.

use deadpool_postgres::Transaction;
use tokio::time::timeout;
use tokio_postgres::Row;
use uuid::Uuid;

use super::audit;
use super::core::{Core, decode};
use super::error::{DbError, Effect, Retries};
use super::operation_jobs::{JobSource, Look, look_sql};
use super::row;
use super::schedules::in_transaction;
use crate::job::operation::{Action, Canary, OPERATIONS_MAX, OperationState, PREVIEW_LOOK_MAX};
use crate::job::{JobId, OperationId};
use crate::store::audit_entry::{begun_entry, changed_entry};
use crate::store::{
    BeginOperation, ChangeOperation, ListOperations, Matches, OperationBegun, OperationChanged, OperationPage,
    OperationPreview, OperationRecord, OperationTally, PreviewOperation, Selection, StoreError, StoredSelection,
};

/// The columns of `operations` (as `o`) that [`operation_from`] reads, in its order.
macro_rules! operation_columns {
    () => {
        "o.id, o.action, o.argument, o.selection, o.cutoff, o.rate, o.max_changes, o.canary_first, o.canary_need, \
         o.canary_jobs, o.canary_passed, o.state, o.looked_at, o.changed, o.unchanged, o.failed, o.expected, \
         o.next_step_at, o.token_id, o.token_name, o.reason, o.note, o.created_at, o.updated_at, o.finished_at"
    };
}
pub(super) use operation_columns;

/// How many columns that is.
pub(super) const OPERATION_COLUMN_COUNT: usize = 25;

pub(super) const OPERATION: &str =
    concat!("-- operation: by id\nSELECT ", operation_columns!(), " FROM SCHEMA.operations o WHERE o.id = $1");

pub(super) const LOCK_OPERATION: &str = concat!(
    "-- lock_operation: by id, to be changed\nSELECT ",
    operation_columns!(),
    ", now() FROM SCHEMA.operations o WHERE o.id = $1 FOR UPDATE"
);

pub(super) const OPERATIONS: &str = concat!(
    "-- operations: a page of them, newest first\nSELECT ",
    operation_columns!(),
    " FROM SCHEMA.operations o WHERE o.id < $1 AND ($2::text IS NULL OR o.state = $2) ORDER BY o.id DESC LIMIT $3"
);

pub(super) const COUNT_OPERATIONS: &str = "\
-- count_operations: how many have not ended
SELECT count(*) FROM SCHEMA.operations o WHERE o.finished_at IS NULL";

pub(super) const FORGET_OPERATIONS: &str = "\
-- forget_operations: those that ended 90 days ago; ids follow time
DELETE FROM SCHEMA.operations o
USING (SELECT p.id FROM SCHEMA.operations p ORDER BY p.id LIMIT 100) oldest
WHERE o.id = oldest.id AND o.finished_at < now() - interval '90 days'";

pub(super) const BEGIN_OPERATION: &str = concat!(
    "-- begin_operation: its first step is due at once
INSERT INTO SCHEMA.operations AS o (id, action, argument, selection, cutoff, rate, max_changes, canary_first, canary_need,
                                    state, expected, next_step_at, token_id, token_name, reason, created_at, updated_at)
VALUES ($1, $2, $3, $4, least(coalesce($5::timestamptz, now()), now()), $6, $7, $8, $9, 'running', $10, now(), $11, $12, $13,
        now(), now())
RETURNING ",
    operation_columns!()
);

pub(super) const WRITE_OPERATION: &str = "\
-- write_operation: what steps and operators change; the cursor is a step's own
UPDATE SCHEMA.operations o
SET rate = $2, canary_jobs = $3, canary_passed = $4, state = $5, looked_at = $6, changed = $7, unchanged = $8, failed = $9,
    next_step_at = $10, note = $11, updated_at = $12, finished_at = $13, cursor = coalesce($14::uuid, o.cursor)
WHERE o.id = $1";

pub(super) fn operation_from(row: &Row) -> Result<OperationRecord, DbError> {
    let time = |index| Ok::<_, DbError>(row::time(row, index)?.unwrap_or_default());
    let count = |index| Ok::<_, DbError>(row.try_get::<_, i64>(index)?.max(0) as u64);
    let unreadable = |what: &'static str| DbError::moved(what);
    let canary = row.try_get::<_, Option<i32>>(7)?.zip(row.try_get::<_, Option<i32>>(8)?);
    let canary_jobs: Vec<Uuid> = row.try_get(9)?;
    Ok(OperationRecord {
        id: OperationId::from(row.try_get::<_, Uuid>(0)?),
        action: Action::from_parts(row.try_get(1)?, row.try_get(2)?)
            .ok_or_else(|| unreadable("an operation has an unknown action"))?,
        // A manual edit that makes no sense selects nothing.
        selection: StoredSelection::read(row.try_get(3)?).unwrap_or(Selection::Ids(Vec::new())),
        cutoff: time(4)?,
        rate: row.try_get::<_, i32>(5)?.max(1) as u32,
        max: row.try_get::<_, Option<i64>>(6)?.map(|max| max.max(0) as u64),
        canary: canary.map(|(first, need)| Canary::new(first.max(0) as u32, need.max(0) as u32)),
        canary_jobs: canary_jobs.into_iter().map(JobId::from).collect(),
        canary_passed: row.try_get(10)?,
        state: OperationState::from_name(row.try_get(11)?)
            .ok_or_else(|| unreadable("an operation has an unknown state"))?,
        tally: OperationTally { looked_at: count(12)?, changed: count(13)?, unchanged: count(14)?, failed: count(15)? },
        of: row.try_get::<_, Option<i64>>(16)?.map(|of| of.max(0) as u64),
        next_step_at: time(17)?,
        token_id: row.try_get(18)?,
        by: row.try_get(19)?,
        reason: row.try_get(20)?,
        note: row.try_get(21)?,
        created_at: time(22)?,
        updated_at: time(23)?,
        finished_at: row::time(row, 24)?,
    })
}

pub(super) async fn operation(core: &Core, id: OperationId) -> Result<Option<OperationRecord>, StoreError> {
    let rows = core.query("operation", Effect::Repeatable, &core.sql.operation, &[id.as_uuid()]).await?;
    rows.first().map(operation_from).transpose().map_err(|error| error.during("operation"))
}

pub(super) async fn operations(core: &Core, list: ListOperations) -> Result<OperationPage, StoreError> {
    let verb = "operations";
    let before = list.before.map_or(Uuid::max(), |id| *id.as_uuid());
    let (state, limit) = (list.state.map(OperationState::as_str), list.limit as i64 + 1);
    let rows = core.query(verb, Effect::Repeatable, &core.sql.operations, &[&before, &state, &limit]).await?;
    let operations = rows.iter().map(operation_from).collect::<Result<Vec<_>, _>>();
    let mut operations = operations.map_err(|error| error.during(verb))?;
    let has_more = operations.len() > list.limit;
    operations.truncate(list.limit);
    let next = operations.last().filter(|_| has_more).map(|last| last.id);
    Ok(OperationPage { operations, next })
}

pub(super) async fn begin_operation(core: &Core, begin: BeginOperation) -> Result<OperationBegun, StoreError> {
    in_transaction!(core, "begin_operation", |tx| try_begin(core, &tx, &begin))
}

async fn try_begin(core: &Core, tx: &Transaction<'_>, begin: &BeginOperation) -> Result<OperationBegun, DbError> {
    // A call that was repeated because its commit was not heard of finds what it has begun.
    let found = tx.prepare_cached(&core.sql.operation).await?;
    if let Some(row) = tx.query_opt(&found, &[begin.id.as_uuid()]).await? {
        return operation_from(&row).map(OperationBegun::Begun);
    }
    let count = tx.prepare_cached(&core.sql.count_operations).await?;
    if tx.query_one(&count, &[]).await?.try_get::<_, i64>(0)? >= OPERATIONS_MAX as i64 {
        return Ok(OperationBegun::TooMany);
    }
    let forget = tx.prepare_cached(&core.sql.forget_operations).await?;
    tx.execute(&forget, &[]).await?;
    let statement = tx.prepare_cached(&core.sql.begin_operation).await?;
    let row = tx
        .query_one(
            &statement,
            &[
                begin.id.as_uuid(),
                &begin.action.as_str(),
                &begin.action.argument(),
                &StoredSelection::text(&begin.selection),
                &begin.cutoff,
                &(begin.rate as i32),
                &begin.max.map(|max| max as i64),
                &begin.canary.map(|canary| canary.first as i32),
                &begin.canary.map(|canary| canary.need as i32),
                &begin.of.map(|of| of as i64),
                &begin.by.as_ref().and_then(|by| by.token_id.as_deref()),
                &begin.by.as_ref().map_or("library", |by| by.token_name.as_str()),
                &begin.reason,
            ],
        )
        .await?;
    let begun = operation_from(&row)?;
    audit::record(core, tx, &begun_entry(&begun, begin.by.as_ref())).await?;
    Ok(OperationBegun::Begun(begun))
}

pub(super) async fn change_operation(core: &Core, change: ChangeOperation) -> Result<OperationChanged, StoreError> {
    in_transaction!(core, "change_operation", |tx| try_change(core, &tx, &change))
}

async fn try_change(core: &Core, tx: &Transaction<'_>, change: &ChangeOperation) -> Result<OperationChanged, DbError> {
    let lock = tx.prepare_cached(&core.sql.lock_operation).await?;
    let Some(found) = tx.query_opt(&lock, &[change.id.as_uuid()]).await? else { return Ok(OperationChanged::NotFound) };
    let now = row::time(&found, OPERATION_COLUMN_COUNT)?.unwrap_or_default();
    let before = operation_from(&found)?;
    let changed = before.clone().changed_by(change.change, now);
    if let OperationChanged::Done(record) = &changed {
        write_operation(core, tx, record, None).await?;
        if let Some(entry) = changed_entry(&before, record, change.change, change.by.as_ref()) {
            audit::record(core, tx, &entry).await?;
        }
    }
    Ok(changed)
}

pub(super) async fn write_operation(
    core: &Core,
    tx: &Transaction<'_>,
    record: &OperationRecord,
    cursor: Option<Uuid>,
) -> Result<(), DbError> {
    let statement = tx.prepare_cached(&core.sql.write_operation).await?;
    let canary_jobs: Vec<Uuid> = record.canary_jobs.iter().map(|id| *id.as_uuid()).collect();
    tx.execute(
        &statement,
        &[
            record.id.as_uuid(),
            &(record.rate as i32),
            &canary_jobs,
            &record.canary_passed,
            &record.state.as_str(),
            &(record.tally.looked_at as i64),
            &(record.tally.changed as i64),
            &(record.tally.unchanged as i64),
            &(record.tally.failed as i64),
            &record.next_step_at,
            &record.note,
            &record.updated_at,
            &record.finished_at,
            &cursor,
        ],
    )
    .await?;
    Ok(())
}

pub(super) async fn preview_operation(core: &Core, preview: PreviewOperation) -> Result<OperationPreview, StoreError> {
    let verb = "preview_operation";
    let as_of = core.now().await?;
    let look = Look::new(&preview.selection, Some(as_of));
    let source = JobSource::of(&preview.selection);
    let (start, rows) = (Uuid::nil(), PREVIEW_LOOK_MAX as i64);
    let params = look.params(&start, &rows);
    let looked_at = core.query(verb, Effect::Repeatable, look_sql(&core.sql, source), &params).await?;
    let (mut ids, mut matches) = (Vec::new(), Matches::default());
    for row in &looked_at {
        if !decode(verb, row.try_get::<_, Option<bool>>(1))?.unwrap_or(false) {
            continue;
        }
        if ids.len() < preview.samples {
            ids.push(decode(verb, row.try_get::<_, Uuid>(0))?);
        }
        let created_at = decode(verb, row::time(row, 4))?.unwrap_or_default();
        matches.add(decode(verb, row.try_get(2))?, decode(verb, row.try_get(3))?, created_at);
    }
    let found = core.query(verb, Effect::Repeatable, &core.sql.get, &[&ids]).await?;
    let mut sample = found.iter().map(|row| decode(verb, row::job(row))).collect::<Result<Vec<_>, _>>()?;
    sample.sort_by_key(|job| job.id);
    Ok(matches.preview(looked_at.len(), PREVIEW_LOOK_MAX, sample, as_of))
}
