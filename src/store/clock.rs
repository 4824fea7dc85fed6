//! The clock of the SQLite store. On PostgreSQL the server's clock decides, and this is not used.

use std::fmt;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use jiff::Timestamp;

/// A source of time, so that tests can control it.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// The time of day.
    fn wall(&self) -> Timestamp;

    /// Monotonic time since some fixed moment; never jumps, stands still while the machine sleeps.
    fn elapsed(&self) -> Duration;
}

/// The clock of this machine.
#[derive(Debug)]
pub struct SystemClock(Instant);

impl Default for SystemClock {
    fn default() -> Self {
        Self(Instant::now())
    }
}

impl Clock for SystemClock {
    fn wall(&self) -> Timestamp {
        Timestamp::now()
    }

    fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}

/// A clock for tests, which stands still until it is advanced.
#[derive(Debug)]
pub struct ManualClock(Mutex<(Timestamp, Duration)>);

impl ManualClock {
    /// A clock that shows this time.
    pub fn at(now: Timestamp) -> Self {
        Self(Mutex::new((now, Duration::ZERO)))
    }

    /// Lets time pass: both clocks move.
    pub fn advance(&self, by: Duration) {
        let mut held = self.lock();
        held.0 += by;
        held.1 += by;
    }

    /// Sets the time of day, as an administrator does: it jumps, but no time passes.
    pub fn set_wall(&self, wall: Timestamp) {
        self.lock().0 = wall;
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, (Timestamp, Duration)> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Clock for ManualClock {
    fn wall(&self) -> Timestamp {
        self.lock().0
    }

    fn elapsed(&self) -> Duration {
        self.lock().1
    }
}
