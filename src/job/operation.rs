//! Operations: one action on many jobs, carried out in small steps. What may be asked for, how fast the steps follow each
//! other, and what a canary says. Pure: which jobs match, and what a step changes, is the store's business.

use std::time::Duration;

use jiff::Timestamp;

use super::QueueName;

/// 1,000 jobs per operation can be named by their ids.
pub const OPERATION_IDS_MAX: usize = 1000;
/// 10,000 jobs per second, more than any store changes.
pub const OPERATION_RATE_MAX: u32 = 10_000;
/// 100 jobs per second, unless another rate is asked for: gentle enough for what failed because it was overloaded.
pub const OPERATION_RATE_DEFAULT: u32 = 100;
/// 100 operations may be running or paused at the same time.
pub const OPERATIONS_MAX: u64 = 100;
/// 100 jobs at most are tried before the others.
pub const CANARY_MAX: u32 = 100;
/// 500 jobs per step: the row locks of one transaction, some tens of milliseconds.
pub const OPERATION_STEP_MAX: usize = 500;
/// 5,000 rows per step are looked at for jobs that match.
pub const OPERATION_LOOK_MAX: usize = 5000;
/// 20,000 rows are looked at by a preview.
pub const PREVIEW_LOOK_MAX: usize = 20_000;
/// 2,000 bytes of a reason are kept.
pub const REASON_MAX_BYTES: usize = 2000;

/// Ten steps per second, if one job per step is not too fast.
const STEPS_PER_SECOND: u32 = 10;
/// 1 s: what was not done in time is made up for, but no more of it than this.
const CATCH_UP: Duration = Duration::from_secs(1);

/// What is done to every job of an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Action {
    /// failed_permanent, cancelled → queued.
    Redrive,
    /// queued, retrying → cancelled; running → asked to stop.
    Cancel,
    /// Finished → gone.
    Delete,
    /// Another priority for jobs that wait.
    Reprioritize(i16),
    /// Another queue for jobs that wait.
    Move(QueueName),
}

impl Action {
    /// Its name on the wire and in the database.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Redrive => "redrive",
            Self::Cancel => "cancel",
            Self::Delete => "delete",
            Self::Reprioritize(_) => "reprioritize",
            Self::Move(_) => "move",
        }
    }

    /// What it needs besides its name, as text.
    pub fn argument(&self) -> Option<String> {
        match self {
            Self::Reprioritize(priority) => Some(priority.to_string()),
            Self::Move(queue) => Some(queue.to_string()),
            Self::Redrive | Self::Cancel | Self::Delete => None,
        }
    }

    /// The action of this name and argument; `None` if there is no such action.
    pub fn from_parts(name: &str, argument: Option<&str>) -> Option<Self> {
        match (name, argument) {
            ("redrive", _) => Some(Self::Redrive),
            ("cancel", _) => Some(Self::Cancel),
            ("delete", _) => Some(Self::Delete),
            ("reprioritize", Some(priority)) => priority.parse().ok().map(Self::Reprioritize),
            ("move", Some(queue)) => QueueName::new(queue).ok().map(Self::Move),
            _ => None,
        }
    }
}

/// Where an operation stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum OperationState {
    /// Its next step is due at a time.
    Running,
    /// It takes no steps until it is resumed.
    Paused,
    /// It has gone through all jobs, or has changed as many as it may.
    Finished,
    /// Somebody has stopped it. What is done stays done.
    Stopped,
}

impl OperationState {
    /// Its name on the wire and in the database.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Finished => "finished",
            Self::Stopped => "stopped",
        }
    }

    /// The state of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Running, Self::Paused, Self::Finished, Self::Stopped].into_iter().find(|state| state.as_str() == name)
    }

    /// Whether it takes no further step, ever.
    pub fn has_ended(self) -> bool {
        matches!(self, Self::Finished | Self::Stopped)
    }
}

/// Some jobs are redriven first; the others only if enough of them succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Canary {
    /// How many are tried first.
    pub first: u32,
    /// How many of them must succeed.
    pub need: u32,
}

/// What the jobs that were tried first say of the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CanaryVerdict {
    /// Not known yet.
    Wait,
    /// The others are redriven.
    GoOn,
    /// The operation is paused.
    Pause,
}

impl Canary {
    /// Tries `first` jobs; `need` of them must succeed.
    pub fn new(first: u32, need: u32) -> Self {
        Self { first, need }
    }

    /// Of the `tried` jobs (as many as there were, if they were fewer than asked for), so many have `succeeded` and so many
    /// have ended `otherwise`, or are gone.
    pub fn verdict(self, tried: u32, succeeded: u32, otherwise: u32) -> CanaryVerdict {
        let need = self.need.min(tried);
        if succeeded >= need {
            CanaryVerdict::GoOn
        } else if tried.saturating_sub(otherwise) < need {
            CanaryVerdict::Pause
        } else {
            CanaryVerdict::Wait
        }
    }
}

/// How many jobs a step changes at most.
pub fn step_size(rate: u32) -> usize {
    ((rate / STEPS_PER_SECOND).max(1) as usize).min(OPERATION_STEP_MAX)
}

/// When the next step is due, after one that was due at `due`, was taken at `now` and changed so many jobs. The times at
/// which steps are due do not depend on how long steps take, so that the rate is kept.
pub fn next_step_at(due: Timestamp, now: Timestamp, changed: usize, rate: u32) -> Timestamp {
    let from = due.max(now - CATCH_UP);
    from + Duration::from_secs_f64(changed as f64 / f64::from(rate.max(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_millisecond(ms).unwrap()
    }

    #[test]
    fn steps_follow_each_other_at_the_rate_whatever_a_step_takes() {
        for rate in [1, 3, 10, 50, 99, 1000, 4999, OPERATION_RATE_MAX] {
            let (mut due, mut now, mut done) = (at(0), at(0), 0);
            while now < at(10_000) {
                done += step_size(rate);
                due = next_step_at(due, now, step_size(rate), rate);
                // A step takes 20 ms.
                now = due.max(now + Duration::from_millis(20));
            }
            let expected = f64::from(rate) * 10.0;
            assert!((done as f64 - expected).abs() <= (expected * 0.1).max(1.0), "{rate}: {done} in 10 s");
        }
    }

    #[test]
    fn what_was_not_done_in_a_pause_is_not_made_up_for_at_once() {
        assert_eq!(next_step_at(at(0), at(60_000), 10, 10), at(60_000));
        assert_eq!(next_step_at(at(59_500), at(60_000), 10, 10), at(60_500));
        assert_eq!(next_step_at(at(0), at(0), 0, 10), at(0), "nothing changed, nothing to wait for");
    }

    #[test]
    fn a_canary_says_go_on_as_soon_as_enough_have_succeeded_and_pause_as_soon_as_too_few_can() {
        let canary = Canary::new(5, 4);
        assert_eq!(canary.verdict(5, 3, 1), CanaryVerdict::Wait);
        assert_eq!(canary.verdict(5, 4, 0), CanaryVerdict::GoOn);
        assert_eq!(canary.verdict(5, 0, 2), CanaryVerdict::Pause);
        assert_eq!(canary.verdict(5, 3, 2), CanaryVerdict::Pause);
        assert_eq!(canary.verdict(2, 2, 0), CanaryVerdict::GoOn, "there were only two");
        assert_eq!(canary.verdict(2, 1, 1), CanaryVerdict::Pause);
    }

    #[test]
    fn actions_are_read_as_they_were_written() {
        let queue = QueueName::new("mail").unwrap();
        for action in [Action::Redrive, Action::Cancel, Action::Delete, Action::Reprioritize(-7), Action::Move(queue)] {
            let argument = action.argument();
            assert_eq!(Action::from_parts(action.as_str(), argument.as_deref()), Some(action));
        }
        assert_eq!(Action::from_parts("move", None), None);
        assert_eq!(Action::from_parts("explode", None), None);
    }
}
