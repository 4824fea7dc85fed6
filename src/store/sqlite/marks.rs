//! The column `marks`: what a row has beside what every job has. One column for all of it, because each column costs every
//! write of a row (ADR 13, ADR 17). NULL, the mask 0, for a plain job that no limit counts.

use rusqlite::Row;
use rusqlite::types::{ToSql, ToSqlOutput, Value};

/// What a row has beside what every job has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Marks(i64);

impl Marks {
    /// While it runs, it counts for the limit of its queue.
    pub(super) const QUEUE: Self = Self(1);
    /// While it runs, it counts for the limit of its kind.
    pub(super) const KIND: Self = Self(2);
    /// While it runs, it counts for the limit of its group.
    pub(super) const GROUP: Self = Self(4);
    /// It is in a group of strict order.
    pub(super) const STRICT: Self = Self(8);
    /// It has a row in `job_options`.
    pub(super) const OPTIONS: Self = Self(16);

    /// Hooks are told of its end.
    pub(super) const WATCHED: Self = Self(32);
    /// It delivers an event of a hook, which counts its end.
    pub(super) const DELIVERY: Self = Self(64);

    const HOLDS: i64 = 7;

    pub(super) fn read(row: &Row<'_>, index: usize) -> rusqlite::Result<Self> {
        Ok(Self(row.get::<_, Option<i64>>(index)?.unwrap_or_default()))
    }

    pub(super) fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(super) fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    pub(super) fn is_none(self) -> bool {
        self.0 == 0
    }

    pub(super) fn is_strict(self) -> bool {
        self.has(Self::STRICT)
    }

    pub(super) fn has_options(self) -> bool {
        self.has(Self::OPTIONS)
    }

    /// Its end goes into the outbox.
    pub(super) fn is_watched(self) -> bool {
        self.has(Self::WATCHED.with(Self::DELIVERY))
    }

    /// The limits that it counts for.
    pub(super) fn holds(self) -> Self {
        Self(self.0 & Self::HOLDS)
    }

    /// Without the limits that it counts for.
    pub(super) fn without_holds(self) -> Self {
        Self(self.0 & !Self::HOLDS)
    }
}

impl ToSql for Marks {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Owned(if self.0 == 0 { Value::Null } else { Value::Integer(self.0) }))
    }
}
