//! errors, error_group, snooze_errors, unsnooze_errors: groups of errors as operators see them: what was rolled up, and what
//! changed since. `dead_groups` counts them.

use jiff::Timestamp;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::audit::actor_params;
use super::core::{Core, decode};
use super::error::Effect;
use super::row;
use super::timestamp::PgTimestamp;
use crate::job::{AttemptOutcome, Fingerprint};
use crate::store::audit_entry::ActorColumns;
use crate::store::{
    ErrorPage, ErrorPart, ErrorRecord, ErrorSeen, ListErrors, SnoozeEnd, SnoozeErrors, Snoozed, StoreError,
    UnsnoozeErrors, added_up, error_page,
};

// One statement, so that all of it is of one moment. Groups are at most some 10,000 rows: see `ERROR_GROUPS_MAX`; the reaper
// keeps the changes few.
pub(super) const ERRORS: &str = "\
-- errors: a page of groups, those seen last first, with all that is counted of each
WITH part AS MATERIALIZED (
    SELECT g.fingerprint, g.queue, g.kind, g.outcome, g.title, g.dead, g.total, g.first_seen, g.last_seen, g.sample_job
    FROM SCHEMA.error_groups g
    WHERE ($1::text IS NULL OR g.kind = $1) AND ($2::text IS NULL OR g.queue = $2)
    UNION ALL
    SELECT d.fingerprint, d.queue, d.kind, coalesce(d.outcome, ''), coalesce(d.title, ''), d.dead, d.total,
           coalesce(d.at, now()), coalesce(d.at, 'epoch'), d.job_id
    FROM SCHEMA.error_deltas d
    WHERE ($1::text IS NULL OR d.kind = $1) AND ($2::text IS NULL OR d.queue = $2)
),
page AS MATERIALIZED (
    SELECT p.fingerprint, max(p.last_seen) AS seen
    FROM part p
    GROUP BY p.fingerprint
    HAVING max(p.outcome) <> ''
       AND ($3::timestamptz IS NULL OR max(p.last_seen) >= $3)
       AND ($4::boolean IS NULL OR $4 = (sum(p.dead) > 0))
       AND ($5::boolean IS NULL OR $5 = EXISTS (SELECT FROM SCHEMA.error_snoozes s
                                                WHERE s.fingerprint = p.fingerprint AND s.until > now()))
       AND ($6::timestamptz IS NULL OR (max(p.last_seen), p.fingerprint) < ($6, $7::bigint))
    ORDER BY seen DESC, p.fingerprint DESC
    LIMIT $8
)
SELECT p.*, s.until, s.note, s.snoozed_by, s.snoozed_at
FROM page g JOIN part p ON p.fingerprint = g.fingerprint
    LEFT JOIN SCHEMA.error_snoozes s ON s.fingerprint = g.fingerprint AND s.until > now()
ORDER BY g.seen DESC, g.fingerprint DESC, p.queue";

pub(super) const ERROR_GROUP: &str = "\
-- error_group: one group, with all that is counted of it
SELECT p.*, s.until, s.note, s.snoozed_by, s.snoozed_at
FROM (
    SELECT g.fingerprint, g.queue, g.kind, g.outcome, g.title, g.dead, g.total, g.first_seen, g.last_seen, g.sample_job
    FROM SCHEMA.error_groups g
    WHERE g.fingerprint = $1
    UNION ALL
    SELECT d.fingerprint, d.queue, d.kind, coalesce(d.outcome, ''), coalesce(d.title, ''), d.dead, d.total,
           coalesce(d.at, now()), coalesce(d.at, 'epoch'), d.job_id
    FROM SCHEMA.error_deltas d
    WHERE d.fingerprint = $1
) p LEFT JOIN SCHEMA.error_snoozes s ON s.fingerprint = p.fingerprint AND s.until > now()
ORDER BY p.queue";

pub(super) const SNOOZE_ERRORS: &str = "\
-- snooze_errors: until $2, or for $3 from now
WITH known AS MATERIALIZED (SELECT SNOOZE_JSON AS shown FROM SCHEMA.error_snoozes s WHERE s.fingerprint = $1),
snoozed AS (
INSERT INTO SCHEMA.error_snoozes AS s (fingerprint, until, note, snoozed_by, snoozed_at)
SELECT $1::bigint, coalesce($2::timestamptz, now() + $3::bigint * interval '1 microsecond'), $4::text, $5::text, now()
WHERE EXISTS (SELECT FROM SCHEMA.error_groups g WHERE g.fingerprint = $1)
   OR EXISTS (SELECT FROM SCHEMA.error_deltas d WHERE d.fingerprint = $1)
ON CONFLICT (fingerprint) DO UPDATE
    SET until = excluded.until, note = excluded.note, snoozed_by = excluded.snoozed_by, snoozed_at = excluded.snoozed_at
RETURNING s.fingerprint, SNOOZE_JSON AS shown
)
AUDIT_INTO (at, token_id, token_name, request_id, remote, action, target, before, after, count)
SELECT now(), $6::text, $7::text, $8::text, $9::text, 'snooze', 'error:' || lpad(to_hex(s.fingerprint), 16, '0'),
       (SELECT k.shown FROM known k), s.shown, 1
FROM snoozed s";

pub(super) const UNSNOOZE_ERRORS: &str = "\
-- unsnooze_errors
WITH ended AS (
    DELETE FROM SCHEMA.error_snoozes s WHERE s.fingerprint = $1
    RETURNING s.fingerprint, s.until > now() AS was_on, SNOOZE_JSON AS shown
),
audited AS (
    AUDIT_INTO (at, token_id, token_name, request_id, remote, action, target, before, count)
    SELECT now(), $2::text, $3::text, $4::text, $5::text, 'unsnooze', 'error:' || lpad(to_hex(e.fingerprint), 16, '0'), e.shown, 1
    FROM ended e WHERE e.was_on
)
SELECT e.was_on FROM ended e";

pub(super) const FORGET_ERRORS: &str = "\
-- prune: groups of errors that were not seen for long, and snoozes that have ended
WITH old AS MATERIALIZED (
    SELECT g.fingerprint, g.queue
    FROM SCHEMA.error_groups g
    WHERE g.dead = 0 AND g.last_seen < now() - $1::bigint * interval '1 microsecond'
    LIMIT 1000
    FOR UPDATE SKIP LOCKED
),
ended AS MATERIALIZED (
    SELECT s.fingerprint FROM SCHEMA.error_snoozes s WHERE s.until <= now() LIMIT 1000 FOR UPDATE SKIP LOCKED
),
forgotten AS (
    DELETE FROM SCHEMA.error_snoozes s USING ended e WHERE s.fingerprint = e.fingerprint
)
DELETE FROM SCHEMA.error_groups g USING old o WHERE g.fingerprint = o.fingerprint AND g.queue = o.queue";

pub(super) async fn errors(core: &Core, list: ListErrors) -> Result<ErrorPage, StoreError> {
    let after = list.after.map(|after| (PgTimestamp::from(after.last_seen), after.fingerprint.as_i64()));
    let params: [&(dyn ToSql + Sync); 8] = [
        &list.kind.as_ref().map(|kind| kind.as_str()),
        &list.queue.as_ref().map(|queue| queue.as_str()),
        &list.since.map(PgTimestamp::from),
        &list.dead,
        &list.snoozed,
        &after.map(|(seen, _)| seen),
        &after.map(|(_, fingerprint)| fingerprint),
        &(list.limit.saturating_add(1) as i64),
    ];
    let rows = core.query("errors", Effect::Repeatable, &core.sql.errors, &params).await?;
    Ok(error_page(decode("errors", parts(&rows))?, list.limit))
}

pub(super) async fn error_group(core: &Core, fingerprint: Fingerprint) -> Result<Option<ErrorRecord>, StoreError> {
    let params: [&(dyn ToSql + Sync); 1] = [&fingerprint.as_i64()];
    let rows = core.query("error_group", Effect::Repeatable, &core.sql.error_group, &params).await?;
    Ok(added_up(decode("error_group", parts(&rows))?).pop())
}

pub(super) async fn snooze_errors(core: &Core, snooze: SnoozeErrors) -> Result<Option<ErrorRecord>, StoreError> {
    let (until, wait) = match snooze.end {
        SnoozeEnd::At(time) => (Some(PgTimestamp::from(time)), None),
        SnoozeEnd::After(wait) => (None, Some(row::micros(wait))),
    };
    let name = snooze.by.as_ref().map(|actor| actor.token_name.as_str());
    let by = ActorColumns::of(snooze.by.as_ref());
    let [token_id, token_name, request_id, remote] = actor_params(&by);
    let fingerprint = snooze.fingerprint.as_i64();
    let params: [&(dyn ToSql + Sync); 9] =
        [&fingerprint, &until, &wait, &snooze.note, &name, token_id, token_name, request_id, remote];
    core.query("snooze_errors", Effect::Once, &core.sql.snooze_errors, &params).await?;
    error_group(core, snooze.fingerprint).await
}

pub(super) async fn unsnooze_errors(core: &Core, unsnooze: UnsnoozeErrors) -> Result<bool, StoreError> {
    let by = ActorColumns::of(unsnooze.by.as_ref());
    let [token_id, token_name, request_id, remote] = actor_params(&by);
    let fingerprint = unsnooze.fingerprint.as_i64();
    let params: [&(dyn ToSql + Sync); 5] = [&fingerprint, token_id, token_name, request_id, remote];
    let rows = core.query("unsnooze_errors", Effect::Once, &core.sql.unsnooze_errors, &params).await?;
    rows.first().map_or(Ok(false), |row| decode("unsnooze_errors", row.try_get(0)))
}

fn parts(rows: &[Row]) -> Result<Vec<ErrorPart>, tokio_postgres::Error> {
    rows.iter().map(part).collect()
}

fn part(row: &Row) -> Result<ErrorPart, tokio_postgres::Error> {
    let time = |column| Ok(row.try_get::<_, PgTimestamp>(column)?.timestamp());
    let outcome: &str = row.try_get(3)?;
    let seen = match outcome {
        "" => None,
        outcome => Some(ErrorSeen {
            outcome: outcome.parse().unwrap_or(AttemptOutcome::Failed),
            title: row.try_get(4)?,
            first: time(7)?,
            last: time(8)?,
            job: row.try_get::<_, Option<_>>(9)?.map(row::id),
        }),
    };
    let until: Option<Timestamp> = row::time(row, 10)?;
    let snoozed = match until {
        Some(until) => Some(Snoozed { until, note: row.try_get(11)?, by: row.try_get(12)?, at: time(13)? }),
        None => None,
    };
    Ok(ErrorPart {
        fingerprint: Fingerprint::from_i64(row.try_get(0)?),
        queue: row::queue(row.try_get(1)?),
        kind: row::kind(row.try_get(2)?),
        seen,
        dead: row.try_get(5)?,
        total: row.try_get(6)?,
        snoozed,
    })
}
