//! get: reads whole jobs.

use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension, Row};

use super::row::{UuidBlob, read_job_leniently};
use crate::job::{JobId, JobRecord};

/// The one job that a condition finds.
macro_rules! job_where {
    ($connection:expr, $condition:literal, $params:expr) => {
        super::get::first_job(
            $connection,
            concat!("SELECT ", super::row::job_columns!(), " FROM jobs WHERE ", $condition),
            $params,
        )
    };
}
pub(super) use job_where;

pub(super) fn get(connection: &Connection, ids: &[JobId]) -> rusqlite::Result<Vec<Option<JobRecord>>> {
    ids.iter().map(|id| job_where!(connection, "id = ?1", [UuidBlob::from(*id)])).collect()
}

pub(super) fn first_job(
    connection: &Connection,
    sql: &str,
    params: impl rusqlite::Params,
) -> rusqlite::Result<Option<JobRecord>> {
    connection.prepare_cached(sql)?.query_row(params, shown).optional()
}

/// A job to be shown; the payload may be damaged, the rest must make sense.
pub(super) fn shown(row: &Row<'_>) -> rusqlite::Result<JobRecord> {
    read_job_leniently(row).map_err(|error| rusqlite::Error::FromSqlConversionFailure(0, Type::Null, error.into()))
}
