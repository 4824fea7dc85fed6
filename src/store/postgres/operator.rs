//! What operators and retention do to jobs: cancel, redrive, delete, prune.

use std::collections::HashMap;

use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::audit::actor_params;
use super::core::{Core, decode};
use super::error::Effect;
use super::row;
use crate::job::limits::ERROR_GROUP_KEPT;
use crate::job::{JobId, Status};
use crate::store::audit_entry::ActorColumns;
use crate::store::{Actor, Cancel, Cancelled, Delete, Deleted, PerItem, Prune, Pruned, Redrive, Redriven, StoreError};

pub(super) const CANCEL: &str = "\
-- cancel: queued, retrying → cancelled; running → flagged
WITH was AS MATERIALIZED (
    SELECT j.id, j.queue, j.kind, j.status, j.cancel_requested, j.group_seq IS NOT NULL AS is_strict
    FROM unnest($1::uuid[]) AS t(id) JOIN SCHEMA.jobs j ON j.id = t.id
    ORDER BY j.id
    FOR UPDATE OF j
),
ended AS (
    -- The table's rules are checked on the row as the statement first saw it, before the newest version, which is
    -- locked above, replaces it. A lease that has ended in between must not be in that one either.
    UPDATE SCHEMA.jobs j
    SET status = 'cancelled', cancel_requested = true, lease_expires_at = NULL, finished_at = now(), died_at = now(),
        updated_at = now(), start_deadline = NULL, unique_key = CASE WHEN j.unique_while = 2 THEN j.unique_key END
    FROM was w WHERE j.id = w.id AND w.status IN ('queued', 'retrying')
    RETURNING j.queue, j.kind, w.status AS was, CASE WHEN j.watch IS NOT NULL THEN END_JSON END AS event
),
flagged AS (
    UPDATE SCHEMA.jobs j SET cancel_requested = true, updated_at = now()
    FROM was w WHERE j.id = w.id AND w.status = 'running'
),
acted AS (
    SELECT DISTINCT w.id, w.status AS was,
           CASE w.status WHEN 'running' THEN 'cancel_requested' ELSE 'cancelled' END AS is_now, 'cancel' AS verb
    FROM was w
    WHERE w.status IN ('queued', 'retrying') OR (w.status = 'running' AND NOT w.cancel_requested)
),
AUDITED_JOBS,
REPORTED (ended),
moved AS (SELECT e.queue, e.kind, e.was, 'cancelled' AS is_now FROM ended e),
COUNTED
SELECT w.id, w.status, w.is_strict AND w.status IN ('queued', 'retrying') FROM was w";

/// Runs an operator's statement on these jobs; it records itself in the audit.
async fn act_on(
    core: &Core,
    verb: &'static str,
    sql: &str,
    ids: &[JobId],
    by: Option<&Actor>,
) -> Result<Vec<Row>, StoreError> {
    let uuids: Vec<Uuid> = ids.iter().map(|id| *id.as_uuid()).collect();
    let by = ActorColumns::of(by);
    let [token_id, token_name, request_id, remote] = actor_params(&by);
    core.query(verb, Effect::Once, sql, &[&uuids, token_id, token_name, request_id, remote]).await
}

/// cancel: queued, retrying → cancelled at once; running → flagged, for its worker to see.
pub(super) async fn cancel(core: &Core, cancel: Cancel) -> PerItem<Cancelled> {
    let Cancel { ids, by } = cancel;
    let rows = act_on(core, "cancel", &core.sql.cancel, &ids, by.as_ref()).await?;
    let (mut was, mut lets_go) = (HashMap::with_capacity(rows.len()), false);
    for row in &rows {
        was.insert(row::id(decode("cancel", row.try_get(0))?), row::status(decode("cancel", row.try_get(1))?));
        lets_go |= decode("cancel", row.try_get::<_, bool>(2))?;
    }
    if lets_go {
        core.jobs_may_start();
    }
    let answer = |id| {
        let Some(status) = was.get_mut(&id) else { return Cancelled::NotFound };
        match *status {
            Status::Queued | Status::Retrying => {
                // Named twice in one call, it has ended by the second time.
                *status = Status::Cancelled;
                Cancelled::Now
            }
            Status::Running => Cancelled::Requested,
            finished => Cancelled::AlreadyFinished(finished),
        }
    };
    Ok(ids.into_iter().map(answer).map(Ok).collect())
}

pub(super) const REDRIVE: &str = "\
-- redrive: failed_permanent, cancelled → queued
WITH was AS MATERIALIZED (
    SELECT j.id, j.queue, j.kind, j.status, j.error_group, j.attempts, j.worker, j.lease_token, j.started_at, j.ended_at, j.outcome,
           j.last_error
    FROM unnest($1::uuid[]) AS t(id) JOIN SCHEMA.jobs j ON j.id = t.id
    ORDER BY j.id
    FOR UPDATE OF j
),
past AS (
    INSERT INTO SCHEMA.attempts (job_id, attempt, lease_token, worker, started_at, ended_at, outcome, error)
    SELECT w.id, CASE WHEN w.outcome IN ('released', 'snoozed') THEN w.attempts + 1 ELSE w.attempts END,
           w.lease_token, w.worker, w.started_at, w.ended_at, w.outcome,
           CASE WHEN w.outcome IN ('failed', 'timed_out', 'lease_expired') THEN w.last_error END
    FROM was w
    WHERE w.lease_token IS NOT NULL AND w.status IN ('failed_permanent', 'cancelled')
),
again AS (
    -- The end of the lease is cleared although it is clear: see cancel.
    UPDATE SCHEMA.jobs j
    SET status = 'queued', attempts = 0, run_at = now(), cancel_requested = false, finished_at = NULL, died_at = NULL,
        result = NULL, progress = NULL, worker = NULL, lease_token = NULL, lease_ms = NULL, lease_expires_at = NULL, outcome = NULL,
        ended_at = NULL, updated_at = now(), start_by = NULL, start_deadline = NULL, holds = NULL, error_group = NULL
    FROM was w
    WHERE j.id = w.id AND w.status IN ('failed_permanent', 'cancelled')
    RETURNING JOB_COLUMNS, w.status AS was, w.error_group AS was_in
),
acted AS (SELECT a.id, a.was, 'queued' AS is_now, 'redrive' AS verb FROM again a),
AUDITED_JOBS,
revived AS (SELECT a.queue, a.kind, a.was_in AS error_group FROM again a),
UNGROUPED,
moved AS (SELECT a.queue, a.kind, a.was, 'queued' AS is_now FROM again a),
COUNTED
SELECT a.*, w.id AS asked, w.status AS stood FROM was w LEFT JOIN again a ON a.id = w.id";

/// The same statement for what is not an operator's own act: a schedule's overlap, or a step of an operation, whose begin is in the audit.
pub(super) fn unaudited(statement: &str) -> String {
    statement.replace("AUDITED_JOBS,\n", "")
}

/// The same for an operation's step, which needs only the lanes of the jobs and not their payloads.
pub(super) fn redrive_lanes() -> String {
    let (columns, answer) = (
        "j.id, j.queue, j.kind, j.priority, j.group_key, j.run_at",
        "SELECT a.id, a.queue, a.kind, a.priority, a.group_key, a.run_at, 0::float8 FROM again a",
    );
    let (statement, _) = REDRIVE.rsplit_once("SELECT a.*").expect("redrive answers with whole jobs");
    unaudited(statement).replace("RETURNING JOB_COLUMNS", &format!("RETURNING {columns}")) + answer
}

/// redrive: failed_permanent, cancelled → queued, as if new, with its history and last error kept.
pub(super) async fn redrive(core: &Core, redrive: Redrive) -> PerItem<Redriven> {
    let Redrive { ids, by } = redrive;
    let rows = act_on(core, "redrive", &core.sql.redrive, &ids, by.as_ref()).await?;
    let (mut again, mut elsewhere) = (HashMap::new(), HashMap::new());
    for row in &rows {
        let id = row::id(decode("redrive", row.try_get("asked"))?);
        let status = row::status(decode("redrive", row.try_get("stood"))?);
        if matches!(status, Status::FailedPermanent | Status::Cancelled) {
            again.insert(id, decode("redrive", row::job(row))?);
        } else {
            elsewhere.insert(id, status);
        }
    }
    if !again.is_empty() {
        core.lower_again(again.values());
        core.notifier.notify();
    }
    let answer = |id| match again.remove(&id) {
        Some(job) => {
            // Named twice in one call, it is in the queue by the second time.
            elsewhere.insert(id, job.status);
            Redriven::Queued(job)
        }
        None => elsewhere.get(&id).map_or(Redriven::NotFound, |status| Redriven::NotDead(*status)),
    };
    Ok(ids.into_iter().map(answer).map(Ok).collect())
}

pub(super) const DELETE: &str = "\
-- delete: succeeded, failed_permanent, cancelled → gone
WITH was AS MATERIALIZED (
    SELECT j.id, j.queue, j.kind, j.status, j.error_group
    FROM unnest($1::uuid[]) AS t(id) JOIN SCHEMA.jobs j ON j.id = t.id
    ORDER BY j.id
    FOR UPDATE OF j
),
gone AS (
    DELETE FROM SCHEMA.jobs j USING was w
    WHERE j.id = w.id AND w.status IN ('succeeded', 'failed_permanent', 'cancelled')
    RETURNING w.id, w.queue, w.kind, w.status, w.error_group
),
revived AS (SELECT g.queue, g.kind, g.error_group FROM gone g),
UNGROUPED,
forgotten AS (
    DELETE FROM SCHEMA.attempts a USING gone g WHERE a.job_id = g.id
),
acted AS (SELECT g.id, g.status AS was, NULL::text AS is_now, 'delete' AS verb FROM gone g),
AUDITED_JOBS,
moved AS (SELECT g.queue, g.kind, g.status AS was, NULL AS is_now FROM gone g),
COUNTED
SELECT w.id, w.status FROM was w";

/// delete: finished → gone, with its attempts. Its idempotency key is free again.
pub(super) async fn delete(core: &Core, delete: Delete) -> PerItem<Deleted> {
    let Delete { ids, by } = delete;
    let rows = act_on(core, "delete", &core.sql.delete, &ids, by.as_ref()).await?;
    let mut was = HashMap::with_capacity(rows.len());
    for row in &rows {
        was.insert(row::id(decode("delete", row.try_get(0))?), row::status(decode("delete", row.try_get(1))?));
    }
    let answer = |id| match was.get(&id).copied() {
        None => Deleted::NotFound,
        Some(status) if status.is_terminal() => {
            // Named twice in one call, it is gone by the second time.
            was.remove(&id);
            Deleted::Gone
        }
        Some(status) => Deleted::NotFinished(status),
    };
    Ok(ids.into_iter().map(answer).map(Ok).collect())
}

pub(super) const PRUNE: &str = "\
-- prune: finished long enough ago → gone, among the next jobs by id
WITH looked AS MATERIALIZED (
    SELECT j.id, j.status, j.created_at, j.finished_at
    FROM SCHEMA.jobs j
    WHERE j.id > $1
    ORDER BY j.id
    LIMIT $2
),
old AS MATERIALIZED (
    SELECT j.id, j.queue, j.kind, j.status, j.error_group
    FROM looked l JOIN SCHEMA.jobs j ON j.id = l.id
    WHERE j.finished_at <= now() - CASE j.status WHEN 'succeeded' THEN $3::bigint WHEN 'cancelled' THEN $4::bigint
                                                 ELSE $5::bigint END * interval '1 microsecond'
    -- Somebody is at work on it: next time.
    FOR UPDATE OF j SKIP LOCKED
),
gone AS (
    DELETE FROM SCHEMA.jobs j USING old o WHERE j.id = o.id
    RETURNING o.id, o.queue, o.kind, o.status, o.error_group
),
revived AS (SELECT g.queue, g.kind, g.error_group FROM gone g),
UNGROUPED,
forgotten AS (
    DELETE FROM SCHEMA.attempts a USING gone g WHERE a.job_id = g.id
),
moved AS (SELECT g.queue, g.kind, g.status AS was, NULL AS is_now FROM gone g),
COUNTED
SELECT (SELECT count(*) FROM looked), (SELECT count(*) FROM gone),
       (SELECT l.id FROM looked l ORDER BY l.id DESC LIMIT 1),
       -- Nothing of this page can be old enough: what was created since cannot have finished before.
       NOT EXISTS (SELECT FROM looked l
                   WHERE l.created_at <= now() - least($3, $4, $5) * interval '1 microsecond')";

/// prune: finished long enough ago → gone. Walks along the ids, which follow time, a bounded number per call.
pub(super) async fn prune(core: &Core, prune: Prune) -> Result<Pruned, StoreError> {
    if prune.after.is_none() {
        // Once per pass.
        core.query("prune", Effect::Repeatable, &core.sql.forget_empty, &[]).await?;
        let kept = row::micros(ERROR_GROUP_KEPT);
        core.query("prune", Effect::Repeatable, &core.sql.forget_errors, &[&kept]).await?;
    }
    let after = prune.after.map_or(Uuid::nil(), |id| *id.as_uuid());
    let limit = prune.limit.max(1).try_into().unwrap_or(i64::MAX);
    // 2^52 µs, 142 years: far beyond any retention, and the sum stays within what the database calls a time.
    let keep = |kept| row::micros(kept).min(1 << 52);
    let [succeeded, cancelled, failed] = [prune.keep_succeeded, prune.keep_cancelled, prune.keep_failed].map(keep);
    // Deleting what is gone already deletes nothing.
    let params: [&(dyn ToSql + Sync); 5] = [&after, &limit, &succeeded, &cancelled, &failed];
    let rows = core.query("prune", Effect::Repeatable, &core.sql.prune, &params).await?;
    let Some(row) = rows.first() else { return Ok(Pruned { deleted: 0, next: None }) };
    let looked: i64 = decode("prune", row.try_get(0))?;
    let deleted: i64 = decode("prune", row.try_get(1))?;
    let last: Option<Uuid> = decode("prune", row.try_get(2))?;
    let too_new: bool = decode("prune", row.try_get(3))?;
    let next = last.filter(|_| looked == limit && !too_new).map(row::id);
    Ok(Pruned { deleted: deleted as usize, next })
}
