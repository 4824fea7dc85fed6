//! claim: queued, retrying → running. One claim at a time per store; what it costs does not depend on how many jobs
//! wait, are finished, or belong to kinds and queues nobody asked for. See `lanes` for where it starts to look.

use std::time::{Duration, Instant};

use deadpool_postgres::Object;
use tokio::time::timeout;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::ask::{ask, read};
use super::core::Core;
use super::error::{Effect, Tries, Trouble};
use super::lanes::{Lane, Placed};
use super::row::{self, JOB_COLUMN_COUNT};
use crate::job::limits::BATCH_MAX;
use crate::job::{ErrorText, Lease, LeaseToken};
use crate::store::{Claim, Claimed, StoreError, complain};

/// Whose rows to ask for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reach {
    /// From each lane as many as are among the best of all.
    Best,
    /// From each lane as many as there can be: others may have locked what looked best.
    Everything,
}

pub(super) async fn claim(core: &Core, claim: Claim) -> Result<Claimed, StoreError> {
    let claim = Claim { max: claim.max.min(BATCH_MAX), ..claim };
    if claim.max == 0 {
        return Ok(Claimed::default());
    }
    // A claim whose answer was lost is not repeated: its jobs come back when their leases expire.
    let mut tries = Tries::new("claim", Effect::Once);
    let rows = loop {
        match try_claim(core, &claim).await {
            Ok(rows) => break rows,
            Err(trouble) => tries.again(trouble).await?,
        }
    };
    let leases = leases(core, claim.lease, rows).await?;
    Ok(Claimed::of(&claim, leases))
}

async fn try_claim(core: &Core, claim: &Claim) -> Result<Vec<Row>, Trouble> {
    let link = core.pool.get().await?;
    let mut rows = Vec::new();
    let answer = timeout(link.patience(), gather(core, &link, claim, &mut rows)).await;
    match link.finish(answer) {
        Err(trouble) if !rows.is_empty() => {
            // These are leased: thrown away, each would have lost an attempt without having run.
            complain(&trouble.doing("claim"), "cannot look for more jobs; going on with those that are claimed");
            Ok(rows)
        }
        answer => answer.map(|()| rows),
    }
}

async fn gather(core: &Core, link: &Object, claim: &Claim, rows: &mut Vec<Row>) -> Result<(), Trouble> {
    let looked = core.lanes.look_is_due();
    if looked {
        look(core, link).await?;
    }
    let reach = if core.lanes.was_short() { Reach::Everything } else { Reach::Best };
    rows.extend(step(core, link, claim, reach).await?);
    let has_seen_all = looked && reach == Reach::Everything;
    if !has_seen_all && !claim.is_full(rows.len(), || payload_bytes(rows)) {
        if !looked {
            look(core, link).await?;
        }
        let max_bytes = claim.max_bytes.saturating_sub(payload_bytes(rows));
        let rest = Claim { max: claim.max - rows.len(), max_bytes, ..claim.clone() };
        rows.extend(step(core, link, &rest, Reach::Everything).await?);
    }
    Ok(())
}

fn payload_bytes(rows: &[Row]) -> usize {
    rows.iter().map(|row| row.try_get::<_, &str>(3).map_or(0, str::len)).sum()
}

/// Looks from the beginning: which lanes there are, and where each begins.
async fn look(core: &Core, link: &Object) -> Result<(), Trouble> {
    let (turn, began) = (core.lanes.turn(), Instant::now());
    let found = lanes(core, link).await?;
    core.lanes.looked(turn, began.elapsed(), found);
    Ok(())
}

/// The first ready job of every lane.
pub(super) async fn lanes(core: &Core, link: &Object) -> Result<Vec<Placed>, Trouble> {
    let statement = link.prepare_cached(&core.sql.lanes).await?;
    let mut found = Vec::new();
    for row in link.query(&statement, &[]).await? {
        let lane = Lane { queue: row.try_get(0)?, kind: row.try_get(1)?, priority: row.try_get(2)? };
        found.push(Placed(lane, (row.try_get(3)?, row.try_get(4)?)));
    }
    Ok(found)
}

/// One claim from the lanes that are known.
async fn step(core: &Core, link: &Object, claim: &Claim, reach: Reach) -> Result<Vec<Row>, Trouble> {
    let turn = core.lanes.turn();
    let lanes = core.lanes.for_claim(claim);
    if lanes.is_empty() {
        core.lanes.claimed(turn, std::iter::empty(), true);
        return Ok(Vec::new());
    }
    let statement = link.prepare_cached(&core.sql.claim).await?;
    let (wanted, everything) = (claim.max as i64, reach == Reach::Everything || lanes.queues.len() == 1);
    let (worker, lease_ms) = (claim.worker.as_str(), row::millis(claim.lease));
    let max_bytes = i64::try_from(claim.max_bytes).unwrap_or(i64::MAX);
    // Made here: the server's own cost it a thirtieth of the claim.
    let tokens: Vec<Uuid> = (0..claim.max).map(|_| *LeaseToken::random().as_uuid()).collect();
    let rows = link
        .query(
            &statement,
            &[
                &lanes.queues,
                &lanes.kinds,
                &lanes.priorities,
                &lanes.run_ats,
                &lanes.ids,
                &wanted,
                &everything,
                &worker,
                &lease_ms,
                &tokens,
                &max_bytes,
            ],
        )
        .await?;
    let up_to = reached(&rows)?;
    core.lanes.claimed(turn, up_to.into_iter(), !claim.is_full(rows.len(), || payload_bytes(&rows)));
    Ok(rows)
}

/// The last place of each lane that these rows come from.
fn reached(rows: &[Row]) -> Result<Vec<Placed>, Trouble> {
    let mut reached: Vec<Placed> = Vec::new();
    for row in rows {
        let (queue, kind, priority): (&str, &str, i16) = (row.try_get(2)?, row.try_get(1)?, row.try_get(5)?);
        let place = (row.try_get(8)?, row.try_get(0)?);
        let of_lane =
            |Placed(lane, _): &&mut Placed| lane.priority == priority && lane.kind == kind && lane.queue == queue;
        // The newest first: most rows come from the lane of the one before. A name is copied once per lane, not per row.
        match reached.iter_mut().rev().find(of_lane) {
            Some(Placed(_, last)) => *last = place.max(*last),
            None => reached.push(Placed(Lane { queue: queue.into(), kind: kind.into(), priority }, place)),
        }
    }
    Ok(reached)
}

/// What was claimed, in order; a row that cannot be read becomes a dead letter with the reason and keeps nobody back.
async fn leases(core: &Core, lease: Duration, rows: Vec<Row>) -> Result<Vec<Lease>, StoreError> {
    let (mut leases, mut unfit) = (Vec::with_capacity(rows.len()), Unfit::default());
    for row in &rows {
        let token: Uuid = read("claim", row.try_get(JOB_COLUMN_COUNT))?;
        match row::strict(row) {
            Ok(job) => {
                // Never past the attempt's own deadline; the statement says the same.
                let lease = job.timeout_ms.map_or(lease, |ms| lease.min(Duration::from_millis(ms)));
                leases.push(Lease::granted(LeaseToken::from(token), lease, job));
            }
            Err(reason) => {
                unfit.ids.push(read("claim", row.try_get(0))?);
                unfit.tokens.push(token);
                unfit.reasons.push(ErrorText::new(reason).as_str().to_owned());
            }
        }
    }
    unfit.bury(core).await;
    // Two steps can have claimed in turns.
    leases.sort_by_key(|lease: &Lease| {
        let job = lease.job();
        (std::cmp::Reverse(job.priority), job.run_at, job.id)
    });
    Ok(leases)
}

/// Claimed rows that cannot be run.
#[derive(Default)]
struct Unfit {
    ids: Vec<Uuid>,
    tokens: Vec<Uuid>,
    reasons: Vec<String>,
}

impl Unfit {
    /// Dead letters, as if they had never been started. Should this not come to pass, their leases expire and they are
    /// claimed again, so nothing is lost by doing it after the claim and not within.
    async fn bury(self, core: &Core) {
        if self.ids.is_empty() {
            return;
        }
        tracing::error!(jobs = ?self.ids, "stored jobs cannot be read and become dead letters");
        let params: [&(dyn ToSql + Sync); 3] = [&self.ids, &self.tokens, &self.reasons];
        if let Err(error) = ask(core, "claim", Effect::Repeatable, &core.sql.bury, &params).await {
            tracing::warn!(?error, "jobs that cannot be read are left to the reaper");
        }
    }
}
