//! list: waiting jobs in the order in which they will run, merged over the lanes of the ready indexes
//! (`store::waiting`).

use tokio_postgres::Error;
use uuid::Uuid;

use super::core::{Core, decode};
use super::error::Effect;
use super::list::{FilterParams, count};
use super::lookup;
use super::timestamp::PgTimestamp;
use crate::store::waiting::{
    FoundLane, FoundLanes, FoundRow, LANES_MAX, Position, Waiting, Want, WantedFollowers, WantedRows,
};
use crate::store::waiting_place::LaneName;
use crate::store::{JobFilter, List, Page, StoreError};

/// 64 lanes are looked for at first, then four times as many each time …
const SLICE_FIRST: usize = 64;
/// … up to 4,096: some tens of milliseconds.
const SLICE_MAX: usize = 4_096;

pub(super) const PLAIN: &str = "\
-- list of waiting jobs: the next of these lanes
SELECT w.lane, r.priority, r.run_at, r.id, 0::bigint, r.matches, r.bytes
FROM unnest($11::bigint[], $12::text[], $13::text[], $14::smallint[], $15::timestamptz[], $16::uuid[])
        AS w(lane, queue, kind, priority, run_at, id)
    CROSS JOIN LATERAL (
        SELECT j.priority, j.run_at, j.id, MATCHES AS matches, TEXT_BYTES AS bytes
        FROM SCHEMA.jobs j
        WHERE j.finished_at IS NULL AND j.group_key IS NULL AND j.lease_expires_at IS NULL
          AND j.queue = w.queue AND j.kind = w.kind AND j.priority = w.priority
          AND (j.run_at, j.id) > (w.run_at, w.id) AND j.run_at <= $17
        ORDER BY j.queue, j.kind, j.priority, j.run_at, j.id
        LIMIT $18
    ) r";

pub(super) const FAIR: &str = "\
-- list of waiting jobs: the next of these lanes of groups
SELECT w.lane, r.priority, r.run_at, r.id, 0::bigint, r.matches, r.bytes
FROM unnest($11::bigint[], $12::text[], $13::text[], $14::smallint[], $15::timestamptz[], $16::uuid[], $19::text[])
        AS w(lane, queue, kind, priority, run_at, id, group_key)
    CROSS JOIN LATERAL (
        SELECT j.priority, j.run_at, j.id, MATCHES AS matches, TEXT_BYTES AS bytes
        FROM SCHEMA.jobs j
        WHERE j.finished_at IS NULL AND j.group_key IS NOT NULL AND j.group_seq IS NULL AND j.lease_expires_at IS NULL
          AND j.queue = w.queue AND j.kind = w.kind AND j.priority = w.priority AND j.group_key = w.group_key
          AND (j.run_at, j.id) > (w.run_at, w.id) AND j.run_at <= $17
        ORDER BY j.queue, j.kind, j.priority, j.group_key, j.run_at, j.id
        LIMIT $18
    ) r";

pub(super) const STRICT: &str = "\
-- list of waiting jobs: the first of these strict groups, if none of it runs
SELECT w.lane, r.priority, r.run_at, r.id, r.group_seq, r.matches, r.bytes
FROM unnest($11::bigint[], $12::text[], $13::text[]) AS w(lane, queue, group_key)
    CROSS JOIN LATERAL (
        SELECT j.priority, j.run_at, j.id, j.group_seq, MATCHES AS matches, TEXT_BYTES AS bytes
        FROM SCHEMA.jobs j
        WHERE j.finished_at IS NULL AND j.group_seq IS NOT NULL AND j.queue = w.queue AND j.group_key = w.group_key
        ORDER BY j.queue, j.group_key, j.group_seq
        LIMIT 1
    ) r
WHERE NOT EXISTS (SELECT FROM SCHEMA.jobs b WHERE b.queue = w.queue AND b.running_group = w.group_key)";

pub(super) const FOLLOWERS: &str = "\
-- list of waiting jobs: those behind others of these strict groups
SELECT w.lane, r.priority, r.run_at, r.id, r.group_seq, r.matches, r.bytes
FROM unnest($11::bigint[], $12::text[], $13::text[], $14::bigint[]) AS w(lane, queue, group_key, group_seq)
    -- The first is listed before, unless another runs.
    CROSS JOIN LATERAL (
        SELECT coalesce((
            SELECT h.group_seq FROM SCHEMA.jobs h
            WHERE h.finished_at IS NULL AND h.group_seq IS NOT NULL AND h.queue = w.queue AND h.group_key = w.group_key
              AND NOT EXISTS (SELECT FROM SCHEMA.jobs b WHERE b.queue = w.queue AND b.running_group = w.group_key)
            ORDER BY h.queue, h.group_key, h.group_seq
            LIMIT 1), w.group_seq) AS group_seq
    ) first
    CROSS JOIN LATERAL (
        SELECT j.priority, j.run_at, j.id, j.group_seq, MATCHES AS matches, TEXT_BYTES AS bytes
        FROM SCHEMA.jobs j
        WHERE j.finished_at IS NULL AND j.group_seq IS NOT NULL AND j.lease_expires_at IS NULL
          AND j.queue = w.queue AND j.group_key = w.group_key
          AND j.group_seq > greatest(w.group_seq, first.group_seq)
        ORDER BY j.queue, j.group_key, j.group_seq
        LIMIT $15
    ) r
ORDER BY w.lane, r.group_seq";

pub(super) async fn list(core: &Core, list: &List) -> Result<Page, StoreError> {
    let now = PgTimestamp::from(core.now().await?);
    let mut waiting = Waiting::new(list, now.to_wire());
    let filter = FilterParams::new(&list.filter);
    let page = loop {
        match waiting.wants() {
            Want::Lanes { from, to } => {
                let found = lanes(core, &list.filter, from, to.as_ref()).await?;
                waiting.lanes_found(found);
            }
            Want::Rows { lanes, block } => {
                let rows = read_rows(core, &filter, &lanes, block).await?;
                waiting.rows_found(&lanes, block, rows);
            }
            Want::Followers { groups, block } => {
                let rows = read_followers(core, &filter, &groups, block).await?;
                waiting.followers_found(&groups, block, rows);
            }
            Want::Done(page) => break page,
        }
    };
    let found = lookup::get(core, page.ids).await?;
    // What has begun to run since then waits no more.
    let still_waits = |job: &crate::job::JobRecord| list.filter.statuses.contains(&job.status);
    let jobs = found.into_iter().flatten().filter(still_waits).collect();
    let looked_to = page.looked_to.map(|at| PgTimestamp::from_wire(at).timestamp());
    Ok(Page { jobs, next: page.next, looked: page.looked, looked_to })
}

/// The lanes behind one up to another, slice by slice.
async fn lanes(
    core: &Core,
    filter: &JobFilter,
    from: Option<LaneName>,
    to: Option<&LaneName>,
) -> Result<FoundLanes, StoreError> {
    let mut at = from.unwrap_or_else(|| LaneName::first(filter));
    let (mut found, mut looked, mut slice) = (FoundLanes::default(), 0, SLICE_FIRST);
    while looked < LANES_MAX {
        let names = slice_behind(core, &at, slice).await?;
        let is_last = names.len() < slice;
        let mut jump = None;
        for lane in names {
            looked += 1;
            if to.is_some_and(|to| lane.name > *to) {
                return Ok(found);
            }
            at = lane.name.clone();
            let Some(onwards) = at.onwards(filter) else { return Ok(found) };
            if lane.name.is_allowed(filter) {
                found.lanes.push(lane);
            }
            if onwards != at {
                jump = Some(onwards);
                break;
            }
        }
        at = match jump {
            Some(onwards) => onwards,
            None if is_last => match at.next_index(filter) {
                Some(next) => next,
                None => return Ok(found),
            },
            None => at,
        };
        slice = slice.saturating_mul(4).min(SLICE_MAX);
    }
    found.last = Some(at);
    Ok(found)
}

/// Some lanes of one index behind one.
async fn slice_behind(core: &Core, at: &LaneName, slice: usize) -> Result<Vec<FoundLane>, StoreError> {
    let limit = slice as i32;
    let query = async |sql: &str, params: &[&(dyn tokio_postgres::types::ToSql + Sync)]| {
        core.query("list", Effect::Repeatable, sql, params).await
    };
    let rows = match at {
        LaneName::Plain { queue, kind, priority } => {
            query(&core.sql.listed_lanes, &[queue, kind, priority, &limit]).await
        }
        LaneName::Fair { queue, kind, priority, group } => {
            query(&core.sql.listed_group_lanes, &[queue, kind, priority, group, &limit]).await
        }
        LaneName::Strict { queue, group } => query(&core.sql.listed_strict_lanes, &[queue, group, &limit]).await,
    };
    let lane = |row: &tokio_postgres::Row| -> Result<FoundLane, Error> {
        let head = |first: usize| -> Result<Option<Position>, Error> {
            let run_at: PgTimestamp = row.try_get(first)?;
            Ok(Some(Position { run_at: run_at.to_wire(), id: row.try_get(first + 1)? }))
        };
        Ok(match at {
            LaneName::Plain { .. } => {
                let name = LaneName::Plain { queue: row.try_get(0)?, kind: row.try_get(1)?, priority: row.try_get(2)? };
                FoundLane { name, head: head(3)? }
            }
            LaneName::Fair { .. } => {
                let (queue, kind, priority) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
                FoundLane { name: LaneName::Fair { queue, kind, priority, group: row.try_get(3)? }, head: head(4)? }
            }
            LaneName::Strict { .. } => {
                let name = LaneName::Strict { queue: row.try_get(0)?, group: row.try_get(1)? };
                FoundLane { name, head: None }
            }
        })
    };
    rows?.iter().map(|row| decode("list", lane(row))).collect()
}

/// Lanes of one index, column by column.
#[derive(Default)]
struct Columns<'w> {
    lanes: Vec<i64>,
    queues: Vec<&'w str>,
    kinds: Vec<&'w str>,
    priorities: Vec<i16>,
    groups: Vec<&'w str>,
    run_at: Vec<PgTimestamp>,
    ids: Vec<Uuid>,
}

async fn read_rows(
    core: &Core,
    filter: &FilterParams<'_>,
    wanted: &[WantedRows],
    block: usize,
) -> Result<Vec<FoundRow>, StoreError> {
    let (mut plain, mut fair, mut strict) = (Columns::default(), Columns::default(), Columns::default());
    let (mut until, block) = (PgTimestamp::MAX, count(block));
    for wanted in wanted {
        let columns = match &wanted.name {
            LaneName::Plain { queue, kind, priority } => {
                plain.queues.push(queue);
                plain.kinds.push(kind);
                plain.priorities.push(*priority);
                &mut plain
            }
            LaneName::Fair { queue, kind, priority, group } => {
                fair.queues.push(queue);
                fair.kinds.push(kind);
                fair.priorities.push(*priority);
                fair.groups.push(group);
                &mut fair
            }
            LaneName::Strict { queue, group } => {
                strict.queues.push(queue);
                strict.groups.push(group);
                &mut strict
            }
        };
        columns.lanes.push(count(wanted.lane));
        columns.run_at.push(PgTimestamp::from_wire(wanted.after.run_at));
        columns.ids.push(wanted.after.id);
        until = PgTimestamp::from_wire(wanted.until);
    }
    let mut rows = Vec::new();
    if !plain.lanes.is_empty() {
        let Columns { lanes, queues, kinds, priorities, run_at, ids, .. } = &plain;
        let params = filter.and(&[lanes, queues, kinds, priorities, run_at, ids, &until, &block]);
        rows.extend(read(core, &core.sql.list_waiting_plain, &params).await?);
    }
    if !fair.lanes.is_empty() {
        let Columns { lanes, queues, kinds, priorities, run_at, ids, groups } = &fair;
        let params = filter.and(&[lanes, queues, kinds, priorities, run_at, ids, &until, &block, groups]);
        rows.extend(read(core, &core.sql.list_waiting_fair, &params).await?);
    }
    if !strict.lanes.is_empty() {
        let params = filter.and(&[&strict.lanes, &strict.queues, &strict.groups]);
        rows.extend(read(core, &core.sql.list_waiting_strict, &params).await?);
    }
    // Each lane's in their order.
    rows.sort_unstable_by_key(|row| (row.lane, row.position));
    Ok(rows)
}

async fn read_followers(
    core: &Core,
    filter: &FilterParams<'_>,
    wanted: &[WantedFollowers],
    block: usize,
) -> Result<Vec<FoundRow>, StoreError> {
    let lanes: Vec<i64> = wanted.iter().map(|wanted| count(wanted.lane)).collect();
    let queues: Vec<&str> = wanted.iter().map(|wanted| wanted.queue.as_str()).collect();
    let groups: Vec<&str> = wanted.iter().map(|wanted| wanted.group.as_str()).collect();
    let after: Vec<i64> = wanted.iter().map(|wanted| wanted.after).collect();
    let block = count(block);
    let params = filter.and(&[&lanes, &queues, &groups, &after, &block]);
    read(core, &core.sql.list_waiting_followers, &params).await
}

async fn read(
    core: &Core,
    sql: &str,
    params: &[&(dyn tokio_postgres::types::ToSql + Sync)],
) -> Result<Vec<FoundRow>, StoreError> {
    let row = |row: &tokio_postgres::Row| -> Result<FoundRow, Error> {
        let run_at: PgTimestamp = row.try_get(2)?;
        Ok(FoundRow {
            lane: row.try_get::<_, i64>(0)?.unsigned_abs() as usize,
            priority: row.try_get(1)?,
            position: Position { run_at: run_at.to_wire(), id: row.try_get(3)? },
            number: row.try_get(4)?,
            matches: row.try_get(5)?,
            bytes: row.try_get::<_, i64>(6)?.unsigned_abs() as usize,
        })
    };
    core.query("list", Effect::Repeatable, sql, params).await?.iter().map(|one| decode("list", row(one))).collect()
}
