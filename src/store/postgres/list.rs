//! list: jobs by id, one way or the other, without ever walking the whole table. Those that wait are in `list_waiting`.

use jiff::Timestamp;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, Row};
use uuid::Uuid;

use super::core::{Core, decode};
use super::error::Effect;
use super::list_waiting;
use super::row::{self, JOB_COLUMN_COUNT};
use super::sql::Sql;
use super::timestamp::PgTimestamp;
use crate::job::JobRecord;
use crate::store::list::{Place, Source};
use crate::store::{Cursor, JobFilter, List, Order, Page, StoreError};

/// 20,000 rows, a few tens of milliseconds: how far one call looks for jobs that match its filter …
const LOOK_MAX: usize = 20_000;
/// … at first 256, then four times as many each time: most pages are full soon.
const LOOK_FIRST: usize = 256;

/// Whether a row of `jobs` (as `j`) is what a filter asks for, by the [`FilterParams`].
pub(super) const MATCHES: &str = "coalesce(
            ($1::text[] IS NULL OR j.status = ANY ($1)) AND ($2::text[] IS NULL OR j.kind = ANY ($2))
            AND ($3::text[] IS NULL OR j.queue = ANY ($3)) AND ($4::text IS NULL OR j.group_key = $4)
            AND ($5::text IS NULL OR (j.worker = $5 AND j.lease_expires_at IS NOT NULL))
            AND ($6::timestamptz IS NULL OR j.finished_at >= $6) AND ($7::timestamptz IS NULL OR j.finished_at < $7)
            AND j.id >= $8::uuid AND j.id < $9::uuid
            AND ($10::bigint IS NULL OR (j.error_group = $10 AND j.died_at IS NOT NULL)), false)";

/// How long the texts of a row are. None of them is read for it.
pub(super) const TEXT_BYTES: &str = "(octet_length(j.payload) + coalesce(octet_length(j.result), 0)
            + coalesce(octet_length(j.last_error), 0))::bigint";

/// What is walked along: its name, and the rows `$12` of which are looked at, behind the id `$11`.
pub(super) type Walked = (&'static str, &'static str);

pub(super) const ALL: Walked = (
    "jobs",
    "SELECT j.id, j.created_at, MATCHES AS matches, TEXT_BYTES AS bytes
    FROM SCHEMA.jobs j
    WHERE j.id BEHIND $11 AND j.id >= $8 AND j.id < $9
    ORDER BY j.id DIRECTION
    LIMIT $12",
);

pub(super) const DEAD: Walked = (
    "dead letters",
    "SELECT j.id, j.created_at, MATCHES AS matches, TEXT_BYTES AS bytes
    FROM SCHEMA.jobs j
    WHERE j.died_at IS NOT NULL AND j.id BEHIND $11 AND j.id >= $8 AND j.id < $9
    ORDER BY j.id DIRECTION
    LIMIT $12",
);

pub(super) const ERROR: Walked = (
    "a group of errors",
    "SELECT j.id, j.created_at, MATCHES AS matches, TEXT_BYTES AS bytes
    FROM SCHEMA.jobs j
    WHERE j.error_group = $10 AND j.id BEHIND $11 AND j.id >= $8 AND j.id < $9
    ORDER BY j.error_group DIRECTION, j.id DIRECTION
    LIMIT $12",
);

pub(super) const KEY: Walked = (
    "the job with a key",
    "SELECT j.id, j.created_at, MATCHES AS matches, TEXT_BYTES AS bytes
    FROM SCHEMA.jobs j
    WHERE j.idempotency_key = $16 AND j.id BEHIND $11
    LIMIT $12",
);

pub(super) const RUNNING: Walked = (
    "running jobs",
    "SELECT n.id, j.created_at, MATCHES AS matches, coalesce(TEXT_BYTES, 0) AS bytes
    FROM (
        SELECT DISTINCT n.id
        FROM SCHEMA.lease_checks c CROSS JOIN LATERAL unnest(c.jobs) AS n(id)
        WHERE n.id BEHIND $11 AND n.id >= $8 AND n.id < $9
        ORDER BY n.id DIRECTION
        LIMIT $12
    ) n LEFT JOIN LATERAL (
        -- One by one: the planner might walk all jobs by id instead.
        SELECT j.* FROM SCHEMA.jobs j WHERE j.id = n.id AND j.lease_expires_at IS NOT NULL LIMIT 1
    ) j ON true",
);

const WALK: &str = "\
-- list of NAME: those behind an id, ORDER first
WITH looked AS MATERIALIZED (
    SELECT w.*, row_number() OVER (ORDER BY w.id DIRECTION) AS nth FROM (
    WALKED
    ) w
),
matched AS MATERIALIZED (
    SELECT m.id, m.nth, m.created_at,
           row_number() OVER (ORDER BY m.nth) AS place, sum(m.bytes) OVER (ORDER BY m.nth) AS total
    FROM (SELECT * FROM looked l WHERE l.matches ORDER BY l.nth OFFSET $13 LIMIT $14::bigint + 1) m
),
told AS (
    SELECT m.id, m.nth, m.created_at, m.place <= $14 AND (m.total <= $15::bigint OR m.place = 1) AS shown FROM matched m
    UNION ALL
    -- How far it was looked.
    (SELECT l.id, l.nth, l.created_at, NULL FROM looked l ORDER BY l.nth DESC LIMIT 1)
)
SELECT JOB_COLUMNS, t.id, t.nth, t.created_at, t.shown
FROM told t LEFT JOIN LATERAL (SELECT j.* FROM SCHEMA.jobs j WHERE j.id = t.id AND t.shown LIMIT 1) j ON true
ORDER BY t.shown IS NULL, t.nth";

/// The statement that walks along something, from an id on.
pub(super) fn walk((name, walked): Walked, order: Order) -> String {
    let (first, direction, behind) =
        if order == Order::Oldest { ("oldest", "ASC", ">") } else { ("newest", "DESC", "<") };
    let text = WALK.replace("NAME", name).replace("WALKED", walked).replace("ORDER first", &format!("{first} first"));
    // The parameter of the key is one of this statement alone.
    let text = if name == KEY.0 { text } else { text.replace("$16", "NULL") };
    text.replace("DIRECTION", direction).replace("BEHIND", behind)
}

/// A filter, as the parameters of [`MATCHES`].
pub(super) struct FilterParams<'f> {
    statuses: Option<Vec<&'f str>>,
    kinds: Option<Vec<&'f str>>,
    queues: Option<Vec<&'f str>>,
    group: Option<&'f str>,
    worker: Option<&'f str>,
    finished_after: Option<PgTimestamp>,
    finished_before: Option<PgTimestamp>,
    first: Uuid,
    end: Uuid,
    error: Option<i64>,
}

impl<'f> FilterParams<'f> {
    pub(super) fn new(filter: &'f JobFilter) -> Self {
        fn names<'t>(names: impl Iterator<Item = &'t str>) -> Option<Vec<&'t str>> {
            let names: Vec<_> = names.collect();
            Some(names).filter(|names| !names.is_empty())
        }
        let (first, end) = filter.ids();
        Self {
            statuses: names(filter.statuses.iter().map(|status| status.as_str())),
            kinds: names(filter.kinds.iter().map(|kind| kind.as_str())),
            queues: names(filter.queues.iter().map(|queue| queue.as_str())),
            group: filter.group.as_ref().map(|group| group.as_str()),
            worker: filter.worker.as_ref().map(|worker| worker.as_str()),
            finished_after: filter.finished_after.map(PgTimestamp::from),
            finished_before: filter.finished_before.map(PgTimestamp::from),
            first,
            end,
            error: filter.error,
        }
    }

    /// These, and others behind them.
    pub(super) fn and<'p>(&'p self, others: &[&'p (dyn ToSql + Sync)]) -> Vec<&'p (dyn ToSql + Sync)> {
        let own: [&(dyn ToSql + Sync); 10] = [
            &self.statuses,
            &self.kinds,
            &self.queues,
            &self.group,
            &self.worker,
            &self.finished_after,
            &self.finished_before,
            &self.first,
            &self.end,
            &self.error,
        ];
        own.into_iter().chain(others.iter().copied()).collect()
    }
}

fn statement(sql: &Sql, source: Source, is_upwards: bool) -> &str {
    match (source, is_upwards) {
        (Source::Key, _) => &sql.list_key,
        (Source::Dead, false) => &sql.list_dead,
        (Source::Dead, true) => &sql.list_dead_upwards,
        (Source::ErrorGroup, false) => &sql.list_error,
        (Source::ErrorGroup, true) => &sql.list_error_upwards,
        (Source::Running, false) => &sql.list_running,
        (Source::Running, true) => &sql.list_running_upwards,
        (_, false) => &sql.list_all,
        (_, true) => &sql.list_all_upwards,
    }
}

/// list: with a filter, one call looks at a bounded number of rows and says where to go on.
pub(super) async fn list(core: &Core, list: List) -> Result<Page, StoreError> {
    let Some(list) = list.explicit() else { return Ok(Page::empty()) };
    match list.source() {
        Source::Waiting => list_waiting::list(core, &list).await,
        source => walk_along(core, source, &list).await,
    }
}

async fn walk_along(core: &Core, source: Source, list: &List) -> Result<Page, StoreError> {
    // In the order of the key there is nothing.
    let is_upwards = list.order == Some(Order::Oldest) && source != Source::Key;
    let sql = statement(&core.sql, source, is_upwards);
    let look_max = LOOK_MAX.saturating_add(list.offset);
    // What the offset leaves out is counted by one statement.
    let mut looks = match (source, list.offset) {
        (Source::All, 0) if list.filter.is_a_range() => list.limit.saturating_add(1),
        (Source::Running | Source::Key, _) | (_, 1..) => look_max,
        _ => LOOK_FIRST.max(list.limit.saturating_add(1)),
    };
    let mut place = match &list.cursor {
        Some(Cursor(Place::Id(id))) => *id,
        _ if is_upwards => Uuid::nil(),
        _ => Uuid::max(),
    };
    let mut page = Page::empty();
    let mut bytes = 0;
    loop {
        looks = looks.min(look_max - page.looked);
        let left =
            Left { looks, offset: list.offset, limit: list.limit - page.jobs.len(), bytes: list.max_bytes - bytes };
        let found = look(core, sql, list, place, &left).await?;
        bytes += found.jobs.iter().map(JobRecord::text_bytes).sum::<usize>().min(left.bytes);
        page.jobs.extend(found.jobs);
        page.looked += found.looked;
        page.looked_to = found.looked_to.or(page.looked_to);
        let reached = match found.has_more {
            // Between the place and the next that matches there is nothing.
            true => found.listed.or(Some(place)),
            false => found.reached.filter(|_| found.looked >= looks),
        };
        let Some(reached) = reached else { return Ok(page) };
        if found.has_more || page.looked >= look_max {
            page.next = Some(Cursor(Place::Id(reached)));
            return Ok(page);
        }
        (place, looks) = (reached, looks.saturating_mul(4));
    }
}

/// What one statement may still look at and answer.
struct Left {
    looks: usize,
    offset: usize,
    limit: usize,
    bytes: usize,
}

/// What one statement found.
struct Found {
    jobs: Vec<JobRecord>,
    looked: usize,
    looked_to: Option<Timestamp>,
    /// The last that was looked at …
    reached: Option<Uuid>,
    /// … and the last that is on the page.
    listed: Option<Uuid>,
    /// There are more that match.
    has_more: bool,
}

async fn look(core: &Core, sql: &str, list: &List, place: Uuid, left: &Left) -> Result<Found, StoreError> {
    let filter = FilterParams::new(&list.filter);
    let (looks, offset, limit, bytes) = (count(left.looks), count(left.offset), count(left.limit), count(left.bytes));
    let mut params = filter.and(&[&place, &looks, &offset, &limit, &bytes]);
    if let Some(key) = &list.filter.key {
        params.push(key);
    }
    let rows = core.query("list", Effect::Repeatable, sql, &params).await?;
    decode("list", found(&rows))
}

fn found(rows: &[Row]) -> Result<Found, Error> {
    let mut found =
        Found { jobs: Vec::new(), looked: 0, looked_to: None, reached: None, listed: None, has_more: false };
    for row in rows {
        let (id, nth): (Uuid, i64) = (row.try_get(JOB_COLUMN_COUNT)?, row.try_get(JOB_COLUMN_COUNT + 1)?);
        match row.try_get::<_, Option<bool>>(JOB_COLUMN_COUNT + 3)? {
            // A row that makes no sense at all is left out; claiming it makes it a dead letter with the reason.
            Some(true) => {
                found.jobs.extend(row::job(row).ok());
                found.listed = Some(id);
            }
            Some(false) => found.has_more = true,
            None => {
                found.looked = nth.unsigned_abs() as usize;
                found.looked_to = row::time(row, JOB_COLUMN_COUNT + 2)?;
                found.reached = Some(id);
            }
        }
    }
    Ok(found)
}

pub(super) fn count(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}
