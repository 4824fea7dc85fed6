//! Outcomes from workers. Every item gets a verdict of its own: one lost lease never keeps the others back.

use std::time::Duration;

use axum::Extension;
use axum::extract::State;

use super::access::Caller;
use super::extract::{JsonBody, JsonResponse, ok};
use super::leases::at_most_a_batch;
use super::problem::Problem;
use super::state::{Api, run_to_completion};
use super::wire::duration;
use super::{lease_token, metrics, wire, worker_registry};
use crate::job::limits::{ERROR_GROUP_MAX_CHARS, SCHEDULE_HORIZON};
use crate::job::{Failure, JobId, Json, LeaseKey, Outcome, WorkerId};
use crate::store::{PerItem, Settle, Settled};

/// Report how attempts went
///
/// The same report again gets the same answer; one for a lease that was lost changes nothing.
#[utoipa::path(
    post, path = "/leases/settle", tag = "workers", operation_id = "settle",
    request_body = wire::Settlement,
    responses((status = 200, description = "one verdict per outcome, in the order sent", body = wire::SettlementAnswer),
        (status = 413), (status = 415), (status = 422)),
)]
pub(super) async fn settle(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    body: JsonBody<wire::Settlement>,
) -> Result<JsonResponse<wire::SettlementAnswer>, Problem> {
    let settlement = body.value;
    let worker = WorkerId::new(&settlement.worker)?;
    at_most_a_batch("outcomes", settlement.outcomes.len())?;
    let ids: Vec<_> = settlement.outcomes.iter().map(|outcome| outcome.job_id).collect();
    let (mut settles, mut refused) = (Vec::new(), Vec::new());
    for (index, report) in settlement.outcomes.into_iter().enumerate() {
        let token = lease_token::read(&report.lease_token, &caller);
        let job_id = JobId::from(report.job_id);
        match read_outcome(report) {
            Ok(outcome) => {
                settles.push(token.map(|token| Settle::new(LeaseKey { job_id, token }, outcome)));
            }
            Err(detail) => refused.push(wire::ItemError { index, detail }),
        }
    }
    if !refused.is_empty() {
        return Err(Problem::batch(refused));
    }
    worker_registry::settled(&api, &caller, &worker);
    let known = settles.iter().flatten().cloned().collect();
    let memory = body.memory;
    let answers = run_to_completion(&api, |api| async move {
        let _held = memory;
        api.queue.settle(known).await
    });
    let mut answers = verdicts(answers.await?)?.into_iter();
    let verdicts = settles.iter().map(|settle| settle.as_ref().and_then(|_| answers.next()).unwrap_or("lost"));
    let outcomes: Vec<_> =
        ids.into_iter().zip(verdicts).map(|(job_id, status)| wire::SettledView { job_id, status }).collect();
    metrics::leases_lost(outcomes.iter().filter(|outcome| outcome.status == "lost").count());
    Ok(ok(wire::SettlementAnswer { outcomes }))
}

/// If the store could not say for some, the caller sends all again: what is on record is answered the same way.
fn verdicts(answers: PerItem<Settled>) -> Result<Vec<&'static str>, Problem> {
    let verdict = |answer| match answer {
        Ok(Settled::Recorded) => Ok("recorded"),
        Ok(Settled::Lost) => Ok("lost"),
        Err(error) if crate::store::StoreError::is_retryable(&error) => Err(Problem::from(error)),
        Err(error) => {
            // Sending it again cannot help; its lease will expire. The others must not suffer.
            tracing::error!(?error, "an outcome cannot be recorded");
            Ok("lost")
        }
    };
    answers?.into_iter().map(verdict).collect()
}

fn read_outcome(report: wire::OutcomeReport) -> Result<Outcome, String> {
    use wire::ReportedOutcome;
    let sent = report.outcome;
    let misplaced = [
        ("result", report.result.is_some(), sent == ReportedOutcome::Succeeded),
        ("error", report.error.is_some(), sent == ReportedOutcome::Failed),
        ("error_group", report.error_group.is_some(), sent == ReportedOutcome::Failed),
        ("permanent", report.permanent == Some(true), sent == ReportedOutcome::Failed),
        ("retry_after_ms", report.retry_after_ms.is_some(), sent == ReportedOutcome::Failed),
        ("delay_ms", report.delay_ms.is_some(), sent == ReportedOutcome::Snoozed),
    ];
    if let Some((field, ..)) = misplaced.into_iter().find(|(_, given, belongs)| *given && !*belongs) {
        return Err(format!("{field} does not belong to this outcome: leave it out"));
    }
    let group = report.error_group.as_deref().map(error_group).transpose()?;
    let wait = |field, ms| {
        duration(field, ms, Duration::ZERO..=SCHEDULE_HORIZON).map_err(|_| format!("{field} is not 0 ms to five years"))
    };
    Ok(match sent {
        ReportedOutcome::Succeeded => {
            let result = report.result.map(|result| Json::of(&result)).transpose();
            Outcome::succeeded(result.map_err(|error| error.to_string())?)
        }
        ReportedOutcome::Failed => {
            let error = report.error.as_deref().unwrap_or("failed; the worker gave no reason");
            // Over HTTP there is the exact wait only.
            let mut failure = Failure::new(error).retry_after(wait("retry_after_ms", report.retry_after_ms)?);
            failure.permanent = report.permanent.unwrap_or(false);
            Outcome::Failed(group.into_iter().fold(failure, Failure::group))
        }
        ReportedOutcome::Cancelled => Outcome::Cancelled,
        ReportedOutcome::Released => Outcome::Released,
        ReportedOutcome::Snoozed => {
            let delay = wait("delay_ms", report.delay_ms)?;
            Outcome::snoozed(delay.ok_or("a snoozed outcome needs delay_ms")?)
        }
    })
}

/// A worker's name for the cause of a failure.
fn error_group(name: &str) -> Result<&str, String> {
    let reason = if name.trim().is_empty() {
        "is empty: leave it out, or send 1 to 64 characters"
    } else if name.chars().nth(ERROR_GROUP_MAX_CHARS).is_some() {
        "is longer than 64 characters"
    } else if name.chars().any(char::is_control) {
        "has control characters: leave them out"
    } else {
        return Ok(name);
    };
    Err(format!("error_group {reason}"))
}
