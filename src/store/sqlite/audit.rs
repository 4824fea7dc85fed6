//! The audit: `record`, which every operator's verb calls in its transaction, and audit, prune_audit.

use rusqlite::{Connection, Row, params};

use super::inbox::{Urgency, Verb};
use super::row::{micros, timestamp};
use super::transaction::Tx;
use crate::job::limits::PAGE_MAX;
use crate::store::audit_entry::{ActorColumns, AuditEntry, AuditRow};
use crate::store::{AuditPage, ListAudit, PruneAudit};

const RECORD: &str = "
-- audit: what was done in this transaction
INSERT INTO audit (at, token_id, token_name, request_id, remote, action, target, before, after, count, reason, detail)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)";

/// Records an act in the transaction that it is part of: both are committed, or neither.
pub(super) fn record(tx: &Tx<'_>, entry: &AuditEntry) -> rusqlite::Result<()> {
    let AuditEntry { by, action, target, before, after, count, reason, detail } = entry;
    let ActorColumns { token_id, token_name, request_id, remote } = by;
    tx.statement(RECORD)?.execute(params![
        tx.now_micros(),
        token_id,
        token_name,
        request_id,
        remote,
        action,
        target,
        before,
        after,
        count,
        reason,
        detail
    ])?;
    Ok(())
}

macro_rules! list {
    ($condition:literal) => {
        concat!(
            "SELECT seq, at, token_id, token_name, request_id, remote, action, target, before, after, count, reason, \
             detail FROM audit WHERE (at, seq) < (?1, ?2) AND at >= ?3 AND ",
            $condition,
            " ORDER BY at DESC, seq DESC LIMIT ?5"
        )
    };
}

pub(super) const LIST: &str = list!("?4 IS NULL");
pub(super) const LIST_OF_TARGET: &str = list!("target = ?4");

pub(super) fn audit(connection: &Connection, list: &ListAudit) -> rusqlite::Result<AuditPage> {
    let limit = list.limit.clamp(1, PAGE_MAX);
    let (start, look_at) = (list.start(), list.look_at(limit));
    let sql = if list.target.is_some() { LIST_OF_TARGET } else { LIST };
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows =
        statement.query(params![micros(start.at), start.seq, micros(list.earliest()), list.target, look_at as i64])?;
    let (mut records, mut looked_at, mut last) = (Vec::new(), 0, None);
    while let Some(row) = rows.next()? {
        looked_at += 1;
        let row = read(row)?;
        last = Some(row.cursor());
        if row.is_asked_for(list) {
            records.push(row.into());
        }
        if records.len() > limit {
            break;
        }
    }
    Ok(AuditPage::of(records, limit, last.filter(|_| looked_at == look_at)))
}

fn read(row: &Row<'_>) -> rusqlite::Result<AuditRow> {
    Ok(AuditRow {
        seq: row.get(0)?,
        at: timestamp(row.get(1)?),
        by: ActorColumns {
            token_id: row.get(2)?,
            token_name: row.get(3)?,
            request_id: row.get(4)?,
            remote: row.get(5)?,
        },
        action: row.get(6)?,
        target: row.get(7)?,
        before: row.get(8)?,
        after: row.get(9)?,
        count: row.get(10)?,
        reason: row.get(11)?,
        detail: row.get(12)?,
    })
}

pub(super) const PRUNE: &str = "
-- prune_audit: kept long enough → gone, oldest first
DELETE FROM audit WHERE seq IN (SELECT seq FROM audit WHERE at <= ?1 ORDER BY at, seq LIMIT ?2)";

impl Verb for PruneAudit {
    type Answer = usize;
    const NAME: &'static str = "prune_audit";
    const URGENCY: Urgency = Urgency::Bulk;

    fn weight(&self) -> usize {
        self.limit
    }

    fn apply(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<usize> {
        let kept_since = tx.now_micros().saturating_sub(i64::try_from(self.keep.as_micros()).unwrap_or(i64::MAX));
        tx.statement(PRUNE)?.execute(params![kept_since, self.limit.max(1) as i64])
    }
}
