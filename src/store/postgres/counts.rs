//! Counts per queue and status, and per kind as well. Every transaction that moves jobs appends what it changed; no transaction waits for
//! another. Now and then the oldest changes are added up. Nothing ever counts jobs.
//!
//! Changes that are added up are deleted, and stay in the way for as long as some snapshot can see them. So a process
//! remembers up to where there are none left (ADR 12). That is only known of transactions that have ended, so the mark
//! never passes one that has not. It is taken from the server's own transaction ids, which go on from where they were
//! except when a server is replaced by one that lacks its last moments; hence a look from the beginning now and then.

use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use deadpool_postgres::Object;
use tokio::time::timeout;

use super::core::Core;
use super::error::{DbError, Effect, Retries};
use crate::planted::{Bug, planted};
use crate::store::StoreError;

pub(super) const CHANGE_MARK: &str = "\
-- change_mark: whose changes of the counts and of the groups of errors may be left, at or above $1: the oldest that are, or that may come
SELECT least((SELECT d.xid FROM SCHEMA.count_deltas d WHERE d.xid >= $1::text::xid8 ORDER BY d.xid LIMIT 1),
             (SELECT d.xid FROM SCHEMA.error_deltas d WHERE d.xid >= $1::text::xid8 ORDER BY d.xid LIMIT 1),
             pg_snapshot_xmin(pg_current_snapshot()))::text";

pub(super) const ROLL_UP: &str = "\
-- roll_up: the oldest changes of the counts → counts, kind_counts
WITH oldest AS MATERIALIZED (
    SELECT d.ctid AS at
    FROM SCHEMA.count_deltas d
    WHERE d.xid >= $2::text::xid8
    ORDER BY d.xid
    LIMIT $1
    FOR UPDATE SKIP LOCKED
),
taken AS (
    -- Where they were a moment ago: they are locked, and no change is ever changed.
    DELETE FROM SCHEMA.count_deltas d WHERE d.ctid = ANY (ARRAY(SELECT o.at FROM oldest o))
    RETURNING d.queue, d.kind, d.was, d.is_now, d.n
),
summed AS MATERIALIZED (
    SELECT t.kind, t.queue, side.status, sum(side.n) AS n
    FROM taken t CROSS JOIN LATERAL (VALUES (t.was, -t.n), (t.is_now, t.n)) AS side(status, n)
    WHERE side.status IS NOT NULL
    GROUP BY t.kind, t.queue, side.status
    HAVING sum(side.n) <> 0
),
added AS (
    INSERT INTO SCHEMA.counts AS c (queue, status, n)
    SELECT s.queue, s.status, sum(s.n)
    FROM summed s
    GROUP BY s.queue, s.status
    HAVING sum(s.n) <> 0
    ORDER BY s.queue, s.status
    ON CONFLICT (queue, status) DO UPDATE SET n = c.n + excluded.n
),
added_by_kind AS (
    INSERT INTO SCHEMA.kind_counts AS c (kind, queue, status, n)
    SELECT s.kind, s.queue, s.status, s.n
    FROM summed s
    ORDER BY s.kind, s.queue, s.status
    ON CONFLICT (kind, queue, status) DO UPDATE SET n = c.n + excluded.n
)
SELECT count(*) FROM taken";

/// 20,000 changes in one step: some tens of milliseconds.
const STEP: i64 = 20_000;

/// 8 steps in one go: more than all processes together append between two visits of one reaper.
const STEPS_MAX: usize = 8;

/// 1 min: how long a change may stay unseen that a replaced server has put below a mark.
const SCAN_INTERVAL: Duration = Duration::from_secs(60);
/// 1/20 of the time at most goes into looking from the beginning, however slow that has become.
const SCAN_SHARE: u32 = 20;
/// Below every transaction.
const BEGINNING: &str = "0";

/// Up to where this process knows that no change is left.
pub(super) struct ChangeMark {
    state: Mutex<MarkState>,
    is_used: bool,
}

#[derive(Default)]
struct MarkState {
    /// A transaction id of the server's, as text: only the server compares them.
    mark: Option<String>,
    last_scan: Option<(Instant, Duration)>,
}

impl ChangeMark {
    pub(super) fn new(is_used: bool) -> Self {
        Self { state: Mutex::default(), is_used: is_used && !planted(Bug::MarksIgnored) }
    }

    /// Raises the mark to where it can be by now, and answers it.
    pub(super) async fn raised(&self, core: &Core, connection: &Object) -> Result<String, DbError> {
        let (from, began) = (self.from(Instant::now()), Instant::now());
        let statement = connection.prepare_cached(&core.sql.change_mark).await?;
        let mark: String = connection.query_one(&statement, &[&from]).await?.try_get(0)?;
        let mut state = self.lock();
        if from == BEGINNING {
            state.last_scan = Some((Instant::now(), began.elapsed()));
        }
        // Two looks at once: either mark holds, whichever is kept.
        state.mark = Some(mark.clone());
        Ok(mark)
    }

    fn from(&self, now: Instant) -> String {
        let state = self.lock();
        let overdue = |(at, took): (Instant, Duration)| now - at >= SCAN_INTERVAL.max(took * SCAN_SHARE);
        match &state.mark {
            Some(mark) if self.is_used && !state.last_scan.is_none_or(overdue) => mark.clone(),
            _ => BEGINNING.into(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, MarkState> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// Adds the oldest changes up, a bounded number of them.
pub(super) async fn roll_up(core: &Core) -> Result<(), StoreError> {
    // Each step is a transaction that takes what it adds, so a second one adds something else.
    let mut retries = Retries::new("roll_up", Effect::Repeatable);
    for _ in 0..STEPS_MAX {
        match try_roll_up(core).await {
            Ok(taken) if taken < STEP => break,
            Ok(_) => (),
            Err(error) => retries.again(error).await?,
        }
    }
    Ok(())
}

async fn try_roll_up(core: &Core) -> Result<i64, DbError> {
    let connection = core.pool.get().await?;
    let work = async {
        let mark = core.change_mark.raised(core, &connection).await?;
        let statement = connection.prepare_cached(&core.sql.roll_up).await?;
        let taken: i64 = connection.query_one(&statement, &[&STEP, &mark]).await?.try_get(0)?;
        let statement = connection.prepare_cached(&core.sql.roll_up_errors).await?;
        let errors: i64 = connection.query_one(&statement, &[&STEP, &mark]).await?.try_get(0)?;
        Ok(taken.max(errors))
    };
    let answer = timeout(connection.timeout(), work).await;
    connection.finish(answer)
}
