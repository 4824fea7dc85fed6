//! Backoff of the worker's loops after a store error.

use std::time::Duration;

/// 100 ms: a dropped connection is replaced by then.
const FIRST: Duration = Duration::from_millis(100);
/// 5 s: the longest pause; a store that is back is noticed that soon.
const LONGEST: Duration = Duration::from_secs(5);

/// The pause after this many errors in a row: doubles from 100 ms to 5 s, with jitter so that a fleet does not retry in
/// step.
pub(super) fn error_pause(errors: u32) -> Duration {
    let pause = FIRST * 2u32.pow(errors.saturating_sub(1).min(10));
    pause.min(LONGEST).mul_f64(0.5 + fastrand::f64() / 2.0)
}
