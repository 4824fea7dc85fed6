//! list: waiting jobs in the order in which they will run, merged over the lanes of the ready indexes
//! (`store::waiting`).

use rusqlite::{Connection, OptionalExtension, params};

use super::jobs::job_with_id;
use super::lanes::{Group, Lane, lane_behind};
use super::list::{Candidate, candidate_columns};
use super::row::{UuidBlob, timestamp};
use crate::job::limits::PRIORITY_MIN;
use crate::store::waiting::{
    FoundLane, FoundLanes, FoundRow, LANES_MAX, Position, Waiting, Want, WantedFollowers, WantedRows,
};
use crate::store::waiting_place::LaneName;
use crate::store::{JobFilter, List, Page};

macro_rules! rows_of {
    ($from:literal) => {
        concat!(
            "-- list: waiting jobs of a lane\nSELECT ",
            candidate_columns!(),
            ", priority, run_at, octet_length(payload) + coalesce(octet_length(result), 0) \
             + coalesce(octet_length(last_error), 0), lease_expires_at IS NULL FROM jobs INDEXED BY ",
            $from
        )
    };
}

pub(super) const PLAIN: &str = rows_of!(
    "jobs_ready
WHERE lease_expires_at IS NULL AND finished_at IS NULL AND group_key IS NULL
  AND queue = ?1 AND kind = ?2 AND priority = ?3 AND (run_at, id) > (?4, ?5) AND run_at <= ?6
ORDER BY run_at, id LIMIT ?7"
);

pub(super) const FAIR: &str = rows_of!(
    "jobs_ready_grouped
WHERE lease_expires_at IS NULL AND finished_at IS NULL AND group_key IS NOT NULL AND coalesce(marks, 0) & 8 = 0
  AND queue = ?1 AND kind = ?2 AND priority = ?3 AND group_key = ?8 AND (run_at, id) > (?4, ?5) AND run_at <= ?6
ORDER BY run_at, id LIMIT ?7"
);

pub(super) const STRICT_HEAD: &str = rows_of!(
    "jobs_strict
WHERE finished_at IS NULL AND group_key IS NOT NULL AND coalesce(marks, 0) & 8 <> 0 AND queue = ?1 AND group_key = ?2
ORDER BY lease_expires_at IS NULL, seq LIMIT 1"
);

pub(super) const FOLLOWERS: &str = rows_of!(
    "jobs_strict
WHERE finished_at IS NULL AND group_key IS NOT NULL AND coalesce(marks, 0) & 8 <> 0 AND queue = ?1 AND group_key = ?2
  AND (lease_expires_at IS NULL) = 1 AND seq > ?3
ORDER BY seq LIMIT ?4"
);

pub(super) fn list(snapshot: &Connection, list: &List, now_micros: i64) -> rusqlite::Result<Page> {
    let mut waiting = Waiting::new(list, now_micros);
    let page = loop {
        match waiting.wants() {
            Want::Lanes { from, to } => {
                let found = lanes(snapshot, &list.filter, from, to.as_ref())?;
                waiting.lanes_found(found);
            }
            Want::Rows { lanes, block } => {
                let mut rows = Vec::new();
                for lane in &lanes {
                    read_rows(snapshot, &list.filter, lane, block, &mut rows)?;
                }
                waiting.rows_found(&lanes, block, rows);
            }
            Want::Followers { groups, block } => {
                let mut rows = Vec::new();
                for group in &groups {
                    read_followers(snapshot, &list.filter, group, block, &mut rows)?;
                }
                waiting.followers_found(&groups, block, rows);
            }
            Want::Done(page) => break page,
        }
    };
    // A row that makes no sense at all is left out; claiming it makes it a dead letter with the reason.
    let jobs = page.ids.iter().filter_map(|id| job_with_id(snapshot, *id).ok().flatten()).collect();
    Ok(Page { jobs, next: page.next, looked: page.looked, looked_to: page.looked_to.map(timestamp) })
}

/// The lanes behind one up to another, by hopping from one to the next.
fn lanes(
    snapshot: &Connection,
    filter: &JobFilter,
    from: Option<LaneName>,
    to: Option<&LaneName>,
) -> rusqlite::Result<FoundLanes> {
    let mut at = from.unwrap_or_else(|| LaneName::first(filter));
    let mut found = FoundLanes::default();
    for _ in 0..LANES_MAX {
        let Some(next) = lane_behind(snapshot, Some(&hop_from(&at)))? else { return Ok(found) };
        let head = next.head.map(|head| Position { run_at: head.run_at, id: head.id });
        let name = name_of(next.lane);
        if to.is_some_and(|to| name > *to) {
            return Ok(found);
        }
        if name.is_allowed(filter) {
            // Of a strict group, kind and priority are those of its first job: they are read with it.
            let head = head.filter(|_| !matches!(name, LaneName::Strict { .. }));
            found.lanes.push(FoundLane { name: name.clone(), head });
        }
        let Some(onwards) = name.onwards(filter) else { return Ok(found) };
        at = onwards;
    }
    found.last = Some(at);
    Ok(found)
}

fn hop_from(name: &LaneName) -> Lane {
    let lane = |queue: &str, kind: &str, priority: i16, group| Lane {
        queue: queue.into(),
        kind: kind.into(),
        priority: priority.max(PRIORITY_MIN - 1),
        group,
    };
    match name {
        LaneName::Plain { queue, kind, priority } => lane(queue, kind, *priority, Group::None),
        LaneName::Fair { queue, kind, priority, group } => {
            lane(queue, kind, *priority, Group::Fair(group.as_str().into()))
        }
        LaneName::Strict { queue, group } => lane(queue, "", 0, Group::Strict(group.as_str().into())),
    }
}

fn name_of(lane: Lane) -> LaneName {
    let (queue, kind, priority) = (lane.queue.to_string(), lane.kind.to_string(), lane.priority);
    match lane.group {
        Group::None => LaneName::Plain { queue, kind, priority },
        Group::Fair(group) => LaneName::Fair { queue, kind, priority, group: group.to_string() },
        Group::Strict(group) => LaneName::Strict { queue, group: group.to_string() },
    }
}

fn read_rows(
    snapshot: &Connection,
    filter: &JobFilter,
    wanted: &WantedRows,
    block: usize,
    rows: &mut Vec<FoundRow>,
) -> rusqlite::Result<()> {
    let (run_at, id, block) = (wanted.after.run_at, UuidBlob(wanted.after.id), block as i64);
    match &wanted.name {
        LaneName::Plain { queue, kind, priority } => {
            let mut statement = snapshot.prepare_cached(PLAIN)?;
            let mut found = statement.query(params![queue, kind, priority, run_at, id, wanted.until, block])?;
            while let Some(row) = found.next()? {
                rows.push(read(&Candidate(row), filter, wanted.lane)?);
            }
        }
        LaneName::Fair { queue, kind, priority, group } => {
            let mut statement = snapshot.prepare_cached(FAIR)?;
            let mut found = statement.query(params![queue, kind, priority, run_at, id, wanted.until, block, group])?;
            while let Some(row) = found.next()? {
                rows.push(read(&Candidate(row), filter, wanted.lane)?);
            }
        }
        LaneName::Strict { queue, group } => rows.extend(strict_head(snapshot, filter, wanted.lane, queue, group)?),
    }
    Ok(())
}

/// The first job of a strict group, if none of it runs.
fn strict_head(
    snapshot: &Connection,
    filter: &JobFilter,
    lane: usize,
    queue: &str,
    group: &str,
) -> rusqlite::Result<Option<FoundRow>> {
    let head = snapshot.prepare_cached(STRICT_HEAD)?.query_row([queue, group], |row| {
        let waits: bool = row.get(12)?;
        Ok(if waits { Some(read(&Candidate(row), filter, lane)?) } else { None })
    });
    Ok(head.optional()?.flatten())
}

fn read_followers(
    snapshot: &Connection,
    filter: &JobFilter,
    wanted: &WantedFollowers,
    block: usize,
    rows: &mut Vec<FoundRow>,
) -> rusqlite::Result<()> {
    let head = strict_head(snapshot, filter, wanted.lane, &wanted.queue, &wanted.group)?;
    let after = head.map_or(wanted.after, |head| wanted.after.max(head.number));
    let mut statement = snapshot.prepare_cached(FOLLOWERS)?;
    let mut found = statement.query(params![wanted.queue, wanted.group, after, block as i64])?;
    while let Some(row) = found.next()? {
        rows.push(read(&Candidate(row), filter, wanted.lane)?);
    }
    Ok(())
}

fn read(row: &Candidate<'_>, filter: &JobFilter, lane: usize) -> rusqlite::Result<FoundRow> {
    Ok(FoundRow {
        lane,
        priority: row.0.get(9)?,
        position: Position { run_at: row.0.get(10)?, id: row.id()? },
        number: row.seq()?,
        // What waits has not ended by an error.
        matches: filter.error.is_none() && row.matches(filter)?,
        bytes: row.0.get::<_, Option<i64>>(11)?.unwrap_or_default().unsigned_abs() as usize,
    })
}
