//! One call on behalf of a job: through the gate of its host, within the time that the job has, and stopped when the job is.
//!
//! It never decides what an answer means; that is `outcome.rs`. Shared by webhooks and pushed kinds.

use std::time::{Duration, Instant};

use super::outcome::{Meaning, health_without_answer};
use crate::outbound::{Answer, Entry, HostGate, Keep, Limits, Outbound, OutboundError, Request, Target};
use crate::worker::{Context, JobError, StopReason};

/// 1 s before its deadline an attempt ends its own waits, so that its error names the stage instead of only the timeout.
const DEADLINE_MARGIN: Duration = Duration::from_secs(1);

/// 5 s: a host that had less time, because a job or its caller left no more, is not called slow. Otherwise five jobs with a
/// timeout of a millisecond would trip the breaker for everybody.
const FAIR_TIME: Duration = Duration::from_secs(5);

/// A quarter: the jobs that were not tried together are not all retried together.
const PROBE_SPREAD: f64 = 0.25;

/// What is to be called, and by whom.
pub(crate) struct Call<'a> {
    pub(crate) outbound: &'a Outbound,
    pub(crate) gate: &'a HostGate,
    /// The limit of a named endpoint, instead of that for every host.
    pub(crate) max_in_flight: Option<usize>,
    pub(crate) timeout: Duration,
    /// How much of the answer is read.
    pub(crate) body_max: usize,
    pub(crate) final_statuses: &'a [u16],
}

/// What came of it.
pub(crate) enum Called {
    Answered(Answer, Meaning),
    /// Not called: the host has as many calls as it may have. Not a failure.
    NotYet(Duration),
}

impl Call<'_> {
    /// Makes the call with what `request` returns, which is asked only when the call is due.
    pub(crate) async fn place<S>(
        &self,
        target: &Target,
        request: impl FnOnce() -> Request,
        context: &Context<S>,
    ) -> Result<Called, JobError> {
        let permit = match self.gate.enter(target, self.max_in_flight) {
            Entry::Go(permit) => permit,
            Entry::Later(delay) => return Ok(Called::NotYet(delay)),
            Entry::Tripped { since, next_probe } => return Err(not_tried(since.elapsed(), next_probe)),
        };
        let total = time_left(self.timeout, context.deadline());
        let limits = Limits::new(total).first_byte(total).body_max(self.body_max).keep(Keep::Excerpt);
        let sending = self.outbound.send(request(), limits);
        match until_stopped(sending, context).await? {
            Ok(answer) => {
                let meaning = Meaning::of(answer.status, self.final_statuses);
                permit.ended(meaning.health(answer.status));
                Ok(Called::Answered(answer, meaning))
            }
            Err(error) => {
                if let Some(health) = health_without_answer(&error, total >= self.timeout.min(FAIR_TIME)) {
                    permit.ended(health);
                }
                Err(failed(&error))
            }
        }
    }
}

/// Waits for the answer. At shutdown the call goes on, within the grace period; for every other reason it is dropped, and its
/// connection with it.
async fn until_stopped<S, T>(sending: impl Future<Output = T>, context: &Context<S>) -> Result<T, JobError> {
    tokio::pin!(sending);
    let reason = tokio::select! {
        biased;
        sent = &mut sending => return Ok(sent),
        reason = context.stopped() => reason,
    };
    match reason {
        StopReason::ShuttingDown => Ok(sending.await),
        StopReason::Cancelled => Err(JobError::new("stopped while waiting for the answer: the job was cancelled")),
        StopReason::LeaseLost => Err(JobError::new("stopped while waiting for the answer: the lease was lost")),
        _ => Err(JobError::new("stopped while waiting for the answer")),
    }
}

/// Costs its attempt: a job that was only put off would circle for ever while its host is dead. The probe is the try.
fn not_tried(failing_for: Duration, next_probe: Duration) -> JobError {
    let floor = next_probe.mul_f64(1.0 + PROBE_SPREAD * fastrand::f64());
    let (failing, probe) = (failing_for.as_secs(), next_probe.as_secs());
    JobError::new(format!("not tried: the host has been failing for {failing} s; next probe in {probe} s"))
        .retry_no_sooner_than(floor)
}

fn failed(error: &OutboundError) -> JobError {
    match error.is_permanent() {
        true => JobError::permanent(error),
        false => JobError::new(error),
    }
}

/// `timeout`, or what is left of the attempt less a margin.
fn time_left(timeout: Duration, deadline: Option<Instant>) -> Duration {
    let Some(deadline) = deadline else { return timeout };
    let left = deadline.saturating_duration_since(Instant::now());
    timeout.min(left - DEADLINE_MARGIN.min(left / 10))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_ends_before_its_attempt_does() {
        let second = Duration::from_secs(1);
        let within = |seconds: u32| time_left(30 * second, Some(Instant::now() + seconds * second));
        assert_eq!(time_left(30 * second, None), 30 * second);
        assert_eq!(within(120), 30 * second);
        assert!(within(30) <= 29 * second && within(30) > 28 * second);
        assert!(within(2) < 2 * second && within(2) > second);
        assert_eq!(time_left(second, Some(Instant::now())), Duration::ZERO);
    }
}
