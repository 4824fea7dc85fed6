//! put_token, tokens, delete_token: who may use the API.

use rusqlite::{Connection, Row, params};

use super::row::time;
use super::transaction::Tx;
use super::writer::{Lane, Verb};
use crate::store::TokenRecord;

pub(super) struct PutToken(pub(super) TokenRecord);
pub(super) struct DeleteToken(pub(super) String);

impl Verb for PutToken {
    type Answer = ();
    const NAME: &'static str = "put_token";
    const LANE: Lane = Lane::Urgent;

    fn apply(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<()> {
        let token = &self.0;
        tx.statement(
            "INSERT INTO tokens (id, name, scopes, secret_sha256, created_at) VALUES (?1, ?2, ?3, ?4, ?5)
             ON CONFLICT (id) DO UPDATE SET name = excluded.name, scopes = excluded.scopes,
                 secret_sha256 = excluded.secret_sha256, created_at = excluded.created_at",
        )?
        .execute(params![
            token.id,
            token.name,
            token.scopes_text(),
            token.secret_sha256.as_slice(),
            token.created_at.as_microsecond(),
        ])?;
        Ok(())
    }
}

impl Verb for DeleteToken {
    type Answer = bool;
    const NAME: &'static str = "delete_token";
    const LANE: Lane = Lane::Urgent;

    fn apply(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<bool> {
        Ok(tx.statement("DELETE FROM tokens WHERE id = ?1")?.execute([&self.0])? > 0)
    }
}

pub(super) fn tokens(connection: &Connection) -> rusqlite::Result<Vec<TokenRecord>> {
    let mut statement =
        connection.prepare_cached("SELECT id, name, scopes, secret_sha256, created_at FROM tokens ORDER BY id")?;
    let rows = statement.query_map([], read_token)?;
    rows.filter_map(Result::transpose).collect()
}

fn read_token(row: &Row<'_>) -> rusqlite::Result<Option<TokenRecord>> {
    let (scopes, secret): (String, Vec<u8>) = (row.get(2)?, row.get(3)?);
    Ok(TokenRecord::from_row(row.get(0)?, row.get(1)?, &scopes, &secret, time(row.get(4)?)))
}
