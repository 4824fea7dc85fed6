//! put_token, tokens, delete_token: who may use the API.

use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::ask::{ask, read};
use super::core::Core;
use super::moment::Moment;
use super::trouble::Effect;
use crate::store::{StoreError, TokenRecord};

pub(super) async fn put_token(core: &Core, token: TokenRecord) -> Result<(), StoreError> {
    let (scopes, secret) = (token.scopes_text(), token.secret_sha256.as_slice());
    let params: [&(dyn ToSql + Sync); 5] = [&token.id, &token.name, &scopes, &secret, &token.created_at];
    ask(core, "put_token", Effect::Repeatable, &core.sql.put_token, &params).await.map(drop)
}

pub(super) async fn delete_token(core: &Core, id: String) -> Result<bool, StoreError> {
    let rows = ask(core, "delete_token", Effect::Once, &core.sql.delete_token, &[&id]).await?;
    Ok(!rows.is_empty())
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
