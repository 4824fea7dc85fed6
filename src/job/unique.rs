//! Unique jobs: at most one job per key waits, is unfinished, or is enqueued in a window of time.
//!
//! An idempotency key belongs to its job for ever, with the same answer; a unique key is about work that is pending, and is
//! free again once the work has begun, ended or aged.

use serde::{Deserialize, Serialize};

use super::Refusal;
use super::group_key::checked_text;
use super::limits::SCHEDULE_HORIZON;

/// How a job is unique among the jobs of its kind.
///
/// ```
/// use steadfast::job::Unique;
///
/// // At most one waits; another enqueue answers with it.
/// let pending = Unique::new("report-7");
/// // Debounce: the newest payload counts, and it is put off, but for 60 s at most.
/// let debounced = Unique::new("report-7").replace().max_wait_ms(60_000);
/// // Throttle: at most one within an hour, whatever became of the first.
/// let throttled = Unique::new("report-7").for_ms(3_600_000);
/// # let _ = (pending, debounced, throttled);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Unique {
    /// The key, 1 to 255 characters; jobs of another kind can have the same one.
    pub key: String,
    /// How long a job has its key, unless `for_ms` says so.
    #[serde(rename = "while")]
    pub while_: UniqueWhile,
    /// What becomes of another job with the key.
    pub on_conflict: OnConflict,
    /// The job has its key for this long from its enqueue, and no longer, whatever becomes of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub for_ms: Option<i64>,
    /// With [`OnConflict::Replace`]: the start is put off to this long after the first enqueue at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_wait_ms: Option<i64>,
}

/// How long a job has its unique key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum UniqueWhile {
    /// Until its first start.
    #[default]
    Waiting,
    /// Until it has succeeded, failed permanently or been cancelled.
    Unfinished,
}

/// What becomes of a job whose unique key another one has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum OnConflict {
    /// It is not stored; the answer is the job there is.
    #[default]
    Keep,
    /// Its payload, priority and start replace those of the job there is, as long as that one has not started.
    Replace,
}

impl Unique {
    /// At most one job with this key waits; another one is not stored.
    pub fn new(key: impl Into<String>) -> Self {
        let (while_, on_conflict) = (UniqueWhile::Waiting, OnConflict::Keep);
        Self { key: key.into(), while_, on_conflict, for_ms: None, max_wait_ms: None }
    }

    /// The job has its key until it has finished.
    pub fn unfinished(mut self) -> Self {
        self.while_ = UniqueWhile::Unfinished;
        self
    }

    /// Another enqueue replaces payload, priority and start of the job that waits.
    pub fn replace(mut self) -> Self {
        self.on_conflict = OnConflict::Replace;
        self
    }

    /// The job has its key for this long.
    pub fn for_ms(mut self, ms: i64) -> Self {
        self.for_ms = Some(ms);
        self
    }

    /// The start is put off to this long after the first enqueue at most.
    pub fn max_wait_ms(mut self, ms: i64) -> Self {
        self.max_wait_ms = Some(ms);
        self
    }

    pub(super) fn checked(self) -> Result<Self, Refusal> {
        checked_text("unique.key", &self.key)?;
        let horizon_ms = SCHEDULE_HORIZON.as_millis() as i64;
        super::new_job::within("unique.for_ms", self.for_ms, 1..=horizon_ms)?;
        super::new_job::within("unique.max_wait_ms", self.max_wait_ms, 1..=horizon_ms)?;
        let refused = |field, reason: &str| Err(Refusal::Value { field, reason: reason.into() });
        match (self.on_conflict, self.for_ms, self.max_wait_ms) {
            (OnConflict::Keep, _, Some(_)) => refused(
                "unique.max_wait_ms",
                "bounds how long replacing puts a start off: send on_conflict \"replace\", or leave it out",
            ),
            (OnConflict::Replace, Some(_), _) => refused(
                "unique.for_ms",
                "goes with on_conflict \"keep\": within the window the job may have started, and cannot be replaced",
            ),
            _ => Ok(self),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_contradicts_itself_is_refused_with_the_way_out() {
        let refused = |unique: Unique| unique.checked().unwrap_err().to_string();
        assert!(refused(Unique::new("")).contains("unique.key is empty"));
        assert!(refused(Unique::new("k").for_ms(0)).contains("use 1 to"));
        assert!(refused(Unique::new("k").max_wait_ms(5)).contains("on_conflict \"replace\""));
        assert!(refused(Unique::new("k").replace().for_ms(5)).contains("on_conflict \"keep\""));
        assert!(Unique::new("k").replace().max_wait_ms(5).checked().is_ok());
    }

    #[test]
    fn it_is_stored_in_the_words_of_the_api() {
        let stored = serde_json::to_string(&Unique::new("k").unfinished().for_ms(5)).unwrap();
        assert_eq!(stored, r#"{"key":"k","while":"unfinished","on_conflict":"keep","for_ms":5}"#);
        assert_eq!(serde_json::from_str::<Unique>(&stored).unwrap(), Unique::new("k").unfinished().for_ms(5));
    }
}
