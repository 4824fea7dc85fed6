//! claim, from lanes of which some have a group: one statement that counts, deals turns and starts. What a process remembers
//! chooses the lanes (`group_lanes`); the statement decides. Without groups: `claim`.

use std::collections::HashMap;
use std::time::Duration;

use deadpool_postgres::Object;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::claim::{
    Gathered, Reach, UsageLocks, make_usage, payload_bytes, remember_checks, tokens_and_checks, unlimited,
};
use super::core::Core;
use super::error::DbError;
use super::group_lane::{AskedGroup, Sleep};
use super::group_lanes::HELD_WAIT;
use super::lanes::{Lane, LanePosition, Position};
use super::lease_checks::JOBS_PER_CHECK;
use super::row::{self, JOB_COLUMN_COUNT};
use crate::planted::{Bug, planted};
use crate::store::Claim;
use crate::store::turns::{STRIDE, Unit, stride};

/// 100,000 index entries that one claim looks at, at most.
const FOUND_MAX: usize = 100_000;

/// The lanes of one step, as columns of the statement: first those without a group.
pub(super) struct AskedLanes<'a> {
    pub(super) ungrouped: &'a [(Lane, Position)],
    pub(super) groups: &'a [AskedGroup],
}

/// What the statement says of a lane where it has found less than it asked for.
struct Note {
    has_room: bool,
    found: usize,
    is_known: bool,
    /// `None`: it is paused, or the head of a strict group is not due, or of a kind that this claim does not ask for.
    wait: Option<Duration>,
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
    for (lane, position) in lanes.ungrouped {
        let key = LaneKey { queue: &lane.queue, kind: &lane.kind, priority: lane.priority, group: None };
        columns.add(key, *position, (pass, STRIDE), share.min(claim.max));
    }
    for group in lanes.groups {
        let (kind, priority) = group.lane.as_ref().map_or(("", 0), |(kind, priority)| (&**kind, *priority));
        let turn = (group.pass, if planted(Bug::ShareIgnored) { 0 } else { stride(group.weight) });
        // Twice its share, times its weight: a group that has it is due more turns than others.
        let share = share.saturating_mul(group.weight as usize).min(claim.max);
        columns.add(
            LaneKey { queue: &group.queue, kind, priority, group: Some(&group.group) },
            group.position,
            turn,
            share,
        );
        if group.lane.is_none() {
            columns.strict.pop();
            columns.strict.push(true);
        }
    }
    let keys = columns.queues.iter().zip(&columns.kinds).zip(&columns.groups);
    let keys = keys.map(|((queue, kind), group)| (*queue, *kind, *group));
    // Of strict groups any kind can come next.
    make_usage(core, connection, keys, lanes.groups.iter().any(|group| group.lane.is_none())).await?;
    let sql = match locks {
        UsageLocks::Skip => &core.sql.claim_in_turn,
        UsageLocks::Wait => &core.sql.claim_in_turn_waiting,
    };
    let statement = connection.prepare_cached(sql).await?;
    let kinds: Option<Vec<&str>> = claim.kinds.as_ref().map(|kinds| kinds.iter().map(|kind| kind.as_str()).collect());
    let (tokens, checks) = tokens_and_checks(claim);
    let (worker, lease_ms) = (claim.worker.as_str(), row::millis(claim.lease));
    let max_bytes = i64::try_from(claim.max_bytes).unwrap_or(i64::MAX);
    let params: [&(dyn ToSql + Sync); 20] = [
        &columns.queues,
        &columns.kinds,
        &columns.priorities,
        &columns.run_at,
        &columns.ids,
        &(claim.max as i64),
        &columns.groups,
        &worker,
        &lease_ms,
        &tokens,
        &max_bytes,
        &checks,
        &(JOBS_PER_CHECK as i64),
        &columns.shares,
        &unlimited(claim),
        &columns.units,
        &columns.passes,
        &columns.strides,
        &columns.strict,
        &kinds,
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

struct LaneKey<'a> {
    queue: &'a str,
    kind: &'a str,
    priority: i16,
    group: Option<&'a str>,
}

#[derive(Default)]
struct Columns<'a> {
    queues: Vec<&'a str>,
    kinds: Vec<&'a str>,
    priorities: Vec<i16>,
    groups: Vec<Option<&'a str>>,
    run_at: Vec<super::timestamp::PgTimestamp>,
    ids: Vec<Uuid>,
    /// Numbers of those that take turns: all without a group have 0.
    units: Vec<i32>,
    passes: Vec<i64>,
    strides: Vec<i64>,
    shares: Vec<i32>,
    strict: Vec<bool>,
    known_units: HashMap<(&'a str, &'a str), i32>,
}

impl<'a> Columns<'a> {
    fn add(&mut self, lane: LaneKey<'a>, (run_at, id): Position, (pass, stride): (u64, u64), share: usize) {
        let next = self.known_units.len() as i32 + 1;
        let unit = lane.group.map_or(0, |group| *self.known_units.entry((lane.queue, group)).or_insert(next));
        self.queues.push(lane.queue);
        self.kinds.push(lane.kind);
        self.priorities.push(lane.priority);
        self.groups.push(lane.group);
        self.run_at.push(run_at);
        self.ids.push(id);
        self.units.push(unit);
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
        let wait = row.try_get::<_, Option<i64>>(at + 6)?.map(|us| Duration::from_micros(us.max(0) as u64));
        let has_room = row.try_get::<_, i32>(at + 3)? > 0;
        let found = row.try_get::<_, i64>(at + 4)? as usize;
        let note = Note { has_room, found, is_known: row.try_get(at + 5)?, wait, is_full: row.try_get(at + 7)? };
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
            // Locked, or its row of usage is not there: the limit is new.
            Some(note) if !note.is_known => (is_empty, is_forgotten) = (false, is_forgotten || asked.waited),
            Some(note) if !note.has_room => note.wait.into_iter().for_each(|wait| gathered.look_again_in(wait)),
            Some(note) if note.found == claimed.map_or(0, |(jobs, _)| jobs) => emptied.push(lane),
            _ => is_empty = false,
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
            Some(Note { has_room: false, wait, is_full, .. }) => {
                let why = if *is_full { Sleep::Room } else { Sleep::Time };
                let (wait, why) = wait.map_or((HELD_WAIT, Sleep::Time), |wait| (wait, why));
                core.groups.held(of_groups, group, (wait.max(Duration::from_millis(1)), why));
            }
            // The one behind it has its turn, or there was no room in the claim.
            note if group.lane.is_none() => match claimed.is_none() && (has_ended || !short) {
                true if note.is_none_or(|note| note.found > 0) => {
                    is_empty = false;
                    core.groups.goes_on(group);
                }
                _ => core.groups.held(of_groups, group, (HELD_WAIT, Sleep::Room)),
            },
            Some(note) if note.found == claimed.map_or(0, |(jobs, _)| jobs) => core.groups.emptied(of_groups, group),
            _ => {
                is_empty = false;
                core.groups.goes_on(group);
            }
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
