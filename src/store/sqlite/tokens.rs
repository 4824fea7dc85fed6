//! put_token, tokens, had_token, delete_token: who may use the API.

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::audit;
use super::audit_shown::shown_token;
use super::inbox::{Urgency, Verb};
use super::row::timestamp;
use super::transaction::Tx;
use crate::job::limits::TOKENS_MAX;
use crate::planted::{Bug, planted};
use crate::store::audit_entry::AuditEntry;
use crate::store::{DeleteToken, LastAdmin, PutToken, TokenDeleted, TokenList, TokenPut, TokenRecord};

impl Verb for PutToken {
    type Answer = TokenPut;
    const NAME: &'static str = "put_token";
    const URGENCY: Urgency = Urgency::Urgent;

    fn apply(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<TokenPut> {
        let token = &self.token;
        let (count, known): (usize, bool) = tx
            .statement("SELECT count(*), coalesce(max(id = ?1), 0) FROM tokens WHERE parent IS NULL")?
            .query_row([&token.id], |row| Ok((row.get(0)?, row.get(1)?)))?;
        if !known && count >= TOKENS_MAX {
            return Ok(TokenPut::TooMany);
        }
        let before = stored(tx, &token.id)?;
        tx.statement("INSERT OR IGNORE INTO had_token (one) VALUES (1)")?.execute([])?;
        tx.statement(
            "INSERT INTO tokens (id, name, scopes, secret_sha256, created_at, expires_at, last_used_at, created_by)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
             ON CONFLICT (id) DO UPDATE SET name = excluded.name, scopes = excluded.scopes,
                 secret_sha256 = excluded.secret_sha256, created_at = excluded.created_at,
                 expires_at = excluded.expires_at, last_used_at = excluded.last_used_at,
                 created_by = excluded.created_by, parent = NULL",
        )?
        .execute(params![
            token.id,
            token.name,
            token.scopes_text(),
            token.secret_sha256.as_slice(),
            token.created_at.as_microsecond(),
            token.expires_at.map(Timestamp::as_microsecond),
            token.last_used_at.map(Timestamp::as_microsecond),
            token.created_by,
        ])?;
        // A new secret is a change, though it is not shown.
        if before != stored(tx, &token.id)? {
            let entry = AuditEntry::new(Self::NAME, format!("token:{}", token.id), self.by.as_ref());
            let entry = entry.before(before.as_ref().map(shown_token)).after(Some(shown_token(token)));
            audit::record(tx, &entry)?;
        }
        Ok(TokenPut::Stored)
    }
}

/// Whether a token, by its row, may make others at ?2.
macro_rules! is_admin {
    () => {
        "instr(' ' || scopes || ' ', ' admin ') > 0 AND parent IS NULL AND coalesce(expires_at > ?2, 1)"
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
            .query_row(params![self.id, tx.now_micros()], |row| row.get(0))?;
        if is_last_admin && self.last_admin == LastAdmin::Keep && !planted(Bug::LastAdminDeleted) {
            return Ok(TokenDeleted::KeptLastAdmin);
        }
        let before = stored(tx, &self.id)?;
        let deleted = tx.statement("DELETE FROM tokens WHERE id = ?1 AND parent IS NULL")?.execute([&self.id])?;
        if deleted > 0 {
            tx.statement("DELETE FROM tokens WHERE parent = ?1")?.execute([&self.id])?;
            let entry = AuditEntry::new(Self::NAME, format!("token:{}", self.id), self.by.as_ref());
            audit::record(tx, &entry.before(before.as_ref().map(shown_token)))?;
        }
        Ok(if deleted > 0 { TokenDeleted::Deleted } else { TokenDeleted::NotFound })
    }
}

pub(super) fn had_token(connection: &Connection) -> rusqlite::Result<bool> {
    connection.query_row("SELECT EXISTS (SELECT 1 FROM had_token)", [], |row| row.get(0))
}

fn stored(tx: &Tx<'_>, id: &str) -> rusqlite::Result<Option<TokenRecord>> {
    let sql = "SELECT id, name, scopes, secret_sha256, created_at, expires_at, last_used_at, created_by FROM tokens WHERE id = ?1";
    Ok(tx.statement(sql)?.query_row([id], read_token).optional()?.flatten())
}

pub(super) fn tokens(connection: &Connection, now_micros: i64) -> rusqlite::Result<TokenList> {
    let mut statement = connection.prepare_cached(
        "SELECT id, name, scopes, secret_sha256, created_at, expires_at, last_used_at, created_by
         FROM tokens WHERE parent IS NULL ORDER BY id",
    )?;
    let rows = statement.query_map([], read_token)?;
    let tokens: rusqlite::Result<_> = rows.filter_map(Result::transpose).collect();
    Ok(TokenList::new(tokens?, timestamp(now_micros)))
}

fn read_token(row: &Row<'_>) -> rusqlite::Result<Option<TokenRecord>> {
    let (scopes, secret): (String, Vec<u8>) = (row.get(2)?, row.get(3)?);
    let token = TokenRecord::from_row(row.get(0)?, row.get(1)?, &scopes, &secret, timestamp(row.get(4)?));
    let Some(mut token) = token else { return Ok(None) };
    token.expires_at = row.get::<_, Option<i64>>(5)?.map(timestamp);
    token.last_used_at = row.get::<_, Option<i64>>(6)?.map(timestamp);
    token.created_by = row.get(7)?;
    Ok(Some(token))
}
