//! claim, from lanes of which some have a group or a limit: one statement that counts, deals turns and starts. What a process
//! remembers chooses the lanes (`group_lanes`); the statement decides.

use std::collections::HashMap;
use std::time::Duration;

use deadpool_postgres::Object;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::claim::{Gathered, Reach, payload_bytes, remember_checks};
use super::core::Core;
use super::error::DbError;
use super::group_lane::{AskedGroup, Sleep};
use super::group_lanes::HELD_WAIT;
use super::lanes::{Lane, LanePosition, Position};
use super::lease_checks::JOBS_PER_CHECK;
use super::row::{self, JOB_COLUMN_COUNT};
use crate::job::LeaseToken;
use crate::planted::{Bug, planted};
use crate::store::Claim;
use crate::store::turns::{STRIDE, Unit, stride};

/// 100,000 index entries that one claim looks at, at most.
const FOUND_MAX: usize = 100_000;

/// Whether a step waits for rows of usage that another transaction holds locked, for the moment that its commit takes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum UsageLocks {
    /// They count as full, so that a busy limit delays nobody else.
    Skip,
    Wait,
}

/// The lanes of one step, as columns of the statement: first those without a group.
pub(super) struct AskedLanes<'a> {
    pub(super) ungrouped: &'a [(Lane, Position)],
    pub(super) groups: &'a [AskedGroup],
}

/// What the statement says of a lane.
struct Note {
    room: i64,
    found: i64,
    is_known: bool,
    wait: Duration,
    /// As many leases as may be, or a job of its strict group runs.
    is_full: bool,
}

/// One claim from these lanes. Answers whether these have nothing left that could start now.
pub(super) async fn step(
    core: &Core,
    connection: &Object,
    claim: &Claim,
    (reach, locks): (Reach, UsageLocks),
    lanes: AskedLanes<'_>,
    gathered: &mut Gathered,
) -> Result<bool, DbError> {
    let (generation, of_groups) = (core.lanes.generation(), core.groups.generation());
    let (rows, lanes_asked) = match ask(core, connection, claim, (reach, locks), &lanes).await {
        Ok(rows) => (rows, lanes),
        // A head that was committed late: two claims have met, and the index refused this one. Its group sleeps a round.
        Err(error) if error.is_rejected() && lanes.groups.iter().any(|group| group.lane.is_none()) => {
            let (strict, fair): (Vec<_>, Vec<_>) = lanes.groups.iter().cloned().partition(|group| group.lane.is_none());
            strict.iter().for_each(|group| core.groups.held(u64::MAX, group, (HELD_WAIT, Sleep::Room)));
            let fair = AskedLanes { ungrouped: lanes.ungrouped, groups: &fair };
            let rows = ask(core, connection, claim, (reach, locks), &fair).await?;
            return finish(core, claim, (generation, of_groups), &fair, rows, gathered);
        }
        // Others are claimed from; this one is asked again by the next claim.
        Err(error) if locks == UsageLocks::Wait && error.is_lock_timeout() => return Ok(true),
        Err(error) => return Err(error),
    };
    finish(core, claim, (generation, of_groups), &lanes_asked, rows, gathered)
}

async fn ask(
    core: &Core,
    connection: &Object,
    claim: &Claim,
    (reach, locks): (Reach, UsageLocks),
    lanes: &AskedLanes<'_>,
) -> Result<Asked, DbError> {
    let mut columns = Columns::default();
    let units = lanes.groups.len() + usize::from(!lanes.ungrouped.is_empty());
    let share = match reach {
        Reach::Best => claim.max.div_ceil(units.max(1)) + 1,
        Reach::Everything => claim.max,
    };
    let share = share.min((FOUND_MAX / (lanes.groups.len() + lanes.ungrouped.len()).max(1)).max(1));
    let pass = core.groups.pass_without_group();
    for (lane, (run_at, id)) in lanes.ungrouped {
        columns.add(&lane.queue, &lane.kind, lane.priority, None, (*run_at, *id), (pass, STRIDE), share);
    }
    for group in lanes.groups {
        let (kind, priority) = group.lane.as_ref().map_or(("", 0), |(kind, priority)| (&**kind, *priority));
        let turn = (group.pass, if planted(Bug::ShareIgnored) { 0 } else { stride(group.weight) });
        // Twice its share, times its weight: a group that has it is due more turns than others.
        let share = share.saturating_mul(group.weight as usize).min(claim.max);
        columns.add(&group.queue, kind, priority, Some(&group.group), group.position, turn, share);
        if group.lane.is_none() {
            columns.strict.pop();
            columns.strict.push(true);
        }
    }
    let keys = columns.queues.iter().zip(&columns.kinds).zip(&columns.groups);
    if core.groups.makes_usage(keys.map(|((queue, kind), group)| (*queue, *kind, *group))) {
        let statement = connection.prepare_cached(&core.sql.make_usage).await?;
        let (mut kinds, limited) = (columns.kinds.clone(), core.groups.limited_kinds());
        if lanes.groups.iter().any(|group| group.lane.is_none()) {
            // Of strict groups any kind can come next.
            kinds.extend(limited.iter().map(String::as_str));
        }
        connection.query(&statement, &[&columns.queues, &kinds, &columns.groups]).await?;
    }
    let sql = match locks {
        UsageLocks::Skip => &core.sql.claim_limited,
        UsageLocks::Wait => &core.sql.claim_limited_waiting,
    };
    let statement = connection.prepare_cached(sql).await?;
    let kinds: Option<Vec<&str>> = claim.kinds.as_ref().map(|kinds| kinds.iter().map(|kind| kind.as_str()).collect());
    let (max, unlimited) = (claim.max as i32, claim.max.saturating_sub(claim.ahead) as i32);
    let tokens: Vec<Uuid> = (0..claim.max).map(|_| *LeaseToken::random().as_uuid()).collect();
    let checks: Vec<Uuid> = (0..claim.max.div_ceil(JOBS_PER_CHECK)).map(|_| Uuid::new_v4()).collect();
    let (worker, lease_ms) = (claim.worker.as_str(), row::millis(claim.lease));
    let max_bytes = i64::try_from(claim.max_bytes).unwrap_or(i64::MAX);
    let params: [&(dyn ToSql + Sync); 19] = [
        &columns.queues,
        &columns.kinds,
        &columns.priorities,
        &columns.groups,
        &columns.run_at,
        &columns.ids,
        &columns.passes,
        &columns.strides,
        &columns.shares,
        &columns.strict,
        &kinds,
        &max,
        &unlimited,
        &worker,
        &lease_ms,
        &tokens,
        &checks,
        &max_bytes,
        &(JOBS_PER_CHECK as i64),
    ];
    let rows = connection.query(&statement, &params).await?;
    Ok(Asked { rows, checks, waited: locks == UsageLocks::Wait })
}

/// What the statement answered.
struct Asked {
    rows: Vec<Row>,
    checks: Vec<Uuid>,
    waited: bool,
}

#[derive(Default)]
struct Columns<'a> {
    queues: Vec<&'a str>,
    kinds: Vec<&'a str>,
    priorities: Vec<i16>,
    groups: Vec<Option<&'a str>>,
    run_at: Vec<super::timestamp::PgTimestamp>,
    ids: Vec<Uuid>,
    passes: Vec<i64>,
    strides: Vec<i64>,
    shares: Vec<i32>,
    strict: Vec<bool>,
}

impl<'a> Columns<'a> {
    #[expect(clippy::too_many_arguments, reason = "one for each column")]
    fn add(
        &mut self,
        queue: &'a str,
        kind: &'a str,
        priority: i16,
        group: Option<&'a str>,
        (run_at, id): Position,
        (pass, stride): (u64, u64),
        share: usize,
    ) {
        self.queues.push(queue);
        self.kinds.push(kind);
        self.priorities.push(priority);
        self.groups.push(group);
        self.run_at.push(run_at);
        self.ids.push(id);
        self.passes.push(i64::try_from(pass).unwrap_or(i64::MAX / 2));
        self.strides.push(stride as i64);
        self.shares.push(share as i32);
        self.strict.push(false);
    }
}

/// Keeps in mind what the statement told of each lane.
fn finish(
    core: &Core,
    claim: &Claim,
    (generation, of_groups): (super::lanes::Generation, u64),
    lanes: &AskedLanes<'_>,
    asked: Asked,
    gathered: &mut Gathered,
) -> Result<bool, DbError> {
    let (mut notes, mut started, mut has_ended) = (HashMap::new(), Vec::new(), false);
    for row in asked.rows {
        if row.try_get::<_, Option<Uuid>>(0)?.is_some() {
            match gathered.is_unstarted(&row) {
                true => has_ended = true,
                false => started.push((row.try_get::<_, i64>(JOB_COLUMN_COUNT + 2)?, row)),
            }
            continue;
        }
        let at = JOB_COLUMN_COUNT + 3;
        let wait = Duration::from_micros(row.try_get::<_, i64>(at + 5)?.max(0) as u64);
        let (room, found) = (row.try_get(at + 2)?, row.try_get(at + 3)?);
        let note = Note { room, found, is_known: row.try_get(at + 4)?, wait, is_full: row.try_get(at + 6)? };
        notes.insert(row.try_get::<_, i64>(at)? as usize - 1, note);
    }
    // In turn.
    started.sort_by_key(|(nth, _)| *nth);
    let started: Vec<Row> = started.into_iter().map(|(_, row)| row).collect();
    remember_checks(core, &asked.checks, &started)?;
    let mut taken: HashMap<usize, (usize, Position)> = HashMap::new();
    for row in &started {
        let lane = row.try_get::<_, i64>(JOB_COLUMN_COUNT + 3)? as usize - 1;
        let position: Position = (row.try_get(8)?, row.try_get(0)?);
        let of_lane = taken.entry(lane).or_insert((0, position));
        *of_lane = (of_lane.0 + 1, of_lane.1.max(position));
    }
    let short = !claim.is_full(started.len(), || payload_bytes(&started));
    let (mut is_empty, mut emptied, mut reached) = (true, Vec::new(), Vec::new());
    let mut is_forgotten = false;
    for (nth, (lane, _)) in lanes.ungrouped.iter().enumerate() {
        let claimed = taken.get(&nth).copied();
        reached.extend(claimed.map(|(_, position)| LanePosition(lane.clone(), position, Duration::ZERO)));
        match notes.get(&nth) {
            Some(note)
                if note.room > 0 && note.found < note.room && note.found == claimed.map_or(0, |c| c.0 as i64) =>
            {
                emptied.push(lane);
            }
            // Locked, or its row of usage is not there: the limit is new.
            Some(note) if !note.is_known => (is_empty, is_forgotten) = (false, is_forgotten || asked.waited),
            Some(note) if note.room == 0 => gathered.look_again_in(note.wait),
            Some(_) => is_empty = false,
            None => (),
        }
    }
    // After a claim that is full no look follows, and jobs of these lanes may be due soon.
    core.lanes.emptied(generation, emptied.into_iter().filter(|_| short));
    core.lanes.claimed(generation, reached.into_iter(), short);
    for (nth, group) in lanes.groups.iter().enumerate() {
        let claimed = taken.get(&(lanes.ungrouped.len() + nth)).copied();
        if let Some((_, position)) = claimed {
            core.groups.claimed(of_groups, group, position);
        }
        match notes.get(&(lanes.ungrouped.len() + nth)) {
            Some(note) if !note.is_known => (is_empty, is_forgotten) = (false, is_forgotten || asked.waited),
            Some(note) if note.room == 0 => {
                let why = if note.is_full { Sleep::Room } else { Sleep::Time };
                core.groups.held(of_groups, group, (note.wait.max(Duration::from_millis(1)), why));
            }
            // The one behind it has its turn, or there was no room in the claim.
            Some(note) if group.lane.is_none() && note.found > 0 && claimed.is_none() && (has_ended || !short) => {
                is_empty = false;
                core.groups.goes_on(group);
            }
            Some(_) if group.lane.is_none() => core.groups.held(of_groups, group, (HELD_WAIT, Sleep::Room)),
            Some(note) if note.found < note.room && note.found == claimed.map_or(0, |c| c.0 as i64) => {
                core.groups.emptied(of_groups, group);
            }
            Some(_) => {
                is_empty = false;
                core.groups.goes_on(group);
            }
            // Paused, or the head of a strict group is not due, or of a kind that this claim does not ask for.
            None => core.groups.held(of_groups, group, (HELD_WAIT, Sleep::Time)),
        }
    }
    if is_forgotten {
        core.groups.forget_made();
        gathered.usage_gone = true;
    }
    let mut served: HashMap<Unit, (usize, u32)> = HashMap::new();
    for (nth, (jobs, _)) in &taken {
        let group = nth.checked_sub(lanes.ungrouped.len()).map(|nth| &lanes.groups[nth]);
        let unit = served.entry(group.and_then(AskedGroup::unit)).or_insert((0, group.map_or(1, |group| group.weight)));
        unit.0 += jobs;
    }
    core.groups.served(served.into_iter().map(|(unit, (jobs, weight))| (unit, jobs, weight)), lanes.groups);
    // What was cut by a limit is told by the next claim: how long to wait for it.
    gathered.more |= !started.is_empty() && !is_empty;
    gathered.left_ahead |= claim.ahead > 0 && short;
    gathered.in_turn = true;
    gathered.rows.extend(started);
    Ok(is_empty)
}
