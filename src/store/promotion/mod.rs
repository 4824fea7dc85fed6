//! Moves everything from a SQLite file to PostgreSQL: `steadfast promote` (ADR 23).
//!
//! Rows travel in pages. A page holds each field as PostgreSQL's binary format has it: that is what COPY takes, what a SELECT
//! answers, and so what the two sides are compared by. `tables` says which columns there are, `run` in which order things are
//! done; the file is read by `store/sqlite/promotion`, the server is written to by `store/postgres/promotion`. Nothing here
//! knows SQL of either, and nothing is kept in memory but two pages: how far it has come is in the target, committed with the rows.

mod error;
mod run;
mod tables;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

pub(crate) use error::PromotionError;
pub(crate) use run::{Options, Outcome, Plan, Step, TargetTables, plan, promote, unmark};
pub(crate) use tables::{COMPUTED, MOVED, Table};
#[cfg(test)]
pub(crate) use tables::{LEFT_OUT, LEFT_OUT_COLUMNS};

/// 2,000 rows in a page: some hundred milliseconds of work, which is what a kill costs.
pub(crate) const PAGE_ROWS: usize = 2_000;

/// 8 MiB: payloads may have a megabyte each. A page ends with the row that goes beyond.
const PAGE_BYTES: usize = 8 << 20;

/// What a column is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Text,
    Bytes,
    Bool,
    Int2,
    Int4,
    Int8,
    /// SQLite: microseconds since 1970.
    Time,
    /// 16 bytes, a uuid.
    Id,
    /// SQLite: JSON, an array of uuids as text.
    Ids,
    /// SQLite: what a claim left in the row; the token is made of that and of the job's id, which is this column of the row.
    Token {
        job: usize,
    },
}

/// One part of a row's key, as a cursor keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum KeyPart {
    Text(String),
    Int(i64),
    /// Microseconds since 1970.
    Time(i64),
    Id(Uuid),
    Bool(bool),
}

/// Where a page ends: the key of its last row.
pub(crate) type Key = Vec<KeyPart>;

/// A row as people find it again.
pub(crate) fn shown_row(table: &Table, key: &Key) -> String {
    let part = |part: &KeyPart| match part {
        KeyPart::Text(text) => format!("{text:?}"),
        KeyPart::Int(n) | KeyPart::Time(n) => n.to_string(),
        KeyPart::Id(id) => id.to_string(),
        KeyPart::Bool(flag) => flag.to_string(),
    };
    let parts: Vec<String> = key.iter().map(part).collect();
    match (table.name, &parts[..]) {
        ("jobs", [id]) => format!("job {id}"),
        ("attempts", [job, _]) => format!("an attempt of job {job}"),
        (name, _) => format!("the row ({}) of {name}", parts.join(", ")),
    }
}

/// Rows in the order of their keys.
pub(crate) struct Page {
    bytes: Vec<u8>,
    /// Where each field is in `bytes`, row after row; `None` is NULL.
    fields: Vec<Option<(usize, usize)>>,
    columns: usize,
    /// The key of each row.
    pub(crate) keys: Vec<Key>,
    /// Nothing comes after it.
    pub(crate) is_end: bool,
}

impl Page {
    pub(crate) fn new(table: &Table) -> Self {
        Self { bytes: Vec::new(), fields: Vec::new(), columns: table.columns.len(), keys: Vec::new(), is_end: true }
    }

    /// Adds a field of the row that is being written.
    pub(crate) fn add(&mut self, field: Option<&[u8]>) {
        let start = self.bytes.len();
        self.fields.push(field.map(|field| {
            self.bytes.extend_from_slice(field);
            (start, self.bytes.len())
        }));
    }

    pub(crate) fn is_full(&self, rows_max: usize) -> bool {
        self.len() >= rows_max || self.bytes.len() >= PAGE_BYTES
    }

    pub(crate) fn len(&self) -> usize {
        self.fields.len() / self.columns
    }

    /// A row's fields.
    pub(crate) fn rows(&self) -> impl Iterator<Item = Vec<Option<&[u8]>>> {
        let field = |field: &Option<(usize, usize)>| field.map(|(start, end)| &self.bytes[start..end]);
        self.fields.chunks_exact(self.columns).map(move |row| row.iter().map(field).collect())
    }
}
