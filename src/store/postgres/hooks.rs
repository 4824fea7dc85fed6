//! put_hook, delete_hook, switch_hook, hooks: who is told of the ends of jobs. A change locks the hook's row first.

use deadpool_postgres::Transaction;
use jiff::Timestamp;
use tokio::time::timeout;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::audit;
use super::core::{Core, decode};
use super::error::{DbError, Effect, Retries};
use super::row;
use super::schedules::in_transaction;
use crate::job::limits::HOOKS_MAX;
use crate::job::{HookName, HookPause, HookRecord, HookSpec};
use crate::store::audit_entry::{hook_deleted, hook_put, hook_switched};
use crate::store::{DeleteHook, HookPut, PutHook, StoreError, SwitchHook};

macro_rules! hook_columns {
    () => {
        "h.name, h.spec, h.secrets, h.paused_at, h.pause_reason, h.dead_in_a_row, h.missed, h.created_at, h.updated_at"
    };
}

pub(super) const HOOKS: &str =
    concat!("-- hooks: all of them, by name\nSELECT ", hook_columns!(), " FROM SCHEMA.hooks h ORDER BY h.name");

pub(super) const LOCK_HOOK: &str = concat!(
    "-- lock_hook: by name, to be changed\nSELECT ",
    hook_columns!(),
    " FROM SCHEMA.hooks h WHERE h.name = $1 FOR UPDATE"
);

pub(super) const COUNT_HOOKS: &str = "\
-- count_hooks: how many others there are, and the time
SELECT count(*), now() FROM SCHEMA.hooks h WHERE h.name <> $1";

pub(super) const WRITE_HOOK: &str = "\
-- write_hook: the whole of it, new or not
INSERT INTO SCHEMA.hooks (name, spec, secrets, paused_at, pause_reason, dead_in_a_row, missed, created_at, updated_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
ON CONFLICT (name) DO UPDATE
SET spec = excluded.spec, secrets = excluded.secrets, paused_at = excluded.paused_at, pause_reason = excluded.pause_reason,
    dead_in_a_row = excluded.dead_in_a_row, updated_at = excluded.updated_at";

pub(super) const DELETE_HOOK: &str = "\
-- delete_hook
DELETE FROM SCHEMA.hooks h WHERE h.name = $1";

/// `None`: a manual edit has damaged it.
fn hook_from(row: &Row) -> Result<Option<HookRecord>, tokio_postgres::Error> {
    let (name, spec, secrets): (&str, &str, Option<&str>) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
    let (Ok(name), Ok(spec)) = (HookName::new(name), HookSpec::from_stored(spec, secrets)) else {
        tracing::error!(hook = name, "a hook cannot be read and is left out: put it again");
        return Ok(None);
    };
    let reason: Option<String> = row.try_get(4)?;
    let mut record = HookRecord::new(name, spec, row::time(row, 7)?.unwrap_or_default());
    record.paused = row::time(row, 3)?.map(|at| HookPause::new(at, reason.unwrap_or_default()));
    record.dead_in_a_row = row::count(row.try_get(5)?);
    record.missed = row.try_get::<_, i64>(6)?.max(0).unsigned_abs();
    record.updated_at = row::time(row, 8)?.unwrap_or_default();
    Ok(Some(record))
}

pub(super) fn hooks_from(rows: &[Row]) -> Result<Vec<HookRecord>, tokio_postgres::Error> {
    let all: Result<Vec<Option<HookRecord>>, _> = rows.iter().map(hook_from).collect();
    Ok(all?.into_iter().flatten().collect())
}

pub(super) async fn hooks(core: &Core) -> Result<Vec<HookRecord>, StoreError> {
    let rows = core.query("hooks", Effect::Repeatable, &core.sql.hooks, &[]).await?;
    decode("hooks", hooks_from(&rows))
}

async fn lock(core: &Core, tx: &Transaction<'_>, name: &HookName) -> Result<Option<HookRecord>, DbError> {
    let statement = tx.prepare_cached(&core.sql.lock_hook).await?;
    let found = tx.query_opt(&statement, &[&name.as_str()]).await?;
    Ok(found.as_ref().map(hook_from).transpose()?.flatten())
}

async fn count_and_now(core: &Core, tx: &Transaction<'_>, name: &HookName) -> Result<(usize, Timestamp), DbError> {
    let statement = tx.prepare_cached(&core.sql.count_hooks).await?;
    let row = tx.query_one(&statement, &[&name.as_str()]).await?;
    Ok((row.try_get::<_, i64>(0)?.max(0) as usize, row::time(&row, 1)?.unwrap_or_default()))
}

async fn write(core: &Core, tx: &Transaction<'_>, hook: &HookRecord) -> Result<(), DbError> {
    let statement = tx.prepare_cached(&core.sql.write_hook).await?;
    let pause = hook.paused.as_ref();
    let params: [&(dyn ToSql + Sync); 9] = [
        &hook.name.as_str(),
        &hook.spec.stored_text(),
        &hook.spec.stored_secrets(),
        &pause.map(|pause| pause.at),
        &pause.map(|pause| pause.reason.as_str()),
        &(hook.dead_in_a_row as i32),
        &(hook.missed as i64),
        &hook.created_at,
        &hook.updated_at,
    ];
    tx.execute(&statement, &params).await?;
    Ok(())
}

pub(super) async fn put_hook(core: &Core, put: PutHook) -> Result<HookPut, StoreError> {
    in_transaction!(core, "put_hook", |tx| try_put(core, &tx, &put))
}

async fn try_put(core: &Core, tx: &Transaction<'_>, put: &PutHook) -> Result<HookPut, DbError> {
    let found = lock(core, tx, &put.name).await?;
    // Two that are new at the same moment may make it one too many, which harms nobody.
    let (others, now) = count_and_now(core, tx, &put.name).await?;
    if found.is_none() && others >= HOOKS_MAX {
        return Ok(HookPut::TooMany);
    }
    let record = put.applied(found.as_ref(), now);
    write(core, tx, &record).await?;
    audit::record(core, tx, &hook_put(put, found.as_ref(), &record)).await?;
    Ok(if found.is_some() { HookPut::Changed(record) } else { HookPut::Created(record) })
}

pub(super) async fn delete_hook(core: &Core, delete: DeleteHook) -> Result<bool, StoreError> {
    in_transaction!(core, "delete_hook", |tx| try_delete(core, &tx, &delete))
}

async fn try_delete(core: &Core, tx: &Transaction<'_>, delete: &DeleteHook) -> Result<bool, DbError> {
    let found = lock(core, tx, &delete.name).await?;
    let statement = tx.prepare_cached(&core.sql.delete_hook).await?;
    let deleted = tx.execute(&statement, &[&delete.name.as_str()]).await?;
    if let Some(found) = &found {
        audit::record(core, tx, &hook_deleted(delete, found)).await?;
    }
    Ok(deleted > 0)
}

pub(super) async fn switch_hook(core: &Core, switch: SwitchHook) -> Result<Option<HookRecord>, StoreError> {
    in_transaction!(core, "switch_hook", |tx| try_switch(core, &tx, &switch))
}

async fn try_switch(core: &Core, tx: &Transaction<'_>, switch: &SwitchHook) -> Result<Option<HookRecord>, DbError> {
    let Some(found) = lock(core, tx, &switch.name).await? else { return Ok(None) };
    let (_, now) = count_and_now(core, tx, &switch.name).await?;
    let record = switch.applied(&found, now);
    write(core, tx, &record).await?;
    if let Some(entry) = hook_switched(switch, &found) {
        audit::record(core, tx, &entry).await?;
    }
    Ok(Some(record))
}
