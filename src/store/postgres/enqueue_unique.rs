//! enqueue of jobs with a unique key: stored, or answered with the job that has the key, which takes their payload if they
//! say so. In one transaction, by statements that each say what they expect.
//!
//! A key is only ever cleared, never set again: by the first claim, by the end of the job, or by the next enqueue once its
//! window has passed. So no settle, retry, reap or redrive can meet the unique index.

use std::collections::HashMap;

use tokio_postgres::types::ToSql;
use tokio_postgres::{GenericClient, Statement};

use super::error::DbError;
use super::stored::{PerJob, Stored};
use super::{enqueue, row};
use crate::job::{NewJob, OnConflict, Start, UniqueWhile};

pub(super) const UNIQUE_FREE: &str = "\
-- enqueue: unique keys whose window has passed are free again
UPDATE SCHEMA.jobs j SET unique_key = NULL
WHERE j.unique_key = ANY ($1::text[]) AND j.unique_key IS NOT NULL AND j.unique_until <= now()";

pub(super) const UNIQUE_REPLACE: &str = "\
-- enqueue: the waiting job that has the key takes payload, priority and start of this one
UPDATE SCHEMA.jobs j
SET payload = t.payload, priority = t.priority, updated_at = now(),
    run_at = least(greatest(now(), coalesce(timestamptz 'epoch' + t.at_us * interval '1 microsecond',
                                            now() + t.delay_us * interval '1 microsecond')),
                   j.created_at + t.max_wait_us * interval '1 microsecond')
FROM unnest($1::text[], $2::text[], $3::smallint[], $4::bigint[], $5::bigint[], $6::bigint[])
    AS t(unique_key, payload, priority, at_us, delay_us, max_wait_us)
-- Once started, its key is free, or it cannot be replaced.
WHERE j.unique_key = t.unique_key AND j.unique_key IS NOT NULL AND j.status = 'queued'
RETURNING JOB_COLUMNS, j.unique_key";

pub(super) const UNIQUE_HOLDERS: &str = "\
-- enqueue: the jobs that have these unique keys
SELECT JOB_COLUMNS, j.unique_key FROM SCHEMA.jobs j WHERE j.unique_key = ANY ($1::text[]) AND j.unique_key IS NOT NULL";

/// 3 rounds: in each, the job that had a key may have started in the same moment.
pub(super) const ROUNDS_MAX: usize = 3;

/// As it is stored: keys of different kinds are different.
pub(super) fn stored_key(job: &NewJob) -> Option<String> {
    job.unique().map(|unique| format!("{}/{}", job.kind(), unique.key))
}

/// When the key is free again: 0 at the first start, 1 at the end, 2 after its window.
pub(super) fn stored_while(job: &NewJob) -> Option<i16> {
    job.unique().map(|unique| match (unique.for_ms, unique.while_) {
        (Some(_), _) => 2,
        (None, UniqueWhile::Unfinished) => 1,
        (None, _) => 0,
    })
}

/// The statements of this path, prepared.
pub(super) struct UniqueStatements {
    pub(super) insert: Statement,
    pub(super) free: Statement,
    pub(super) replace: Statement,
    pub(super) holders: Statement,
    pub(super) known: Statement,
    pub(super) get: Statement,
}

/// Stores the jobs within a transaction.
pub(super) async fn store(
    transaction: &impl GenericClient,
    statements: &UniqueStatements,
    jobs: &[&NewJob],
) -> Result<Vec<PerJob>, DbError> {
    let mut stored = Stored::of(jobs);
    for _ in 0..ROUNDS_MAX {
        let open = stored.unanswered();
        if open.is_empty() {
            break;
        }
        let keys: Vec<String> = open.iter().filter_map(|job| stored_key(job)).collect();
        transaction.query(&statements.free, &[&keys]).await?;
        let inserted = enqueue::insert(transaction, &statements.insert, &open, None).await?;
        stored.new.extend(inserted.new);
        if stored.missing().is_empty() {
            break;
        }
        stored.look_up(transaction, &statements.known, &statements.get).await?;
        let replacing = Replacements::of(&stored.unanswered());
        if !replacing.keys.is_empty() {
            for row in transaction.query(&statements.replace, &replacing.params()).await? {
                stored.replaced.insert(row.try_get(row::JOB_COLUMN_COUNT)?, row::job(&row)?);
            }
        }
        let keys: Vec<String> = stored.unanswered().iter().filter_map(|job| stored_key(job)).collect();
        for row in transaction.query(&statements.holders, &[&keys]).await? {
            stored.unique_holders.insert(row.try_get(row::JOB_COLUMN_COUNT)?, row::job(&row)?);
        }
    }
    stored.answers()
}

/// The columns of [`UNIQUE_REPLACE`]: of several jobs with one key, the last counts.
#[derive(Default)]
pub(super) struct Replacements<'a> {
    pub(super) keys: Vec<String>,
    pub(super) payloads: Vec<&'a str>,
    pub(super) priorities: Vec<i16>,
    pub(super) at_us: Vec<Option<i64>>,
    pub(super) delay_us: Vec<Option<i64>>,
    pub(super) max_wait_us: Vec<Option<i64>>,
}

impl<'a> Replacements<'a> {
    pub(super) fn of(jobs: &[&'a NewJob]) -> Self {
        let mut last: HashMap<String, &'a NewJob> = HashMap::new();
        for job in jobs {
            if job.unique().is_some_and(|unique| unique.on_conflict == OnConflict::Replace) {
                last.extend(stored_key(job).map(|key| (key, *job)));
            }
        }
        let mut sorted: Vec<_> = last.into_iter().collect();
        // In one order everywhere, so that two processes cannot wait for each other.
        sorted.sort_by(|(a, _), (b, _)| a.cmp(b));
        let mut columns = Self::default();
        for (key, job) in sorted {
            columns.keys.push(key);
            columns.payloads.push(job.payload().as_str());
            columns.priorities.push(job.priority());
            columns.at_us.push(match job.start() {
                Start::At(at) => Some(at.as_microsecond()),
                _ => None,
            });
            columns.delay_us.push(match job.start() {
                Start::After(delay) => Some(row::micros(delay)),
                _ => None,
            });
            let max_wait_ms = job.unique().and_then(|unique| unique.max_wait_ms);
            columns.max_wait_us.push(max_wait_ms.map(|ms| ms.saturating_mul(1_000)));
        }
        columns
    }

    fn params(&self) -> [&(dyn ToSql + Sync); 6] {
        [&self.keys, &self.payloads, &self.priorities, &self.at_us, &self.delay_us, &self.max_wait_us]
    }
}

/// The keys under which answers are kept.
pub(super) type ByUniqueKey<T> = HashMap<String, T>;

/// Whether any of these jobs has a unique key.
pub(super) fn any_unique(jobs: &[&NewJob]) -> bool {
    jobs.iter().any(|job| job.unique().is_some())
}
