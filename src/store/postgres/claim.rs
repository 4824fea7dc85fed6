//! claim: queued, retrying → running. One claim at a time per store; what it costs does not depend on how many jobs
//! wait, are finished, or belong to kinds and queues nobody asked for. See `lanes` for where it starts to look.

use std::cmp::Reverse;
use std::time::Duration;

use deadpool_postgres::Object;
use tokio::time::timeout;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::claim_limited::{self, UsageLocks};
use super::core::{Core, decode};
use super::dead_groups::Ungrouped;
use super::error::{DbError, Effect, Retries};
use super::group_lane::ChosenGroups;
use super::lane_scan::scan;
use super::lanes::{AskedLanes, Lane, LanePosition};
use super::lease_checks::{CheckKey, JOBS_PER_CHECK};
use super::row::{self, JOB_COLUMN_COUNT, LEASE_EXPIRES_AT};
use super::timestamp::PgTimestamp;
use crate::job::limits::BATCH_MAX;
use crate::job::{AttemptOutcome, ErrorGroup, ErrorText, Lease, LeaseToken};
use crate::planted::{Bug, planted};
use crate::store::{Claim, Claimed, StoreError, UnrunnableJob, warn_throttled};

pub(super) const DEAD_LETTER: &str = "\
-- dead_letter: claimed just now, but cannot be read and run → failed_permanent, as if it had never been started
WITH told AS (
    SELECT t.* FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::bigint[], $5::text[])
        AS t(id, token, reason, error_group, title)
),
dead AS (
    UPDATE SCHEMA.jobs j
    SET status = 'failed_permanent', attempts = j.attempts - 1, last_error = t.reason, finished_at = now(),
        died_at = now(), updated_at = now(), worker = NULL, lease_token = NULL, lease_ms = NULL, lease_expires_at = NULL,
        started_at = (SELECT a.started_at FROM SCHEMA.attempts a WHERE a.job_id = j.id ORDER BY a.seq DESC LIMIT 1),
        running_group = NULL, unique_key = CASE WHEN j.unique_while = 2 THEN j.unique_key END,
        error_group = t.error_group
    FROM told t
    WHERE j.id = t.id AND j.lease_token = t.token AND j.lease_expires_at IS NOT NULL
    RETURNING j.id, j.queue, j.kind, j.group_key, j.holds, j.error_group, t.title,
              CASE WHEN j.watch IS NOT NULL THEN END_JSON END AS event
),
ended AS (SELECT d.queue, d.kind, d.group_key, d.holds FROM dead d),
GIVEN_BACK,
died AS (SELECT d.id, d.queue, d.kind, d.error_group, 'failed' AS outcome, d.title FROM dead d),
GROUPED,
REPORTED (dead),
moved AS (SELECT d.queue, d.kind, 'running' AS was, 'failed_permanent' AS is_now FROM dead d),
COUNTED
SELECT count(*) FROM dead";

/// 10,000 rows: as many as a claim that asks every lane for more than it may take locks at most.
const LOCKED_MAX: usize = 10_000;

/// 4 more steps to get past lanes that are empty; then the caller is told to claim again.
const STEPS_MAX: usize = 4;

/// Whose rows to ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    /// From each lane as many as are among the best of all.
    Best,
    /// From each lane as many as it may take: others may have locked what looked best.
    Everything,
}

pub(super) async fn claim(core: &Core, claim: Claim) -> Result<Claimed, StoreError> {
    let claim = Claim { max: claim.max.min(BATCH_MAX), ..claim };
    if claim.max == 0 {
        return Ok(Claimed::default());
    }
    // A claim whose answer was lost is not repeated: its jobs come back when their leases expire.
    let mut retries = Retries::new("claim", Effect::Once);
    let gathered = loop {
        match try_claim(core, &claim).await {
            Ok(gathered) => break gathered,
            Err(error) => retries.again(error).await?,
        }
    };
    let Gathered { rows, left_out, more, left_ahead, look_again, in_turn, dead, .. } = gathered;
    dead.group(core).await;
    let mut leases = leases(core, claim.lease, rows).await?;
    sort(&mut leases, in_turn);
    let claimed = Claimed::of(&claim, leases);
    // Lanes that were not asked may have what the others had not.
    let more = claimed.more || left_out || more;
    let known =
        || [look_again, core.lanes.look_again(&claim), core.groups.look_again(&claim)].into_iter().flatten().min();
    let look_again = if more || planted(Bug::RateWithoutLookAgain) { None } else { known() };
    Ok(Claimed { more, look_again, left_ahead, ..claimed })
}

/// What a claim has leased so far.
#[derive(Default)]
pub(super) struct Gathered {
    pub(super) rows: Vec<Row>,
    /// There are lanes that the last step did not ask.
    left_out: bool,
    /// Limits have cut what was claimed.
    pub(super) more: bool,
    /// Jobs with a limit were not prefetched.
    pub(super) left_ahead: bool,
    /// When a limit allows the next start.
    look_again: Option<Duration>,
    /// Rows of usage that had been made were not there: the next step makes them again.
    pub(super) usage_gone: bool,
    /// The rows are in the order in which groups have taken turns.
    pub(super) in_turn: bool,
    /// Those without an attempt left.
    dead: Ungrouped,
}

impl Gathered {
    pub(super) fn look_again_in(&mut self, wait: Duration) {
        self.look_again = Some(self.look_again.map_or(wait, |sooner| sooner.min(wait)));
    }

    /// Whether the claim did not start it: no attempt was left, which makes it a dead letter, or its start deadline had
    /// passed.
    pub(super) fn is_unstarted(&mut self, row: &Row) -> bool {
        let is_unstarted = row.try_get::<_, Option<Uuid>>(JOB_COLUMN_COUNT).is_ok_and(|token| token.is_none());
        // A job that was not started in time has ended as its caller asked.
        if is_unstarted && row.try_get::<_, &str>(4).is_ok_and(|status| status == "failed_permanent") {
            let error: &str = row.try_get(15).unwrap_or_default();
            unrunnable(row, row.try_get(6).unwrap_or(0), error).log();
            if let (Ok(id), Ok(queue), Ok(kind)) = (row.try_get(0), row.try_get(2), row.try_get(1)) {
                self.dead.add(id, (queue, kind, error));
            }
        }
        is_unstarted
    }
}

async fn try_claim(core: &Core, claim: &Claim) -> Result<Gathered, DbError> {
    let connection = core.pool.get().await?;
    let mut gathered = Gathered::default();
    let answer = timeout(connection.timeout(), gather(core, &connection, claim, &mut gathered)).await;
    match connection.finish(answer) {
        Err(error) if !gathered.rows.is_empty() => {
            // These are leased: thrown away, each would have lost an attempt without having run.
            warn_throttled(&error.during("claim"), "cannot look for more jobs; going on with those that are claimed");
            Ok(gathered)
        }
        answer => answer.map(|()| gathered),
    }
}

async fn gather(core: &Core, connection: &Object, claim: &Claim, gathered: &mut Gathered) -> Result<(), DbError> {
    let looked = core.lanes.scan_is_due() || core.groups.is_stale();
    if looked {
        scan(core, connection).await?;
    }
    let reach = if core.lanes.was_short() { Reach::Everything } else { Reach::Best };
    let is_empty = step(core, connection, claim, (reach, UsageLocks::Skip), gathered).await?;
    let has_seen_all = looked && reach == Reach::Everything && is_empty;
    let rows = &gathered.rows;
    if !has_seen_all && !claim.is_full(rows.len(), || payload_bytes(rows)) {
        if !looked && core.lanes.may_scan() {
            scan(core, connection).await?;
        }
        step(core, connection, &rest(claim, rows), (Reach::Everything, UsageLocks::Wait), gathered).await?;
    }
    // Lanes that were found to be empty make way for others, and what the reaper has swept is made again.
    for _ in 0..STEPS_MAX {
        let is_over = !gathered.left_out && !std::mem::take(&mut gathered.usage_gone);
        let rows = &gathered.rows;
        if is_over || claim.is_full(rows.len(), || payload_bytes(rows)) {
            break;
        }
        step(core, connection, &rest(claim, rows), (Reach::Everything, UsageLocks::Wait), gathered).await?;
    }
    Ok(())
}

/// What is still to be claimed beside these.
fn rest(claim: &Claim, rows: &[Row]) -> Claim {
    let max_bytes = claim.max_bytes.saturating_sub(payload_bytes(rows));
    Claim { max: claim.max - rows.len(), max_bytes, ..claim.clone() }
}

pub(super) fn payload_bytes(rows: &[Row]) -> usize {
    rows.iter().map(|row| row.try_get::<_, &str>(3).map_or(0, str::len)).sum()
}

/// One claim from the lanes that are known. Answers whether these have nothing left that is due.
async fn step(
    core: &Core,
    connection: &Object,
    claim: &Claim,
    (reach, locks): (Reach, UsageLocks),
    gathered: &mut Gathered,
) -> Result<bool, DbError> {
    let generation = core.lanes.generation();
    let AskedLanes { lanes, left_out } = core.lanes.for_claim(claim);
    let ChosenGroups { lanes: groups, left_out: groups_left_out } = core.groups.choose(claim, reach);
    gathered.left_out = left_out || groups_left_out;
    if !groups.is_empty() || core.groups.limit_any(&lanes) {
        let lanes = claim_limited::AskedLanes { ungrouped: &lanes, groups: &groups };
        return claim_limited::step(core, connection, claim, (reach, locks), lanes, gathered).await;
    }
    if lanes.is_empty() {
        core.lanes.claimed(generation, std::iter::empty(), true);
        return Ok(true);
    }
    let statement = connection.prepare_cached(&core.sql.claim).await?;
    let (wanted, everything) = (claim.max as i64, reach == Reach::Everything || lanes.len() == 1);
    let of_each = claim.max.min((LOCKED_MAX / lanes.len()).max(1));
    let (worker, lease_ms) = (claim.worker.as_str(), row::millis(claim.lease));
    let max_bytes = i64::try_from(claim.max_bytes).unwrap_or(i64::MAX);
    // Made here: the server's own cost it a thirtieth of the claim.
    let tokens: Vec<Uuid> = (0..claim.max).map(|_| *LeaseToken::random().as_uuid()).collect();
    let checks: Vec<Uuid> = (0..claim.max.div_ceil(JOBS_PER_CHECK)).map(|_| Uuid::new_v4()).collect();
    let params: [&(dyn ToSql + Sync); 14] = [
        &lanes.iter().map(|(lane, _)| lane.queue.as_str()).collect::<Vec<_>>(),
        &lanes.iter().map(|(lane, _)| lane.kind.as_str()).collect::<Vec<_>>(),
        &lanes.iter().map(|(lane, _)| lane.priority).collect::<Vec<_>>(),
        &lanes.iter().map(|(_, (run_at, _))| *run_at).collect::<Vec<_>>(),
        &lanes.iter().map(|(_, (_, id))| *id).collect::<Vec<_>>(),
        &wanted,
        &everything,
        &worker,
        &lease_ms,
        &tokens,
        &max_bytes,
        &checks,
        &(JOBS_PER_CHECK as i64),
        &(of_each as i64),
    ];
    let mut rows = connection.query(&statement, &params).await?;
    rows.retain(|row| !gathered.is_unstarted(row));
    remember_checks(core, &checks, &rows)?;
    let reached = reached(&rows)?;
    let short = !claim.is_full(rows.len(), || payload_bytes(&rows));
    let mut is_empty = false;
    if short && everything {
        let full: Vec<&Lane> =
            reached.iter().filter(|(_, claimed)| *claimed >= of_each).map(|(LanePosition(lane, ..), _)| lane).collect();
        is_empty = full.is_empty();
        let left = lanes.iter().map(|(lane, _)| lane).filter(|lane| !full.contains(lane));
        core.lanes.emptied(generation, left);
    }
    core.lanes.claimed(generation, reached.into_iter().map(|(position, _)| position), short);
    gathered.rows.extend(rows);
    Ok(is_empty)
}

fn unrunnable(row: &Row, attempts: i32, error: &str) -> UnrunnableJob {
    let job_id = row.try_get::<_, Uuid>(0).map(|id| id.to_string()).unwrap_or_default();
    let kind = row.try_get(1).unwrap_or_default();
    UnrunnableJob { job_id, kind, attempts: attempts.into(), error: error.to_owned() }
}

/// Keeps in mind which leases each check is about.
pub(super) fn remember_checks(core: &Core, checks: &[Uuid], rows: &[Row]) -> Result<(), DbError> {
    let mut leases: Vec<(PgTimestamp, Vec<Uuid>)> = checks.iter().map(|_| (PgTimestamp::MAX, Vec::new())).collect();
    for row in rows {
        let nth: i64 = row.try_get(JOB_COLUMN_COUNT + 2)?;
        // The statement numbers from 1.
        let (at, tokens) = &mut leases[(nth as usize - 1) / JOBS_PER_CHECK];
        *at = row.try_get::<_, PgTimestamp>(LEASE_EXPIRES_AT)?.min(*at);
        tokens.push(row.try_get(JOB_COLUMN_COUNT)?);
    }
    for (id, (at, tokens)) in checks.iter().zip(leases).filter(|(_, (_, tokens))| !tokens.is_empty()) {
        core.checks.written(CheckKey { at, id: *id }, &tokens);
    }
    Ok(())
}

/// The last position of each lane that these rows come from, and how many do.
fn reached(rows: &[Row]) -> Result<Vec<(LanePosition, usize)>, DbError> {
    let mut reached: Vec<(LanePosition, usize)> = Vec::new();
    for row in rows {
        let (queue, kind, priority): (&str, &str, i16) = (row.try_get(2)?, row.try_get(1)?, row.try_get(5)?);
        let position = (row.try_get(8)?, row.try_get(0)?);
        let of_lane = |(LanePosition(lane, ..), _): &&mut (LanePosition, usize)| {
            lane.priority == priority && lane.kind == kind && lane.queue == queue
        };
        // The newest first: most rows come from the lane of the one before. A name is copied once per lane, not per row.
        match reached.iter_mut().rev().find(of_lane) {
            Some((LanePosition(_, last, _), claimed)) => (*last, *claimed) = (position.max(*last), *claimed + 1),
            None => {
                let lane = Lane { queue: queue.into(), kind: kind.into(), priority };
                reached.push((LanePosition(lane, position, Duration::ZERO), 1));
            }
        }
    }
    Ok(reached)
}

/// What was claimed; a row that cannot be read becomes a dead letter with the reason and keeps nobody back.
async fn leases(core: &Core, lease: Duration, rows: Vec<Row>) -> Result<Vec<Lease>, StoreError> {
    let (mut leases, mut unreadable) = (Vec::with_capacity(rows.len()), UnreadableRows::default());
    for row in &rows {
        let token: Uuid = decode("claim", row.try_get(JOB_COLUMN_COUNT))?;
        match row::strict(row) {
            Ok(job) => {
                // Never past the attempt's own deadline; the statement says the same.
                let lease = job.timeout_ms.map_or(lease, |ms| lease.min(Duration::from_millis(ms)));
                leases.push(Lease::granted(LeaseToken::from(token), lease, job));
            }
            Err(reason) => {
                unreadable.ids.push(decode("claim", row.try_get(0))?);
                unreadable.tokens.push(token);
                let reason = ErrorText::new(reason).as_str().to_owned();
                // The attempt that the claim has begun is taken back.
                let attempts = row.try_get::<_, i32>(6).map_or(0, |attempts| attempts - 1);
                let group = ErrorGroup::of(row.try_get(1).unwrap_or_default(), AttemptOutcome::Failed, &reason, None);
                unreadable.groups.push(group.fingerprint.as_i64());
                unreadable.titles.push(group.title);
                unreadable.jobs.push(unrunnable(row, attempts, &reason));
                unreadable.reasons.push(reason);
            }
        }
    }
    unreadable.dead_letter(core).await;
    Ok(leases)
}

/// Two steps can have claimed in turns.
fn sort(leases: &mut [Lease], in_turn: bool) {
    match in_turn {
        // Within a priority, groups take turns.
        true => leases.sort_by_key(|lease| Reverse(lease.job().priority)),
        false => leases.sort_by_key(|lease| (Reverse(lease.job().priority), lease.job().run_at, lease.job().id)),
    }
}

/// Claimed rows that cannot be run.
#[derive(Default)]
struct UnreadableRows {
    ids: Vec<Uuid>,
    tokens: Vec<Uuid>,
    reasons: Vec<String>,
    groups: Vec<i64>,
    titles: Vec<String>,
    jobs: Vec<UnrunnableJob>,
}

impl UnreadableRows {
    /// Dead letters, as if they had never been started. Should this not come to pass, their leases expire and they are
    /// claimed again, so nothing is lost by doing it after the claim and not within.
    async fn dead_letter(self, core: &Core) {
        if self.ids.is_empty() {
            return;
        }
        let params: [&(dyn ToSql + Sync); 5] = [&self.ids, &self.tokens, &self.reasons, &self.groups, &self.titles];
        match core.query("claim", Effect::Repeatable, &core.sql.dead_letter, &params).await {
            Ok(_) => {
                self.jobs.iter().for_each(UnrunnableJob::log);
                core.groups.wake_held();
            }
            Err(error) => tracing::warn!(?error, "jobs that cannot be read are left to the reaper"),
        }
    }
}
