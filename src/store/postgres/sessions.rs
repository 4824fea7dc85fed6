//! put_session, session, delete_session, touch_tokens, prune_tokens: children of tokens, and the use and the end of both.

use std::time::Duration;

use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::core::{Core, decode};
use super::error::Effect;
use super::timestamp::PgTimestamp;
use crate::job::limits::{
    EXPIRED_TOKEN_KEPT, SESSION_IDLE, SESSION_LIFETIME, SESSION_USE_INTERVAL, SESSIONS_MAX, TOKEN_USE_INTERVAL,
};
use crate::store::token::scopes_of;
use crate::store::{DeleteSession, PruneTokens, PutSession, SessionParent, SessionRecord, StoreError, TouchTokens};

pub(super) const PUT_SESSION: &str = "\
-- put_session: a child of a token that has not expired, or of the settings' own ($6); the oldest beyond $7 are ended
WITH parent AS (
    SELECT t.name, t.scopes, t.expires_at
    FROM SCHEMA.tokens t
    WHERE t.id = $3::text AND t.parent IS NULL AND NOT coalesce(t.expires_at <= now(), false)
    UNION ALL
    SELECT $4::text, $5::text, NULL WHERE $6::boolean
),
ended AS (
    DELETE FROM SCHEMA.tokens t
    WHERE EXISTS (SELECT FROM parent)
      AND t.id = ANY (ARRAY(SELECT s.id FROM SCHEMA.tokens s WHERE s.parent = $3 AND s.id <> $1
                            ORDER BY s.created_at DESC, s.id OFFSET $7::bigint - 1))
)
INSERT INTO SCHEMA.tokens AS s (id, name, scopes, secret_sha256, created_at, expires_at, last_used_at, parent)
SELECT $1::text, p.name, p.scopes, $2::bytea, now(), least(now() + $8::bigint * interval '1 microsecond', p.expires_at),
       now(), $3
FROM parent p
ON CONFLICT (id) DO UPDATE SET last_used_at = excluded.last_used_at
RETURNING s.id, s.parent, s.name, s.scopes, s.secret_sha256, s.created_at, s.expires_at, s.last_used_at, now()";

pub(super) const SESSION: &str = "\
-- session: one that has not ended, with the name and the scopes of its parent
SELECT s.id, s.parent, coalesce(p.name, s.name), coalesce(p.scopes, s.scopes), s.secret_sha256, s.created_at,
       s.expires_at, s.last_used_at, now()
FROM SCHEMA.tokens s
LEFT JOIN SCHEMA.tokens p ON p.id = s.parent AND p.parent IS NULL
WHERE s.id = $1 AND s.parent IS NOT NULL AND s.expires_at > now()
  AND s.last_used_at > now() - $2::bigint * interval '1 microsecond'
  AND (strpos(s.parent, ':') > 0 OR (p.id IS NOT NULL AND NOT coalesce(p.expires_at <= now(), false)))";

pub(super) const DELETE_SESSION: &str = "\
-- delete_session
DELETE FROM SCHEMA.tokens t WHERE t.id = $1 AND t.parent IS NOT NULL RETURNING t.id";

pub(super) const TOUCH_TOKENS: &str = "\
-- touch_tokens: those whose last use is not recorded lately. Who writes one at the same time says the same
WITH stale AS MATERIALIZED (
    SELECT t.id
    FROM SCHEMA.tokens t
    WHERE t.id = ANY ($1::text[])
      AND coalesce(t.last_used_at <= now()
                   - CASE WHEN t.parent IS NULL THEN $2::bigint ELSE $3::bigint END * interval '1 microsecond', true)
    FOR UPDATE SKIP LOCKED
)
UPDATE SCHEMA.tokens t SET last_used_at = now() FROM stale s WHERE t.id = s.id RETURNING t.id";

pub(super) const PRUNE_TOKENS: &str = "\
-- prune_tokens: sessions once they have ended, tokens some time after; the oldest first
WITH old AS MATERIALIZED (
    SELECT t.id
    FROM SCHEMA.tokens t
    WHERE t.expires_at <= now()
      AND (t.parent IS NOT NULL OR t.expires_at <= now() - $1::bigint * interval '1 microsecond')
    ORDER BY t.expires_at LIMIT $2
    FOR UPDATE SKIP LOCKED
)
DELETE FROM SCHEMA.tokens t USING old o WHERE t.id = o.id RETURNING t.id";

fn micros(span: Duration) -> i64 {
    i64::try_from(span.as_micros()).unwrap_or(i64::MAX)
}

pub(super) async fn put_session(core: &Core, put: PutSession) -> Result<Option<SessionRecord>, StoreError> {
    let (parent, scopes, secret) = (put.parent.as_text(), put.scopes_text(), put.secret_sha256.as_slice());
    let of_settings = matches!(put.parent, SessionParent::Settings(_));
    let (max, lifetime) = (SESSIONS_MAX as i64, micros(SESSION_LIFETIME));
    let params: [&(dyn ToSql + Sync); 8] =
        [&put.id, &secret, &parent, &put.name, &scopes, &of_settings, &max, &lifetime];
    let rows = core.query("put_session", Effect::Repeatable, &core.sql.put_session, &params).await?;
    first("put_session", &rows)
}

pub(super) async fn session(core: &Core, id: &str) -> Result<Option<SessionRecord>, StoreError> {
    let rows = core.query("session", Effect::Repeatable, &core.sql.session, &[&id, &micros(SESSION_IDLE)]).await?;
    first("session", &rows)
}

fn first(verb: &'static str, rows: &[Row]) -> Result<Option<SessionRecord>, StoreError> {
    let Some(row) = rows.first() else { return Ok(None) };
    decode(verb, read_session(row))
}

/// `None` for a row that no program of ours wrote.
fn read_session(row: &Row) -> Result<Option<SessionRecord>, tokio_postgres::Error> {
    let at = |column: usize| row.try_get::<_, PgTimestamp>(column).map(PgTimestamp::timestamp);
    let (scopes, secret): (&str, &[u8]) = (row.try_get(3)?, row.try_get(4)?);
    let Ok(secret_sha256) = secret.try_into() else { return Ok(None) };
    Ok(Some(SessionRecord {
        id: row.try_get(0)?,
        parent: SessionParent::from_text(row.try_get(1)?),
        name: row.try_get(2)?,
        scopes: scopes_of(scopes),
        secret_sha256,
        created_at: at(5)?,
        expires_at: at(6)?,
        last_used_at: at(7)?,
        now: at(8)?,
    }))
}

pub(super) async fn delete_session(core: &Core, delete: DeleteSession) -> Result<bool, StoreError> {
    let rows = core.query("delete_session", Effect::Once, &core.sql.delete_session, &[&delete.id]).await?;
    Ok(!rows.is_empty())
}

pub(super) async fn touch_tokens(core: &Core, touch: TouchTokens) -> Result<usize, StoreError> {
    let (of_token, of_session) = (micros(TOKEN_USE_INTERVAL), micros(SESSION_USE_INTERVAL));
    let params: [&(dyn ToSql + Sync); 3] = [&touch.ids, &of_token, &of_session];
    Ok(core.query("touch_tokens", Effect::Repeatable, &core.sql.touch_tokens, &params).await?.len())
}

pub(super) async fn prune_tokens(core: &Core, prune: PruneTokens) -> Result<usize, StoreError> {
    let params: [&(dyn ToSql + Sync); 2] = [&micros(EXPIRED_TOKEN_KEPT), &(prune.limit as i64)];
    Ok(core.query("prune_tokens", Effect::Repeatable, &core.sql.prune_tokens, &params).await?.len())
}
