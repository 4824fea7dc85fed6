//! errors, error_group, snooze_errors, unsnooze_errors: groups of errors as operators see them. `dead_groups` counts them.

use rusqlite::{Connection, OptionalExtension, Row, params};

use super::audit;
use super::inbox::{Urgency, Verb};
use super::row::{UuidBlob, micros, timestamp};
use super::transaction::Tx;
use crate::job::limits::ERROR_GROUP_KEPT;
use crate::job::{AttemptOutcome, Fingerprint, JobId, Kind, QueueName};
use crate::store::audit_entry::AuditEntry;
use crate::store::{
    ErrorPage, ErrorPart, ErrorRecord, ErrorSeen, ListErrors, SnoozeEnd, SnoozeErrors, Snoozed, UnsnoozeErrors,
    added_up, error_page,
};

// Groups are at most some 10,000 rows: see `ERROR_GROUPS_MAX`.
pub(super) const ERRORS: &str = "
-- errors: a page of groups, those seen last first, with all that is counted of each
SELECT g.fingerprint, g.queue, g.kind, g.outcome, g.title, g.dead, g.total, g.first_seen, g.last_seen, g.sample_job,
       s.until, s.note, s.snoozed_by, s.snoozed_at
FROM (
    SELECT e.fingerprint, max(e.last_seen) AS seen
    FROM error_groups e
    WHERE (?1 IS NULL OR e.kind = ?1) AND (?2 IS NULL OR e.queue = ?2)
      AND (?6 IS NULL OR ?6 = EXISTS (SELECT 1 FROM error_snoozes s WHERE s.fingerprint = e.fingerprint AND s.until > ?9))
    GROUP BY e.fingerprint
    HAVING (?3 IS NULL OR max(e.last_seen) >= ?3) AND (?5 IS NULL OR ?5 = (sum(e.dead) > 0))
       AND (?4 IS NULL OR (max(e.last_seen), e.fingerprint) < (?4, ?7))
    ORDER BY seen DESC, e.fingerprint DESC
    LIMIT ?8
) p JOIN error_groups g ON g.fingerprint = p.fingerprint AND (?2 IS NULL OR g.queue = ?2)
    LEFT JOIN error_snoozes s ON s.fingerprint = p.fingerprint AND s.until > ?9
ORDER BY p.seen DESC, p.fingerprint DESC, g.queue";

pub(super) const ERROR_GROUP: &str = "
-- error_group: one group, with all that is counted of it
SELECT g.fingerprint, g.queue, g.kind, g.outcome, g.title, g.dead, g.total, g.first_seen, g.last_seen, g.sample_job,
       s.until, s.note, s.snoozed_by, s.snoozed_at
FROM error_groups g LEFT JOIN error_snoozes s ON s.fingerprint = g.fingerprint AND s.until > ?2
WHERE g.fingerprint = ?1 ORDER BY g.queue";

pub(super) fn errors(connection: &Connection, list: &ListErrors, now_micros: i64) -> rusqlite::Result<ErrorPage> {
    let mut statement = connection.prepare_cached(ERRORS)?;
    let params = params![
        list.kind.as_ref().map(Kind::as_str),
        list.queue.as_ref().map(QueueName::as_str),
        list.since.map(micros),
        list.after.map(|after| micros(after.last_seen)),
        list.dead,
        list.snoozed,
        list.after.map(|after| after.fingerprint.as_i64()),
        list.limit.saturating_add(1) as i64,
        now_micros,
    ];
    let parts = statement.query_map(params, read_part)?.collect::<Result<_, _>>()?;
    Ok(error_page(parts, list.limit))
}

pub(super) fn error_group(
    connection: &Connection,
    fingerprint: Fingerprint,
    now_micros: i64,
) -> rusqlite::Result<Option<ErrorRecord>> {
    let mut statement = connection.prepare_cached(ERROR_GROUP)?;
    let parts = statement.query_map([fingerprint.as_i64(), now_micros], read_part)?.collect::<Result<_, _>>()?;
    Ok(added_up(parts).pop())
}

fn read_part(row: &Row<'_>) -> rusqlite::Result<ErrorPart> {
    let (queue, kind, outcome): (String, String, String) = (row.get(1)?, row.get(2)?, row.get(3)?);
    let until: Option<i64> = row.get(10)?;
    let snoozed = match until {
        Some(until) => {
            Some(Snoozed { until: timestamp(until), note: row.get(11)?, by: row.get(12)?, at: timestamp(row.get(13)?) })
        }
        None => None,
    };
    Ok(ErrorPart {
        fingerprint: Fingerprint::from_i64(row.get(0)?),
        queue: QueueName::new(queue).unwrap_or_else(|_| QueueName::default()),
        kind: Kind::new(kind).unwrap_or_else(|_| Kind::unknown()),
        seen: Some(ErrorSeen {
            outcome: outcome.parse().unwrap_or(AttemptOutcome::Failed),
            title: row.get(4)?,
            first: timestamp(row.get(7)?),
            last: timestamp(row.get(8)?),
            job: Some(JobId::from(row.get::<_, UuidBlob>(9)?.0)),
        }),
        dead: row.get(5)?,
        total: row.get(6)?,
        snoozed,
    })
}

const SNOOZE: &str = "
-- snooze_errors
INSERT INTO error_snoozes (fingerprint, until, note, snoozed_by, snoozed_at) VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (fingerprint) DO UPDATE SET until = excluded.until, note = excluded.note, snoozed_by = excluded.snoozed_by,
    snoozed_at = excluded.snoozed_at";

impl Verb for SnoozeErrors {
    type Answer = Option<ErrorRecord>;
    const NAME: &'static str = "snooze_errors";
    const URGENCY: Urgency = Urgency::Urgent;

    fn apply(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<Option<ErrorRecord>> {
        let (fingerprint, now) = (self.fingerprint, tx.now_micros());
        if error_group(tx.connection(), fingerprint, now)?.is_none() {
            return Ok(None);
        }
        let until = match self.end {
            SnoozeEnd::After(wait) => now.saturating_add(i64::try_from(wait.as_micros()).unwrap_or(i64::MAX)),
            SnoozeEnd::At(time) => micros(time),
        };
        let by = self.by.as_ref().map(|actor| actor.token_name.as_str());
        let before = snoozed(tx, fingerprint)?;
        tx.statement(SNOOZE)?.execute(params![fingerprint.as_i64(), until, self.note, by, now])?;
        let entry = AuditEntry::new("snooze", format!("error:{fingerprint}"), self.by.as_ref());
        audit::record(tx, &entry.before(before).after(snoozed(tx, fingerprint)?))?;
        error_group(tx.connection(), fingerprint, now)
    }
}

impl Verb for UnsnoozeErrors {
    type Answer = bool;
    const NAME: &'static str = "unsnooze_errors";
    const URGENCY: Urgency = Urgency::Urgent;

    fn apply(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<bool> {
        let before = snoozed(tx, self.fingerprint)?;
        let sql = "DELETE FROM error_snoozes WHERE fingerprint = ?1 RETURNING until > ?2";
        let key = [self.fingerprint.as_i64(), tx.now_micros()];
        let was_on = tx.statement(sql)?.query_row(key, |row| row.get(0)).optional()?.unwrap_or(false);
        if was_on {
            let entry = AuditEntry::new("unsnooze", format!("error:{}", self.fingerprint), self.by.as_ref());
            audit::record(tx, &entry.before(before))?;
        }
        Ok(was_on)
    }
}

/// A snooze as the audit shows it.
fn snoozed(tx: &Tx<'_>, fingerprint: Fingerprint) -> rusqlite::Result<Option<serde_json::Value>> {
    let sql = "SELECT until, note FROM error_snoozes WHERE fingerprint = ?1";
    let shown = |row: &Row<'_>| {
        let (until, note): (_, Option<String>) = (timestamp(row.get(0)?), row.get(1)?);
        Ok(match note {
            Some(note) => serde_json::json!({ "until": until, "note": note }),
            None => serde_json::json!({ "until": until }),
        })
    };
    tx.statement(sql)?.query_row([fingerprint.as_i64()], shown).optional()
}

/// 1,000 rows at once: some milliseconds.
const FORGOTTEN_MAX: i64 = 1_000;

/// Forgets groups that have had no dead letters for long, and snoozes that have ended, a bounded number. Part of a pass of prune.
pub(super) fn forget_errors(tx: &mut Tx<'_>) -> rusqlite::Result<()> {
    let long_ago = tx.now_micros().saturating_sub(ERROR_GROUP_KEPT.as_micros() as i64);
    tx.statement(
        "-- prune: groups of errors that were not seen for long
         DELETE FROM error_groups WHERE (fingerprint, queue) IN
             (SELECT fingerprint, queue FROM error_groups WHERE dead = 0 AND last_seen < ?1 LIMIT ?2)",
    )?
    .execute([long_ago, FORGOTTEN_MAX])?;
    tx.statement(
        "-- prune: snoozes that have ended
         DELETE FROM error_snoozes WHERE fingerprint IN (SELECT fingerprint FROM error_snoozes WHERE until <= ?1 LIMIT ?2)",
    )?
    .execute([tx.now_micros(), FORGOTTEN_MAX])?;
    Ok(())
}
