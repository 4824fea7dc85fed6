//! The target of a promotion: takes pages, and answers them again to be compared (ADR 23).
//!
//! How far it has come is in the table [`PROGRESS`], which there is only while a promotion is under way: a row for each table,
//! written in the transaction of every page. While it is there, no server opens the database (`open.rs`), so everything in it
//! is the promotion's. Decides nothing about jobs; where to begin and when it is complete is said by `store/promotion/run.rs`.

use std::error::Error;
use std::pin::pin;

use tokio_postgres::binary_copy::BinaryCopyInWriter;
use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};
use tokio_postgres::{Client, Row, Transaction};
use uuid::Uuid;

use super::error::Cause;
use super::migrate::{self, VERSIONS_TABLE};
use super::open::{self, PROGRESS, check_server, is_promoting, newer_than_known};
use super::pool::{Connector, quoted};
use super::settings::PostgresSettings;
use super::sql::rendered;
use super::timestamp::PgTimestamp;
use crate::store::OpenError;
use crate::store::promotion::{COMPUTED, Key, KeyPart, MOVED, Page, PromotionError, Table, shown_row};

/// A page takes a moment, but what is computed at the end may take minutes. A lock that somebody else holds is waited for a minute.
const SESSION: &str =
    "SET statement_timeout = '1h'; SET lock_timeout = '1min'; SET idle_in_transaction_session_timeout = '1h'";

/// The version of the tables that this program makes.
pub(crate) const NEWEST_VERSION: i32 = migrate::SUPPORTED.max;

/// The step behind all tables, in [`PROGRESS`].
const FINISH: &str = "(finish)";

/// A database that is promoted into.
pub(crate) struct PromotionTarget {
    client: Client,
    /// Drives the connection.
    _connector: Connector,
    schema: String,
    /// For people to read; without the password.
    shown: String,
}

/// How far a table has come.
pub(crate) struct TableProgress {
    pub(crate) cursor: Option<Key>,
    pub(crate) moved: u64,
    pub(crate) is_done: bool,
}

/// What is in the target.
pub(crate) enum Found {
    /// Nothing; the number is the version of its tables, 0 if there are none.
    Empty(i32),
    /// Rows of something else, in this table.
    Rows(&'static str),
    /// No job, but a worker that was seen in the last minute.
    Worker(String),
    /// A promotion that is not complete.
    Promotion(Uuid),
}

impl PromotionTarget {
    /// Connects; changes nothing.
    pub(crate) async fn connect(settings: &PostgresSettings) -> Result<Self, OpenError> {
        let connector = Connector::new(settings)?;
        let client = open::connect(&connector, settings).await?;
        check_server(&client, &connector, settings).await?;
        let shown = match &*settings.schema {
            "public" => connector.shown.to_string(),
            schema => format!("{} (schema {schema:?})", connector.shown),
        };
        let schema = settings.schema.clone();
        let target = Self { client, _connector: connector.clone(), schema, shown };
        let version = target.version().await.unwrap_or(0);
        if version > migrate::SUPPORTED.max {
            return Err(newer_than_known(version, migrate::SUPPORTED.max, &connector, settings));
        }
        Ok(target)
    }

    /// Brings its tables up to date.
    pub(crate) async fn migrate(&self, settings: &PostgresSettings) -> Result<usize, PromotionError> {
        let steps = migrate::migrate(settings).await?;
        self.client.batch_execute(SESSION).await.map_err(failed("preparing the connection"))?;
        Ok(steps)
    }

    pub(crate) fn shown(&self) -> &str {
        &self.shown
    }

    /// The version of its tables, 0 if there are none.
    async fn version(&self) -> Result<i32, tokio_postgres::Error> {
        if !self.has_table(VERSIONS_TABLE).await? {
            return Ok(0);
        }
        let sql = format!("SELECT coalesce(max(version), 0) FROM {}.{VERSIONS_TABLE}", quoted(&self.schema));
        self.client.query_one(&sql, &[]).await?.try_get(0)
    }

    async fn has_table(&self, name: &str) -> Result<bool, tokio_postgres::Error> {
        open::has_table(&self.client, &self.schema, name).await
    }

    /// Looks what is there.
    pub(crate) async fn find(&self) -> Result<Found, PromotionError> {
        let look = async {
            if is_promoting(&self.client, &self.schema).await? {
                let sql = self.sql(&format!("SELECT promotion FROM SCHEMA.{PROGRESS} LIMIT 1"));
                return Ok(Found::Promotion(self.client.query_one(&sql, &[]).await?.try_get(0)?));
            }
            for name in all_tables() {
                if self.has_table(name).await? {
                    let sql = self.sql(&format!("SELECT EXISTS (SELECT FROM SCHEMA.{})", quoted(name)));
                    if self.client.query_one(&sql, &[]).await?.try_get(0)? {
                        return Ok(Found::Rows(name));
                    }
                }
            }
            if self.has_table("workers").await? {
                let live = "SELECT w.worker FROM SCHEMA.workers w WHERE NOT w.stopped AND w.seen_at > now() - interval '1 min' LIMIT 1";
                if let Some(row) = self.client.query_opt(&self.sql(live), &[]).await? {
                    return Ok(Found::Worker(row.try_get(0)?));
                }
            }
            Ok(Found::Empty(self.version().await?))
        };
        look.await.map_err(failed("looking at the target"))
    }

    /// Begins: from now on no server opens this database. `false`: there is something in it by now.
    pub(crate) async fn begin(&mut self, promotion: Uuid) -> Result<bool, PromotionError> {
        let (create, add) = (
            self.sql(&format!(
                "CREATE TABLE SCHEMA.{PROGRESS} (promotion uuid NOT NULL, name text COLLATE \"C\" PRIMARY KEY, cursor text,
                                                 moved bigint NOT NULL DEFAULT 0, done boolean NOT NULL DEFAULT false)"
            )),
            self.sql(&format!("INSERT INTO SCHEMA.{PROGRESS} (promotion, name) SELECT $1, unnest($2::text[])")),
        );
        let lock = self.sql("LOCK TABLE SCHEMA.jobs IN SHARE ROW EXCLUSIVE MODE");
        let empty = all_tables().map(|name| format!("NOT EXISTS (SELECT FROM SCHEMA.{})", quoted(name)));
        let empty = self.sql(&format!("SELECT {}", empty.collect::<Vec<_>>().join(" AND ")));
        let names: Vec<&str> = MOVED.iter().map(|table| table.name).chain([FINISH]).collect();
        let begin = async {
            let transaction = self.client.transaction().await?;
            transaction.batch_execute(&lock).await?;
            if !transaction.query_one(&empty, &[]).await?.try_get(0)? {
                return Ok(false);
            }
            transaction.batch_execute(&create).await?;
            transaction.execute(&add, &[&promotion, &names]).await?;
            transaction.commit().await?;
            Ok(true)
        };
        begin.await.map_err(failed("beginning in the target"))
    }

    /// Deletes what a promotion that is not complete has moved, and its progress. Everything there is its: no server opens the
    /// database meanwhile.
    pub(crate) async fn start_over(&mut self) -> Result<(), PromotionError> {
        let tables: Vec<String> = all_tables().map(|name| format!("SCHEMA.{}", quoted(name))).collect();
        let sql = self.sql(&format!(
            "TRUNCATE {} RESTART IDENTITY; ALTER SEQUENCE SCHEMA.group_seq RESTART; DROP TABLE SCHEMA.{PROGRESS}",
            tables.join(", ")
        ));
        let start_over = async {
            let transaction = self.client.transaction().await?;
            transaction.batch_execute(&sql).await?;
            transaction.commit().await
        };
        start_over.await.map_err(failed("deleting what an earlier promotion moved"))
    }

    pub(crate) async fn progress(&self, table: &Table) -> Result<TableProgress, PromotionError> {
        let sql = self.sql(&format!("SELECT cursor, moved, done FROM SCHEMA.{PROGRESS} WHERE name = $1"));
        let read = async {
            let row = self.client.query_one(&sql, &[&table.name]).await?;
            let cursor: Option<&str> = row.try_get(0)?;
            Ok(TableProgress {
                cursor: cursor.and_then(|text| serde_json::from_str(text).ok()),
                moved: row.try_get::<_, i64>(1)?.max(0) as u64,
                is_done: row.try_get(2)?,
            })
        };
        read.await.map_err(failed("reading the progress"))
    }

    /// Stores a page and where it ends, or neither.
    pub(crate) async fn write(
        &mut self,
        table: &Table,
        before: Option<&Key>,
        page: &Page,
    ) -> Result<(), PromotionError> {
        let columns: Vec<String> = table.columns.iter().map(|column| quoted(column.name)).collect();
        let copy = format!("COPY SCHEMA.{} ({}) FROM STDIN (FORMAT binary)", quoted(table.name), columns.join(", "));
        let (copy, progress) = (self.sql(&copy), self.sql(UPDATE_PROGRESS));
        let text = |key: &Key| serde_json::to_string(key).expect("numbers and text are JSON");
        let (before, after) = (before.map(text), page.keys.last().map(text).or(before.map(text)));
        let doing = || format!("writing rows of {} to the target", table.name);
        let transaction = self.client.transaction().await.map_err(failed(doing()))?;
        if page.len() > 0 {
            copy_rows(&transaction, &copy, table.columns.len(), page).await.map_err(failed(doing()))?;
        }
        let params: [&(dyn ToSql + Sync); 5] = [&table.name, &before, &after, &(page.len() as i64), &page.is_end];
        let updated = transaction.execute(&progress, &params).await.map_err(failed(doing()))?;
        if updated != 1 {
            return Err(PromotionError::refused(
                format!("the progress of {} in the target was changed by another process", table.name),
                "let one promotion run at a time, then run it again",
            ));
        }
        transaction.commit().await.map_err(failed(doing()))
    }

    /// Whether what is computed from the jobs is there.
    pub(crate) async fn is_finished(&self) -> Result<bool, PromotionError> {
        let sql = self.sql(&format!("SELECT done FROM SCHEMA.{PROGRESS} WHERE name = $1"));
        let read = async { self.client.query_one(&sql, &[&FINISH]).await?.try_get(0) };
        read.await.map_err(failed("reading the progress"))
    }

    /// Computes what PostgreSQL keeps beside the jobs: counts, checks of leases, sequences. All of it or nothing.
    pub(crate) async fn finish(&mut self) -> Result<(), PromotionError> {
        let (sql, none) = (self.sql(FINISH_SQL), None::<String>);
        let progress = self.sql(UPDATE_PROGRESS);
        let finish = async {
            let transaction = self.client.transaction().await?;
            let params: [&(dyn ToSql + Sync); 5] = [&FINISH, &none, &none, &0_i64, &true];
            transaction.execute(&progress, &params).await?;
            transaction.batch_execute(&sql).await?;
            transaction.commit().await
        };
        finish.await.map_err(failed("computing counts in the target"))
    }

    /// The counts that servers will read, by kind, queue and status.
    pub(crate) async fn status_counts(&self) -> Result<Vec<(String, String, String, i64)>, PromotionError> {
        let sql = self.sql("SELECT kind, queue, status, n FROM SCHEMA.kind_counts ORDER BY 1, 2, 3");
        let read = async {
            let rows = self.client.query(&sql, &[]).await?;
            let count = |row: &Row| Ok((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?, row.try_get(3)?));
            rows.iter().map(count).collect::<Result<_, tokio_postgres::Error>>()
        };
        read.await.map_err(failed("reading counts of the target"))
    }

    /// Compares the rows behind a key with a page of the source, byte by byte. Answers the first difference.
    pub(crate) async fn compare(
        &self,
        table: &Table,
        before: Option<&Key>,
        page: &Page,
    ) -> Result<Option<String>, PromotionError> {
        let sql = self.sql(&select_sql(table, before.is_some()));
        // Behind the last row of the source there must be none.
        let limit = (page.len() + usize::from(page.is_end)) as i64;
        let key: Vec<Box<dyn ToSql + Sync + Send>> = before.into_iter().flatten().map(bound).collect();
        let mut params: Vec<&(dyn ToSql + Sync)> = key.iter().map(|part| &**part as &(dyn ToSql + Sync)).collect();
        params.push(&limit);
        let reading = || format!("reading rows of {} from the target", table.name);
        let rows = self.client.query(&sql, &params).await.map_err(failed(reading()))?;
        let mut found = rows.iter();
        for (key, fields) in page.keys.iter().zip(page.rows()) {
            let Some(row) = found.next() else {
                return Ok(Some(format!("{} is not in the target", shown_row(table, key))));
            };
            for (index, (column, field)) in table.columns.iter().zip(fields).enumerate() {
                let stored: Option<Field<'_>> = row.try_get(index).map_err(failed(reading()))?;
                if stored.map(|field| field.0) != field {
                    let row = shown_row(table, key);
                    return Ok(Some(match index < table.key {
                        true => format!("{row} is not in the target, or another row is in its place"),
                        false => format!("{row} has another {}", column.name),
                    }));
                }
            }
        }
        Ok(found.next().map(|_| format!("the target has more rows in {} than the file", table.name)))
    }

    /// The end: servers open the database from now on.
    pub(crate) async fn complete(&self) -> Result<(), PromotionError> {
        let sql = self.sql(&format!("DROP TABLE SCHEMA.{PROGRESS}"));
        self.client.batch_execute(&sql).await.map_err(failed("opening the target for servers"))
    }

    fn sql(&self, text: &str) -> String {
        rendered(text, &self.schema)
    }
}

/// The tables that must be empty at the beginning.
fn all_tables() -> impl Iterator<Item = &'static str> {
    MOVED.iter().map(|table| table.name).chain(COMPUTED.iter().copied())
}

/// Changes nothing unless the progress is as it was read.
const UPDATE_PROGRESS: &str = "\
-- promote: how far a table has come
UPDATE SCHEMA.steadfast_promotion SET cursor = $3, moved = moved + $4, done = $5
WHERE name = $1 AND cursor IS NOT DISTINCT FROM $2 AND NOT done";

/// 100 ids in a row of `lease_checks`, as claims do it.
const FINISH_SQL: &str = "
-- Unlike every other statement, these read whole tables.
SET LOCAL enable_seqscan = on;
INSERT INTO SCHEMA.kind_counts (kind, queue, status, n)
SELECT j.kind, j.queue, j.status, count(*) FROM SCHEMA.jobs j GROUP BY 1, 2, 3;
INSERT INTO SCHEMA.counts (queue, status, n) SELECT k.queue, k.status, sum(k.n) FROM SCHEMA.kind_counts k GROUP BY 1, 2;
INSERT INTO SCHEMA.lease_checks (at, id, jobs)
SELECT min(r.lease_expires_at), pg_catalog.gen_random_uuid(), array_agg(r.id)
FROM (SELECT j.id, j.lease_expires_at, (row_number() OVER (ORDER BY j.lease_expires_at, j.id) - 1) / 100 AS nth
      FROM SCHEMA.jobs j WHERE j.lease_expires_at IS NOT NULL) r
GROUP BY r.nth;
-- Without rows they stay as they are.
SELECT setval('SCHEMA.group_seq'::regclass, (SELECT max(j.group_seq) FROM SCHEMA.jobs j));
SELECT setval(pg_get_serial_sequence('SCHEMA.attempts', 'seq')::regclass, (SELECT max(a.seq) FROM SCHEMA.attempts a));
SELECT setval(pg_get_serial_sequence('SCHEMA.audit', 'seq')::regclass, (SELECT max(a.seq) FROM SCHEMA.audit a));
-- Beyond every event that has become a delivery, too: its number is in the delivery's key, and a key that is known is not enqueued.
SELECT setval(pg_get_serial_sequence('SCHEMA.outbox', 'seq')::regclass,
              greatest((SELECT max(o.seq) FROM SCHEMA.outbox o),
                       (SELECT max(substring(j.idempotency_key FROM '^hook:([0-9]{1,18}):')::bigint) FROM SCHEMA.jobs j WHERE j.watch & 4 <> 0)));
ANALYZE SCHEMA.jobs;
ANALYZE SCHEMA.attempts";

fn select_sql(table: &Table, has_cursor: bool) -> String {
    let columns: Vec<String> = table.columns.iter().map(|column| quoted(column.name)).collect();
    let key = columns[..table.key].join(", ");
    let (behind, limit) = match has_cursor {
        true => {
            let params: Vec<String> = (1..=table.key).map(|n| format!("${n}")).collect();
            (format!("WHERE ({key}) > ({}) ", params.join(", ")), table.key + 1)
        }
        false => (String::new(), 1),
    };
    let (columns, name) = (columns.join(", "), quoted(table.name));
    format!("-- promote: the next rows\nSELECT {columns} FROM SCHEMA.{name} {behind}ORDER BY {key} LIMIT ${limit}")
}

fn bound(part: &KeyPart) -> Box<dyn ToSql + Sync + Send> {
    match part {
        KeyPart::Text(text) => Box::new(text.clone()),
        KeyPart::Int(n) => Box::new(*n),
        KeyPart::Time(us) => Box::new(PgTimestamp::from_micros(*us)),
        KeyPart::Id(id) => Box::new(*id),
        KeyPart::Bool(flag) => Box::new(*flag),
    }
}

async fn copy_rows(
    transaction: &Transaction<'_>,
    sql: &str,
    columns: usize,
    page: &Page,
) -> Result<(), tokio_postgres::Error> {
    // The types are not looked at: every field is in the format of its column.
    let writer = BinaryCopyInWriter::new(transaction.copy_in(sql).await?, &vec![Type::BYTEA; columns]);
    let mut writer = pin!(writer);
    for row in page.rows() {
        writer.as_mut().write_raw(row.into_iter().map(OptionalField)).await?;
    }
    writer.finish().await.map(drop)
}

/// A field in PostgreSQL's binary format, whatever its type.
struct Field<'a>(&'a [u8]);

impl<'a> FromSql<'a> for Field<'a> {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Self(raw))
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

/// The same, to be sent.
#[derive(Debug)]
struct OptionalField<'a>(Option<&'a [u8]>);

impl ToSql for OptionalField<'_> {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        let Some(field) = self.0 else { return Ok(IsNull::Yes) };
        out.extend_from_slice(field);
        Ok(IsNull::No)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

fn failed(doing: impl Into<String>) -> impl FnOnce(tokio_postgres::Error) -> PromotionError {
    let doing = doing.into();
    move |error| PromotionError::database(doing, Cause::from(&error))
}

#[cfg(test)]
mod tests;
