//! list: jobs by id, one way or the other, without ever walking the whole table. Those that wait are in `list_waiting`.

use jiff::Timestamp;
use rusqlite::{Connection, Row, ToSql, named_params};
use uuid::Uuid;

use super::jobs::job_with_id;
use super::list_waiting;
use super::row::{UuidBlob, timestamp};
use crate::job::{JobId, JobRecord};
use crate::store::list::{Place, Source};
use crate::store::{Cursor, JobFilter, List, Order, Page};

/// 20,000 rows, some tens of milliseconds: how far one call looks for jobs that match its filter.
const LOOK_MAX: usize = 20_000;

/// What [`Candidate`] reads, in its order; behind it, the fingerprint of the error.
macro_rules! candidate_columns {
    () => {
        "jobs.id, status, kind, queue, group_key, finished_at, \
         CASE WHEN lease_expires_at IS NOT NULL THEN worker END, created_at, jobs.seq"
    };
}
pub(super) use candidate_columns;

/// A row that may be what a filter asks for. Names are those of the row: they need not be valid.
pub(super) struct Candidate<'r>(pub(super) &'r Row<'r>);

impl Candidate<'_> {
    pub(super) fn id(&self) -> rusqlite::Result<Uuid> {
        self.0.get::<_, UuidBlob>(0).map(|id| id.0)
    }

    fn created_at(&self) -> rusqlite::Result<Timestamp> {
        self.0.get(7).map(timestamp)
    }

    pub(super) fn seq(&self) -> rusqlite::Result<i64> {
        self.0.get(8)
    }

    /// Whether it is what a filter asks for, apart from its key and its error.
    pub(super) fn matches(&self, filter: &JobFilter) -> rusqlite::Result<bool> {
        let text = |column: usize| self.0.get_ref(column).ok().and_then(|value| value.as_str().ok());
        let (first, end) = filter.ids();
        let id = self.id()?;
        let finished: Option<i64> = self.0.get(5)?;
        let finished = finished.map(timestamp);
        Ok(first <= id
            && id < end
            && any(&filter.statuses, text(1), |status| status.as_str())
            && any(&filter.kinds, text(2), |kind| kind.as_str())
            && any(&filter.queues, text(3), |queue| queue.as_str())
            && filter.group.as_ref().is_none_or(|group| text(4) == Some(group.as_str()))
            && filter.worker.as_ref().is_none_or(|worker| text(6) == Some(worker.as_str()))
            && filter.finished_after.is_none_or(|after| finished.is_some_and(|at| at >= after))
            && filter.finished_before.is_none_or(|before| finished.is_some_and(|at| at < before)))
    }
}

fn any<T>(wanted: &[T], text: Option<&str>, name: impl Fn(&T) -> &str) -> bool {
    wanted.is_empty() || wanted.iter().any(|wanted| text == Some(name(wanted)))
}

/// The statement that walks along a source, from a job or a row on.
fn walk_sql(source: Source, is_upwards: bool) -> String {
    let (behind, order) = if is_upwards { (">", "ASC") } else { ("<", "DESC") };
    let (from, key) = match source {
        Source::Dead => ("jobs INDEXED BY jobs_dead WHERE died_at IS NOT NULL", "id"),
        Source::Running => ("jobs INDEXED BY jobs_leased WHERE lease_expires_at IS NOT NULL", "id"),
        Source::ErrorGroup => {
            ("dead_groups AS g CROSS JOIN jobs ON jobs.seq = g.seq WHERE g.fingerprint = :error", "g.seq")
        }
        _ => ("jobs WHERE TRUE", "id"),
    };
    let ids = if source == Source::ErrorGroup { "" } else { "AND id >= :first AND id < :end" };
    format!(
        concat!(
            "-- list: jobs in the order of their ids\nSELECT ",
            candidate_columns!(),
            " FROM {} {} AND {} {} :place ORDER BY {} {} LIMIT :looks"
        ),
        from, ids, key, behind, key, order
    )
}

const BY_KEY: &str = concat!(
    "-- list: the job with an idempotency key\nSELECT ",
    candidate_columns!(),
    ", (SELECT g.fingerprint FROM dead_groups AS g WHERE g.seq = jobs.seq) FROM jobs WHERE idempotency_key = ?1"
);

pub(super) fn list(connection: &Connection, list: List, now_micros: i64) -> rusqlite::Result<Page> {
    let Some(list) = list.explicit() else { return Ok(Page::empty()) };
    let snapshot = connection.unchecked_transaction()?;
    match list.source() {
        Source::Waiting => list_waiting::list(&snapshot, &list, now_micros),
        Source::Key => with_key(&snapshot, &list),
        source => walk(&snapshot, source, &list),
    }
}

fn walk(snapshot: &Connection, source: Source, list: &List) -> rusqlite::Result<Page> {
    let is_upwards = list.order == Some(Order::Oldest);
    let look_max = LOOK_MAX.saturating_add(list.offset);
    let (first, end) = list.filter.ids();
    let (first, end) = (UuidBlob(first), UuidBlob(end));
    let error = list.filter.error;
    // The place, or before all there is.
    let (by_id, by_row);
    let place: &dyn ToSql = match (&list.cursor, source) {
        (Some(Cursor(Place::Row(row))), Source::ErrorGroup) => row,
        (_, Source::ErrorGroup) => {
            by_row = if is_upwards { i64::MIN } else { i64::MAX };
            &by_row
        }
        (Some(Cursor(Place::Id(id))), _) => {
            by_id = UuidBlob(*id);
            &by_id
        }
        _ => {
            by_id = UuidBlob(if is_upwards { Uuid::nil() } else { Uuid::max() });
            &by_id
        }
    };
    let looks = look_max as i64;
    let mut statement = snapshot.prepare_cached(&walk_sql(source, is_upwards))?;
    let mut rows = match source {
        Source::ErrorGroup => statement.query(named_params! { ":error": error, ":place": place, ":looks": looks })?,
        _ => statement.query(named_params! { ":first": first, ":end": end, ":place": place, ":looks": looks })?,
    };
    let mut page = Collected::new(list);
    while let Some(row) = rows.next()? {
        let row = Candidate(row);
        let place = match source {
            Source::ErrorGroup => Place::Row(row.seq()?),
            _ => Place::Id(row.id()?),
        };
        let matches = row.matches(&list.filter)?;
        if !page.add(snapshot, matches.then_some(row.id()?), place, row.created_at()?)? {
            return Ok(page.cut());
        }
    }
    let has_more = page.looked >= look_max;
    Ok(if has_more { page.cut_here() } else { page.all() })
}

fn with_key(snapshot: &Connection, list: &List) -> rusqlite::Result<Page> {
    let mut statement = snapshot.prepare_cached(BY_KEY)?;
    let mut rows = statement.query([&list.filter.key])?;
    let mut page = Collected::new(list);
    // It is found again behind no cursor.
    if let Some(row) = rows.next()?.filter(|_| list.cursor.is_none()) {
        let error: Option<i64> = row.get(9)?;
        let row = Candidate(row);
        let matches = row.matches(&list.filter)? && list.filter.error.is_none_or(|wanted| error == Some(wanted));
        page.add(snapshot, matches.then_some(row.id()?), Place::Id(row.id()?), row.created_at()?)?;
    }
    Ok(page.all())
}

/// A page while it is put together.
struct Collected<'l> {
    list: &'l List,
    jobs: Vec<JobRecord>,
    skipped: usize,
    bytes: usize,
    looked: usize,
    looked_to: Option<Timestamp>,
    /// The last row that was looked at …
    place: Option<Place>,
    /// … and that of the last job on the page.
    end: Option<Place>,
}

impl<'l> Collected<'l> {
    fn new(list: &'l List) -> Self {
        let (jobs, place, end) = (Vec::new(), None, None);
        Self { list, jobs, skipped: 0, bytes: 0, looked: 0, looked_to: None, place, end }
    }

    /// One more row, and its id if it matches; `false`: it is for the next page.
    fn add(
        &mut self,
        snapshot: &Connection,
        matching: Option<Uuid>,
        place: Place,
        created_at: Timestamp,
    ) -> rusqlite::Result<bool> {
        self.looked += 1;
        self.looked_to = Some(created_at);
        self.place = Some(place.clone());
        let Some(id) = matching else { return Ok(true) };
        if self.skipped < self.list.offset {
            self.skipped += 1;
            return Ok(true);
        }
        if self.jobs.len() >= self.list.limit {
            return Ok(false);
        }
        // A row that makes no sense at all is left out; claiming it makes it a dead letter with the reason.
        let Ok(Some(job)) = job_with_id(snapshot, JobId::from(id)) else { return Ok(true) };
        let bytes = job.text_bytes();
        if self.bytes.saturating_add(bytes) > self.list.max_bytes && !self.jobs.is_empty() {
            return Ok(false);
        }
        self.bytes += bytes;
        self.jobs.push(job);
        self.end = Some(place);
        Ok(true)
    }

    /// The page, with more behind its last job.
    fn cut(mut self) -> Page {
        self.place = self.end.take();
        self.cut_here()
    }

    /// The page, with more behind the last row that was looked at.
    fn cut_here(mut self) -> Page {
        let next = self.place.take().map(Cursor);
        Page { next, ..self.all() }
    }

    fn all(self) -> Page {
        Page { jobs: self.jobs, next: None, looked: self.looked, looked_to: self.looked_to }
    }
}

#[cfg(test)]
pub(super) fn every_statement() -> Vec<String> {
    let sources = [Source::All, Source::Dead, Source::Running, Source::ErrorGroup];
    let walks = sources.into_iter().flat_map(|source| [walk_sql(source, false), walk_sql(source, true)]);
    walks.chain([BY_KEY.to_owned()]).collect()
}
