//! attempts: a job's history, in the order of starts. The newest is told by the job's own row.

use jiff::Timestamp;

use super::ask::{ask, read};
use super::core::Core;
use super::error::Effect;
use super::row;
use crate::job::{AttemptRecord, JobId};
use crate::store::StoreError;

pub(super) async fn attempts(core: &Core, id: JobId) -> Result<Option<Vec<AttemptRecord>>, StoreError> {
    let rows = ask(core, "attempts", Effect::Repeatable, &core.sql.attempts, &[id.as_uuid()]).await?;
    let (mut attempts, mut exists) = (Vec::with_capacity(rows.len()), false);
    for row in &rows {
        let seq: Option<i64> = read("attempts", row.try_get(0))?;
        exists |= seq.is_none();
        // The job's own row: without a worker there has been no attempt since it was (re)queued.
        let Some(worker) = read("attempts", row.try_get::<_, Option<&str>>(2))? else { continue };
        // Every attempt has a start; one that a foreign hand has taken away is shown as the beginning of time.
        let started_at = read("attempts", row::time(row, 3))?.unwrap_or(Timestamp::UNIX_EPOCH);
        attempts.push(AttemptRecord {
            attempt: row::count(read("attempts", row.try_get(1))?),
            worker: row::worker(worker),
            started_at,
            ended_at: read("attempts", row::time(row, 4))?,
            outcome: read("attempts", row.try_get::<_, Option<&str>>(5))?.and_then(|word| word.parse().ok()),
            error: read("attempts", row.try_get(6))?,
        });
    }
    Ok(exists.then_some(attempts))
}
