//! The source of a promotion: this process owns the file, and reads it in pages (ADR 23). Nothing is changed in it but the
//! table `promotion` and, at the end, the mark (`promoted.rs`); a write transaction is open meanwhile, so that nobody changes anything.

use std::path::{Path, PathBuf};

use jiff::Timestamp;
use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, Row};
use uuid::Uuid;

use super::lease::lease_token;
use super::migrate::{is_up_to_date, migrate};
use super::open::{Promoted, check_and_connect, connect_read_only};
use super::owner::{OwnerLock, become_owner, find_or_make};
pub(crate) use super::promoted::Promotion;
use super::row::{UuidBlob, column};
use super::{error, promoted};
use crate::store::OpenError;
use crate::store::promotion::{Key, KeyPart, Kind, Page, PromotionError, Table, shown_row};

/// A file that is being promoted.
pub(crate) struct PromotionSource {
    // Closed in this order: the lock goes last.
    connection: Connection,
    _owner: OwnerLock,
}

/// How many jobs there are of a (kind, queue, status).
pub(crate) type StatusCounts = Vec<(String, String, String, i64)>;

impl PromotionSource {
    /// Becomes the owner of the file and upgrades it; one that was promoted already is left as it is.
    pub(crate) fn open(given: &Path) -> Result<Self, OpenError> {
        let (owner, path) = own(given)?;
        let mut connection = check_and_connect(&path, Promoted::Allowed)?;
        let source_error = |error| super::open::cannot_open(&path, error);
        let is_promoted =
            promoted::read(&connection).map_err(source_error)?.is_some_and(|promotion| promotion.promoted_at.is_some());
        if !is_promoted {
            migrate(&mut connection, &path)?;
        }
        Ok(Self { connection, _owner: owner })
    }

    /// Becomes the owner of the file and changes nothing, not even its schema.
    pub(crate) fn open_to_look(given: &Path) -> Result<Self, OpenError> {
        let (owner, path) = own(given)?;
        let connection = connect_read_only(&path, Promoted::Allowed)?;
        Ok(Self { connection, _owner: owner })
    }

    /// Whether its schema is this program's.
    pub(crate) fn is_up_to_date(&self) -> bool {
        is_up_to_date(&self.connection)
    }

    /// The promotion that was begun, if nobody has used the file since.
    pub(crate) fn promotion(&self) -> Result<Option<Promotion>, PromotionError> {
        promoted::read(&self.connection).map_err(|error| failed("reading the file", error))
    }

    /// Writes down that a promotion begins.
    pub(crate) fn begin(&self, id: Uuid, target: &str) -> Result<(), PromotionError> {
        promoted::begin(&self.connection, id, target).map_err(|error| failed("writing to the file", error))
    }

    /// From now on nobody else can write to the file, until [`mark`](Self::mark) or the end of this process.
    pub(crate) fn hold(&self) -> Result<(), PromotionError> {
        self.connection.execute_batch("BEGIN IMMEDIATE").map_err(|error| failed("locking the file", error))
    }

    /// Marks the file as promoted, on stable storage.
    pub(crate) fn mark(&self) -> Result<(), PromotionError> {
        let mark = || {
            promoted::mark(&self.connection, Timestamp::now())?;
            self.connection.execute_batch("COMMIT")
        };
        mark().map_err(|error| failed("marking the file as promoted", error))
    }

    /// How many rows a table has; `None` if the file is too old to have it.
    pub(crate) fn count(&self, table: &Table) -> Result<Option<u64>, PromotionError> {
        let has = "SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?1)";
        let count = || {
            if !self.connection.query_row(has, [table.name], |row| row.get(0))? {
                return Ok(None);
            }
            // A file from before there were sessions has no column for them.
            let only = if self.is_up_to_date() { table.only } else { "TRUE" };
            let sql = format!("SELECT count(*) FROM {} WHERE {only}", table.name);
            self.connection.query_row(&sql, [], |row| row.get(0)).map(Some)
        };
        count().map_err(|error| failed("counting rows of the file", error))
    }

    /// Counted anew, not as the file's own counts say.
    pub(crate) fn status_counts(&self) -> Result<StatusCounts, PromotionError> {
        let sql =
            "SELECT kind, queue, status, count(*) FROM jobs GROUP BY kind, queue, status ORDER BY kind, queue, status";
        let read = || {
            let mut statement = self.connection.prepare(sql)?;
            let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))?;
            rows.collect::<rusqlite::Result<_>>()
        };
        read().map_err(|error| failed("counting jobs of the file", error))
    }

    /// The next rows behind a key.
    pub(crate) fn page(&self, table: &Table, after: Option<&Key>, rows_max: usize) -> Result<Page, PromotionError> {
        let failed = |error| failed("reading the file", error);
        let mut statement = self.connection.prepare_cached(&page_sql(table, after.is_some())).map_err(failed)?;
        let mut params: Vec<Value> = after.into_iter().flatten().map(bound).collect();
        // One more, to know whether there are more.
        params.push(Value::Integer(rows_max as i64 + 1));
        let mut rows = statement.query(rusqlite::params_from_iter(params)).map_err(failed)?;
        let mut page = Page::new(table);
        while let Some(row) = rows.next().map_err(failed)? {
            if page.is_full(rows_max) {
                page.is_end = false;
                break;
            }
            let key = read_key(table, row).map_err(failed)?;
            for (index, column) in table.columns.iter().enumerate() {
                write_field(&mut page, row, index, column.kind).map_err(|why| PromotionError::Row {
                    row: shown_row(table, &key),
                    column: column.name,
                    why,
                })?;
            }
            page.keys.push(key);
        }
        Ok(page)
    }
}

/// Takes the mark away.
pub(crate) fn unmark(given: &Path) -> Result<Option<Promotion>, PromotionError> {
    let (_owner, path) = own(given)?;
    let mut connection = check_and_connect(&path, Promoted::Allowed)?;
    promoted::unmark(&mut connection).map_err(|error| failed("writing to the file", error))
}

fn own(given: &Path) -> Result<(OwnerLock, PathBuf), OpenError> {
    if matches!(given.try_exists(), Ok(false)) {
        return Err(OpenError::new(given.display(), "there is no such file", "correct the path in --from"));
    }
    let path = find_or_make(given)?;
    Ok((become_owner(&path)?, path))
}

fn failed(doing: &'static str, error: rusqlite::Error) -> PromotionError {
    PromotionError::database(doing, error::Cause::from(&error))
}

fn page_sql(table: &Table, has_cursor: bool) -> String {
    let columns: Vec<&str> = table.columns.iter().map(|column| column.from).collect();
    let key = columns[..table.key].join(", ");
    let behind = if has_cursor {
        format!(" AND ({key}) > ({})", (1..=table.key).map(|n| format!("?{n}")).collect::<Vec<_>>().join(", "))
    } else {
        String::new()
    };
    let limit = if has_cursor { table.key + 1 } else { 1 };
    let (columns, from, only) = (columns.join(", "), table.from, table.only);
    format!(
        "-- promote: the next rows\nSELECT {columns} FROM {from} WHERE {only}{behind} ORDER BY {key} LIMIT ?{limit}"
    )
}

fn bound(part: &KeyPart) -> Value {
    match part {
        KeyPart::Text(text) => Value::Text(text.clone()),
        KeyPart::Int(n) | KeyPart::Time(n) => Value::Integer(*n),
        KeyPart::Id(id) => Value::Blob(id.as_bytes().to_vec()),
        KeyPart::Bool(flag) => Value::Integer(i64::from(*flag)),
    }
}

fn read_key(table: &Table, row: &Row<'_>) -> rusqlite::Result<Key> {
    let part = |index: usize| {
        Ok(match table.columns[index].kind {
            Kind::Text => KeyPart::Text(row.get(index)?),
            Kind::Time => KeyPart::Time(row.get(index)?),
            Kind::Id => KeyPart::Id(row.get::<_, UuidBlob>(index)?.0),
            Kind::Bool => KeyPart::Bool(row.get(index)?),
            _ => KeyPart::Int(row.get(index)?),
        })
    };
    (0..table.key).map(part).collect()
}

/// 2000-01-01, from where PostgreSQL counts, in microseconds since 1970.
const EPOCH_US: i64 = 946_684_800_000_000;

/// The last time that PostgreSQL knows, in microseconds since 2000, and the first.
const TIMES: std::ops::RangeInclusive<i64> = -211_813_488_000_000_000..=9_223_371_331_199_999_999;

/// Adds a field as PostgreSQL's binary format has it.
fn write_field(page: &mut Page, row: &Row<'_>, index: usize, kind: Kind) -> Result<(), String> {
    let value = row.get_ref(index).map_err(|error| error.to_string())?;
    if matches!(value, ValueRef::Null) {
        page.add(None);
        return Ok(());
    }
    let integer = || value.as_i64().map_err(|error| error.to_string());
    match kind {
        Kind::Text => {
            let text = value.as_bytes().map_err(|error| error.to_string())?;
            if text.contains(&0) {
                return Err("it contains the character U+0000".into());
            }
            std::str::from_utf8(text).map_err(|_| "it is not UTF-8")?;
            page.add(Some(text));
        }
        Kind::Bytes => page.add(Some(value.as_blob().map_err(|error| error.to_string())?)),
        Kind::Bool => page.add(Some(&[u8::from(integer()? != 0)])),
        Kind::Int2 => page.add(Some(&small::<i16>(integer()?)?.to_be_bytes())),
        Kind::Int4 => page.add(Some(&small::<i32>(integer()?)?.to_be_bytes())),
        Kind::Int8 => page.add(Some(&integer()?.to_be_bytes())),
        Kind::Time => {
            let since_2000 = integer()?.saturating_sub(EPOCH_US).clamp(*TIMES.start(), *TIMES.end());
            page.add(Some(&since_2000.to_be_bytes()));
        }
        Kind::Id => page.add(Some(uuid(row, index)?.as_bytes())),
        Kind::Ids => {
            let text = value.as_str().map_err(|error| error.to_string())?;
            let ids: Vec<Uuid> = serde_json::from_str(text).map_err(|_| "it is not a list of ids")?;
            page.add(Some(&array(&ids)));
        }
        Kind::Token { job } => {
            let nonce = UuidBlob(uuid(row, index)?);
            let token = lease_token(nonce, uuid(row, job)?.into());
            page.add(Some(token.as_uuid().as_bytes()));
        }
    }
    Ok(())
}

fn uuid(row: &Row<'_>, index: usize) -> Result<Uuid, String> {
    column::<UuidBlob>(row, index, "id").map(|id| id.0).map_err(|_| "it has not 16 bytes".to_owned())
}

fn small<T: TryFrom<i64>>(n: i64) -> Result<T, String> {
    T::try_from(n).map_err(|_| format!("{n} is out of range"))
}

/// `uuid[]`.
fn array(ids: &[Uuid]) -> Vec<u8> {
    /// The type `uuid`.
    const UUID_OID: i32 = 2950;
    // How many dimensions, whether there are NULLs, of which type.
    let mut bytes: Vec<u8> = [i32::from(!ids.is_empty()), 0, UUID_OID].iter().flat_map(|n| n.to_be_bytes()).collect();
    if !ids.is_empty() {
        // How many there are, and the number of the first.
        bytes.extend([ids.len() as i32, 1].iter().flat_map(|n| n.to_be_bytes()));
    }
    for id in ids {
        bytes.extend(16_i32.to_be_bytes());
        bytes.extend(id.as_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::promotion::{LEFT_OUT, LEFT_OUT_COLUMNS, MOVED};

    fn words(text: &str) -> Vec<&str> {
        text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').collect()
    }

    fn names(connection: &Connection, sql: &str) -> Vec<String> {
        let mut statement = connection.prepare(sql).unwrap();
        statement.query_map([], |row| row.get(0)).unwrap().collect::<rusqlite::Result<_>>().unwrap()
    }

    #[test]
    fn every_table_and_column_of_the_file_is_moved_or_left_out_on_purpose() {
        let mut connection = Connection::open_in_memory().unwrap();
        migrate(&mut connection, Path::new("memory")).unwrap();
        let tables = names(
            &connection,
            "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name",
        );
        assert!(tables.len() > 15, "{tables:?}");
        for name in tables {
            let Some(table) = MOVED.iter().find(|table| table.name == name) else {
                let is_left_out = LEFT_OUT.iter().any(|(left_out, _)| *left_out == name);
                assert!(is_left_out, "steadfast promote would lose table {name}: add it to store/promotion/tables.rs");
                continue;
            };
            let from: Vec<&str> = table.columns.iter().flat_map(|column| words(column.from)).collect();
            for column in names(&connection, &format!("SELECT name FROM pragma_table_info('{name}')")) {
                let is_left_out = LEFT_OUT_COLUMNS.iter().any(|(of, left_out, _)| *of == name && *left_out == column);
                assert!(
                    is_left_out || from.contains(&&*column),
                    "steadfast promote would lose {name}.{column}: add it to store/promotion/tables.rs"
                );
            }
            connection.prepare(&page_sql(table, true)).unwrap();
        }
    }

    /// A database in memory; the file that is owned is another one.
    fn source() -> (PromotionSource, tempfile::TempDir) {
        let directory = tempfile::tempdir().unwrap();
        let mut connection = Connection::open_in_memory().unwrap();
        migrate(&mut connection, Path::new("memory")).unwrap();
        let path = directory.path().join("owned");
        std::fs::write(&path, "").unwrap();
        let Ok(owner) = become_owner(&path) else { panic!("nobody else has it") };
        (PromotionSource { connection, _owner: owner }, directory)
    }

    fn add_job(source: &PromotionSource, seq: i64, id: u128, payload: &str) {
        let sql = "INSERT INTO jobs (seq, id, kind, queue, status, priority, attempts, max_attempts, run_at, created_at, updated_at, payload)
                   VALUES (?1, ?2, 'k', 'q', 'queued', 0, 0, 1, 0, 0, 0, ?3)";
        source.connection.execute(sql, rusqlite::params![seq, UuidBlob(Uuid::from_u128(id)), payload]).unwrap();
    }

    fn table(name: &str) -> &'static Table {
        MOVED.iter().find(|table| table.name == name).unwrap()
    }

    #[test]
    fn a_cursor_by_row_becomes_the_last_id_before_the_first_job_that_was_not_looked_at() {
        let (source, _directory) = source();
        // By id: 1, 2, 3; by row: 1, 3, 2. Of these, 1 and 3 were looked at.
        for (seq, id) in [(1, 1), (2, 3), (3, 2)] {
            add_job(&source, seq, id, "{}");
        }
        let add = "INSERT INTO operations (id, action, selection, cutoff, rate, canary_jobs, canary_passed, state, cursor, looked_at,
                                           changed, unchanged, failed, next_step_at, token_name, created_at, updated_at)
                   VALUES (x'00000000000000000000000000000001', 'redrive', '{}', 0, 1, '[]', 0, 'running', ?1, 0, 0, 0, 0, 0, 't', 0, 0)";
        for (cursor, expected) in [(2, Some(1)), (3, Some(3)), (0, None)] {
            source.connection.execute_batch("DELETE FROM operations").unwrap();
            source.connection.execute(add, [cursor]).unwrap();
            let operations = table("operations");
            let page = source.page(operations, None, 10).unwrap();
            let at = operations.columns.iter().position(|column| column.name == "cursor").unwrap();
            let row = page.rows().next().unwrap();
            let expected = expected.map(|id| Uuid::from_u128(id).as_bytes().to_vec());
            assert_eq!(row[at].map(<[u8]>::to_vec), expected, "{cursor}");
        }
    }

    #[test]
    fn a_page_ends_where_it_is_told_and_the_next_begins_behind_it() {
        let (source, _directory) = source();
        for n in 1..=5 {
            add_job(&source, n, n as u128, "{}");
        }
        let (mut after, mut lengths) = (None, Vec::new());
        loop {
            let page = source.page(table("jobs"), after.as_ref(), 2).unwrap();
            lengths.push(page.len());
            after = page.keys.last().cloned();
            if page.is_end {
                break;
            }
        }
        assert_eq!(lengths, [2, 2, 1]);
        let large = "x".repeat(9 << 20);
        add_job(&source, 6, 6, &large);
        add_job(&source, 7, 7, "{}");
        let page = source.page(table("jobs"), after.as_ref(), 1000).unwrap();
        assert!(page.len() == 1 && !page.is_end, "a large row fills a page");
    }

    #[test]
    fn a_row_that_postgresql_cannot_hold_is_named() {
        let (source, _directory) = source();
        add_job(&source, 1, 1, "{}");
        source.connection.execute_batch("UPDATE jobs SET last_error = 'a' || char(0)").unwrap();
        let Err(error) = source.page(table("jobs"), None, 10) else { panic!("it is read") };
        let text = error.to_string();
        assert!(text.starts_with("job 00000000-0000-0000-0000-000000000001: its last_error"), "{text}");
        assert!(text.contains("U+0000") && text.contains("--start-over"), "{text}");
    }

    #[test]
    fn pages_are_read_along_an_index() {
        let mut connection = Connection::open_in_memory().unwrap();
        migrate(&mut connection, Path::new("memory")).unwrap();
        for table in MOVED {
            let sql = format!("EXPLAIN QUERY PLAN {}", page_sql(table, true));
            let mut statement = connection.prepare(&sql).unwrap();
            let params: Vec<Value> = (0..=table.key).map(|_| Value::Null).collect();
            let plan = statement.query_map(rusqlite::params_from_iter(params), |row| row.get::<_, String>(3)).unwrap();
            let plan = plan.collect::<rusqlite::Result<Vec<_>>>().unwrap().join("; ");
            assert!(!plan.contains("TEMP B-TREE"), "{}: {plan}", table.name);
        }
    }
}
