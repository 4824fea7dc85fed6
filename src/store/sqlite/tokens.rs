//! put_token, tokens, had_token, delete_token: who may use the API.

use rusqlite::{Connection, Row, params};

use super::inbox::{Urgency, Verb};
use super::row::timestamp;
use super::transaction::Tx;
use crate::job::limits::TOKENS_MAX;
use crate::planted::{Bug, planted};
use crate::store::{DeleteToken, LastAdmin, PutToken, TokenDeleted, TokenPut, TokenRecord};

impl Verb for PutToken {
    type Answer = TokenPut;
    const NAME: &'static str = "put_token";
    const URGENCY: Urgency = Urgency::Urgent;

    fn apply(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<TokenPut> {
        let token = &self.token;
        let (stored, known): (usize, bool) = tx
            .statement("SELECT count(*), coalesce(max(id = ?1), 0) FROM tokens")?
            .query_row([&token.id], |row| Ok((row.get(0)?, row.get(1)?)))?;
        if !known && stored >= TOKENS_MAX {
            return Ok(TokenPut::TooMany);
        }
        tx.statement("INSERT OR IGNORE INTO had_token (one) VALUES (1)")?.execute([])?;
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
        Ok(TokenPut::Stored)
    }
}

/// Whether a token, by its row, may make others.
macro_rules! is_admin {
    () => {
        "instr(' ' || scopes || ' ', ' admin ') > 0"
    };
}

impl Verb for DeleteToken {
    type Answer = TokenDeleted;
    const NAME: &'static str = "delete_token";
    const URGENCY: Urgency = Urgency::Urgent;

    fn apply(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<TokenDeleted> {
        let is_last_admin: bool = tx
            .statement(concat!(
                "SELECT EXISTS (SELECT 1 FROM tokens WHERE id = ?1 AND ",
                is_admin!(),
                ")
                    AND NOT EXISTS (SELECT 1 FROM tokens WHERE id <> ?1 AND ",
                is_admin!(),
                ")"
            ))?
            .query_row([&self.id], |row| row.get(0))?;
        if is_last_admin && self.last_admin == LastAdmin::Keep && !planted(Bug::LastAdminDeleted) {
            return Ok(TokenDeleted::KeptLastAdmin);
        }
        let deleted = tx.statement("DELETE FROM tokens WHERE id = ?1")?.execute([&self.id])?;
        Ok(if deleted > 0 { TokenDeleted::Deleted } else { TokenDeleted::NotFound })
    }
}

pub(super) fn had_token(connection: &Connection) -> rusqlite::Result<bool> {
    connection.query_row("SELECT EXISTS (SELECT 1 FROM had_token)", [], |row| row.get(0))
}

pub(super) fn tokens(connection: &Connection) -> rusqlite::Result<Vec<TokenRecord>> {
    let mut statement =
        connection.prepare_cached("SELECT id, name, scopes, secret_sha256, created_at FROM tokens ORDER BY id")?;
    let rows = statement.query_map([], read_token)?;
    rows.filter_map(Result::transpose).collect()
}

fn read_token(row: &Row<'_>) -> rusqlite::Result<Option<TokenRecord>> {
    let (scopes, secret): (String, Vec<u8>) = (row.get(2)?, row.get(3)?);
    Ok(TokenRecord::from_row(row.get(0)?, row.get(1)?, &scopes, &secret, timestamp(row.get(4)?)))
}
