//! put_kind, delete_kind, kinds: what is declared about kinds.

use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::audit::actor_params;
use super::core::{Core, decode};
use super::error::Effect;
use super::limits::{NewLimit, RateColumns, count_running, int, rate};
use super::row;
use crate::job::limits::KINDS_MAX;
use crate::job::{KindDefaults, KindDefinition, QueueName};
use crate::store::audit_entry::ActorColumns;
use crate::store::{DeleteKind, KindPut, PutKind, StoreError, StoreErrorKind};

pub(super) const PUT_KIND: &str = "\
-- put_kind: declares a kind, unless there are $8, or changes its declaration; xmax is 0 in a row that is new. $14: limits and
-- hidden parts stay
WITH known AS MATERIALIZED (SELECT KIND_JSON AS shown FROM SCHEMA.kinds k WHERE k.kind = $1 FOR UPDATE),
put AS (
    INSERT INTO SCHEMA.kinds AS k (kind, payload_schema, queue, priority, max_attempts, timeout_ms, retry, concurrency,
                                   rate_limit, rate_per_us, rate_burst, hidden)
    SELECT $1::text, $2::text, $3::text, $4::smallint, $5::integer, $6::bigint, $7::text, $9::integer, $10::integer,
           $11::bigint, $12::integer, $13::text
    WHERE EXISTS (SELECT FROM known) OR (SELECT count(*) FROM SCHEMA.kinds) < $8::bigint
    ON CONFLICT (kind) DO UPDATE
        SET payload_schema = excluded.payload_schema, queue = excluded.queue, priority = excluded.priority,
            max_attempts = excluded.max_attempts, timeout_ms = excluded.timeout_ms, retry = excluded.retry,
            concurrency = CASE WHEN $14::boolean THEN k.concurrency ELSE excluded.concurrency END,
            rate_limit = CASE WHEN $14 THEN k.rate_limit ELSE excluded.rate_limit END,
            rate_per_us = CASE WHEN $14 THEN k.rate_per_us ELSE excluded.rate_per_us END,
            rate_burst = CASE WHEN $14 THEN k.rate_burst ELSE excluded.rate_burst END,
            hidden = CASE WHEN $14 THEN k.hidden ELSE excluded.hidden END
    RETURNING k.kind, k.xmax = 0 AS is_new, KIND_JSON AS shown
),
audited AS (
    AUDIT_INTO (at, token_id, token_name, request_id, remote, action, target, before, after, count)
    SELECT now(), $15::text, $16::text, $17::text, $18::text, 'put_kind', 'kind:' || p.kind, k.shown, p.shown, 1
    FROM put p LEFT JOIN known k ON true
    WHERE k.shown IS DISTINCT FROM p.shown
)
SELECT p.is_new FROM put p";

pub(super) const DELETE_KIND: &str = "\
-- delete_kind
WITH gone AS (DELETE FROM SCHEMA.kinds k WHERE k.kind = $1 RETURNING k.kind, KIND_JSON AS shown),
audited AS (
    AUDIT_INTO (at, token_id, token_name, request_id, remote, action, target, before, count)
    SELECT now(), $2::text, $3::text, $4::text, $5::text, 'delete_kind', 'kind:' || g.kind, g.shown, 1 FROM gone g
)
SELECT g.kind FROM gone g";

pub(super) const KINDS: &str = "\
-- kinds: every declared kind, by name
SELECT k.kind, k.payload_schema, k.queue, k.priority, k.max_attempts, k.timeout_ms, k.retry, k.concurrency, k.rate_limit,
       k.rate_per_us, k.rate_burst, k.hidden
FROM SCHEMA.kinds k
ORDER BY k.kind";

pub(super) async fn put_kind(core: &Core, put: PutKind) -> Result<KindPut, StoreError> {
    let PutKind { definition, keep_limits, by } = put;
    let by = ActorColumns::of(by.as_ref());
    let [token_id, token_name, request_id, remote] = actor_params(&by);
    let unwritable = |error| StoreError::new(StoreErrorKind::Rejected, "put_kind").caused_by(error);
    let defaults = &definition.defaults;
    let schema = definition.schema.as_ref().map(serde_json::to_string).transpose().map_err(unwritable)?;
    let queue = defaults.queue.as_ref().map(|queue| queue.as_str());
    let max_attempts = defaults.max_attempts.map(|n| i32::try_from(n).unwrap_or(i32::MAX));
    let timeout_ms = defaults.timeout_ms.map(|ms| i64::try_from(ms).unwrap_or(i64::MAX));
    let retry = defaults.retry.as_ref().map(serde_json::to_string).transpose().map_err(unwritable)?;
    let kind = definition.kind.as_str();
    let rate = RateColumns::from(definition.rate);
    let hidden = Some(&definition.hidden).filter(|hidden| !hidden.is_empty()).map(serde_json::to_string).transpose();
    let params: [&(dyn ToSql + Sync); 18] = [
        &kind,
        &schema,
        &queue,
        &defaults.priority,
        &max_attempts,
        &timeout_ms,
        &retry,
        &(KINDS_MAX as i64),
        &definition.concurrency.map(int),
        &rate.limit,
        &rate.per_us,
        &rate.burst,
        &hidden.map_err(unwritable)?,
        &keep_limits,
        token_id,
        token_name,
        request_id,
        remote,
    ];
    let rows = core.query("put_kind", Effect::Once, &core.sql.put_kind, &params).await?;
    let Some(row) = rows.first() else { return Ok(KindPut::TooMany) };
    let is_new: bool = decode("put_kind", row.try_get(0))?;
    core.groups.settings_changed();
    if definition.concurrency.is_some() && !keep_limits {
        count_running(core, NewLimit { bit: 2, queue: None, kind: Some(kind), group: None }).await?;
    }
    if !keep_limits {
        core.notifier.notify();
    }
    Ok(if is_new { KindPut::New } else { KindPut::Changed })
}

pub(super) async fn delete_kind(core: &Core, delete: DeleteKind) -> Result<bool, StoreError> {
    let by = ActorColumns::of(delete.by.as_ref());
    let [token_id, token_name, request_id, remote] = actor_params(&by);
    let params = [&delete.kind.as_str(), token_id, token_name, request_id, remote];
    let rows = core.query("delete_kind", Effect::Once, &core.sql.delete_kind, &params).await?;
    // Its limits are gone with it.
    core.groups.settings_changed();
    Ok(!rows.is_empty())
}

pub(super) async fn kinds(core: &Core) -> Result<Vec<KindDefinition>, StoreError> {
    let rows = core.query("kinds", Effect::Repeatable, &core.sql.kinds, &[]).await?;
    rows.iter().map(|row| decode("kinds", definition(row))).collect()
}

/// Lenient: a declaration that a manual edit has damaged is read as far as it goes.
fn definition(row: &Row) -> Result<KindDefinition, tokio_postgres::Error> {
    let json = |column| row.try_get::<_, Option<&str>>(column);
    Ok(KindDefinition {
        kind: row::kind(row.try_get(0)?),
        schema: json(1)?.and_then(|text| serde_json::from_str(text).ok()),
        defaults: KindDefaults {
            queue: row.try_get::<_, Option<&str>>(2)?.and_then(|queue| QueueName::new(queue).ok()),
            priority: row.try_get(3)?,
            max_attempts: row.try_get::<_, Option<i32>>(4)?.map(row::count),
            timeout_ms: row.try_get::<_, Option<i64>>(5)?.map(|ms| ms.max(0) as u64),
            retry: json(6)?.and_then(|text| serde_json::from_str(text).ok()),
        },
        concurrency: row.try_get::<_, Option<i32>>(7)?.map(row::count),
        rate: rate(row, 8)?,
        hidden: json(11)?.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default(),
    })
}
