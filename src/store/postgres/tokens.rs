//! put_token, tokens, had_token, delete_token: who may use the API.

use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::ask::{ask, read};
use super::core::Core;
use super::error::Effect;
use super::timestamp::Moment;
use crate::store::{LastAdmin, StoreError, StoreErrorKind, TokenDeleted, TokenRecord};

pub(super) async fn put_token(core: &Core, token: TokenRecord) -> Result<(), StoreError> {
    let (scopes, secret) = (token.scopes_text(), token.secret_sha256.as_slice());
    let params: [&(dyn ToSql + Sync); 5] = [&token.id, &token.name, &scopes, &secret, &token.created_at];
    ask(core, "put_token", Effect::Repeatable, &core.sql.put_token, &params).await.map(drop)
}

pub(super) async fn delete_token(core: &Core, id: String, last_admin: LastAdmin) -> Result<TokenDeleted, StoreError> {
    let keep = last_admin == LastAdmin::Keep;
    let row = only(ask(core, "delete_token", Effect::Once, &core.sql.delete_token, &[&id, &keep]).await?)?;
    let (deleted, is_admin) = read("delete_token", row.try_get(0).and_then(|deleted| Ok((deleted, row.try_get(1)?))))?;
    Ok(match (deleted, is_admin) {
        (true, _) => TokenDeleted::Deleted,
        (false, true) => TokenDeleted::KeptLastAdmin,
        (false, false) => TokenDeleted::NotFound,
    })
}

pub(super) async fn had_token(core: &Core) -> Result<bool, StoreError> {
    let row = only(ask(core, "had_token", Effect::Repeatable, &core.sql.had_token, &[]).await?)?;
    read("had_token", row.try_get(0))
}

fn only(rows: Vec<Row>) -> Result<Row, StoreError> {
    rows.into_iter().next().ok_or_else(|| StoreError::new(StoreErrorKind::Internal, "tokens"))
}

pub(super) async fn tokens(core: &Core) -> Result<Vec<TokenRecord>, StoreError> {
    let rows = ask(core, "tokens", Effect::Repeatable, &core.sql.tokens, &[]).await?;
    rows.iter().filter_map(|row| read("tokens", token(row)).transpose()).collect()
}

/// `None` for a row that no program of ours wrote.
fn token(row: &Row) -> Result<Option<TokenRecord>, tokio_postgres::Error> {
    let (scopes, secret): (&str, &[u8]) = (row.try_get(2)?, row.try_get(3)?);
    let created_at = row.try_get::<_, Moment>(4)?.timestamp();
    Ok(TokenRecord::from_row(row.try_get(0)?, row.try_get(1)?, scopes, secret, created_at))
}
