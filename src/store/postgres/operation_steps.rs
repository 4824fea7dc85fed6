//! step_operation: the next jobs of an operation are changed, and its cursor and tally with them, in one transaction.

use std::time::Duration;

use deadpool_postgres::Transaction;
use tokio::time::timeout;
use tokio_postgres::Row;
use uuid::Uuid;

use super::core::Core;
use super::error::{DbError, Effect, Retries};
use super::lanes::{Lane, LanePosition};
use super::operation_jobs::{JobSource, Look, look_sql};
use super::operations::{OPERATION_COLUMN_COUNT, operation_columns, operation_from, write_operation};
use super::row;
use super::schedules::in_transaction;
use super::timestamp::PgTimestamp;
use crate::job::operation::{Action, OPERATION_LOOK_MAX};
use crate::job::{JobId, Status};
use crate::planted::{Bug, planted};
use crate::store::{LookBudget, NextStep, OperationRecord, OperationStep, StepDone, StoreError};

pub(super) const DUE_OPERATION: &str = concat!(
    "-- step_operation: the one that has been due for longest; who holds it now has been first
SELECT ",
    operation_columns!(),
    ", o.cursor, now() FROM SCHEMA.operations o
WHERE o.state = 'running' AND (o.next_step_at <= now() OR o.updated_at > now() + interval '1 second')
ORDER BY o.next_step_at LIMIT 1
FOR UPDATE SKIP LOCKED"
);

pub(super) const NEXT_OPERATION: &str = "\
-- step_operation: when the next step of any is due
SELECT extract(epoch FROM min(o.next_step_at) - now())::float8 FROM SCHEMA.operations o WHERE o.state = 'running'";

pub(super) const CANARY_STATUSES: &str = "\
-- step_operation: what became of the jobs that were tried first
SELECT j.status FROM SCHEMA.jobs j WHERE j.id = ANY ($1)";

/// A waiting job waits in another lane from now on. `$2` is its queue, `$3` its priority; null: as it was.
pub(super) const PUT_ELSEWHERE: &str = "\
-- reprioritize, move: queued, retrying → the same, in another lane
WITH was AS MATERIALIZED (
    SELECT j.id, j.queue, j.status FROM SCHEMA.jobs j
    WHERE j.id = ANY ($1::uuid[]) AND j.status IN ('queued', 'retrying')
      AND (j.queue <> coalesce($2::text, j.queue) OR j.priority <> coalesce($3::smallint, j.priority))
    ORDER BY j.id
    FOR UPDATE OF j
),
put AS (
    -- The end of the lease is cleared although it is clear: see cancel.
    UPDATE SCHEMA.jobs j
    SET queue = coalesce($2, j.queue), priority = coalesce($3, j.priority), lease_expires_at = NULL, updated_at = now()
    FROM was w WHERE j.id = w.id
    RETURNING j.id, j.queue, j.kind, j.priority, j.group_key, j.run_at, j.status, w.queue AS was_in
),
moved AS (
    SELECT p.was_in AS queue, p.kind, p.status::text AS was, NULL AS is_now FROM put p WHERE p.was_in <> p.queue
    UNION ALL
    SELECT p.queue, p.kind, NULL, p.status::text FROM put p WHERE p.was_in <> p.queue
),
COUNTED
SELECT p.id, p.queue, p.kind, p.priority, p.group_key, p.run_at,
       extract(epoch FROM p.run_at - now())::float8 FROM put p";

pub(super) async fn step_operation(core: &Core) -> Result<OperationStep, StoreError> {
    let stepped: Result<Stepped, StoreError> = in_transaction!(core, "step_operation", |tx| try_step(core, &tx));
    let stepped = stepped?;
    if stepped.operation.as_ref().is_some_and(|operation| operation.action == Action::Cancel) {
        // What was behind them in strict groups.
        core.jobs_may_start();
    }
    if !stepped.waiting.is_empty() {
        for job in stepped.waiting {
            core.lower_lane(job.lane, job.group.as_deref());
        }
        core.notifier.notify();
    }
    Ok(OperationStep { taken: stepped.operation, next_in: stepped.next_in })
}

/// A job that waits now because of a step.
struct Waiting {
    lane: LanePosition,
    group: Option<String>,
}

#[derive(Default)]
struct Stepped {
    operation: Option<OperationRecord>,
    next_in: Option<Duration>,
    waiting: Vec<Waiting>,
}

async fn try_step(core: &Core, tx: &Transaction<'_>) -> Result<Stepped, DbError> {
    let due = tx.prepare_cached(&core.sql.due_operation).await?;
    let mut stepped = Stepped::default();
    if let Some(found) = tx.query_opt(&due, &[]).await? {
        let operation = operation_from(&found)?;
        let cursor: Option<Uuid> = found.try_get(OPERATION_COLUMN_COUNT)?;
        let now = row::time(&found, OPERATION_COLUMN_COUNT + 1)?.unwrap_or_default();
        let (operation, cursor) = match operation.next_step() {
            NextStep::LookAtCanary => (operation.clone().after_look(&canary(core, tx, &operation).await?, now), None),
            NextStep::Change(wanted) => {
                let (done, cursor) = change(core, tx, &operation, wanted, cursor, &mut stepped.waiting).await?;
                (operation.after(done, now), Some(cursor))
            }
        };
        write_operation(core, tx, &operation, cursor).await?;
        stepped.operation = Some(operation);
    }
    let next = tx.prepare_cached(&core.sql.next_operation).await?;
    let seconds: Option<f64> = tx.query_one(&next, &[]).await?.try_get(0)?;
    stepped.next_in = seconds.map(|seconds| Duration::from_secs_f64(seconds.clamp(0.0, 3600.0)));
    Ok(stepped)
}

async fn canary(core: &Core, tx: &Transaction<'_>, operation: &OperationRecord) -> Result<Vec<Status>, DbError> {
    let ids: Vec<Uuid> = operation.canary_jobs.iter().map(|id| *id.as_uuid()).collect();
    let statement = tx.prepare_cached(&core.sql.canary_statuses).await?;
    let rows = tx.query(&statement, &[&ids]).await?;
    rows.iter().map(|row| Ok(row::status(row.try_get(0)?))).collect()
}

/// Changes the next jobs that are meant. Answers what it did and where it stands.
async fn change(
    core: &Core,
    tx: &Transaction<'_>,
    operation: &OperationRecord,
    wanted: usize,
    cursor: Option<Uuid>,
    waiting: &mut Vec<Waiting>,
) -> Result<(StepDone, Uuid), DbError> {
    let forgets = planted(Bug::RedrivenInCircles);
    let cutoff = if forgets { operation.cutoff + Duration::from_secs(86_400) } else { operation.cutoff };
    let look = Look::new(&operation.selection, Some(cutoff));
    let statement = tx.prepare_cached(look_sql(&core.sql, JobSource::of(&operation.selection))).await?;
    let mut cursor = cursor.filter(|_| !forgets).unwrap_or(Uuid::nil());
    let (mut done, mut ids) = (StepDone::default(), Vec::<Uuid>::new());
    let mut budget = LookBudget::new(wanted, OPERATION_LOOK_MAX);
    'enough: while let Some(limit) = budget.take() {
        let (from, limit) = (cursor, limit as i64);
        let looked_at = tx.query(&statement, &look.params(&from, &limit)).await?;
        done.exhausted = (looked_at.len() as i64) < limit;
        for row in &looked_at {
            let is_meant = row.try_get::<_, Option<bool>>(1)?.unwrap_or(false);
            if is_meant && ids.len() == wanted {
                done.exhausted = false;
                break 'enough;
            }
            done.looked_at += 1;
            cursor = row.try_get(0)?;
            if is_meant {
                ids.push(cursor);
            }
        }
        if done.exhausted {
            break;
        }
    }
    if !ids.is_empty() {
        let lock = tx.prepare_cached(&core.sql.lock_meant).await?;
        let locked = tx.query(&lock, &look.params(&ids, &0_i64)).await?;
        done.unchanged += (ids.len() - locked.len()) as u64;
        let ids = locked.iter().map(|row| row.try_get(0)).collect::<Result<Vec<Uuid>, _>>()?;
        act(core, tx, &operation.action, &ids, &mut done, waiting).await?;
    }
    Ok((done, cursor))
}

/// Does it to all of them; if one row is at fault, to each of the others.
async fn act(
    core: &Core,
    tx: &Transaction<'_>,
    action: &Action,
    ids: &[Uuid],
    done: &mut StepDone,
    waiting: &mut Vec<Waiting>,
) -> Result<(), DbError> {
    if ids.is_empty() {
        return Ok(());
    }
    match attempt(core, tx, action, ids).await? {
        Some(acted) => acted.note(ids.len(), done, waiting),
        None => {
            for id in ids {
                match attempt(core, tx, action, std::slice::from_ref(id)).await? {
                    Some(acted) => acted.note(1, done, waiting),
                    None => done.failed += 1,
                }
            }
        }
    }
    Ok(())
}

/// What an action has done to some jobs.
#[derive(Default)]
struct Acted {
    changed: Vec<JobId>,
    waiting: Vec<Waiting>,
}

impl Acted {
    fn note(self, asked: usize, done: &mut StepDone, waiting: &mut Vec<Waiting>) {
        done.unchanged += (asked - self.changed.len()) as u64;
        done.changed.extend(self.changed);
        waiting.extend(self.waiting);
    }
}

/// `None`: a row breaks the rules of its table, and nothing was changed.
async fn attempt(core: &Core, tx: &Transaction<'_>, action: &Action, ids: &[Uuid]) -> Result<Option<Acted>, DbError> {
    tx.batch_execute("SAVEPOINT some_jobs").await?;
    match run(core, tx, action, ids).await {
        Ok(acted) => {
            tx.batch_execute("RELEASE some_jobs").await?;
            Ok(Some(acted))
        }
        Err(error) if error.is_rejected() => {
            tx.batch_execute("ROLLBACK TO some_jobs; RELEASE some_jobs").await?;
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

async fn run(core: &Core, tx: &Transaction<'_>, action: &Action, ids: &[Uuid]) -> Result<Acted, DbError> {
    let ids = ids.to_vec();
    let mut acted = Acted::default();
    match action {
        Action::Redrive => {
            let statement = tx.prepare_cached(&core.sql.redrive_lanes).await?;
            for row in tx.query(&statement, &[&ids]).await? {
                acted.waits(&row)?;
            }
        }
        Action::Cancel => {
            let statement = tx.prepare_cached(&core.sql.cancel_unaudited).await?;
            for row in tx.query(&statement, &[&ids]).await? {
                acted.changed_if(&row, |status| !status.is_terminal())?;
            }
        }
        Action::Delete => {
            let statement = tx.prepare_cached(&core.sql.delete_unaudited).await?;
            for row in tx.query(&statement, &[&ids]).await? {
                acted.changed_if(&row, Status::is_terminal)?;
            }
        }
        Action::Reprioritize(_) | Action::Move(_) => {
            let statement = tx.prepare_cached(&core.sql.put_elsewhere).await?;
            let (queue, priority) = match action {
                Action::Move(queue) => (Some(queue.as_str()), None),
                Action::Reprioritize(priority) => (None, Some(*priority)),
                _ => (None, None),
            };
            for row in tx.query(&statement, &[&ids, &queue, &priority]).await? {
                acted.waits(&row)?;
            }
        }
    }
    Ok(acted)
}

impl Acted {
    /// The row of a job that waits now: id, queue, kind, priority, group, run_at, and how long until then in seconds.
    fn waits(&mut self, row: &Row) -> Result<(), DbError> {
        let Some(id) = row.try_get::<_, Option<Uuid>>(0)? else { return Ok(()) };
        let lane = Lane { queue: row.try_get(1)?, kind: row.try_get(2)?, priority: row.try_get(3)? };
        let run_at: PgTimestamp = row.try_get(5)?;
        let wait = Duration::from_secs_f64(row.try_get::<_, f64>(6)?.clamp(0.0, 1e9));
        self.changed.push(JobId::from(id));
        self.waiting.push(Waiting { lane: LanePosition(lane, (run_at, id), wait), group: row.try_get(4)? });
        Ok(())
    }

    /// The row of a job and the status that it had.
    fn changed_if(&mut self, row: &Row, is_changed: impl Fn(Status) -> bool) -> Result<(), DbError> {
        if is_changed(row::status(row.try_get(1)?)) {
            self.changed.push(row::id(row.try_get(0)?));
        }
        Ok(())
    }
}
