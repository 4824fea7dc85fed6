//! put_hook, delete_hook, switch_hook, hooks: who is told of the ends of jobs.

use rusqlite::{Connection, OptionalExtension, Row, params};

use super::audit;
use super::inbox::{Urgency, Verb};
use super::row::{micros, timestamp};
use super::transaction::Tx;
use crate::job::limits::HOOKS_MAX;
use crate::job::{HookName, HookPause, HookRecord, HookSpec};
use crate::store::audit_entry::{hook_deleted, hook_put, hook_switched};
use crate::store::{DeleteHook, HookPut, PutHook, SwitchHook};

macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT name, spec, secrets, paused_at, pause_reason, dead_in_a_row, missed, created_at, updated_at FROM hooks ",
            $rest
        )
    };
}

/// `None`: a manual edit has damaged it.
fn read(row: &Row<'_>) -> rusqlite::Result<Option<HookRecord>> {
    let (name, spec, secrets): (String, String, Option<String>) = (row.get(0)?, row.get(1)?, row.get(2)?);
    let (Ok(name), Ok(spec)) = (HookName::new(&name), HookSpec::from_stored(&spec, secrets.as_deref())) else {
        tracing::error!(hook = name, "a hook cannot be read and is left out: put it again");
        return Ok(None);
    };
    let (paused_at, reason): (Option<i64>, Option<String>) = (row.get(3)?, row.get(4)?);
    let mut record = HookRecord::new(name, spec, timestamp(row.get(7)?));
    record.paused = paused_at.map(|at| HookPause::new(timestamp(at), reason.unwrap_or_default()));
    record.dead_in_a_row = row.get(5)?;
    record.missed = row.get(6)?;
    record.updated_at = timestamp(row.get(8)?);
    Ok(Some(record))
}

/// All of them, by name.
pub(super) fn hooks(connection: &Connection) -> rusqlite::Result<Vec<HookRecord>> {
    let mut statement = connection.prepare_cached(select!("ORDER BY name"))?;
    let rows = statement.query_map([], read)?;
    Ok(rows.collect::<rusqlite::Result<Vec<_>>>()?.into_iter().flatten().collect())
}

fn hook(tx: &Tx<'_>, name: &HookName) -> rusqlite::Result<Option<HookRecord>> {
    let found = tx.statement(select!("WHERE name = ?1"))?.query_row([name.as_str()], read).optional()?;
    Ok(found.flatten())
}

fn write(tx: &Tx<'_>, hook: &HookRecord) -> rusqlite::Result<()> {
    tx.statement(
        "-- put_hook, switch_hook
         INSERT OR REPLACE INTO hooks (name, spec, secrets, paused_at, pause_reason, dead_in_a_row, missed, created_at, updated_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
    )?
    .execute(params![
        hook.name.as_str(),
        hook.spec.stored_text(),
        hook.spec.stored_secrets(),
        hook.paused.as_ref().map(|pause| micros(pause.at)),
        hook.paused.as_ref().map(|pause| pause.reason.as_str()),
        hook.dead_in_a_row,
        hook.missed,
        micros(hook.created_at),
        micros(hook.updated_at),
    ])?;
    Ok(())
}

impl Verb for PutHook {
    type Answer = HookPut;
    const NAME: &'static str = "put_hook";
    const URGENCY: Urgency = Urgency::Urgent;

    fn apply(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<HookPut> {
        let found = hook(tx, &self.name)?;
        let others: usize = tx
            .statement("SELECT count(*) FROM hooks WHERE name <> ?1")?
            .query_row([self.name.as_str()], |row| row.get(0))?;
        if found.is_none() && others >= HOOKS_MAX {
            return Ok(HookPut::TooMany);
        }
        let record = self.applied(found.as_ref(), timestamp(tx.now_micros()));
        write(tx, &record)?;
        audit::record(tx, &hook_put(self, found.as_ref(), &record))?;
        Ok(if found.is_some() { HookPut::Changed(record) } else { HookPut::Created(record) })
    }
}

impl Verb for DeleteHook {
    type Answer = bool;
    const NAME: &'static str = "delete_hook";
    const URGENCY: Urgency = Urgency::Urgent;

    fn apply(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<bool> {
        let found = hook(tx, &self.name)?;
        let deleted = tx.statement("DELETE FROM hooks WHERE name = ?1")?.execute([self.name.as_str()])?;
        if let Some(found) = &found {
            audit::record(tx, &hook_deleted(self, found))?;
        }
        Ok(deleted > 0)
    }
}

impl Verb for SwitchHook {
    type Answer = Option<HookRecord>;
    const NAME: &'static str = "switch_hook";
    const URGENCY: Urgency = Urgency::Urgent;

    fn apply(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<Option<HookRecord>> {
        let Some(found) = hook(tx, &self.name)? else { return Ok(None) };
        let record = self.applied(&found, timestamp(tx.now_micros()));
        write(tx, &record)?;
        if let Some(entry) = hook_switched(self, &found) {
            audit::record(tx, &entry)?;
        }
        Ok(Some(record))
    }
}
