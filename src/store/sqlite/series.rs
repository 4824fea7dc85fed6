//! write_series, series, prune_series: statistics by minute and hour.

use jiff::Timestamp;
use rusqlite::{Connection, Row, named_params, params};

use super::inbox::{Urgency, Verb};
use super::row::timestamp;
use super::transaction::Tx;
use crate::job::{Histogram, SeriesCounts, SeriesStep};
use crate::store::{PruneSeries, ReadSeries, SERIES_ROWS_MAX, SeriesRead, SeriesRow, added_up_to_hour, next_hour};

const WRITE: &str = "
-- write_series: what a process has counted so far, instead of what it had before
INSERT OR REPLACE INTO series (queue, kind, step, at, process, enqueued, started, succeeded, failed, dead, expired, lost,
                               wait, run)
VALUES (:queue, :kind, :step, :at, :process, :enqueued, :started, :succeeded, :failed, :dead, :expired, :lost, :wait, :run)";

macro_rules! read {
    ($of:literal, $order:literal) => {
        concat!(
            "
-- series: rows of a span of time, newest first
SELECT at, queue, kind, process, enqueued, started, succeeded, failed, dead, expired, lost, wait, run FROM series ",
            $of,
            " AND step = ?3 AND at >= ?4 AND at < ?5 ",
            $order,
            " LIMIT ?6"
        )
    };
}

/// Of one queue and kind: a range of the table.
const ONE: &str = read!("WHERE queue = ?1 AND kind = ?2", "ORDER BY at DESC");
/// Of each queue, or each kind: a range of the index by time.
const EACH: &str = read!(
    "INDEXED BY series_at WHERE (?1 IS NULL OR queue = ?1) AND (?2 IS NULL OR kind = ?2) \
     AND (?1 IS NOT NULL OR queue <> '*') AND (?2 IS NOT NULL OR kind <> '*')",
    "ORDER BY at DESC"
);

/// Behind it are minutes that are in no hour yet.
const ROLLED_UP: &str = "SELECT max(at) FROM series WHERE step = 3600";

const OLDEST_MINUTE: &str = "SELECT min(at) FROM series WHERE step = 60 AND at >= ?1";

const PRUNE: &str = "
-- prune_series: kept long enough → gone
DELETE FROM series WHERE (queue, kind, step, at, process) IN
    (SELECT queue, kind, step, at, process FROM series INDEXED BY series_at WHERE step = ?1 AND at < ?2 LIMIT ?3)";

const HOUR_MICROS: i64 = 3_600_000_000;

/// Minutes of a process.
pub(super) struct WriteSeries(pub(super) Vec<SeriesRow>);

impl Verb for WriteSeries {
    type Answer = ();
    const NAME: &'static str = "write_series";
    const URGENCY: Urgency = Urgency::Bulk;

    fn apply(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<()> {
        self.0.iter().try_for_each(|row| write(tx, SeriesStep::Minute, row))
    }

    fn weight(&self) -> usize {
        self.0.len()
    }

    fn needs_sync(&self) -> bool {
        // Statistics: a power cut may take the last of them.
        false
    }
}

fn write(tx: &Tx<'_>, step: SeriesStep, row: &SeriesRow) -> rusqlite::Result<()> {
    let counts = &row.counts;
    let n = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    tx.statement(WRITE)?.execute(named_params! {
        ":queue": row.stored_queue(),
        ":kind": row.stored_kind(),
        ":step": step.seconds(),
        ":at": row.at.as_microsecond(),
        ":process": row.process,
        ":enqueued": n(counts.enqueued),
        ":started": n(counts.started),
        ":succeeded": n(counts.succeeded),
        ":failed": n(counts.failed),
        ":dead": n(counts.dead),
        ":expired": n(counts.expired),
        ":lost": n(counts.lost),
        ":wait": counts.wait.to_bytes(),
        ":run": counts.run.to_bytes(),
    })?;
    Ok(())
}

pub(super) fn series(connection: &Connection, read: &ReadSeries, now_micros: i64) -> rusqlite::Result<SeriesRead> {
    let snapshot = connection.unchecked_transaction()?;
    let from = read.from.as_microsecond();
    let to = read.to.map_or(i64::MAX, Timestamp::as_microsecond);
    let mut rows = match read.step {
        SeriesStep::Minute => rows_of(&snapshot, read, SeriesStep::Minute, from, to)?,
        SeriesStep::Hour => {
            let rolled_up: Option<i64> = snapshot.query_row(ROLLED_UP, [], |row| row.get(0))?;
            let minutes_from = rolled_up.map_or(from, |hour| from.max(hour + HOUR_MICROS));
            let mut rows = rows_of(&snapshot, read, SeriesStep::Minute, minutes_from, to)?;
            rows.extend(rows_of(&snapshot, read, SeriesStep::Hour, from, to)?);
            rows
        }
    };
    rows.reverse();
    Ok(SeriesRead { rows, now: timestamp(now_micros) })
}

/// Newest first.
fn rows_of(
    snapshot: &Connection,
    read: &ReadSeries,
    step: SeriesStep,
    from: i64,
    to: i64,
) -> rusqlite::Result<Vec<SeriesRow>> {
    let (queue, kind) = read.of.stored();
    let sql = if queue.is_some() && kind.is_some() { ONE } else { EACH };
    let params = params![queue, kind, step.seconds(), from, to, SERIES_ROWS_MAX as i64];
    snapshot.prepare_cached(sql)?.query_map(params, row_of)?.collect()
}

fn row_of(row: &Row<'_>) -> rusqlite::Result<SeriesRow> {
    let n = |column| Ok::<_, rusqlite::Error>(row.get::<_, i64>(column)?.max(0) as u64);
    let histogram = |column| Ok::<_, rusqlite::Error>(Histogram::from_bytes(row.get_ref(column)?.as_blob()?));
    let mut counts = SeriesCounts::default();
    (counts.enqueued, counts.started, counts.succeeded) = (n(4)?, n(5)?, n(6)?);
    (counts.failed, counts.dead, counts.expired, counts.lost) = (n(7)?, n(8)?, n(9)?, n(10)?);
    (counts.wait, counts.run) = (histogram(11)?, histogram(12)?);
    let (queue, kind): (String, String) = (row.get(1)?, row.get(2)?);
    Ok(SeriesRow::stored(timestamp(row.get(0)?), &queue, &kind, row.get(3)?, counts))
}

const MINUTES_OF_HOUR: &str = "
-- prune_series: the minutes of an hour
SELECT at, queue, kind, process, enqueued, started, succeeded, failed, dead, expired, lost, wait, run
FROM series INDEXED BY series_at WHERE step = 60 AND at >= ?1 AND at < ?2 LIMIT ?3";

impl Verb for PruneSeries {
    type Answer = bool;
    const NAME: &'static str = "prune_series";
    const URGENCY: Urgency = Urgency::Bulk;

    fn apply(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<bool> {
        let rolled_up = self.roll_up(tx)?;
        let mut deleted = 0;
        for (step, keep) in [(SeriesStep::Minute, self.keep_minutes), (SeriesStep::Hour, self.keep_hours)] {
            let keep = i64::try_from(keep.as_micros()).unwrap_or(i64::MAX);
            let params = params![step.seconds(), tx.now_micros().saturating_sub(keep), self.limit as i64];
            deleted = tx.statement(PRUNE)?.execute(params)?.max(deleted);
        }
        Ok(rolled_up || deleted >= self.limit)
    }

    fn needs_sync(&self) -> bool {
        false
    }
}

impl PruneSeries {
    /// Adds up the next hour that has ended; `false` if there is none.
    fn roll_up(&self, tx: &Tx<'_>) -> rusqlite::Result<bool> {
        let last: Option<i64> = tx.statement(ROLLED_UP)?.query_row([], |row| row.get(0))?;
        let behind = last.map_or(i64::MIN, |hour| hour + HOUR_MICROS);
        let oldest: Option<i64> = tx.statement(OLDEST_MINUTE)?.query_row([behind], |row| row.get(0))?;
        let Some((from, to)) = next_hour(oldest.map(timestamp), timestamp(tx.now_micros())) else { return Ok(false) };
        let minutes: Vec<SeriesRow> = tx
            .statement(MINUTES_OF_HOUR)?
            .query_map(params![from.as_microsecond(), to.as_microsecond(), SERIES_ROWS_MAX as i64], row_of)?
            .collect::<Result<_, _>>()?;
        added_up_to_hour(from, minutes).iter().try_for_each(|row| write(tx, SeriesStep::Hour, row))?;
        Ok(true)
    }
}
