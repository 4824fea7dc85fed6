//! put_kind, delete_kind, kinds: what is declared.

use rusqlite::{Connection, OptionalExtension, Row, params};

use super::audit;
use super::audit_shown::shown_kind;
use super::gates::LimitKey;
use super::inbox::{Urgency, Verb};
use super::limit_settings::{read_number, read_rate};
use super::limits::{Running, count_running, rate_columns};
use super::marks::Marks;
use super::transaction::Tx;
use crate::job::limits::KINDS_MAX;
use crate::job::{Kind, KindDefaults, KindDefinition, QueueName};
use crate::store::audit_entry::AuditEntry;
use crate::store::{DeleteKind, KindPut, PutKind};

const PUT: &str = "
-- put_kind: ?13: limits and hidden parts of a kind that is declared stay
INSERT INTO kinds (kind, schema, queue, priority, max_attempts, timeout_ms, retry, concurrency, rate_limit, rate_per_us,
                   rate_burst, hidden)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)
ON CONFLICT (kind) DO UPDATE SET schema = excluded.schema, queue = excluded.queue,
    priority = excluded.priority, max_attempts = excluded.max_attempts,
    timeout_ms = excluded.timeout_ms, retry = excluded.retry,
    concurrency = CASE WHEN ?13 THEN concurrency ELSE excluded.concurrency END,
    rate_limit = CASE WHEN ?13 THEN rate_limit ELSE excluded.rate_limit END,
    rate_per_us = CASE WHEN ?13 THEN rate_per_us ELSE excluded.rate_per_us END,
    rate_burst = CASE WHEN ?13 THEN rate_burst ELSE excluded.rate_burst END,
    hidden = CASE WHEN ?13 THEN hidden ELSE excluded.hidden END";

impl Verb for PutKind {
    type Answer = KindPut;
    const NAME: &'static str = "put_kind";
    const URGENCY: Urgency = Urgency::Urgent;

    fn apply(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<KindPut> {
        let KindDefinition { kind, schema, defaults, concurrency, rate, hidden } = &self.definition;
        let before = declared(tx, kind)?;
        let known = before.is_some();
        let stored: usize = tx.statement("SELECT count(*) FROM kinds")?.query_row([], |row| row.get(0))?;
        if !known && stored >= KINDS_MAX {
            return Ok(KindPut::TooMany);
        }
        let (limit, per_us, burst) = rate_columns(*rate);
        let hidden =
            Some(hidden).filter(|hidden| !hidden.is_empty()).and_then(|hidden| serde_json::to_string(hidden).ok());
        tx.statement(PUT)?.execute(params![
            kind.as_str(),
            schema.as_ref().map(ToString::to_string),
            defaults.queue.as_ref().map(|queue| queue.as_str()),
            defaults.priority,
            defaults.max_attempts,
            defaults.timeout_ms,
            defaults.retry.as_ref().and_then(|retry| serde_json::to_string(retry).ok()),
            concurrency,
            limit,
            per_us,
            burst,
            hidden,
            self.keep_limits,
        ])?;
        let is_limited = concurrency.is_some() && !(known && self.keep_limits);
        if is_limited {
            count_running(tx, Marks::KIND, Running::Kind(kind.as_str()))?;
        }
        tx.settings_written(LimitKey::Kind(kind.text()))?;
        let (before, after) = (before.as_ref().map(shown_kind), declared(tx, kind)?.as_ref().map(shown_kind));
        if before != after {
            let entry = AuditEntry::new(Self::NAME, format!("kind:{kind}"), self.by.as_ref());
            audit::record(tx, &entry.before(before).after(after))?;
        }
        Ok(if known { KindPut::Changed } else { KindPut::New })
    }
}

impl Verb for DeleteKind {
    type Answer = bool;
    const NAME: &'static str = "delete_kind";
    const URGENCY: Urgency = Urgency::Urgent;

    fn apply(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<bool> {
        let before = declared(tx, &self.kind)?;
        let was_declared = tx.statement("DELETE FROM kinds WHERE kind = ?1")?.execute([self.kind.as_str()])? > 0;
        tx.settings_written(LimitKey::Kind(self.kind.text()))?;
        if was_declared {
            let entry = AuditEntry::new(Self::NAME, format!("kind:{}", self.kind), self.by.as_ref());
            audit::record(tx, &entry.before(before.as_ref().map(shown_kind)))?;
        }
        Ok(was_declared)
    }
}

/// What [`read_kind`] reads, in its order.
macro_rules! kind_columns {
    () => {
        "kind, schema, queue, priority, max_attempts, timeout_ms, retry, concurrency, rate_limit, rate_per_us, \
         rate_burst, hidden"
    };
}

fn declared(tx: &Tx<'_>, kind: &Kind) -> rusqlite::Result<Option<KindDefinition>> {
    let sql = concat!("SELECT ", kind_columns!(), " FROM kinds WHERE kind = ?1");
    Ok(tx.statement(sql)?.query_row([kind.as_str()], read_kind).optional()?.flatten())
}

pub(super) fn kinds(connection: &Connection) -> rusqlite::Result<Vec<KindDefinition>> {
    let sql = concat!("SELECT ", kind_columns!(), " FROM kinds ORDER BY kind");
    let mut statement = connection.prepare_cached(sql)?;
    let rows = statement.query_map([], read_kind)?;
    rows.filter_map(Result::transpose).collect()
}

/// `None` for a name that no program of ours wrote.
fn read_kind(row: &Row<'_>) -> rusqlite::Result<Option<KindDefinition>> {
    let Ok(kind) = Kind::new(row.get::<_, String>(0)?) else { return Ok(None) };
    let text = |index| row.get::<_, Option<String>>(index);
    Ok(Some(KindDefinition {
        kind,
        schema: text(1)?.and_then(|schema| serde_json::from_str(&schema).ok()),
        defaults: KindDefaults {
            queue: text(2)?.and_then(|queue| QueueName::new(queue).ok()),
            priority: row.get(3)?,
            max_attempts: row.get(4)?,
            timeout_ms: row.get(5)?,
            retry: text(6)?.and_then(|retry| serde_json::from_str(&retry).ok()),
        },
        concurrency: read_number(row, 7)?,
        rate: read_rate(row, 8)?,
        hidden: text(11)?.and_then(|hidden| serde_json::from_str(&hidden).ok()).unwrap_or_default(),
    }))
}
