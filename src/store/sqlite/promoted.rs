//! What a promotion to PostgreSQL leaves in the file (ADR 23): the table `promotion`, which there is only for that.
//!
//! While one is under way, its id: whoever opens the file to use it deletes that, and so makes what was moved stale. After it is
//! complete, the mark: the version of the schema is negative, which no version of this program opens, and the table says where
//! the jobs went. Rows are moved by `promotion.rs`.

#![cfg_attr(
    not(all(feature = "postgres", feature = "server")),
    allow(dead_code, reason = "a program that cannot promote a file still knows one that was promoted")
)]

use std::path::Path;

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, TransactionBehavior, params};
use uuid::Uuid;

use super::open::cannot_open;
use super::row::{UuidBlob, micros, timestamp};
use crate::store::OpenError;

/// A promotion that was begun, and maybe completed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Promotion {
    pub(crate) id: Uuid,
    /// Where to, for people to read.
    pub(crate) target: String,
    pub(crate) promoted_at: Option<Timestamp>,
}

fn has_table(connection: &Connection) -> rusqlite::Result<bool> {
    let sql = "SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'promotion')";
    connection.query_row(sql, [], |row| row.get(0))
}

/// The promotion of this file, if there is one.
pub(super) fn read(connection: &Connection) -> rusqlite::Result<Option<Promotion>> {
    if !has_table(connection)? {
        return Ok(None);
    }
    let read = |row: &rusqlite::Row<'_>| {
        let promoted_at: Option<i64> = row.get(2)?;
        let id = row.get::<_, UuidBlob>(0)?.0;
        Ok(Promotion { id, target: row.get(1)?, promoted_at: promoted_at.map(timestamp) })
    };
    connection.query_row("SELECT id, target, promoted_at FROM promotion", [], read).optional()
}

/// Whoever opens the file to use it changes it: what was moved so far is stale.
pub(super) fn forget(connection: &Connection, path: &Path) -> Result<(), OpenError> {
    let forget = || {
        if has_table(connection)? {
            connection.execute_batch("DROP TABLE promotion")?;
            tracing::info!(file = %path.display(), "a promotion of this file was begun and not completed; it is stale now");
        }
        Ok(())
    };
    forget().map_err(|error| cannot_open(path, error))
}

/// Writes the id of a promotion that begins. An earlier one is forgotten.
pub(super) fn begin(connection: &Connection, id: Uuid, target: &str) -> rusqlite::Result<()> {
    connection.execute_batch(
        "BEGIN IMMEDIATE;
         DROP TABLE IF EXISTS promotion;
         CREATE TABLE promotion (id BLOB NOT NULL, target TEXT NOT NULL, promoted_at INTEGER) STRICT",
    )?;
    connection.execute("INSERT INTO promotion (id, target) VALUES (?1, ?2)", params![UuidBlob(id), target])?;
    connection.execute_batch("COMMIT")
}

/// Marks the file as promoted. In the transaction of the caller.
pub(super) fn mark(connection: &Connection, at: Timestamp) -> rusqlite::Result<()> {
    let version: i32 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    connection.execute("UPDATE promotion SET promoted_at = ?1", [micros(at)])?;
    connection.pragma_update(None, "user_version", -version.abs())
}

/// Takes the mark away: the file can be used again. `None`: it had none.
pub(super) fn unmark(connection: &mut Connection) -> rusqlite::Result<Option<Promotion>> {
    let Some(promotion) = read(connection)?.filter(|promotion| promotion.promoted_at.is_some()) else {
        return Ok(None);
    };
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let version: i32 = transaction.pragma_query_value(None, "user_version", |row| row.get(0))?;
    transaction.pragma_update(None, "user_version", version.abs())?;
    transaction.execute_batch("DROP TABLE promotion")?;
    transaction.commit()?;
    Ok(Some(promotion))
}

/// Refuses a file that was promoted.
pub(super) fn refuse_promoted(connection: &Connection, path: &Path) -> Result<(), OpenError> {
    let promotion = read(connection).map_err(|error| cannot_open(path, error))?;
    let Some((target, at)) = promotion.and_then(|promotion| Some((promotion.target, promotion.promoted_at?))) else {
        return Ok(());
    };
    let shown = path.display();
    let problem = format!("its jobs were moved to {target} at {at}");
    let way_out = format!(
        "point DATABASE_URL there; to use the file again all the same, run `steadfast promote --from sqlite://{shown} \
         --unmark`, after which jobs that are in both run twice"
    );
    Err(OpenError::new(shown, problem, way_out))
}
