//! Throttles log lines about store errors: the first is logged at once, then one a minute while the error persists. A loop
//! that retries several times a second, or a flood of requests, must not fill the log (and the disk, which may be full).
//!
//! Errors are told apart by their kind only, not by who met them: a full disk stops every loop and is logged once for all
//! of them. What is done about an error is up to the caller.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::{StoreError, StoreErrorKind};
use crate::planted::{Bug, planted};

/// 1 min: often enough for people who look, too seldom to fill a disk.
const INTERVAL: Duration = Duration::from_secs(60);

/// When each kind of error was last logged by this process, and how many were suppressed since.
static THROTTLE: Mutex<Throttle> = Mutex::new(Throttle(Vec::new()));

struct Throttle(Vec<(StoreErrorKind, Instant, u64)>);

impl Throttle {
    /// How many were suppressed, if it is time to log one again.
    fn is_due(&mut self, kind: StoreErrorKind, now: Instant) -> Option<u64> {
        let Some((_, last, suppressed)) = self.0.iter_mut().find(|(known, ..)| *known == kind) else {
            self.0.push((kind, now, 0));
            return Some(0);
        };
        if now.saturating_duration_since(*last) < INTERVAL {
            *suppressed += 1;
            return None;
        }
        *last = now;
        Some(std::mem::take(suppressed))
    }
}

/// Logs a store error as a warning, or at `debug` while it is suppressed. `message` says what does not work.
pub(crate) fn warn_throttled(error: &StoreError, message: &'static str) {
    let due = THROTTLE.lock().unwrap_or_else(PoisonError::into_inner).is_due(error.kind(), Instant::now());
    match due.or(planted(Bug::EveryPollIsLogged).then_some(0)) {
        Some(suppressed) => tracing::warn!(?error, suppressed, "{message}"),
        None => tracing::debug!(?error, "{message}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_logged_at_once_then_once_a_minute_with_how_many_were_suppressed() {
        let (mut throttle, start) = (Throttle(Vec::new()), Instant::now());
        let mut at = |seconds, kind| throttle.is_due(kind, start + Duration::from_secs(seconds));
        assert_eq!(at(0, StoreErrorKind::Full), Some(0));
        assert_eq!((at(1, StoreErrorKind::Full), at(59, StoreErrorKind::Full)), (None, None));
        assert_eq!(at(59, StoreErrorKind::Unavailable), Some(0), "another kind of error is logged at once");
        assert_eq!(at(60, StoreErrorKind::Full), Some(2));
        assert_eq!(at(61, StoreErrorKind::Full), None);
        assert_eq!(at(600, StoreErrorKind::Full), Some(1));
    }
}
