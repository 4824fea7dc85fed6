//! put_session, session, delete_session, touch_tokens, prune_tokens: children of tokens, and the use and the end of both.

use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, Row, params};

use super::inbox::{Urgency, Verb};
use super::row::timestamp;
use super::transaction::Tx;
use crate::job::limits::{
    EXPIRED_TOKEN_KEPT, SESSION_IDLE, SESSION_LIFETIME, SESSION_USE_INTERVAL, SESSIONS_MAX, TOKEN_USE_INTERVAL,
};
use crate::store::token::scopes_of;
use crate::store::{DeleteSession, PruneTokens, PutSession, SessionParent, SessionRecord, TouchTokens};

fn micros(span: Duration) -> i64 {
    i64::try_from(span.as_micros()).unwrap_or(i64::MAX)
}

const PUT_SESSION: &str = "
-- put_session
INSERT INTO tokens (id, name, scopes, secret_sha256, created_at, expires_at, last_used_at, parent)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?5, ?7)";

const END_OLDEST: &str = "
-- put_session: room for one more
DELETE FROM tokens
WHERE id IN (SELECT id FROM tokens WHERE parent = ?1 ORDER BY created_at DESC, id LIMIT -1 OFFSET ?2)";

const SESSION: &str = "
-- session
SELECT s.id, s.parent, coalesce(p.name, s.name), coalesce(p.scopes, s.scopes), s.secret_sha256, s.created_at,
       s.expires_at, s.last_used_at
FROM tokens s
LEFT JOIN tokens p ON p.id = s.parent AND p.parent IS NULL
WHERE s.id = ?1 AND s.parent IS NOT NULL AND s.expires_at > ?2 AND s.last_used_at > ?2 - ?3
  AND (instr(s.parent, ':') > 0 OR (p.id IS NOT NULL AND coalesce(p.expires_at > ?2, 1)))";

const TOUCH_TOKEN: &str = "
-- touch_tokens
UPDATE tokens SET last_used_at = ?2
WHERE id = ?1 AND coalesce(last_used_at <= ?2 - CASE WHEN parent IS NULL THEN ?3 ELSE ?4 END, 1)";

const PRUNE_TOKENS: &str = "
-- prune_tokens
DELETE FROM tokens
WHERE id IN (SELECT id FROM tokens
             WHERE expires_at <= ?1 AND (parent IS NOT NULL OR expires_at <= ?1 - ?2) ORDER BY expires_at LIMIT ?3)";

impl Verb for PutSession {
    type Answer = Option<SessionRecord>;
    const NAME: &'static str = "put_session";
    const URGENCY: Urgency = Urgency::Urgent;

    fn apply(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<Option<SessionRecord>> {
        let now = tx.now_micros();
        let parent = match &self.parent {
            SessionParent::Token(id) => tx
                .statement(
                    "SELECT name, scopes, expires_at FROM tokens
                     WHERE id = ?1 AND parent IS NULL AND coalesce(expires_at > ?2, 1)",
                )?
                .query_row(params![id, now], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
                .optional()?,
            SessionParent::Settings(_) => Some((self.name.clone(), self.scopes_text(), None)),
        };
        let Some((name, scopes, parent_expires_at)): Option<(String, String, Option<i64>)> = parent else {
            return Ok(None);
        };
        let parent = self.parent.as_text();
        tx.statement(END_OLDEST)?.execute(params![parent, SESSIONS_MAX - 1])?;
        let expires_at = now.saturating_add(micros(SESSION_LIFETIME)).min(parent_expires_at.unwrap_or(i64::MAX));
        let secret = self.secret_sha256.as_slice();
        tx.statement(PUT_SESSION)?.execute(params![self.id, name, scopes, secret, now, expires_at, parent])?;
        session(tx.connection(), &self.id, now)
    }
}

pub(super) fn session(connection: &Connection, id: &str, now: i64) -> rusqlite::Result<Option<SessionRecord>> {
    let mut statement = connection.prepare_cached(SESSION)?;
    let found = statement.query_row(params![id, now, micros(SESSION_IDLE)], |row| read_session(row, now)).optional()?;
    Ok(found.flatten())
}

/// `None` for a row that no program of ours wrote.
fn read_session(row: &Row<'_>, now: i64) -> rusqlite::Result<Option<SessionRecord>> {
    let (scopes, secret): (String, Vec<u8>) = (row.get(3)?, row.get(4)?);
    let Ok(secret_sha256) = secret.try_into() else { return Ok(None) };
    Ok(Some(SessionRecord {
        id: row.get(0)?,
        parent: SessionParent::from_text(row.get(1)?),
        name: row.get(2)?,
        scopes: scopes_of(&scopes),
        secret_sha256,
        created_at: timestamp(row.get(5)?),
        expires_at: timestamp(row.get(6)?),
        last_used_at: timestamp(row.get(7)?),
        now: timestamp(now),
    }))
}

impl Verb for DeleteSession {
    type Answer = bool;
    const NAME: &'static str = "delete_session";
    const URGENCY: Urgency = Urgency::Urgent;

    fn apply(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<bool> {
        let sql = "DELETE FROM tokens WHERE id = ?1 AND parent IS NOT NULL";
        Ok(tx.statement(sql)?.execute([&self.id])? > 0)
    }
}

impl Verb for TouchTokens {
    type Answer = usize;
    const NAME: &'static str = "touch_tokens";
    const URGENCY: Urgency = Urgency::Bulk;

    fn apply(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<usize> {
        let mut statement = tx.statement(TOUCH_TOKEN)?;
        let (token_us, session_us) = (micros(TOKEN_USE_INTERVAL), micros(SESSION_USE_INTERVAL));
        let mut written = 0;
        for id in &self.ids {
            written += statement.execute(params![id, tx.now_micros(), token_us, session_us])?;
        }
        Ok(written)
    }

    /// Losing it costs nothing.
    fn needs_sync(&self) -> bool {
        false
    }
}

impl Verb for PruneTokens {
    type Answer = usize;
    const NAME: &'static str = "prune_tokens";
    const URGENCY: Urgency = Urgency::Bulk;

    fn apply(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<usize> {
        tx.statement(PRUNE_TOKENS)?.execute(params![tx.now_micros(), micros(EXPIRED_TOKEN_KEPT), self.limit])
    }
}
