//! put_token, tokens, had_token, delete_token: who may use the API.

use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::audit::actor_params;
use super::core::{Core, decode};
use super::error::Effect;
use super::timestamp::PgTimestamp;
use crate::job::limits::TOKENS_MAX;
use crate::store::audit_entry::ActorColumns;
use crate::store::{
    DeleteToken, LastAdmin, PutToken, StoreError, StoreErrorKind, TokenDeleted, TokenList, TokenPut, TokenRecord,
};

pub(super) const PUT_TOKEN: &str = "\
-- put_token: adds an API token, unless there are $6, or replaces the one with its id
WITH known AS MATERIALIZED (
    SELECT t.name, t.scopes, t.secret_sha256, t.created_at, t.expires_at, TOKEN_JSON AS shown FROM SCHEMA.tokens t WHERE t.id = $1
    FOR UPDATE
),
put AS (
    INSERT INTO SCHEMA.tokens AS t (id, name, scopes, secret_sha256, created_at, expires_at, last_used_at, created_by)
    SELECT $1::text, $2::text, $3::text, $4::bytea, $5::timestamptz, $11::timestamptz, $12::timestamptz, $13::text
    WHERE EXISTS (SELECT FROM known) OR (SELECT count(*) FROM SCHEMA.tokens o WHERE o.parent IS NULL) < $6::bigint
    ON CONFLICT (id) DO UPDATE
        SET name = excluded.name, scopes = excluded.scopes, secret_sha256 = excluded.secret_sha256,
            created_at = excluded.created_at, expires_at = excluded.expires_at, last_used_at = excluded.last_used_at,
            created_by = excluded.created_by, parent = NULL
    RETURNING t.id, TOKEN_JSON AS shown
),
audited AS (
    -- A new secret is a change, though it is not shown.
    AUDIT_INTO (at, token_id, token_name, request_id, remote, action, target, before, after, count)
    SELECT now(), $7::text, $8::text, $9::text, $10::text, 'put_token', 'token:' || p.id, k.shown, p.shown, 1
    FROM put p LEFT JOIN known k ON true
    WHERE (k.name, k.scopes, k.secret_sha256, k.created_at, k.expires_at) IS DISTINCT FROM ($2, $3, $4, $5, $11)
),
had AS (INSERT INTO SCHEMA.had_token (one) SELECT true FROM put ON CONFLICT DO NOTHING)
SELECT EXISTS (SELECT FROM put)";

pub(super) const DELETE_TOKEN: &str = "\
-- delete_token: with its sessions, unless it is the last with the scope admin and $2 says that this one stays
WITH admins AS MATERIALIZED (
    SELECT t.id
    FROM SCHEMA.tokens t
    WHERE 'admin' = ANY (string_to_array(t.scopes, ' ')) AND t.parent IS NULL
      AND NOT coalesce(t.expires_at <= now(), false)
    -- Locked, in one order: who deletes another one at the same time waits here, and then sees what is left.
    ORDER BY t.id FOR UPDATE
), deleted AS (
    DELETE FROM SCHEMA.tokens t
    WHERE t.id = $1 AND t.parent IS NULL
      AND (NOT $2::boolean OR EXISTS (SELECT FROM admins a WHERE a.id <> $1)
           OR NOT EXISTS (SELECT FROM admins a WHERE a.id = $1))
    RETURNING t.id, TOKEN_JSON AS shown
), ended AS (
    DELETE FROM SCHEMA.tokens t USING deleted d WHERE t.parent = d.id
), audited AS (
    AUDIT_INTO (at, token_id, token_name, request_id, remote, action, target, before, count)
    SELECT now(), $3::text, $4::text, $5::text, $6::text, 'delete_token', 'token:' || d.id, d.shown, 1 FROM deleted d
)
SELECT EXISTS (SELECT FROM deleted), EXISTS (SELECT FROM admins a WHERE a.id = $1)";

pub(super) const HAD_TOKEN: &str = "\
-- had_token: whether there ever was an API token
SELECT EXISTS (SELECT FROM SCHEMA.had_token h)";

pub(super) const TOKENS: &str = "\
-- tokens: every API token, by id, and the time also if there is none
SELECT n.now, t.name, t.scopes, t.secret_sha256, t.created_at, t.expires_at, t.last_used_at, t.created_by, t.id
FROM (SELECT now() AS now) n
LEFT JOIN SCHEMA.tokens t ON t.parent IS NULL
ORDER BY t.id";

pub(super) async fn put_token(core: &Core, put: PutToken) -> Result<TokenPut, StoreError> {
    let (token, by) = (put.token, ActorColumns::of(put.by.as_ref()));
    let (scopes, secret) = (token.scopes_text(), token.secret_sha256.as_slice());
    let [token_id, token_name, request_id, remote] = actor_params(&by);
    let params: [&(dyn ToSql + Sync); 13] = [
        &token.id,
        &token.name,
        &scopes,
        &secret,
        &token.created_at,
        &(TOKENS_MAX as i64),
        token_id,
        token_name,
        request_id,
        remote,
        &token.expires_at,
        &token.last_used_at,
        &token.created_by,
    ];
    let row = only(core.query("put_token", Effect::Repeatable, &core.sql.put_token, &params).await?)?;
    let is_stored: bool = decode("put_token", row.try_get(0))?;
    Ok(if is_stored { TokenPut::Stored } else { TokenPut::TooMany })
}

pub(super) async fn delete_token(core: &Core, delete: DeleteToken) -> Result<TokenDeleted, StoreError> {
    let keep = delete.last_admin == LastAdmin::Keep;
    let by = ActorColumns::of(delete.by.as_ref());
    let [token_id, token_name, request_id, remote] = actor_params(&by);
    let params: [&(dyn ToSql + Sync); 6] = [&delete.id, &keep, token_id, token_name, request_id, remote];
    let row = only(core.query("delete_token", Effect::Once, &core.sql.delete_token, &params).await?)?;
    let (deleted, is_admin) =
        decode("delete_token", row.try_get(0).and_then(|deleted| Ok((deleted, row.try_get(1)?))))?;
    Ok(match (deleted, is_admin) {
        (true, _) => TokenDeleted::Deleted,
        (false, true) => TokenDeleted::KeptLastAdmin,
        (false, false) => TokenDeleted::NotFound,
    })
}

pub(super) async fn had_token(core: &Core) -> Result<bool, StoreError> {
    let row = only(core.query("had_token", Effect::Repeatable, &core.sql.had_token, &[]).await?)?;
    decode("had_token", row.try_get(0))
}

fn only(rows: Vec<Row>) -> Result<Row, StoreError> {
    rows.into_iter().next().ok_or_else(|| StoreError::new(StoreErrorKind::Internal, "tokens"))
}

pub(super) async fn tokens(core: &Core) -> Result<TokenList, StoreError> {
    let rows = core.query("tokens", Effect::Repeatable, &core.sql.tokens, &[]).await?;
    let first = rows.first().ok_or_else(|| StoreError::new(StoreErrorKind::Internal, "tokens"))?;
    let now = decode("tokens", first.try_get::<_, PgTimestamp>(0))?.timestamp();
    let tokens: Result<_, _> = rows.iter().filter_map(|row| decode("tokens", token(row)).transpose()).collect();
    Ok(TokenList::new(tokens?, now))
}

/// `None` for a row that no program of ours wrote, and for the one that only tells the time.
fn token(row: &Row) -> Result<Option<TokenRecord>, tokio_postgres::Error> {
    let Some(id) = row.try_get::<_, Option<String>>(8)? else { return Ok(None) };
    let time = |column: usize| row.try_get::<_, Option<PgTimestamp>>(column).map(|at| at.map(PgTimestamp::timestamp));
    let (scopes, secret): (&str, &[u8]) = (row.try_get(2)?, row.try_get(3)?);
    let created_at = row.try_get::<_, PgTimestamp>(4)?.timestamp();
    let Some(mut token) = TokenRecord::from_row(id, row.try_get(1)?, scopes, secret, created_at) else {
        return Ok(None);
    };
    (token.expires_at, token.last_used_at, token.created_by) = (time(5)?, time(6)?, row.try_get(7)?);
    Ok(Some(token))
}
