//! step_operation: the next jobs of an operation are changed, and its cursor and tally with them, in one transaction.

use std::sync::Arc;
use std::time::Duration;

use rusqlite::types::Value;
use rusqlite::{OptionalExtension, params};

use super::inbox::{Urgency, Verb};
use super::jobs::{FoundJob, cancel, delete, find, redrive};
use super::lanes::{Lane, Position};
use super::operation_jobs::{JobSource, Look, look};
use super::operations::{OPERATION_COLUMN_COUNT, operation_columns, read_operation, write_operation};
use super::row::{UuidBlob, micros, timestamp};
use super::transaction::Tx;
use crate::job::operation::{Action, OPERATION_LOOK_MAX, OPERATION_STEP_MAX};
use crate::job::{JobId, Status};
use crate::planted::{Bug, planted};
use crate::store::{Cancelled, Deleted, LookBudget, NextStep, OperationRecord, OperationStep, Redriven, StepDone};

/// The request of `step_operation`.
pub(super) struct StepOperation;

const DUE: &str = concat!(
    "-- step_operation: the one that has been due for longest; or the clock was ahead when it was last changed
     SELECT ",
    operation_columns!(),
    ", cursor FROM operations WHERE state = 'running' AND (next_step_at <= ?1 OR updated_at > ?1 + 1000000)
     ORDER BY next_step_at LIMIT 1"
);

impl Verb for StepOperation {
    type Answer = OperationStep;
    const NAME: &'static str = "step_operation";
    const URGENCY: Urgency = Urgency::Bulk;

    fn weight(&self) -> usize {
        OPERATION_STEP_MAX
    }

    fn apply(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<OperationStep> {
        let due = tx
            .statement(DUE)?
            .query_row([tx.now_micros()], |row| Ok((read_operation(row)?, row.get(OPERATION_COLUMN_COUNT)?)))
            .optional()?;
        let taken = match due {
            Some((operation, cursor)) => Some(step(tx, operation, cursor)?),
            None => None,
        };
        let next: Option<i64> = tx
            .statement("SELECT min(next_step_at) FROM operations WHERE state = 'running'")?
            .query_row([], |row| row.get(0))?;
        let next_in = next.map(|at| Duration::from_micros(at.saturating_sub(tx.now_micros()).max(0) as u64));
        Ok(OperationStep { taken, next_in })
    }
}

fn step(tx: &mut Tx<'_>, operation: OperationRecord, cursor: Value) -> rusqlite::Result<OperationRecord> {
    let now = timestamp(tx.now_micros());
    let stepped = match operation.next_step() {
        NextStep::LookAtCanary => {
            let mut statuses = Vec::new();
            for id in &operation.canary_jobs {
                statuses.extend(find(tx, *id)?.map(|job| job.status));
            }
            operation.after_look(&statuses, now)
        }
        NextStep::Change(wanted) => {
            let (done, cursor) = change(tx, &operation, wanted, cursor)?;
            tx.statement("UPDATE operations SET cursor = ?2 WHERE id = ?1")?
                .execute(params![UuidBlob(*operation.id.as_uuid()), cursor])?;
            operation.after(done, now)
        }
    };
    write_operation(tx, &stepped)?;
    Ok(stepped)
}

/// Changes the next jobs that are meant. Answers what it did and where it stands.
fn change(
    tx: &mut Tx<'_>,
    operation: &OperationRecord,
    wanted: usize,
    cursor: Value,
) -> rusqlite::Result<(StepDone, Value)> {
    let source = JobSource::of(&operation.selection);
    let forgets = planted(Bug::RedrivenInCircles);
    let mut cursor = if cursor == Value::Null || forgets { source.start() } else { cursor };
    let cutoff = if forgets { i64::MAX } else { micros(operation.cutoff) };
    let (mut done, mut ids) = (StepDone::default(), Vec::new());
    let mut budget = LookBudget::new(wanted, OPERATION_LOOK_MAX);
    'enough: while let Some(rows) = budget.take() {
        let at = Look { selection: &operation.selection, cutoff, rows };
        let looked_at = look(tx.connection(), source, &at, &cursor)?;
        done.exhausted = looked_at.len() < rows;
        for row in looked_at {
            if row.is_meant && ids.len() == wanted {
                done.exhausted = false;
                break 'enough;
            }
            done.looked_at += 1;
            cursor = row.cursor;
            if row.is_meant {
                ids.push(row.id);
            }
        }
        if done.exhausted {
            break;
        }
    }
    let answers = tx.each(&ids, |tx, id| act(tx, &operation.action, *id))?;
    for (id, answer) in ids.into_iter().zip(answers) {
        match answer {
            Ok(true) => done.changed.push(id),
            Ok(false) => done.unchanged += 1,
            Err(_) => done.failed += 1,
        }
    }
    Ok((done, cursor))
}

/// Does it to one job. `false`: its status does not allow it.
fn act(tx: &mut Tx<'_>, action: &Action, id: JobId) -> rusqlite::Result<bool> {
    match action {
        Action::Redrive => Ok(matches!(redrive(tx, id)?.0, Redriven::Queued(_))),
        Action::Cancel => Ok(matches!(cancel(tx, id)?.0, Cancelled::Now | Cancelled::Requested)),
        Action::Delete => Ok(matches!(delete(tx, id)?.0, Deleted::Gone)),
        Action::Reprioritize(priority) => put_elsewhere(tx, id, |lane| lane.priority = *priority),
        Action::Move(queue) => put_elsewhere(tx, id, |lane| lane.queue = queue.as_str().into()),
    }
}

/// A waiting job waits in another lane from now on.
fn put_elsewhere(tx: &mut Tx<'_>, id: JobId, change: impl FnOnce(&mut Lane)) -> rusqlite::Result<bool> {
    let Some(FoundJob { seq, lane, status, .. }) = find(tx, id)? else { return Ok(false) };
    if !matches!(status, Status::Queued | Status::Retrying) {
        return Ok(false);
    }
    let mut elsewhere = lane.clone();
    change(&mut elsewhere);
    if elsewhere == lane {
        return Ok(false);
    }
    let run_at: i64 = tx
        .statement(
            "-- reprioritize, move: queued, retrying → the same, in another lane
             UPDATE jobs SET queue = ?2, priority = ?3, updated_at = ?4 WHERE seq = ?1 RETURNING run_at",
        )?
        .query_row(params![seq, elsewhere.queue, elsewhere.priority, tx.now_micros()], |row| row.get(0))?;
    tx.moved(&lane, Some(status), None);
    tx.moved(&elsewhere, None, Some(status));
    tx.has_ended(&lane)?;
    tx.look_again([Arc::new(lane)])?;
    tx.add_waiting(elsewhere, Position { run_at, id: *id.as_uuid() })?;
    Ok(true)
}
