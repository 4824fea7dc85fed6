//! resolve_outbox: ends of watched jobs become deliveries. What becomes of each is decided in `store/outbox.rs`; the ends are
//! written by the statements that end jobs (`REPORTED` in `sql`).
//!
//! Every process does it. A transaction locks the ends that it takes and passes over those of others, so an end becomes its
//! deliveries once. Numbers of the outbox do not commit in order: it is read from the beginning each time.

use std::collections::HashMap;

use deadpool_postgres::Transaction;
use tokio::time::timeout;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::audit;
use super::core::Core;
use super::enqueue::{insert, insert_sql};
use super::error::{DbError, Effect, Retries};
use super::hooks::hooks_from;
use super::row;
use super::schedules::in_transaction;
use crate::job::limits::OUTBOX_BATCH_MAX;
use crate::job::{EventId, HookInclude, HookName, JobContent, JobId, JobRecord, NewJob};
use crate::planted::{Bug, planted};
use crate::store::outbox::{HookCounters, OutboxRow, Resolution, TakenEnds, paused_entry};
use crate::store::{ResolveOutbox, Resolved, StoreError};

pub(super) const OUTBOX: &str = "\
-- outbox: the oldest ends that nobody works on are taken
WITH taken AS MATERIALIZED (
    SELECT o.seq FROM SCHEMA.outbox o ORDER BY o.seq LIMIT $1 FOR UPDATE SKIP LOCKED
)
DELETE FROM SCHEMA.outbox o USING taken t WHERE o.seq = t.seq RETURNING o.seq, o.id, o.event";

pub(super) const INCLUDED: &str = "\
-- included: what is sent along
SELECT j.id, CASE WHEN $2 THEN j.payload END, CASE WHEN $3 THEN j.result END FROM SCHEMA.jobs j WHERE j.id = ANY ($1)";

pub(super) const HOOK_COUNTERS: &str = "\
-- hook_counters: locked in one order
SELECT h.name, h.dead_in_a_row, h.paused_at IS NOT NULL, now()
FROM SCHEMA.hooks h WHERE h.name = ANY ($1) ORDER BY h.name FOR NO KEY UPDATE";

pub(super) const WRITE_HOOK_COUNTERS: &str = "\
-- write_hook_counters: how deliveries ended, and what was not sent
UPDATE SCHEMA.hooks h
SET dead_in_a_row = $2, missed = h.missed + $3, paused_at = coalesce($4::timestamptz, h.paused_at),
    pause_reason = coalesce($5::text, h.pause_reason)
WHERE h.name = $1";

pub(super) async fn resolve_outbox(core: &Core, resolve: ResolveOutbox) -> Result<Resolved, StoreError> {
    let done: Result<(Resolved, Vec<JobRecord>), StoreError> =
        in_transaction!(core, "resolve_outbox", |tx| try_resolve(core, &tx, &resolve));
    let (resolved, new) = done?;
    if !new.is_empty() {
        core.lower(new.iter());
        core.notifier.notify();
    }
    Ok(resolved)
}

async fn try_resolve(
    core: &Core,
    tx: &Transaction<'_>,
    resolve: &ResolveOutbox,
) -> Result<(Resolved, Vec<JobRecord>), DbError> {
    let limit = resolve.limit.clamp(1, OUTBOX_BATCH_MAX);
    let rows = take(core, tx, limit).await?;
    let mut resolved = Resolved { ends: rows.len(), more: rows.len() == limit, ..Resolved::default() };
    if rows.is_empty() {
        return Ok((resolved, Vec::new()));
    }
    if planted(Bug::OutboxApart) {
        tx.batch_execute("COMMIT").await?;
        // Long enough that a process which dies at random does so here.
        tokio::time::sleep(std::time::Duration::from_millis(500)).await;
        tx.batch_execute("BEGIN").await?;
    }
    let statement = tx.prepare_cached(&core.sql.hooks).await?;
    let taken = TakenEnds::read(&rows, hooks_from(&tx.query(&statement, &[]).await?)?);
    let resolution = taken.resolve(resolve, &contents(core, tx, &taken).await?);
    let jobs: Vec<&NewJob> = resolution.jobs.iter().collect();
    let mut new = Vec::with_capacity(jobs.len());
    if !jobs.is_empty() {
        let statement = tx.prepare_cached(insert_sql(&core.sql, &jobs)).await?;
        // One that has its key already is there.
        let stored = insert(&**tx, &statement, &jobs, None).await?.new;
        for job in jobs {
            if let Some((run_at, created_at)) = stored.get(job.id().as_uuid()) {
                new.push(job.as_stored(*run_at, *created_at));
            }
        }
    }
    resolved.deliveries = new.iter().map(|job| job.id).collect();
    resolved.missed = resolution.missed();
    if !resolution.changes.is_empty() {
        change_hooks(core, tx, &resolution, &mut resolved).await?;
    }
    Ok((resolved, new))
}

/// The oldest first.
async fn take(core: &Core, tx: &Transaction<'_>, limit: usize) -> Result<Vec<OutboxRow>, DbError> {
    let statement = tx.prepare_cached(&core.sql.outbox).await?;
    let mut taken = Vec::new();
    for row in tx.query(&statement, &[&(limit as i64)]).await? {
        let event = EventId { seq: row.try_get(0)?, id: row.try_get(1)? };
        taken.push(OutboxRow { event, text: row.try_get(2)? });
    }
    taken.sort_unstable_by_key(|row| row.event.seq);
    Ok(taken)
}

/// Payloads and results that are to be sent; of a job that was deleted since, nothing.
async fn contents(core: &Core, tx: &Transaction<'_>, taken: &TakenEnds) -> Result<HashMap<JobId, JobContent>, DbError> {
    let ids: Vec<Uuid> = taken.included().iter().map(|id| *id.as_uuid()).collect();
    let mut contents = HashMap::new();
    if ids.is_empty() {
        return Ok(contents);
    }
    let statement = tx.prepare_cached(&core.sql.included).await?;
    let (payload, result) = (taken.includes(HookInclude::Payload), taken.includes(HookInclude::Result));
    for row in tx.query(&statement, &[&ids, &payload, &result]).await? {
        let content = JobContent { payload: row.try_get(1)?, result: row.try_get(2)? };
        contents.insert(row::id(row.try_get(0)?), content);
    }
    Ok(contents)
}

async fn change_hooks(
    core: &Core,
    tx: &Transaction<'_>,
    resolution: &Resolution,
    resolved: &mut Resolved,
) -> Result<(), DbError> {
    let names: Vec<&str> = resolution.changes.keys().map(HookName::as_str).collect();
    let (lock, write) =
        (tx.prepare_cached(&core.sql.hook_counters).await?, tx.prepare_cached(&core.sql.write_hook_counters).await?);
    for row in tx.query(&lock, &[&names]).await? {
        // One that was deleted since is not among them.
        let Some((name, change)) =
            HookName::new(row.try_get::<_, &str>(0)?).ok().and_then(|name| resolution.changes.get_key_value(&name))
        else {
            continue;
        };
        let mut counters = HookCounters { dead_in_a_row: row::count(row.try_get(1)?), is_paused: row.try_get(2)? };
        let pause = change.apply(&mut counters, row::time(&row, 3)?.unwrap_or_default());
        let params: [&(dyn ToSql + Sync); 5] = [
            &name.as_str(),
            &(counters.dead_in_a_row.min(i32::MAX as u32) as i32),
            &(change.missed as i64),
            &pause.as_ref().map(|pause| pause.at),
            &pause.as_ref().map(|pause| pause.reason.as_str()),
        ];
        tx.execute(&write, &params).await?;
        if let Some(pause) = pause {
            audit::record(core, tx, &paused_entry(name, &pause)).await?;
            resolved.paused.push(name.clone());
        }
    }
    Ok(())
}
