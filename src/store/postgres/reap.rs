//! reap: running → retrying, failed_permanent or cancelled, for leases that have expired. Runs in every process; rows
//! that another transaction holds locked are left to it. What becomes of a job is [`decide`]'s to say, as in settle.
//!
//! There is no index of leases: `lease_checks` says which jobs to look at and when. Every running job is in a check that
//! is due when its lease ends or before; a pass takes checks and puts back what still runs, in one transaction.

use tokio::time::timeout;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::core::{Core, decode};
use super::dead_groups::Ungrouped;
use super::error::{DbError, Effect, Retries};
use super::lease_checks::{CheckKey, JOBS_PER_CHECK};
use super::settle::Endings;
use super::timestamp::PgTimestamp;
use super::{counts, lease_checks, row};
use crate::job::limits::BATCH_MAX;
use crate::job::{Ending, Expiry, LeaseKey, RetryPolicy, RunningJob, Transition, decide};
use crate::store::{Reap, Reaped, StoreError, warn_throttled};

pub(super) const EXPIRE_UNSTARTED: &str = "\
-- reap: queued, retrying → cancelled, for jobs that were to start by a time that has passed and that no claim has found
WITH picked AS MATERIALIZED (
    SELECT j.id, j.status, j.attempts, j.max_attempts, j.start_deadline, 1::bigint AS nth
    FROM SCHEMA.jobs j
    WHERE j.start_deadline IS NOT NULL AND j.start_deadline <= now()
    ORDER BY j.start_deadline, j.id
    LIMIT 500
    FOR UPDATE SKIP LOCKED
),
UNSTARTED,
moved AS (SELECT s.queue, s.kind, s.was, s.status AS is_now FROM unstarted s),
COUNTED
-- What could not have been started at all is a dead letter, and gets its group next.
SELECT s.id, s.queue, s.kind, s.last_error, s.status = 'failed_permanent' FROM unstarted s";

/// 64 checks, at most 6,400 leases to look up: some tens of milliseconds.
const CHECKS_PER_PASS: i64 = 64;

/// 256 passes, 1.6 million leases: more than a fleet claims within a lease.
const PASSES_MAX: usize = 256;

pub(super) async fn reap(core: &Core, reap: Reap) -> Result<Vec<Reaped>, StoreError> {
    lease_checks::delete_ended(core).await;
    let reaped = reap_due(core, reap.limit.min(BATCH_MAX)).await?;
    // Those nobody claims: their queue is paused, or has no worker.
    let (expired, mut dead) =
        (core.query("reap", Effect::Repeatable, &core.sql.expire_unstarted, &[]).await?, Ungrouped::default());
    for row in &expired {
        if decode("reap", row.try_get(4))? {
            let job = (row.try_get(1)).and_then(|queue| Ok((queue, row.try_get(2)?, row.try_get(3)?)));
            dead.add(decode("reap", row.try_get(0))?, decode("reap", job)?);
        }
    }
    dead.group(core).await;
    if !expired.is_empty() {
        // Those behind them in strict groups.
        core.jobs_may_start();
    }
    if core.groups.sweep_is_due() {
        core.query("reap", Effect::Repeatable, &core.sql.sweep_usage, &[]).await?;
    }
    // The reaper comes by regularly, which makes it a good time to tidy up.
    if let Err(error) = counts::roll_up(core).await {
        tracing::debug!(?error, "counts are rolled up another time");
    }
    Ok(reaped)
}

/// Goes through the checks that are due, as far as the limit goes. Most say that their jobs have ended or live on.
async fn reap_due(core: &Core, limit: usize) -> Result<Vec<Reaped>, StoreError> {
    let (mut reaped, mut from) = (Vec::new(), CheckKey { at: PgTimestamp::MIN, id: Uuid::nil() });
    let mut retries = Retries::new("reap", Effect::Once);
    for _ in 0..PASSES_MAX {
        if reaped.len() >= limit {
            break;
        }
        match try_pass(core, limit - reaped.len(), from).await {
            Ok((more, next)) => {
                reaped.extend(more);
                match next {
                    Some(next) => from = next,
                    None => break,
                }
            }
            Err(error) => match retries.again(error).await {
                Ok(()) => (),
                // These are told now or never.
                Err(error) if !reaped.is_empty() => {
                    warn_throttled(&error, "cannot look for more expired leases; going on with those that are ended");
                    break;
                }
                Err(error) => return Err(error),
            },
        }
    }
    Ok(reaped)
}

/// The next checks that are due, in one transaction: what has expired ends, what has not is put back. Answers where to go on, if
/// there may be more.
async fn try_pass(core: &Core, limit: usize, from: CheckKey) -> Result<(Vec<Reaped>, Option<CheckKey>), DbError> {
    let mut connection = core.pool.get().await?;
    let time_limit = connection.timeout();
    let work = async {
        let find = connection.prepare_cached(&core.sql.reap).await?;
        let write = connection.prepare_cached(&core.sql.settle).await?;
        let transaction = connection.transaction().await?;
        let params: [&(dyn ToSql + Sync); 5] =
            [&(limit as i64), &from.at, &from.id, &CHECKS_PER_PASS, &(JOBS_PER_CHECK as i64)];
        let (mut endings, mut reaped, mut last) = (Endings::default(), Vec::new(), None);
        for row in transaction.query(&find, &params).await? {
            if row.try_get::<_, Option<Uuid>>(0)?.is_none() {
                let is_full = row.try_get::<_, i64>(12)? >= CHECKS_PER_PASS;
                last = Some((CheckKey { at: row.try_get(10)?, id: row.try_get(11)? }, is_full));
                continue;
            }
            if endings.is_empty() {
                core.error_groups.refresh(core, &*transaction).await?;
            }
            let (lease, attempts, [mut to, to_if_cancelling], mut answer) = ending(&row)?;
            core.error_groups.admit(&mut to, row.try_get(2)?, row.try_get(9)?);
            answer.to = if row.try_get(6)? { to_if_cancelling.to } else { to.to };
            reaped.push((row.try_get::<_, PgTimestamp>(8)?, answer));
            endings.add(lease, to, to_if_cancelling, attempts);
        }
        let Some((last, is_full)) = last else {
            transaction.rollback().await?;
            return Ok((Vec::new(), None));
        };
        let written = match endings.is_empty() {
            true => None,
            false => Some(endings.write(&*transaction, &write).await?),
        };
        transaction.commit().await?;
        if let Some(written) = written {
            written.announce(core)?;
        }
        reaped.sort_by_key(|(expired_at, answer)| (*expired_at, answer.job_id));
        Ok((reaped.into_iter().map(|(_, answer)| answer).collect(), is_full.then_some(last)))
    };
    let answer = timeout(time_limit, work).await;
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
    let running = RunningJob { kind: row.try_get(2)?, jitter: 0.0, ..RunningJob::new(attempts, max_attempts, &retry) };
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
