//! Saying that the store cannot be used: at once, and then once a minute for as long as it goes on. A loop that tries
//! again several times a second, or a flood of requests, must not fill the log (and the disk, which may be what is full).
//!
//! It never decides what is done about the trouble. Kinds of trouble are told apart, so that a new one is said at once;
//! who met it is not: a full disk stops every loop, and is said once for all of them.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::{StoreError, StoreErrorKind};
use crate::planted::{Bug, planted};

/// 1 min: often enough for whoever looks, too seldom to fill anything.
const INTERVAL: Duration = Duration::from_secs(60);

/// What this process has said last, and how often it has kept quiet since.
static SAID: Mutex<Said> = Mutex::new(Said(Vec::new()));

struct Said(Vec<(StoreErrorKind, Instant, u64)>);

impl Said {
    /// How often it went unsaid, if it is time to say it.
    fn is_due(&mut self, kind: StoreErrorKind, now: Instant) -> Option<u64> {
        let Some((_, last, unsaid)) = self.0.iter_mut().find(|(known, ..)| *known == kind) else {
            self.0.push((kind, now, 0));
            return Some(0);
        };
        if now.saturating_duration_since(*last) < INTERVAL {
            *unsaid += 1;
            return None;
        }
        *last = now;
        Some(std::mem::take(unsaid))
    }
}

/// `doing` says what does not work, in a sentence.
pub(crate) fn complain(error: &StoreError, doing: &'static str) {
    let due = SAID.lock().unwrap_or_else(PoisonError::into_inner).is_due(error.kind(), Instant::now());
    match due.or(planted(Bug::EveryPollIsLogged).then_some(0)) {
        Some(unsaid) => tracing::warn!(?error, unsaid, "{doing}"),
        None => tracing::debug!(?error, "{doing}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trouble_is_said_at_once_then_once_a_minute_with_how_often_it_went_unsaid() {
        let (mut said, start) = (Said(Vec::new()), Instant::now());
        let mut at = |seconds, kind| said.is_due(kind, start + Duration::from_secs(seconds));
        assert_eq!(at(0, StoreErrorKind::Full), Some(0));
        assert_eq!((at(1, StoreErrorKind::Full), at(59, StoreErrorKind::Full)), (None, None));
        assert_eq!(at(59, StoreErrorKind::Unavailable), Some(0), "another trouble is news");
        assert_eq!(at(60, StoreErrorKind::Full), Some(2));
        assert_eq!(at(61, StoreErrorKind::Full), None);
        assert_eq!(at(600, StoreErrorKind::Full), Some(1));
    }
}
