//! What few jobs have, in a row of its own beside theirs: a cost, a deadline of the start, a unique key (ADR 17), a hook that
//! its producer named (ADR 20), a trace. The mark in the job's row says whether there is one.

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, params};
use serde::{Deserialize, Serialize};

use super::row::{micros, timestamp};
use super::transaction::Tx;
use crate::job::{HookName, NewJob, TraceContext, Unique, UniqueWhile};

/// As users are shown it, and the deadline that claims look at.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct JobOptions {
    pub(super) cost: Option<u32>,
    pub(super) start_by: Option<Timestamp>,
    pub(super) unique: Option<Unique>,
    pub(super) notify: Option<HookName>,
    pub(super) trace: Option<TraceContext>,
    /// `None` once it has started.
    pub(super) start_deadline: Option<i64>,
}

/// The column `shown`. Times are microseconds.
#[derive(Default, Serialize, Deserialize)]
struct Shown {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cost: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    start_by: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    unique: Option<Unique>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    notify: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    trace: Option<String>,
}

/// `unique_while`: the key is free once the job has started, has ended, or once its window has passed.
const WHILE_WAITING: i64 = 0;
const WHILE_UNFINISHED: i64 = 1;
const FOR_A_WINDOW: i64 = 2;

const OPTIONS: &str = "SELECT shown, start_deadline FROM job_options WHERE seq = ?1";

impl JobOptions {
    pub(super) fn read(connection: &Connection, seq: i64) -> rusqlite::Result<Option<Self>> {
        let row = connection.prepare_cached(OPTIONS)?.query_row([seq], |row| {
            let shown: String = row.get(0)?;
            Ok(Self { start_deadline: row.get(1)?, ..Self::shown(&shown) })
        });
        row.optional()
    }

    /// Text that makes no sense shows nothing.
    pub(super) fn shown(text: &str) -> Self {
        let shown: Shown = serde_json::from_str(text).unwrap_or_default();
        let start_by = shown.start_by.map(timestamp);
        Self {
            cost: shown.cost,
            start_by,
            unique: shown.unique,
            notify: shown.notify.and_then(|name| HookName::new(name).ok()),
            trace: shown.trace.as_deref().and_then(TraceContext::from_stored),
            start_deadline: None,
        }
    }
}

const ADD: &str = "
-- enqueue: what few jobs have, beside the job
INSERT INTO job_options (seq, shown, cost, start_deadline, unique_key, unique_while, unique_until)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";

/// Of a job that was stored in this transaction.
pub(super) fn add_options(tx: &Tx<'_>, seq: i64, job: &NewJob) -> rusqlite::Result<()> {
    let now = tx.now_micros();
    let start_by = job.start_by().map(|by| micros(by.time(timestamp(now))));
    let unique = job.unique();
    let (notify, trace) = (job.notify().map(ToString::to_string), job.trace().map(TraceContext::stored_text));
    let shown = Shown { cost: job.cost(), start_by, unique: unique.cloned(), notify, trace };
    let shown = serde_json::to_string(&shown).map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))?;
    let unique_while = unique.map(|unique| match (unique.for_ms, unique.while_) {
        (Some(_), _) => FOR_A_WINDOW,
        (None, UniqueWhile::Unfinished) => WHILE_UNFINISHED,
        (None, _) => WHILE_WAITING,
    });
    let until = unique.and_then(|unique| unique.for_ms).map(|ms| now.saturating_add(ms.saturating_mul(1_000)));
    tx.statement(ADD)?.execute(params![seq, shown, job.cost(), start_by, stored_key(job), unique_while, until])?;
    Ok(())
}

/// As it is stored: keys of different kinds are different.
pub(super) fn stored_key(job: &NewJob) -> Option<String> {
    job.unique().map(|unique| format!("{}/{}", job.kind(), unique.key))
}

const STARTED: &str = "
-- claim: the deadline of the start is kept, and a key that was for waiting is free
UPDATE job_options SET start_deadline = NULL, unique_key = CASE unique_while WHEN 0 THEN NULL ELSE unique_key END
WHERE seq = ?1 AND (start_deadline IS NOT NULL OR (unique_while = 0 AND unique_key IS NOT NULL))";

const ENDED: &str = "
-- settle, reap, cancel: nothing is waited for, and its key is free unless that has a window
UPDATE job_options SET start_deadline = NULL, unique_key = CASE WHEN unique_while < 2 THEN NULL ELSE unique_key END
WHERE seq = ?1";

const REDRIVEN: &str = "
-- redrive: the deadline of the start is no more
UPDATE job_options SET start_deadline = NULL, shown = json_remove(shown, '$.start_by') WHERE seq = ?1";

/// The job has started.
pub(super) fn options_started(tx: &Tx<'_>, seq: i64) -> rusqlite::Result<()> {
    tx.statement(STARTED)?.execute([seq]).map(drop)
}

/// The job has ended.
pub(super) fn options_ended(tx: &Tx<'_>, seq: i64) -> rusqlite::Result<()> {
    tx.statement(ENDED)?.execute([seq]).map(drop)
}

/// The job is queued again.
pub(super) fn options_redriven(tx: &Tx<'_>, seq: i64) -> rusqlite::Result<()> {
    tx.statement(REDRIVEN)?.execute([seq]).map(drop)
}

/// The job is gone.
pub(super) fn delete_options(tx: &Tx<'_>, seq: i64) -> rusqlite::Result<()> {
    tx.statement("DELETE FROM job_options WHERE seq = ?1")?.execute([seq]).map(drop)
}

/// Who has a unique key.
const HOLDER: &str = "SELECT seq, unique_until FROM job_options WHERE unique_key = ?1";

/// The row of the job that has a unique key. One whose window has passed loses it.
pub(super) fn key_holder(tx: &Tx<'_>, key: &str) -> rusqlite::Result<Option<i64>> {
    let holder = tx.statement(HOLDER)?.query_row([key], |row| Ok((row.get(0)?, row.get::<_, Option<i64>>(1)?)));
    let Some((seq, until)) = holder.optional()? else { return Ok(None) };
    if until.is_some_and(|until| until <= tx.now_micros()) {
        tx.statement("UPDATE job_options SET unique_key = NULL WHERE seq = ?1")?.execute([seq])?;
        return Ok(None);
    }
    Ok(Some(seq))
}
