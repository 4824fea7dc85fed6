//! The audit: `record`, for operators' verbs of several statements, what those of one statement write along, and audit,
//! prune_audit.

use deadpool_postgres::Transaction;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::core::{Core, decode};
use super::error::{DbError, Effect};
use super::row;
use crate::job::limits::PAGE_MAX;
use crate::store::audit_entry::{ActorColumns, AuditEntry, AuditRow};
use crate::store::{AuditCursor, AuditPage, ListAudit, PruneAudit, StoreError};

pub(super) const RECORD_AUDIT: &str = "\
-- record_audit: what was done in this transaction
INSERT INTO SCHEMA.audit (at, token_id, token_name, request_id, remote, action, target, before, after, count, reason, detail)
VALUES (now(), $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)";

/// Records an act in the transaction that it is part of: both are committed, or neither.
pub(super) async fn record(core: &Core, tx: &Transaction<'_>, entry: &AuditEntry) -> Result<(), DbError> {
    let AuditEntry { by, action, target, before, after, count, reason, detail } = entry;
    let ActorColumns { token_id, token_name, request_id, remote } = by;
    let statement = tx.prepare_cached(&core.sql.record_audit).await?;
    let count = *count as i64;
    let params: [&(dyn ToSql + Sync); 11] =
        [token_id, token_name, request_id, remote, action, target, before, after, &count, reason, detail];
    tx.execute(&statement, &params).await?;
    Ok(())
}

/// Who, as parameters of a statement that writes its own row of the audit.
pub(super) fn actor_params(by: &ActorColumns) -> [&(dyn ToSql + Sync); 4] {
    [&by.token_id, &by.token_name, &by.request_id, &by.remote]
}

/// What statements of operators have in common, written in by `sql`. `AUDITED_JOBS`: the statement has an `acted (id, was,
/// is_now, verb)`, one row for each job that it changes, and who as $2 to $5. `…_JSON`: settings as the audit shows them,
/// as `audit_entry` does for the other store; what is text in the table stays text, for it may be damaged.
pub(super) const SHARED: [(&str, &str); 7] = [
    ("SNOOZE_JSON", "json_strip_nulls(json_build_object('until', s.until, 'note', s.note))::text"),
    (
        "AUDITED_JOBS",
        "audited AS (
    AUDIT_INTO (at, token_id, token_name, request_id, remote, action, target, before, after, count, detail)
    SELECT now(), $2::text, $3::text, $4::text, $5::text, min(a.verb),
           CASE WHEN count(*) = 1 THEN 'job:' || min(a.id::text) ELSE 'jobs' END,
           (SELECT json_object_agg(s.word, s.n)::text
            FROM (SELECT c.was AS word, count(*) AS n FROM acted c GROUP BY c.was) s),
           (SELECT json_object_agg(s.word, s.n)::text
            FROM (SELECT c.is_now AS word, count(*) AS n FROM acted c WHERE c.is_now IS NOT NULL GROUP BY c.is_now) s),
           count(*),
           CASE WHEN count(*) > 1 THEN (SELECT json_build_object('ids', json_agg(f.id))::text
                                        FROM (SELECT c.id FROM acted c ORDER BY c.id LIMIT 20) f) END
    FROM acted a
    HAVING count(*) > 0
)",
    ),
    ("AUDIT_INTO", "INSERT INTO SCHEMA.audit"),
    (
        "KIND_JSON",
        "json_strip_nulls(json_build_object(
        'schema', CASE WHEN octet_length(k.payload_schema) <= 4096 THEN k.payload_schema
                       ELSE octet_length(k.payload_schema) || ' bytes, sha256 '
                            || encode(sha256(convert_to(k.payload_schema, 'UTF8')), 'hex') END,
        'queue', k.queue, 'priority', k.priority, 'max_attempts', k.max_attempts, 'timeout_ms', k.timeout_ms,
        'retry', k.retry, 'concurrency', k.concurrency,
        'rate', CASE WHEN k.rate_limit IS NOT NULL THEN json_build_object(
            'limit', k.rate_limit, 'per_ms', k.rate_per_us / 1000, 'burst', k.rate_burst) END,
        'hidden', k.hidden))::text",
    ),
    (
        "QUEUE_JSON",
        "json_strip_nulls(json_build_object(
        'concurrency', q.concurrency,
        'rate', CASE WHEN q.rate_limit IS NOT NULL THEN json_build_object(
            'limit', q.rate_limit, 'per_ms', q.rate_per_us / 1000, 'burst', q.rate_burst) END,
        'groups', CASE WHEN q.group_order IS NOT NULL THEN json_build_object(
            'concurrency', q.group_concurrency,
            'rate', CASE WHEN q.group_rate_limit IS NOT NULL THEN json_build_object(
                'limit', q.group_rate_limit, 'per_ms', q.group_rate_per_us / 1000, 'burst', q.group_rate_burst) END,
            'order', q.group_order) END))::text",
    ),
    (
        "GROUP_JSON",
        "json_strip_nulls(json_build_object(
        'concurrency', g.concurrency,
        'rate', CASE WHEN g.rate_limit IS NOT NULL THEN json_build_object(
            'limit', g.rate_limit, 'per_ms', g.rate_per_us / 1000, 'burst', g.rate_burst) END,
        'weight', g.weight, 'paused', g.paused))::text",
    ),
    ("TOKEN_JSON", "json_build_object('name', t.name, 'scopes', string_to_array(t.scopes, ' '))::text"),
];

pub(super) const AUDIT: &str = "\
-- audit: newest first, among the next $5 rows
WITH looked AS MATERIALIZED (
    SELECT a.seq, a.at, a.token_id, a.token_name, a.request_id, a.remote, a.action, a.target, a.before, a.after, a.count,
           a.reason, a.detail
    FROM SCHEMA.audit a
    WHERE (a.at, a.seq) < ($1::timestamptz, $2::bigint) AND a.at >= $3::timestamptz AND $4::text IS NULL
    ORDER BY a.at DESC, a.seq DESC
    LIMIT $5
)
SELECT o.n, o.at, o.seq, r.*
FROM (SELECT count(*) AS n, min(l.at) AS at,
             (SELECT m.seq FROM looked m ORDER BY m.at, m.seq LIMIT 1) AS seq FROM looked l) o
LEFT JOIN LATERAL (
    SELECT l.* FROM looked l
    WHERE ($6::text IS NULL OR l.action = $6) AND ($7::text IS NULL OR l.token_id = $7 OR l.token_name = $7)
    ORDER BY l.at DESC, l.seq DESC
    LIMIT $8
) r ON true
ORDER BY r.at DESC, r.seq DESC";

/// What [`AUDIT`] asks for instead, by its index.
pub(super) fn audit_of_target() -> String {
    AUDIT.replace("$4::text IS NULL", "a.target = $4::text")
}

pub(super) async fn audit(core: &Core, list: ListAudit) -> Result<AuditPage, StoreError> {
    let limit = list.limit.clamp(1, PAGE_MAX);
    let (start, look_at) = (list.start(), list.look_at(limit) as i64);
    let sql = if list.target.is_some() { &core.sql.audit_of_target } else { &core.sql.audit };
    let (earliest, one_more) = (list.earliest(), limit as i64 + 1);
    let params: [&(dyn ToSql + Sync); 8] =
        [&start.at, &start.seq, &earliest, &list.target, &look_at, &list.action, &list.token, &one_more];
    let rows = core.query("audit", Effect::Repeatable, sql, &params).await?;
    decode("audit", page(&rows, limit, look_at))
}

fn page(rows: &[Row], limit: usize, look_at: i64) -> Result<AuditPage, tokio_postgres::Error> {
    let (mut records, mut looked_until) = (Vec::with_capacity(rows.len()), None);
    for found in rows {
        let looked_at: i64 = found.try_get(0)?;
        if let Some(at) = row::time(found, 1)?.filter(|_| looked_at == look_at) {
            looked_until = Some(AuditCursor { at, seq: found.try_get(2)? });
        }
        // Without one that is asked for, a row of nulls says how far it was looked.
        if let Some(seq) = found.try_get::<_, Option<i64>>(3)? {
            records.push(read(found, seq)?.into());
        }
    }
    Ok(AuditPage::of(records, limit, looked_until))
}

fn read(found: &Row, seq: i64) -> Result<AuditRow, tokio_postgres::Error> {
    Ok(AuditRow {
        seq,
        at: row::time(found, 4)?.unwrap_or_default(),
        by: ActorColumns {
            token_id: found.try_get(5)?,
            token_name: found.try_get(6)?,
            request_id: found.try_get(7)?,
            remote: found.try_get(8)?,
        },
        action: found.try_get(9)?,
        target: found.try_get(10)?,
        before: found.try_get(11)?,
        after: found.try_get(12)?,
        count: found.try_get(13)?,
        reason: found.try_get(14)?,
        detail: found.try_get(15)?,
    })
}

pub(super) const PRUNE_AUDIT: &str = "\
-- prune_audit: kept long enough → gone, oldest first
WITH old AS MATERIALIZED (
    SELECT a.seq FROM SCHEMA.audit a
    WHERE a.at <= now() - $1::bigint * interval '1 microsecond'
    ORDER BY a.at, a.seq
    LIMIT $2
    FOR UPDATE SKIP LOCKED
),
gone AS (DELETE FROM SCHEMA.audit a USING old o WHERE a.seq = o.seq RETURNING a.seq)
SELECT count(*) FROM gone";

pub(super) async fn prune_audit(core: &Core, prune: PruneAudit) -> Result<usize, StoreError> {
    // 2^52 µs: see prune.
    let keep = row::micros(prune.keep).min(1 << 52);
    let limit = i64::try_from(prune.limit.max(1)).unwrap_or(i64::MAX);
    let rows = core.query("prune_audit", Effect::Repeatable, &core.sql.prune_audit, &[&keep, &limit]).await?;
    let deleted: i64 = rows.first().map_or(Ok(0), |row| decode("prune_audit", row.try_get(0)))?;
    Ok(deleted.max(0) as usize)
}
