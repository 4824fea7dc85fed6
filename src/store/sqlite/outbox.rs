//! The outbox: ends of watched jobs, and resolve_outbox, which turns them into deliveries. What becomes of each is decided in
//! `store/outbox.rs`.

use std::collections::HashMap;

use rusqlite::{OptionalExtension, params};

use super::audit;
use super::enqueue::enqueue_unless_known;
use super::hooks::hooks;
use super::inbox::{Urgency, Verb};
use super::marks::Marks;
use super::row::{UuidBlob, micros, timestamp};
use super::transaction::Tx;
use crate::job::limits::OUTBOX_BATCH_MAX;
use crate::job::{EventId, HookInclude, JobContent, JobId};
use crate::planted::{Bug, planted};
use crate::store::outbox::{HookCounters, OutboxRow, Resolution, TakenEnds, paused_entry};
use crate::store::{ResolveOutbox, Resolved};

const REPORT: &str = "
-- settle, reap, cancel, claim: the end of a watched job
INSERT INTO outbox (event)
SELECT json_object(
    'watch', (marks & 96) >> 4, 'job', hex(id), 'kind', kind, 'queue', queue, 'status', status,
    'notify', CASE WHEN marks & 16 THEN (SELECT json_extract(shown, '$.notify') FROM job_options o WHERE o.seq = jobs.seq) END,
    'group', group_key, 'key', idempotency_key, 'priority', priority, 'attempts', attempts, 'max_attempts', max_attempts,
    'error', last_error, 'created_at', created_at, 'at', finished_at)
FROM jobs WHERE seq = ?1";

/// Writes that a job has ended, if anybody watches it; its row says how. Others pay the look at their marks.
pub(super) fn report_end(tx: &Tx<'_>, seq: i64, marks: Marks) -> rusqlite::Result<()> {
    if !marks.is_watched() {
        return Ok(());
    }
    tx.statement(REPORT)?.execute([seq]).map(drop)
}

impl Verb for ResolveOutbox {
    type Answer = Resolved;
    const NAME: &'static str = "resolve_outbox";
    const URGENCY: Urgency = Urgency::Bulk;

    fn weight(&self) -> usize {
        self.limit.clamp(1, OUTBOX_BATCH_MAX)
    }

    fn apply(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<Resolved> {
        let limit = self.limit.clamp(1, OUTBOX_BATCH_MAX);
        let rows = oldest(tx, limit)?;
        let mut resolved = Resolved { ends: rows.len(), more: rows.len() == limit, ..Resolved::default() };
        let Some(last) = rows.last().map(|row| row.event.seq) else { return Ok(resolved) };
        let taken = TakenEnds::read(&rows, hooks(tx.connection())?);
        let resolution = taken.resolve(self, &contents(tx, &taken)?);
        // One writer: nothing can have come in between.
        let mut delete = tx.statement("-- resolve_outbox\nDELETE FROM outbox WHERE seq <= ?1")?;
        delete.execute([last])?;
        if planted(Bug::OutboxApart) {
            tx.connection().execute_batch("COMMIT")?;
            // Long enough that a process which dies at random does so here.
            std::thread::sleep(std::time::Duration::from_millis(500));
            tx.connection().execute_batch("BEGIN IMMEDIATE")?;
        }
        for job in &resolution.jobs {
            let enqueued = enqueue_unless_known(tx, job)?;
            if enqueued.created {
                resolved.deliveries.push(enqueued.job.id);
            }
        }
        resolved.missed = resolution.missed();
        change_hooks(tx, &resolution, &mut resolved)?;
        Ok(resolved)
    }
}

fn oldest(tx: &Tx<'_>, limit: usize) -> rusqlite::Result<Vec<OutboxRow>> {
    let mut statement =
        tx.statement("-- resolve_outbox: the oldest\nSELECT seq, id, event FROM outbox ORDER BY seq LIMIT ?1")?;
    let rows = statement.query_map([limit as i64], |row| {
        let event = EventId { seq: row.get(0)?, id: row.get::<_, UuidBlob>(1)?.0 };
        Ok(OutboxRow { event, text: row.get(2)? })
    })?;
    rows.collect()
}

/// Payloads and results that are to be sent; of a job that was deleted since, nothing.
fn contents(tx: &Tx<'_>, taken: &TakenEnds) -> rusqlite::Result<HashMap<JobId, JobContent>> {
    let mut contents = HashMap::new();
    let mut statement = tx.statement(
        "-- resolve_outbox: what is sent along
         SELECT CASE WHEN ?2 THEN payload END, CASE WHEN ?3 THEN result END FROM jobs WHERE id = ?1",
    )?;
    let (payload, result) = (taken.includes(HookInclude::Payload), taken.includes(HookInclude::Result));
    for id in taken.included() {
        let content = statement
            .query_row(params![UuidBlob::from(id), payload, result], |row| {
                Ok(JobContent { payload: row.get(0)?, result: row.get(1)? })
            })
            .optional()?;
        contents.extend(content.map(|content| (id, content)));
    }
    Ok(contents)
}

fn change_hooks(tx: &Tx<'_>, resolution: &Resolution, resolved: &mut Resolved) -> rusqlite::Result<()> {
    let now = timestamp(tx.now_micros());
    for (name, change) in &resolution.changes {
        let counters = tx
            .statement("SELECT dead_in_a_row, paused_at IS NOT NULL FROM hooks WHERE name = ?1")?
            .query_row([name.as_str()], |row| Ok(HookCounters { dead_in_a_row: row.get(0)?, is_paused: row.get(1)? }))
            .optional()?;
        // It was deleted since.
        let Some(mut counters) = counters else { continue };
        let pause = change.apply(&mut counters, now);
        tx.statement(
            "-- resolve_outbox: how deliveries ended, and what was not sent
             UPDATE hooks SET dead_in_a_row = ?2, missed = missed + ?3, paused_at = coalesce(?4, paused_at),
                              pause_reason = coalesce(?5, pause_reason)
             WHERE name = ?1",
        )?
        .execute(params![
            name.as_str(),
            counters.dead_in_a_row,
            change.missed,
            pause.as_ref().map(|pause| micros(pause.at)),
            pause.as_ref().map(|pause| pause.reason.as_str()),
        ])?;
        if let Some(pause) = pause {
            audit::record(tx, &paused_entry(name, &pause))?;
            resolved.paused.push(name.clone());
        }
    }
    Ok(())
}
