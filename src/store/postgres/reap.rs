//! reap: running → retrying, failed_permanent or cancelled, for leases that have expired. Runs in every process; rows
//! that another transaction holds locked are left to it. What becomes of a job is [`decide`]'s to say, as in settle.

use std::collections::HashMap;

use tokio::time::timeout;
use tokio_postgres::Row;
use uuid::Uuid;

use super::core::Core;
use super::error::{DbError, Effect, Retries};
use super::settle::Endings;
use super::{queues, row};
use crate::job::limits::BATCH_MAX;
use crate::job::{Ending, Expiry, LeaseKey, RetryPolicy, RunningJob, Transition, decide};
use crate::store::{Reap, Reaped, StoreError};

pub(super) async fn reap(core: &Core, reap: Reap) -> Result<Vec<Reaped>, StoreError> {
    let mut retries = Retries::new("reap", Effect::Once);
    let reaped = loop {
        match try_reap(core, reap).await {
            Ok(reaped) => break reaped,
            Err(error) => retries.again(error).await?,
        }
    };
    // The reaper comes by regularly, which makes it a good time to tidy up.
    if let Err(error) = queues::roll_up(core).await {
        tracing::debug!(?error, "counts are rolled up another time");
    }
    Ok(reaped)
}

async fn try_reap(core: &Core, reap: Reap) -> Result<Vec<Reaped>, DbError> {
    let mut connection = core.pool.get().await?;
    let limit = connection.timeout();
    let work = async {
        let find = connection.prepare_cached(&core.sql.reap).await?;
        let write = connection.prepare_cached(&core.sql.settle).await?;
        let transaction = connection.transaction().await?;
        let limit = reap.limit.min(BATCH_MAX) as i64;
        let expired = transaction.query(&find, &[&limit]).await?;
        let mut endings = Endings::default();
        let mut reaped = HashMap::with_capacity(expired.len());
        for row in &expired {
            let (lease, attempts, [to, to_if_cancelling], mut answer) = ending(row)?;
            answer.to = if row.try_get(6)? { to_if_cancelling.to } else { to.to };
            reaped.insert(lease.job_id, answer);
            endings.add(lease, to, to_if_cancelling, attempts);
        }
        if endings.is_empty() {
            transaction.rollback().await?;
            return Ok(Vec::new());
        }
        let written = endings.write(&*transaction, &write).await?;
        transaction.commit().await?;
        written.announce(core)?;
        let ids = expired.iter().map(|row| row.try_get::<_, Uuid>(0).map(row::id));
        let ids: Vec<_> = ids.collect::<Result<_, _>>()?;
        Ok(ids.iter().filter_map(|id| reaped.remove(id)).collect())
    };
    let answer = timeout(limit, work).await;
    connection.finish(answer)
}

/// What becomes of one expired attempt, without and with a cancel request.
fn ending(row: &Row) -> Result<(LeaseKey, u32, [Transition; 2], Reaped), DbError> {
    let lease = LeaseKey { job_id: row.try_get::<_, Uuid>(0)?.into(), token: row.try_get::<_, Uuid>(1)?.into() };
    let attempts = row::count(row.try_get(4)?);
    let expiry = if row.try_get(7)? { Expiry::Deadline } else { Expiry::Lease };
    // Not used: an expired attempt waits no longer.
    let retry = RetryPolicy::default();
    let max_attempts = row::count(row.try_get(5)?);
    let running = RunningJob { attempts, max_attempts, cancel_requested: false, retry: &retry, jitter: 0.0 };
    let to = decide(Ending::Expired(expiry), running);
    let to_if_cancelling = decide(Ending::Expired(expiry), RunningJob { cancel_requested: true, ..running });
    let reaped = Reaped {
        job_id: lease.job_id,
        kind: row::kind(row.try_get(2)?),
        attempt: attempts,
        worker: row::worker(row.try_get(3)?),
        to: to.to,
        recorded: to.recorded,
    };
    Ok((lease, attempts, [to, to_if_cancelling], reaped))
}
