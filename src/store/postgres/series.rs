//! write_series, series, prune_series: statistics by minute and hour.

use jiff::Timestamp;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::core::{Core, decode};
use super::error::Effect;
use super::row;
use super::timestamp::PgTimestamp;
use crate::job::limits::BATCH_MAX;
use crate::job::{Histogram, SeriesCounts, SeriesStep};
use crate::store::{
    PruneSeries, ReadSeries, SERIES_ROWS_MAX, SeriesRead, SeriesRow, StoreError, added_up_to_hour, next_hour,
};

pub(super) const WRITE_SERIES: &str = "\
-- write_series: what a process has counted so far, instead of what it had before
INSERT INTO SCHEMA.series AS s (queue, kind, step, at, process, enqueued, started, succeeded, failed, dead, expired, lost,
    wait, run)
SELECT g.queue, g.kind, $1::integer, g.at, g.process, g.enqueued, g.started, g.succeeded, g.failed, g.dead, g.expired,
       g.lost, g.wait, g.run
FROM unnest($2::text[], $3::text[], $4::timestamptz[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[], $9::bigint[],
            $10::bigint[], $11::bigint[], $12::bigint[], $13::bytea[], $14::bytea[])
    AS g(queue, kind, at, process, enqueued, started, succeeded, failed, dead, expired, lost, wait, run)
-- In one order: two processes may add up the same hour.
ORDER BY g.queue, g.kind, g.at
ON CONFLICT (queue, kind, step, at, process) DO UPDATE SET
    enqueued = excluded.enqueued, started = excluded.started, succeeded = excluded.succeeded, failed = excluded.failed,
    dead = excluded.dead, expired = excluded.expired, lost = excluded.lost, wait = excluded.wait, run = excluded.run";

macro_rules! columns {
    () => {
        "s.at, s.queue, s.kind, s.process, s.enqueued, s.started, s.succeeded, s.failed, s.dead, s.expired, s.lost, s.wait, \
         s.run, now()"
    };
}

pub(super) const SERIES_OF_ONE: &str = concat!(
    "-- series: of one queue and kind, newest first\nSELECT ",
    columns!(),
    " FROM SCHEMA.series s
WHERE s.queue = $1 AND s.kind = $2 AND s.step = $3::integer AND s.at >= $4 AND s.at < $5
ORDER BY s.at DESC LIMIT $6"
);

pub(super) const SERIES_OF_EACH: &str = concat!(
    "-- series: of each queue, or of each kind, newest first\nSELECT ",
    columns!(),
    " FROM SCHEMA.series s
WHERE s.step = $3::integer AND s.at >= $4 AND s.at < $5
  AND CASE WHEN $1::text IS NULL THEN s.queue <> '*' ELSE s.queue = $1 END
  AND CASE WHEN $2::text IS NULL THEN s.kind <> '*' ELSE s.kind = $2 END
ORDER BY s.at DESC LIMIT $6"
);

pub(super) const SERIES_HOUR: &str = "\
-- series: the last hour that was added up, and the oldest minute behind it
SELECT l.at, (SELECT s.at FROM SCHEMA.series s
              WHERE s.step = 60 AND s.at >= coalesce(l.at + interval '1 hour', '-infinity') ORDER BY s.at LIMIT 1), now()
FROM (SELECT (SELECT s.at FROM SCHEMA.series s WHERE s.step = 3600 ORDER BY s.at DESC LIMIT 1) AS at) l";

pub(super) const SERIES_MINUTES: &str = concat!(
    "-- prune_series: the minutes of an hour\nSELECT ",
    columns!(),
    " FROM SCHEMA.series s WHERE s.step = 60 AND s.at >= $1 AND s.at < $2 LIMIT $3"
);

pub(super) const PRUNE_SERIES: &str = "\
-- prune_series: kept long enough → gone
WITH old AS MATERIALIZED (
    SELECT s.ctid AS at FROM SCHEMA.series s
    WHERE s.step = $1::integer AND s.at < now() - $2::bigint * interval '1 microsecond'
    ORDER BY s.at LIMIT $3 FOR UPDATE SKIP LOCKED
)
DELETE FROM SCHEMA.series s WHERE s.ctid = ANY (ARRAY(SELECT o.at FROM old o))
RETURNING 1";

pub(super) async fn write_series(core: &Core, rows: Vec<SeriesRow>) -> Result<(), StoreError> {
    write(core, "write_series", SeriesStep::Minute, &rows).await
}

async fn write(core: &Core, verb: &'static str, step: SeriesStep, rows: &[SeriesRow]) -> Result<(), StoreError> {
    for rows in rows.chunks(BATCH_MAX) {
        let step = step.seconds() as i32;
        let names = |name: fn(&SeriesRow) -> &str| rows.iter().map(name).collect::<Vec<_>>();
        let counts = |n: fn(&SeriesCounts) -> u64| {
            rows.iter().map(|row| i64::try_from(n(&row.counts)).unwrap_or(i64::MAX)).collect::<Vec<_>>()
        };
        let histograms =
            |of: fn(&SeriesCounts) -> &Histogram| rows.iter().map(|row| of(&row.counts).to_bytes()).collect::<Vec<_>>();
        let at: Vec<PgTimestamp> = rows.iter().map(|row| PgTimestamp::from(row.at)).collect();
        let processes: Vec<i64> = rows.iter().map(|row| row.process).collect();
        let params: [&(dyn ToSql + Sync); 14] = [
            &step,
            &names(SeriesRow::stored_queue),
            &names(SeriesRow::stored_kind),
            &at,
            &processes,
            &counts(|counts| counts.enqueued),
            &counts(|counts| counts.started),
            &counts(|counts| counts.succeeded),
            &counts(|counts| counts.failed),
            &counts(|counts| counts.dead),
            &counts(|counts| counts.expired),
            &counts(|counts| counts.lost),
            &histograms(|counts| &counts.wait),
            &histograms(|counts| &counts.run),
        ];
        core.query(verb, Effect::Repeatable, &core.sql.write_series, &params).await?;
    }
    Ok(())
}

pub(super) async fn series(core: &Core, read: ReadSeries) -> Result<SeriesRead, StoreError> {
    let from = PgTimestamp::from(read.from);
    let hours = hours(core, "series").await?;
    let mut rows = match read.step {
        SeriesStep::Minute => rows_of(core, &read, SeriesStep::Minute, from).await?,
        SeriesStep::Hour => {
            let behind = hours.last.map(|hour| PgTimestamp::from(hour + HOUR));
            let minutes_from = behind.map_or(from, |behind| behind.max(from));
            let mut rows = rows_of(core, &read, SeriesStep::Minute, minutes_from).await?;
            rows.extend(rows_of(core, &read, SeriesStep::Hour, from).await?);
            rows
        }
    };
    rows.reverse();
    Ok(SeriesRead { rows, now: hours.now })
}

const HOUR: jiff::SignedDuration = jiff::SignedDuration::from_hours(1);

/// How far minutes have been added up.
struct Hours {
    last: Option<Timestamp>,
    oldest_minute: Option<Timestamp>,
    now: Timestamp,
}

async fn hours(core: &Core, verb: &'static str) -> Result<Hours, StoreError> {
    let rows = core.query(verb, Effect::Repeatable, &core.sql.series_hour, &[]).await?;
    let Some(found) = rows.first() else {
        return Ok(Hours { last: None, oldest_minute: None, now: core.now().await? });
    };
    let read = || Ok((row::time(found, 0)?, row::time(found, 1)?, found.try_get::<_, PgTimestamp>(2)?));
    let (last, oldest_minute, now) = decode(verb, read())?;
    Ok(Hours { last, oldest_minute, now: now.timestamp() })
}

/// Newest first.
async fn rows_of(
    core: &Core,
    read: &ReadSeries,
    step: SeriesStep,
    from: PgTimestamp,
) -> Result<Vec<SeriesRow>, StoreError> {
    let (queue, kind) = read.of.stored();
    let sql = if queue.is_some() && kind.is_some() { &core.sql.series_of_one } else { &core.sql.series_of_each };
    let to = read.to.map_or(PgTimestamp::MAX, PgTimestamp::from);
    let (step, limit) = (step.seconds() as i32, SERIES_ROWS_MAX as i64);
    let params: [&(dyn ToSql + Sync); 6] = [&queue, &kind, &step, &from, &to, &limit];
    let rows = core.query("series", Effect::Repeatable, sql, &params).await?;
    rows.iter().map(|row| decode("series", row_of(row))).collect()
}

fn row_of(row: &Row) -> Result<SeriesRow, tokio_postgres::Error> {
    let n = |column| row.try_get::<_, i64>(column).map(|n| n.max(0) as u64);
    let histogram = |column| row.try_get::<_, &[u8]>(column).map(Histogram::from_bytes);
    let mut counts = SeriesCounts::default();
    (counts.enqueued, counts.started, counts.succeeded) = (n(4)?, n(5)?, n(6)?);
    (counts.failed, counts.dead, counts.expired, counts.lost) = (n(7)?, n(8)?, n(9)?, n(10)?);
    (counts.wait, counts.run) = (histogram(11)?, histogram(12)?);
    let at: PgTimestamp = row.try_get(0)?;
    Ok(SeriesRow::stored(at.timestamp(), row.try_get(1)?, row.try_get(2)?, row.try_get(3)?, counts))
}

pub(super) async fn prune_series(core: &Core, prune: PruneSeries) -> Result<bool, StoreError> {
    let rolled_up = roll_up(core).await?;
    let (limit, mut deleted) = (i64::try_from(prune.limit).unwrap_or(i64::MAX), 0);
    for (step, keep) in [(SeriesStep::Minute, prune.keep_minutes), (SeriesStep::Hour, prune.keep_hours)] {
        // 2^52 µs, 142 years: what is longer, a time may not hold.
        let (step, keep) = (step.seconds() as i32, row::micros(keep).min(1 << 52));
        let params: [&(dyn ToSql + Sync); 3] = [&step, &keep, &limit];
        let rows = core.query("prune_series", Effect::Repeatable, &core.sql.prune_series, &params).await?;
        deleted = rows.len().max(deleted);
    }
    Ok(rolled_up || deleted >= prune.limit)
}

/// Adds up the next hour that has ended; `false` if there is none. Not in one transaction: an hour that has ended does not
/// change any more, and whoever adds it up as well writes the same.
async fn roll_up(core: &Core) -> Result<bool, StoreError> {
    let hours = hours(core, "prune_series").await?;
    let Some((from, to)) = next_hour(hours.oldest_minute, hours.now) else { return Ok(false) };
    let (since, until) = (PgTimestamp::from(from), PgTimestamp::from(to));
    let params: [&(dyn ToSql + Sync); 3] = [&since, &until, &(SERIES_ROWS_MAX as i64)];
    let rows = core.query("prune_series", Effect::Repeatable, &core.sql.series_minutes, &params).await?;
    let minutes = rows.iter().map(|row| decode("prune_series", row_of(row))).collect::<Result<_, _>>()?;
    write(core, "prune_series", SeriesStep::Hour, &added_up_to_hour(from, minutes)).await?;
    Ok(true)
}
