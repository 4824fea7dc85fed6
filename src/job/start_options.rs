//! What a job asks of its start beside a time: its group, its cost, a deadline, and being unique. Plain jobs ask nothing.

use std::time::Duration;

use jiff::Timestamp;

use super::limits::{COST_MAX, SCHEDULE_HORIZON};
use super::new_job::within;
use super::{GroupKey, JobRequest, Refusal, Start, Unique};

/// By when a job must have started for the first time. The store turns it into a time by its own clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum StartBy {
    /// This time.
    At(Timestamp),
    /// This long after it was accepted.
    Within(Duration),
}

impl StartBy {
    /// The time, for a job that was accepted at `created_at`.
    pub fn time(self, created_at: Timestamp) -> Timestamp {
        match self {
            Self::At(time) => time,
            Self::Within(wait) => created_at.checked_add(wait).unwrap_or(Timestamp::MAX),
        }
    }
}

/// Validated options of a start; all absent for a plain job.
#[derive(Debug, Clone, Default)]
pub(super) struct StartOptions {
    pub(super) group_key: Option<GroupKey>,
    pub(super) cost: Option<u32>,
    pub(super) start_by: Option<StartBy>,
    pub(super) unique: Option<Unique>,
}

impl StartOptions {
    pub(super) fn of(request: &JobRequest, start: Start, now: Timestamp) -> Result<Self, Refusal> {
        let cost = within("cost", request.cost, 1..=COST_MAX.into())?;
        Ok(Self {
            group_key: request.group_key.as_deref().map(GroupKey::new).transpose()?,
            cost: cost.map(|cost| cost as u32),
            start_by: start_by(request, start, now)?,
            unique: request.unique.clone().map(Unique::checked).transpose()?,
        })
    }

    pub(super) fn is_plain(&self) -> bool {
        self.group_key.is_none() && self.cost.is_none() && self.start_by.is_none() && self.unique.is_none()
    }
}

fn start_by(request: &JobRequest, start: Start, now: Timestamp) -> Result<Option<StartBy>, Refusal> {
    let refused = |field, reason: String| Err(Refusal::Value { field, reason });
    let start_by = match (request.start_by, request.start_within_ms) {
        (Some(_), Some(_)) => {
            return refused("start_by", "and start_within_ms exclude each other: send one of them".into());
        }
        (Some(at), None) if at.duration_since(now).as_secs() > SCHEDULE_HORIZON.as_secs() as i64 => {
            return refused("start_by", format!("{at} is more than five years ahead"));
        }
        (Some(at), None) => StartBy::At(at),
        (None, Some(_)) => {
            let range = 1..=SCHEDULE_HORIZON.as_millis() as i64;
            let ms = within("start_within_ms", request.start_within_ms, range)?.unwrap_or(1);
            StartBy::Within(Duration::from_millis(ms as u64))
        }
        (None, None) => return Ok(None),
    };
    let never = "it could never start: choose a later deadline or an earlier start";
    match (start, start_by) {
        (Start::At(run_at), StartBy::At(by)) if by < run_at => {
            refused("start_by", format!("is before run_at: {never}"))
        }
        (Start::After(delay), StartBy::Within(wait)) if wait <= delay => {
            refused("start_within_ms", format!("is no longer than delay_ms: {never}"))
        }
        _ => Ok(Some(start_by)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{Json, KindDefaults, Limits, NewJob};

    fn check(request: JobRequest) -> Result<NewJob, Refusal> {
        let now = "2030-01-01T00:00:00Z".parse().unwrap();
        NewJob::new(request, &KindDefaults::default(), &Limits::default(), now)
    }

    fn request() -> JobRequest {
        JobRequest::new("welcome", Json::null())
    }

    #[test]
    fn a_bare_request_is_plain_and_each_option_makes_it_another() {
        assert!(check(request()).unwrap().is_plain());
        let others = [
            request().group_key("acme"),
            request().cost(1),
            request().start_within_ms(5),
            request().unique(Unique::new("k")),
        ];
        for other in others {
            assert!(!check(other).unwrap().is_plain());
        }
    }

    #[test]
    fn values_out_of_range_and_contradictions_are_refused_by_name() {
        let refused = |request| check(request).unwrap_err().to_string();
        let by: Timestamp = "2030-01-01T00:00:10Z".parse().unwrap();
        assert!(refused(request().cost(0)).contains("cost 0 is out of range: use 1 to 1000000"));
        assert!(refused(request().cost(1_000_001)).contains("cost"));
        assert!(refused(request().group_key("")).contains("group_key is empty"));
        assert!(refused(request().start_within_ms(0)).contains("start_within_ms"));
        assert!(refused(request().start_by(by).start_within_ms(5)).contains("exclude each other"));
        assert!(refused(request().start_by("2040-01-01T00:00:00Z".parse().unwrap())).contains("five years"));
        let later = "2030-01-01T00:00:11Z".parse().unwrap();
        assert!(refused(request().run_at(later).start_by(by)).contains("is before run_at"));
        assert!(refused(request().delay_ms(5).start_within_ms(5)).contains("no longer than delay_ms"));
        assert!(check(request().delay_ms(5).start_within_ms(6)).is_ok());
    }

    #[test]
    fn a_deadline_from_now_counts_from_when_the_job_was_accepted() {
        let created: Timestamp = "2030-01-01T00:00:00Z".parse().unwrap();
        assert_eq!(StartBy::Within(Duration::from_secs(10)).time(created).to_string(), "2030-01-01T00:00:10Z");
        assert_eq!(StartBy::Within(Duration::MAX).time(created), Timestamp::MAX);
    }
}
