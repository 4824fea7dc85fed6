//! Upgrades a file to the schema of this program: numbered migrations, forward only.
//!
//! One process owns the file, so it upgrades at open, before anything else uses the file. Every migration ends in the
//! transaction that writes its number into `user_version`: a process that is killed leaves the version before or the
//! version after, and the next open goes on from there. A version that this program does not know is refused and left
//! as it is. There is no downgrade. How to add one is in `CONTRIBUTING.md`; `tests/sqlite/upgrade.rs` upgrades a file
//! of every earlier version.

use std::path::Path;

use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};

use super::open::{Promoted, cannot_open};
use super::promoted::refuse_promoted;
use crate::store::OpenError;

/// Marks the file as ours ("SFst"), so that somebody else's database is not migrated by mistake.
pub(super) const APPLICATION_ID: i32 = 0x5346_7374;

/// In order; the version of a migration is its position, counted from 1. Never edit one that was released.
const MIGRATIONS: &[Migration] = &[
    Migration::Transactional(include_str!("migrations/0001_jobs.sql")),
    Migration::Transactional(include_str!("migrations/0002_tokens.sql")),
    Migration::Transactional(include_str!("migrations/0003_schedules.sql")),
    Migration::Transactional(include_str!("migrations/0004_limits.sql")),
    Migration::Transactional(include_str!("migrations/0005_operations.sql")),
    Migration::Transactional(include_str!("migrations/0006_series.sql")),
    Migration::Transactional(include_str!("migrations/0007_hooks.sql")),
];

/// How one version becomes the next.
enum Migration {
    /// All of it in one transaction.
    Transactional(&'static str),
    /// Changes every row of a large table, a bounded number in each transaction, so that neither the log nor what a
    /// kill undoes grows with the table. How far it has come is committed with the rows.
    #[cfg_attr(not(test), expect(dead_code, reason = "no table has needed one yet"))]
    Backfill {
        /// A table with a column `seq`.
        table: &'static str,
        /// Changes the rows whose `seq` is above `?1` and up to `?2`.
        batch: &'static str,
    },
}

/// 1,000 rows, some milliseconds of work and some megabytes of log.
const BACKFILL_ROWS: usize = 1000;

/// Refuses a file that is another program's or a later version's, or that was promoted. Only reads.
pub(super) fn check_identity(connection: &Connection, path: &Path, promoted: Promoted) -> Result<(), OpenError> {
    let failed = |error: rusqlite::Error| cannot_open(path, error);
    let application_id: i32 = pragma(connection, "application_id").map_err(failed)?;
    let tables: i64 =
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).map_err(failed)?;
    if application_id != APPLICATION_ID && tables > 0 {
        return Err(OpenError::new(
            path.display(),
            "it is a database of another program",
            "give the path of a new file, or of one that Steadfast made",
        ));
    }
    if promoted == Promoted::Refused {
        refuse_promoted(connection, path)?;
    }
    let (version, known): (i32, usize) = (pragma(connection, "user_version").map_err(failed)?, MIGRATIONS.len());
    let is_marked = promoted == Promoted::Allowed && version < 0;
    if !is_marked && usize::try_from(version).map_or(true, |version| version > known) {
        return Err(OpenError::new(
            path.display(),
            format!("its schema is version {version} and this program knows versions up to {known}"),
            "run the newer program that wrote it, or restore a backup from before its upgrade: there is no downgrade",
        ));
    }
    Ok(())
}

/// For a file that passed [`check_identity`]. How many migrations it took.
pub(super) fn migrate(connection: &mut Connection, path: &Path) -> Result<usize, OpenError> {
    let failed = |error: rusqlite::Error| {
        let problem = format!("its schema cannot be upgraded ({error})");
        OpenError::new(path.display(), problem, "see the cause, then start again: it goes on where it stopped")
            .caused_by(error)
    };
    let from = schema_version(connection).map_err(failed)?;
    apply(connection, MIGRATIONS).map_err(failed)?;
    let to = schema_version(connection).map_err(failed)?;
    if from > 0 && to > from {
        tracing::info!(file = %path.display(), from, to, "the schema was upgraded");
    }
    Ok(to - from)
}

/// Whether there is nothing to migrate. What cannot be read is for [`migrate`] to report.
pub(super) fn is_up_to_date(connection: &Connection) -> bool {
    schema_version(connection).is_ok_and(|version| version >= MIGRATIONS.len())
}

fn apply(connection: &mut Connection, migrations: &[Migration]) -> rusqlite::Result<()> {
    for (version, migration) in (1..).zip(migrations) {
        while schema_version(connection)? < version {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let is_complete = match migration {
                Migration::Transactional(sql) => {
                    transaction.execute_batch(sql)?;
                    true
                }
                Migration::Backfill { table, batch } => next_batch(&transaction, table, batch)?,
            };
            if is_complete {
                transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
                transaction.pragma_update(None, "user_version", version)?;
            }
            transaction.commit()?;
            // Nobody else does it before the store has started, and the log would become as long as the table.
            connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))?;
        }
    }
    Ok(())
}

/// `true` if there are no further rows.
fn next_batch(transaction: &Transaction<'_>, table: &str, batch: &str) -> rusqlite::Result<bool> {
    // Here only while a backfill is under way.
    transaction.execute_batch(
        "CREATE TABLE IF NOT EXISTS backfill_position (one INTEGER PRIMARY KEY CHECK (one = 1), seq INTEGER NOT NULL)",
    )?;
    let done: Option<i64> =
        transaction.query_row("SELECT seq FROM backfill_position", [], |row| row.get(0)).optional()?;
    let done = done.unwrap_or(i64::MIN);
    let last: Option<i64> = transaction.query_row(
        &format!("SELECT max(seq) FROM (SELECT seq FROM {table} WHERE seq > ?1 ORDER BY seq LIMIT ?2)"),
        params![done, BACKFILL_ROWS as i64],
        |row| row.get(0),
    )?;
    let Some(last) = last else {
        transaction.execute_batch("DROP TABLE backfill_position")?;
        return Ok(true);
    };
    transaction.execute(batch, params![done, last])?;
    transaction.execute("INSERT OR REPLACE INTO backfill_position (one, seq) VALUES (1, ?1)", [last])?;
    Ok(false)
}

fn schema_version(connection: &Connection) -> rusqlite::Result<usize> {
    pragma(connection, "user_version")
}

fn pragma<T: rusqlite::types::FromSql>(connection: &Connection, name: &str) -> rusqlite::Result<T> {
    connection.pragma_query_value(None, name, |row| row.get(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts how often a row was changed, so that one that was changed twice shows.
    const COUNT_UP: Migration = Migration::Backfill {
        table: "numbers",
        batch: "UPDATE numbers SET changed = changed + 1 WHERE seq > ?1 AND seq <= ?2",
    };

    const ROWS: usize = 2 * BACKFILL_ROWS + BACKFILL_ROWS / 2;

    fn numbers() -> Connection {
        let connection = Connection::open_in_memory().unwrap();
        connection
            .execute_batch(&format!(
                "CREATE TABLE numbers (seq INTEGER PRIMARY KEY, changed INTEGER NOT NULL DEFAULT 0);
                 WITH RECURSIVE series (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM series LIMIT {ROWS})
                 INSERT INTO numbers (seq) SELECT n FROM series"
            ))
            .unwrap();
        connection.pragma_update(None, "user_version", 1).unwrap();
        connection
    }

    fn changed(connection: &Connection, times: i64) -> usize {
        connection.query_row("SELECT count(*) FROM numbers WHERE changed = ?1", [times], |row| row.get(0)).unwrap()
    }

    #[test]
    fn a_backfill_that_was_interrupted_goes_on_where_it_stopped_and_changes_every_row_once() {
        let migrations = [Migration::Transactional(""), COUNT_UP];
        let mut connection = numbers();
        // The last batch fails; the first two are committed by then.
        connection
            .execute_batch(&format!(
                "CREATE TRIGGER refuse BEFORE UPDATE ON numbers WHEN old.seq = {ROWS}
                 BEGIN SELECT RAISE(ABORT, 'planted'); END"
            ))
            .unwrap();
        apply(&mut connection, &migrations).unwrap_err();
        assert_eq!(schema_version(&connection).unwrap(), 1);
        assert_eq!(changed(&connection, 1), 2 * BACKFILL_ROWS);

        connection.execute_batch("DROP TRIGGER refuse").unwrap();
        apply(&mut connection, &migrations).unwrap();
        assert_eq!(schema_version(&connection).unwrap(), 2);
        assert_eq!(changed(&connection, 1), ROWS);
        let left: i64 = connection
            .query_row("SELECT count(*) FROM sqlite_schema WHERE name = 'backfill_position'", [], |row| row.get(0))
            .unwrap();
        assert_eq!(left, 0);
    }

    #[test]
    fn a_migration_that_fails_changes_nothing_and_those_before_it_stay() {
        let mut connection = numbers();
        let broken = "UPDATE numbers SET changed = 7; UPDATE nothing SET of = 'the kind'";
        let migrations = [Migration::Transactional(""), COUNT_UP, Migration::Transactional(broken)];
        apply(&mut connection, &migrations).unwrap_err();
        assert_eq!(schema_version(&connection).unwrap(), 2);
        assert_eq!(changed(&connection, 1), ROWS);
    }
}
