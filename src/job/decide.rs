//! The state machine: what becomes of a running job when its attempt ends.
//!
//! One pure function for both stores, for settle and for reap. It has no side effects and reads no clock: waits are
//! durations that the store adds to its own time. `docs/states.md` has the same as a table.

use std::time::Duration;

use super::limits::SCHEDULE_HORIZON;
use super::{AttemptOutcome, ErrorGroup, ErrorText, Failure, Json, Outcome, RetryPolicy, Status};

/// Why an attempt ended.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Ending<'a> {
    /// Its worker reported an outcome.
    Reported(&'a Outcome),
    /// Neither a heartbeat nor an outcome came in time.
    Expired(Expiry),
}

/// Which time limit an attempt exceeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Expiry {
    /// The lease: heartbeats stopped.
    Lease,
    /// The job's `timeout_ms`: heartbeats went on, but no lease is extended past it.
    Deadline,
}

/// The state of a running job that [`decide`] needs.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct RunningJob<'a> {
    /// The kind, by which errors are grouped.
    pub kind: &'a str,
    /// Attempts that count, this one included.
    pub attempts: u32,
    /// The job is not retried once `attempts` reaches this.
    pub max_attempts: u32,
    /// Cancellation was requested while it ran.
    pub cancel_requested: bool,
    /// The kind's retry policy.
    pub retry: &'a RetryPolicy,
    /// Uniform in `[0, 1)`: selects the wait within the retry policy's window.
    pub jitter: f64,
}

impl<'a> RunningJob<'a> {
    /// A job in attempt `attempts` of `max_attempts`, without a kind or a cancellation request and with a jitter of 0.5.
    pub fn new(attempts: u32, max_attempts: u32, retry: &'a RetryPolicy) -> Self {
        Self { kind: "", attempts, max_attempts, cancel_requested: false, retry, jitter: 0.5 }
    }
}

/// What the store must write: the answer of [`decide`].
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Transition {
    /// The new status.
    pub to: Status,
    /// What the attempt's record says.
    pub recorded: AttemptOutcome,
    /// Attempts that count from now on.
    pub attempts: u32,
    /// For a job that waits again: `run_at` is the store's now plus this.
    pub run_in: Option<Duration>,
    /// Becomes `last_error`; `None` leaves the old one.
    pub error: Option<ErrorText>,
    /// Becomes `result`.
    pub result: Option<Json>,
    /// Becomes `error_group`, of a job that becomes a dead letter because its attempt failed.
    pub error_group: Option<ErrorGroup>,
}

/// Decides the next status of a running job whose attempt has ended.
///
/// ```
/// use steadfast::job::{Ending, RunningJob, Outcome, RetryPolicy, Status, decide};
///
/// let retry = RetryPolicy::default();
/// let failed = Outcome::failed("connection reset");
/// assert_eq!(decide(Ending::Reported(&failed), RunningJob::new(1, 3, &retry)).to, Status::Retrying);
/// assert_eq!(decide(Ending::Reported(&failed), RunningJob::new(3, 3, &retry)).to, Status::FailedPermanent);
/// ```
pub fn decide(ending: Ending<'_>, job: RunningJob<'_>) -> Transition {
    match ending {
        Ending::Reported(Outcome::Succeeded(result)) => {
            Transition { result: result.clone(), ..stay(job, Status::Succeeded, AttemptOutcome::Succeeded) }
        }
        Ending::Reported(Outcome::Failed(failure)) => fail(failure, AttemptOutcome::Failed, job),
        Ending::Reported(Outcome::TimedOut(error)) => {
            let failure = Failure::new(error.as_str());
            fail(&failure, AttemptOutcome::TimedOut, job)
        }
        Ending::Reported(Outcome::Cancelled) => stay(job, Status::Cancelled, AttemptOutcome::Cancelled),
        Ending::Reported(Outcome::Released) => give_back(job, AttemptOutcome::Released, Duration::ZERO),
        Ending::Reported(Outcome::Snoozed(delay)) => give_back(job, AttemptOutcome::Snoozed, *delay),
        Ending::Expired(expiry) => {
            let (recorded, error) = match expiry {
                Expiry::Lease => (AttemptOutcome::LeaseExpired, "lease expired: the worker was not heard of in time"),
                Expiry::Deadline => (AttemptOutcome::TimedOut, "timed out: the attempt ran past the job's timeout_ms"),
            };
            // At once: the lease has been the wait already.
            let failure = Failure::new(error).retry_after(Duration::ZERO);
            fail(&failure, recorded, job)
        }
    }
}

fn fail(failure: &Failure, recorded: AttemptOutcome, job: RunningJob<'_>) -> Transition {
    let mut transition = if job.cancel_requested {
        // Never `retrying`: a job whose cancel was requested must end.
        stay(job, Status::Cancelled, recorded)
    } else if failure.permanent || job.attempts >= job.max_attempts {
        // What may not be logged was written by somebody else, and is not the cause.
        let group = ErrorGroup::of(job.kind, recorded, failure.error.logged(), failure.group.as_deref());
        Transition { error_group: Some(group), ..stay(job, Status::FailedPermanent, recorded) }
    } else {
        let by_policy = || job.retry.wait(job.attempts, job.jitter).max(failure.no_sooner_than.unwrap_or_default());
        let wait = failure.retry_after.unwrap_or_else(by_policy);
        // A handler may ask for any wait; later than the horizon no database can say.
        Transition { run_in: Some(wait.min(SCHEDULE_HORIZON)), ..stay(job, Status::Retrying, recorded) }
    };
    transition.error = Some(failure.error.clone());
    transition
}

fn give_back(job: RunningJob<'_>, recorded: AttemptOutcome, wait: Duration) -> Transition {
    let attempts = job.attempts.saturating_sub(1);
    let to = match recorded {
        _ if job.cancel_requested => Status::Cancelled,
        AttemptOutcome::Released if attempts == 0 => Status::Queued,
        _ => Status::Retrying,
    };
    Transition { attempts, run_in: to.is_ready().then_some(wait.min(SCHEDULE_HORIZON)), ..stay(job, to, recorded) }
}

/// A transition to `to` that leaves everything else as it is.
fn stay(job: RunningJob<'_>, to: Status, recorded: AttemptOutcome) -> Transition {
    Transition { to, recorded, attempts: job.attempts, run_in: None, error: None, result: None, error_group: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: RetryPolicy = RetryPolicy::Spread { base_ms: 1_000, cap_ms: 60_000, factor: 3.0 };

    fn job(attempts: u32, max_attempts: u32) -> RunningJob<'static> {
        RunningJob { kind: "mail", ..RunningJob::new(attempts, max_attempts, &POLICY) }
    }

    fn cancelling(attempts: u32, max_attempts: u32) -> RunningJob<'static> {
        RunningJob { cancel_requested: true, ..job(attempts, max_attempts) }
    }

    fn endings() -> Vec<(&'static str, Outcome)> {
        vec![
            ("succeeded", Outcome::succeeded(None)),
            ("failed", Outcome::failed("e")),
            ("permanent", Outcome::failed_permanently("e")),
            ("timed_out", Outcome::TimedOut(ErrorText::new("e"))),
            ("cancelled", Outcome::Cancelled),
            ("released", Outcome::Released),
            ("snoozed", Outcome::snoozed(Duration::from_secs(5))),
        ]
    }

    fn every_transition() -> Vec<(RunningJob<'static>, Transition)> {
        let mut all = Vec::new();
        for job in [job(1, 3), job(2, 3), job(3, 3), cancelling(1, 3), cancelling(3, 3)] {
            let outcomes = endings();
            let reported = outcomes.iter().map(|(_, outcome)| Ending::Reported(outcome));
            let expired = [Expiry::Lease, Expiry::Deadline].map(Ending::Expired);
            all.extend(reported.chain(expired).map(|ending| (job, decide(ending, job))));
        }
        all
    }

    #[test]
    fn the_table_of_outcomes() {
        let to = |name: &str, job: RunningJob<'_>| {
            let (_, outcome) = endings().into_iter().find(|(n, _)| *n == name).unwrap();
            decide(Ending::Reported(&outcome), job).to
        };
        assert_eq!(to("succeeded", job(1, 3)), Status::Succeeded);
        assert_eq!(to("failed", job(1, 3)), Status::Retrying);
        assert_eq!(to("failed", job(3, 3)), Status::FailedPermanent);
        assert_eq!(to("permanent", job(1, 3)), Status::FailedPermanent);
        assert_eq!(to("timed_out", job(1, 3)), Status::Retrying);
        assert_eq!(to("timed_out", job(3, 3)), Status::FailedPermanent);
        assert_eq!(to("cancelled", job(1, 3)), Status::Cancelled);
        assert_eq!(to("released", job(1, 3)), Status::Queued);
        assert_eq!(to("released", job(2, 3)), Status::Retrying);
        assert_eq!(to("snoozed", job(1, 3)), Status::Retrying);
        for name in ["failed", "permanent", "timed_out", "cancelled", "released", "snoozed"] {
            assert_eq!(to(name, cancelling(1, 3)), Status::Cancelled, "{name}");
        }
        assert_eq!(to("succeeded", cancelling(1, 3)), Status::Succeeded);
    }

    #[test]
    fn an_expired_attempt_waits_no_longer_and_the_last_one_is_the_dead_letter() {
        for expiry in [Expiry::Lease, Expiry::Deadline] {
            let again = decide(Ending::Expired(expiry), job(1, 3));
            assert_eq!((again.to, again.run_in), (Status::Retrying, Some(Duration::ZERO)));
            assert_eq!(decide(Ending::Expired(expiry), job(3, 3)).to, Status::FailedPermanent);
            assert_eq!(decide(Ending::Expired(expiry), cancelling(1, 3)).to, Status::Cancelled);
        }
    }

    #[test]
    fn a_job_waits_exactly_when_it_is_ready_and_then_has_an_attempt_left() {
        for (job, transition) in every_transition() {
            assert_eq!(transition.run_in.is_some(), transition.to.is_ready(), "{job:?} {transition:?}");
            assert!(!transition.to.is_ready() || transition.attempts < job.max_attempts, "{job:?} {transition:?}");
            assert_ne!(transition.to, Status::Running);
        }
    }

    #[test]
    fn a_requested_cancel_always_ends_the_job() {
        for (job, transition) in every_transition() {
            assert!(!job.cancel_requested || transition.to.is_terminal(), "{job:?} {transition:?}");
        }
    }

    #[test]
    fn only_release_and_snooze_give_the_attempt_back() {
        for (job, transition) in every_transition() {
            let given_back = u32::from(transition.recorded.is_given_back());
            assert_eq!(transition.attempts + given_back, job.attempts, "{job:?} {transition:?}");
        }
    }

    #[test]
    fn an_attempt_record_with_an_error_comes_with_one() {
        for (job, transition) in every_transition() {
            assert_eq!(transition.error.is_some(), transition.recorded.has_error(), "{job:?} {transition:?}");
        }
    }

    #[test]
    fn dead_letters_and_nothing_else_have_a_group_of_errors() {
        for (job, transition) in every_transition() {
            let is_dead = transition.to == Status::FailedPermanent;
            assert_eq!(transition.error_group.is_some(), is_dead, "{job:?} {transition:?}");
            assert!(transition.error_group.is_none_or(|group| group.outcome == transition.recorded));
        }
        let group = |failure: Failure| decide(Ending::Reported(&Outcome::Failed(failure)), job(3, 3)).error_group;
        assert_eq!(group(Failure::new("a 1")), group(Failure::new("a 2")));
        assert_ne!(group(Failure::new("a 1")), group(Failure::new("b 1")));
        assert_eq!(group(Failure::new("a").group("g")), group(Failure::new("b").group("g")));
        let answered = ErrorText::new("HTTP 500").unlogged(": not our words");
        assert_eq!(group(Failure { error: answered, ..Failure::new("") }), group(Failure::new("HTTP 500")));
    }

    #[test]
    fn a_wait_given_by_the_handler_wins_over_the_policy() {
        let failure = |retry_after: Option<Duration>| Outcome::Failed(Failure::new("e").retry_after(retry_after));
        let wait = |outcome: &Outcome| decide(Ending::Reported(outcome), job(1, 3)).run_in;
        assert_eq!(wait(&failure(Some(Duration::from_millis(7)))), Some(Duration::from_millis(7)));
        assert_eq!(wait(&failure(None)), Some(POLICY.wait(1, 0.5)));
        assert_eq!(wait(&failure(Some(Duration::MAX))), Some(SCHEDULE_HORIZON));
        assert_eq!(wait(&Outcome::Snoozed(Duration::MAX)), Some(SCHEDULE_HORIZON));
    }

    #[test]
    fn a_floor_is_waited_for_if_the_policy_waits_less_and_an_exact_wait_wins_over_it() {
        let by_policy = POLICY.wait(1, 0.5);
        let wait = |failure: Failure| decide(Ending::Reported(&Outcome::Failed(failure)), job(1, 3)).run_in;
        let floor = |floor| wait(Failure::new("e").no_sooner_than(floor));
        assert_eq!(floor(by_policy + Duration::from_secs(1)), Some(by_policy + Duration::from_secs(1)));
        assert_eq!(floor(by_policy - Duration::from_millis(1)), Some(by_policy), "never a shortcut");
        assert_eq!(floor(Duration::MAX), Some(SCHEDULE_HORIZON));
        let exact = Failure::new("e").no_sooner_than(Duration::from_secs(60)).retry_after(Duration::from_millis(7));
        assert_eq!(wait(exact), Some(Duration::from_millis(7)));
        assert_eq!(wait(Failure::new("e").no_sooner_than(Duration::from_secs(60)).permanent()), None);
    }
}
