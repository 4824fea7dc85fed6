//! put_token, tokens, had_token, delete_token: who may use the API.

use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::core::{Core, decode};
use super::error::Effect;
use super::timestamp::PgTimestamp;
use crate::job::limits::TOKENS_MAX;
use crate::store::{LastAdmin, StoreError, StoreErrorKind, TokenDeleted, TokenPut, TokenRecord};

pub(super) const PUT_TOKEN: &str = "\
-- put_token: adds an API token, unless there are $6, or replaces the one with its id
WITH put AS (
    INSERT INTO SCHEMA.tokens AS t (id, name, scopes, secret_sha256, created_at)
    SELECT $1::text, $2::text, $3::text, $4::bytea, $5::timestamptz
    WHERE EXISTS (SELECT FROM SCHEMA.tokens o WHERE o.id = $1) OR (SELECT count(*) FROM SCHEMA.tokens) < $6::bigint
    ON CONFLICT (id) DO UPDATE
        SET name = excluded.name, scopes = excluded.scopes, secret_sha256 = excluded.secret_sha256,
            created_at = excluded.created_at
    RETURNING t.id
),
had AS (INSERT INTO SCHEMA.had_token (one) SELECT true FROM put ON CONFLICT DO NOTHING)
SELECT EXISTS (SELECT FROM put)";

pub(super) const DELETE_TOKEN: &str = "\
-- delete_token: unless it is the last with the scope admin and $2 says that this one stays
WITH admins AS MATERIALIZED (
    SELECT t.id
    FROM SCHEMA.tokens t
    WHERE 'admin' = ANY (string_to_array(t.scopes, ' '))
    -- Locked, in one order: who deletes another one at the same time waits here, and then sees what is left.
    ORDER BY t.id FOR UPDATE
), deleted AS (
    DELETE FROM SCHEMA.tokens t
    WHERE t.id = $1
      AND (NOT $2::boolean OR EXISTS (SELECT FROM admins a WHERE a.id <> $1)
           OR NOT 'admin' = ANY (string_to_array(t.scopes, ' ')))
    RETURNING t.id
)
SELECT EXISTS (SELECT FROM deleted), EXISTS (SELECT FROM admins a WHERE a.id = $1)";

pub(super) const HAD_TOKEN: &str = "\
-- had_token: whether there ever was an API token
SELECT EXISTS (SELECT FROM SCHEMA.had_token h)";

pub(super) const TOKENS: &str = "\
-- tokens: every API token, by id
SELECT t.id, t.name, t.scopes, t.secret_sha256, t.created_at
FROM SCHEMA.tokens t
ORDER BY t.id";

pub(super) async fn put_token(core: &Core, token: TokenRecord) -> Result<TokenPut, StoreError> {
    let (scopes, secret) = (token.scopes_text(), token.secret_sha256.as_slice());
    let params: [&(dyn ToSql + Sync); 6] =
        [&token.id, &token.name, &scopes, &secret, &token.created_at, &(TOKENS_MAX as i64)];
    let row = only(core.query("put_token", Effect::Repeatable, &core.sql.put_token, &params).await?)?;
    let is_stored: bool = decode("put_token", row.try_get(0))?;
    Ok(if is_stored { TokenPut::Stored } else { TokenPut::TooMany })
}

pub(super) async fn delete_token(core: &Core, id: String, last_admin: LastAdmin) -> Result<TokenDeleted, StoreError> {
    let keep = last_admin == LastAdmin::Keep;
    let row = only(core.query("delete_token", Effect::Once, &core.sql.delete_token, &[&id, &keep]).await?)?;
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

pub(super) async fn tokens(core: &Core) -> Result<Vec<TokenRecord>, StoreError> {
    let rows = core.query("tokens", Effect::Repeatable, &core.sql.tokens, &[]).await?;
    rows.iter().filter_map(|row| decode("tokens", token(row)).transpose()).collect()
}

/// `None` for a row that no program of ours wrote.
fn token(row: &Row) -> Result<Option<TokenRecord>, tokio_postgres::Error> {
    let (scopes, secret): (&str, &[u8]) = (row.try_get(2)?, row.try_get(3)?);
    let created_at = row.try_get::<_, PgTimestamp>(4)?.timestamp();
    Ok(TokenRecord::from_row(row.try_get(0)?, row.try_get(1)?, scopes, secret, created_at))
}
