//! Heartbeats and outcomes from workers. Every item gets a verdict of its own: one lost lease never keeps the others back.

use std::time::Duration;

use axum::Extension;
use axum::extract::State;

use super::auth::Caller;
use super::json::{Answer, Body, ok};
use super::leases::{duration, lease_duration, within};
use super::problem::Problem;
use super::state::{Api, to_the_end};
use super::{lease_token, metrics, wire};
use crate::job::limits::{BATCH_MAX, SCHEDULE_HORIZON};
use crate::job::{ErrorText, Failure, JobId, Json, LeaseKey, Outcome, Progress, WorkerId};
use crate::store::{Beat, Extend, Extended, PerItem, Settle, Settled};

/// Keep leases alive
///
/// Also tells how far the jobs are, and learns which of them should stop.
#[utoipa::path(
    post, path = "/leases/heartbeat", tag = "workers", operation_id = "heartbeat",
    request_body = wire::Heartbeat,
    responses((status = 200, description = "one verdict per lease, in the order sent", body = wire::HeartbeatAnswer),
        (status = 413), (status = 415), (status = 422)),
)]
pub(super) async fn heartbeat(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    body: Body<wire::Heartbeat>,
) -> Result<Answer<wire::HeartbeatAnswer>, Problem> {
    let beat = body.value;
    WorkerId::new(&beat.worker)?;
    at_most_a_batch("leases", beat.leases.len())?;
    let lease = lease_duration(beat.lease_ms)?;
    let ids: Vec<_> = beat.leases.iter().map(|lease| lease.job_id).collect();
    let (mut beats, mut refused) = (Vec::new(), Vec::new());
    for (index, lease) in beat.leases.into_iter().enumerate() {
        match read_beat(lease, &caller) {
            Ok(beat) => beats.push(beat),
            Err(detail) => refused.push(wire::ItemError { index, detail }),
        }
    }
    if !refused.is_empty() {
        return Err(Problem::batch(refused));
    }
    // A foreign or garbled token cannot be a live lease: `lost`, without asking the store.
    let known = beats.iter().flatten().cloned().collect();
    let worker = if api.is_closing() { "drain" } else { "run" };
    let room = body.room;
    let extended = to_the_end(&api, |api| async move {
        let _held = room;
        api.queue.extend(Extend { beats: known, lease }).await
    });
    let mut extended = extended.await??.into_iter();
    let verdicts = beats.iter().map(|beat| match beat.as_ref().and_then(|_| extended.next()) {
        Some(Extended::Ok) => "ok",
        Some(Extended::Cancel) => "cancel",
        Some(Extended::Lost) | None => "lost",
    });
    let leases: Vec<_> =
        ids.into_iter().zip(verdicts).map(|(job_id, status)| wire::BeatView { job_id, status }).collect();
    metrics::leases_lost(leases.iter().filter(|lease| lease.status == "lost").count());
    Ok(ok(wire::HeartbeatAnswer { worker, leases }))
}

fn read_beat(beat: wire::Beat, caller: &Caller) -> Result<Option<Beat>, String> {
    let progress = match beat.progress {
        Some(progress) => {
            let percent = within("percent", progress.percent, 0..=100).map_err(|_| "percent is not 0 to 100")?;
            let percent = percent.map(|percent| percent as u8);
            Some(Progress::new(percent, progress.message.as_deref()))
        }
        None => None,
    };
    let token = lease_token::read(&beat.lease_token, caller);
    Ok(token.map(|token| Beat { lease: LeaseKey { job_id: JobId::from(beat.job_id), token }, progress }))
}

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
    body: Body<wire::Settlement>,
) -> Result<Answer<wire::SettlementAnswer>, Problem> {
    let settlement = body.value;
    WorkerId::new(&settlement.worker)?;
    at_most_a_batch("outcomes", settlement.outcomes.len())?;
    let ids: Vec<_> = settlement.outcomes.iter().map(|outcome| outcome.job_id).collect();
    let (mut settles, mut refused) = (Vec::new(), Vec::new());
    for (index, report) in settlement.outcomes.into_iter().enumerate() {
        let token = lease_token::read(&report.lease_token, &caller);
        let job_id = JobId::from(report.job_id);
        match read_outcome(report) {
            Ok(outcome) => {
                settles.push(token.map(|token| Settle { lease: LeaseKey { job_id, token }, outcome }));
            }
            Err(detail) => refused.push(wire::ItemError { index, detail }),
        }
    }
    if !refused.is_empty() {
        return Err(Problem::batch(refused));
    }
    let known = settles.iter().flatten().cloned().collect();
    let room = body.room;
    let answers = to_the_end(&api, |api| async move {
        let _held = room;
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
    use wire::Sent;
    let sent = report.outcome;
    let misplaced = [
        ("result", report.result.is_some(), sent == Sent::Succeeded),
        ("error", report.error.is_some(), sent == Sent::Failed),
        ("permanent", report.permanent == Some(true), sent == Sent::Failed),
        ("retry_after_ms", report.retry_after_ms.is_some(), sent == Sent::Failed),
        ("delay_ms", report.delay_ms.is_some(), sent == Sent::Snoozed),
    ];
    if let Some((field, ..)) = misplaced.into_iter().find(|(_, given, belongs)| *given && !*belongs) {
        return Err(format!("{field} does not belong to this outcome: leave it out"));
    }
    let wait = |field, ms| {
        duration(field, ms, Duration::ZERO..=SCHEDULE_HORIZON).map_err(|_| format!("{field} is not 0 ms to five years"))
    };
    Ok(match sent {
        Sent::Succeeded => {
            let result = report.result.map(|result| Json::of(&result)).transpose();
            Outcome::succeeded(result.map_err(|error| error.to_string())?)
        }
        Sent::Failed => Outcome::Failed(Failure {
            error: ErrorText::new(report.error.as_deref().unwrap_or("failed; the worker gave no reason")),
            permanent: report.permanent.unwrap_or(false),
            retry_after: wait("retry_after_ms", report.retry_after_ms)?,
        }),
        Sent::Cancelled => Outcome::Cancelled,
        Sent::Released => Outcome::Released,
        Sent::Snoozed => {
            let delay = wait("delay_ms", report.delay_ms)?;
            Outcome::snoozed(delay.ok_or("a snoozed outcome needs delay_ms")?)
        }
    })
}

fn at_most_a_batch(field: &str, given: usize) -> Result<(), Problem> {
    if given > BATCH_MAX {
        return Err(Problem::invalid(format!(
            "{field} has {given} items, the limit is {BATCH_MAX}: send several calls"
        )));
    }
    Ok(())
}
